import type { AnswerOf } from '../effects/store.ts';
import type { RowStore } from '../stores/port.ts';
import { type Cap, capOf, COUNTED, countedRows } from './counted.ts';
import { capsOfClaim, capsOfReservation, CLAIMS, claimRows, RESERVATIONS, reservationRows } from './held-rows.ts';
import { entries, recordsOf } from './lists.ts';

/** The most counters that are looked at. */
const MAX_COUNTERS = 100_000;

/** What counts toward caps in a workspace, by the counters and one by one. Not all of it is read at one moment. */
export async function capCounts(store: RowStore, workspace: string): Promise<AnswerOf<'capCounts'>> {
  const counts = new Map<string, { counter: number; oneByOne: number }>();
  const of = (cap: string): { counter: number; oneByOne: number } => {
    const there = counts.get(cap) ?? { counter: 0, oneByOne: 0 };
    counts.set(cap, there);
    return there;
  };
  const add = (caps: readonly string[]): void => {
    for (const cap of caps) of(cap).oneByOne += 1;
  };
  const namesOf = (caps: readonly Cap[]): readonly string[] => caps.map(({ name }) => name);
  for (const sum of await store.sums(workspace, MAX_COUNTERS)) {
    const cap = capOf(sum);
    if (cap !== null) of(cap).counter = sum.held;
  }
  const now = store.now();
  for (const claim of await recordsOf(store, claimRows, workspace, CLAIMS))
    if (claim.expiresAt > now) add(namesOf(capsOfClaim(claim)));
  for (const reservation of await recordsOf(store, reservationRows, workspace, RESERVATIONS))
    if (reservation.expiresAt > now) add(namesOf(capsOfReservation(reservation)));
  // What is over and was not given back yet.
  for await (const { row } of entries(store, { workspace, list: COUNTED, kind: countedRows.kind, to: now }))
    add(countedRows.of(row).caps);
  return [...counts].map(([cap, { counter, oneByOne }]) => ({ cap, counter, oneByOne }));
}
