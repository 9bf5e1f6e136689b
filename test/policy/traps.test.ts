import { isDeepStrictEqual } from 'node:util';
import { Engine } from 'json-rules-engine';
import { describe, expect, test } from 'vitest';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { evaluatePolicies } from '../../src/policy/evaluate.ts';
import {
  BOT,
  call,
  compileText,
  faultsOf,
  HEAD,
  judge,
  judgeParams,
  MAIL,
  outcome,
  REFUND,
  rules,
} from './fixtures.ts';

const ALLOW = '{ id: allow, effect: allow }';

/** The decision when `deny when <condition>` stands beside a rule that allows everything. */
function denied(condition: string, params: JsonObject): boolean {
  return outcome(judgeParams(rules(ALLOW, `{ id: no, effect: deny, when: ${condition} }`), params)) !== 'permit';
}

function allowed(condition: string, params: JsonObject): boolean {
  return outcome(judgeParams(rules(`{ id: yes, effect: allow, when: ${condition} }`), params)) === 'permit';
}

function fault(condition: string): string {
  return faultsOf(`${HEAD}rules:\n  - { id: r, effect: deny, when: ${condition} }\n`).join('\n');
}

describe('1: rules lost under concurrency', () => {
  // An evaluation is synchronous: two never overlap. What does is the use of their verdicts, and a reload in between.
  test('64 callers keep their verdicts over waits while others evaluate and policies are replaced: each stays its own', async () => {
    const limited = (limit: number) =>
      rules(ALLOW, `{ id: no, effect: deny, when: { params.amount: { gt: ${limit} } }, reason: "over ${limit}" }`);
    const limits = [500, 5] as const;
    let inForce = { limit: limits[0] as number, set: limited(limits[0]) };
    let reloads = 0;
    let wrong = 0;
    let kept = 0;
    const amounts = [5, 6, 500, 501];
    // As each call alone is judged, by a set that nobody else uses; copies, which nobody can change.
    const alone = new Map(
      limits.map((limit) => [
        limit as number,
        amounts.map((amount) => structuredClone(evaluatePolicies(limited(limit), call({ params: { amount } })))),
      ]),
    );
    const caller = async (id: number): Promise<void> => {
      for (let turn = 0; turn < 200; turn += 1) {
        const { limit, set } = inForce;
        const which = (turn + id) % amounts.length;
        const verdict = evaluatePolicies(set, call({ params: { amount: amounts[which] ?? 0 } }));
        for (let wait = 0; wait < id % 5; wait += 1) await Promise.resolve();
        if (turn % 50 === id % 50) {
          await new Promise((resolve) => setImmediate(resolve));
          const next = inForce.limit === limits[0] ? limits[1] : limits[0];
          inForce = { limit: next, set: limited(next) };
          reloads += 1;
        }
        kept += 1;
        if (!isDeepStrictEqual(verdict, alone.get(limit)?.[which])) wrong += 1;
      }
    };
    await Promise.all(Array.from({ length: 64 }, (_, id) => caller(id)));
    expect({ kept, wrong }).toEqual({ kept: 12_800, wrong: 0 });
    expect(reloads).toBeGreaterThan(100);
  });

  test('the engine itself does lose them: why its run() is never shared', async () => {
    const engine = new Engine();
    for (const priority of [3, 2, 1])
      engine.addRule({
        priority,
        conditions: { all: [{ fact: 'amount', operator: 'greaterThan', value: 500 }] },
        event: { type: `deny-${priority}` },
      });
    let lost = 0;
    const caller = async (id: number): Promise<void> => {
      for (let turn = 0; turn < 20; turn += 1) {
        for (let wait = 0; wait < id % 7; wait += 1) await Promise.resolve();
        const { events } = await engine.run({ amount: 501 });
        if (events.length < 3) lost += 1;
      }
    };
    await Promise.all(Array.from({ length: 64 }, (_, id) => caller(id)));
    expect(lost).toBeGreaterThan(0);
  });
});

describe('2: failing open on missing and mistyped values', () => {
  const values: readonly (Json | undefined)[] = [
    undefined,
    null,
    '900 EUR',
    '0x384',
    [900],
    [900, 1],
    { value: 900 },
    '',
    true,
  ];
  test.each(values.map((value) => [JSON.stringify(value) ?? 'absent', value]))(
    'deny when amount > 500 denies, and allow when amount <= 500 does not allow, amount: %s',
    (_name, value) => {
      const params: JsonObject = value === undefined ? {} : { amount: value };
      expect(denied('{ params.amount: { gt: 500 } }', params)).toBe(true);
      expect(denied('{ not: { params.amount: { lte: 500 } } }', params)).toBe(true);
      expect(denied('{ fact: params, path: amount, operator: greaterThan, value: 500 }', params)).toBe(true);
      expect(allowed('{ params.amount: { lte: 500 } }', params)).toBe(false);
      expect(allowed('{ not: { params.amount: { gt: 500 } } }', params)).toBe(false);
    },
  );

  test('not:contains on an absent value allows nothing', () => {
    expect(allowed('{ fact: params, path: tags, operator: "not:contains", value: secret }', {})).toBe(false);
    expect(allowed('{ fact: params, path: tags, operator: doesNotContain, value: secret }', {})).toBe(false);
    expect(allowed('{ fact: params, path: tags, operator: doesNotContain, value: secret }', { tags: ['open'] })).toBe(
      true,
    );
  });

  test('numbers are finite', () => {
    expect(denied('{ params.amount: { gt: 500 } }', { amount: Number.NaN })).toBe(true);
    expect(allowed('{ params.amount: { lte: 500 } }', { amount: Number.NEGATIVE_INFINITY })).toBe(false);
    expect(allowed('{ params.amount: { ne: 500 } }', { amount: Number.NaN })).toBe(false);
  });

  test('what was unknown stands in the trace and in the message', () => {
    const verdict = judgeParams(rules(ALLOW, '{ id: no, effect: deny, when: { params.amount: { gt: 500 } } }'), {
      amount: '1',
    });
    expect(verdict.trace.matched[0]).toEqual({ rule: 's/no', effect: 'deny', unknown: ['params.amount'] });
    expect(verdict).toMatchObject({ reason: { code: 'rule_denied', rule: 's/no', policy: 's' } });
    expect(verdict.kind === 'deny' && verdict.reason.message).toContain('params.amount');
  });

  test('a match on an absent attribute of the agent is unknown', () => {
    const set = rules(ALLOW, '{ id: no, effect: deny, match: { agents: { tenant: [globex] } } }');
    expect(outcome(judge(set))).toBe('permit');
    expect(outcome(judge(set, { agent: { ...BOT, attributes: {} } }))).toBe('denied_policy');
    const granting = rules('{ id: yes, effect: allow, match: { agents: { team: [support] } } }');
    expect(outcome(judge(granting, { agent: { ...BOT, team: null } }))).toBe('denied_policy');
  });
});

describe('3: cost that grows with the number of rules', () => {
  const many = compileText(
    `${HEAD}rules:\n  - ${ALLOW}\n${Array.from({ length: 2_000 }, (_, n) => `  - { id: r${n}, effect: deny, match: { tools: [payments.refund] }, when: { params.customer: c${n} } }\n`).join('')}`,
  );

  test('a rule is found by the value it asks for', () => {
    const verdict = judgeParams(many, { customer: 'c1234' });
    expect(verdict.trace.matched.map(({ rule }) => rule)).toEqual(['s/r1234', 's/allow']);
    expect(outcome(judgeParams(many, { customer: 'nobody' }))).toBe('permit');
    expect(many.byTool.get(REFUND.name)?.always.length).toBe(1);
    expect(outcome(judge(many, { tool: MAIL }))).toBe('permit');
  });

  test('rules that only several facts together tell apart are found by them', () => {
    const lines = Array.from(
      { length: 1_000 },
      (_, n) =>
        `  - { id: r${n}, effect: deny, match: { agents: { team: [t${n % 10}] }, env: [e${Math.floor(n / 10) % 10}] }, when: { params.customer: c${Math.floor(n / 100)} } }\n`,
    );
    const set = compileText(`${HEAD}rules:\n  - ${ALLOW}\n${lines.join('')}`);
    const overrides = { agent: { ...BOT, team: 't3' }, env: 'e2', params: { customer: 'c5' } };
    expect(judge(set, overrides).trace.matched.map(({ rule }) => rule)).toEqual(['s/r523', 's/allow']);
    const [first] = set.byTool.get(REFUND.name)?.keys ?? [];
    const [second] = first?.byValue.values().next().value?.keys ?? [];
    const [third] = second?.byValue.values().next().value?.keys ?? [];
    expect([...(third?.byValue.values() ?? [])].map(({ always }) => always.length)).toEqual(
      Array.from({ length: 10 }, () => 1),
    );
  });

  test.each([[undefined], [null], [7], [['c1']], [true], [{ c1: 1 }]])(
    'an index key that is %j still reaches every restrictive rule',
    (value) => {
      const verdict = judgeParams(many, value === undefined ? {} : { customer: value });
      expect(outcome(verdict)).toBe('denied_policy');
      expect(verdict.trace.matched[0]).toEqual({ rule: 's/r0', effect: 'deny', unknown: ['params.customer'] });
    },
  );

  test('a rule that asks for one value twice is found once', () => {
    const twice = Array.from(
      { length: 12 },
      (_, n) =>
        `{ id: r${n}, effect: constrain, match: { agents: { id: [bot-${n}] } }, when: { agent.id: { in: [bot-${n}, bot] } }, obligations: [ { rate_limit: { limit: 5, per: minute } } ] }`,
    );
    const verdict = judge(rules(ALLOW, ...twice), { agent: { ...BOT, id: 'bot-7' } });
    expect(verdict.trace.matched.map(({ rule }) => rule)).toEqual(['s/r7', 's/allow']);
    expect(verdict.kind === 'permit' && verdict.obligations.length).toBe(1);
  });

  test('an index over numbers does not take "5" for 5', () => {
    const lines = Array.from({ length: 20 }, (_, n) => `{ id: r${n}, effect: deny, when: { params.code: ${n} } }`);
    const set = rules(ALLOW, ...lines);
    expect(judgeParams(set, { code: 5 }).trace.matched[0]?.rule).toBe('s/r5');
    expect(outcome(judgeParams(set, { code: 99 }))).toBe('permit');
    expect(judgeParams(set, { code: '5' }).trace.matched[0]).toEqual({
      rule: 's/r0',
      effect: 'deny',
      unknown: ['params.code'],
    });
  });
});

describe('4: surprises of the engine and its format', () => {
  test('JSONPath filters and scripts are no paths', () => {
    for (const path of ['$..amount', '$.lines[?(@.qty > 1)]', '$.*', '$.lines[(@.length-1)]', '$.a.~'])
      expect(fault(`{ fact: params, path: "${path}", operator: equal, value: 1 }`)).toMatch(/bad_path|not a path/);
    expect(denied('{ fact: params, path: "$.a[0].b", operator: equal, value: 1 }', { a: [{ b: 1 }] })).toBe(true);
    expect(denied('{ fact: params, path: "$.a[0].b", operator: equal, value: 1 }', { a: [{ b: 2 }] })).toBe(false);
  });

  test('the caller cannot set the threshold', () => {
    expect(fault('{ params.amount: { gt: { fact: params.limit } } }')).toContain('caller_sets_threshold');
    expect(fault('{ params.amount: { gt: { fact: params.limit, untrusted: true } } }')).toContain(
      'caller_sets_threshold',
    );
    expect(
      fault('{ fact: params, path: amount, operator: greaterThan, value: { fact: params, path: limit } }'),
    ).toContain('caller_sets_threshold');
    expect(denied('{ params.to: { ne: { fact: params.from, untrusted: true } } }', { to: 'a', from: 'b' })).toBe(true);
    expect(denied('{ params.to: { ne: { fact: params.from, untrusted: true } } }', { to: 'a', from: 'a' })).toBe(false);
    expect(denied('{ params.tenant: { ne: { fact: agent.attributes.tenant } } }', { tenant: 'globex' })).toBe(true);
    expect(denied('{ params.tenant: { ne: { fact: agent.attributes.tenant } } }', { tenant: 'acme' })).toBe(false);
  });

  test('equality of objects is not equality of references', () => {
    expect(allowed('{ params.a: { equals: { x: 1, y: [2] } } }', { a: { y: [2], x: 1 } })).toBe(true);
    expect(allowed('{ params.a: { equals: { x: 1, y: [2] } } }', { a: { y: [3], x: 1 } })).toBe(false);
    expect(fault('{ params.a: { eq: { x: 1 } } }')).toContain('bad_right_side');
  });

  test('in is no substring test', () => {
    expect(fault('{ params.currency: { in: "EURUSD" } }')).toContain('bad_right_side');
    for (const other of ['EU', 'eur', ' EUR', 'EUR ', 'EUR\n', 'EUR,USD'])
      expect(allowed('{ params.currency: { in: [EUR, USD] } }', { currency: other })).toBe(false);
  });

  test('any beside all drops nothing', () => {
    const condition = '{ all: [ { params.a: 1 } ], any: [ { params.b: 1 } ] }';
    expect(denied(condition, { a: 1, b: 1 })).toBe(true);
    expect(denied(condition, { a: 2, b: 1 })).toBe(false);
    expect(denied(condition, { a: 1, b: 2 })).toBe(false);
  });

  test('empty groups and bare lists are errors', () => {
    for (const condition of [
      '{}',
      '{ all: [] }',
      '{ any: [] }',
      '{ params.a: {} }',
      '{ not: {} }',
      '{ params.a: { if_absent: true } }',
    ])
      expect(fault(condition)).toContain('empty_group');
    expect(fault('[ { params.a: 1 } ]')).toContain('bare_list');
    expect(fault('{ params.a: [1, 2] }')).toContain('bare_list');
    expect(fault('{ params.a: { every: {} } }')).toContain('empty_group');
  });

  test('misspelt paths and operators are found at load', () => {
    expect(fault('{ parms.amount: { gt: 5 } }')).toContain("unknown_fact Unknown fact 'parms.amount'");
    expect(fault('{ agent.taem: support }')).toContain('unknown_fact');
    expect(fault('{ params.amount: { greater: 5 } }')).toContain("unknown_operator Unknown operator 'greater'");
    expect(fault('{ fact: params, path: amount, operator: greaterThen, value: 5 }')).toContain('unknown_operator');
    expect(fault('{ fact: params, path: amount, operator: "swap:greaterThan", value: 5 }')).toContain('bad_operator');
    expect(fault('{ fact: params, path: amount, operator: "someValue:equal", value: [5] }')).toContain('bad_operator');
    expect(fault('{ fact: params, path: amount, operator: equal, value: 5, priority: 3 }')).toContain('unknown_field');
  });

  test('order of report is effect, priority, set, position; priority decides nothing', () => {
    const set = rules(
      '{ id: allow, effect: allow, priority: 100 }',
      '{ id: second, effect: deny }',
      '{ id: zero, effect: deny, priority: 0 }',
      '{ id: first, effect: deny, priority: 1 }',
      '{ id: last, effect: deny, priority: -1 }',
      '{ id: stop, effect: pause, priority: -5 }',
    );
    const verdict = judge(set);
    expect(verdict.trace.matched.map(({ rule }) => rule)).toEqual([
      's/stop',
      's/first',
      's/second',
      's/zero',
      's/last',
      's/allow',
    ]);
    expect(outcome(verdict)).toBe('denied_paused');
  });

  test('of very many rules that match, the first 64 stand in the trace', () => {
    const many = Array.from({ length: 100 }, (_, at) => `{ id: r${at}, effect: allow, priority: ${-at} }`);
    const { trace } = judge(rules(...many));
    const first = Array.from({ length: 64 }, (_, at) => `s/r${at}`);
    expect(trace.matched.map(({ rule }) => rule)).toEqual(first);
    const inShadow = many.map((rule) => rule.replace('allow', 'deny, mode: shadow'));
    expect(judge(rules(...inShadow)).trace.shadow).toEqual(first);
  });

  test('own keys only', () => {
    for (const path of ['params.toString', 'params.hasOwnProperty', 'params.list.length', 'params.text.length'])
      expect(denied(`{ ${path}: { exists: true } }`, { list: [1], text: 'abc' })).toBe(false);
    for (const path of ['params.__proto__', 'params.a.constructor', 'params.prototype', '"params[\\"__proto__\\"]"'])
      expect(fault(`{ ${path}: { exists: true } }`)).toContain('bad_path');
    expect(denied('{ params.a.b: 1 }', { 'a.b': 1, a: { b: 2 } })).toBe(false);
    expect(denied('{ "params[\\"a.b\\"]": 1 }', { 'a.b': 1 })).toBe(true);
  });

  test('regular expressions take linear time', () => {
    const begin = performance.now();
    expect(allowed('{ params.a: { regex: "(a+)+b" } }', { a: `${'a'.repeat(50_000)}c` })).toBe(false);
    expect(allowed('{ params.a: { glob: "*a*a*a*a*a*a*b" } }', { a: 'a'.repeat(20_000) })).toBe(false);
    // A backtracking matcher would need longer than the universe has.
    expect(performance.now() - begin).toBeLessThan(10_000);
    expect(fault('{ params.a: { regex: "(?=a)b" } }')).toContain('bad_right_side');
    expect(fault(`{ params.a: { regex: "${'a'.repeat(257)}" } }`)).toContain('bad_right_side');
    expect(fault('{ params.a: { regex: ".{1000}.{1000}.{9}" } }')).toContain('is too large when compiled');
  });

  test('a text of more than 65,536 characters is not looked at: a pattern on it is unknown', () => {
    const most = { a: 'a'.repeat(65_536) };
    const more = { a: 'a'.repeat(65_537) };
    expect([allowed('{ params.a: { glob: "a*" } }', most), denied('{ params.a: { glob: "b*" } }', most)]).toEqual([
      true,
      false,
    ]);
    expect([allowed('{ params.a: { glob: "a*" } }', more), denied('{ params.a: { glob: "b*" } }', more)]).toEqual([
      false,
      true,
    ]);
  });

  test('patterns match the whole text', () => {
    expect(allowed('{ params.a: { regex: "a|b" } }', { a: 'ab' })).toBe(false);
    expect(allowed('{ params.a: { regex: "a|b" } }', { a: 'b' })).toBe(true);
    expect(allowed('{ params.a: { regex: "a" } }', { a: 'a\n' })).toBe(false);
    expect(allowed('{ params.a: { regex_find: "a" } }', { a: 'xay' })).toBe(true);
  });

  test('scalars are not wrapped into lists', () => {
    expect(allowed('{ params.tags: { some: { item: ok } } }', { tags: 'ok' })).toBe(false);
    expect(allowed('{ params.tags: { every: { item: ok } } }', { tags: [] })).toBe(true);
    expect(denied('{ params.tags: { some: { item: bad } } }', { tags: 'bad' })).toBe(true);
    // A list that was left out is none that is known: it refuses, and grants nothing.
    expect(denied('{ params.tags: { some: { item: bad } } }', {})).toBe(true);
    expect(denied('{ params.tags: { every: { item: bad } } }', {})).toBe(true);
    expect(allowed('{ params.tags: { every: { item: ok } } }', {})).toBe(false);
    expect(allowed('{ not: { params.tags: { some: { item: bad } } } }', {})).toBe(false);
    expect(
      denied('{ params.tags: { some: { item: bad } } }', { tags: Array.from({ length: 10_001 }, () => 'ok') }),
    ).toBe(true);
    expect(denied('{ params.tags: { contains: bad } }', { tags: [['bad']] })).toBe(true);
    const long = { tags: Array.from({ length: 10_001 }, () => 'ok') };
    expect(denied('{ params.tags: { contains: bad } }', long)).toBe(true);
    expect(denied('{ params.tags: { contains_all: [bad] } }', long)).toBe(true);
    expect(allowed('{ not: { params.tags: { contains: bad } } }', long)).toBe(false);
    expect(allowed('{ params.tags: { every: { item: ok } } }', long)).toBe(false);
    expect(denied('{ params.tags: { contains: bad } }', { tags: ['ok'] })).toBe(false);
  });
});

describe('contains and contains_all on a list with an element of another type', () => {
  const TAGS = [1, 'vip', null, 'eu'];

  test('are known where the answer does not need that element', () => {
    expect(allowed('{ params.tags: { contains: eu } }', { tags: TAGS })).toBe(true);
    expect(allowed('{ params.tags: { contains_all: [eu, vip] } }', { tags: TAGS })).toBe(true);
    expect(denied('{ not: { params.tags: { contains: eu } } }', { tags: TAGS })).toBe(false);
  });

  test('are else unknown: nothing is allowed, and what is denied stays denied', () => {
    for (const condition of ['{ contains: us }', '{ contains_all: [eu, us] }']) {
      expect(allowed(`{ params.tags: ${condition} }`, { tags: TAGS }), condition).toBe(false);
      expect(allowed(`{ not: { params.tags: ${condition} } }`, { tags: TAGS }), condition).toBe(false);
      expect(denied(`{ params.tags: ${condition} }`, { tags: TAGS }), condition).toBe(true);
    }
  });
});

describe('hostile params', () => {
  test('nothing makes an evaluation throw', () => {
    let deep: Json = 'end';
    for (let level = 0; level < 20_000; level += 1) deep = level % 2 === 0 ? [deep] : { a: deep };
    const nasty: readonly Json[] = [
      deep,
      'x'.repeat(200_000),
      '\ud800',
      JSON.parse('{"__proto__": {"amount": 1}}'),
      Object.create(null) as JsonObject,
      Array.from({ length: 50_000 }, () => null),
      Number.NaN,
      -0,
    ];
    const set = compileText(`${HEAD}
budgets: { b: { unit: cent, by: [params.a], per: day, limit: 5 } }
rules:
  - { id: allow, effect: allow, obligations: [ { budget: { use: b, amount: params.a } }, { claim: { on: "x:\${params.a}" } }, { reserve: { pool: "desk-\${params.a}" } } ] }
  - { id: ask, effect: require_approval, when: { params.a: { equals: { a: [ { a: 1 } ] } } }, approval: { approvers: { roles: [oncall] }, summary: "\${params.a}" } }
  - { id: no, effect: deny, unless: { params.a: { regex: "x*", starts_with: x, glob: "**", contains: 5, every: { item.b: { some: { item: 1 } } } } }, when: { params.b: { exists: true } }, reason: "\${params.a}" }
`);
    for (const value of nasty)
      for (const name of ['a', 'b', '__proto__']) {
        const params = Object.fromEntries([
          [name, value],
          ['a', value],
        ]);
        expect(['permit', 'deny']).toContain(judgeParams(set, params).kind);
      }
  });
});

describe('patterns over very much text', () => {
  const lines = (count: number): JsonObject => ({ list: Array.from({ length: count }, () => 'a'.repeat(1_000)) });

  test('have so many steps on one call, and what is beyond them is unknown: an allow does not hold, a deny does', () => {
    const condition = '{ params.list: { some: { item: { regex: "[a-z]*secret[0-9]" } } } }';
    expect(denied(condition, lines(10))).toBe(false);
    expect(denied(condition, lines(900))).toBe(true);
    expect(allowed('{ params.list: { every: { item: { regex: "[a-z]*" } } } }', lines(10))).toBe(true);
    expect(allowed('{ params.list: { every: { item: { regex: "[a-z]*" } } } }', lines(900))).toBe(false);
  });

  test('each call has all of them again', () => {
    const condition = '{ params.list: { some: { item: { regex: "[a-z]*secret[0-9]" } } } }';
    for (let times = 0; times < 20; times += 1) expect(denied(condition, lines(40))).toBe(false);
  });
});
