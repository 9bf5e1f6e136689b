import type { EffectRecord, Stage } from '../model/effect.ts';
import type { Running } from '../run/running.ts';
import { timeToWire } from './time.ts';

/**
 * The stages of an effect: those on record. If it is executing, also the finished ones and the one that runs now. If
 * another gateway runs it, only the admission is known here.
 */
export function runStages(effect: EffectRecord, running: Pick<Running, 'stagesOf'>) {
  const recorded = effect.stages.map(stageToWire);
  if (effect.life.state !== 'executing') return recorded;
  const { lease } = effect.life;
  const here = running.stagesOf(effect.id);
  if (here === null) {
    const admission = { startedAt: lease.admittedAt, durationMs: null, detail: `attempt ${effect.attempt}` };
    return [
      ...recorded,
      stageToWire({ stage: 'admission', status: 'passed', ...admission }),
      begun('execute', lease.admittedAt),
    ];
  }
  const { over, now } = here;
  return [...recorded, ...over.map(stageToWire), ...(now === null ? [] : [begun(now.stage, now.startedAt)])];
}

function begun(stage: Stage['stage'], startedAt: number) {
  return { stage, status: 'running' as const, started_at: timeToWire(startedAt), duration_ms: null, detail: null };
}

function stageToWire(stage: Stage) {
  return {
    stage: stage.stage,
    status: stage.status,
    started_at: timeToWire(stage.startedAt),
    duration_ms: stage.durationMs === null ? null : Math.round(stage.durationMs * 1000) / 1000,
    detail: stage.detail,
  };
}
