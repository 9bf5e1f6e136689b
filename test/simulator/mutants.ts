import * as execution from '../../src/effects/run/execute.ts';
import * as settlement from '../../src/effects/steps/settlement.ts';
import { admitStep } from '../../src/effects/steps/admission.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { StepView } from '../../src/effects/steps/plan.ts';
import * as classification from '../../src/upstreams/http/answer.ts';
import { planted } from '../planted-faults.ts';
import { beforeLate, PRODUCTION, type Rules } from './world.ts';

const { resolveStep, settleStep } = settlement;
const carelessExecution = await planted(execution, 'never-late');

function withEffect(view: StepView, change: (effect: EffectRecord) => EffectRecord): StepView {
  return {
    ...view,
    effect(workspace, id) {
      const effect = view.effect(workspace, id);
      return effect === null ? null : change(effect);
    },
    binding(workspace, key) {
      const binding = view.binding(workspace, key);
      return binding?.kind === 'effect' ? { kind: 'effect', effect: change(binding.effect) } : binding;
    },
  };
}

function classifiedBy({ classify }: typeof classification): Rules {
  const nothing = { committed: [], failed: [], unknown: [], body: [] } as const;
  return { ...PRODUCTION, classify: (seen) => classify('write', nothing, seen) };
}

/**
 * Rules that somebody might write instead of ours. Each breaks the promise; simulator or model must show how.
 * Where it can be, it is the product's own code with one line changed (`planted-faults.ts`).
 */
export const MUTANTS: Readonly<Record<string, Rules>> = {
  'drop the compare-and-set': {
    ...PRODUCTION,
    settle(view, request) {
      const effect = view.effect(request.workspace, request.effectId);
      const current =
        effect?.life.state === 'executing' || effect?.life.state === 'unknown'
          ? effect.life.lease.fence
          : request.fence;
      return settleStep(view, { ...request, fence: current });
    },
  },
  'resolve early': { ...PRODUCTION, resolve: (view, request) => resolveStep(view, { ...request, force: true }) },
  'take over a lease': {
    ...PRODUCTION,
    admit: (view, request) =>
      admitStep(
        withEffect(view, (effect) =>
          effect.life.state === 'executing' && view.now >= effect.life.lease.leaseEnd
            ? {
                ...effect,
                life: {
                  state: 'failed',
                  at: view.now,
                  settledBy: { by: 'owner' },
                  evidence: { code: '', message: '', answered: null, startedAt: null, endedAt: null },
                  result: null,
                },
              }
            : effect,
        ),
        request,
      ),
  },
  'delete on error': { ...PRODUCTION, settle: (await planted(settlement, 'delete-on-error')).settleStep },
  'send without looking at the time': {
    ...PRODUCTION,
    maySend: (now, dispatchBy) => beforeLate(carelessExecution.isLate, now, dispatchBy),
  },
  'take a redirect for a refusal': classifiedBy(await planted(classification, 'redirect-is-a-refusal')),
  'call a 500 a failure': classifiedBy(await planted(classification, 'error-is-a-failure')),
};
