import type { SweepReport } from '../effects/store.ts';
import { derivedKeyOf } from '../effects/steps/generations.ts';
import { isUnsettled } from '../effects/steps/lifecycle.ts';
import type { ArchivedRow } from '../stores/open-rows.ts';
import type { RowStore } from '../stores/port.ts';
import { forgetAllowances } from './allowances.ts';
import { approvalsOf, isAged, replaceEffect, tombstoneOf } from './aged.ts';
import { approvalRows, AWAITED, LEFT, leftRows, REJECTIONS, rejectionRows } from './approval-rows.ts';
import type { Archive } from './archive.ts';
import type { Draft } from './draft.ts';
import { DENIED, EFFECTS, effectRows, keyRows, textForProof, TOMBSTONES } from './effect-rows.ts';
import {
  activeUntil,
  CLAIMS,
  claimRows,
  putClaim,
  removeReservation,
  RESERVATIONS,
  reservationRows,
} from './held-rows.ts';
import { entries, type Entry, firstOf } from './lists.ts';
import { forgetArrived } from './outbox.ts';
import type { StepRunner } from './runner.ts';
import type { Steps } from './steps.ts';

/** How long settled records are kept, ms. */
export interface Retention {
  /** Receipts, and the fact that a key was used; `null`: for ever. */
  readonly keysMs: number | null;
  /** Records of settled effects. */
  readonly effectsMs: number;
  /** Records of refusals. */
  readonly denialsMs: number;
}

/** How long a claim that has ended is still shown, ms. */
const CLAIM_KEPT_MS = 60_000;

/**
 * So many times its limit of effects one sweep checks for their age, among those old enough to be settled. The next goes
 * on from there.
 */
const MAX_SCANNED = 10;

/** Effects of one segment of the archive at most, and how long their records are, together, except for the last. */
const MOST_IN_SEGMENT = 100;
const SEGMENT_CHARACTERS = 1024 * 1024;

/** How far the look for effects that are past their age has got in a workspace. */
export interface AgeScan {
  /** The effect that it has reached, by its creation; `null`: it begins with the oldest. */
  reached: { readonly at: number; readonly id: string } | null;
  /** Effects past their age that stay because they are not settled: so far, and in all of the look before. */
  unsettled: number;
  unsettledBefore: number;
}

/** What of a list in a workspace has reached its time. */
type Due = (list: string, kind: string, to: number, most?: number) => Promise<readonly Entry[]>;
type Write = (step: (draft: Draft) => void) => Promise<unknown>;

/** Declares what has ended in one workspace, at most `limit` of each kind. */
export async function sweepWorkspace(
  parts: {
    readonly store: RowStore;
    readonly runner: StepRunner;
    readonly steps: Steps;
    readonly scan: AgeScan;
    /** `null`: records that are past their age are removed. */
    readonly archive: Pick<Archive, 'move'> | null;
  },
  workspace: string,
  limit: number,
  retention: Retention,
): Promise<Omit<SweepReport, 'unsettled' | 'reached' | 'oldestUnknown' | 'archive'>> {
  const { store, runner, steps, scan, archive } = parts;
  const now = store.now();
  const due: Due = (list, kind, to, most = limit) => firstOf(store, { workspace, list, kind, to }, most);
  const write: Write = (step) => runner.run(workspace, step);

  const { lost } = await steps.declareLostLeases(workspace, limit);

  const overdue = await due(AWAITED, approvalRows.kind, now);
  const ending = overdue.map(({ id }) => steps.run('expire_overdue', workspace, { workspace, approvalId: id }));
  const approvalsExpired = (await Promise.all(ending)).filter((done) => done !== 'escalated').length;

  let aged = await sweepSettled({ store, scan, archive, write }, workspace, limit, now - retention.effectsMs);
  for (const { id } of await due(DENIED, effectRows.kind, now - retention.denialsMs, limit - aged)) {
    const approvals = await approvalsOf(store, workspace, id, limit);
    await write((draft) => {
      if (effectRows.get(draft, id) !== null) replaceEffect(draft, id, null, approvals);
    });
    aged += 1;
  }
  if (retention.keysMs !== null)
    for (const { id, row } of await due(TOMBSTONES, effectRows.kind, now - retention.keysMs, limit - aged)) {
      const stored = effectRows.of(row);
      await write((draft) => {
        if (effectRows.get(draft, id) !== null) effectRows.put(draft, id, null);
        if (stored.kind !== 'tombstone') return;
        const { idempotencyKey } = stored.tombstone;
        for (const key of [idempotencyKey, derivedKeyOf(idempotencyKey)])
          if (key !== null && keyRows.get(draft, key) === id) keyRows.put(draft, key, null);
      });
      aged += 1;
    }

  await forgetEnded(now, due, write);
  await forgetAllowances(store, runner, workspace, limit);
  await steps.giveBackOver(workspace, limit);
  await forgetArrived(store, runner, workspace, limit);
  await store.prune(workspace, limit);
  return { lost, approvalsExpired, aged };
}

/** Leaves tombstones of settled effects that were made before a time. @returns how many */
async function sweepSettled(
  parts: {
    readonly store: RowStore;
    readonly scan: AgeScan;
    readonly archive: Pick<Archive, 'move'> | null;
    readonly write: Write;
  },
  workspace: string,
  limit: number,
  before: number,
): Promise<number> {
  const { store, scan, archive, write } = parts;
  let aged = 0;
  /** What goes into the archive, and how long its records are as they stand. */
  let leaving: ArchivedRow[] = [];
  let size = 0;
  const archiveLeaving = async (): Promise<boolean> => {
    const rows = leaving;
    [leaving, size] = [[], 0];
    const isDone = archive === null || (await archive.move(workspace, rows));
    if (isDone) aged += rows.length;
    return isDone;
  };
  let scanned = 0;
  const old = { workspace, list: EFFECTS, kind: effectRows.kind, to: before, after: scan.reached };
  let isWhole = true;
  for await (const { at, id, row } of entries(store, old)) {
    isWhole = scanned < MAX_SCANNED * limit && aged + leaving.length < limit;
    if (!isWhole) break;
    scanned += 1;
    scan.reached = { at, id };
    const found = effectRows.of(row);
    if (found.kind === 'effect' && isUnsettled(found.effect.life.state)) scan.unsettled += 1;
    if (found.kind === 'tombstone' || !isAged(found.effect, before)) continue;
    if (archive !== null) {
      leaving.push({ id, text: textForProof(found.effect) });
      size += row.text.length;
      const isFull = leaving.length >= MOST_IN_SEGMENT || size >= SEGMENT_CHARACTERS;
      if (!isFull || (await archiveLeaving())) continue;
      // The next sweep begins anew: what is counted so far is not all of it.
      isWhole = false;
      Object.assign(scan, { reached: null, unsettled: 0 });
      break;
    }
    const approvals = await approvalsOf(store, workspace, id, limit);
    await write((draft) => {
      const stored = effectRows.get(draft, id);
      const tombstone =
        stored?.kind === 'effect' && isAged(stored.effect, before) ? tombstoneOf(stored.effect, null) : null;
      if (tombstone !== null) replaceEffect(draft, id, { kind: 'tombstone', tombstone }, approvals);
    });
    aged += 1;
  }
  await archiveLeaving();
  if (isWhole) Object.assign(scan, { reached: null, unsettled: 0, unsettledBefore: scan.unsettled });
  return aged;
}

/** Removes what has ended otherwise: rejections, requests that were left, claims, reservations. */
async function forgetEnded(now: number, due: Due, write: Write): Promise<void> {
  for (const { id } of await due(REJECTIONS, rejectionRows.kind, now))
    await write((draft) => {
      const rejection = rejectionRows.get(draft, id);
      if (rejection !== null && rejection.until <= draft.now) rejectionRows.put(draft, id, null);
    });
  for (const { id } of await due(LEFT, leftRows.kind, now))
    await write((draft) => {
      if (leftRows.get(draft, id) !== null) leftRows.put(draft, id, null);
    });
  for (const { id } of await due(CLAIMS, claimRows.kind, now - CLAIM_KEPT_MS))
    await write((draft) => {
      const claim = claimRows.get(draft, id);
      if (claim !== null && activeUntil(claim) <= draft.now) putClaim(draft, id, null);
    });
  for (const { id } of await due(RESERVATIONS, reservationRows.kind, now))
    await write((draft) => {
      const reservation = reservationRows.get(draft, id);
      if (reservation !== null && reservation.expiresAt <= draft.now) removeReservation(draft, id);
    });
}
