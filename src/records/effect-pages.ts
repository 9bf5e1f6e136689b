import { type Decision, DECISIONS } from '../effects/model/decision.ts';
import { decisionOf, type EffectRecord, type EffectState } from '../effects/model/effect.ts';
import { quote } from '../json/text.ts';
import type { ExportItem, ExportRequest } from '../effects/model/export.ts';
import type { EffectFilter } from '../effects/store.ts';
import { PAGE_BYTES, type Page } from '../effects/model/page.ts';
import type { Ended } from '../stores/open-rows.ts';
import type { ListQuery } from '../stores/port.ts';
import { DENIED, EFFECTS, effectRows, effectsIn, effectsOfAgent, LEASES } from './effect-rows.ts';
import { eventSlices } from './ledger-pages.ts';
import { READ_CHARACTERS, READ_SLICE, type Readable } from './lists.ts';
import { pageOf } from './pages.ts';

/** Newest first. A page may have fewer items than asked for even if others follow. */
export async function pageOfEffects(
  from: Readable & { readonly ended: Ended },
  workspace: string,
  filter: EffectFilter,
  present: (effect: EffectRecord) => Promise<EffectRecord>,
): Promise<Page<EffectRecord>> {
  const list = listFor(filter, from.ended.any(workspace));
  // Leases are ordered by their end, denied effects by when they were denied, all other lists by creation time.
  const fromSince = list !== LEASES;
  const toUntil = fromSince && list !== DENIED;
  const mayFit = screen(filter);
  return pageOf(
    from,
    {
      workspace,
      list,
      kind: effectRows.kind,
      from: fromSince ? filter.since : null,
      to: toUntil && filter.until !== null ? filter.until - 1 : null,
      limit: filter.limit + 1,
    },
    filter.cursor,
    { items: filter.limit, characters: PAGE_BYTES },
    (row) => {
      if (!mayFit(row.text)) return null;
      const stored = effectRows.of(row);
      return stored.kind === 'effect' ? stored.effect : null;
    },
    async (listed) => {
      const effect = await present(listed);
      const { approver } = filter;
      const fits =
        matches(effect, filter) &&
        (approver === undefined || (await decidedOn(from, workspace, effect)).by.includes(approver));
      return fits ? effect : null;
    },
  );
}

/**
 * Some effects that fit, newest first.
 * @param after a place in the list; `null`: begin with the newest
 * @returns them, and the place after which others follow; `null`: none does
 */
export async function someEffects(
  { store, turns }: Readable,
  workspace: string,
  asked: ExportRequest['filter'],
  after: ListQuery['after'],
): Promise<{ readonly effects: readonly EffectRecord[]; readonly last: ListQuery['after'] }> {
  const { agentId = null, tool = null, since, until } = asked;
  const filter = { ...asked, agentId, tool, state: null, decision: null, limit: 0, cursor: null };
  const mayFit = screen(filter);
  const list = agentId === null ? EFFECTS : effectsOfAgent(agentId);
  const to = until === null ? null : until - 1;
  const part = { workspace, list, kind: effectRows.kind, order: 'down', from: since, to, after } as const;
  const slice = await turns.run(() => store.list({ ...part, limit: READ_SLICE, characters: READ_CHARACTERS }));
  const shown = await turns.map(slice.entries, ({ row }) => {
    const stored = mayFit(row.text) ? effectRows.of(row) : null;
    return stored?.kind === 'effect' && matches(stored.effect, filter) ? [stored.effect] : [];
  });
  const end = slice.more ? slice.entries.at(-1) : undefined;
  return { effects: shown.flat(), last: end === undefined ? null : { at: end.at, id: end.id } };
}

/**
 * Words of which one is in the text of each effect that has a state or a decision, where it is not the name itself. An
 * effect whose owner has ended executes on record until somebody declares it.
 */
const WORDS: Readonly<Partial<Record<EffectState | Decision, readonly string[]>>> = {
  in_progress: ['executing'],
  unknown: ['unknown', 'executing'],
  unknown_effect: ['unknown', 'executing'],
  denied_policy: ['denied_policy', 'rejected'],
};

/** Says of a text whether its effect may fit. To search it takes a twentieth of the time that it takes to read it. */
function screen({ state, decision, tool }: EffectFilter): (text: string) => boolean {
  const toolText = tool === null ? '' : quote(tool);
  const words = (name: EffectState | Decision | null): readonly string[] =>
    name === null ? [''] : (WORDS[name] ?? [name]).map((word) => `"${word}"`);
  const [ofState, ofDecision] = [words(state), words(decision)];
  return (text) =>
    text.includes(toolText) &&
    ofState.some((word) => text.includes(word)) &&
    ofDecision.some((word) => text.includes(word));
}

/** Decisions that only denied effects have. `denied_policy` is also that of rejected ones. */
const IN_DENIED: ReadonlySet<Decision> = new Set(
  DECISIONS.filter(
    (name) => name === 'idempotency_conflict' || (name.startsWith('denied_') && name !== 'denied_policy'),
  ),
);

/** States that few effects are in have their own lists. */
function listFor({ state, decision, agentId }: EffectFilter, someEnded: boolean): string {
  if (state === 'pending_approval' || decision === 'pending_approval') return effectsIn('pending_approval');
  // An effect whose owner has ended is unknown, but it stays in the list of executing effects until somebody declares
  // it.
  if ((state === 'unknown' || decision === 'unknown_effect') && !someEnded) return effectsIn('unknown');
  if (state === 'executing' || decision === 'in_progress') return LEASES;
  if (state === 'rejected' || state === 'failed') return effectsIn(state);
  if (decision === 'failed') return effectsIn('failed');
  if (state === 'denied' || (decision !== null && IN_DENIED.has(decision))) return DENIED;
  return agentId === null ? EFFECTS : effectsOfAgent(agentId);
}

/**
 * Whether people may have been asked about it: policy still says that of a first attempt, but for one that was changed, whose
 * rules are those of what ran, and one that asked to go beyond a limit, which no rule asks about.
 */
function mayHaveBeenAsked({ attempt, life, trace, stages }: EffectRecord): boolean {
  return (
    attempt > 1 ||
    'approvalId' in life ||
    trace.changed !== undefined ||
    trace.matched.some(({ effect }) => effect === 'require_approval') ||
    stages.some(({ stage }) => stage === 'approval')
  );
}

/** Who approved or rejected an effect, and when: that stands in its ledger, as one may have been asked for more than once. */
export async function decidedOn(
  from: Readable,
  workspace: string,
  effect: EffectRecord,
): Promise<Extract<ExportItem, { readonly type: 'effect' }>['decided']> {
  const by = new Set<string>();
  if (!mayHaveBeenAsked(effect)) return { by: [], at: null };
  let last: number | null = null;
  for await (const events of eventSlices(from, { workspace, about: effect.id, order: 'up' }, null, Infinity))
    for (const { kind, data, at } of events) {
      const { user } = data;
      if ((kind !== 'approval.granted' && kind !== 'approval.rejected') || typeof user !== 'string') continue;
      by.add(user);
      last = at;
    }
  return { by: [...by], at: last };
}

function matches(
  effect: EffectRecord,
  { state, decision, tool, agentId, target, rule, user, keyId, since, until }: EffectFilter,
): boolean {
  return (
    (since === null || effect.createdAt >= since) &&
    (until === null || effect.createdAt < until) &&
    (state === null || effect.life.state === state) &&
    (decision === null || decisionOf(effect) === decision) &&
    (tool === null || effect.action.tool === tool) &&
    (agentId === null || effect.actor.agentId === agentId) &&
    (target === undefined || effect.action.target === target) &&
    (user === undefined || effect.actor.user === user) &&
    (keyId === undefined || effect.actor.keyId === keyId) &&
    (rule === undefined || effect.trace.matched.some((matched) => matched.rule === rule))
  );
}
