import type { DeniedDecision } from '../effects/model/decision.ts';
import type { Authorized, JudgeInput, PauseView } from '../effects/ports.ts';
import { type Principal, keyFactsOf } from '../effects/model/principal.ts';
import type { Verdict } from '../effects/model/verdict.ts';
import { problemOf } from './arrival.ts';
import type { ProxyPorts, ReadCall } from './ports.ts';

/** What judging a read needs: the same functions that the core uses. */
export interface ReadJudgeParts {
  readonly authorize: (
    principal: Principal,
    request: {
      readonly endpoint: 'proxy.read';
      readonly workspace: string;
      readonly tool: string;
      readonly agentId: string | null;
    },
  ) => Authorized;
  readonly judge: (input: JudgeInput) => Verdict;
  readonly policyVersion: () => string;
  readonly pauses: PauseView;
  /** Whether the gateway's view of keys and pauses is fresh enough to let anything pass. */
  readonly isFresh: (workspace: string) => boolean;
  /** The store's time, ms since the epoch. */
  readonly now: () => number;
}

/**
 * Judges reads from memory: permission and identity, then policy, then pauses. Refused reads, and reads with
 * obligations, approvals or facts of the company brain, go to the core.
 */
export function createReadJudge(parts: ReadJudgeParts): ProxyPorts['evaluateRead'] {
  return (call, byRules = true) => {
    const { principal, workspace, tool, upstream } = call;
    const { name } = tool;
    const authorized = parts.authorize(principal, {
      endpoint: 'proxy.read',
      workspace,
      tool: name,
      agentId: call.agentId,
    });
    if (authorized.kind === 'invalid') {
      const fault = { path: '/headers/svc-agent-id', message: 'is required: this key belongs to no agent' };
      return {
        kind: 'problem',
        problem: problemOf('invalid_request', 'Name the agent that acts in Svc-Agent-Id.', [fault]),
      };
    }
    if (authorized.kind === 'denied') {
      return { kind: 'govern', denied: { decision: authorized.decision, reason: authorized.reason } };
    }
    // Comes after the check of permission: a key without a workspace has no view that could be fresh.
    if (!parts.isFresh(workspace)) {
      const problem = problemOf('not_ready', 'The gateway has not heard of keys and pauses for too long.');
      return { kind: 'problem', problem: { ...problem, retryAfterMs: 1000 } };
    }
    const { agent } = authorized;
    const now = parts.now();
    const { target, params, headers, requestIp } = call;
    const judged = { agent, key: keyFactsOf(principal), tool, workspace, target, params, headers, requestIp, now };
    const verdict = byRules ? parts.judge(judged) : null;
    if (verdict?.kind === 'deny') {
      return { kind: 'govern', denied: { decision: verdict.decision, reason: verdict.reason } };
    }
    // Before obligations: an open stream of a call with obligations, which the core has admitted, has to hear it.
    const pause = parts.pauses.match(
      workspace,
      { tool: name, agentId: agent.id, upstream, keyId: principal.keyId },
      now,
    );
    if (pause !== null) {
      return {
        kind: 'govern',
        denied: { decision: 'denied_paused', reason: { code: 'paused', message: `Paused: ${pause.reason}` } },
      };
    }
    const passed = { kind: 'stream', agentId: agent.id, policyVersion: parts.policyVersion() } as const;
    if (verdict === null) return { ...passed, rule: null, observed: null, shadow: [] };
    const { trace } = verdict;
    let observed: { readonly would: string; readonly rule: string | null } | null = trace.observed;
    if (verdict.obligations.length > 0 || verdict.approvals.length > 0 || trace.entities !== undefined) {
      // The core knows only declared tools.
      if (tool.declared !== false || verdict.mode === 'enforce') {
        return { kind: 'govern', denied: tool.declared === false ? TOO_MUCH : null };
      }
      observed ??= { would: TOO_MUCH.decision, rule: null };
    }
    const rule = trace.matched.find(({ effect }) => effect === 'allow')?.rule ?? null;
    const { shadow } = trace;
    return { ...passed, rule, observed, shadow };
  };
}

const ENDS_ADMITTED: readonly DeniedDecision[] = ['denied_permission', 'denied_identity', 'denied_paused'];

/**
 * Whether the answer to a call that the core has admitted may still be passed on. What policy says of the call by now does
 * not count, but pauses, those of rules too, and what its key may do.
 */
export function mayHear({ evaluateRead }: Pick<ProxyPorts, 'evaluateRead'>, call: ReadCall): boolean {
  const verdict = evaluateRead(call);
  if (verdict.kind !== 'govern') return verdict.kind === 'stream';
  if (verdict.denied !== null && ENDS_ADMITTED.includes(verdict.denied.decision)) return false;
  // A denial hides the pause.
  return evaluateRead(call, false).kind === 'stream';
}

const TOO_MUCH = {
  decision: 'denied_policy',
  reason: {
    code: 'rule_denied',
    message:
      'A rule asks for more than a read that no tool declares can be held to (a budget, a claim, an approval, a fact of the company brain): declare it.',
  },
} as const;
