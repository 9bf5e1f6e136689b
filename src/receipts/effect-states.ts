import { stateAfter } from '../effects/steps/ledger-states.ts';
import type { EffectState } from '../effects/model/effect.ts';
import { LEDGER_KINDS } from '../effects/model/ledger.ts';
import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { memberAt } from './commitments.ts';
import { textOf } from './effect-lines.ts';

/** An outcome stands in the ledger a moment after the record has it. */
const CLOCKS_MS = 60_000;

/** What a denial and the line of its effect both say: the name, and the place of it in each. */
const DENIED: readonly (readonly [name: string, inEvent: readonly string[], inLine: readonly string[]])[] = [
  ['decision', ['data', 'decision'], ['decision']],
  ['reason', ['data', 'code'], ['reason', 'code']],
  ['rule', ['data', 'rule'], ['reason', 'rule']],
  ['tool', ['data', 'tool'], ['tool']],
  ['agent_id', ['actor', 'id'], ['agent_id']],
  ['policy.version', ['data', 'policy_version'], ['policy', 'version']],
];

/** Their records say when they were settled. */
const SETTLED: ReadonlySet<Json | undefined> = new Set(['committed', 'failed', 'rejected', 'denied']);

/**
 * Holds the lines of effects against their events, in a bundle that has all events of a time: most that was refused, rejected
 * or is unknown has no receipt to be held against.
 */
export function createStateCheck() {
  /** `denied`: by {@link DENIED}, where the last event is a denial. */
  const byId = new Map<string, { readonly state: EffectState | null; readonly denied: readonly string[] | null }>();
  return {
    event(event: JsonObject, effectId: string): void {
      const { data } = event;
      const kind = LEDGER_KINDS.find((one) => one === event['kind']);
      if (kind === undefined || !isJsonObject(data)) return;
      const before = byId.get(effectId)?.state ?? null;
      const state = stateAfter(before, { kind, data });
      const isDenial = kind === 'effect.denied' && before === null && memberAt(event, ['actor', 'type']) === 'agent';
      const denied = isDenial ? DENIED.map(([, inEvent]) => textOf(memberAt(event, inEvent))) : null;
      byId.set(effectId, { state, denied: denied ?? (state === before ? (byId.get(effectId)?.denied ?? null) : null) });
    },
    /** What is wrong with the line of an effect; nothing where it may have changed after the time. */
    line(line: JsonObject, effectId: string, { since, until }: JsonObject): readonly string[] {
      const of = byId.get(effectId);
      byId.delete(effectId);
      const [from, to] = [msOf(since), msOf(until) - CLOCKS_MS];
      if (of === undefined) {
        const made = msOf(line['created_at']);
        return made < to && !(made < from) ? ['no event tells of it, or an earlier line has it'] : [];
      }
      const { state } = line;
      // What is settled within the time has not changed since, but for another attempt; what was committed never does.
      const isOver = SETTLED.has(state) ? !(msOf(line['settled_at']) >= to) : of.state === 'committed';
      if (!isOver) return [];
      if (state !== of.state) return [`its events say ${of.state}`];
      const differing = DENIED.filter(
        ([, , inLine], index) => of.denied !== null && of.denied[index] !== textOf(memberAt(line, inLine)),
      );
      return differing.map(([name]) => `its event says another ${name}`);
    },
    /** Effects that events tell of, and no line. */
    left: (): readonly string[] => [...byId.keys()],
  };
}

function msOf(time: Json | undefined): number {
  return typeof time === 'string' ? Date.parse(time) : NaN;
}
