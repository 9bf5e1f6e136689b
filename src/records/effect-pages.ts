import { decisionOf } from '../effects/effect-decision.ts';
import type { EffectRecord } from '../effects/effect.ts';
import { type EffectFilter, PAGE_BYTES, type Page } from '../effects/store.ts';
import type { Ended } from '../stores/open-rows.ts';
import type { RowStore } from '../stores/port.ts';
import { EFFECTS, effectRows, effectsIn, effectsOfAgent, LEASES } from './effect-rows.ts';
import { entries } from './lists.ts';

/** Entries that one page looks at: what no list is kept of is looked for bit by bit, and the page says where it came to. */
const LOOKED_AT = 2000;

/** Newest first. A page may have fewer than asked for though others follow. */
export async function pageOfEffects(
  store: RowStore,
  ended: Ended,
  workspace: string,
  filter: EffectFilter,
  present: (effect: EffectRecord) => Promise<EffectRecord>,
): Promise<Page<EffectRecord>> {
  const items: EffectRecord[] = [];
  let looked = 0;
  let bytes = 0;
  let last: string | null = null;
  const list = listFor(filter, ended.any(workspace));
  // Leases stand by their end, everything else by when it was made.
  const bounded = list !== LEASES;
  const asked = {
    workspace,
    list,
    kind: effectRows.kind,
    order: 'down',
    from: bounded ? filter.since : null,
    to: bounded && filter.until !== null ? filter.until - 1 : null,
    after: parseCursor(filter.cursor),
    limit: Math.min(filter.limit + 1, 200),
    characters: PAGE_BYTES,
  } as const;
  for await (const { at, id, row } of entries(store, asked)) {
    const stored = effectRows.of(row);
    const effect = stored.kind === 'effect' ? await present(stored.effect) : null;
    const fits = effect !== null && matches(effect, filter);
    if (fits) bytes += row.text.length;
    const isFull = items.length >= filter.limit || (items.length > 0 && bytes > PAGE_BYTES);
    if ((fits && isFull) || looked >= LOOKED_AT) return { items, next: last };
    if (fits) items.push(effect);
    looked += 1;
    last = `${at.toString(36)}.${id}`;
  }
  return { items, next: null };
}

/** Where few effects are in a state, they have a list of their own. */
function listFor({ state, decision, agentId }: EffectFilter, someEnded: boolean): string {
  if (state === 'pending_approval' || decision === 'pending_approval') return effectsIn('pending_approval');
  // What an owner left behind is unknown, and stands among what executes until it is declared.
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

/** A cursor that this store did not make begins at the start. */
export function parseCursor(cursor: string | null): { readonly at: number; readonly id: string } | null {
  const match = /^([0-9a-z]{1,11})\.([0-9a-z_]{1,64})$/.exec(cursor ?? '');
  return match === null ? null : { at: Number.parseInt(match[1] ?? '', 36), id: match[2] ?? '' };
}
