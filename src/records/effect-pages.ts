import { decisionOf } from '../effects/model/effect-decision.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { type EffectFilter, PAGE_BYTES, type Page } from '../effects/store.ts';
import type { Ended } from '../stores/open-rows.ts';
import type { RowStore } from '../stores/port.ts';
import { EFFECTS, effectRows, effectsIn, effectsOfAgent, LEASES } from './effect-rows.ts';
import { pageOf } from './pages.ts';

/** Newest first. A page may have fewer items than asked for even if others follow. */
export async function pageOfEffects(
  store: RowStore,
  ended: Ended,
  workspace: string,
  filter: EffectFilter,
  present: (effect: EffectRecord) => Promise<EffectRecord>,
): Promise<Page<EffectRecord>> {
  const list = listFor(filter, ended.any(workspace));
  // Leases are ordered by their end, all other lists by creation time.
  const bounded = list !== LEASES;
  return pageOf(
    store,
    {
      workspace,
      list,
      kind: effectRows.kind,
      from: bounded ? filter.since : null,
      to: bounded && filter.until !== null ? filter.until - 1 : null,
      limit: Math.min(filter.limit + 1, 200),
      characters: PAGE_BYTES,
    },
    filter.cursor,
    { items: filter.limit, characters: PAGE_BYTES },
    async (row) => {
      const stored = effectRows.of(row);
      const effect = stored.kind === 'effect' ? await present(stored.effect) : null;
      return effect !== null && matches(effect, filter) ? effect : null;
    },
  );
}

/** States that few effects are in have their own lists. */
function listFor({ state, decision, agentId }: EffectFilter, someEnded: boolean): string {
  if (state === 'pending_approval' || decision === 'pending_approval') return effectsIn('pending_approval');
  // An effect whose owner has ended is unknown, but it stays in the list of executing effects until somebody declares
  // it.
  if ((state === 'unknown' || decision === 'unknown_effect') && !someEnded) return effectsIn('unknown');
  if (state === 'executing' || decision === 'in_progress') return LEASES;
  if (state === 'rejected' || state === 'failed') return effectsIn(state);
  return agentId === null ? EFFECTS : effectsOfAgent(agentId);
}

function matches(effect: EffectRecord, { state, decision, tool, agentId, since, until }: EffectFilter): boolean {
  return (
    (since === null || effect.createdAt >= since) &&
    (until === null || effect.createdAt < until) &&
    (state === null || effect.life.state === state) &&
    (decision === null || decisionOf(effect) === decision) &&
    (tool === null || effect.action.tool === tool) &&
    (agentId === null || effect.actor.agentId === agentId)
  );
}
