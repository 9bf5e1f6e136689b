import { admitStep } from './admission.ts';
import { revokeAllowanceStep } from './allowances.ts';
import {
  makeReservationStep,
  releaseClaimStep,
  releaseReservationStep,
  renewClaimStep,
  takeClaimStep,
} from './claims-and-reservations.ts';
import { eraseStep } from './erase.ts';
import type { Plan, StepView } from './plan.ts';
import { resolveStep, settleStep, planProbeStep } from './settlement.ts';
import { expireOverdueStep, giveUpStep, voteStep } from './voting.ts';

/** The steps by name: under these names they are asked for in the store's thread. */
export const STEPS = {
  admit: admitStep,
  settle: settleStep,
  resolve: resolveStep,
  vote: voteStep,
  give_up: giveUpStep,
  revoke_allowance: revokeAllowanceStep,
  expire_overdue: expireOverdueStep,
  erase: eraseStep,
  plan_probe: planProbeStep,
  take_claim: takeClaimStep,
  renew_claim: renewClaimStep,
  release_claim: releaseClaimStep,
  make_reservation: makeReservationStep,
  release_reservation: releaseReservationStep,
  claim: (view: StepView, { workspace, id }: { readonly workspace: string; readonly id: string }) => ({
    reply: view.claim(workspace, id),
  }),
  reservation: (view: StepView, { workspace, id }: { readonly workspace: string; readonly id: string }) => ({
    reply: view.reservation(workspace, id),
  }),
} as const;

export type StepName = keyof typeof STEPS;
export type RequestOf<Name extends StepName> = Parameters<(typeof STEPS)[Name]>[1];
export type ReplyOf<Name extends StepName> = ReturnType<(typeof STEPS)[Name]>['reply'];

/** A step as the rules write it: a pure function from what it sees and the request to what to write and answer. */
export type Step<Name extends StepName> = (view: StepView, request: RequestOf<Name>) => Plan<ReplyOf<Name>>;

export function stepOf<Name extends StepName>(name: Name): Step<Name> {
  const steps: { readonly [Of in StepName]: Step<Of> } = STEPS;
  return steps[name];
}
