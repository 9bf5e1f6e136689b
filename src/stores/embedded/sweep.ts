import type { EffectRecord, Tombstone } from '../../effects/effect.ts';
import type { SweepReport } from '../../effects/store.ts';
import { loseLeaseStep } from '../../effects/sweep.ts';
import { expireApprovalStep } from '../../effects/voting.ts';
import type { Session } from './session.ts';

/** How long what is settled is kept, ms. */
export interface Retention {
  /** Receipts, and that a key was used; `null` is for ever. */
  readonly keysMs: number | null;
  /** Records of settled effects. */
  readonly effectsMs: number;
  /** Records of refusals. */
  readonly denialsMs: number;
}

/** Declares what is over, at most `limit` of each kind. */
export function sweep(session: Session, limit: number, retention: Retention): SweepReport {
  const { now } = session.view;
  const left = session.leftOvers.declare(limit);
  // While many are left over, the rest of the round waits: each transaction is to be short.
  if (left === limit) return { lost: left, approvalsExpired: 0, aged: 0 };
  const lost = left + loseLeases(session, limit - left);
  const overdue = session.approvals.overdue(now, limit);
  for (const approval of overdue) {
    session.effects.endStep();
    const effect = session.view.effect(approval.workspace, approval.effectId);
    if (effect === null) session.approvals.put({ ...approval, status: 'expired', decidedAt: now });
    else session.apply(approval.workspace, expireApprovalStep(session.view, effect, approval));
  }
  const aged = age(session, now, limit, retention);
  session.approvals.sweepRejections(now);
  session.holdings.sweep(now);
  session.controls.sweepPauses(now);
  session.tallies.sweep(now, limit);
  return { lost, approvalsExpired: overdue.length, aged };
}

/** Makes executing effects whose lease is over unknown. */
function loseLeases(session: Session, limit: number): number {
  let lost = 0;
  for (const { workspace, id } of session.effects.executing(session.view.now, limit)) {
    session.effects.endStep();
    const effect = session.view.effect(workspace, id);
    const plan = effect === null ? null : loseLeaseStep(session.view, effect, false);
    if (plan === null) continue;
    session.apply(workspace, plan);
    lost += 1;
  }
  return lost;
}

/** Settled effects become tombstones, tombstones and denials go. Unsettled effects never age. */
function age(session: Session, now: number, limit: number, { keysMs, effectsMs, denialsMs }: Retention): number {
  let aged = 0;
  for (const state of ['committed', 'failed', 'rejected'] as const) {
    for (const effect of session.effects.settledBefore(state, now - effectsMs, limit - aged)) {
      const tombstone = tombstoneOf(effect);
      if (tombstone === null) continue;
      session.effects.bury(tombstone);
      session.approvals.removeOf(effect.id);
      aged += 1;
    }
  }
  for (const effect of session.effects.settledBefore('denied', now - denialsMs, limit - aged)) {
    session.effects.remove(effect.id);
    session.approvals.removeOf(effect.id);
    aged += 1;
  }
  return keysMs === null ? aged : aged + session.effects.removeTombstones(now - keysMs, limit - aged);
}

function tombstoneOf(effect: EffectRecord): Tombstone | null {
  const { life, id, workspace, idempotencyKey, fingerprint, action, actor, attempt } = effect;
  if (life.state !== 'committed' && life.state !== 'failed' && life.state !== 'rejected') return null;
  return {
    id,
    workspace,
    idempotencyKey,
    fingerprint,
    agentId: actor.agentId,
    tool: action.tool,
    target: action.target,
    attempt,
    at: life.at,
    outcome: life.state === 'committed' ? { state: 'committed', receipt: life.receipt } : { state: life.state },
  };
}
