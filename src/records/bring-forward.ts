import type { RowStore } from '../stores/port.ts';
import { countAnyway } from './counted.ts';
import type { Draft } from './draft.ts';
import {
  capsOfClaim,
  capsOfReservation,
  CLAIMS,
  claimRows,
  countedClaim,
  countedReservation,
  RESERVATIONS,
  reservationRows,
} from './held-rows.ts';
import { jsonKind, stock } from './kind.ts';
import { entries } from './lists.ts';
import type { StepRunner } from './runner.ts';

/*
 * The number of the form that the records of a workspace have stands where the installation notes the workspace. Form 1
 * (its place has the name of the workspace) kept, in one row, the claims of an agent, those of a key, and the
 * reservations of a key. Since form 2 they count toward caps.
 */

/** No workspace has this name. */
export const FORM = 'form 2';

/** Rows of form 1, by agent or key. */
const OF_FORM_1 = {
  claimsOfAgent: stock(jsonKind<object>('claims_of_agent', () => [])),
  claimsOfKey: stock(jsonKind<object>('claims_of_key', () => [])),
  reservationsOfKey: stock(jsonKind<object>('reservations_of_key', () => [])),
};

function remove(draft: Draft, rows: (typeof OF_FORM_1)[keyof typeof OF_FORM_1], id: string | undefined): void {
  if (id !== undefined && rows.get(draft, id) !== null) rows.put(draft, id, null);
}

/**
 * Brings the records of a workspace from form 1 to the present one. May be run again, and on several gateways at once:
 * what counts already is not counted again.
 */
export async function bringForward(store: RowStore, runner: StepRunner, workspace: string): Promise<void> {
  for await (const { id } of entries(store, { workspace, list: CLAIMS, kind: claimRows.kind }))
    await runner.run(workspace, (draft) => {
      const claim = claimRows.get(draft, id);
      if (claim === null) return;
      if (claim.expiresAt > draft.now) countAnyway(draft, countedClaim(id), capsOfClaim(claim), claim.expiresAt);
      remove(draft, OF_FORM_1.claimsOfAgent, claim.agentId);
      remove(draft, OF_FORM_1.claimsOfKey, claim.keyId);
    });
  for await (const { id } of entries(store, { workspace, list: RESERVATIONS, kind: reservationRows.kind }))
    await runner.run(workspace, (draft) => {
      const reservation = reservationRows.get(draft, id);
      if (reservation?.keyId === undefined) return;
      if (reservation.expiresAt > draft.now)
        countAnyway(draft, countedReservation(id), capsOfReservation(reservation), reservation.expiresAt);
      remove(draft, OF_FORM_1.reservationsOfKey, reservation.keyId);
    });
}
