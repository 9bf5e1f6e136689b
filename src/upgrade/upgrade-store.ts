import { INSTALLATION } from '../effects/model/ledger.ts';
import {
  carriedFigure,
  carryAgent,
  carryApproval,
  carryClaim,
  carryEffect,
  carryInstallation,
  carryKey,
  carryPauses,
  carryPolicy,
  carryRejection,
  carryReservation,
  carryUse,
  carryUser,
} from './carry-over.ts';
import { createDraft, type Draft } from '../records/draft.ts';
import { eventDraft } from '../records/view.ts';
import type { Format1 } from './format-1.ts';
import type { RowLoad } from './fill.ts';
import { type CarryOver, upgradeFile, type Upgraded } from './upgrade-file.ts';

/** Id of the change to which all converted rows belong. */
const CHANGE = 'format-1';

/**
 * Converts the embedded store in a folder to the format of this program; see {@link upgradeFile}.
 * @throws StoreUnavailable
 */
export function upgradeStore(path: string, lockWaitMs: number): Promise<Upgraded | null> {
  return upgradeFile(path, lockWaitMs, carryOver);
}

/** Reads the tables of format 1 and writes their content as this program's records. */
const carryOver: CarryOver = async (from, into) => {
  const all = <T extends { readonly workspace: string }>(
    slices: Iterable<readonly T[]>,
    put: (draft: Draft, one: T) => void,
  ): Promise<void> => each(slices, into, (slice) => inWorkspaces(into, slice, put));
  const ofInstallation = <T>(slices: Iterable<readonly T[]>, put: (draft: Draft, one: T) => void): Promise<void> =>
    each(slices, into, (slice) =>
      inDraft(into, INSTALLATION, (draft) => {
        for (const one of slice) put(draft, one);
      }),
    );

  into.slice(() => carryLittle(from, into));
  await ofInstallation(from.keys(), carryKey);
  await ofInstallation(from.agents(), carryAgent);
  await ofInstallation(from.users(), carryUser);
  await all(from.effects(), carryEffect);
  await all(from.approvals(), carryApproval);
  await all(from.rejections(), carryRejection);
  await all(from.claims(), carryClaim);
  await all(from.reservations(), carryReservation);
  await all(from.uses(), carryUse);
  await each(from.tallies(), into, (slice) => {
    for (const tally of slice) {
      const { workspace, spent, held, ends, pruned, slots } = tally;
      into.figure(workspace, { ...carriedFigure(tally), spent, held, ends, pruned, slots });
    }
  });
  await each(from.ledger(), into, (slice) => {
    for (const row of slice) into.events(row.workspace, row, row.events.map(eventDraft));
  });
};

/** Carries over what is in force. */
function carryLittle(from: Format1, into: RowLoad): void {
  const policy = from.meta?.policy ?? '';
  const entered = from.entered().filter((workspace) => workspace !== INSTALLATION);
  inDraft(into, INSTALLATION, (draft) => {
    carryPolicy(draft, policy);
    carryInstallation(draft, {
      workspaces: from.workspaces(),
      entered,
      secretMark: from.secretMark(),
      definitions: from.definitions(),
    });
  });
  for (const { workspace, version, pauses } of from.pauses())
    inDraft(into, workspace, (draft) => carryPauses(draft, version, pauses));
}

/** Works slice by slice, so that a signal can end the process in between. */
async function each<T>(
  slices: Iterable<readonly T[]>,
  into: RowLoad,
  carry: (slice: readonly T[]) => void,
): Promise<void> {
  for (const slice of slices) {
    into.slice(() => carry(slice));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function inWorkspaces<T extends { readonly workspace: string }>(
  into: RowLoad,
  slice: readonly T[],
  put: (draft: Draft, one: T) => void,
): void {
  for (const workspace of new Set(slice.map((one) => one.workspace)))
    inDraft(into, workspace, (draft) => {
      for (const one of slice) if (one.workspace === workspace) put(draft, one);
    });
}

/** At time zero, so that nothing in the old store counts as expired. */
function inDraft(into: RowLoad, workspace: string, step: (draft: Draft) => void): void {
  const draft = createDraft({
    workspace,
    now: 0,
    epoch: into.epoch,
    row: (kind, id) => into.row(workspace, kind, id),
    figure: () => undefined,
  });
  step(draft);
  const made = draft.change(CHANGE);
  if (made !== null) into.commit(made.change);
}
