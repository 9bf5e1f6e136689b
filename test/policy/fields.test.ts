import type { Json, JsonObject } from '../../src/json/value.ts';
import { describe, expect, test } from 'vitest';
import type { Tool } from '../../src/effects/model/tool.ts';
import type { Obligation, Verdict } from '../../src/effects/model/verdict.ts';
import type { PolicyInput } from '../../src/policy/evaluate.ts';
import {
  BOT,
  call,
  compileAll,
  compileText,
  CREATE,
  GET,
  HEAD,
  judge,
  judgeParams,
  MAIL,
  outcome,
  REFUND,
  rules,
} from './fixtures.ts';

/** Each documented field in a case where it alone turns the decision. */
describe('match', () => {
  const cases: readonly [string, string, Partial<PolicyInput>, Partial<PolicyInput>][] = [
    ['tools', '{ tools: [payments.refund] }', {}, { tool: GET }],
    ['tools, glob', '{ tools: ["payments.{refund,create}"] }', { tool: CREATE }, { tool: GET }],
    ['upstreams', '{ upstreams: [payments] }', {}, { tool: MAIL }],
    ['kinds', '{ kinds: [read] }', { tool: GET }, {}],
    ['tags', '{ tags: [money] }', {}, { tool: GET }],
    ['actions', '{ actions: [mail.message] }', { tool: MAIL }, {}],
    ['env', '{ env: [prod] }', {}, { env: 'staging' }],
    ['workspaces', '{ workspaces: [demo] }', {}, { workspace: 'other' }],
    ['targets', '{ targets: ["payment:*"] }', {}, { target: 'mail:p_1' }],
    ['targets, a glob after a plain one', '{ targets: ["mail:m_1", "payment:*"] }', {}, { target: 'mail:p_1' }],
    ['targets, plain', '{ targets: ["payment:p_1"] }', {}, { target: 'payment:p_2' }],
    ['agents.id', '{ agents: { id: [support-bot] } }', {}, { agent: { ...BOT, id: 'other' } }],
    ['agents.team', '{ agents: { team: [support] } }', {}, { agent: { ...BOT, team: 'sales' } }],
    ['agents.owner', '{ agents: { owner: [maria] } }', {}, { agent: { ...BOT, owner: 'tom' } }],
    ['agents.roles', '{ agents: { roles: [x, refunder] } }', {}, { agent: { ...BOT, roles: [] } }],
    [
      'agents.<attribute>, $$',
      '{ agents: { tenant: [$$x] } }',
      { agent: { ...BOT, attributes: { tenant: '$x' } } },
      {},
    ],
    ['agents.<attribute>', '{ agents: { trust: [2, 3] } }', {}, { agent: { ...BOT, attributes: { trust: 1 } } }],
    ['keys.kind', '{ keys: { kind: [agent] } }', {}, { key: { ...call().key, kind: 'account' } }],
    ['keys.profile', '{ keys: { profile: [auditor] } }', { key: { ...call().key, profile: 'auditor' } }, {}],
    ['keys.user', '{ keys: { user: [maria] } }', {}, { key: { ...call().key, user: null } }],
    ['except', '{ kinds: [write], except: [ { tools: [mail.*] }, { env: [dev] } ] }', {}, { tool: MAIL }],
    ['except, both of two keys', '{ except: [ { kinds: [write], env: [dev] } ] }', {}, { env: 'dev' }],
    [
      'except, only one of two keys',
      '{ except: [ { kinds: [write], env: [dev] } ] }',
      { tool: GET, env: 'dev' },
      { env: 'dev' },
    ],
    ['except, second', '{ kinds: [write], except: [ { tools: [mail.*] }, { env: [dev] } ] }', {}, { env: 'dev' }],
  ];
  test.each(cases)('%s: %s', (_name, match, inside, outside) => {
    const granting = rules(`{ id: r, effect: allow, match: ${match} }`);
    expect([outcome(judge(granting, inside)), outcome(judge(granting, outside))]).toEqual(['permit', 'denied_policy']);
    const refusing = rules('{ id: a, effect: allow }', `{ id: r, effect: deny, match: ${match} }`);
    expect([outcome(judge(refusing, inside)), outcome(judge(refusing, outside))]).toEqual(['denied_policy', 'permit']);
  });

  test('has_params asks for the declared schema, not for the call', () => {
    const tenant = { ...REFUND, paramsSchema: { type: 'object', properties: { tenant: {} } } };
    const set = compileText(
      `${HEAD}rules:\n  - { id: a, effect: allow }\n  - { id: r, effect: deny, match: { has_params: [tenant] } }\n`,
      [tenant, GET],
    );
    expect(outcome(judge(set, { tool: tenant }))).toBe('denied_policy');
    expect(outcome(judge(set, { tool: GET, params: { tenant: 'x' } }))).toBe('permit');
  });

  test('has_params asks for all of the params that it names', () => {
    const paramsOf = (...names: readonly string[]): Tool => {
      const properties = Object.fromEntries(names.map((name) => [name, {}]));
      return { ...REFUND, paramsSchema: { type: 'object', properties } };
    };
    const judged = (of: Tool) =>
      outcome(
        judge(
          compileText(`${HEAD}rules: [ { id: r, effect: allow, match: { has_params: [tenant, amount] } } ]`, [of]),
          { tool: of },
        ),
      );
    expect([judged(paramsOf('amount', 'note', 'tenant')), judged(paramsOf('tenant'))]).toEqual([
      'permit',
      'denied_policy',
    ]);
  });

  test('a tool outside the closed list is never permitted', () => {
    expect(
      outcome(judge(rules('{ id: a, effect: allow, match: { tools: ["**"] } }'), { tool: { ...GET, name: 'x.y' } })),
    ).toBe('denied_policy');
  });
});

describe('operators', () => {
  const cases: readonly [string, unknown, unknown][] = [
    ['{ eq: 5 }', 5, 6],
    ['5', 5, 6],
    ['{ ne: a }', 'b', 'a'],
    ['{ in: [1, 2] }', 2, 3],
    ['{ nin: [1, 2] }', 3, 2],
    ['{ gt: 5 }', 6, 5],
    ['{ gte: 5 }', 5, 4],
    ['{ lt: 5 }', 4, 5],
    ['{ lte: 5 }', 5, 6],
    ['{ equals: [1, { a: 2 }] }', [1, { a: 2 }], [1, { a: 3 }]],
    ['{ starts_with: [A-, B-] }', 'B-1', 'C-1'],
    ['{ ends_with: ".com" }', 'a.com', 'a.org'],
    ['{ substring: mid }', 'amidb', 'ambid'],
    ['{ glob: "a.*" }', 'a.b', 'a.b.c'],
    ['{ glob: "a/*" }', 'a/b', 'a/b/c'],
    ['{ glob: "a:*" }', 'a:b', 'a:b:c'],
    ['{ glob: "a.**" }', 'a.b.c', 'b.c'],
    ['{ glob: "a\\\\*" }', 'a*', 'ab'],
    ['{ glob: "a?c" }', 'abc', 'a.c'],
    ['{ glob: "a,b" }', 'a,b', 'a'],
    ['{ glob: "{a,b}c" }', 'bc', 'a'],
    ['{ regex: "[0-9]+" }', '42', '42x'],
    ['{ regex_find: "[0-9]+" }', 'x42x', 'x'],
    ['{ regex: "a.*" }', 'a\n', 'b\na'],
    ['{ regex_find: "a.b" }', 'a\nb', 'ab'],
    ['{ email_in: ["*@example.com"] }', 'ada@EXAMPLE.com', 'ada@a.example.com'],
    ['{ email_in: [ada@example.com] }', 'ada@example.com', 'tom@example.com'],
    ['{ domain_in: ["*.example.com"] }', 'a.Example.com', 'example.com'],
    ['{ contains: a }', ['b', 'a'], ['b']],
    ['{ contains_all: [a, b] }', ['b', 'a', 'c'], ['a']],
    ['{ some: { item.q: { gt: 5 } } }', [{ q: 1 }, { q: 6 }], [{ q: 1 }]],
    ['{ every: { item.q: { gt: 5 }, item.s: a } }', [{ q: 6, s: 'a' }], [{ q: 6, s: 'b' }]],
    ['{ every: { item: { some: { item: 1 } } } }', [[2, 1], [1]], [[2], [1]]],
    ['{ exists: true }', 0, null],
    ['{ exists: false }', null, 0],
    ['{ type: integer }', 5, 5.5],
    ['{ type: ["null", array] }', null, {}],
    ['{ eq: 5, if_absent: true }', null, 6],
    ['{ ne: 5, if_absent: false }', 6, null],
    ['{ gte: 1, lte: 5 }', 3, 6],
    ['{ eq: { fact: agent.attributes.trust } }', 2, 3],
    ['{ in: { fact: agent.roles } }', 'refunder', 'admin'],
    ['{ eq: $$x }', '$x', 'x'],
    ['{ in: [$$x, y] }', '$x', 'x'],
    ['{ equals: { b: $$x } }', { b: '$x' }, { b: 'x' }],
    ['{ greaterThan: 5 }', 6, 5],
  ];
  test.each(cases)('params.x: %s', (operator, holding, failing) => {
    const set = rules(`{ id: r, effect: allow, when: { params.x: ${operator} } }`);
    const opposite = rules(`{ id: r, effect: allow, when: { not: { params.x: ${operator} } } }`);
    const params = (x: unknown) => ({ x: JSON.parse(JSON.stringify(x)) });
    expect([outcome(judgeParams(set, params(holding))), outcome(judgeParams(set, params(failing)))]).toEqual([
      'permit',
      'denied_policy',
    ]);
    expect(outcome(judgeParams(opposite, params(holding)))).toBe('denied_policy');
    expect(outcome(judgeParams(opposite, params(failing)))).toBe('permit');
  });
});

describe('the largest values that are judged', () => {
  const text = (length: number): Json => 'a'.repeat(length);
  const list = (length: number): Json => Array.from({ length }, () => 'a');
  test.each<[what: string, operator: string, of: (length: number) => Json, most: number]>([
    ['a text for a glob', '{ glob: "**" }', text, 65_536],
    ['a text for a pattern', '{ regex: ".*" }', text, 65_536],
    ['a list for some', '{ some: { item: a } }', list, 10_000],
    ['a list for every', '{ every: { item: a } }', list, 10_000],
    ['a list for contains', '{ contains: a }', list, 10_000],
    ['a list for contains_all', '{ contains_all: [a] }', list, 10_000],
  ])('%s: what is larger is unknown, so that no allow applies and every deny does', (_, operator, of, most) => {
    const allowing = rules(`{ id: r, effect: allow, when: { params.x: ${operator} } }`);
    const denying = rules('{ id: a, effect: allow }', `{ id: r, effect: deny, unless: { params.x: ${operator} } }`);
    const judged = (length: number): readonly string[] =>
      [allowing, denying].map((set) => outcome(judgeParams(set, { x: of(length) })));
    expect(judged(most)).toEqual(['permit', 'permit']);
    expect(judged(most + 1)).toEqual(['denied_policy', 'denied_policy']);
  });
});

describe('operators in the second spelling', () => {
  test.each<[operator: string, value: string, holding: Json, failing: Json]>([
    ['equal', '5', 5, 6],
    ['not:equal', '5', 6, 5],
    ['not:in', '[a, b]', 'c', 'a'],
    ['someFact:greaterThan', '5', [1, 6], [1, 2]],
    ['everyFact:greaterThan', '5', [6, 7], [1, 6]],
    ['not:someFact:equal', 'a', ['b'], ['a', 'b']],
    ['everyFact:not:equal', 'a', ['b', 'c'], ['a', 'b']],
    ['doesNotContain', 'a', ['b'], ['b', 'a']],
  ])('%s %s', (operator, value, holding, failing) => {
    const set = rules(
      `{ id: r, effect: allow, when: { fact: params, path: x, operator: "${operator}", value: ${value} } }`,
    );
    expect([outcome(judgeParams(set, { x: holding })), outcome(judgeParams(set, { x: failing }))]).toEqual([
      'permit',
      'denied_policy',
    ]);
  });
});

describe('facts', () => {
  const cases: readonly [string, Partial<PolicyInput>][] = [
    ['agent.id: support-bot', { agent: { ...BOT, id: 'x' } }],
    ['agent.team: support', { agent: { ...BOT, team: 'x' } }],
    ['"agent.roles[0]": refunder', { agent: { ...BOT, roles: ['x'] } }],
    ['agent.owner: maria', { agent: { ...BOT, owner: 'x' } }],
    ['agent.attributes.tenant: acme', { agent: { ...BOT, attributes: { tenant: 'x' } } }],
    ['key.id: key_1', { key: { ...call().key, id: 'x' } }],
    ['key.kind: agent', { key: { ...call().key, kind: 'account' } }],
    ['key.profile: { exists: false }', { key: { ...call().key, profile: 'x' } }],
    ['key.user: maria', { key: { ...call().key, user: 'x' } }],
    ['tool.name: payments.refund', { tool: GET }],
    ['tool.upstream: payments', { tool: MAIL }],
    ['tool.kind: write', { tool: GET }],
    ['tool.tags: { contains: money }', { tool: MAIL }],
    ['tool.risk: high', { tool: GET }],
    ['target: "payment:p_1"', { target: 'x' }],
    ['params.deep.list[1]: 2', { params: { deep: { list: [2, 1] } } }],
    ['env: prod', { env: 'x' }],
    ['request.ip: 10.0.0.1', { requestIp: '10.0.0.2' }],
  ];
  test.each(cases)('%s', (condition, other) => {
    const quoted = condition.startsWith('"') ? condition : condition.replace(/^([^:]+):/, '"$1":');
    const set = rules(`{ id: r, effect: allow, when: { ${quoted} } }`);
    expect(outcome(judge(set, { params: { deep: { list: [1, 2] } } }))).toBe('permit');
    expect(outcome(judge(set, { params: { deep: { list: [1, 2] } }, ...other }))).toBe('denied_policy');
  });
});

describe('paths of the second form', () => {
  test.each(['deep.list[1]', '$.deep.list[1]', '["deep"].list[1]', '["deep"]["list"][1]', '$["deep"].list[1]'])(
    '%s',
    (path) => {
      const set = rules(`{ id: r, effect: allow, when: { fact: params, path: '${path}', operator: equal, value: 2 } }`);
      expect(outcome(judgeParams(set, { deep: { list: [1, 2] } }))).toBe('permit');
      expect(outcome(judgeParams(set, { deep: { list: [2, 1] } }))).toBe('denied_policy');
    },
  );

  test('a dot never reaches a key that holds a dot, and brackets do', () => {
    const judged = (path: string) =>
      outcome(judgeParams(rules(`{ id: r, effect: allow, when: { '${path}': 1 } }`), { 'a.b': 1 }));
    expect([judged('params.a.b'), judged('params["a.b"]')]).toEqual(['denied_policy', 'permit']);
  });
});

describe('facts of the call and of its tool', () => {
  test('a header is found in lower case, however the rule writes it', () => {
    const set = rules('{ id: r, effect: allow, when: { request.headers.X-Region: eu } }');
    expect(outcome(judge(set, { headers: { 'x-region': 'eu' } }))).toBe('permit');
    expect(outcome(judge(set, { headers: { 'x-region': 'us' } }))).toBe('denied_policy');
  });

  test('tool.declared is true of each declared tool, and false of what no rule of a route names', () => {
    const undeclared = { ...GET, name: 'payments.(undeclared)', declared: false } as const;
    const set = compileText(`${HEAD}rules: [ { id: r, effect: allow, when: { tool.declared: true } } ]`, [
      GET,
      undeclared,
    ]);
    expect(outcome(judge(set, { tool: GET }))).toBe('permit');
    expect(outcome(judge(set, { tool: undeclared }))).toBe('denied_policy');
  });

  test('tool.pin is that of the call, and there for tools of MCP servers alone', () => {
    const set = rules('{ id: a, effect: allow }', '{ id: r, effect: deny, unless: { tool.pin: pinned } }');
    expect(outcome(judge(set, { pin: 'pinned' }))).toBe('permit');
    expect(outcome(judge(set, { pin: 'changed' }))).toBe('denied_policy');
    expect(judge(set)).toMatchObject({ trace: { matched: [{ rule: 's/r', unknown: ['tool.pin'] }, { rule: 's/a' }] } });
  });
});

describe('rules', () => {
  test('combining: pause > deny > require_approval > allow > nothing', () => {
    const lines = {
      pause: '{ id: p, effect: pause, when: { params.p: 1 } }',
      deny: '{ id: d, effect: deny, when: { params.d: 1 } }',
      ask: '{ id: q, effect: require_approval, when: { params.q: 1 }, approval: { approvers: { roles: [oncall] } } }',
      allow: '{ id: a, effect: allow, when: { params.a: 1 } }',
      constrain: '{ id: c, effect: constrain, when: { params.c: 1 }, obligations: [ { claim: { on: x } } ] }',
    };
    const set = rules(...Object.values(lines));
    const judged = (...on: readonly string[]): string =>
      outcome(
        judgeParams(
          set,
          Object.fromEntries(['p', 'd', 'q', 'a', 'c'].map((name) => [name, on.includes(name) ? 1 : 0])),
        ),
      );
    expect(judged()).toBe('denied_policy');
    expect(judged('c')).toBe('denied_policy');
    expect(judged('a')).toBe('permit');
    expect(judged('q')).toBe('approval');
    expect(judged('a', 'q')).toBe('approval');
    expect(judged('a', 'q', 'd')).toBe('denied_policy');
    expect(judged('a', 'q', 'd', 'p')).toBe('denied_paused');
    expect(judge(set, { params: { p: 0, d: 0, q: 0, a: 0, c: 0 } })).toMatchObject({
      reason: { code: 'no_rule_allows' },
    });
    expect(judgeParams(set, { p: 1, d: 0, q: 0, a: 0, c: 0 })).toMatchObject({
      reason: { code: 'policy_paused', rule: 's/p' },
    });
  });

  test('require_approval asks on unknown, and grants only on true', () => {
    const ask =
      '{ id: q, effect: require_approval, when: { params.x: { gt: 5 } }, approval: { approvers: { roles: [oncall] } } }';
    expect(outcome(judgeParams(rules(ask), { x: 6 }))).toBe('approval');
    expect(outcome(judgeParams(rules(ask), { x: '6' }))).toBe('denied_policy');
    expect(judgeParams(rules(ask), {})).toMatchObject({
      reason: { code: 'no_rule_allows', message: expect.stringContaining('params.x: absent') },
      trace: { matched: [{ rule: 's/q', unknown: ['params.x'] }] },
    });
    expect(outcome(judgeParams(rules(ask, '{ id: a, effect: allow }'), {}))).toBe('approval');
  });

  test('a refusal says which values could not be judged, each once, and no others', () => {
    const message = (params: JsonObject, ...lines: string[]) => {
      const verdict = judgeParams(rules(...lines), params);
      return verdict.kind === 'deny' ? verdict.reason.message : '';
    };
    const denies = '{ id: d, effect: deny, when: { any: [ { params.a: 1, params.b: 1 }, { params.a: 2 } ] } }';
    const missing = '(params.a: absent, or not of the expected type)';
    expect(message({ b: 1 }, denies)).toBe(`The rule s/d refuses this call ${missing}`);
    expect(message({ a: 1, b: 1 }, denies)).toBe('The rule s/d refuses this call');
    const asks =
      '{ id: q, effect: require_approval, when: { params.a: { lt: 9 } }, approval: { approvers: { roles: [oncall] } } }';
    const only = `No policy rule allows support-bot to call payments.refund like this ${missing}`;
    expect(message({ a: '1' }, asks)).toBe(only);
    expect(message({ a: '1' }, asks, asks.replace('id: q', 'id: r'))).toBe(only);
    // What another rule could not judge is not why this one refuses.
    expect(message({ a: 1, b: 1 }, denies, '{ id: e, effect: deny, when: { params.z: 1 } }')).toBe(
      'The rule s/d refuses this call',
    );
    // A rule that grants nothing would not have allowed it.
    const owes = '{ id: c, effect: constrain, when: { params.z: 1 }, obligations: [ { claim: { on: desk } } ] }';
    expect(message({ a: '1' }, asks, owes)).toBe(only);
    const names = Array.from({ length: 9 }, (_, at) => `params.p${at}`);
    const many = `{ id: d, effect: deny, when: { ${names.map((name) => `${name}: 1`).join(', ')} } }`;
    expect(message({}, many)).toContain(`(${names.slice(0, 8).join(', ')}: absent`);
  });

  test('what no tool declares is refused as such', () => {
    const none = rules('{ id: a, effect: allow, match: { tools: [mail.send] } }');
    expect(judge(none, { tool: { ...GET, declared: false } })).toMatchObject({
      reason: { message: 'No policy rule allows support-bot to read what no tool of payments declares' },
    });
  });

  test('a tool without risk is unknown to a rule about risk', () => {
    const set = rules('{ id: a, effect: allow }', '{ id: d, effect: deny, when: { tool.risk: critical } }');
    expect(outcome(judge(set))).toBe('permit');
    expect(judge(set, { tool: GET })).toMatchObject({
      decision: 'denied_policy',
      trace: { matched: [{ unknown: ['tool.risk'] }, {}] },
    });
  });

  test('all sets join one lattice', () => {
    const { set } = compileAll([
      `${HEAD}rules: [ { id: a, effect: allow } ]`,
      `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: other\nrules: [ { id: d, effect: deny, when: { params.x: 1 } } ]`,
    ]);
    expect(outcome(judgeParams(set, { x: 1 }))).toBe('denied_policy');
    expect(outcome(judgeParams(set, { x: 2 }))).toBe('permit');
  });

  test('when and unless', () => {
    const set = rules('{ id: a, effect: allow, when: { params.x: 1 }, unless: { params.y: 1 } }');
    expect(outcome(judgeParams(set, { x: 1, y: 2 }))).toBe('permit');
    expect(outcome(judgeParams(set, { x: 2, y: 2 }))).toBe('denied_policy');
    expect(outcome(judgeParams(set, { x: 1, y: 1 }))).toBe('denied_policy');
    expect(outcome(judgeParams(set, { x: 1 }))).toBe('denied_policy');
  });

  test('conditions, lists and values by name', () => {
    const set = compileText(`${HEAD}
lists: { good: [EUR, USD] }
values: { cap: { by: env, of: { prod: 5, staging: 50 }, else: 500 }, one: 1 }
conditions: { small: { params.amount: { gte: $one, lte: $cap } }, fine: { all: [ { condition: small }, { params.currency: { in: $good } } ] } }
rules: [ { id: a, effect: allow, when: { condition: fine } } ]
`);
    const judged = (env: string, amount: number, currency = 'EUR') =>
      outcome(judge(set, { env, params: { amount, currency } }));
    expect([
      judged('prod', 5),
      judged('prod', 6),
      judged('staging', 50),
      judged('dev', 500),
      judged('dev', 501),
    ]).toEqual(['permit', 'denied_policy', 'permit', 'permit', 'denied_policy']);
    expect([judged('prod', 0), judged('prod', 5, 'CHF')]).toEqual(['denied_policy', 'denied_policy']);
  });

  test('of an empty list it is known that nothing is in it: a rule that denies by it denies nothing', () => {
    const denying = (test: string) =>
      compileText(
        `${HEAD}lists: { blocked: [] }\nrules: [ { id: a, effect: allow }, { id: d, effect: deny, when: { params.x: ${test} } } ]\n`,
      );
    const judged = (test: string, x: Json) => outcome(judgeParams(denying(test), { x }));
    expect([judged('{ in: $blocked }', 'eve'), judged('{ nin: $blocked }', 'eve')]).toEqual([
      'permit',
      'denied_policy',
    ]);
  });

  test('on_unknown: skip', () => {
    const line = (extra: string) => `{ id: d, effect: deny, when: { params.x: 1 }${extra} }`;
    expect(outcome(judge(rules('{ id: a, effect: allow }', line(''))))).toBe('denied_policy');
    expect(outcome(judge(rules('{ id: a, effect: allow }', line(', on_unknown: skip'))))).toBe('permit');
  });

  test('from is inclusive, until exclusive, dates are midnight in the zone', () => {
    const set = compileText(
      `${HEAD}timezone: Europe/Berlin\nrules: [ { id: a, effect: allow, from: 2026-12-20, until: "2026-12-21T08:30:00+01:00" } ]`,
    );
    const at = (now: number) => outcome(judge(set, { now }));
    const from = Date.UTC(2026, 11, 19, 23);
    const until = Date.UTC(2026, 11, 21, 7, 30);
    expect([at(from - 1), at(from), at(until - 1), at(until)]).toEqual([
      'denied_policy',
      'permit',
      'permit',
      'denied_policy',
    ]);
  });

  test('mode: shadow judges and decides nothing', () => {
    const set = rules(
      '{ id: a, effect: allow }',
      '{ id: d, mode: shadow, effect: deny, when: { params.x: { gt: 5 } } }',
      '{ id: p, mode: shadow, effect: pause, when: { params.x: { gt: 7 } } }',
    );
    expect(judgeParams(set, { x: 9 })).toMatchObject({ kind: 'permit', trace: { shadow: ['s/p', 's/d'] } });
    expect(judgeParams(set, { x: 5 }).trace.shadow).toEqual([]);
    const asks = 'approval: { approvers: { roles: [finance-lead] } }';
    const asking = rules(
      '{ id: a, effect: allow }',
      `{ id: r, mode: shadow, effect: require_approval, ${asks} }`,
      `{ id: c, mode: shadow, effect: constrain, ${asks} }`,
      '{ id: f, mode: shadow, effect: constrain, obligations: [ { rate_limit: { by: [], limit: 5, per: minute } } ] }',
    );
    expect(judgeParams(asking, { x: 5 })).toMatchObject({
      kind: 'permit',
      approvals: [],
      trace: { shadow: ['s/r', 's/c'] },
    });
    expect(outcome(judge(rules('{ id: a, mode: shadow, effect: allow }')))).toBe('denied_policy');
    // Also where no other rule is in force.
    expect(judge(rules('{ id: d, mode: shadow, effect: deny }')).trace.shadow).toEqual(['s/d']);
    expect(judge(rules('{ id: a, mode: shadow, effect: allow }')).trace).toMatchObject({ matched: [], shadow: [] });
  });

  test('of a value of the caller 120 characters are shown, and one that is longer says that it goes on', () => {
    const set = rules('{ id: d, effect: deny, reason: "${params.what}" }');
    expect(judgeParams(set, { what: 'x'.repeat(120) })).toMatchObject({ reason: { message: `"${'x'.repeat(120)}"` } });
    expect(judgeParams(set, { what: 'x'.repeat(121) })).toMatchObject({ reason: { message: `"${'x'.repeat(119)}…"` } });
  });

  test('reason is interpolated: quoted, capped, without what could mislead', () => {
    const set = rules('{ id: d, effect: deny, reason: "No ${params.what} for ${agent.id} ($${x})" }');
    const message = (what: string) => {
      const verdict = judgeParams(set, { what });
      return verdict.kind === 'deny' ? verdict.reason.message : '';
    };
    expect(message('tea')).toBe('No "tea" for support-bot (${x})');
    expect(message('a\u202eb\u0007"c\nd')).toBe('No "ab\\"cd" for support-bot (${x})');
    expect(message('x'.repeat(5_000)).length).toBeLessThan(200);
    expect(judge(set)).toMatchObject({ reason: { message: 'No (absent) for support-bot (${x})' } });
  });

  test.each([
    ['a target', '${target}', 'No "payment:p_1"'],
    ['a header', '${request.headers.x-why}', 'No "tea"'],
    ['the tool', '${tool.name}', 'No payments.refund'],
    ['the address', '${request.ip}', 'No 10.0.0.1'],
  ])('what a caller chooses is quoted, and nothing else: %s', (_, what, expected) => {
    const set = rules(`{ id: d, effect: deny, reason: "No ${what}" }`);
    expect(judge(set, { headers: { 'x-why': 'tea' } })).toMatchObject({ reason: { message: expected } });
  });

  test.each([
    ['deny', 'The rule s/r refuses this call'],
    ['pause', 'The rule s/r pauses this call'],
  ])('without a reason %s says which rule it is, and what it does', (effect, message) => {
    expect(judge(rules(`{ id: r, effect: ${effect} }`))).toMatchObject({ reason: { message } });
  });

  test('observe: what policy would have done, and nothing refused', () => {
    const set = rules(
      '{ id: a, effect: allow }',
      '{ id: d, effect: deny, when: { params.x: 1 } }',
      '{ id: q, effect: require_approval, when: { params.x: 2 }, approval: { approvers: { roles: [oncall] } } }',
    );
    const observe = (x: number) => judge(set, { params: { x }, mode: 'observe' });
    expect(observe(1)).toMatchObject({
      kind: 'permit',
      mode: 'observe',
      approvals: [],
      trace: { observed: { would: 'denied_policy', rule: 's/d' } },
    });
    expect(observe(2)).toMatchObject({
      kind: 'permit',
      approvals: [],
      trace: { observed: { would: 'pending_approval', rule: 's/q' } },
    });
    expect(observe(3)).toMatchObject({ kind: 'permit', mode: 'observe', trace: { observed: null } });
  });

  test('observe: what a call owes by the rules that grant it is owed, also where people would be asked', () => {
    const owed = 'obligations: [ { claim: { on: desk } } ]';
    const asks = 'approval: { approvers: { roles: [oncall] } }';
    for (const rule of [`effect: allow, ${owed}`, `effect: require_approval, ${asks}, ${owed}`])
      expect(judge(rules(`{ id: r, ${rule} }`), { mode: 'observe' })).toMatchObject({
        kind: 'permit',
        approvals: [],
        obligations: [{ kind: 'claim', target: 'desk' }],
      });
  });
});

describe('obligations', () => {
  const granted = (verdict: Verdict): readonly Obligation[] => {
    if (verdict.kind === 'deny') throw new Error(verdict.reason.message);
    return verdict.obligations;
  };
  const withBudget = (budget: string, obligations: string) =>
    compileText(`${HEAD}timezone: Europe/Berlin
values: { cap: { by: agent.team, of: { support: 70 }, else: 7 }, fee: 3 }
budgets: { b: ${budget} }
rules: [ { id: a, effect: allow, obligations: [ ${obligations} ] } ]`);
  const USE = '{ budget: { use: b, amount: params.amount } }';

  test('budget: by, per, limit, amount', () => {
    const set = withBudget('{ unit: cent, by: [agent.id, params.customer, params.n], per: day, limit: 500 }', USE);
    expect(granted(judgeParams(set, { amount: 5, customer: 'a"b', n: 1 }))).toEqual([
      {
        kind: 'budget',
        rule: 's/a',
        budget: 's/b',
        unit: 'cent',
        bucket: '["support-bot","a\\"b",1]',
        sharing: 'own',
        window: { kind: 'calendar', start: Date.UTC(2026, 5, 14, 22), end: Date.UTC(2026, 5, 15, 22) },
        limit: 500,
        amount: 5,
      },
    ]);
    expect(set.budgets).toEqual([{ budget: 's/b', unit: 'cent', window: 'day Europe/Berlin', reset: false }]);
  });

  test('budget: rolling, $limit, reset, shared', () => {
    const set = withBudget(
      '{ unit: call, by: [agent.team], rolling: 7d, limit: $cap, reset: true, warn_at: 80 }',
      '{ budget: { use: b, amount: $fee } }',
    );
    expect(granted(judge(set))).toMatchObject([
      { sharing: 'shared', window: { kind: 'rolling', ms: 604_800_000 }, limit: 70, amount: 3, warnAt: 80 },
    ]);
    expect(granted(judge(set, { agent: { ...BOT, team: 'x' } }))).toMatchObject([{ bucket: '["x"]', limit: 7 }]);
    expect(set.budgets).toEqual([{ budget: 's/b', unit: 'call', window: 'rolling 604800000', reset: true }]);
  });

  test.each([[undefined], [null], [-1], [1.5], ['5'], [2 ** 53], [[5]], [Number.NaN]])(
    'an amount of %j is invalid, never a hold',
    (amount) => {
      const set = withBudget('{ unit: cent, per: day, limit: 500 }', USE);
      const params = amount === undefined ? {} : { amount };
      expect(granted(judgeParams(set, params))).toMatchObject([{ kind: 'budget', amount: null }]);
    },
  );

  test('an amount of nothing is an amount', () => {
    const set = withBudget('{ unit: cent, per: day, limit: 500 }', USE);
    expect(granted(judgeParams(set, { amount: 0 }))).toMatchObject([{ kind: 'budget', amount: 0 }]);
  });

  test('an absent value of by refuses: there is no row to hold', () => {
    const set = withBudget('{ unit: cent, by: [agent.team], per: day, limit: 500 }', USE);
    expect(judge(set, { params: { amount: 5 }, agent: { ...BOT, team: null } })).toMatchObject({
      decision: 'denied_policy',
      reason: {
        code: 'rule_denied',
        rule: 's/a',
        message: 'The budget s/b is kept by agent.team, which this call does not have',
      },
    });
  });

  test('agents that one account registered share the rows of one agent', () => {
    const set = withBudget('{ unit: cent, by: [agent.id, params.c], per: day, limit: 500 }', USE);
    const row = (id: string, registeredBy: string, isSelfMade: boolean): unknown =>
      granted(judge(set, { params: { amount: 1, c: 'x' }, agent: { ...BOT, id, registeredBy, isSelfMade } }));
    expect(row('a', 'tom', true)).toMatchObject([{ bucket: '[{"agents_of":"tom"},"x"]', sharing: 'shared' }]);
    expect(row('b', 'tom', true)).toEqual(row('a', 'tom', true));
    expect(row('b', 'olga', true)).not.toEqual(row('a', 'tom', true));
    expect(row('b', 'tom', false)).toMatchObject([{ bucket: '["b","x"]', sharing: 'own' }]);
    const alone = withBudget('{ unit: cent, by: [agent.id], per: day, limit: 500 }', USE);
    expect(
      granted(judge(alone, { params: { amount: 1 }, agent: { ...BOT, registeredBy: 'tom', isSelfMade: true } })),
    ).toMatchObject([{ bucket: '[{"agents_of":"tom"}]' }]);
  });

  test('a bucket is JSON, whatever its value holds', () => {
    const set = withBudget('{ unit: cent, by: [params.c], per: day, limit: 500 }', USE);
    for (const c of ['plain', 'a"b', 'a","b', 'a\\', 'a\nb', 'ä'])
      expect(granted(judgeParams(set, { amount: 1, c }))).toMatchObject([{ bucket: JSON.stringify([c]) }]);
  });

  test('long buckets are told apart by their digest', () => {
    const set = withBudget('{ unit: cent, by: [params.c], per: day, limit: 500 }', USE);
    const bucket = (c: string) =>
      granted(judgeParams(set, { amount: 1, c })).map((made) => (made.kind === 'budget' ? made.bucket : ''));
    const [a, b] = [bucket(`${'x'.repeat(400)}a`), bucket(`${'x'.repeat(400)}b`)];
    expect(a[0]).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(a).not.toEqual(b);
    // What is written has 256 characters.
    expect(bucket('x'.repeat(252))).toEqual([`["${'x'.repeat(252)}"]`]);
    expect(bucket('x'.repeat(253))[0]).toMatch(/^sha256:/);
  });

  test('one budget is held once: the larger amount', () => {
    const set = compileText(`${HEAD}
budgets: { b: { unit: cent, per: month, limit: 500 } }
rules:
  - { id: a, effect: allow, obligations: [ { budget: { use: b, amount: params.x } } ] }
  - { id: c, effect: constrain, obligations: [ { budget: { use: b, amount: params.y } } ] }`);
    expect(granted(judgeParams(set, { x: 5, y: 3 }))).toMatchObject([{ rule: 's/c', amount: 5 }]);
    expect(granted(judgeParams(set, { x: 5, y: -3 }))).toMatchObject([{ amount: null }]);
  });

  test('rate_limit: by, limit, per', () => {
    const set = rules(
      '{ id: a, effect: allow, obligations: [ { rate_limit: { by: [agent.id], limit: 60, per: minute } }, { rate_limit: { limit: 5, per: 10s } } ] }',
    );
    expect(granted(judge(set))).toEqual([
      { kind: 'rate_limit', rule: 's/a', id: 's/a', bucket: '["support-bot"]', windowMs: 60_000, limit: 60 },
      { kind: 'rate_limit', rule: 's/a', id: 's/a#2', bucket: '[]', windowMs: 10_000, limit: 5 },
    ]);
  });

  test.each([
    ['minute', 60_000],
    ['hour', 3_600_000],
    ['day', 86_400_000],
    ['90m', 5_400_000],
  ])('attempts per %s are those of the last %i ms', (per, windowMs) => {
    const set = rules(`{ id: a, effect: allow, obligations: [ { rate_limit: { limit: 5, per: ${per} } } ] }`);
    expect(granted(judge(set))).toMatchObject([{ kind: 'rate_limit', windowMs }]);
  });

  test('claim: on and hold; existing before call on one target', () => {
    const set = rules(
      '{ id: a, effect: allow, obligations: [ { claim: { on: "payment:${params.id}" } } ] }',
      '{ id: c, effect: constrain, when: { params.strict: true }, obligations: [ { claim: { on: "payment:${params.id}", hold: existing } } ] }',
    );
    expect(granted(judgeParams(set, { id: 'p_1', strict: false }))).toEqual([
      { kind: 'claim', rule: 's/a', target: 'payment:p_1', hold: 'call' },
    ]);
    expect(granted(judgeParams(set, { id: 'p_1', strict: true }))).toEqual([
      { kind: 'claim', rule: 's/c', target: 'payment:p_1', hold: 'existing' },
    ]);
    const allowing = rules(
      '{ id: a, effect: allow, obligations: [ { claim: { on: desk, hold: existing } } ] }',
      '{ id: c, effect: constrain, obligations: [ { claim: { on: desk } } ] }',
    );
    expect(granted(judge(allowing))).toEqual([{ kind: 'claim', rule: 's/c', target: 'desk', hold: 'existing' }]);
    for (const id of [undefined, null, '', ['p_1'], 'p\u202e1', 'p\n1', 'x'.repeat(600)])
      expect(outcome(judgeParams(set, { strict: false, ...(id === undefined ? {} : { id }) }))).toBe('denied_policy');
  });

  test('claims on two targets are two', () => {
    const set = rules(
      '{ id: a, effect: allow, obligations: [ { claim: { on: desk } } ] }',
      '{ id: c, effect: constrain, obligations: [ { claim: { on: till } } ] }',
    );
    expect(granted(judge(set))).toMatchObject([{ target: 'till' }, { target: 'desk' }]);
  });

  test('reserve: pool, units, capacity of the configuration', () => {
    const set = rules(
      '{ id: a, effect: allow, obligations: [ { reserve: { pool: refund-desk, units: 2 } }, { reserve: { pool: "desk-${params.region}" } } ] }',
    );
    expect(granted(judgeParams(set, { region: 'eu' }))).toEqual([
      { kind: 'reserve', rule: 's/a', pool: 'refund-desk', units: 2, capacity: 4 },
      { kind: 'reserve', rule: 's/a', pool: 'desk-eu', units: 1, capacity: 2 },
    ]);
    expect(outcome(judgeParams(set, { region: 'mars' }))).toBe('denied_policy');
  });

  test('one pool is used once: the larger number of units, whichever rule comes first', () => {
    const use = (id: string, units: number) =>
      `{ id: ${id}, effect: constrain, obligations: [ { reserve: { pool: refund-desk, units: ${units} } } ] }`;
    for (const [first, second] of [
      [1, 3],
      [3, 1],
    ] as const)
      expect(granted(judge(rules('{ id: z, effect: allow }', use('a', first), use('b', second))))).toMatchObject([
        { kind: 'reserve', rule: 's/a', units: 3 },
      ]);
  });

  test('editable params are named by the requirement with their bounds, but for those that are redacted', () => {
    const asks = 'effect: require_approval, approval: { approvers: { roles: [oncall] }, require_reason: true';
    const rule = `{ id: s, ${asks}, editable: { amount: { min: 1, max: asked }, card: { max_length: 4 } } } }`;
    const required = (...more: readonly string[]) => {
      const verdict = judgeParams(rules(rule, ...more), { amount: 5, card: 'x' });
      return verdict.kind === 'permit' ? verdict.approvals : [];
    };
    const amount = { kind: 'range', min: 1, max: 'asked' };
    expect(required()).toMatchObject([
      { requireReason: true, editable: { amount, card: { kind: 'text', maxLength: 4 } } },
    ]);
    const hidden = '{ id: h, effect: constrain, obligations: [ { redact: { params: [card] } } ] }';
    expect(required(hidden).map(({ editable }) => editable)).toEqual([{ amount }]);
    expect(required(hidden.replace('card', 'card, amount'))[0]).not.toHaveProperty('editable');
  });

  test('allow_alike is told to the requirement, and another one is another rule to agree to', () => {
    const required = (alike: string) => {
      const asks = `effect: require_approval, approval: { approvers: { roles: [oncall] }${alike} }`;
      const verdict = judgeParams(rules(`{ id: s, ${asks} }`), { amount: 5 });
      return verdict.kind === 'permit' ? verdict.approvals[0] : undefined;
    };
    const five = required(', allow_alike: { times: 5, for: 2h }');
    expect(five?.allowAlike).toEqual({ times: 5, forMs: 7_200_000 });
    expect(required(', allow_alike: { times: 100, for: 24h }')?.allowAlike).toEqual({ times: 100, forMs: 86_400_000 });
    expect(required('')?.allowAlike).toBeUndefined();
    const digests = [five, required(''), required(', allow_alike: { times: 6, for: 2h }')].map(
      (one) => one?.ruleDigest,
    );
    expect(new Set(digests).size).toBe(3);
  });

  test('a rejection has to say why where the rule says so, and not where it says no', () => {
    const required = (reason: string) => {
      const verdict = judge(
        rules(`{ id: s, effect: require_approval, approval: { approvers: { roles: [oncall] }${reason} } }`),
      );
      return verdict.kind === 'permit' ? verdict.approvals[0]?.requireReason : undefined;
    };
    expect(['', ', require_reason: false', ', require_reason: true'].map(required)).toEqual([
      undefined,
      undefined,
      true,
    ]);
  });

  test('escalate is told to the requirement, and another one is another rule to agree to', () => {
    const required = (escalate: string) => {
      const asks = `effect: require_approval, approval: { approvers: { roles: [oncall] }${escalate} }`;
      const verdict = judgeParams(rules(`{ id: s, ${asks} }`), { amount: 5 });
      return verdict.kind === 'permit' ? verdict.approvals[0] : undefined;
    };
    const later = required(', escalate: { after: 1h, to: { roles: [finance-lead] } }');
    expect(later?.escalate).toEqual({ afterMs: 3_600_000, to: { roles: ['finance-lead'], users: [] } });
    expect(required('')?.escalate).toBeUndefined();
    const others = required(', escalate: { after: 1h, to: { roles: [oncall] } }');
    expect(new Set([later, required(''), others].map((one) => one?.ruleDigest)).size).toBe(3);
  });

  test('an amount in a currency is money for people, whole units of it are digits, and what is neither is shown as it is', () => {
    const asks = 'effect: require_approval, approval: { approvers: { roles: [oncall] }';
    const summary = (text: string, params: JsonObject, more: readonly string[] = []) => {
      const verdict = judgeParams(rules(`{ id: s, ${asks}, summary: "${text}" } }`, ...more), params);
      return verdict.kind === 'permit' ? verdict.approvals.map((one) => one.summary)[0] : verdict.kind;
    };
    const text = 'Pay ${params.amount in params.currency}';
    expect(summary(text, { amount: 123_456_789, currency: 'USD' })).toBe('Pay $1,234,567.89');
    expect(summary(text, { amount: -5, currency: 'CHF' })).toBe('Pay -CHF 0.05');
    expect(summary(text, { amount: 1_500, currency: 'JPY' })).toBe('Pay ¥1,500');
    expect(summary('Pay ${params.amount in EUR}', { amount: 80_000 })).toBe('Pay €800.00');
    for (const [params, shown] of [
      [{ amount: 80_000, currency: 'XQZ' }, '80000 (smallest unit of "XQZ")'],
      [{ amount: 1.5, currency: 'EUR' }, '1.5 (smallest unit of "EUR")'],
      [{ amount: '€9', currency: 'EUR' }, '"€9" (smallest unit of "EUR")'],
      [{ amount: 5 }, '5 (smallest unit of (absent))'],
    ] as const)
      expect(summary(text, params)).toBe(`Pay ${shown}`);
    const hidden = '{ id: h, effect: constrain, obligations: [ { redact: { params: [amount] } } ] }';
    expect(summary(text, { amount: 80_000, currency: 'EUR' }, [hidden])).toBe('Pay (redacted)');
    const unnamed = hidden.replace('amount', 'currency');
    expect(summary(text, { amount: 5, currency: 'EUR' }, [unnamed])).toBe('Pay 5 (smallest unit of (redacted))');
    // A name is no text for people.
    expect(() =>
      rules('{ id: a, effect: allow, obligations: [ { claim: { on: "x:${params.amount in EUR}" } } ] }'),
    ).toThrow();
  });

  test('redact: masked in what people read, whether or not the rule matches; a call without words of its own is described', () => {
    const asks = 'effect: require_approval, approval: { approvers: { roles: [oncall] }';
    const set = rules(
      '{ id: h, effect: constrain, when: { params.never: { eq: 1 } }, on_unknown: skip, obligations: [ { redact: { params: [card] } } ] }',
      `{ id: q, ${asks} } }`,
      `{ id: s, ${asks}, summary: "Pay with \${params.card.number} \${params.card} for \${params.id}" } }`,
    );
    const summaries = (params: JsonObject) => {
      const verdict = judgeParams(set, params);
      return verdict.kind === 'permit' ? verdict.approvals.map(({ summary }) => summary) : [];
    };
    const params = { id: 'p\u202e1', card: { number: '4111' }, amount: 5 };
    expect(summaries(params)).toEqual([
      expect.stringMatching(/ asks to call payments\.refund.* with amount 5, card \(redacted\), id "p1"$/),
      'Pay with (redacted) (redacted) for "p1"',
    ]);
    expect(summaries({ amount: 5, card: { number: '4111' }, id: 'p\u202e1' })).toEqual(summaries(params));
    expect(JSON.stringify(summaries(params))).not.toContain('4111');
    expect(set.redacted('payments.refund')).toEqual(new Set(['card']));
    expect(set.redacted('payments.unknown')).toEqual(new Set());
    const many = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`p${n}`, n]));
    expect(summaries(many)[0]).toMatch(/ with 60 params$/);
  });

  test('without a summary people read who asks to call what, on which target, with every param', () => {
    const set = rules('{ id: q, effect: require_approval, approval: { approvers: { roles: [oncall] } } }');
    const summary = (over: Partial<PolicyInput>): unknown => {
      const verdict = judge(set, over);
      return verdict.kind === 'permit' ? verdict.approvals[0]?.summary : null;
    };
    expect(summary({ params: { note: 'late', amount: 5 } })).toBe(
      'support-bot asks to call payments.refund on "payment:p_1" with amount 5, note "late"',
    );
    // A tool that names no target acts on what it is called.
    expect(summary({ target: 'payments.refund' })).toBe('support-bot asks to call payments.refund');
  });

  test('what a shadow rule redacts is masked too: it may decide something tomorrow', () => {
    const hides = 'effect: constrain, obligations: [ { redact: { params: [card] } } ]';
    const set = rules('{ id: a, effect: allow }', `{ id: h, mode: shadow, ${hides} }`);
    expect(set.redacted('payments.refund')).toEqual(new Set(['card']));
  });

  test('an approval on an allow is asked for', () => {
    const set = rules('{ id: a, effect: allow, approval: { approvers: { roles: [oncall] } } }');
    expect(outcome(judge(set))).toBe('approval');
  });

  test('the digest of a rule that asks covers the named values that it compares with', () => {
    const digestWith = (values: string, list = 'EUR') => {
      const set = compileText(`${HEAD}values: { cap: { by: env, ${values} } }
lists: { good: [${list}] }
rules: [ { id: q, effect: require_approval, when: { params.amount: { lte: $cap }, params.currency: { in: $good } }, approval: { approvers: { roles: [oncall] } } } ]`);
      const verdict = judgeParams(set, { amount: 5, currency: 'EUR' });
      return verdict.kind === 'permit' ? verdict.approvals[0]?.ruleDigest : null;
    };
    const digest = digestWith('of: { prod: 500 }, else: 900');
    expect(digest).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(digestWith('of: { prod: 500 }, else: 900')).toBe(digest);
    expect(digestWith('of: { prod: 501 }, else: 900')).not.toBe(digest);
    expect(digestWith('of: { prod: 500 }, else: 901')).not.toBe(digest);
    expect(digestWith('of: { prod: 500 }, else: 900', 'EUR, USD')).not.toBe(digest);
  });

  test('the digest of a rule that asks covers whether it grants as well', () => {
    const asks = 'approval: { approvers: { roles: [oncall] } }';
    const digests = ['require_approval', 'constrain'].map((effect) => {
      const verdict = judge(rules('{ id: a, effect: allow }', `{ id: q, effect: ${effect}, ${asks} }`));
      return verdict.kind === 'permit' ? verdict.approvals[0]?.ruleDigest : null;
    });
    expect(digests[0]).not.toBe(digests[1]);
  });

  test('the digest of a rule that asks covers from when until when it asks', () => {
    const digests = ['', ', from: 2026-01-01', ', until: 2036-01-01', ', from: 2026-01-01, until: 2036-01-01'].map(
      (time) => {
        const asks = 'effect: require_approval, approval: { approvers: { roles: [oncall] } }';
        const verdict = judge(rules(`{ id: q, ${asks}${time} }`));
        return verdict.kind === 'permit' ? verdict.approvals[0]?.ruleDigest : null;
      },
    );
    expect(new Set(digests).size).toBe(4);
  });

  test('approval: approvers, quorum, expires, summary, hold; constrain asks too', () => {
    const set = rules(
      '{ id: q, effect: require_approval, approval: { approvers: { roles: [finance-lead], users: [ada] }, quorum: 2, expires: 4h, summary: "Refund ${params.amount} of ${params.id}", hold: all } }',
      '{ id: c, effect: constrain, approval: { approvers: { users: [bo] } } }',
    );
    const verdict = judgeParams(set, { amount: 5, id: 'p"1' });
    expect(verdict).toMatchObject({
      approvals: [
        {
          rule: 's/q',
          approvers: { roles: ['finance-lead'], users: ['ada'] },
          quorum: 2,
          expiresMs: 14_400_000,
          summary: 'Refund 5 of "p\\"1"',
          hold: 'all',
        },
        { rule: 's/c', approvers: { roles: [], users: ['bo'] }, quorum: 1, expiresMs: 86_400_000, hold: 'own' },
      ],
    });
  });
});
