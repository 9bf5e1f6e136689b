import {
  baseOf,
  COMMITTED,
  failedReason,
  FORGED,
  FORGED_AHEAD,
  outcomeOfAdmission,
  outcomeOfRecord,
  settledBudgets,
  shownBudgets,
  unknownReason,
} from './to-outcome.ts';
import { checkState } from './check-state.ts';
import { evaluateKnown, MAX_EVALUATIONS } from './evaluate.ts';
import type { RunningAttempt } from './running.ts';
import { waitForPlace, wouldDispatch } from './place.ts';
import type { Mismatch } from '../model/action-call.ts';
import type { Reason } from '../model/decision.ts';
import { BUSY, type EffectRecord, type Evidence, type Lease, type SignedReceipt, type Stage } from '../model/effect.ts';
import type { RunOutcome } from '../model/outcome.ts';
import type { EffectPorts, SealedParams } from '../ports.ts';
import type { Call } from './call.ts';
import { isExhausted } from '../steps/lifecycle.ts';
import {
  type Admission,
  NoPlace,
  type SettleOutcome,
  type Settlement,
  type SettleRequest,
  StoreUnavailable,
} from '../store.ts';
import type { Exceeded, Verdict } from '../model/verdict.ts';
import type { Dispatch, UpstreamResult } from '../upstream.ts';

type Dispatched = Extract<Admission, { kind: 'dispatch' }>;

type Committed = Extract<UpstreamResult, { kind: 'committed' }>;

/** One attempt: what is sent, and what is known of it so far. */
class Attempt implements Dispatch, RunningAttempt {
  readonly ports: EffectPorts;
  readonly call: Call;
  readonly verdict: Verdict;
  readonly admission: Dispatched;
  readonly effect: EffectRecord;
  readonly lease: Lease;
  /** `elapsed` just before the admission was asked for. The times of the lease count from here. */
  readonly sentAt: number;
  readonly effectId: string;
  readonly upstreamKey: string;
  readonly tool: Call['tool'];
  readonly params: Call['params'];
  readonly headers: Call['headers']['sent'];
  readonly proxied: Call['proxied'];
  readonly files: Call['files'];
  listener: Dispatch['listener'] = null;
  /** Among those that run. */
  readonly place: number;
  readonly over: Stage[] = [];
  /** The gate has opened: from now on something may have reached the upstream. */
  maySend = false;
  #running: Stage['stage'] | null = null;
  /** `elapsed` at the end of the last stage, and the time of the store's clock then. */
  #endedAt: number;
  #storeTime: number;

  constructor(
    ports: EffectPorts,
    call: Call,
    verdict: Verdict,
    admission: Dispatched,
    sentAt: number,
    sentTime: number,
  ) {
    const { effect } = admission;
    if (effect.life.state !== 'executing') throw new TypeError('an admitted effect is executing');
    this.ports = ports;
    this.call = call;
    this.verdict = verdict;
    this.admission = admission;
    this.effect = effect;
    this.lease = effect.life.lease;
    this.sentAt = sentAt;
    this.effectId = effect.id;
    this.upstreamKey = `${effect.id}.${effect.generation}`;
    this.tool = call.tool;
    this.params = call.params;
    this.headers = call.headers.sent;
    this.proxied = call.proxied;
    this.files = call.files;
    this.#endedAt = sentAt;
    this.#storeTime = sentTime;
    this.ends('admission', 'passed', `attempt ${effect.attempt}`);
    this.place = ports.running.begin(this);
  }

  get now(): RunningAttempt['now'] {
    return this.#running === null ? null : { stage: this.#running, startedAt: Math.round(this.#storeTime) };
  }

  begins(stage: Stage['stage']): void {
    this.#running = stage;
  }

  /** A stage is over that began when the one before it ended. */
  ends(stage: Stage['stage'], status: Stage['status'], detail: string | null): void {
    const elapsed = this.ports.elapsed();
    const tookMs = elapsed - this.#endedAt;
    this.over.push({
      stage,
      status,
      startedAt: Math.round(this.#storeTime),
      durationMs: Math.round(tookMs * 1000) / 1000,
      detail,
    });
    this.#running = null;
    this.#endedAt = elapsed;
    this.#storeTime += tookMs;
  }

  /** The stages of the attempt, with its settlement, which begins now. */
  settles(kind: SettleOutcome['kind']): readonly Stage[] {
    const startedAt = Math.round(this.#storeTime);
    this.over.push({ stage: 'settle', status: 'passed', startedAt, durationMs: null, detail: kind });
    return this.over;
  }

  /** Called just before the first byte. Checks the time since before the admission, and pauses that came in since. */
  readonly gate = (): 'go' | 'late' | 'paused' => {
    const { ports, call, tool } = this;
    const elapsed = ports.elapsed();
    if (isLate(elapsed - this.sentAt, this.lease)) return 'late';
    const { agentId, keyId } = call.actor;
    const subject = { tool: tool.name, agentId, upstream: tool.upstream, keyId };
    if (ports.pauses.match(call.workspace, subject, this.#storeTime + (elapsed - this.#endedAt)) !== null)
      return 'paused';
    this.maySend = true;
    return 'go';
  };
}

/**
 * Gets the verdict and the admission, makes the attempt where it is admitted, and records its outcome. Once a call is
 * admitted, its answer is always a decision.
 * @param known limits that the call would go beyond, as far as that was known before
 * @returns `null` when the configuration that the call was checked with is no longer in force
 * @throws StoreUnavailable, NoPlace only before admission
 */
export async function admitAndExecute(ports: EffectPorts, call: Call, known: Exceeded): Promise<RunOutcome | null> {
  const { tool, workspace } = call;
  const taken = ports.place(tool.upstream, workspace, call.actor.agentId);
  const giveBack = taken instanceof Promise ? await waitForPlace(ports, call, taken) : taken;
  let attempt: Attempt | null = null;
  let exceeded = known;
  try {
    if (giveBack === null && (await wouldDispatch(ports, call, exceeded)))
      throw new NoPlace('Too many calls to this upstream are under way. Nothing was sent; send the call again.');
    for (let evaluations = 0; evaluations < MAX_EVALUATIONS; evaluations += 1) {
      // A tool of an old configuration must not be judged by the new policy.
      if (ports.catalog().tool(tool.name) !== tool) return null;
      const evaluated = evaluateKnown(ports, call, exceeded);
      const request = evaluated instanceof Promise ? await evaluated : evaluated;
      // What was waited for before is no part of the time to send: nothing was admitted then.
      const sentAt = ports.elapsed();
      const last = request.stages.at(-1);
      const sentTime = last?.durationMs == null ? ports.store.now() : last.startedAt + last.durationMs;
      const admission = await ports.store.admit(request);
      if (admission.kind === 'stale') {
        await ports.refresh(workspace, request.verdict.trace.entities, admission.versions.policy);
        continue;
      }
      if (admission.kind === 'exceeds') {
        exceeded = new Set(admission.limits);
        continue;
      }
      if (admission.kind === 'refused' && admission.foreign) ports.alert('foreign_key_reuse', admission.effectId);
      if (admission.kind !== 'dispatch') return outcomeOfAdmission(request, admission);
      attempt = new Attempt(ports, call, request.verdict, admission, sentAt, sentTime);
      if (admission.approval?.isForged === true || admission.allowance?.isForged === true) {
        const forged = admission.approval === null ? FORGED_AHEAD : FORGED;
        return withBudgets(attempt, await refuseBeforeSend(attempt, forged, []));
      }
      if (call.stateCheck !== null) {
        const drifted = await checkState(attempt, call.stateCheck);
        if (drifted !== null)
          return withBudgets(attempt, await refuseBeforeSend(attempt, drifted.reason, drifted.mismatches));
      }
      attempt.begins('execute');
      attempt.listener = call.listen?.(admission.effect) ?? null;
      const result = await ports.upstream.send(attempt);
      const { upstream } = attempt.tool;
      if (result.evidence.answered === null || ports.silent.known.has(upstream))
        ports.silent.called(upstream, result.evidence);
      attempt.ends('execute', executeStatus(result), result.evidence.code);
      if (result.kind !== 'committed') return withBudgets(attempt, await recordOther(attempt, result));
      const receipt = sign(attempt, result);
      const { accepted, responseTruncated, amounts } = result;
      const settled = { kind: 'committed', receipt, result: result.result, accepted, responseTruncated } as const;
      const outcome = amounts === undefined ? settled : { ...settled, amounts };
      const settling = settleRequest(attempt, outcome, result.evidence);
      let settlement: Settlement;
      try {
        settlement = await ports.store.settle(settling);
      } catch (cause) {
        return withBudgets(attempt, committed(attempt, result, receipt, await spilled(ports, settling, cause)));
      }
      return withBudgets(attempt, committed(attempt, result, receipt, recordedOf(attempt, settlement)));
    }
    throw new StoreUnavailable('policy or pauses changed faster than the call could be evaluated');
  } catch (error) {
    if (attempt === null) throw error;
    return withBudgets(attempt, await recordFault(attempt, error));
  } finally {
    if (attempt !== null) ports.running.end(attempt.place);
    giveBack?.();
  }
}

/** An outcome with what the budgets have left, of what admission saw. */
function withBudgets({ admission, verdict }: Attempt, outcome: RunOutcome): RunOutcome {
  const { budgets, effect, observed } = admission;
  const settled = settledBudgets(budgets, effect.holds, outcome);
  return Object.assign(outcome, { budgets: shownBudgets(settled, verdict), observed });
}

/** The gateway itself failed during an attempt. What reached the upstream is not known. */
async function recordFault(attempt: Attempt, error: unknown): Promise<RunOutcome> {
  attempt.ports.alert('attempt_fault', attempt.effectId, error);
  if (!attempt.maySend) return recordUnsent(attempt, FAULT_BEFORE, FAULT_BEFORE.message);
  const evidence: Evidence = {
    code: 'internal',
    message: 'The gateway failed during the attempt.',
    answered: null,
    startedAt: attempt.lease.admittedAt,
    endedAt: null,
  };
  return unknownOutcome(attempt, await record(attempt, { kind: 'unknown' }, evidence));
}

const FAULT_BEFORE: Reason = {
  code: 'not_dispatched',
  message: 'The gateway failed before anything was sent. Send the same call with the same key again.',
};

/** Whether it is too late to send an attempt. @param elapsedMs ms since before its admission was asked for */
export function isLate(elapsedMs: number, lease: Pick<Lease, 'admittedAt' | 'dispatchBy'>): boolean {
  return elapsedMs >= lease.dispatchBy - lease.admittedAt;
}

async function refuseBeforeSend(
  attempt: Attempt,
  reason: Reason,
  mismatches: readonly Mismatch[],
): Promise<RunOutcome> {
  const decision =
    reason.code === 'approval_forged' ? 'denied_policy' : reason.code === 'paused' ? 'denied_paused' : 'denied_claim';
  const evidence: Evidence = {
    code: 'not_dispatched',
    message: 'Nothing was sent.',
    answered: null,
    startedAt: null,
    endedAt: null,
  };
  const recorded = await record(attempt, { kind: 'denied', decision, reason, mismatches }, evidence);
  if (recorded.kind === 'refused') return outcomeOfRecord(recorded.effect, false, null);
  if (mayBeOtherwise(attempt, recorded)) return unknownOutcome(attempt, recorded);
  return { ...baseOf(attempt.effect, reason, false), decision, mismatches, next: reason.next ?? null };
}

async function recordOther(attempt: Attempt, result: Exclude<UpstreamResult, Committed>): Promise<RunOutcome> {
  const { effect } = attempt;
  switch (result.kind) {
    case 'failed': {
      const recorded = await record(attempt, { kind: 'failed', result: result.result }, result.evidence);
      // A later attempt may have happened meanwhile. Then the record is the answer, and the result of this attempt is
      // not.
      if (recorded.kind === 'refused') return outcomeOfRecord(recorded.effect, false, null);
      if (mayBeOtherwise(attempt, recorded)) return unknownOutcome(attempt, recorded);
      // An approval covers one dispatch, so another one is no matter of a library that repeats.
      const again = result.evidence.code === BUSY && !isApproved(attempt.admission) && !isExhausted(effect);
      return {
        ...baseOf(effect, failedReason(result.evidence), false),
        retryAfterMs: again ? (result.retryAfterMs ?? null) : null,
        decision: 'failed',
        answer: result.answer,
        result: result.result,
        settlement: settlementOf(recorded),
        ...(again ? { askAgain: true } : null),
      };
    }
    case 'unknown': {
      const recorded = await record(attempt, { kind: 'unknown' }, result.evidence);
      return unknownOutcome(attempt, recorded);
    }
    case 'held_back': {
      if (result.by === 'paused')
        return refuseBeforeSend(attempt, { code: 'paused', message: 'Paused before anything was sent.' }, []);
      return recordUnsent(attempt, LATE, result.evidence.message);
    }
  }
}

const LATE: Reason = {
  code: 'not_dispatched',
  message: 'The time to send had passed, so nothing was sent. Send the same call with the same key again.',
};

/** Records an attempt that sent nothing although no rule refused it. */
async function recordUnsent(attempt: Attempt, reason: Reason, message: string): Promise<RunOutcome> {
  const evidence: Evidence = {
    code: 'not_dispatched',
    message,
    answered: null,
    startedAt: null,
    endedAt: attempt.ports.store.now(),
  };
  const recorded = await record(attempt, { kind: 'failed', result: null }, evidence);
  if (recorded.kind === 'refused') return outcomeOfRecord(recorded.effect, false, null);
  if (mayBeOtherwise(attempt, recorded)) return unknownOutcome(attempt, recorded);
  return {
    ...baseOf(attempt.effect, reason, false),
    decision: 'failed',
    answer: null,
    result: null,
    settlement: settlementOf(recorded),
  };
}

function committed(attempt: Attempt, seen: Committed, receipt: SignedReceipt, recorded: Recorded): RunOutcome {
  // A receipt is handed out only when it is durable somewhere. If the effect was settled in another way, that is the
  // answer.
  if (recorded.kind === 'lost') return unknownOutcome(attempt, recorded);
  if (recorded.kind === 'refused') return outcomeOfRecord(recorded.effect, false, null);
  const { effect } = attempt;
  const { result, accepted, responseTruncated, amounts } = seen;
  // Every call comes here. Each member is written out, because spreading an object into a literal copies members one by
  // one at the cost of a small call each.
  return {
    workspace: effect.workspace,
    effectId: effect.id,
    tool: effect.action.tool,
    target: effect.action.target,
    agentId: effect.actor.agentId,
    idempotencyKey: effect.idempotencyKey,
    attempt: effect.attempt,
    reason: COMMITTED,
    budgets: [],
    observed: effect.trace.observed,
    repeat: false,
    retryAfterMs: null,
    next: null,
    decision: 'committed',
    receipt,
    result,
    answer: seen.answer,
    accepted,
    responseTruncated,
    ...(amounts === undefined ? null : { amounts }),
    settlement: settlementOf(recorded),
  };
}

function sign(attempt: Attempt, seen: Committed): SignedReceipt {
  const { ports, effect, admission, call } = attempt;
  const receipt = ports.issueReceipt({
    id: ports.newId('rcp'),
    effect,
    sealed: sealedOf(ports, effect, call),
    // The fingerprint is of these params, so whatever was sealed under it has the same.
    paramsText: call.paramsText,
    settledBy: { by: 'owner' },
    evidence: seen.evidence,
    result: seen.result,
    amounts: seen.amounts,
    approval: admission.approval,
    ledger: admission.ledger,
    // Not by `elapsed`: that goes on when somebody sets this machine's clock.
    issuedAt: seen.evidence.endedAt ?? ports.store.now(),
  });
  attempt.ends('receipt', 'passed', receipt.id);
  return receipt;
}

/** All attempts of an effect share the salts of the first one. */
function sealedOf(
  ports: EffectPorts,
  { id: effectId, workspace, fingerprint, sealed }: EffectRecord,
  { proposal }: Call,
): SealedParams {
  if (sealed === null || sealed === proposal.sealed()) return proposal.sealedParams();
  return ports.secrets.open(sealed, { workspace, effectId, fingerprint }) ?? proposal.sealedParams();
}

type Recorded =
  | { readonly kind: 'done' }
  | { readonly kind: 'pending' }
  | { readonly kind: 'refused'; readonly effect: EffectRecord }
  /** Durable nowhere. The lease will run out, and the effect will become unknown. */
  | { readonly kind: 'lost' };

const DONE: Recorded = { kind: 'done' };

function settleRequest(attempt: Attempt, outcome: SettleOutcome, evidence: Evidence): SettleRequest {
  const { effect, lease } = attempt;
  return {
    workspace: effect.workspace,
    effectId: effect.id,
    fence: lease.fence,
    outcome,
    settledBy: { by: 'owner' },
    evidence,
    stages: attempt.settles(outcome.kind),
  };
}

function record(attempt: Attempt, outcome: SettleOutcome, evidence: Evidence): Promise<Recorded> {
  const { ports } = attempt;
  const request = settleRequest(attempt, outcome, evidence);
  return ports.store.settle(request).then(
    (settlement) => recordedOf(attempt, settlement),
    (cause: unknown) => spilled(ports, request, cause),
  );
}

function recordedOf({ ports, effectId: id }: Attempt, settlement: Settlement): Recorded {
  switch (settlement.kind) {
    case 'settled':
      return DONE;
    case 'absent':
      ports.alert('settlement_lost', id);
      return { kind: 'lost' };
    case 'refused':
      if (settlement.contradiction) ports.alert('contradiction', id);
      return { kind: 'refused', effect: settlement.effect };
  }
}

async function spilled(ports: EffectPorts, request: SettleRequest, cause: unknown): Promise<Recorded> {
  try {
    await ports.spill(request);
  } catch (spillCause) {
    const both = new AggregateError([cause, spillCause], 'neither store nor journal');
    ports.alert('settlement_lost', request.effectId, both);
    return { kind: 'lost' };
  }
  ports.alert('settlement_spilled', request.effectId, cause);
  return { kind: 'pending' };
}

/**
 * Whether the action may have happened although this attempt did nothing. An earlier attempt may have done it. Or the
 * store could not be reached, the lease is over, and another gateway may have made a later attempt.
 */
function mayBeOtherwise({ ports, effect, lease, sentAt }: Attempt, recorded: Recorded): boolean {
  if (effect.mayHaveHappened) return true;
  return settlementOf(recorded) === 'pending' && ports.elapsed() - sentAt >= lease.leaseEnd - lease.admittedAt;
}

function unknownOutcome(attempt: Attempt, recorded: Recorded): RunOutcome {
  const { admission, effect, lease, call } = attempt;
  const { idempotent } = call.tool;
  const safeToRetry =
    idempotent.kind === 'header' &&
    // An approval covers one dispatch.
    !isApproved(admission) &&
    !isExhausted(effect) &&
    effect.firstDispatchAt !== null &&
    lease.leaseEnd < effect.firstDispatchAt + idempotent.forMs;
  return {
    ...baseOf(effect, unknownReason(safeToRetry), false),
    decision: 'unknown_effect',
    safeToRetry,
    settlement: settlementOf(recorded),
  };
}

/** Whether the attempt uses what a person has agreed to, for it or ahead of it. */
function isApproved({ approval, allowance }: Dispatched): boolean {
  return approval !== null || allowance !== undefined;
}

function settlementOf(recorded: Recorded): 'done' | 'pending' {
  return recorded.kind === 'pending' || recorded.kind === 'lost' ? 'pending' : 'done';
}

function executeStatus(result: UpstreamResult): Stage['status'] {
  switch (result.kind) {
    case 'committed':
      return 'passed';
    case 'failed':
      return 'failed';
    case 'unknown':
      return 'unknown';
    case 'held_back':
      return 'refused';
  }
}
