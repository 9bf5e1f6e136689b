import { describe, expect, test } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import type { Tool } from '../../src/effects/model/tool.ts';
import { inSlices } from '../../src/gateway/slices.ts';
import { evaluatePolicies } from '../../src/policy/evaluate.ts';
import { packPolicies, type PackedPolicies, unpackPolicies } from '../../src/policy/packed.ts';
import type { CompiledPolicies } from '../../src/policy/policies.ts';
import { BOT, call, compileAll, GET, HEAD, MAIL, REFUND, tool, TOOLS } from './fixtures.ts';
import { seeded } from './random.ts';
import { hostileParams } from './random-conditions.ts';

const POOLS = new Map([
  ['refund-desk', 4],
  ['desk-eu', 2],
]);

/** There and back, as a message between threads would have it. */
function sent(texts: readonly string[], tools: readonly Tool[] = TOOLS): [CompiledPolicies, CompiledPolicies, number] {
  const { set, plan } = compileAll(texts, tools);
  const packed = structuredClone(packPolicies(plan, set, tools));
  const work = unpackPolicies(packed, tools, POOLS);
  for (let steps = 1; ; steps += 1) {
    const step = work.next();
    if (step.done === true) return [set, step.value, steps];
  }
}

/**
 * Work is left off after the step that ends its millisecond: no step may take more than the four that are left of five.
 * A step does the same each time; what it takes beyond its shortest time is the machine's, or the collection of garbage.
 */
function expectShortSteps(packed: PackedPolicies, tools: readonly Tool[]): void {
  const shortest: number[] = [];
  for (let run = 0; run < 3; run += 1) {
    const work = unpackPolicies(packed, tools, POOLS);
    for (let at = 0; ; at += 1) {
      const begin = performance.now();
      const step = work.next();
      shortest[at] = Math.min(shortest[at] ?? Number.POSITIVE_INFINITY, performance.now() - begin);
      if (step.done === true) break;
    }
  }
  expect(Math.max(...shortest)).toBeLessThan(4);
}

const EVERYTHING = `${HEAD}timezone: Europe/Berlin
lists: { currencies: [EUR, USD], long: [${Array.from({ length: 3_000 }, (_, at) => `c${at}`).join(', ')}, EUR] }
values: { auto: { by: env, of: { prod: 500 }, else: 900 }, kinds: { by: tool.kind, of: { read: [EUR, CHF] }, else: [USD] } }
conditions: { small: { params.amount: { lte: $auto } } }
budgets:
  day: { unit: c, by: [agent.id], per: day, limit: $auto, warn_at: 70 }
  week: { unit: c, rolling: 7d, limit: 5, by: [params.currency] }
rules:
  - { id: a, effect: allow, match: { kinds: [write] }, when: { condition: small }, obligations: [ { budget: { use: day, amount: params.amount } }, { rate_limit: { by: [agent.id], limit: 5, per: 10s } } ] }
  - { id: b, effect: allow, match: { kinds: [read], except: [ { tags: [money] } ] }, priority: 7, obligations: [ { budget: { use: week, amount: $auto } } ] }
  - { id: c, effect: deny, match: { tools: ["payments.*"], targets: ["payment:p_*"] }, when: { params.currency: { nin: $currencies } }, reason: "No \${params.currency} of \${agent.id}" }
  - { id: d, effect: deny, when: { params.currency: { in: $long }, params.amount: { gt: 900 } } }
  - { id: e, effect: require_approval, when: { params.lines: { every: { item.qty: { gte: 1 }, item.sku: { glob: "A-*" } } } }, approval: { approvers: { roles: [oncall] }, quorum: 1, expires: 1h, summary: "\${params.amount} for \${target}", hold: all } }
  - { id: f, effect: constrain, unless: { params.tags: { some: { item: { in: $long } } } }, obligations: [ { claim: { on: "x:\${params.currency}", hold: existing } }, { reserve: { pool: refund-desk, units: 2 } }, { redact: { params: [name] } } ] }
  - { id: g, effect: pause, mode: shadow, from: 2026-01-01, until: 2026-09-01, reason: later }
  - { id: h, effect: deny, when: { params.currency: { in: $kinds } }, on_unknown: skip }
  - { id: i, effect: deny, when: { agent.roles: { contains: admin }, request.ip: { exists: false } } }
  - { id: j, effect: deny, match: { agents: { trust: [2] } }, when: { "params[\\"a.b\\"]": { email_in: ["*@example.com"], if_absent: false } } }
  - id: l
    effect: deny
    when:
      any:
        - all: [ { params.currency: { in: $long } }, { params.amount: { gt: $auto } }, { any: [ { agent.id: { in: [${Array.from({ length: 20 }, (_, at) => `bot-${at}`).join(', ')}] } }, { params.path: { exists: false } } ] } ]
        - params.lines: { some: { any: [ { item.qty: { gt: 5 } }, { not: { item.sku: { glob: "A-*" } } } ] } }
${Array.from({ length: 200 }, (_, at) => `        - params.name: { glob: "n${at}-*", if_absent: false }`).join('\n')}
${Array.from({ length: 40 }, (_, at) => `  - { id: k${at}, effect: ${at % 2 === 0 ? 'deny' : 'constrain'}, match: { agents: { id: [bot-${at}] } }, when: { params.amount: { in: [${at}, ${at + 1}] } }${at % 2 === 0 ? '' : ', obligations: [ { claim: { on: t } } ]'} }`).join('\n')}
`;

describe('policies that were packed', () => {
  test('decide as those that they were made of, with the same words, obligations and traces', () => {
    const [before, after] = sent([EVERYTHING, EVERYTHING.replace('name: s', 'name: t')]);
    const random = seeded(11);
    const seen = new Set<string>();
    for (let run = 0; run < 5_000; run += 1) {
      const agent = { ...BOT, id: `bot-${random.below(42)}`, roles: random.pick([[], ['admin']]) };
      const input = call({
        agent,
        tool: random.pick([REFUND, GET, MAIL]),
        env: random.pick(['prod', 'test']),
        target: random.pick(['payment:p_1', 'x']),
        requestIp: random.pick([null, '10.0.0.1']),
        params: hostileParams(random),
      });
      const verdict = evaluatePolicies(before, input);
      expect(evaluatePolicies(after, input)).toEqual(verdict);
      for (const { rule } of verdict.trace.matched) seen.add(rule.replace(/^.*\/([a-z]).*/, '$1'));
    }
    expect([...seen].toSorted().join('')).toBe('abcdefhijkl');
    expect(after.version).toBe(before.version);
    expect(after.budgets).toEqual(before.budgets);
    // All of them but what they compute with.
    const data = ({ rules }: CompiledPolicies): unknown => JSON.parse(JSON.stringify(rules));
    expect(data(after)).toEqual(data(before));
    for (const { name } of TOOLS) {
      expect(after.couldPermit(name)).toBe(before.couldPermit(name));
      expect([...after.redacted(name)]).toEqual(['name']);
      expect(after.byTool.get(name)?.hasShadow).toBe(before.byTool.get(name)?.hasShadow);
    }
  });

  test('keep each of several long lists apart, and know a value of another type for one that cannot be judged', () => {
    const list = (letter: string): string => Array.from({ length: 20 }, (_, at) => `${letter}${at}`).join(', ');
    const [before, after] = sent([
      `${HEAD}lists: { a: [${list('a')}], b: [${list('b')}] }
rules:
  - { id: allow, effect: allow }
  - { id: a, effect: deny, when: { params.a: { in: $a, if_absent: false } } }
  - { id: b, effect: deny, when: { params.b: { in: $b, if_absent: false } } }
${Array.from({ length: 12 }, (_, at) => `  - { id: f${at}, effect: deny, when: { params.flag: ${at % 2 === 0}, params.x: { gt: ${at * 10} } } }`).join('\n')}
`,
    ]);
    expect(before.byTool.get(REFUND.name)?.keys.map(({ fact }) => fact.text)).toContain('params.flag');
    const judged = (params: JsonObject): readonly string[] =>
      [before, after].map((set) => evaluatePolicies(set, call({ params })).kind);
    // The first rule asks for true and more than 0, the second for false and more than 10.
    for (const flag of [true, false, [true], null, 'true', 1]) {
      const expected = flag === false ? 'permit' : 'deny';
      expect([flag, ...judged({ flag, x: 5 })]).toEqual([flag, expected, expected]);
    }
    const off = { flag: true, x: 0 };
    expect(judged({ ...off, a: 'a7' })).toEqual(['deny', 'deny']);
    expect(judged({ ...off, b: 'b7' })).toEqual(['deny', 'deny']);
    expect(judged({ ...off, a: 'b7', b: 'a7' })).toEqual(['permit', 'permit']);
  });

  test('of no rules at all deny', () => {
    const [, none] = sent([]);
    expect(evaluatePolicies(none, call({})).kind).toBe('deny');
  });

  test('that lost their end are not used', () => {
    const { set, plan } = compileAll([EVERYTHING]);
    const packed = packPolicies(plan, set, TOOLS);
    const take = (index: Int32Array): unknown => [...unpackPolicies({ ...packed, index }, TOOLS, POOLS)];
    expect(() => take(packed.index.slice(0, -1))).toThrow('ends too early');
    expect(() => take(Int32Array.of(...packed.index, 0))).toThrow('has a rest');
  });
});

describe('a rule with thousands of conditions is taken up a little at a time', () => {
  const LEAVES = 4_000;
  const leaf = (at: number): string =>
    at % 3 === 0
      ? `{ params.p${at}: { glob: "a.${at}.*" } }`
      : at % 3 === 1
        ? `{ params.p${at}: { gt: ${at} } }`
        : `{ params.p${at}: { email_in: "*@e${at}.example" } }`;
  const rule = (id: string): string =>
    `  - { id: ${id}, effect: deny, when: { any: [ ${Array.from({ length: LEAVES }, (_, at) => leaf(at)).join(', ')} ] }, on_unknown: skip }`;
  const { set, plan } = compileAll([`${HEAD}rules:\n  - { id: all, effect: allow }\n${rule('x')}\n${rule('y')}\n`]);
  const packed = packPolicies(plan, set, TOOLS);

  test('one at each step, out of small pieces, and the rule is the same', () => {
    const work = unpackPolicies(packed, TOOLS, POOLS);
    for (let steps = 1; ; steps += 1) {
      const step = work.next();
      if (step.done !== true) continue;
      expect(steps).toBeGreaterThan(2 * LEAVES);
      expect(step.value.rules.map(({ conditions }) => conditions)).toEqual(
        set.rules.map(({ conditions }) => conditions),
      );
      for (const params of [
        {},
        { p3: 'a.3.x' },
        { p4: 5 },
        { p5: 'me@e5.example' },
        { p3: 'b' },
        { p3999: 'a.3999.x' },
      ])
        expect(evaluatePolicies(step.value, call({ params }))).toEqual(evaluatePolicies(set, call({ params })));
      break;
    }
    const { rules, conditions, symbols } = packed;
    for (const piece of [...rules, ...conditions, ...symbols.facts]) expect(piece.length).toBeLessThan(64 * 1024);
  });

  test('a condition that is not whole is not used', () => {
    const cut = { ...packed, conditions: packed.conditions.slice(0, -1) };
    expect(() => [...unpackPolicies(cut, TOOLS, POOLS)]).toThrow('ends too early');
    const other = { ...packed, conditions: packed.conditions.toReversed() };
    expect(() => [...unpackPolicies(other, TOOLS, POOLS)]).toThrow(/not whole|empty|too few/);
  });

  test('the thread that answers calls is held for less than 5 ms of its own time', () => {
    expectShortSteps(packed, TOOLS);
  });
});

describe('one condition with thousands of patterns is taken up a little at a time', () => {
  const PATTERNS = 3_000;
  const list = (pattern: (at: number) => string): string =>
    Array.from({ length: PATTERNS }, (_, at) => `"${pattern(at)}"`).join(', ');
  const globs = list((at) => `a.${at}.*`);
  const { set, plan } = compileAll([
    `${HEAD}values:
  named: { by: env, of: { prod: [${list((at) => `n.${at}.*`)}] }, else: ["x*"] }
  many: { by: agent.id, of: { ${Array.from({ length: PATTERNS }, (_, at) => `bot-${at}: "m${at}*"`).join(', ')} }, else: "x*" }
rules:
  - { id: all, effect: allow }
  - { id: globs, effect: deny, when: { params.glob: { glob: [${globs}] } }, on_unknown: skip }
  - { id: mails, effect: deny, when: { params.mail: { email_in: [${list((at) => `*@e${at}.example`)}] } }, on_unknown: skip }
  - { id: named, effect: deny, when: { params.named: { glob: $named } }, on_unknown: skip }
  - { id: many, effect: deny, when: { params.many: { glob: $many } }, on_unknown: skip }
  - { id: targets, effect: deny, match: { targets: [${list((at) => `t:${at}:*`)}] } }
`,
  ]);
  const packed = packPolicies(plan, set, TOOLS);

  test('one pattern at each step, and the rule is the same', () => {
    const work = unpackPolicies(packed, TOOLS, POOLS);
    let steps = 0;
    for (let step = work.next(); ; step = work.next()) {
      steps += 1;
      if (step.done !== true) continue;
      expect(steps).toBeGreaterThan(5 * PATTERNS);
      for (const [params, kind] of [
        [{}, 'permit'],
        [{ glob: 'a.2999.x', mail: 5 }, 'deny'],
        [{ glob: 'a.3000.x' }, 'permit'],
        [{ mail: 'me@e2999.example' }, 'deny'],
        [{ mail: 'me@e3000.example' }, 'permit'],
        [{ named: 'n.2999.x' }, 'deny'],
        [{ named: 'n.3000.x' }, 'permit'],
        [{ many: 'm2999' }, 'deny'],
        [{ many: 'm2998' }, 'permit'],
      ] as const) {
        const input = call({ params, agent: { ...BOT, id: 'bot-2999' }, env: 'prod', target: 'x' });
        expect([params, evaluatePolicies(step.value, input).kind]).toEqual([params, kind]);
        expect(evaluatePolicies(step.value, input)).toEqual(evaluatePolicies(set, input));
      }
      expect(evaluatePolicies(step.value, call({ target: 't:2999:x' })).kind).toBe('deny');
      break;
    }
    for (const piece of packed.symbols.tables) expect(piece.length).toBeLessThan(64 * 1024);
  });

  test('the thread that answers calls is held for less than 5 ms of its own time', () => {
    expectShortSteps(packed, TOOLS);
  });
});

describe('10,000 rules are taken up a little at a time', () => {
  const tools = Array.from({ length: 20 }, (_, at) => tool(`up.t${at}`));
  const RULES = Array.from({ length: 10_000 }, (_, at) => {
    const who = `match: { tools: [${at % 3 === 0 ? '"up.*"' : `up.t${at % 20}`}], agents: { id: [bot-${at}] } }`;
    return at % 2 === 0
      ? `  - { id: r${at}, effect: allow, ${who}, when: { params.amount: { gte: 1, lte: ${at} } } }`
      : `  - { id: r${at}, effect: deny, ${who}, when: { params.path: { glob: "a.${at}.**" } }, reason: "no \${params.path}" }`;
  }).join('\n');
  const { set, plan } = compileAll([`${HEAD}rules:\n${RULES}\n`], tools);
  const packed = packPolicies(plan, set, tools);

  test('no step takes up more than a few rules, and others have their turn after each that took its time', async () => {
    let now = 0;
    let steps = 0;
    let breaths = 0;
    const counted = function* () {
      const work = unpackPolicies(packed, tools, POOLS);
      for (;;) {
        const step = work.next();
        if (step.done === true) return step.value;
        steps += 1;
        now += 1;
        yield;
      }
    };
    const after = await inSlices(
      counted(),
      () => now,
      async () => {
        breaths += 1;
      },
    );
    expect(after.rules.length).toBe(10_000);
    // Each rule is a step of its own, and 1,000 numbers of the index are.
    expect(steps).toBeGreaterThan(10_000 + packed.index.length / 1_100);
    expect(breaths).toBe(steps);
    for (const piece of packed.rules) expect(piece.length).toBeLessThan(64 * 1024);
    expect(
      evaluatePolicies(after, call({ tool: tools[2] ?? GET, agent: { ...BOT, id: 'bot-2' }, params: { amount: 2 } }))
        .kind,
    ).toBe('permit');
  });

  test('the thread that answers calls is held for less than 5 ms of its own time', () => {
    expectShortSteps(packed, tools);
  });
});
