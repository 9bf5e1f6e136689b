import type { EffectRecord, Tombstone } from '../effects/model/effect.ts';
import type { LedgerEvent, LedgerFilter } from '../effects/model/ledger.ts';
import type { Page } from '../effects/model/page.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { readOwnJson } from '../json/text.ts';
import type { LedgerEntry } from '../stores/port.ts';
import { effectRows, type StoredEffect } from './effect-rows.ts';
import { type Readable, rowsByName } from './lists.ts';
import { eventOf } from './view.ts';

/** Events that one read asks for: the store answers within a few ms. */
const EVENTS_AT_ONCE = 200;

/** Events that one page looks at. A filter that fits little is searched piece by piece. */
const MOST_SCANNED = 2000;

/** Effects whose facts one search remembers: events of an effect stand close together. */
const MOST_REMEMBERED = 2000;

/** An event of the ledger as the rest of the gateway sees it. */
export function ledgerEvent({ epoch, seq, at, about, text }: LedgerEntry): LedgerEvent {
  const { kind, effectId, actor, data } = eventOf(about, text);
  return { seq, id: `evt_${epoch}_${seq}`, at, kind, effectId, actor, data };
}

/**
 * Events of a workspace in the order of the ledger (`up`) or newest first, slice by slice, in turns.
 * @param limit events in all
 */
export async function* eventSlices(
  { store, turns }: Readable,
  asked: { readonly workspace: string; readonly about: string | null; readonly order: 'up' | 'down' },
  from: number | null,
  limit: number,
): AsyncGenerator<readonly LedgerEvent[]> {
  let after = from;
  let left = limit;
  while (left > 0) {
    const most = Math.min(left, EVENTS_AT_ONCE);
    const slice = await turns.run(() => store.ledger({ ...asked, after, limit: most }));
    const last = slice.at(-1);
    if (last === undefined) return;
    yield await turns.map(slice, ledgerEvent);
    left -= slice.length;
    after = last.seq;
  }
}

/** A page of the ledger, newest first. It may have fewer events than asked for, or none, even if others follow. */
export async function pageOfLedger(
  from: Readable,
  workspace: string,
  filter: LedgerFilter,
): Promise<Page<LedgerEvent>> {
  const { until, limit, cursor, effectId } = filter;
  const isMatch = createMatch(from, workspace, filter);
  const before = cursor !== null ? placeOf(cursor) : until === null ? null : await firstFrom(from, workspace, until);
  const asked = { workspace, about: effectId ?? null, order: 'down' } as const;
  const items: LedgerEvent[] = [];
  let scanned = 0;
  for await (const events of eventSlices(from, asked, before, MOST_SCANNED)) {
    for (const [index, matches] of (await isMatch(events)).entries()) {
      const event = events[index];
      if (event === undefined) continue;
      if (filter.since !== null && event.at < filter.since) return { items, next: null };
      scanned += 1;
      if (matches) items.push(event);
      if (items.length === limit || scanned === MOST_SCANNED) return { items, next: event.seq.toString(36) };
    }
  }
  return { items, next: null };
}

/** The part of a ledger that lies in the time of a filter: events after a place, before another. */
export interface LedgerSpan {
  readonly after: number;
  readonly end: number;
}

/** What is written after this is not in it. */
export async function spanOf(
  from: Readable,
  workspace: string,
  { since, until }: Pick<LedgerFilter, 'since' | 'until'>,
): Promise<LedgerSpan> {
  const after = since === null ? 0 : (await firstFrom(from, workspace, since)) - 1;
  return { after, end: until === null ? await nextPlace(from, workspace) : await firstFrom(from, workspace, until) };
}

/**
 * Some events of a span that fit, in the order of the ledger.
 * @param isMatch by {@link createMatch}, for the same filter
 * @returns them, and the span of those that follow; `null`: none does
 */
export async function someEvents(
  from: Readable,
  workspace: string,
  { effectId }: Pick<LedgerFilter, 'effectId'>,
  { after, end }: LedgerSpan,
  isMatch: Match,
): Promise<{ readonly events: readonly LedgerEvent[]; readonly rest: LedgerSpan | null }> {
  const asked = { workspace, about: effectId ?? null, order: 'up' } as const;
  for await (const slice of eventSlices(from, asked, after, EVENTS_AT_ONCE)) {
    const events = slice.filter(({ seq }) => seq < end);
    const matches = await isMatch(events);
    const last = events.length < slice.length ? undefined : slice.at(-1);
    const rest = last === undefined ? null : { after: last.seq, end };
    return { events: events.filter((_, index) => matches[index]), rest };
  }
  return { events: [], rest: null };
}

/** The `seq` of the first event from a time on, or the one that the next event will have. Times only grow. */
async function firstFrom(from: Readable, workspace: string, time: number): Promise<number> {
  let low = 1;
  let high = await nextPlace(from, workspace);
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const [event] = await one(from, workspace, 'up', middle - 1);
    if (event === undefined || event.at >= time) high = middle;
    else low = middle + 1;
  }
  return low;
}

async function nextPlace(from: Readable, workspace: string): Promise<number> {
  const [newest] = await one(from, workspace, 'down', null);
  return (newest?.seq ?? 0) + 1;
}

function one(
  { store, turns }: Readable,
  workspace: string,
  order: 'up' | 'down',
  after: number | null,
): Promise<readonly LedgerEntry[]> {
  return turns.run(() => store.ledger({ workspace, about: null, order, after, limit: 1 }));
}

/** A cursor that this store did not make starts at the newest event. */
function placeOf(cursor: string): number | null {
  const place = Number.parseInt(cursor, 36);
  return Number.isSafeInteger(place) ? place : null;
}

/** What is known of an effect by which its events are found, also after its record was removed by age. */
interface EffectFacts extends Pick<Tombstone, 'agentId' | 'tool' | 'target'> {
  readonly user: string | null;
  readonly keyId: string | null;
  readonly rules: readonly string[];
}

type Wanted = Omit<LedgerFilter, 'limit' | 'cursor'>;

/** Says of each event whether it fits. */
export type Match = (events: readonly LedgerEvent[]) => Promise<readonly boolean[]>;

/** Effects are looked up only where an event alone does not say it. */
export function createMatch(from: Readable, workspace: string, filter: Wanted): Match {
  const { agentId, tool, target, user, keyId, rule } = filter;
  const isAboutEffects = [agentId, tool, target, user, keyId, rule].some((wanted) => wanted !== undefined);
  let known = new Map<string, EffectFacts | null>();

  async function lookUp(ids: readonly string[]): Promise<void> {
    if (known.size > MOST_REMEMBERED) known = new Map();
    const missing = ids.filter((id) => !known.has(id));
    const facts = await rowsByName(from, workspace, effectRows.kind, missing, (row) => factsOf(effectRows.of(row)));
    for (const [index, of] of facts.entries()) known.set(missing[index] ?? '', of);
  }

  return async (events) => {
    const fitting = events.map((event) => fitsAlone(event, filter));
    if (!isAboutEffects) return fitting;
    const ids = events.flatMap(({ effectId }, index) =>
      fitting[index] === true && effectId !== null ? [effectId] : [],
    );
    await lookUp([...new Set(ids)]);
    return events.map(
      (event, index) =>
        fitting[index] === true &&
        fitsWith(event, event.effectId === null ? null : (known.get(event.effectId) ?? null), filter),
    );
  };
}

function fitsAlone({ kind, actor, at, effectId }: LedgerEvent, filter: Wanted): boolean {
  return (
    (filter.kind === undefined || kind === filter.kind || kind.startsWith(`${filter.kind}.`)) &&
    (filter.actor === undefined || actor.id === filter.actor) &&
    (filter.effectId === undefined || effectId === filter.effectId) &&
    (filter.since === null || at >= filter.since) &&
    (filter.until === null || at < filter.until)
  );
}

function fitsWith({ actor, data }: LedgerEvent, effect: EffectFacts | null, filter: Wanted): boolean {
  const { agentId, tool, target, user, keyId, rule } = filter;
  const says = (wanted: string | undefined, ...found: readonly (Json | undefined)[]): boolean =>
    wanted === undefined || found.includes(wanted);
  const acts = (type: LedgerEvent['actor']['type']): string | null => (actor.type === type ? actor.id : null);
  return (
    says(agentId, acts('agent'), data['agent_id'], effect?.agentId) &&
    says(tool, data['tool'], effect?.tool) &&
    says(target, data['target'], effect?.target) &&
    says(user, acts('user'), data['user'], data['owner'], effect?.user) &&
    says(keyId, acts('key'), data['key_id'], data['replaced_by'], effect?.keyId) &&
    says(rule, ...rulesIn(data), ...(effect?.rules ?? []))
  );
}

function rulesIn(data: JsonObject): readonly (Json | undefined)[] {
  const { rule, rules, observed, observed_by: observedBy } = data;
  return [
    rule,
    observedBy,
    ...(isJsonArray(rules) ? rules : []),
    ...(isJsonObject(observed) ? [observed['rule']] : []),
  ];
}

function factsOf(stored: StoredEffect): EffectFacts {
  if (stored.kind === 'effect') return factsOfRecord(stored.effect);
  const { agentId, tool, target, outcome } = stored.tombstone;
  const jws = outcome.state === 'committed' ? outcome.receipt.jws : null;
  const receipt = jws === null ? null : receiptFacts(jws);
  return { agentId, tool, target, user: null, keyId: null, rules: [], ...receipt };
}

function factsOfRecord({ action, actor, trace }: EffectRecord): EffectFacts {
  const { agentId, user, keyId } = actor;
  return {
    agentId,
    tool: action.tool,
    target: action.target,
    user,
    keyId,
    rules: trace.matched.map(({ rule }) => rule),
  };
}

/** The receipt stays when the record is gone, and says who called under which rules. */
function receiptFacts(jws: string): Pick<EffectFacts, 'user' | 'keyId' | 'rules'> {
  const payload = readOwnJson<{
    readonly actor: { readonly user: string | null; readonly key_id: string };
    readonly policy: { readonly matched: readonly { readonly rule: string }[] };
  }>(Buffer.from(jws.split('.')[1] ?? '', 'base64url').toString('utf8'));
  return {
    user: payload.actor.user,
    keyId: payload.actor.key_id,
    rules: payload.policy.matched.map(({ rule }) => rule),
  };
}
