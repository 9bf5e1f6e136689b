import { expect, test } from 'vitest';
import type { ApprovalRequirement, Obligation, Permit } from '../../src/effects/model/verdict.ts';
import type { DeniedDecision } from '../../src/effects/model/decision.ts';
import type { JudgeInput } from '../../src/effects/ports.ts';
import { createReadJudge, mayHear, type ReadJudgeParts } from '../../src/proxy/judge-read.ts';
import type { ReadCall, ReadVerdict } from '../../src/proxy/ports.ts';
import { makeTool } from '../upstreams/tool.ts';
import { BOT } from './principal.ts';

const AGENT = { id: 'bot', workspace: 'demo', disabled: false, team: null, owner: null, roles: [], attributes: {} };
const CALL: ReadCall = {
  principal: BOT,
  tool: makeTool({ kind: 'read' }),
  workspace: 'demo',
  agentId: 'named',
  upstream: 'shop',
  target: 'orders',
  params: { a: 1 },
  headers: { 'x-a': 'b' },
  requestIp: '10.0.0.1',
};
const PERMIT: Permit = {
  kind: 'permit',
  mode: 'enforce',
  obligations: [],
  approvals: [],
  trace: {
    policyVersion: 'of the trace',
    matched: [
      { rule: 's/constrains', effect: 'constrain', unknown: [] },
      { rule: 's/allows', effect: 'allow', unknown: [] },
      { rule: 's/allows-too', effect: 'allow', unknown: [] },
    ],
    shadow: ['s/shadow'],
    observed: null,
  },
};
const RATE: Obligation = { kind: 'rate_limit', rule: 's/r', id: 'i', bucket: '', windowMs: 1, limit: 1 };
const ASKS: ApprovalRequirement = {
  rule: 's/asks',
  ruleDigest: 'd',
  approvers: { roles: ['lead'], users: [] },
  quorum: 1,
  expiresMs: 1,
  summary: 'Reads the payroll',
  hold: 'own',
};
const REFUSED = { decision: 'denied_permission', reason: { code: 'tool_not_allowed', message: 'no' } } as const;

function judged(is: Partial<ReadJudgeParts> = {}, call: Partial<ReadCall> = {}, ...byRules: [boolean?]) {
  const seen: { authorized: unknown[]; judged: JudgeInput[]; paused: unknown[] } = {
    authorized: [],
    judged: [],
    paused: [],
  };
  const judge = createReadJudge({
    authorize: (_principal, request) => {
      seen.authorized.push(request);
      return { kind: 'agent', agent: AGENT };
    },
    policyVersion: () => 'v1',
    isFresh: () => true,
    now: () => 5,
    ...is,
    judge: (input) => {
      seen.judged.push(input);
      return is.judge?.(input) ?? PERMIT;
    },
    pauses: is.pauses ?? {
      version: () => 1,
      match: (...asked) => {
        seen.paused.push(asked);
        return null;
      },
    },
  });
  return { verdict: judge({ ...CALL, ...call }, ...byRules), seen };
}

test('a read that policy permits passes, by the rule that allows it; all that counts is asked with what the call is', () => {
  const { verdict, seen } = judged();
  expect(verdict).toEqual({
    kind: 'stream',
    agentId: 'bot',
    policyVersion: 'v1',
    rule: 's/allows',
    observed: null,
    shadow: ['s/shadow'],
  });
  expect(seen.authorized).toEqual([
    { endpoint: 'proxy.read', workspace: 'demo', tool: 'payments.refund', agentId: 'named' },
  ]);
  expect(seen.judged).toEqual([
    {
      agent: AGENT,
      key: { id: 'key_1', kind: 'agent', profile: null, user: null },
      tool: CALL.tool,
      workspace: 'demo',
      target: 'orders',
      params: { a: 1 },
      headers: { 'x-a': 'b' },
      requestIp: '10.0.0.1',
      now: 5,
    },
  ]);
  // Pauses are those of whoever acts, not of whom the request names.
  expect(seen.paused).toEqual([
    ['demo', { tool: 'payments.refund', agentId: 'bot', upstream: 'shop', keyId: 'key_1' }, 5],
  ]);
});

test('who may not act is refused before anything else is asked, and before it is known whether that is fresh', () => {
  const { verdict, seen } = judged({ authorize: () => ({ kind: 'denied', ...REFUSED }), isFresh: () => false });
  expect([verdict, seen.judged, seen.paused]).toEqual([{ kind: 'govern', denied: REFUSED }, [], []]);
  const fault = { path: '/agent_id', message: 'is required' };
  expect(judged({ authorize: () => ({ kind: 'invalid', fault }) }).verdict).toMatchObject({
    kind: 'problem',
    problem: { code: 'invalid_request', errors: [{ path: '/headers/svc-agent-id' }] },
  });
});

test('where nothing has been heard of keys and pauses for too long, nothing passes', () => {
  const { verdict, seen } = judged({ isFresh: (workspace) => workspace !== 'demo' });
  expect(verdict).toMatchObject({ kind: 'problem', problem: { code: 'not_ready', retryAfterMs: 1_000 } });
  expect(seen.judged).toEqual([]);
});

test('a denial of policy counts before a pause, and a pause before obligations', () => {
  const reason = { code: 'rule_denied', message: 'no' } as const;
  const pauses: ReadJudgeParts['pauses'] = {
    version: () => 1,
    match: () => ({ id: 'pau_1', reason: 'night', until: null }),
  };
  const deny = () => ({ kind: 'deny', decision: 'denied_policy', reason, trace: PERMIT.trace }) as const;
  expect(judged({ judge: deny, pauses }).verdict).toEqual({
    kind: 'govern',
    denied: { decision: 'denied_policy', reason },
  });
  expect(judged({ judge: () => ({ ...PERMIT, obligations: [RATE] }), pauses }).verdict).toEqual({
    kind: 'govern',
    denied: { decision: 'denied_paused', reason: { code: 'paused', message: 'Paused: night' } },
  });
});

test.each<[string, Partial<Permit>]>([
  ['obligations', { obligations: [RATE] }],
  ['people to ask', { approvals: [ASKS] }],
  ['facts of the company brain', { trace: { ...PERMIT.trace, entities: [] } }],
])('a read with %s goes to the core; one that no tool declares can be held to nothing', (_, more) => {
  const judge = () => ({ ...PERMIT, ...more });
  expect(judged({ judge }).verdict).toEqual({ kind: 'govern', denied: null });
  const undeclared = { tool: { ...CALL.tool, declared: false } } as const;
  expect(judged({ judge }, undeclared).verdict).toMatchObject({
    kind: 'govern',
    denied: { decision: 'denied_policy', reason: { code: 'rule_denied' } },
  });
  // Where policy only observes, it passes, and it is told what it would have got.
  const observes = () => ({ ...PERMIT, ...more, mode: 'observe' }) as const;
  expect(judged({ judge: observes }, undeclared).verdict).toMatchObject({
    kind: 'stream',
    observed: { would: 'denied_policy', rule: null },
  });
  expect(judged({ judge: observes }).verdict).toEqual({ kind: 'govern', denied: null });
});

test('what policy would have said where it only observes is told, and a read that no rule allows has none', () => {
  const trace = { ...PERMIT.trace, matched: [], observed: { would: 'denied_policy', rule: 's/no' } } as const;
  expect(judged({ judge: () => ({ ...PERMIT, mode: 'observe', trace }) }).verdict).toMatchObject({
    kind: 'stream',
    rule: null,
    observed: { would: 'denied_policy', rule: 's/no' },
  });
});

const deny = (decision: DeniedDecision): ReadVerdict => ({
  kind: 'govern',
  denied: { decision, reason: { code: 'no_rule_allows', message: 'no' } },
});
const STALE: ReadVerdict = {
  kind: 'problem',
  problem: { code: 'not_ready', detail: 'no', errors: [], retryAfterMs: 1 },
};

test.each<[string, ReadVerdict, boolean]>([
  ['a policy that denies', deny('denied_policy'), true],
  ['a budget that is over', deny('denied_budget'), true],
  ['obligations', { kind: 'govern', denied: null }, true],
  ['a pause', deny('denied_paused'), false],
  ['a tool that the key may not call', deny('denied_permission'), false],
  ['an agent that may not act', deny('denied_identity'), false],
  ['a view of keys that is too old', STALE, false],
])('the answer to what was admitted: %s', (_, verdict, may) => {
  const { verdict: passes } = judged();
  expect(mayHear({ evaluateRead: (_call, byRules = true) => (byRules ? verdict : passes) }, CALL)).toBe(may);
});

test('the answer to what was admitted is passed on no more where a pause covers it that a denial hides', () => {
  const evaluateRead = (_call: ReadCall, byRules = true) => deny(byRules ? 'denied_policy' : 'denied_paused');
  expect(mayHear({ evaluateRead }, CALL)).toBe(false);
});

test('without rules, permission, how fresh the view is, and pauses count', () => {
  const pauses = { version: () => 1, match: () => ({ id: 'p', reason: 'why', until: null }) };
  const { verdict, seen } = judged({}, {}, false);
  expect(verdict).toMatchObject({ kind: 'stream', agentId: 'bot', rule: null });
  expect(seen.judged).toEqual([]);
  expect(judged({ authorize: () => ({ kind: 'denied', ...REFUSED }) }, {}, false).verdict).toMatchObject({
    denied: REFUSED,
  });
  expect(judged({ isFresh: () => false }, {}, false).verdict).toMatchObject({ kind: 'problem' });
  expect(judged({ pauses }, {}, false).verdict).toMatchObject({ denied: { decision: 'denied_paused' } });
});
