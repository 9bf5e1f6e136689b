import type { Authorized, JudgeInput, PauseView } from '../effects/ports.ts';
import { type Principal, keyFactsOf } from '../effects/model/principal.ts';
import type { Verdict } from '../effects/model/verdict.ts';
import { problemOf } from './arrival.ts';
import type { ReadCall, ReadVerdict } from './ports.ts';

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
export function createReadJudge(parts: ReadJudgeParts): (call: ReadCall) => ReadVerdict {
  return (call) => {
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
    const verdict = parts.judge({
      agent,
      key: keyFactsOf(principal),
      tool,
      workspace,
      target: call.target,
      params: call.params,
      headers: call.headers,
      requestIp: call.requestIp,
      now,
    });
    if (verdict.kind === 'deny') {
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
    return { kind: 'stream', agentId: agent.id, policyVersion: parts.policyVersion(), rule, observed, shadow };
  };
}

const TOO_MUCH = {
  decision: 'denied_policy',
  reason: {
    code: 'rule_denied',
    message:
      'A rule asks for more than a read that no tool declares can be held to (a budget, a claim, an approval, a fact of the company brain): declare it.',
  },
} as const;
