import { baseOf, COMMITTED, outcomeOfRecord, unknownReason } from './to-outcome.ts';
import type { Mismatch } from '../model/action-call.ts';
import type { Reason } from '../model/decision.ts';
import type { EffectRecord, Evidence, Lease, SignedReceipt, Stage } from '../model/effect.ts';
import type { RunOutcome } from '../model/outcome.ts';
import type { EffectPorts, SealedParams } from '../ports.ts';
import type { RunningAttempt } from './running.ts';
import type { Call } from './call.ts';
import { isExhausted } from '../steps/lifecycle.ts';
import { fieldList } from '../checks/mismatches.ts';
import type { Admission, SettleOutcome, Settlement, SettleRequest } from '../store.ts';
import type { UpstreamResult } from '../upstream.ts';
import { compareState } from '../checks/verify-state.ts';

type Dispatched = Extract<Admission, { kind: 'dispatch' }>;

interface Attempt {
  readonly call: Call;
  readonly admission: Dispatched;
  readonly effect: EffectRecord;
  readonly lease: Lease;
  readonly running: RunningAttempt;
  /** `elapsed` just before the admission was asked for. All times of the attempt count from here. */
  readonly sentAt: number;
  /** The gate has opened: from now on something may have reached the upstream. */
  maySend: boolean;
}

/**
 * Sends one admitted attempt and records its outcome. Never throws: after admission the answer is always a decision.
 * @param sentAt `ports.elapsed()` from before the admission was asked for
 */
export async function executeAttempt(
  ports: EffectPorts,
  call: Call,
  admission: Dispatched,
  sentAt: number,
): Promise<RunOutcome> {
  const { effect } = admission;
  if (effect.life.state !== 'executing') throw new TypeError('an admitted effect is executing');
  const running = ports.running.begin(effect.id);
  const attempt: Attempt = { call, admission, effect, lease: effect.life.lease, running, sentAt, maySend: false };
  stage(ports, attempt, 'admission', 'passed', sentAt, `attempt ${effect.attempt}`);
  try {
    const drifted = await checkState(ports, attempt);
    if (drifted !== null) return await refuseBeforeSend(ports, attempt, drifted.reason, drifted.mismatches);
    const begun = ports.elapsed();
    running.now = { stage: 'execute', startedAt: ports.store.now() };
    const result = await ports.upstream.send({
      effectId: effect.id,
      upstreamKey: `${effect.id}.${effect.generation}`,
      tool: call.tool,
      params: call.params,
      headers: call.headers.sent,
      proxied: call.proxied,
      files: call.files,
      listener: call.listen?.(effect) ?? null,
      gate: () => gate(ports, attempt),
    });
    stage(ports, attempt, 'execute', executeStatus(result), begun, result.evidence.code);
    return await recordResult(ports, attempt, result);
  } catch (error) {
    // The gateway itself failed during an attempt. What reached the upstream is not known.
    ports.alert('attempt_fault', effect.id, error);
    if (!attempt.maySend) return await recordUnsent(ports, attempt, FAULT_BEFORE, FAULT_BEFORE.message);
    const evidence: Evidence = {
      code: 'internal',
      message: 'The gateway failed during the attempt.',
      answered: null,
      startedAt: attempt.lease.admittedAt,
      endedAt: null,
    };
    return unknownOutcome(attempt, await record(ports, attempt, { kind: 'unknown' }, evidence));
  } finally {
    running.end();
  }
}

const FAULT_BEFORE: Reason = {
  code: 'not_dispatched',
  message: 'The gateway failed before anything was sent. Send the same call with the same key again.',
};

/** Whether it is too late to send an attempt. @param elapsedMs ms since before its admission was asked for */
export function isLate(elapsedMs: number, lease: Pick<Lease, 'admittedAt' | 'dispatchBy'>): boolean {
  return elapsedMs >= lease.dispatchBy - lease.admittedAt;
}

/** Called just before the first byte. Checks the time since before the admission, and pauses that came in since. */
function gate(ports: EffectPorts, attempt: Attempt): 'go' | 'late' | 'paused' {
  const { lease, sentAt, call } = attempt;
  if (isLate(ports.elapsed() - sentAt, lease)) return 'late';
  const { tool, actor } = call;
  const subject = { tool: tool.name, agentId: actor.agentId, upstream: tool.upstream, keyId: actor.keyId };
  if (ports.pauses.match(call.workspace, subject, ports.store.now()) !== null) return 'paused';
  attempt.maySend = true;
  return 'go';
}

interface Drift {
  readonly reason: Reason;
  readonly mismatches: readonly Mismatch[];
}

async function checkState(ports: EffectPorts, attempt: Attempt): Promise<Drift | null> {
  const { stateCheck, tool, params } = attempt.call;
  if (stateCheck === null) return null;
  const begun = ports.elapsed();
  attempt.running.now = { stage: 'state_check', startedAt: ports.store.now() };
  const reading = await ports.upstream.readState(tool, params);
  if (reading.kind === 'unreadable') {
    stage(ports, attempt, 'state_check', 'refused', begun, reading.message);
    return {
      reason: {
        code: 'state_unreadable',
        message: `The live state could not be read: ${reading.message}`,
        next: stateCheck.onMismatch,
      },
      mismatches: [],
    };
  }
  const mismatches = compareState({
    requiredFields: stateCheck.requiredFields,
    assumed: stateCheck.assumedState,
    current: reading.state,
    conditions: stateCheck.conditions,
  });
  stage(ports, attempt, 'state_check', mismatches?.length === 0 ? 'passed' : 'refused', begun, null);
  if (mismatches === null) {
    const message = 'The live state could not be compared: the fields and conditions take too many steps on it.';
    return { reason: { code: 'state_unreadable', message, next: stateCheck.onMismatch }, mismatches: [] };
  }
  if (mismatches.length === 0) return null;
  const fields = fieldList(mismatches.map(({ field }) => field));
  return {
    reason: {
      code: 'state_drift',
      message: `The live state is not what was assumed: ${fields}.`,
      next: stateCheck.onMismatch,
    },
    mismatches,
  };
}

async function refuseBeforeSend(
  ports: EffectPorts,
  attempt: Attempt,
  reason: Reason,
  mismatches: readonly Mismatch[],
): Promise<RunOutcome> {
  const decision = reason.code === 'paused' ? 'denied_paused' : 'denied_claim';
  const evidence: Evidence = {
    code: 'not_dispatched',
    message: 'Nothing was sent.',
    answered: null,
    startedAt: null,
    endedAt: null,
  };
  const recorded = await record(ports, attempt, { kind: 'denied', decision, reason, mismatches }, evidence);
  if (recorded.kind === 'refused') return outcomeOfRecord(recorded.effect, false, null);
  if (mayBeOtherwise(ports, attempt, recorded)) return unknownOutcome(attempt, recorded);
  return { ...baseOf(attempt.effect, reason, false), decision, mismatches, next: reason.next ?? null };
}

async function recordResult(ports: EffectPorts, attempt: Attempt, result: UpstreamResult): Promise<RunOutcome> {
  const { effect } = attempt;
  switch (result.kind) {
    case 'committed':
      return recordCommitted(ports, attempt, result);
    case 'failed': {
      const recorded = await record(ports, attempt, { kind: 'failed', result: result.result }, result.evidence);
      // A later attempt may have happened meanwhile. Then the record is the answer, and the result of this attempt is
      // not.
      if (recorded.kind === 'refused') return outcomeOfRecord(recorded.effect, false, null);
      if (mayBeOtherwise(ports, attempt, recorded)) return unknownOutcome(attempt, recorded);
      const code = result.evidence.code === 'connect_failed' ? 'connect_failed' : 'upstream_refused';
      return {
        ...baseOf(effect, { code, message: result.evidence.message }, false),
        decision: 'failed',
        answer: result.answer,
        result: result.result,
        settlement: settlementOf(recorded),
      };
    }
    case 'unknown': {
      const recorded = await record(ports, attempt, { kind: 'unknown' }, result.evidence);
      return unknownOutcome(attempt, recorded);
    }
    case 'held_back': {
      if (result.by === 'paused')
        return refuseBeforeSend(ports, attempt, { code: 'paused', message: 'Paused before anything was sent.' }, []);
      return recordUnsent(ports, attempt, LATE, result.evidence.message);
    }
  }
}

const LATE: Reason = {
  code: 'not_dispatched',
  message: 'The time to send had passed, so nothing was sent. Send the same call with the same key again.',
};

/** Records an attempt that sent nothing although no rule refused it. */
async function recordUnsent(
  ports: EffectPorts,
  attempt: Attempt,
  reason: Reason,
  message: string,
): Promise<RunOutcome> {
  const evidence: Evidence = {
    code: 'not_dispatched',
    message,
    answered: null,
    startedAt: null,
    endedAt: ports.store.now(),
  };
  const recorded = await record(ports, attempt, { kind: 'failed', result: null }, evidence);
  if (recorded.kind === 'refused') return outcomeOfRecord(recorded.effect, false, null);
  if (mayBeOtherwise(ports, attempt, recorded)) return unknownOutcome(attempt, recorded);
  return {
    ...baseOf(attempt.effect, reason, false),
    decision: 'failed',
    answer: null,
    result: null,
    settlement: settlementOf(recorded),
  };
}

async function recordCommitted(
  ports: EffectPorts,
  attempt: Attempt,
  seen: Extract<UpstreamResult, { kind: 'committed' }>,
): Promise<RunOutcome> {
  const { effect } = attempt;
  const receipt = sign(ports, attempt, seen);
  const { evidence, result, accepted, responseTruncated } = seen;
  const spent = seen.amounts === undefined ? null : { amounts: seen.amounts };
  const recorded = await record(
    ports,
    attempt,
    { kind: 'committed', receipt, result, accepted, responseTruncated, ...spent },
    evidence,
  );
  // A receipt is handed out only when it is durable somewhere. If the effect was settled in another way, that is the
  // answer.
  if (recorded.kind === 'lost') return unknownOutcome(attempt, recorded);
  if (recorded.kind === 'refused') return outcomeOfRecord(recorded.effect, false, null);
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
    ...spent,
    settlement: settlementOf(recorded),
  };
}

function sign(
  ports: EffectPorts,
  attempt: Attempt,
  seen: Extract<UpstreamResult, { kind: 'committed' }>,
): SignedReceipt {
  const { effect, admission, call, lease, sentAt } = attempt;
  const begun = ports.elapsed();
  const receipt = ports.issueReceipt({
    id: ports.newId('rcp'),
    effect,
    sealed: sealedOf(ports, effect, call),
    settledBy: { by: 'owner' },
    evidence: seen.evidence,
    result: seen.result,
    amounts: seen.amounts,
    approval: admission.approval,
    ledger: admission.ledger,
    issuedAt: Math.round(lease.admittedAt + (ports.elapsed() - sentAt)),
  });
  stage(ports, attempt, 'receipt', 'passed', begun, receipt.id);
  return receipt;
}

/** All attempts of an effect share the salts of the first one. */
function sealedOf(ports: EffectPorts, effect: EffectRecord, { proposal }: Call): SealedParams {
  if (effect.sealed === null || effect.sealed === proposal.sealed()) return proposal.sealedParams();
  return (
    ports.secrets.open(effect.sealed, {
      workspace: effect.workspace,
      effectId: effect.id,
      fingerprint: effect.fingerprint,
    }) ?? proposal.sealedParams()
  );
}

type Recorded =
  | { readonly kind: 'done' }
  | { readonly kind: 'pending' }
  | { readonly kind: 'refused'; readonly effect: EffectRecord }
  /** Durable nowhere. The lease will run out, and the effect will become unknown. */
  | { readonly kind: 'lost' };

async function record(
  ports: EffectPorts,
  attempt: Attempt,
  outcome: SettleOutcome,
  evidence: Evidence,
): Promise<Recorded> {
  const { effect, lease, running } = attempt;
  const stages = running.over;
  stages.push({
    stage: 'settle',
    status: 'passed',
    startedAt: ports.store.now(),
    durationMs: null,
    detail: outcome.kind,
  });
  const request: SettleRequest = {
    workspace: effect.workspace,
    effectId: effect.id,
    fence: lease.fence,
    outcome,
    settledBy: { by: 'owner' },
    evidence,
    stages,
  };
  let settlement: Settlement;
  try {
    settlement = await ports.store.settle(request);
  } catch (cause) {
    try {
      await ports.spill(request);
    } catch (spillCause) {
      ports.alert('settlement_lost', effect.id, new AggregateError([cause, spillCause], 'neither store nor journal'));
      return { kind: 'lost' };
    }
    ports.alert('settlement_spilled', effect.id, cause);
    return { kind: 'pending' };
  }
  switch (settlement.kind) {
    case 'settled':
      return { kind: 'done' };
    case 'absent':
      ports.alert('settlement_lost', effect.id);
      return { kind: 'lost' };
    case 'refused':
      if (settlement.contradiction) ports.alert('contradiction', effect.id);
      return { kind: 'refused', effect: settlement.effect };
  }
}

/**
 * Whether the action may have happened although this attempt did nothing. An earlier attempt may have done it. Or the
 * store could not be reached, the lease is over, and another gateway may have made a later attempt.
 */
function mayBeOtherwise(ports: EffectPorts, { effect, lease, sentAt }: Attempt, recorded: Recorded): boolean {
  if (effect.mayHaveHappened) return true;
  return settlementOf(recorded) === 'pending' && ports.elapsed() - sentAt >= lease.leaseEnd - lease.admittedAt;
}

function unknownOutcome(attempt: Attempt, recorded: Recorded): RunOutcome {
  const { admission, effect, lease, call } = attempt;
  const { idempotent } = call.tool;
  const safeToRetry =
    idempotent.kind === 'header' &&
    // An approval covers one dispatch.
    admission.approval === null &&
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

function stage(
  ports: EffectPorts,
  attempt: Attempt,
  name: Stage['stage'],
  status: Stage['status'],
  begun: number,
  detail: string | null,
): void {
  const durationMs = Math.round((ports.elapsed() - begun) * 1000) / 1000;
  attempt.running.now = null;
  attempt.running.over.push({
    stage: name,
    status,
    startedAt: Math.round(ports.store.now() - durationMs),
    durationMs,
    detail,
  });
}
