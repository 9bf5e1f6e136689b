import { setImmediate as others } from 'node:timers/promises';
import type { Call, Proposal } from './call.ts';
import type { EffectActor, Stage } from '../model/effect.ts';
import { keptFiles } from '../model/files.ts';
import type { EffectPorts } from '../ports.ts';
import { UNREAD_ENTITY } from '../model/entity.ts';
import { type AdmitRequest, StoreUnavailable } from '../store.ts';
import type { Obligation, Permit, Verdict, VerdictTrace, Exceeded } from '../model/verdict.ts';
import type { KeyObject } from 'node:crypto';
import { canonicalJson } from '../../json/text.ts';
import { actorOf, type DeniedCall, NewProposal } from './check-call.ts';
import { hmacSha256 } from './fingerprint.ts';
import type { Json } from '../../json/value.ts';
import { likenessOf } from './likeness.ts';
import type { RunRequest } from '../model/run-request.ts';
import type { Tool } from '../model/tool.ts';

/** After this long without a break, a call gives others their turn, ms. Large params are read several times. */
const LONG_MS = 3;

/** How often configuration, policy, pauses or a budget window may change during one admission. */
export const MAX_EVALUATIONS = 5;

/**
 * Gives other calls their turn if the checks of this call took long. Its seal will then take long too, so it is made in
 * a separate turn. Also reads the files that would be kept.
 */
export function sealInTurn(ports: EffectPorts, call: Call): Promise<void> | null {
  const { checkedMs, files, proposal } = call;
  if (files.bytes > 0) return keepAndSeal(ports, call);
  return checkedMs < LONG_MS ? null : sealAfter(others(), ports, proposal);
}

async function keepAndSeal(ports: EffectPorts, { proposal, files, params, checkedMs }: Call): Promise<void> {
  const begun = ports.elapsed() - checkedMs;
  if (files.bytes <= ports.settings().filesKeptBytes) proposal.keepFiles(await keptFiles(files, params));
  if (ports.elapsed() - begun >= LONG_MS) await sealAfter(others(), ports, proposal);
}

async function sealAfter(turn: Promise<void>, ports: EffectPorts, proposal: Proposal): Promise<void> {
  await turn;
  const sealing = ports.elapsed();
  proposal.sealed();
  if (ports.elapsed() - sealing >= LONG_MS) await others();
}

/** How many entities may be read one after the other for one verdict: each may lead to rules that look at another. */
const MOST_READS = 16;

/**
 * The admission request of a call, with the verdict at this moment. Entities that policy looks at are read first where
 * this gateway does not know them yet, and so is what a server says of the tool.
 * @param exceeded limits that the call would go beyond, and that people are asked about
 * @throws StoreUnavailable
 */
export function evaluateKnown(
  ports: EffectPorts,
  call: Call,
  exceeded: Exceeded = null,
): AdmitRequest | Promise<AdmitRequest> {
  const seeing = ports.seeTool?.(call.tool) ?? null;
  if (seeing !== null)
    return seeing.then(() => evaluateReading(ports, call, exceeded, evaluate(ports, call, exceeded)));
  const request = evaluate(ports, call, exceeded);
  return unreadOf(request).length === 0 ? request : evaluateReading(ports, call, exceeded, request);
}

function unreadOf({ verdict }: AdmitRequest): NonNullable<VerdictTrace['entities']> {
  return verdict.trace.entities?.filter(({ version }) => version === UNREAD_ENTITY) ?? NONE;
}

const NONE: readonly never[] = [];

async function evaluateReading(
  ports: EffectPorts,
  call: Call,
  exceeded: Exceeded,
  first: AdmitRequest,
): Promise<AdmitRequest> {
  let request = first;
  for (let reads = 0; reads < MOST_READS; reads += 1) {
    const unread = unreadOf(request);
    if (unread.length === 0) return request;
    await ports.refresh(call.workspace, unread);
    request = evaluate(ports, call, exceeded);
  }
  throw new StoreUnavailable('policy looked at too many entities one after the other');
}

function evaluate(ports: EffectPorts, call: Call, exceeded: Exceeded): AdmitRequest {
  const { agent, key, tool, requestIp } = call;
  const now = ports.store.now();
  const begun = ports.elapsed();
  const asked = ports.judge(
    {
      agent,
      key,
      tool,
      workspace: call.workspace,
      target: call.target,
      params: call.params,
      headers: call.headers.sent,
      requestIp,
      now,
    },
    exceeded,
  );
  const judged = keepable(answeredFor(asked, call.actor), call);
  // In enforce mode, faulty params are refused before policy is asked.
  const verdict: Verdict =
    call.faults.length === 0
      ? judged
      : { ...judged, trace: { ...judged.trace, observed: { would: 'invalid_request', rule: null } } };
  const policy: Stage = {
    stage: 'policy',
    status: verdict.kind === 'permit' ? 'passed' : 'refused',
    startedAt: now,
    durationMs: Math.round((ports.elapsed() - begun) * 1000) / 1000,
    // The rule that refuses, or the code where no rule does; of what passes, the first rule that matched.
    detail:
      verdict.kind === 'deny' ? (verdict.reason.rule ?? verdict.reason.code) : (verdict.trace.matched[0]?.rule ?? null),
  };
  return admitRequest(ports, call, verdict, [...call.stages, policy], now);
}

/**
 * People must not decide on their own requests. If nobody stood behind a request, its maker could approve it with
 * another key. So such a request is refused. For an agent's key without a user, the agent's owner counts as the person
 * behind it.
 */
function answeredFor(verdict: Verdict, actor: EffectActor): Verdict {
  if (verdict.kind !== 'permit' || verdict.mode !== 'enforce') return verdict;
  const [asking] = verdict.approvals;
  const responsible = actor.user ?? (actor.keyKind === 'agent' ? actor.agentOwner : null);
  if (asking === undefined || responsible !== null) return verdict;
  return {
    kind: 'deny',
    decision: 'denied_policy',
    reason: {
      code: 'key_without_user',
      message:
        'The call needs approval, and its key belongs to no user: it could not be seen that somebody else decides. Use a key with a user, or give the agent an owner.',
      rule: asking.rule,
    },
    trace: verdict.trace,
  };
}

/** Files of a waiting call are kept, sealed with its params. A call whose files are too large for that cannot wait. */
function keepable(verdict: Verdict, { files, proposal }: Call): Verdict {
  if (files.bytes === 0 || verdict.kind !== 'permit' || verdict.mode !== 'enforce') return verdict;
  const [asking] = verdict.approvals;
  if (asking === undefined || proposal.sealedWithFiles() !== null) return verdict;
  return {
    kind: 'deny',
    decision: 'denied_policy',
    reason: {
      code: 'files_too_large_to_wait',
      message:
        'The call needs approval, and its files are larger than what is kept with a call that waits. Send smaller files, or raise limits.body.',
      rule: asking.rule,
    },
    trace: verdict.trace,
  };
}

/** The admission request for a checked call and its verdict. @param now when it was judged, ms */
export function admitRequest(
  ports: EffectPorts,
  call: Call,
  verdict: Verdict,
  stages: readonly Stage[],
  now: number,
): AdmitRequest {
  const { workspace, tool, actor, fingerprint, proposal } = call;
  const waits = verdict.kind === 'permit' && verdict.approvals.length > 0;
  const subject = { tool: tool.name, agentId: actor.agentId, upstream: tool.upstream, keyId: actor.keyId };
  return {
    workspace,
    effectId: proposal.effectId,
    // Members of a kind each, and no accessors: with those V8 makes a dictionary of it, at 2 kB, which is slow to read.
    approvalId: waits ? proposal.approvalId() : '',
    nonce: proposal.nonce,
    // Plain params and salts stay in this process. The store gets them sealed.
    sealed: (waits ? proposal.sealedWithFiles() : null) ?? proposal.sealed(),
    idempotencyKey: call.idempotencyKey,
    generationMs: call.generationMs,
    fingerprint,
    action: {
      type: tool.actionType,
      tool: tool.name,
      toolDigest: tool.digest,
      upstream: tool.upstream,
      kind: tool.kind,
      target: call.target,
    },
    actor,
    verdict,
    approvalDigest: waits || proposal.changed !== null ? questionOf(ports, call, verdict) : '',
    alike: waits && verdict.mode === 'enforce' ? alikeOf(ports, call, verdict) : undefined,
    dispatches: proposal.dispatches,
    pausedBy: ports.pauses.match(workspace, subject, now),
    seen: { policy: verdict.trace.policyVersion, pauses: ports.pauses.version(workspace) },
    times: {
      dispatchWindowMs: ports.settings().dispatchWindowMs,
      // The lease lasts as long as the answer may.
      timeoutMs: tool.streams?.totalMs ?? tool.timeoutMs,
      maxProcessingMs: tool.maxProcessingMs,
      idempotentForMs: tool.idempotent.kind === 'header' ? tool.idempotent.forMs : null,
    },
    owner: ports.owner,
    claimId: call.claimId,
    reservationId: call.reservationId,
    metadata: call.metadata,
    stages,
  };
}

/** What a call that people would be asked about is for an allowance; `undefined` where policy lets none be given. */
function alikeOf(ports: EffectPorts, call: Call, permit: Permit): AdmitRequest['alike'] {
  const likeness = likenessOf(ports.secrets.fingerprintKey(call.workspace), call, permit);
  return likeness === null ? undefined : { likeness, registeredBy: call.agent.registeredBy ?? null };
}

/** The digest that votes on a call are bound to; empty for one that is refused. */
function questionOf(ports: EffectPorts, call: Call, verdict: Verdict): string {
  const { changed } = call.proposal;
  if (verdict.kind !== 'permit') return '';
  const key = ports.secrets.fingerprintKey(call.workspace);
  if (changed === null) return approvalDigest(key, call, verdict);
  const { askedDigest, fingerprint } = changed;
  const now = approvalDigest(key, { tool: call.tool, fingerprint }, verdict);
  return hmacSha256(key, `changed\n${askedDigest}\n${now}`);
}

/** The admission request that records a refusal before policy. */
export function denialRequest(ports: EffectPorts, request: RunRequest, denied: DeniedCall): AdmitRequest {
  const { workspace, fingerprint } = denied;
  const proposal = new NewProposal(ports, workspace, fingerprint, request);
  return {
    workspace,
    effectId: proposal.effectId,
    approvalId: '',
    nonce: proposal.nonce,
    sealed: proposal.sealed(),
    idempotencyKey: denied.idempotencyKey,
    generationMs: null,
    fingerprint,
    action: {
      type: request.actionType ?? 'mcp.tool_call',
      tool: request.tool,
      toolDigest: '',
      upstream: '',
      kind: 'write',
      target: denied.target,
    },
    actor: actorOf(request.principal, denied.agentId, null, request.via),
    verdict: denied.deny,
    approvalDigest: '',
    dispatches: null,
    pausedBy: null,
    seen: { policy: denied.deny.trace.policyVersion, pauses: ports.pauses.version(workspace) },
    times: { dispatchWindowMs: 0, timeoutMs: 0, maxProcessingMs: 0, idempotentForMs: null },
    owner: ports.owner,
    claimId: null,
    reservationId: null,
    metadata: request.metadata,
    stages: [...request.stages, ...denied.stages],
  };
}

/**
 * The digest that an approver's vote is bound to. It covers the action (the fingerprint covers agent, tool, target and
 * params), the tool, the rules that ask for approval with their conditions, and what the approver is shown. It leaves
 * out windows and snapshots, because the passing of time alone must not void a vote. It is keyed, because a summary
 * could be guessed.
 */
export function approvalDigest(
  key: KeyObject,
  call: Pick<Call, 'fingerprint'> & { readonly tool: Pick<Tool, 'digest'> },
  { approvals, obligations }: Pick<Permit, 'approvals' | 'obligations'>,
): string {
  const asking = new Set(approvals.map((approval) => approval.rule));
  const bound: Json = {
    fingerprint: call.fingerprint,
    tool: call.tool.digest,
    approvals: approvals.map(({ rule, ruleDigest, approvers, quorum, expiresMs, summary, hold, beyond }) => ({
      ...(beyond === undefined ? null : { beyond }),
      rule,
      ruleDigest,
      approvers: { roles: approvers.roles, users: approvers.users },
      quorum,
      expiresMs,
      summary,
      hold,
    })),
    obligations: obligations.filter((obligation) => asking.has(obligation.rule)).map(obligationTerms),
  };
  return hmacSha256(key, `approval\n${canonicalJson(bound)}`);
}

function obligationTerms(obligation: Obligation): Json {
  switch (obligation.kind) {
    case 'budget':
      return {
        kind: obligation.kind,
        budget: obligation.budget,
        unit: obligation.unit,
        bucket: obligation.bucket,
        limit: obligation.limit,
        amount: obligation.amount,
      };
    case 'rate_limit':
      return { kind: obligation.kind, id: obligation.id, bucket: obligation.bucket, limit: obligation.limit };
    case 'claim':
      return { kind: obligation.kind, target: obligation.target, hold: obligation.hold };
    case 'reserve':
      return { kind: obligation.kind, pool: obligation.pool, units: obligation.units };
  }
}
