import { type ApprovalRecord, endedApproval } from '../model/approval.ts';
import type { EffectRecord, Hold, Lease, Life } from '../model/effect.ts';
import type { LedgerDraft } from '../model/ledger.ts';
import { derivedKeyOf, generationNumber } from './generations.ts';
import { holdsToWire, release } from './give-back.ts';
import { advance } from './lifecycle.ts';
import type { BudgetChange, Plan, StepView } from './plan.ts';

/** A call that a restored store does not know as it ended: what another store shows of it. */
export interface CarryOverRequest {
  /** Its record as the other store has it. */
  readonly ran: EffectRecord;
  /** Random; names the attempt if the other store no longer has its lease. */
  readonly nonce: string;
}

/**
 * Brings a call into a store that was restored from a backup made before it ran. Its outcome is unknown there: what it
 * held is held, and its key runs nothing any more until somebody has settled it.
 * @returns what to write, or `null` if the store knows that it ran
 */
export function carryOverStep(view: StepView, { ran, nonce }: CarryOverRequest): Plan<EffectRecord> | null {
  const { workspace } = ran;
  const present = view.effect(workspace, ran.id);
  if (!hasRun(ran.life) || (present !== null && isKnown(present, ran))) return null;
  const lease = leaseOf(view, ran, nonce);
  const isHeld = present?.holdState === 'held';
  const holds = isHeld ? present.holds : ran.holds;
  const record: EffectRecord = {
    ...ran,
    createdAt: present?.createdAt ?? ran.createdAt,
    holds,
    holdState: holds.length === 0 ? 'none' : 'held',
    claims: [],
    uses: [],
    life: { state: 'unknown', at: view.now, lease, evidence: evidenceOf(ran, lease) },
  };
  // What it holds already, from an attempt before, is not held twice.
  const held: readonly Hold[] = isHeld ? [] : holds;
  const released = present === null ? null : release(view, present, 'keep', null).plan;
  const displaced = displace(view, record);
  const approval = pendingOf(view, present);
  return {
    ...released,
    reply: record,
    effects: [{ record, binding: 'bind' }, ...displaced.effects],
    ...latestGeneration(view, record),
    approvals: [...(approval === null ? [] : [endedApproval(approval, 'used', view.now)]), ...displaced.approvals],
    budgets: held.map(holding),
    events: [...displaced.events, ...eventsOf(ran, record, lease, held)],
  };
}

/** Whether something of a call may have been done. */
function hasRun({ state }: Life): boolean {
  return state === 'executing' || state === 'unknown' || state === 'committed';
}

/** One that is executing is declared lost by the next start. */
function isKnown({ life, attempt }: EffectRecord, ran: EffectRecord): boolean {
  if (life.state === 'committed') return true;
  return (life.state === 'executing' || life.state === 'unknown') && attempt >= ran.attempt;
}

/** Nothing of a committed call is on its way. Of others nobody knows, for as long as at the beginning. */
function leaseOf(view: StepView, { life, attempt, firstDispatchAt, createdAt }: EffectRecord, nonce: string): Lease {
  if (life.state === 'executing' || life.state === 'unknown') {
    const { lease } = life;
    return { ...lease, quiesceUntil: view.now + lease.quiesceUntil - lease.admittedAt };
  }
  const at = Math.min(firstDispatchAt ?? createdAt, view.now);
  const fence = { epoch: view.epoch, n: attempt, nonce };
  return { fence, owner: 'svc restore', admittedAt: at, dispatchBy: at, leaseEnd: at, quiesceUntil: view.now };
}

function evidenceOf({ life }: EffectRecord, lease: Lease) {
  const shown = life.state === 'committed' ? `committed, with the receipt ${life.receipt.id}` : life.state;
  return {
    code: 'store_restored',
    message: `It ran after the backup was made from which the store was restored. The store before showed it as ${shown}.`,
    answered: null,
    startedAt: lease.admittedAt,
    endedAt: null,
  };
}

function holding({ budget, unit, bucket, window, amount }: Hold): BudgetChange {
  return { budget, unit, bucket, window, limit: null, hold: amount, spend: 0 };
}

/** Nobody votes on what has run. */
function pendingOf(view: StepView, effect: EffectRecord | null): ApprovalRecord | null {
  return effect?.life.state === 'pending_approval' ? view.approval(effect.workspace, effect.life.approvalId) : null;
}

/** Another request that waits under the same key: it had ended when this call ran. */
function displace(
  view: StepView,
  { id, workspace, idempotencyKey }: EffectRecord,
): Required<Pick<Plan<unknown>, 'effects' | 'approvals' | 'events'>> {
  const nothing = { effects: [], approvals: [], events: [] };
  const binding = view.binding(workspace, idempotencyKey);
  if (binding?.kind !== 'effect' || binding.effect.id === id) return nothing;
  const other = binding.effect;
  const step = advance(other, { kind: 'expire', at: view.now, granted: false });
  if (step.kind === 'refused') return nothing;
  const approval = pendingOf(view, other);
  return {
    effects: [{ record: step.effect, binding: 'keep' }],
    approvals: approval === null ? [] : [endedApproval(approval, 'expired', view.now)],
    events: [{ kind: 'approval.expired', effectId: other.id, actor: ACTOR, data: { code: 'store_restored' } }],
  };
}

/** A derived key is bound to its last generation. */
function latestGeneration(
  view: StepView,
  { id, workspace, idempotencyKey }: EffectRecord,
): Pick<Plan<unknown>, 'bindAlso'> {
  const derived = derivedKeyOf(idempotencyKey);
  if (derived === null) return {};
  const binding = view.binding(workspace, derived);
  const last = binding?.kind === 'effect' ? binding.effect.idempotencyKey : binding?.tombstone.idempotencyKey;
  return last !== undefined && generationNumber(last) > generationNumber(idempotencyKey)
    ? {}
    : { bindAlso: { key: derived, effectId: id } };
}

const ACTOR = { type: 'gateway', id: 'svc restore' } as const;

function eventsOf(
  { life }: EffectRecord,
  { id, attempt }: EffectRecord,
  { quiesceUntil }: Lease,
  held: readonly Hold[],
): readonly LedgerDraft[] {
  const lost: LedgerDraft = {
    kind: 'execution.lost',
    effectId: id,
    actor: ACTOR,
    data: {
      attempt,
      code: 'store_restored',
      was: life.state,
      ...(life.state === 'committed' ? { receipt_id: life.receipt.id } : {}),
      quiet_at: new Date(quiesceUntil).toISOString(),
    },
  };
  if (held.length === 0) return [lost];
  return [lost, { kind: 'budget.held', effectId: id, actor: ACTOR, data: { holds: holdsToWire(held) } }];
}
