import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { ClaimRecord } from '../effects/model/claim.ts';
import type { KeyRecord } from '../effects/model/key.ts';
import type { PauseRecord } from '../effects/model/pause.ts';
import type { ReservationRecord } from '../effects/model/reservation.ts';
import type { Tombstone } from '../effects/model/effect.ts';
import type { RunningUse } from '../effects/steps/plan.ts';
import type { Agent } from '../effects/model/principal.ts';
import type { SumName } from '../stores/port.ts';
import { putApproval, rejectionRows } from '../records/approval-rows.ts';
import { ONLY, pauseRows, policyRows } from '../records/control-rows.ts';
import type { Draft } from '../records/draft.ts';
import { effectRows, keyRows } from '../records/effect-rows.ts';
import { decodeEffect } from '../records/effect-text.ts';
import { budgetText, budgetSum, rateSum } from '../records/figures.ts';
import { claimOn, poolRows, writeClaim, writeReservation } from '../records/held-rows.ts';
import {
  agentRows,
  apiKeyRows,
  enteredRows,
  handleRows,
  secretRows,
  userRows,
  workspaceRows,
} from '../records/installation.ts';
import { definitionRows } from '../records/policies.ts';

/*
 * Converts the records of a store of the previous format. All of them are new in this store, so each is written without
 * a look first, except where several records share a row. The time is zero, so no record counts as expired and none is
 * left out.
 */

/** An effect as the texts of its parts, unchanged, or what is left of it. */
export interface CarriedEffect {
  readonly id: string;
  /** The idempotency key while it is bound to the effect. */
  readonly key: string | null;
  readonly stored:
    | ({ readonly kind: 'effect' } & Parameters<typeof decodeEffect>[0])
    | { readonly kind: 'tombstone'; readonly tombstone: Tombstone };
}

export function carryEffect(draft: Draft, { id, key, stored }: CarriedEffect): void {
  effectRows.put(
    draft,
    id,
    stored.kind === 'tombstone' ? stored : { kind: 'effect', effect: decodeEffect(stored).record },
  );
  if (key !== null) keyRows.put(draft, key, id);
}

export function carryApproval(draft: Draft, approval: ApprovalRecord): void {
  putApproval(draft, approval);
}

export function carryRejection(
  draft: Draft,
  { fingerprint, effectId, until }: { readonly fingerprint: string; readonly effectId: string; readonly until: number },
): void {
  rejectionRows.put(draft, fingerprint, { effectId, until });
}

/** Claims and reservations count toward caps once the workspace is entered. */
export function carryClaim(draft: Draft, claim: ClaimRecord): void {
  writeClaim(draft, claim.target, claimOn(draft, claim.target), claim);
}

export function carryReservation(draft: Draft, reservation: ReservationRecord): void {
  writeReservation(draft, reservation);
}

export function carryUse(draft: Draft, { effectId, agentId, pool, units, until }: RunningUse): void {
  const { reservations, uses } = poolRows.get(draft, pool) ?? { reservations: [], uses: [] };
  poolRows.put(draft, pool, { reservations, uses: [...uses, { effectId, agentId, pool, units, until }] });
}

/** The pauses of a workspace, with the version that admissions see. */
export function carryPauses(draft: Draft, version: number, pauses: readonly PauseRecord[]): void {
  pauseRows.put(draft, ONLY, { version, pauses });
}

/**
 * The policy of the installation. A workspace gets it when it is first used.
 * @param policy in force; empty before the first
 */
export function carryPolicy(draft: Draft, policy: string): void {
  if (policy !== '') policyRows.put(draft, ONLY, policy);
}

export function carryKey(draft: Draft, key: KeyRecord): void {
  apiKeyRows.put(draft, key.id, key);
  handleRows.put(draft, key.handle, key.id);
}

export function carryAgent(draft: Draft, agent: Agent): void {
  agentRows.put(draft, `${agent.workspace}\n${agent.id}`, agent);
}

export function carryUser(draft: Draft, { id, since }: { readonly id: string; readonly since: number }): void {
  userRows.put(draft, id, since);
}

/** What belongs to the installation. There is little of it. */
export function carryInstallation(
  draft: Draft,
  of: {
    readonly workspaces: readonly string[];
    readonly entered: readonly string[];
    readonly secretMark: string | null;
    readonly definitions: readonly { readonly budget: string; readonly unit: string; readonly window: string }[];
  },
): void {
  for (const id of of.workspaces) workspaceRows.put(draft, id, id);
  for (const id of of.entered) enteredRows.put(draft, id, id);
  if (of.secretMark !== null) secretRows.put(draft, ONLY, of.secretMark);
  if (of.definitions.length > 0)
    definitionRows.put(
      draft,
      ONLY,
      Object.fromEntries(of.definitions.map(({ budget, unit, window }) => [budget, { unit, window }])),
    );
}

/** The name of a figure, and the text kept with it for readers. */
export function carriedFigure(tally: {
  readonly kind: 'budget' | 'rate';
  readonly budget: string;
  readonly unit: string;
  readonly bucket: string;
  readonly window: string;
  readonly limit: number;
}): SumName & { readonly text: string } {
  const { kind, budget, bucket, window } = tally;
  return kind === 'budget'
    ? { ...budgetSum(tally), text: budgetText(tally, tally.limit) }
    : { ...rateSum({ id: budget, bucket, windowMs: Number(window.slice(2)) }), text: '' };
}
