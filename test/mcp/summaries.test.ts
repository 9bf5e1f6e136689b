import { describe, expect, test } from 'vitest';
import { BrainNotReady } from '../../src/brain/port.ts';
import type { EffectRecord, Life } from '../../src/effects/model/effect.ts';
import type { KeyRecord } from '../../src/effects/model/key.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import type { Tool } from '../../src/effects/model/tool.ts';
import type { EffectFilter } from '../../src/effects/store.ts';
import type { JudgeInput } from '../../src/effects/ports.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { approvalTools } from '../../src/mcp/control/approvals.ts';
import { brainTools } from '../../src/mcp/control/brain.ts';
import { catalogTools } from '../../src/mcp/control/catalog.ts';
import { executionTools } from '../../src/mcp/control/executions.ts';
import { explainTools } from '../../src/mcp/control/explain.ts';
import { observabilityTools } from '../../src/mcp/control/observability.ts';
import type { ControlPorts } from '../../src/mcp/control/ports.ts';
import { readinessTools } from '../../src/mcp/control/readiness.ts';
import type { ControlTool, ToolCall } from '../../src/mcp/control/tool.ts';
import { BOT } from '../proxy/principal.ts';
import { BOT as AGENT, call as policyCall, compileText, HEAD } from '../policy/fixtures.ts';
import { makeTool } from '../upstreams/tool.ts';
import { APPROVAL, EFFECT as ORDINARY } from '../effects/records.ts';

const NOW = 1_750_000_000_000;
const DAY = 86_400_000;
const CALL: ToolCall = {
  principal: BOT,
  view: { kind: 'workspace', workspace: 'demo' },
  workspace: 'demo',
  ownAgent: null,
  address: '127.0.0.1',
  requestId: 'req_1',
  authenticated: { at: 0, tookMs: 0 },
};

const EVIDENCE = { code: 'http_status', message: 'm', answered: null, startedAt: null, endedAt: null };
const COMMITTED: Life = {
  state: 'committed',
  at: NOW,
  settledBy: { by: 'owner' },
  evidence: EVIDENCE,
  receipt: { id: 'rcp_1', jws: 'j' },
  result: null,
  accepted: false,
  responseTruncated: false,
};
const EFFECT: EffectRecord = { ...ORDINARY, createdAt: NOW, life: COMMITTED };
const took = (durationMs: number | null): Partial<EffectRecord> => ({
  stages: [
    { stage: 'execute', status: 'passed', startedAt: 0, durationMs: 7_777, detail: null },
    { stage: 'execute', status: 'passed', startedAt: 0, durationMs, detail: null },
    { stage: 'settle', status: 'passed', startedAt: 0, durationMs: 9_999, detail: null },
  ],
});
const denied = (code: 'rule_denied' | 'budget_exceeded', rule?: string): Partial<EffectRecord> => ({
  life: {
    state: 'denied',
    at: NOW,
    decision: 'denied_policy',
    reason: { code, message: 'no', ...(rule !== undefined && { rule }) },
    mismatches: [],
  },
});

const notAsked = (): never => {
  throw new Error('nothing asks for that');
};
const STORE: ControlPorts['store'] = {
  now: () => NOW,
  turns: createReadingTurns(),
  health: () => ({ ready: true, durability: 'sync', problem: null, epoch: 1 }),
  effect: notAsked,
  effects: notAsked,
  receipt: notAsked,
  effectLedgerInTurns: notAsked,
  approval: notAsked,
  approvals: notAsked,
  budgets: notAsked,
  keys: notAsked,
  pauses: notAsked,
};
const PORTS: Omit<ControlPorts, 'store' | 'inLine' | 'installation' | 'policies'> = {
  identify: notAsked,
  settings: notAsked,
  problemOf: notAsked,
  renderProblem: notAsked,
  openParams: notAsked,
  preview: notAsked,
  probe: notAsked,
  policyInput: notAsked,
  secondOpinion: notAsked,
  directory: { agent: notAsked },
  catalog: () => createCatalog([makeTool(), makeTool({ name: 'payments.see', kind: 'read' })]),
  brain: { query: notAsked, types: notAsked },
  pins: { stateOf: notAsked, seen: notAsked },
  receipts: { view: notAsked, jwks: notAsked },
  running: { stagesOf: notAsked },
  called: notAsked,
};
const POLICIES = compileText(`${HEAD}rules:\n  - { id: all, effect: allow, match: { tools: ["**"] } }\n`);

async function answerOf(tools: readonly ControlTool[], args: JsonObject, call: Partial<ToolCall> = {}) {
  const answer = await tools[0]?.run(args, { ...CALL, ...call });
  if (answer?.kind !== 'answer') throw new Error(JSON.stringify(answer));
  return answer;
}

test.each([
  ['a summary', observabilityTools, { window: '1h' }],
  ['readiness', readinessTools, {}],
  ['executions', executionTools, {}],
  ['requests for approval', approvalTools, {}],
  ['entities', brainTools, { query: 'acme', entity_type: 'customer' }],
])('%s: a list is made when it is the turn of its key', async (_, toolsWith, args) => {
  const asked: string[] = [];
  const inLine: ControlPorts['inLine'] = async (keyId) => {
    asked.push(keyId);
    throw new Error('later');
  };
  const [tool] = toolsWith({ ...PORTS, store: STORE, inLine, installation: notAsked, policies: notAsked });
  await expect(tool?.run(args, CALL)).rejects.toThrow('later');
  expect(asked).toEqual([BOT.keyId]);
});

describe('a summary', () => {
  function summaryOf(effects: readonly Partial<EffectRecord>[], pageSize = 100) {
    const asked: EffectFilter[] = [];
    const tools = observabilityTools({
      inLine: (_key, make) => make(),
      store: {
        ...STORE,
        async effects(_workspace, filter) {
          asked.push(filter);
          const from = Number(filter.cursor ?? 0);
          const next = from + pageSize;
          const items = effects.slice(from, next).map((effect) => ({ ...EFFECT, ...effect }));
          return { items, next: next < effects.length ? String(next) : null };
        },
      },
    });
    const answer = (args: JsonObject = {}, call: Partial<ToolCall> = {}) =>
      answerOf(tools, { window: '1h', ...args }, call);
    const ask = async (...of: Parameters<typeof answer>) => (await answer(...of)).structured;
    const say = async () => (await answer()).text;
    return { ask, say, asked };
  }

  test('has the times of those that were sent by nearest rank: of the last attempt, and of that alone', async () => {
    const times = Array.from({ length: 100 }, (_, n) => took(100 - n));
    expect((await summaryOf([...times, took(null), {}]).ask())['latency_ms']).toEqual({
      count: 100,
      p50: 50,
      p90: 90,
      p99: 99,
      max: 100,
    });
    expect((await summaryOf([took(1.23456), took(3)]).ask())['latency_ms']).toEqual({
      count: 2,
      p50: 1.235,
      p90: 3,
      p99: 3,
      max: 3,
    });
    const none = { count: 0, p50: null, p90: null, p99: null, max: null };
    expect((await summaryOf([]).ask())['latency_ms']).toEqual(none);
  });

  test('has what was spent, and not what is only held or was given back', async () => {
    const hold = (budget: string, unit: string, amount: number) => ({ budget, unit, amount, bucket: '', window: 'w' });
    const { ask } = summaryOf([
      { holdState: 'posted', holds: [hold('a', 'cent', 5), hold('a', 'call', 1), hold('b', 'cent', 2)] },
      { holdState: 'posted', holds: [hold('a', 'cent', 7)] },
      { holdState: 'held', holds: [hold('a', 'cent', 100)] },
      { holdState: 'voided', holds: [hold('a', 'cent', 100)] },
    ]);
    expect((await ask())['spend']).toEqual([
      { budget: 'a', unit: 'cent', amount: 12 },
      { budget: 'a', unit: 'call', amount: 1 },
      { budget: 'b', unit: 'cent', amount: 2 },
    ]);
  });

  test('has the most frequent refusals first, by reason and rule', async () => {
    const { ask } = summaryOf([
      denied('rule_denied', 's/one'),
      denied('budget_exceeded'),
      denied('rule_denied', 's/two'),
      denied('rule_denied', 's/two'),
      denied('rule_denied', 's/two'),
      { life: { state: 'rejected', at: NOW, approvalId: 'a', until: NOW } },
      { life: { state: 'rejected', at: NOW, approvalId: 'a', until: NOW } },
    ]);
    const structured = await ask();
    expect(structured['top_denials']).toEqual([
      { code: 'rule_denied', decision: 'denied_policy', rule: 's/two', count: 3 },
      { code: 'approval_rejected', decision: 'denied_policy', rule: null, count: 2 },
      { code: 'rule_denied', decision: 'denied_policy', rule: 's/one', count: 1 },
      { code: 'budget_exceeded', decision: 'denied_policy', rule: null, count: 1 },
    ]);
  });

  test('says in words how many there were, the most frequent first, why most were refused, and whether there are more', async () => {
    expect(await summaryOf([]).say()).toBe('Nothing happened in the last 1h.');
    expect(await summaryOf([{}]).say()).toBe('In the last 1h: 1 effect (1 committed).');
    const refused = [denied('budget_exceeded'), denied('rule_denied'), denied('rule_denied')];
    expect(await summaryOf([{}, ...refused]).say()).toBe(
      'In the last 1h: 4 effects (3 denied_policy, 1 committed). The most frequent refusal: rule_denied (2).',
    );
    const many = Array.from({ length: 1_001 }, () => ({}));
    expect(await summaryOf(many).say()).toMatch(/1000 committed\)\. These are the newest; the window holds more\.$/);
  });

  test('is told apart by what is asked, the largest twenty groups first', async () => {
    const { action, actor } = EFFECT;
    const effects = [
      { ...took(4), action: { ...action, tool: 'a.c', upstream: 'v' } },
      { ...took(5), actor: { ...actor, agentId: 'cat' } },
      denied('rule_denied'),
      {},
    ];
    const { ask } = summaryOf(effects);
    const groups = async (by: string) => {
      const found = (await ask({ group_by: by }))['groups'];
      return Array.isArray(found) ? found.map((one) => JSON.stringify(one)) : [];
    };
    const names = async (by: string) =>
      (await groups(by)).map((one) => /"group":"(.*?)","count":(\d+)/.exec(one)?.slice(1));
    expect(await names('tool')).toEqual([
      ['a.b', '3'],
      ['a.c', '1'],
    ]);
    expect(await names('agent')).toEqual([
      ['bot', '3'],
      ['cat', '1'],
    ]);
    expect(await names('upstream')).toEqual([
      ['u', '3'],
      ['v', '1'],
    ]);
    expect(await names('decision')).toEqual([
      ['committed', '3'],
      ['denied_policy', '1'],
    ]);
    expect((await groups('agent'))[1]).toContain('"decisions":{"committed":1},"latency_ms":{"count":1,"p50":5');
    expect((await ask())['groups']).toEqual([]);
    const many = Array.from({ length: 25 }, (_, n) => ({ action: { ...action, tool: `a.${n}` } }));
    const { groups: most } = await summaryOf([...many, ...many.slice(10, 11)]).ask({ group_by: 'tool' });
    expect(most).toHaveLength(20);
    expect(JSON.stringify(most)).toMatch(/^\[\{"group":"a\.10","count":2/);
  });

  test.each([
    ['15m', 15 / 60],
    ['1h', 1],
    ['24h', 24],
    ['7d', 7 * 24],
    ['30d', 30 * 24],
  ])('of %s goes back that far', async (window, hours) => {
    const { ask, asked } = summaryOf([]);
    expect(await ask({ window })).toMatchObject({ window, since: new Date(NOW - hours * 3_600_000).toISOString() });
    expect(asked[0]?.since).toBe(NOW - hours * 3_600_000);
  });

  test('of more than a thousand has the newest, says so, and from when on; an agent sees its own', async () => {
    const effects = Array.from({ length: 1_500 }, (_, n) => ({ createdAt: NOW - n }));
    const { ask, asked } = summaryOf(effects);
    expect(await ask({}, { ownAgent: 'bot' })).toMatchObject({
      counted: 1_000,
      complete: false,
      since: new Date(NOW - 3_600_000).toISOString(),
      until: new Date(NOW).toISOString(),
      counted_since: new Date(NOW - 999).toISOString(),
    });
    expect(asked).toHaveLength(10);
    expect(asked[0]).toMatchObject({ agentId: 'bot', since: NOW - 3_600_000, until: null, state: null });
    // Pages may be short, and there is an end of them, too.
    const short = summaryOf(effects, 1);
    expect(await short.ask()).toMatchObject({ counted: 20, complete: false });
    expect(await summaryOf(effects.slice(0, 1_000)).ask()).toMatchObject({ counted: 1_000, complete: true });
  });
});

describe('the company brain', () => {
  const NOTHING = { entities: [], joined: [], sources: [], truncated: false };
  const asked = (query: ControlPorts['brain']['query'], types: readonly string[]) => {
    const brain = { query, types: () => types };
    const inLine: ControlPorts['inLine'] = (_key, make) => make();
    const [tool] = brainTools({ ...PORTS, brain, store: STORE, inLine, installation: notAsked, policies: notAsked });
    return tool?.run({ query: 'acme', entity_type: 'customer' }, CALL);
  };

  test('that has nothing says so, and what there is where nobody has such entities', async () => {
    const nothing = async () => NOTHING;
    for (const types of [[], ['customer']])
      expect(await asked(nothing, types)).toMatchObject({ kind: 'answer', text: 'No customer fits.' });
    const types = Array.from({ length: 21 }, (_, n) => `type${n}`);
    expect(await asked(nothing, types)).toMatchObject({
      faults: [{ path: '/entity_type', message: expect.stringMatching(/there are: type0, .*, type19$/) as unknown }],
    });
  });

  test('that is still being read can be asked again', async () => {
    const reading = async (): Promise<never> => {
      throw new BrainNotReady('The entities are being read.');
    };
    await expect(asked(reading, [])).rejects.toMatchObject({ problem: { code: 'not_ready' } });
  });
});

describe('readiness', () => {
  type Installation = ReturnType<ControlPorts['installation']>;
  const INSTALLATION: Installation = {
    entrance: 'tls',
    queryKey: 'refuse',
    previousSecrets: 0,
    impediments: [],
    notes: [],
  };
  const KEY: KeyRecord = {
    id: 'key_1',
    handle: 'h',
    hash: 'h',
    kind: 'agent',
    name: 'n',
    user: null,
    madeBy: null,
    workspace: 'demo',
    agentId: 'bot',
    profile: null,
    scopes: [],
    allowedTools: null,
    readOnly: false,
    createdAt: 0,
    expiresAt: null,
    revokedAt: null,
    lastUsedAt: null,
    replacedBy: null,
  };

  /** What is found where all is well but this. */
  async function found(
    is: {
      readonly installation?: Partial<Installation>;
      readonly policies?: Partial<ReturnType<ControlPorts['policies']>['set']>;
      readonly mode?: 'observe';
      readonly store?: Partial<ControlPorts['store']>;
      readonly keys?: readonly KeyRecord[];
      readonly approvals?: readonly number[];
      readonly unknown?: number;
      readonly tools?: readonly Tool[];
    } = {},
    call: Partial<ToolCall> = {},
  ) {
    const page = <Item>(items: readonly Item[], limit: number) =>
      Promise.resolve({ items: items.slice(0, limit), next: items.length > limit ? 'more' : null });
    const tools = readinessTools({
      ...PORTS,
      ...(is.tools !== undefined && { catalog: () => createCatalog(is.tools ?? []) }),
      inLine: (_key, make) => make(),
      installation: () => ({ ...INSTALLATION, ...is.installation }),
      policies: () => ({ mode: is.mode ?? 'enforce', set: { ...POLICIES, ...is.policies } }),
      store: {
        ...STORE,
        keys: async () => is.keys ?? [],
        pauses: async () => ({ pauses: [], version: 1 }),
        effects: (_workspace, { state, limit }) =>
          page(
            Array.from({ length: state === 'unknown' ? (is.unknown ?? 0) : 0 }, () => EFFECT),
            limit,
          ),
        approvals: (_workspace, { limit }) =>
          page(
            (is.approvals ?? []).map((age) => ({ ...APPROVAL, createdAt: NOW - age })),
            limit,
          ),
        ...is.store,
      },
    });
    const { structured, text } = await answerOf(tools, {}, call);
    const checks = Array.isArray(structured['checks']) ? (structured['checks'] as readonly JsonObject[]) : [];
    return {
      score: structured['score'],
      ready: structured['ready'],
      bad: checks.flatMap(({ id, status }) =>
        typeof id === 'string' && typeof status === 'string' && status !== 'ok' ? [`${id} ${status}`] : [],
      ),
      checks,
      text,
    };
  }

  test('is whole where nothing is wrong', async () => {
    expect(await found()).toMatchObject({ score: 100, ready: true, bad: [], text: 'All 11 checks are ok.' });
    for (const entrance of ['tls_before', 'loopback'] as const)
      expect((await found({ installation: { entrance } })).bad).toEqual([]);
  });

  const fault = { part: 'store', message: 'it is away' };
  test.each<[string, Parameters<typeof found>[0], string, number, boolean]>([
    ['keys in the clear', { installation: { entrance: 'plain' } }, 'tls fail', 91, false],
    ['earlier secrets', { installation: { previousSecrets: 1 } }, 'master_secret warn', 97, true],
    ['keys in the query', { installation: { queryKey: 'allow' } }, 'query_keys warn', 97, true],
    ['an impediment', { installation: { impediments: [fault] } }, 'ready.store fail', 91, false],
    ['a note', { installation: { notes: [fault] } }, 'note.store warn', 97, true],
    ['policies that only observe', { mode: 'observe' }, 'policies_enforced fail', 91, false],
    ['no rule', { policies: { rules: [] } }, 'policies_loaded fail', 91, false],
    ['a tool that no rule permits', { policies: { couldPermit: () => false } }, 'policies_loaded warn', 97, true],
    ['a key that does not expire', { keys: [KEY] }, 'keys_expire warn', 97, true],
    ['an unknown outcome', { unknown: 1 }, 'unknown_outcomes fail', 91, false],
    ['a request that waits for long', { approvals: [0, DAY + 1] }, 'approvals_wait warn', 97, true],
  ])('%s', async (_, is, bad, score, ready) => {
    const { checks, ...seen } = await found(is);
    expect(seen).toMatchObject({ bad: [bad], score, ready });
    expect(checks.find(({ status }) => status !== 'ok')?.['fix']).toEqual(expect.any(String));
  });

  test('says in words what each check found, and what to do', async () => {
    const messageOf = async (id: string, ...of: Parameters<typeof found>) =>
      (await found(...of)).checks.find((check) => check['id'] === id)?.['message'];
    const closed = { policies: { couldPermit: () => false } };
    expect(await messageOf('policies_loaded', closed)).toBe(
      'No rule could ever permit 1 of 1 writing tools (payments.refund).',
    );
    const { text } = await found({ ...closed, mode: 'observe' });
    expect(text).toMatch(
      /^Score 88 of 100\. Policies only observe: .* Set policies\.mode to enforce .*Write rules for them/,
    );
    const approvals = [0, 1, DAY + 1, DAY + 2];
    expect(await messageOf('approvals_wait', { approvals })).toBe(
      '2 requests have waited for approval for more than a day.',
    );
    expect(await messageOf('approvals_wait', { approvals: [0, 1] })).toBe(
      '2 requests wait for approval, none for longer than a day.',
    );
    const by = { keyId: 'key_1', keyKind: 'account', user: 'maria' } as const;
    const pause = {
      id: 'p',
      workspace: 'demo',
      scope: { kind: 'workspace' },
      reason: 'r',
      by,
      createdAt: 0,
      until: null,
    } as const;
    const pauses = async () => ({ pauses: [pause, pause, pause], version: 1 });
    expect(await messageOf('pauses', { store: { pauses } })).toBe('3 pauses are in force.');
    expect(await found({ store: { pauses } })).toMatchObject({ bad: ['pauses warn'], ready: true });
    expect(await messageOf('store')).toBe('The store is ready; what it took is durable (sync).');
    const installation = { previousSecrets: 2 };
    expect(await messageOf('master_secret', { installation })).toBe('2 earlier master secrets are still accepted.');
    expect(await messageOf('keys_expire', { keys: [KEY, KEY] })).toBe('2 active keys never expire.');
    const tools = Array.from({ length: 7 }, (_, n) => makeTool({ name: `a.${n}` }));
    expect(await messageOf('policies_loaded', { ...closed, tools })).toBe(
      'No rule could ever permit 7 of 7 writing tools (a.0, a.1, a.2, a.3, a.4).',
    );
  });

  test('tells of all that stands in the way and all that is to be looked at, in their own words', async () => {
    const note = { part: 'files', message: 'one is older' };
    const { bad, checks } = await found({ installation: { impediments: [fault], notes: [note] } });
    expect(bad).toEqual(['ready.store fail', 'note.files warn']);
    expect(checks).toContainEqual(expect.objectContaining({ id: 'ready.store', message: 'it is away' }));
    expect(checks).toContainEqual(expect.objectContaining({ id: 'note.files', message: 'one is older' }));
  });

  test('looks at what waits in the workspace of the key', async () => {
    const asked: string[] = [];
    const none = async (workspace: string) => {
      asked.push(workspace);
      return { items: [], next: null, pauses: [], version: 1 };
    };
    await found({ store: { effects: none, approvals: none, pauses: none } }, { workspace: 'live' });
    expect(asked).toEqual(['live', 'live', 'live']);
  });

  test('a store that takes nothing is told by its own words', async () => {
    const problem = { code: 'store_full', message: 'its disk is full' } as const;
    const health = () => ({ ready: false, durability: 'sync', problem, epoch: 1 }) as const;
    const { bad, text, ready } = await found({ store: { health } });
    expect([bad, ready]).toEqual([['store fail'], false]);
    expect(text).toContain('its disk is full');
  });

  test('what is over, and what still may wait, is no fault', async () => {
    const expires = { ...KEY, expiresAt: NOW + 1 };
    const over = { ...KEY, revokedAt: NOW - 1 };
    expect((await found({ keys: [expires, over], approvals: [DAY, 0] })).bad).toEqual([]);
  });

  test('keys of other workspaces are told of to those alone who see all', async () => {
    const keys = [{ ...KEY, workspace: 'live' }];
    expect((await found({ keys })).bad).toEqual([]);
    expect((await found({ keys }, { view: { kind: 'any' } })).bad).toEqual(['keys_expire warn']);
    // Who belongs to no workspace hears nothing of what waits in one, nor of keys that belong to none.
    const homeless = { view: { kind: 'none' }, workspace: '' } as const;
    const seen = await found({ keys: [{ ...KEY, workspace: '' }], unknown: 1, approvals: [DAY + 1] }, homeless);
    expect([seen.bad, seen.checks.length]).toEqual([[], 8]);
  });

  test('counts up to fifty, and says that there are more', async () => {
    const of = async (unknown: number) =>
      (await found({ unknown })).checks.find(({ id }) => id === 'unknown_outcomes')?.['message'];
    expect(await of(50)).toBe('50 effects have an unknown outcome.');
    expect(await of(51)).toBe('50+ effects have an unknown outcome.');
  });

  test('several faults cost more, and nothing costs more than all', async () => {
    const { score, ready } = await found({ mode: 'observe', installation: { entrance: 'plain', queryKey: 'allow' } });
    expect([score, ready]).toEqual([79, false]);
  });
});

describe('a list of requests for approval', () => {
  test('is filled from several pages where some are of other tools, has no more than was asked, and goes on behind them', async () => {
    const all = Array.from({ length: 40 }, (_, n) => ({
      ...APPROVAL,
      id: `apr_${n}`,
      tool: n === 0 ? 'a.c' : 'a.b',
    }));
    const tools = approvalTools({
      ...PORTS,
      inLine: (_key, make) => make(),
      installation: notAsked,
      policies: notAsked,
      settings: () => ({
        publicUrl: 'https://gateway.example',
        queryKey: 'refuse',
        jsonLimits: { depth: 8, values: 100, name: 100 },
      }),
      store: {
        ...STORE,
        effect: async () => null,
        async approvals(_workspace, { limit, cursor }) {
          const from = Number(cursor ?? 0);
          return {
            items: all.slice(from, from + limit),
            next: from + limit < all.length ? String(from + limit) : null,
          };
        },
      },
    });
    const list = async (args: JsonObject) => {
      const { structured } = await answerOf(tools, { tool: 'a.b', limit: 4, ...args });
      const { approvals, next_cursor: next } = JSON.parse(JSON.stringify(structured)) as {
        approvals: { id: string }[];
        next_cursor: string | null;
      };
      return { ids: approvals.map(({ id }) => id), next };
    };
    const first = await list({});
    expect(first.ids).toEqual(['apr_1', 'apr_2', 'apr_3', 'apr_4']);
    const second = await list({ cursor: first.next ?? '' });
    expect(second.ids).toEqual(['apr_5', 'apr_6', 'apr_7', 'apr_8']);
  });
});

describe('an explanation', () => {
  /** Of a call of the tool `a.b`, unless the test says otherwise. */
  const explaining = (of: Pick<ControlPorts, 'policies' | 'store'> & Partial<ControlPorts>) =>
    explainTools({
      ...PORTS,
      inLine: (_key, make) => make(),
      installation: notAsked,
      catalog: () => createCatalog([makeTool({ name: 'a.b' })]),
      directory: { agent: () => AGENT },
      ...of,
    });

  /** Of a call that was made under other policies, a day before a rule was over. */
  test('judges a call as of its own time, and says that policies are others now', async () => {
    const set = compileText(
      `${HEAD}rules:\n  - { id: over, effect: deny, match: { tools: ["**"] }, until: "2025-06-15T15:06:40Z", reason: "Over" }\n`,
      [makeTool({ name: 'a.b' })],
    );
    const explain = async (policyVersion: string) =>
      answerOf(
        explaining({
          policies: () => ({ mode: 'enforce', set }),
          openParams: () => ({ params: {} }),
          policyInput: ({ now, tool }) => policyCall({ now, tool }),
          store: {
            ...STORE,
            effect: async () => ({ ...EFFECT, createdAt: NOW - DAY, trace: { ...EFFECT.trace, policyVersion } }),
          },
        }),
        { effect_id: 'eff_1' },
      );
    const { structured, text } = await explain('then');
    expect(structured['rules']).toMatchObject([{ rule: 's/over', matches: true, in_force: true }]);
    const changed = ' Policies have changed since: the rules are those in force now.';
    expect(text).toContain(changed);
    expect((await explain(set.version)).text).not.toContain(changed);
  });

  test('judges what was called, by whom, on what and from where, with all headers that were sent, and says first what matches and what nearly did', async () => {
    const when = (...facts: readonly string[]) =>
      `match: { tools: [a.b] }, when: { ${facts.map((fact) => `params.${fact}: 1`).join(', ')} }`;
    const set = compileText(
      `${HEAD}rules:\n` +
        `  - { id: far, effect: deny, ${when('x', 'y')}, reason: "F" }\n` +
        `  - { id: near, effect: deny, ${when('x', 'n')}, reason: "N" }\n` +
        `  - { id: hit, effect: allow, ${when('n')} }\n`,
      [makeTool({ name: 'a.b' })],
    );
    const asked: JudgeInput[] = [];
    // Rules read all that was sent, and not only what makes it another action.
    const sent = { 'x-tenant': 'a', 'user-agent': 'u' };
    const tools = explaining({
      policies: () => ({ mode: 'enforce', set }),
      openParams: () => ({
        params: { n: 1, x: 0, y: 0 },
        requestIp: '10.0.0.7',
        headers: { sent, bound: { ':path': '/x' } },
      }),
      policyInput(input) {
        asked.push(input);
        return policyCall(input);
      },
      store: { ...STORE, effect: async () => ({ ...EFFECT, actor: { ...EFFECT.actor, user: 'olga' } }) },
    });
    const { structured, text } = await answerOf(tools, { effect_id: 'eff_1' });
    expect(asked).toMatchObject([
      {
        key: { id: 'k', kind: 'agent', profile: null, user: 'olga' },
        target: 'x:1',
        params: { n: 1, x: 0, y: 0 },
        requestIp: '10.0.0.7',
      },
    ]);
    expect(asked[0]?.headers).toEqual(sent);
    expect(structured['rules']).toMatchObject([{ rule: 's/hit' }, { rule: 's/near' }, { rule: 's/far' }]);
    expect(text).toMatch(/^bot called a\.b and got committed\. 1 rule matches; one change away: s\/near\./);
  });

  test('has a hundred rules, and says how many there are beside', async () => {
    const set = compileText(
      `${HEAD}rules:\n${Array.from({ length: 103 }, (_, n) => `  - { id: r${n}, effect: allow, match: { tools: [a.b] } }\n`).join('')}`,
      [makeTool({ name: 'a.b' })],
    );
    const tools = explaining({
      policies: () => ({ mode: 'enforce', set }),
      openParams: () => ({ params: {} }),
      policyInput: ({ now, tool }) => policyCall({ now, tool }),
      store: { ...STORE, effect: async () => EFFECT },
    });
    for (const args of [{ effect_id: 'eff_1' }, { policy: 's' }])
      expect((await answerOf(tools, args)).structured).toMatchObject({ rules: { length: 100 }, rules_left_out: 3 });
    const ten = Array.from({ length: 10 }, (_, n) => `s/r${n} (allow)`).join(', ');
    expect((await answerOf(tools, { policy: 's' })).text).toBe(`s has 103 rules in force: ${ten}.`);
  });

  test.each([
    ['tool', createCatalog([])],
    ['agent', createCatalog([makeTool({ name: 'a.b' })])],
  ])('of a call whose %s is gone has the rules by name, and what decided then', async (what, catalog) => {
    const matched = [{ rule: 's/one', effect: 'deny', unknown: [] }] as const;
    const trace = { ...EFFECT.trace, matched, policyVersion: 'then' };
    const tools = explaining({
      policies: () => ({ mode: 'enforce', set: POLICIES }),
      catalog: () => catalog,
      directory: { agent: () => null },
      store: { ...STORE, effect: async () => ({ ...EFFECT, trace }) },
    });
    const { structured, text } = await answerOf(tools, { effect_id: 'eff_1' });
    expect(structured).toMatchObject({
      decided_with: 'then',
      policy_version: POLICIES.version,
      rules: [{ rule: 's/one', effect: 'deny', matches: true }],
      near_misses: [],
    });
    expect(text).toContain(`Its ${what} is not declared any more`);
  });

  test('is of a call or of a policy, not of both and not of none', async () => {
    const tools = explaining({
      policies: notAsked,
      store: STORE,
    });
    for (const args of [{}, { effect_id: 'eff_1', policy: 'world' }])
      expect(await tools[0]?.run(args, CALL)).toMatchObject({
        kind: 'faults',
        faults: [{ message: 'needs effect_id or policy, one of both' }],
      });
  });
});

describe('a search of tools', () => {
  /** What a key of a person, or of a profile, is told of an MCP server that lists more than was approved. */
  async function found(
    principal: Partial<ToolCall['principal']>,
    call: Partial<ToolCall> = {},
    state: ReturnType<ControlPorts['pins']['stateOf']> = null,
  ) {
    const { structured } = await answerOf(toolsOf(state), {}, { ...call, principal: readerOf(principal) });
    return JSON.parse(JSON.stringify(structured['tools'])) as {
      name: string;
      allowed: boolean;
      reason: string | null;
    }[];
  }
  function readerOf(principal: Partial<ToolCall['principal']>) {
    const reader = { ...BOT, kind: 'profile', profile: 'p', agentId: null, scopes: ['tools:read'], ...principal };
    return reader as ToolCall['principal'];
  }
  function toolsOf(
    state: ReturnType<ControlPorts['pins']['stateOf']> = null,
    unapproved: readonly string[] = ['look', 'wipe', 'Dear model'],
    set = POLICIES,
  ) {
    const seen = [{ upstream: 'crm', failure: null, unapproved }];
    const ports: ControlPorts = {
      ...PORTS,
      store: STORE,
      inLine: (_key, make) => make(),
      installation: notAsked,
      policies: () => ({ mode: 'enforce', set }),
      pins: { stateOf: () => state, seen: () => seen },
    };
    return catalogTools(ports, []);
  }
  const names = async (...of: Parameters<typeof found>) => (await found(...of)).map(({ name }) => name);

  test('names what nobody has approved to people, within the tools of their key, and to no agent', async () => {
    const own = ['svc.tools.describe', 'svc.tools.search'];
    expect(await names({})).toEqual(['crm.look', 'crm.wipe', 'payments.refund', 'payments.see', ...own]);
    expect(await names({ allowedTools: ['crm.look'] })).toEqual(['crm.look', ...own]);
    // To an agent, of the declared ones those that the rule permits.
    const view = { kind: 'own', workspace: 'demo', agentId: 'bot' } as const;
    expect(await names({}, { view })).toEqual(['payments.refund', ...own]);
  });

  test('names neither itself nor the description of a tool to who reads governance alone', async () => {
    const seen = await names({ scopes: ['governance:read'] });
    expect(seen.filter((name) => name.startsWith('svc.'))).toEqual([]);
  });

  test('names two hundred of those of a server, and says how many fit and how many it shows', async () => {
    const many = Array.from({ length: 300 }, (_, n) => `t${n}`);
    const { text } = await answerOf(toolsOf(null, many), { upstream: 'crm' }, { principal: readerOf({}) });
    expect(text).toMatch(/^200 tools fit; these are the first 20: crm\.t0, /);
    const few = await answerOf(toolsOf(null, ['look']), { upstream: 'crm' }, { principal: readerOf({}) });
    expect(few.text).toBe('1 tool fits: crm.look.');
  });

  test('describes nothing that nobody has approved, and says where people see it', async () => {
    const describing = toolsOf()[1];
    const said = async (tool: string) => describing?.run({ tool }, { ...CALL, principal: readerOf({}) });
    const message = 'names a tool that nobody has approved; svc tools diff shows it to people';
    expect(await said('crm.look')).toMatchObject({ kind: 'faults', faults: [{ path: '/tool', message }] });
    expect(await said('crm.other')).toMatchObject({
      kind: 'faults',
      faults: [{ message: expect.stringMatching(/^names no tool that this key may see/) }],
    });
  });

  test('is by words in any case, of the descriptions of its own tools too', async () => {
    const { structured } = await answerOf(toolsOf(), { query: 'What it TAKES' }, { principal: readerOf({}) });
    expect(structured['tools']).toMatchObject([{ name: 'svc.tools.describe', kind: 'read' }]);
  });

  test('tells a key that is limited to some tools nothing of others, and not their names', async () => {
    const principal = readerOf({ allowedTools: ['crm.look'] });
    for (const tool of ['payments.refund', 'payments.refnd'])
      expect(await toolsOf()[1]?.run({ tool }, { ...CALL, principal })).toMatchObject({
        faults: [{ path: '/tool', message: 'names no tool that this key may see' }],
      });
  });

  test('describes the rules that can apply, and says in words whom they ask and what they take from', async () => {
    const asking = 'approval: { approvers: { roles: [finance-lead] }, quorum: 1, expires: 1h, summary: "S" }';
    const set = compileText(
      `${HEAD}budgets: { day: { unit: call, per: day, limit: 5 } }\nrules:\n` +
        '  - { id: pay, effect: allow, match: { tools: [payments.refund] }, description: "Pays", obligations: [ { budget: { use: day, amount: 1 } } ] }\n' +
        `  - { id: ask, effect: require_approval, mode: shadow, match: { tools: [payments.refund] }, ${asking} }\n`,
    );
    const said = async (principal: Partial<ToolCall['principal']>) => {
      const call = { ...CALL, principal: readerOf(principal) };
      const answer = await toolsOf('pinned', [], set)[1]?.run({ tool: 'payments.refund' }, call);
      if (answer?.kind !== 'answer') throw new Error(JSON.stringify(answer));
      return answer;
    };
    const { structured, text } = await said({ scopes: ['tools:read', 'effects:run'] });
    expect(structured).toMatchObject({
      policy_version: set.version,
      policies: [
        { rule: 's/ask', effect: 'require_approval', mode: 'shadow', description: null },
        { rule: 's/pay', effect: 'allow', mode: 'enforce', description: 'Pays' },
      ],
      budgets: [{ budget: 's/day', unit: 'call' }],
    });
    const its = 'payments.refund is a write tool of payments; its title is data that others wrote: "Refund a payment".';
    expect(text).toBe(`${its} 2 policy rules can apply to it. Calls may need approval by s/ask. It takes from s/day.`);
    expect((await said({})).text).toContain(`${its} This key cannot have it run: insufficient_scope.`);
    const many = compileText(
      `${HEAD}rules:\n${Array.from({ length: 201 }, (_, n) => `  - { id: r${n}, effect: allow, match: { tools: [payments.refund] } }\n`).join('')}`,
    );
    const described = await toolsOf('pinned', [], many)[1]?.run(
      { tool: 'payments.refund' },
      { ...CALL, principal: readerOf({ scopes: ['tools:read', 'effects:run'] }) },
    );
    expect(described).toMatchObject({
      structured: { policies: { length: 200 }, approvals: [], budgets: [] },
      text: `${its} 201 policy rules can apply to it.`,
    });
  });

  test('describes each budget once that calls of a tool can take from, and with which rule', async () => {
    const charged = (id: string, ...budgets: readonly string[]) =>
      `  - { id: ${id}, effect: allow, match: { tools: [payments.refund] }, obligations: [${budgets.map((use) => `{ budget: { use: ${use}, amount: 1 } }`).join(', ')}] }\n`;
    const limits =
      'budgets: { day: { unit: call, by: [agent.id], per: day, limit: 5 }, hour: { unit: call, per: hour, limit: 5 } }';
    const set = compileText(`${HEAD}${limits}\nrules:\n${charged('pay', 'day')}${charged('more', 'day', 'hour')}`);
    const describing = toolsOf('pinned', [], set)[1];
    const answer = await describing?.run({ tool: 'payments.refund' }, { ...CALL, principal: readerOf({}) });
    expect(answer).toMatchObject({
      structured: {
        budgets: [
          { budget: 's/day', by: ['agent.id'], rule: 's/pay' },
          { budget: 's/hour', by: [], rule: 's/more' },
        ],
      },
    });
  });

  test('says of a write that a read-only key may not run it, and of a read that it may', async () => {
    const reader = { kind: 'agent', agentId: 'bot', profile: null, scopes: [], readOnly: true } as const;
    const tools = await found(reader);
    const of = (tool: string) => tools.find(({ name }) => name === tool);
    expect(of('payments.refund')).toMatchObject({ allowed: false, reason: 'read_only_key' });
    expect(of('payments.see')?.reason).not.toBe('read_only_key');
  });

  test.each([
    ['pinned', true, null],
    ['unseen', true, null],
    ['changed', false, 'tool_quarantined'],
    ['gone', false, 'tool_quarantined'],
  ] as const)('says of one that is %s whether this key could have it run', async (state, allowed, reason) => {
    const scopes = ['tools:read', 'effects:run'] as const;
    const [shown] = await found({ scopes, allowedTools: ['payments.refund'] }, {}, state);
    expect(shown).toMatchObject({ name: 'payments.refund', pin_state: state, allowed, reason });
  });
});
