import type { SumChange, SumName } from '../stores/port.ts';
import type { Draft, ReadHint } from './draft.ts';
import { jsonKind, repository } from './kind.ts';

/*
 * What counts toward caps until a time: claims and reservations that somebody asked for. Each such thing has a row that
 * names its caps, and each cap a counter: how many rows name it. The store checks the limit, so nobody looks at what
 * others have. What is over still counts until its row is removed. So a cap is never exceeded, but may seem reached too
 * early: what is over is given back before anybody is refused.
 */

/** How many things may count toward one name at a time. */
export interface Cap {
  readonly name: string;
  readonly limit: number;
}

interface Counted {
  /** Names of the caps that it counts toward. */
  readonly caps: readonly string[];
  /** ms */
  readonly until: number;
}

/** All that counts toward caps, ordered by when it is over. */
export const COUNTED = 'counted';
/** What counts toward one cap, ordered by when it is over. */
export const countedToward = (cap: string): string => `counted:${cap}`;

export const countedRows = repository(
  jsonKind<Counted>('counted', ({ caps, until }) =>
    [COUNTED, ...caps.map(countedToward)].map((list) => ({ list, at: until })),
  ),
);

/** The counters of all caps are in one group. */
const GROUP = 'counted';

/** Nothing is ever spent, so the counter is over as soon as nothing counts. */
export function capSum(cap: string): SumName {
  return { name: `counted ${cap}`, span: { kind: 'until', end: 0 }, group: GROUP };
}

/** The cap that a counter belongs to; `null`: it belongs to none. */
export function capOf({ name, group }: { readonly name: string; readonly group: string }): string | null {
  return group === GROUP ? name.slice('counted '.length) : null;
}

function capChange(cap: string, more: 1 | -1, limit: number | null): SumChange {
  return { ...capSum(cap), hold: more, spend: 0, limit, most: null, text: null };
}

/**
 * Counts a thing toward caps until a time, instead of what it counted toward before.
 * @param hint whether it may have counted before
 */
export function count(draft: Draft, thing: string, caps: readonly Cap[], until: number, hint?: ReadHint): void {
  const before = countedRows.get(draft, thing, hint)?.caps ?? [];
  const names = caps.map(({ name }) => name);
  for (const name of before) if (!names.includes(name)) draft.sum(capChange(name, -1, null));
  for (const { name, limit } of caps) if (!before.includes(name)) draft.sum(capChange(name, 1, limit));
  countedRows.put(draft, thing, names.length === 0 ? null : { caps: names, until });
}

export function countNoMore(draft: Draft, thing: string): void {
  count(draft, thing, [], 0);
}

/** A thing that is over no longer counts. */
export function giveBack(draft: Draft, thing: string): void {
  const counted = countedRows.get(draft, thing);
  if (counted !== null && counted.until <= draft.now) countNoMore(draft, thing);
}

/** How many count toward a cap, where that is known. If it is not, the store judges. */
export function countOf(draft: Draft, cap: string): number {
  return draft.counter(capSum(cap))?.held ?? 0;
}
