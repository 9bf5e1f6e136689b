import { INSTALLATION, type LedgerDraft } from '../effects/model/ledger.ts';
import type { RowStore } from '../stores/port.ts';
import type { Draft } from './draft.ts';
import { jsonKind, repository, textKind } from './kind.ts';
import { entries, firstOf } from './lists.ts';
import type { StepRunner } from './runner.ts';
import { appendEvents } from './view.ts';

/**
 * Events for the ledger of a workspace that belong to a change of the installation. That takes two changes; in between,
 * the events wait here.
 */
interface Waiting {
  /** Since when it waits, ms. Events are brought in this order. */
  readonly at: number;
  readonly workspace: string;
  readonly events: readonly LedgerDraft[];
}

const OUTBOX = 'outbox';
const waitingRows = repository(jsonKind<Waiting>('outbox', ({ at }) => [{ list: OUTBOX, at }]));

/** List of what has been brought, with the time when it no longer waited, ms. */
const ARRIVED = 'arrived';
const WAITS = 'waits';
/** What has been brought from the outbox, so that nothing is brought twice. */
const arrivedRows = repository(textKind('arrived', (at) => (at === WAITS ? [] : [{ list: ARRIVED, at: Number(at) }])));

/** Whoever saw an event wait brings it within this time, ms. */
const BROUGHT_WITHIN_MS = 60_000;
/** How long it is remembered that an event was brought. By then everybody who saw it wait has finished. */
const REMEMBERED_MS = 5 * BROUGHT_WITHIN_MS;

/** Writes events into the ledger of a workspace, with a change of the installation. @param id never used twice */
export function appendTo(draft: Draft, workspace: string, id: string, events: readonly LedgerDraft[]): void {
  if (workspace === INSTALLATION) appendEvents(draft, events);
  else waitingRows.put(draft, id, { at: draft.now, workspace, events });
}

/** Runs a step of the installation, and then brings the events that it left for other ledgers. */
export async function runInstalling<Result>(
  store: RowStore,
  runner: StepRunner,
  step: (draft: Draft) => Result,
): Promise<Result> {
  const { result } = await runner.run(INSTALLATION, step);
  await emptyOutbox(store, runner);
  return result;
}

/**
 * Brings waiting events into the ledgers that they belong to. Each is written once, no matter who brings it and how
 * often.
 */
export async function emptyOutbox(store: RowStore, runner: StepRunner): Promise<void> {
  const until = store.now() + BROUGHT_WITHIN_MS;
  for await (const { id, row } of entries(store, { workspace: INSTALLATION, list: OUTBOX, kind: waitingRows.kind })) {
    // The rest is left for the next run.
    if (store.now() > until - BROUGHT_WITHIN_MS / 2) return;
    const { workspace, events } = waitingRows.of(row);
    await runner.run(workspace, (draft) => {
      if (arrivedRows.get(draft, id) !== null) return;
      draft.validUntil(until);
      arrivedRows.put(draft, id, WAITS);
      appendEvents(draft, events);
    });
    await runner.run(INSTALLATION, (draft) => {
      if (waitingRows.get(draft, id) !== null) waitingRows.put(draft, id, null);
    });
    await runner.run(workspace, (draft) => {
      if (arrivedRows.get(draft, id) === WAITS) arrivedRows.put(draft, id, String(draft.now));
    });
  }
}

/** Forgets events that were brought long ago, at most `limit`. */
export async function forgetArrived(
  store: RowStore,
  runner: StepRunner,
  workspace: string,
  limit: number,
): Promise<void> {
  const to = store.now() - REMEMBERED_MS;
  for (const { id } of await firstOf(store, { workspace, list: ARRIVED, kind: arrivedRows.kind, to }, limit))
    await runner.run(workspace, (draft) => {
      if (arrivedRows.get(draft, id) !== null) arrivedRows.put(draft, id, null);
    });
}
