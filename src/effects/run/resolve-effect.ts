import { isoTime } from '../model/iso-time.ts';
import type { EffectRecord, Evidence, Fence, SettledBy } from '../model/effect.ts';
import type { Json } from '../../json/value.ts';
import type { EffectPorts } from '../ports.ts';
import { ledgerActor, type Principal } from '../model/principal.ts';
import { type Problem, problem } from '../model/run-request.ts';
import { type ResolveRequest, StoreUnavailable } from '../store.ts';

/** What a person says about an unknown outcome. */
export interface ResolveCall {
  /** An account key of the workspace. The door has checked that. */
  readonly principal: Principal;
  readonly workspace: string;
  readonly effectId: string;
  readonly outcome: 'happened' | 'not_happened';
  readonly evidence: Json;
  readonly comment: string | null;
  /**
   * Does not wait for the quiet time of the effect. It needs the setting, and a user other than the one who ran the
   * effect.
   */
  readonly force: boolean;
}

export type ResolveResult =
  | { readonly kind: 'resolved'; readonly effect: EffectRecord }
  | { readonly kind: 'problem'; readonly problem: Problem };

/** Settles an unknown outcome. `happened` issues a receipt, which names who settled it. */
export async function resolveEffect(ports: EffectPorts, call: ResolveCall): Promise<ResolveResult> {
  const { principal, workspace, effectId } = call;
  if (call.force) {
    const refusal = forceRefusal(ports, principal);
    if (refusal !== null) return refusal;
  }
  return whileReachable(async () => {
    const effect = await ports.store.effect(workspace, effectId);
    if (effect === null) return problem('not_found', 'There is no effect of this id in the workspace.');
    if (call.force && principal.user === effect.actor.user)
      return problem('own_request', 'Force needs a user other than the one whose key ran the effect.');
    const settledBy: Extract<SettledBy, { by: 'resolve' }> = {
      by: 'resolve',
      keyId: principal.keyId,
      user: principal.user,
      forced: call.force,
      comment: call.comment,
      evidence: call.evidence,
    };
    return settleUnknown(ports, effect, { ...call, actor: ledgerActor(principal), settledBy });
  });
}

/** Answers what is settled, or that the store cannot be reached. */
export async function whileReachable<T>(settling: () => Promise<T>): Promise<T | ReturnType<typeof problem>> {
  try {
    return await settling();
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return problem('store_unavailable', 'The store cannot be reached; nothing was settled.', 1000);
  }
}

/**
 * Settles the attempt that was current when the effect was read, by the word of a person or the evidence of a probe.
 * @throws StoreUnavailable
 */
export async function settleUnknown(
  ports: EffectPorts,
  effect: EffectRecord,
  given: Pick<ResolveCall, 'outcome' | 'force'> & Pick<ResolveRequest, 'actor' | 'settledBy'>,
): Promise<ResolveResult> {
  const { actor, outcome, settledBy, force } = given;
  const fence = fenceOf(effect);
  const resolution = await ports.store.resolve({
    workspace: effect.workspace,
    effectId: effect.id,
    outcome:
      outcome === 'not_happened'
        ? { kind: 'not_happened' }
        : { kind: 'happened', receipt: await signResolution(ports, effect, fence, settledBy) },
    settledBy,
    actor,
    fence,
    force,
  });
  switch (resolution.kind) {
    case 'resolved':
    case 'unchanged':
      return { kind: 'resolved', effect: resolution.effect };
    case 'too_early':
      return problem(
        'too_early',
        `The call may still be under way. That it did not happen can be said from ${isoTime(ports.store.now() + resolution.retryAfterMs)} on.`,
        resolution.retryAfterMs,
      );
    case 'already_resolved':
      return problem('already_resolved', 'The outcome was settled the other way before.');
    case 'not_unknown':
      return problem('not_unknown', 'Only an effect whose outcome is unknown can be resolved.');
    case 'moved':
      return problem('conflict', 'Another attempt began in between. Look at the effect again.');
    case 'absent':
      return problem('not_found', 'There is no effect of this id in the workspace.');
  }
}

/** Nothing was settled, and why. */
function forceRefusal(ports: EffectPorts, principal: Principal): ResolveResult | null {
  if (!ports.settings().allowForce)
    return problem('too_early', 'Force is off in this installation (`resolve.allow_force`).');
  return principal.user === null ? problem('own_request', 'Force needs a key that belongs to a user.') : null;
}

function fenceOf(effect: EffectRecord): Fence {
  return effect.life.state === 'unknown' || effect.life.state === 'executing'
    ? effect.life.lease.fence
    : { epoch: 0, n: effect.attempt, nonce: '' };
}

/** Signs the receipt of an outcome that a person settled: before it is stored, like every other receipt. */
async function signResolution(ports: EffectPorts, effect: EffectRecord, fence: Fence, settledBy: SettledBy) {
  const { life } = effect;
  const events = await ports.store.effectLedger(effect.workspace, effect.id);
  const admitted = events.findLast((event) => event.kind === 'effect.admitted');
  // If people approved the attempt, each of its receipts says so.
  const approvalId = admitted?.data['approval_id'];
  const approval = typeof approvalId === 'string' ? await ports.store.approval(effect.workspace, approvalId) : null;
  const bound = { workspace: effect.workspace, effectId: effect.id, fingerprint: effect.fingerprint };
  const opened = effect.sealed === null ? null : ports.secrets.open(effect.sealed, bound);
  return ports.issueReceipt({
    id: ports.newId('rcp'),
    effect,
    sealed: opened,
    settledBy,
    evidence:
      life.state === 'unknown'
        ? // The record of a resolved effect does not keep this digest, so nobody could open a commitment to it.
          withoutDigest(life.evidence)
        : {
            code: 'declared',
            message: 'It was established that the action happened.',
            answered: null,
            startedAt: null,
            endedAt: null,
          },
    result: null,
    approval,
    ledger: { epoch: fence.epoch, seq: admitted?.seq ?? 0 },
    issuedAt: ports.store.now(),
  });
}

function withoutDigest({ code, message, answered, startedAt, endedAt }: Evidence): Evidence {
  return { code, message, answered, startedAt, endedAt };
}
