import type { EffectRecord, Tombstone } from '../effects/model/effect.ts';
import { INSTALLATION } from '../effects/model/ledger.ts';
import { randomPooled } from '../effects/run/ids.ts';
import { AT_ONCE } from '../effects/run/reading-turns.ts';
import { carryOverStep } from '../effects/steps/carry-over.ts';
import type { Row, RowStore } from '../stores/port.ts';
import { type Draft, Unknown } from './draft.ts';
import { ONLY, pauseRows } from './control-rows.ts';
import { EFFECTS, effectRows, keyRows, TOMBSTONES } from './effect-rows.ts';
import { ENTERED, enteredRows } from './installation.ts';
import { rowsByName, slices } from './lists.ts';
import { createStepRunner, type StepRunner } from './runner.ts';
import { NO_OBSERVER } from './steps.ts';
import { RecordsView, writePlan } from './view.ts';

/** The store that is replaced cannot be read further. */
class Unreadable extends Error {}

function unreadable(error: unknown): never {
  throw new Unreadable(error instanceof Error ? error.message : String(error));
}

export interface CarriedOver {
  /** Calls that ran after the backup: their outcome is unknown now. */
  readonly unknown: number;
  /** Calls of whose records only the receipt was left: it was kept. */
  readonly receipts: number;
  /** Why the store that was replaced could not be read to its end; `null`: it was. */
  readonly fault: string | null;
}

/**
 * Brings what ran after the backup into a restored store, newest first, as far as the store that it replaces can be read.
 */
export async function carryOver(restored: RowStore, replaced: Pick<RowStore, 'list' | 'rows'>): Promise<CarriedOver> {
  const before: Pick<RowStore, 'list' | 'rows'> = {
    list: (query) => replaced.list(query).catch(unreadable),
    rows: (workspace, names) => replaced.rows(workspace, names).catch(unreadable),
  };
  const from = { store: restored, turns: AT_ONCE };
  const runner = createStepRunner(restored);
  let unknown = 0;
  let receipts = 0;
  try {
    for (const workspace of await workspacesOf(before)) {
      await bringPauses(runner, before, workspace);
      for (const list of [EFFECTS, TOMBSTONES])
        for await (const slice of slices(before, { workspace, list, kind: effectRows.kind, order: 'down' })) {
          const ids = slice.map(({ id }) => id);
          const there = await rowsByName(from, workspace, effectRows.kind, ids, ({ text }) => text);
          // What both have in the same words needs no look.
          const others = slice.filter(({ row }, index) => row.text !== there[index]);
          if (others.length === 0) continue;
          // In one transaction: most of what one costs is that it is synced.
          const counted = await bring(
            runner,
            workspace,
            others.map(({ row }) => recordOf(row)),
          );
          unknown += counted.unknown;
          receipts += counted.receipts;
        }
    }
    return { unknown, receipts, fault: null };
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    return { unknown, receipts, fault: error.message };
  } finally {
    await runner.close();
  }
}

async function workspacesOf(before: Pick<RowStore, 'list'>): Promise<readonly string[]> {
  const found: string[] = [];
  for await (const slice of slices(before, { workspace: INSTALLATION, list: ENTERED, kind: enteredRows.kind }))
    found.push(...slice.map(({ id }) => id));
  return found;
}

/** What was stopped stays so, and what was let run again runs. As they are sealed: if others wrote them, all is paused. */
async function bringPauses(runner: StepRunner, before: Pick<RowStore, 'rows'>, workspace: string): Promise<void> {
  const [row] = await before.rows(workspace, [{ kind: pauseRows.kind, id: ONLY }]);
  if (row === undefined || row === null) return;
  const latest = pauseRows.of(row);
  await runner.run(workspace, (draft) => {
    if (latest.version > (pauseRows.get(draft, ONLY)?.version ?? 0)) pauseRows.put(draft, ONLY, latest);
  });
}

function recordOf(row: Row): ReturnType<typeof effectRows.of> {
  try {
    return effectRows.of(row);
  } catch (error) {
    return unreadable(error);
  }
}

async function bring(
  runner: StepRunner,
  workspace: string,
  ran: readonly ReturnType<typeof effectRows.of>[],
): Promise<{ readonly unknown: number; readonly receipts: number }> {
  const ids = ran.map((stored) => (stored.kind === 'effect' ? stored.effect.id : stored.tombstone.id));
  const { result } = await runner.run(workspace, (draft) => {
    askForAll(draft, ids);
    let unknown = 0;
    let receipts = 0;
    for (const stored of ran) {
      if (stored.kind === 'effect') unknown += bringEffect(draft, stored.effect);
      else if (stored.tombstone.outcome.state === 'committed') {
        const present = effectRows.get(draft, stored.tombstone.id);
        if (present === null) receipts += bringTombstone(draft, stored.tombstone);
        else if (present.kind === 'effect') unknown += bringEffect(draft, asRan(present.effect, stored.tombstone));
      }
    }
    return { unknown, receipts };
  });
  return result;
}

/** A step begins anew with each row that it asks for, so it asks for all at once. @throws Unknown */
function askForAll(draft: Draft, ids: readonly string[]): void {
  const wants = ids.flatMap((id) => {
    try {
      effectRows.get(draft, id);
      return [];
    } catch (error) {
      if (error instanceof Unknown) return error.wants;
      throw error;
    }
  });
  if (wants.length > 0) throw new Unknown(wants, []);
}

function bringEffect(draft: Draft, ran: EffectRecord): number {
  if (effectRows.get(draft, ran.id)?.kind === 'tombstone') return 0;
  const view = new RecordsView(draft, { maxFreezeMs: 0, leaseOwner: null }, false, NO_OBSERVER);
  const plan = carryOverStep(view, { ran, nonce: randomPooled(9).toString('base64url') });
  if (plan === null) return 0;
  writePlan(draft, plan);
  return 1;
}

/** Its key is used, and whoever repeats it gets its receipt. */
function bringTombstone(draft: Draft, tombstone: Tombstone): number {
  keyRows.get(draft, tombstone.idempotencyKey);
  keyRows.put(draft, tombstone.idempotencyKey, tombstone.id);
  effectRows.put(draft, tombstone.id, { kind: 'tombstone', tombstone });
  return 1;
}

/** The record that is there, as it ended by what is left of it. */
function asRan(present: EffectRecord, { attempt, at, outcome }: Tombstone): EffectRecord {
  if (outcome.state !== 'committed') return present;
  const evidence = { code: 'declared', message: '', answered: null, startedAt: null, endedAt: at };
  // The step tells its id alone.
  const receipt = { id: outcome.receipt.id, jws: outcome.receipt.jws ?? '' };
  const settled = { settledBy: { by: 'owner' }, result: null, accepted: false, responseTruncated: false } as const;
  return { ...present, attempt, life: { state: 'committed', at, evidence, receipt, ...settled } };
}
