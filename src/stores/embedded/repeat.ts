import { admitStep } from '../../effects/admission.ts';
import type { EffectRecord } from '../../effects/effect.ts';
import type { StepView } from '../../effects/plan.ts';
import { settleStep } from '../../effects/settlement.ts';
import type { Admission, AdmitRequest, SeenVersions, Settlement, SettleRequest } from '../../effects/store.ts';

/**
 * Steps are pure: whoever knows the request and what the step saw knows the answer. For the two steps of an ordinary
 * call the store's thread sends only what it saw, and the gateway's thread repeats the step: a record and a receipt of
 * some kilobytes need not be written as text, copied and read again.
 */

/** What an ordinary admission saw of the store; of each budget row what is spent, and what is held with this call. */
export type AdmissionSeen = readonly [now: number, epoch: number, seq: number, ...figures: number[]];

/** What a first attempt without claims and pools saw; `null` for any other answer. */
export function seenByAdmission(request: AdmitRequest, reply: Admission): AdmissionSeen | null {
  const { verdict } = request;
  if (reply.kind !== 'dispatch' || reply.approval !== null) return null;
  if (verdict.kind !== 'permit' || verdict.mode !== 'enforce') return null;
  if (request.claimId !== null || request.reservationId !== null) return null;
  const { effect, ledger } = reply;
  if (effect.id !== request.effectId || effect.attempt !== 1 || effect.life.state !== 'executing') return null;
  if (effect.claims.length > 0 || effect.uses.length > 0) return null;
  const figures = reply.budgets.flatMap(({ spent, held }) => [spent, held]);
  return [effect.life.lease.admittedAt, ledger.epoch, ledger.seq, ...figures];
}

/** The answer of an admission that saw this. */
export function repeatAdmission(request: AdmitRequest, seen: AdmissionSeen): Admission {
  const [now, epoch, seq] = seen;
  const { verdict } = request;
  const amounts: number[] = [];
  if (verdict.kind === 'permit')
    for (const it of verdict.obligations) if (it.kind === 'budget') amounts.push(it.amount ?? 0);
  let row = 0;
  const budget: StepView['budget'] = () => {
    const spent = seen[3 + 2 * row] ?? 0;
    const held = (seen[4 + 2 * row] ?? 0) - (amounts[row] ?? 0);
    row += 1;
    return { spent, held, rows: 0 };
  };
  return admitStep(viewOf({ now, epoch, seq, versions: request.seen, executing: null, budget }), request).reply;
}

/**
 * When an owner's settlement was made, where the record is the executing one and this request, and nothing else.
 * `null` for any other answer.
 */
export function seenBySettlement(request: SettleRequest, reply: Settlement): number | null {
  if (reply.kind !== 'settled') return null;
  const { life, closed } = reply.effect;
  if (closed || (life.state !== 'committed' && life.state !== 'failed')) return null;
  // The same settlement again, and late evidence, are answered with a record that somebody else made.
  return life.evidence === request.evidence && life.settledBy === request.settledBy ? life.at : null;
}

/**
 * The answer of the settlement of an executing effect at this time. The record is made when somebody looks at it: on
 * the path of a call nobody does.
 */
export function repeatSettlement(request: SettleRequest, executing: EffectRecord, at: number): Settlement {
  let made: EffectRecord | null = null;
  return {
    kind: 'settled',
    get effect() {
      made ??= settledRecord(request, executing, at);
      return made;
    },
  };
}

function settledRecord(request: SettleRequest, executing: EffectRecord, at: number): EffectRecord {
  const view = viewOf({ now: at, epoch: 0, seq: 0, versions: null, executing, budget: unseen });
  const { reply } = settleStep(view, request);
  if (reply.kind !== 'settled') throw new TypeError('the store settled what cannot be settled');
  return reply.effect;
}

interface Seen {
  readonly now: number;
  readonly epoch: number;
  readonly seq: number;
  readonly versions: SeenVersions | null;
  readonly executing: EffectRecord | null;
  readonly budget: StepView['budget'];
}

/** What an ordinary step looks at. Written out: copying a view with this many members by spread costs more than a step. */
function viewOf({ now, epoch, seq, versions, executing, budget }: Seen): StepView {
  return {
    now,
    epoch,
    maxFreezeMs: 0,
    versions: () => versions ?? unseen(),
    nextSeq: () => seq,
    binding: () => null,
    effect: () => executing ?? unseen(),
    rejection: unseen,
    approval: unseen,
    pendingApprovals: unseen,
    claim: unseen,
    // A claim changes the answer only by being in the record; then the record is sent.
    claimOn: () => null,
    claimCount: unseen,
    claimsOfKey: unseen,
    reservation: unseen,
    reservationsOf: unseen,
    reservationsOfKey: unseen,
    usesOf: unseen,
    budget,
    rate: () => 0,
  };
}

function unseen(): never {
  throw new TypeError('a step asked for more than the store’s thread has sent');
}
