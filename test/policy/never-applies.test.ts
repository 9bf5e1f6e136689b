import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { surroundingsOfPolicies } from '../../src/config/for-policies.ts';
import { loadConfiguration } from '../../src/config/load.ts';
import { deadPattern } from '../../src/policy/glob.ts';
import { compilePolicies } from '../../src/policy/load.ts';
import { HEAD, tool } from './fixtures.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const NOW = Date.UTC(2026, 5, 15);
const REFUND = tool('pay.refund', {
  target: 'payment:{id}',
  paramsSchema: {
    type: 'object',
    properties: {
      currency: { enum: ['EUR', 'USD'] },
      amount: { type: 'integer' },
      note: { type: 'string' },
      card: { type: 'object', properties: { kind: { const: 'debit' } } },
      free: {},
    },
  },
});
const GET = tool('pay.get', { kind: 'read', target: 'payment:{id}' });
const DECLARED = new Map([
  ['env', ['prod', 'staging']],
  ['workspace', ['demo']],
  ['agent.id', ['support-bot', 'billing-bot']],
  ['agent.team', ['support', 'billing']],
  ['agent.roles', ['refunder']],
  ['key.user', ['maria']],
]);

/** Warnings about one rule, as `line:column code message (hint)`. */
function warnings(rule: string, declared: ReadonlyMap<string, readonly string[]> = DECLARED, head = ''): string[] {
  const files = [{ file: 'p.yaml', text: `${HEAD}${head}rules:\n  - ${rule}\n`, lists: new Map() }];
  const found = compilePolicies(files, {
    tools: [REFUND, GET],
    upstreams: ['pay'],
    pools: new Map(),
    roles: ['lead'],
    rolesOf: new Map([['maria', ['lead']]]),
    declared,
    now: NOW,
  }).warnings;
  return found
    .filter(({ code }) => code === 'never_applies' || code === 'unknown_name' || code === 'matches_nothing')
    .map(({ at, code, message, hint }) => `${at?.line}:${at?.column} ${code} ${message} (${hint})`);
}

const refund = 'match: { tools: [pay.refund] }';

describe('a restrictive rule that can never apply is warned of, with its place and what was probably meant', () => {
  test.each([
    ['an environment', '{ id: a, effect: deny, match: { env: [prdo] } }', "no environment 'prdo'", "mean 'prod'"],
    ['a team', '{ id: a, effect: pause, match: { agents: { team: [suport] } } }', "no team 'suport'", "mean 'support'"],
    [
      'a team among others',
      '{ id: a, effect: deny, match: { agents: { team: [billing, suport] } } }',
      "'suport'",
      "'support'",
    ],
    ['an agent', '{ id: a, effect: deny, when: { agent.id: support_bto } }', "no agent 'support_bto'", "'support-bot'"],
    ['a user', '{ id: a, effect: deny, match: { keys: { user: [mria] } } }', "no user 'mria'", "mean 'maria'"],
    [
      'a role',
      '{ id: a, effect: deny, match: { agents: { roles: [refundr] } } }',
      "no role of agents 'refundr'",
      "'refunder'",
    ],
    ['a workspace', '{ id: a, effect: deny, match: { workspaces: [dmo] } }', "no workspace 'dmo'", "mean 'demo'"],
    [
      'a tool in match',
      '{ id: a, effect: deny, match: { tools: [pay.refnd] } }',
      "There is no tool 'pay.refnd'",
      "'pay.refund'",
    ],
    [
      'a tool in when',
      '{ id: a, effect: deny, when: { tool.name: pay.refnd } }',
      "no tool 'pay.refnd'",
      "'pay.refund'",
    ],
    [
      'an enum',
      `{ id: a, effect: deny, ${refund}, when: { params.currency: ERU } }`,
      'params.currency of pay.refund is one of EUR, USD',
      "mean 'EUR'",
    ],
    [
      'an enum by pattern',
      `{ id: a, effect: deny, ${refund}, when: { params.currency: { starts_with: X } } }`,
      'none of them satisfies',
      'compare it',
    ],
    [
      'a nested const',
      `{ id: a, effect: deny, ${refund}, when: { params.card.kind: credit } }`,
      'params.card.kind of pay.refund is one of debit',
      'compare it',
    ],
    [
      'a type',
      `{ id: a, effect: deny, ${refund}, when: { params.amount: "900" } }`,
      'is integer in its schema, and the condition needs string',
      'nothing is converted',
    ],
    [
      'another type',
      `{ id: a, effect: deny, ${refund}, when: { params.note: { gt: 5 } } }`,
      'is string in its schema',
      'compare it with string',
    ],
    [
      'a value that is left out',
      `{ id: a, effect: deny, ${refund}, when: { params.note: { in: [x, y], notIn: [x, y, z] } } }`,
      'no value of params.note satisfies all',
      'any: [',
    ],
    [
      'a contradiction',
      `{ id: a, effect: deny, ${refund}, when: { params.amount: { gt: 10, lt: 5 } } }`,
      'no value of params.amount satisfies all',
      'any: [',
    ],
    [
      'one in two parts',
      `{ id: a, effect: deny, match: { env: [prod] }, when: { env: staging } }`,
      'no value of env satisfies all',
      'any: [',
    ],
    [
      'a pattern',
      `{ id: a, effect: deny, ${refund}, when: { params.note: { regex: "a^b" } } }`,
      'no text fits the pattern a^b',
      'write \\^',
    ],
    [
      'a target',
      `{ id: a, effect: deny, match: { targets: ["invoice:*"] } }`,
      'are payment:{id}, never invoice:*',
      "begin the target with 'payment:'",
    ],
    ['a past pause', '{ id: a, effect: pause, until: 2026-01-04 }', "'s/a' ended at 2026-01-04", 'later until'],
    [
      'every one of several',
      '{ id: a, effect: deny, when: { any: [ { env: x-1 }, { agent.team: none-such } ] } }',
      "no environment 'x-1'",
      'it has prod, staging',
    ],
  ])('%s', (_what, rule, message, hint) => {
    const found = warnings(rule);
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(message);
    expect(found[0]).toContain(hint);
    expect(found[0]).toMatch(/^5:\d+ /);
  });

  test('the place is that of the value', () => {
    const rule = '{ id: a, effect: deny, match: { agents: { team: [billing, suport] } } }';
    expect(warnings(rule)[0]).toMatch(new RegExp(`^5:${`  - ${rule}`.indexOf('suport') + 1} `));
  });

  test('what stands in a list with a name', () => {
    expect(
      warnings('{ id: a, effect: deny, when: { env: { in: $where } } }', DECLARED, 'lists: { where: [moon] }\n')[0],
    ).toContain("no environment 'moon'");
  });
});

describe('no warning where the rule can apply', () => {
  test.each([
    [
      'names that there are',
      '{ id: a, effect: deny, match: { env: [prod], agents: { team: [support], roles: [refunder] } } }',
    ],
    ['an environment that another gateway has', '{ id: a, effect: deny, match: { env: [prod, qa] } }'],
    ['one of several', '{ id: a, effect: deny, when: { any: [ { env: qa-7 }, { env: prod } ] } }'],
    ['what is not to be', '{ id: a, effect: deny, unless: { agent.team: { in: [cleaners] } } }'],
    ['a rule that allows', '{ id: a, effect: allow, match: { env: [moon] } }'],
    [
      'another currency than those',
      `{ id: a, effect: deny, ${refund}, when: { params.currency: { nin: [EUR, USD] } } }`,
    ],
    ['an enum of one tool of two', '{ id: a, effect: deny, when: { params.currency: GBP } }'],
    ['a param without a schema', `{ id: a, effect: deny, ${refund}, when: { params.free: 5 } }`],
    ['a range', `{ id: a, effect: deny, ${refund}, when: { params.amount: { gte: 5, lte: 5 } } }`],
    ['presence', `{ id: a, effect: deny, ${refund}, when: { params.note: { exists: false, ne: x } } }`],
    ['a target', '{ id: a, effect: deny, match: { targets: ["pay*", "payment:1"] } }'],
    [
      'a target, and one that begins otherwise',
      '{ id: a, effect: deny, match: { targets: ["invoice:*", "payment:1"] } }',
    ],
    ['less than targets begin with', '{ id: a, effect: deny, match: { targets: ["pay*"] } }'],
    [
      'a name that is not there, where absence is enough',
      '{ id: a, effect: deny, when: { agent.team: { eq: nobodys, if_absent: true } } }',
    ],
    ['a pause to come', '{ id: a, effect: pause, until: 2026-12-20 }'],
  ])('%s', (_what, rule) => {
    expect(warnings(rule)).toEqual([]);
  });

  test('a configuration that declares no agents knows of none', () => {
    expect(
      warnings('{ id: a, effect: deny, match: { agents: { team: [x] } } }', new Map([['agent.team', []]])),
    ).toEqual([]);
  });

  test('of a pattern', () => {
    for (const dead of ['a^', '$a', '[a-z]^b', '\\d+^', 'x$y?z', '^a{2}^b'])
      expect([dead, deadPattern(dead)]).toEqual([dead, true]);
    for (const fine of ['^a$', '^^a$$', 'a*^b', '[$^]a', '\\^a\\$b', 'a$b*', '(a|^)b', '\\x{24}a', 'a{0}^b', '[^]a]b'])
      expect([fine, deadPattern(fine)]).toEqual([fine, false]);
  });

  test('of the shipped policies, with the demo', async () => {
    const { configuration } = await loadConfiguration(join(ROOT, 'config', 'demo.yaml'), { environment: {} });
    const files = readdirSync(join(ROOT, 'policies')).map((file) => join(ROOT, 'policies', file));
    const texts = files.map((file) => ({ file, text: readFileSync(file, 'utf8'), lists: new Map<string, string>() }));
    expect(compilePolicies(texts, { ...surroundingsOfPolicies(configuration), now: NOW }).warnings).toEqual([]);
  });
});

test('the names are those of the configuration: environments of workspaces and upstreams, and whoever it names', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-names-'));
  try {
    const file = join(folder, 'gateway.yaml');
    writeFileSync(
      file,
      `users: [ { id: maria } ]
workspaces: [ { id: demo, env: staging, agents: [ { id: bot, team: support, roles: [refunder] } ] } ]
upstreams: [ { id: pay, url: "http://127.0.0.1:9", env: prod } ]
tools: [ { name: pay.get, title: Get, upstream: pay, kind: read, request: { method: GET, path: /v1 } } ]
`,
    );
    const { configuration } = await loadConfiguration(file, { environment: {} });
    const { declared } = surroundingsOfPolicies(configuration);
    for (const [names, called, known] of [
      ['env: [moon]', 'environment', 'staging, prod'],
      ['workspaces: [moon]', 'workspace', 'demo'],
      ['agents: { id: [moon] }', 'agent', 'bot'],
      ['agents: { team: [moon] }', 'team', 'support'],
      ['agents: { roles: [moon] }', 'role of agents', 'refunder'],
      ['keys: { user: [moon] }', 'user', 'maria'],
    ] as const)
      expect(warnings(`{ id: a, effect: deny, match: { ${names} } }`, declared)).toEqual([
        expect.stringMatching(
          new RegExp(`unknown_name 's/a': the configuration has no ${called} 'moon': .*\\(it has ${known}\\)$`),
        ),
      ]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
