import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createReading, digestOf } from '../../src/diagnostics/file-reading.ts';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import { loadPolicySets } from '../../src/policy/load.ts';
import { policyTextToWire, versionOfShown } from '../../src/policy/policy-texts.ts';
import { compileAll, compileText, faultsOf, HEAD, judge, judgeParams, outcome, TOOLS } from './fixtures.ts';

const RULES = `${HEAD}rules:\n  - { id: a, effect: allow }\n`;

describe('faults, each at its place', () => {
  const rule = (text: string): string => `${HEAD}rules:\n  - ${text}\n`;
  const cases: readonly [string, string, string][] = [
    ['unknown field', rule('{ id: a, effect: allow, wen: { params.a: 1 } }'), "5:29 unknown_field Unknown field 'wen'"],
    [
      'unknown match key',
      rule('{ id: a, effect: allow, match: { tool: [x] } }'),
      "5:38 unknown_field Unknown field 'tool'",
    ],
    [
      'unknown effect',
      rule('{ id: a, effect: alow }'),
      "5:22 wrong_value 'effect' must be one of allow, constrain, require_approval, deny, pause, not 'alow'",
    ],
    ['missing id', rule('{ effect: allow }'), "5:5 missing_field Entry 1 of 'rules' needs 'id'"],
    ['a field that every object has', rule('{ id: a, effect: allow, constructor: 1 }'), '5:29 unknown_field'],
    [
      'a field with nothing after it',
      rule('{ id: a, effect: allow, match: }'),
      "5:29 wrong_type 'match' must be a map, not null",
    ],
    ['a name of two lines', rule('{ id: "a\\nb", effect: allow }'), "5:11 wrong_value 'id' must be letters, digits"],
    [
      'a number for a name',
      rule('{ id: 5, effect: allow }'),
      "5:11 wrong_type 'id' must be letters, digits, - and _, at most 63, beginning with a letter or digit, not 5",
    ],
    [
      'a map for a value',
      `${HEAD}values: { v: { by: env, of: { prod: 1 }, else: { a: 1 } } }\nrules: [ { id: a, effect: allow } ]\n`,
      "4:48 wrong_type 'else' must be a text or a number or true or false or a list, not a map",
    ],
    [
      'an amount that is true',
      rule('{ id: a, effect: allow, obligations: [ { budget: { use: b, amount: true } } ] }'),
      "5:72 wrong_type 'amount' must be a path such as params.amount, a whole number, or the $name of a value, not true",
    ],
    ['no rules', HEAD, "1:1 missing_field The file needs 'rules'"],
    [
      'open default',
      `${HEAD}defaults: { effect: allow }\nrules: [ { id: a, effect: allow } ]\n`,
      "4:21 wrong_value 'effect' can only be 'deny', not 'allow'",
    ],
    [
      'open unknown',
      `${HEAD}defaults: { on_unknown: open }\nrules: [ { id: a, effect: allow } ]\n`,
      "4:25 wrong_value 'on_unknown' can only be 'closed', not 'open'",
    ],
    [
      'other version',
      RULES.replace('/v1', '/v2'),
      "1:13 wrong_value 'apiVersion' can only be 'svc-gateway/v1', not 'svc-gateway/v2'",
    ],
    ['other kind', RULES.replace('PolicySet', 'PolicySets'), "2:7 unknown_kind 'PolicySets' is no kind of policy file"],
    [
      'library',
      RULES.replace('PolicySet', 'PolicyLibrary'),
      "2:7 not_yet_supported 'kind: PolicyLibrary' is not yet supported",
    ],
    [
      'same rule twice',
      rule('{ id: a, effect: allow }\n  - { id: a, effect: deny }'),
      "6:11 duplicate_rule The set has another rule 'a'",
    ],
    ['unquoted star', rule('{ id: a, effect: allow, match: { tools: [*] } }'), '5:46'],
    ['duplicate key', rule('{ id: a, effect: allow, effect: deny }'), "5:29 duplicate_key 'effect' stands twice"],
    ['empty match', rule('{ id: a, effect: deny, match: { tools: [] } }'), "5:44 empty_list 'tools' is empty"],
    ['empty text', rule('{ id: a, effect: deny, reason: "" }'), "5:28 wrong_value 'reason' is empty"],
    [
      'begins when it ends',
      rule('{ id: a, effect: deny, from: 2026-05-01, until: 2026-05-01 }'),
      "5:53 wrong_value 'until' is not after 'from'",
    ],
    ['empty except', rule('{ id: a, effect: deny, match: { except: [ {} ] } }'), '5:47 empty_group'],
    [
      'glob among values',
      rule('{ id: a, effect: deny, match: { env: ["prod*"] } }'),
      "5:43 glob_not_here 'prod*' is not a glob here",
    ],
    [
      'glob among workspaces',
      rule('{ id: a, effect: deny, match: { workspaces: ["team-*"] } }'),
      "5:50 glob_not_here 'team-*' is not a glob here",
    ],
    [
      'glob among teams',
      rule('{ id: a, effect: deny, match: { agents: { team: ["supp*"] } } }'),
      "5:54 glob_not_here 'supp*' is not a glob here",
    ],
    [
      'glob among attributes',
      rule('{ id: a, effect: deny, match: { agents: { region: ["eu-*"] } } }'),
      "5:56 glob_not_here 'eu-*' is not a glob here",
    ],
    [
      'attribute by its path',
      rule('{ id: a, effect: deny, match: { agents: { attributes.tier: [1] } } }'),
      "5:47 wrong_value Attributes stand in 'agents' by their names alone",
    ],
    [
      'a rule that pauses and asks somebody',
      rule('{ id: a, effect: pause, approval: { approvers: { roles: [oncall] } } }'),
      '5:29 misplaced_field A rule that pauses asks nobody',
    ],
    [
      'a budget that counts by one fact twice',
      `${HEAD}budgets: { b: { unit: calls, per: day, limit: 1, by: [agent.id, agent.id] } }\nrules: [ { id: a, effect: allow } ]\n`,
      "4:65 wrong_value 'agent.id' stands twice",
    ],
    [
      'a value of the name of a list',
      `${HEAD}lists: { a: [x] }\nvalues: { a: 1 }\nrules: [ { id: a, effect: allow } ]\n`,
      "5:11 duplicate_name 'a' is a list already",
    ],
    [
      'a condition whose name nobody can refer to',
      `${HEAD}conditions: { "a b": { params.x: 1 } }\nrules: [ { id: a, effect: allow } ]\n`,
      "4:15 wrong_value The condition 'a b' has a name that cannot be referred to",
    ],
    ['bad glob', rule('{ id: a, effect: deny, match: { tools: ["{a"] } }'), '5:45 bad_pattern'],
    [
      'unknown list',
      rule('{ id: a, effect: deny, when: { params.a: { in: $no } } }'),
      "5:52 unknown_name There is no list or value '$no'",
    ],
    [
      'unknown condition',
      rule('{ id: a, effect: deny, when: { condition: no } }'),
      "5:47 unknown_condition There is no condition 'no'",
    ],
    [
      'right side',
      rule('{ id: a, effect: deny, when: { params.a: { gt: "5" } } }'),
      "5:52 bad_right_side 'gt' needs a number",
    ],
    ['mixed right side', rule('{ id: a, effect: deny, when: { params.a: { in: [1, "1"] } } }'), '5:52 bad_right_side'],
    [
      'null',
      rule('{ id: a, effect: deny, when: { params.a: null } }'),
      "5:46 bad_condition 'params.a' cannot be compared with null",
    ],
    ['item outside', rule('{ id: a, effect: deny, when: { item.a: 1 } }'), '5:36 unknown_fact'],
    [
      'below an attribute, which is a text or a number',
      rule('{ id: a, effect: deny, when: { agent.attributes.a.b: 1 } }'),
      "5:36 unknown_fact 'agent.attributes.a.b' names no attribute",
    ],
    [
      'below a header',
      rule('{ id: a, effect: deny, when: { request.headers.x-a.b: 1 } }'),
      "5:36 unknown_fact 'request.headers.x-a.b' names no header",
    ],
    [
      'no attribute',
      rule('{ id: a, effect: deny, when: { agent.attributes: 1 } }'),
      "5:36 unknown_fact 'agent.attributes' names no attribute",
    ],
    [
      'a part of a name',
      rule('{ id: a, effect: deny, when: { agent.team.x: 1 } }'),
      "5:36 unknown_fact 'agent.team' has no parts",
    ],
    [
      'a part of a list of names',
      rule('{ id: a, effect: deny, when: { agent.roles.x: 1 } }'),
      "5:36 unknown_fact 'agent.roles' has no parts",
    ],
    [
      'a part of the target',
      rule('{ id: a, effect: deny, when: { target.x: 1 } }'),
      "5:36 unknown_fact 'target' has no parts",
    ],
    [
      'unknown budget',
      rule('{ id: a, effect: allow, obligations: [ { budget: { use: b, amount: 1 } } ] }'),
      "5:61 unknown_budget There is no budget 'b'",
    ],
    [
      'unknown pool',
      rule('{ id: a, effect: allow, obligations: [ { reserve: { pool: refund-dask } } ] }'),
      "5:63 unknown_pool There is no pool 'refund-dask'",
    ],
    [
      'unknown role',
      rule('{ id: a, effect: require_approval, approval: { approvers: { roles: [finance] } } }'),
      "5:73 unknown_role No user has the role 'finance'",
    ],
    [
      'quorum',
      rule('{ id: a, effect: require_approval, approval: { approvers: { users: [ada] }, quorum: 2 } }'),
      '5:89 wrong_value A quorum of 2',
    ],
    [
      'quorum of one who is named twice',
      rule('{ id: a, effect: require_approval, approval: { approvers: { users: [ada, ada] }, quorum: 2 } }'),
      '5:94 wrong_value A quorum of 2 cannot be reached by 1 users',
    ],
    [
      'approval that expires beyond all dates',
      rule('{ id: a, effect: require_approval, approval: { approvers: { roles: [oncall] }, expires: 999999999d } }'),
      "5:93 wrong_value '999999999d' is longer than 36500d",
    ],
    [
      'window beyond all dates',
      `${HEAD}budgets: { b: { unit: x, limit: 5, rolling: 36501d } }\nrules: [ { id: a, effect: allow } ]\n`,
      "4:45 wrong_value '36501d' is longer than 36500d",
    ],
    [
      'rate beyond all dates',
      rule('{ id: a, effect: allow, obligations: [ { rate_limit: { limit: 1, per: 999999999d } } ] }'),
      "5:75 wrong_value '999999999d' is longer than 36500d",
    ],
    [
      'two obligations in one',
      rule('{ id: a, effect: allow, obligations: [ { claim: { on: a }, reserve: { pool: refund-desk } } ] }'),
      '5:44 too_many',
    ],
    [
      'obligation of a deny',
      rule('{ id: a, effect: deny, obligations: [ { claim: { on: a } } ] }'),
      '5:28 misplaced_field',
    ],
    ['on_unknown of an allow', rule('{ id: a, effect: allow, on_unknown: skip }'), '5:29 misplaced_field'],
    ['constrain nothing', rule('{ id: a, effect: constrain }'), '5:5 missing_field'],
    ['nobody asked', rule('{ id: a, effect: require_approval }'), '5:5 missing_field'],
    ['slot', rule('{ id: a, effect: deny, reason: "x ${parms.a}" }'), "5:36 unknown_fact Unknown fact 'parms.a'"],
    ['open slot', rule('{ id: a, effect: deny, reason: "x ${params.a" }'), '5:36 bad_path'],
    [
      'no such day',
      rule('{ id: a, effect: deny, from: 2026-02-30 }'),
      "5:34 wrong_value There is no date '2026-02-30'",
    ],
    ['time without offset', rule('{ id: a, effect: deny, from: "2026-02-20T08:00:00" }'), '5:34 wrong_value'],
    ['over before it begins', rule('{ id: a, effect: deny, from: 2026-02-20, until: 2026-02-20 }'), '5:53 wrong_value'],
    [
      'zone',
      `${HEAD}timezone: Europe/Berln\nrules: [ { id: a, effect: allow } ]\n`,
      "4:11 unknown_zone Unknown time zone 'Europe/Berln'",
    ],
    [
      'window',
      `${HEAD}budgets: { b: { unit: x, limit: 5 } }\nrules: [ { id: a, effect: allow } ]\n`,
      '4:12 missing_field',
    ],
    [
      'two windows',
      `${HEAD}budgets: { b: { unit: x, limit: 5, per: day, rolling: 1d } }\nrules: [ { id: a, effect: allow } ]\n`,
      '4:12 missing_field',
    ],
    [
      'limit in quotes',
      `${HEAD}budgets: { b: { unit: x, limit: "5", per: day } }\nrules: [ { id: a, effect: allow } ]\n`,
      `4:33 wrong_type 'limit' must be a whole number or the $name of a value, not the text "5"`,
    ],
    [
      'amount that is a name',
      `${HEAD}budgets: { b: { unit: x, limit: 5, per: day } }\nrules: [ { id: a, effect: allow, obligations: [ { budget: { use: b, amount: target } } ] } ]\n`,
      "5:77 wrong_value 'target' is never a whole number",
    ],
    [
      'negative limit',
      `${HEAD}budgets: { b: { unit: x, limit: -5, per: day } }\nrules: [ { id: a, effect: allow } ]\n`,
      "4:33 wrong_value 'limit' must be at least 0, not -5",
    ],
    [
      'limit by name',
      `${HEAD}values: { v: x }\nbudgets: { b: { unit: x, limit: $v, per: day } }\nrules: [ { id: a, effect: allow } ]\n`,
      '5:33 wrong_value',
    ],
    [
      'limit by name, one of its values negative',
      `${HEAD}values: { v: { by: env, of: { prod: 5, dev: -5 }, else: 5 } }\nbudgets: { b: { unit: x, limit: $v, per: day } }\nrules: [ { id: a, effect: allow } ]\n`,
      "5:33 wrong_value '$v' must be a whole number of at least 0, not -5",
    ],
    [
      'list in by',
      `${HEAD}budgets: { b: { unit: x, limit: 5, per: day, by: [agent.roles] } }\nrules: [ { id: a, effect: allow } ]\n`,
      '4:51 wrong_value',
    ],
    [
      'value by params',
      `${HEAD}values: { v: { by: params.a, of: { x: 1 }, else: 2 } }\nrules: [ { id: a, effect: allow } ]\n`,
      '4:20 caller_sets_threshold',
    ],
    [
      'the target on the right',
      rule('{ id: a, effect: allow, when: { params.a: { eq: { fact: target } } } }'),
      "5:53 caller_sets_threshold 'target' on the right",
    ],
    [
      'absence beside a type',
      rule('{ id: a, effect: allow, when: { params.a: { type: string, if_absent: true } } }'),
      "5:74 bad_condition 'if_absent' has no meaning beside 'type'",
    ],
    [
      'value by a header',
      `${HEAD}values: { v: { by: request.headers.x-tier, of: { x: 1 }, else: 2 } }\nrules: [ { id: a, effect: allow } ]\n`,
      '4:20 caller_sets_threshold',
    ],
    [
      'amount below nothing',
      `${HEAD}values: { less: -1 }\nbudgets: { b: { unit: call, per: day, limit: 5 } }\nrules: [ { id: a, effect: allow, obligations: [ { budget: { use: b, amount: $less } } ] } ]\n`,
      "6:77 wrong_value '$less' must be a whole number of at least 0, not -1",
    ],
    [
      'value by the target',
      `${HEAD}values: { v: { by: target, of: { x: 1 }, else: 2 } }\nrules: [ { id: a, effect: allow } ]\n`,
      '4:20 caller_sets_threshold',
    ],
    [
      'value by a list',
      `${HEAD}values: { v: { by: agent.roles, of: { x: 1 }, else: 2 } }\nrules: [ { id: a, effect: allow } ]\n`,
      "4:20 wrong_value 'agent.roles' is a list and cannot choose a value",
    ],
    [
      'value of mixed types',
      `${HEAD}values: { v: { by: env, of: { x: 1 }, else: a } }\nrules: [ { id: a, effect: allow } ]\n`,
      '4:14 mixed_types',
    ],
    ['mixed list', `${HEAD}lists: { l: [a, 1] }\nrules: [ { id: a, effect: allow } ]\n`, '4:13 mixed_list'],
    [
      'circle',
      `${HEAD}conditions: { a: { condition: b }, b: { not: { condition: a } } }\nrules: [ { id: a, effect: allow } ]\n`,
      '4:15 circular_condition',
    ],
    [
      'unused faulty condition',
      `${HEAD}conditions: { a: { params.x: { gt: a } } }\nrules: [ { id: a, effect: allow } ]\n`,
      '4:36 bad_right_side',
    ],
    ...[
      ['values: { v: $w }', '4:14'],
      ['values: { v: [a, $w] }', '4:18'],
      ['values: { v: { by: env, of: { prod: $w }, else: a } }', '4:37'],
      ['values: { v: { by: env, of: { prod: a }, else: $w } }', '4:48'],
      ['lists: { l: [a, $w] }', '4:17'],
    ].map(([line, place]): [string, string, string] => [
      `a reference within ${line}`,
      `${HEAD}${line}\nrules: [ { id: a, effect: allow } ]\n`,
      `${place} reference_not_here '$w' cannot refer to a name here`,
    ]),
    ...[
      'match: { tools: [$w] }',
      'match: { env: [$w] }',
      'match: { workspaces: [$w] }',
      'match: { targets: [$w] }',
      'match: { keys: { user: [$w] } }',
      'match: { agents: { id: [$w] } }',
      'match: { except: [ { agents: { team: [$w] } } ] }',
      'when: { params.a: { in: [x, $w] } }',
      'when: { params.a: { equals: { b: [$w] } } }',
    ].map((field): [string, string, string] => [
      `a reference within ${field}`,
      rule(`{ id: a, effect: deny, ${field} }`),
      `5:${28 + field.indexOf('$w')} reference_not_here`,
    ]),
    [
      'text for a list or a file',
      `${HEAD}lists: { l: x }\nrules: [ { id: a, effect: allow } ]\n`,
      `4:13 wrong_type 'l' must be a list, or { file: … }, not the text "x"`,
    ],
    ['half character', `${HEAD}rules: [ { id: a, effect: allow, description: "\\uD800" } ]\n`, '1:1 wrong_value'],
    ['empty file', '', '1:1 empty_file'],
    ['half-written file', `${HEAD}rules:\n  - { id: a, effect: al`, '5:'],
  ];
  test.each(cases)('%s', (_name, text, expected) => {
    const faults = faultsOf(text);
    expect(
      faults.some((fault) => fault.startsWith(expected)),
      faults.join('\n'),
    ).toBe(true);
  });

  test('what comes later is refused by name', () => {
    const later: readonly string[] = [
      ...['imports: []', 'scope: { tools: [x] }', 'waivers: []'].map(
        (line) => `${HEAD}${line}\nrules: [ { id: a, effect: allow } ]\n`,
      ),
      ...[
        'waivable: true',
        'match: { resources: [x] }',
        'match: { prompts: [x] }',
        'when: { time: { outside: office } }',
        'when: { state.status: paid }',
        'when: { budget.x: 1 }',
        ...['before', 'after', 'older_than', 'newer_than', 'cidr_in', 'url_in', 'path_in', 'as'].map(
          (name) => `when: { params.x: { ${name}: x } }`,
        ),
        'when: { params.x: { gt: { fact: agent.attributes.a, plus: 24h } } }',
        'obligations: [ { require_recent: {} } ]',
        'obligations: [ { forbid_recent: {} } ]',
        'obligations: [ { distinct: {} } ]',
      ].map((field) => rule(`{ id: a, effect: allow, ${field} }`)),
    ];
    for (const text of later) {
      const faults = faultsOf(text);
      expect(
        faults.map((fault) => fault.split(' ')[1]),
        text,
      ).toEqual(['not_yet_supported']);
      expect(faults[0]).toContain('not yet supported');
    }
  });

  test('all faults of all files in one run, with caret and suggestion', () => {
    try {
      compileAll([
        rule('{ id: a, effect: allow, wen: 1, match: { kinds: [wrte] } }'),
        `${HEAD}budgets: { b: { unit: x, per: dya, limit: 1 } }\nrules: [ { id: a, effect: deny, when: { parms.x: 1 } } ]\n`,
      ]);
      expect.fail('loaded');
    } catch (error) {
      if (!(error instanceof InvalidFiles)) throw error;
      expect(error.findings.map(({ at, code }) => `${at?.file}:${at?.line} ${code}`)).toEqual([
        'p0.yaml:5 unknown_field',
        'p0.yaml:5 wrong_value',
        'p1.yaml:4 wrong_value',
      ]);
      expect(error.message).toContain("did you mean 'when'?");
      expect(error.message).toContain("did you mean 'write'?");
      expect(error.message).toContain('^');
    }
  });

  test.each([
    ['{ id: a effect: allow }', "A ',' is missing inside { } or [ ]"],
    ['{ id: a, effect: allow, when: { params.l[0].x: 1 } }', "A ',' is missing inside { } or [ ]"],
    [
      '{ id: a, effect: allow, when: { fact: params.x, operator: greaterThen, value: 5 } }',
      "did you mean 'greaterThan'?",
    ],
    ['{ id: a, effect: allow, when: { amount: { gt: 5 } } }', 'a param is params.amount'],
  ])('%s', (line, expected) => {
    expect(() => compileAll([rule(line)])).toThrow(expected);
  });

  test('a file that is empty or cut off has no fault but that', () => {
    expect([faultsOf(''), faultsOf(`${HEAD}rules:\n  - { id: a, effect: al`)].map((faults) => faults.length)).toEqual([
      1, 1,
    ]);
  });

  test('each entry of a list with a fault is told of, in the order in which they are read', () => {
    const wrong = '{ id: a, effect: alow }';
    expect(faultsOf(rule(`${wrong}\n  - ${wrong}`)).map((fault) => fault.slice(0, 4))).toEqual(['5:22', '6:22']);
    // What stands last is checked first.
    const budgets = 'budgets: { b: { unit: x, limit: 5 } }';
    const faults = faultsOf(`${rule('{ id: a, effect: allow, when: { no.fact: 1 } }')}${budgets}\n`);
    expect(faults.map((fault) => fault.split(' ').slice(0, 2).join(' '))).toEqual([
      '5:37 unknown_fact',
      '6:12 missing_field',
    ]);
  });

  test('a budget that a faulty rule uses is used', () => {
    const text = `${HEAD}budgets: { b: { unit: x, limit: 5, per: day } }\nrules: [ { id: a, effect: allow, when: { x: 1 }, obligations: [ { budget: { use: b, amount: 1 } } ] } ]\n`;
    expect(() => compileAll([text])).toThrow(/1 error$/m);
  });

  test('sets of one name are told of', () => {
    expect(faultsOf(RULES, RULES)).toEqual(["3:7 duplicate_set There is another set 's' in p0.yaml"]);
  });

  test('named conditions that multiply are refused', () => {
    const lines = Array.from(
      { length: 20 },
      (_, n) => `  c${n + 1}: { all: [ { condition: c${n} }, { condition: c${n} } ] }`,
    );
    const text = `${HEAD}conditions:\n  c0: { params.a: 1 }\n${lines.join('\n')}\nrules: [ { id: a, effect: deny, when: { condition: c20 } } ]\n`;
    expect(faultsOf(text)[0]).toContain('too_large');
  });
});

describe('warnings', () => {
  const warned = (text: string): readonly string[] =>
    compileAll([text]).warnings.map(({ code, hint }) => `${code}${hint === null ? '' : ` ${hint}`}`);
  test.each([
    ['{ id: a, effect: allow, match: { tools: [payments.refnd] } }', "matches_nothing did you mean 'payments.refund'?"],
    ['{ id: a, effect: allow, match: { tools: ["crm.*"] } }', 'matches_nothing'],
    ['{ id: a, effect: allow, match: { tags: [mony] } }', "matches_nothing did you mean 'money'?"],
    ['{ id: a, effect: allow, match: { actions: [refund.craete] } }', 'matches_nothing'],
    ['{ id: a, effect: allow, match: { has_params: [no_tool_has_it] } }', 'matches_nothing'],
    ['{ id: a, effect: deny, when: { params.a: 1 }, on_unknown: skip }', 'fails_open'],
    ['{ id: a, effect: pause, when: { params.a: 1 }, on_unknown: skip }', 'fails_open'],
    [
      '{ id: a, effect: require_approval, when: { params.a: 1 }, on_unknown: skip, approval: { approvers: { roles: [oncall] } } }',
      'fails_open',
    ],
    [
      '{ id: a, effect: constrain, when: { params.a: 1 }, on_unknown: skip, obligations: [ { rate_limit: { limit: 5, per: minute } } ] }',
      'fails_open',
    ],
    ['{ id: a, effect: deny, when: { params.a: 1, any: [ { params.b: 1 } ] } }', 'any_beside_others'],
    ['{ id: a, effect: deny, when: { params.a: { in: [] } } }', 'empty_list'],
    ['{ id: a, effect: allow, approval: { approvers: { roles: [oncall] } } }', 'approval_on_allow'],
    ['{ id: a, effect: allow, reason: because }', 'reason_not_shown'],
    ['{ id: a, effect: allow, obligations: [ { reserve: { pool: refund-desk, units: 9 } } ] }', 'never_fits'],
    ['{ id: a, effect: deny, match: { agents: { role: [admin] } } }', "like_another did you mean 'roles'?"],
    ['{ id: a, effect: allow, when: { params.a: { regex_find: x } } }', 'found_anywhere write regex'],
    [
      '{ id: a, effect: allow, unless: { params.a: { every: { not: { item: { regex_find: x } } } } } }',
      'found_anywhere',
    ],
    ['{ id: a, effect: allow, when: { any: [ { params.a: { regex_find: x } }, { params.b: 1 } ] } }', 'found_anywhere'],
    ['{ id: a, effect: deny, when: { agent.roles: admin } }', "never_known: 'agent.roles' is a list, of which 'eq'"],
    ['{ id: a, effect: deny, when: { tool.tags: { in: [money] } } }', 'never_known write { contains: … }'],
    ['{ id: a, effect: deny, when: { agent.team: { contains: x } } }', "never_known: 'agent.team' is a text, of which"],
    ['{ id: a, effect: deny, when: { target: { some: { item: x } } } }', "never_known: 'target' is a text"],
    ['{ id: a, effect: deny, when: { env: 5 } }', 'never_known'],
    [
      '{ id: a, effect: require_approval, approval: { approvers: { users: [adah] } } }',
      "unknown_user did you mean 'ada'?",
    ],
    [
      '{ id: a, effect: require_approval, approval: { approvers: { roles: [nobodys] } } }',
      'too_few_approvers: No user could approve, and 1 has to',
    ],
    [
      '{ id: a, effect: require_approval, approval: { approvers: { roles: [finance-lead] }, quorum: 2 } }',
      'too_few_approvers: Only ada could approve, and 2 have to',
    ],
  ])('%s', (line, expected) => {
    const { warnings } = compileAll([`${HEAD}rules:\n  - ${line}\n`]);
    const told = warnings.flatMap(({ code, message, hint }) => [`${code}: ${message}`, `${code} ${hint ?? ''}`]);
    expect(
      told.some((warning) => warning.startsWith(expected)),
      told.join('\n'),
    ).toBe(true);
  });

  test.each([
    '{ id: a, effect: allow, unless: { params.a: { regex_find: x } } }',
    '{ id: a, effect: allow, match: { agents: { tier: [1], trust: [2], roles: [x] } } }',
    '{ id: a, effect: deny, when: { params.a: { regex_find: x } } }',
    '{ id: a, effect: allow, when: { agent.roles: { contains: x }, "agent.roles[0]": x, tool.tags: { some: { item: x } } } }',
    '{ id: a, effect: allow, when: { agent.roles: { exists: true }, target: { glob: "x*" }, agent.attributes.n: 5 } }',
    '{ id: a, effect: allow, when: { params.a: 5, params.b: { contains: x }, agent.team: { nin: [] } } }',
  ])('none of this kind: %s', (line) => {
    const codes = compileAll([`${HEAD}rules:\n  - ${line}\n`]).warnings.map(({ code }) => code);
    expect(
      codes.filter((code) => code === 'found_anywhere' || code === 'never_known' || code === 'like_another'),
    ).toEqual([]);
  });

  test('a list with nothing in it, which may be meant to be filled', () => {
    const text = (list: string) => `${HEAD}lists: { l: [${list}] }\nrules: [ { id: a, effect: allow } ]\n`;
    expect([warned(text('')), warned(text('x'))]).toEqual([['empty_list'], []]);
  });

  test('a budget that no rule uses', () => {
    const text = `${HEAD}budgets: { b: { unit: calls, per: day, limit: 1 } }\nrules: [ { id: a, effect: allow } ]\n`;
    expect(warned(text)).toEqual(['unused_budget']);
  });

  test('stand in the order in which they are read', () => {
    const text = `${HEAD}budgets: { b: { unit: calls, per: day, limit: 1 } }\nrules: [ { id: a, effect: allow, reason: x } ]\n`;
    expect(warned(text).map((warning) => warning.split(' ')[0])).toEqual(['unused_budget', 'reason_not_shown']);
  });

  test('a rule that takes all units of its pool fits, one unit more never does', () => {
    const takes = (units: number) =>
      warned(
        `${HEAD}rules:\n  - { id: a, effect: allow, obligations: [ { reserve: { pool: desk-eu, units: ${units} } } ] }\n`,
      );
    expect([takes(2), takes(3)]).toEqual([[], ['never_fits']]);
  });

  test('an approval that enough people can give is not warned of', () => {
    const asks = (approvers: string) =>
      warned(
        `${HEAD}rules:\n  - { id: a, effect: require_approval, approval: { approvers: ${approvers}, quorum: 2 } }\n`,
      );
    expect(asks('{ roles: [oncall] }')).toEqual([]);
    expect(asks('{ roles: [finance-lead], users: [tom] }')).toEqual([]);
  });

  test('params that the tools of a rule do not declare', () => {
    const tools = TOOLS.map((tool) => ({
      ...tool,
      paramsSchema: { type: 'object', properties: { amount: {} }, additionalProperties: false },
    }));
    const warnings = (line: string) =>
      compileAll([`${HEAD}rules:\n  - ${line}\n`], tools).warnings.map(({ message, hint }) => `${message}; ${hint}`);
    expect(warnings('{ id: a, effect: allow, when: { params.amuont: 1 } }')).toEqual([
      "payments.refund and 3 other tools have no param 'amuont': the rule cannot apply there; did you mean 'amount'?",
    ]);
    expect(warnings('{ id: a, effect: allow, match: { tools: [mail.send] }, when: { params.amuont: 1 } }')).toEqual([
      "mail.send has no param 'amuont': the rule cannot apply there; did you mean 'amount'?",
    ]);
    expect(warnings('{ id: a, effect: allow, when: { params.lines: { some: { item: x } } } }')).toHaveLength(1);
    expect(warnings('{ id: a, effect: deny, when: { params.amuont: 1 } }')).toEqual([
      "payments.refund and 3 other tools have no param 'amuont': the rule applies to every call there; did you mean 'amount'?",
    ]);
    // It does not apply there, and it says that it fails open.
    expect(warnings('{ id: a, effect: deny, when: { params.amuont: 1 }, on_unknown: skip }')).toEqual([
      expect.stringContaining('it fails open'),
    ]);
    const second = `${HEAD}rules:\n  - { id: z, effect: allow }\n  - { id: a, effect: allow, when: { params.amuont: 1 } }\n`;
    expect(compileAll([second], tools).warnings).toMatchObject([{ at: { line: 6, column: 11 } }]);
    const open = tools.map((tool, at) => (at === 0 ? tool : { ...tool, paramsSchema: { type: 'object' } }));
    expect(
      compileAll([`${HEAD}rules:\n  - { id: a, effect: allow, when: { params.x: 1 } }\n`], open).warnings,
    ).toMatchObject([{ message: "payments.refund has no param 'x': the rule cannot apply there" }]);
    expect(
      warnings('{ id: a, effect: deny, unless: { params.tenant: { eq: { fact: agent.attributes.tenant } } } }')[0],
    ).toContain('has_params: [tenant]');
    expect(
      warnings(
        '{ id: a, effect: deny, match: { has_params: [amount] }, when: { params.amount: 1, params.x: { eq: 1, if_absent: false } } }',
      ),
    ).toEqual([]);
  });

  test('the example policies have none but for tools that are not here', () => {
    expect(warned(RULES)).toEqual([]);
  });
});

describe('version', () => {
  const version = (...texts: readonly string[]): string => compileAll(texts).set.version;
  const other = RULES.replace('name: s', 'name: t');

  test('the same for another layout, order of files and comments; other for another meaning', () => {
    const text = `${HEAD}rules:\n  - { id: a, effect: allow, when: { params.x: 1 } }\n`;
    expect(version(`# note\n${HEAD}rules:\n- when: {"params.x": 1.0}\n  effect: allow\n  id: a\n`)).toBe(version(text));
    expect(version(RULES, other)).toBe(version(other, RULES));
    expect(version(text.replace('params.x: 1', 'params.x: 2'))).not.toBe(version(text));
    expect(version(RULES)).toMatch(/^[A-Za-z0-9_-]{43}$/);
  });

  test('holds the contents of list files', () => {
    const text = `${HEAD}lists: { l: { file: ./l.txt } }\nrules:\n  - { id: a, effect: allow, when: { params.x: { in: $l } } }\n`;
    const at = (content: string) => compileAll([text], TOOLS, new Map([['./l.txt', content]])).set;
    expect(at('a\nb\n').version).not.toBe(at('a\nc\n').version);
    // Without the configuration, as auditors have it.
    const lists = new Map([['./l.txt', 'a\nb\n']]);
    expect(versionOfShown([policyTextToWire({ file: 'x.yaml', text, lists })])).toBe(at('a\nb\n').version);
    expect(versionOfShown([policyTextToWire({ file: 'x.yaml', text, lists: new Map() })])).toBe(null);
    expect(at('a\nb\n').version).toBe(at('# names\r\na\r\n\r\n  b').version);
    expect(outcome(judgeParams(at('a\nb'), { x: 'b' }))).toBe('permit');
    expect(outcome(judgeParams(at('a\nb'), { x: 'c' }))).toBe('denied_policy');
    // They are data: nothing in them is a name.
    expect(outcome(judgeParams(at('a\n$b\n$$c'), { x: '$b' }))).toBe('permit');
    expect(outcome(judgeParams(at('a\n$b\n$$c'), { x: '$c' }))).toBe('denied_policy');
  });
});

describe('couldPermit', () => {
  test('a tool that no rule could permit', () => {
    const set = compileText(`${HEAD}rules:
  - { id: a, effect: allow, match: { tools: [payments.*] }, when: { params.x: 1 } }
  - { id: d, effect: deny, match: { tools: [payments.create] } }
  - { id: s, effect: allow, mode: shadow, match: { tools: [mail.send] } }
  - { id: p, effect: pause, match: { tools: [payments.get] }, until: 2026-01-01 }
  - { id: f, effect: deny, match: { tools: [payments.get] }, from: 2036-01-01 }
`);
    expect(
      ['payments.refund', 'payments.create', 'payments.get', 'mail.send', 'no.such'].map((name) =>
        set.couldPermit(name),
      ),
    ).toEqual([true, false, true, false, false]);
    const others = compileText(`${HEAD}rules:
  - { id: q, effect: require_approval, match: { tools: [payments.create] }, approval: { approvers: { roles: [oncall] } } }
  - { id: a, effect: allow, match: { tools: [mail.send] } }
  - { id: p, effect: pause, match: { tools: [mail.send] } }
`);
    expect(['payments.create', 'mail.send'].map((name) => others.couldPermit(name))).toEqual([true, false]);
  });
});

describe('files', () => {
  let folder = '';
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'policies-'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));
  const load = (...paths: readonly string[]) =>
    loadPolicySets({
      paths,
      tools: TOOLS,
      upstreams: ['payments', 'mail'],
      pools: new Map(),
      roles: [],
      rolesOf: new Map(),
    });

  test('all files under a folder but tests, hidden ones and other kinds of file', async () => {
    await mkdir(join(folder, 'team'));
    await mkdir(join(folder, '..data'));
    await writeFile(join(folder, 'a.yaml'), RULES);
    await writeFile(
      join(folder, 'team', 'b.yml'),
      RULES.replace('name: s', 'name: b')
        .replace('allow }', 'deny, when: { params.x: { in: $l } } }')
        .replace('rules:', 'lists: { l: { file: names.txt } }\nrules:'),
    );
    await writeFile(join(folder, 'team', 'names.txt'), 'x\n');
    for (const name of ['a.test.yaml', 'b.test.yml']) await writeFile(join(folder, name), 'not: a policy');
    await writeFile(join(folder, 'notes.md'), '# notes');
    await writeFile(join(folder, '..data', 'a.yaml'), RULES);
    await symlink(join(folder, 'a.yaml'), join(folder, '.hidden.yaml'));
    const { set, files, warnings } = await load(folder);
    expect(set.rules.map(({ id }) => id)).toEqual(['b/a', 's/a']);
    expect(set.rules[0]?.position).toEqual({ file: join(folder, 'team', 'b.yml'), line: 6, column: 11 });
    expect(files).toEqual([
      folder,
      join(folder, 'a.yaml'),
      join(folder, 'team', 'b.yml'),
      join(folder, 'team', 'names.txt'),
    ]);
    expect(warnings).toEqual([]);
    expect(outcome(judgeParams(set, { x: 'x' }))).toBe('denied_policy');
    expect(outcome(judgeParams(set, { x: 'y' }))).toBe('permit');
  });

  test('no file: a warning, and everything is refused', async () => {
    const { set, warnings } = await load(folder);
    expect(warnings.map(({ code }) => code)).toEqual(['no_policies']);
    expect(outcome(judge(set))).toBe('denied_policy');
  });

  test('a path or list file that is not there', async () => {
    await expect(load(join(folder, 'nowhere'))).rejects.toThrow('There is no policy file or folder');
    await writeFile(join(folder, 'a.yaml'), RULES.replace('rules:', 'lists: { l: { file: none.txt } }\nrules:'));
    await expect(load(folder)).rejects.toThrow("Cannot read the list file 'none.txt'");
  });

  test('text that is not UTF-8 is not read as something else', async () => {
    const text = RULES.replace('rules:', 'lists: { l: { file: names.txt } }\nrules:');
    await writeFile(join(folder, 'a.yaml'), text);
    await writeFile(join(folder, 'names.txt'), '\uFEFFMüller\n', 'utf8');
    await load(folder);
    await writeFile(join(folder, 'names.txt'), 'Müller\n', 'latin1');
    await expect(load(folder)).rejects.toThrow("Cannot read the list file 'names.txt'");
    await writeFile(join(folder, 'a.yaml'), `# für alle\n${RULES}`, 'latin1');
    await expect(load(folder)).rejects.toThrow('it has to be a file of text in UTF-8');
  });

  test('a pipe, a device without an end and a file of gigabytes are refused, and none is waited for or read', async () => {
    await writeFile(join(folder, 'a.yaml'), RULES);
    const [pipe, zero, long] = ['pipe.yaml', 'zero.yaml', 'long.yaml'].map((name) => join(folder, name));
    execFileSync('mkfifo', [String(pipe)]);
    await symlink('/dev/zero', String(zero));
    await writeFile(String(long), '');
    await truncate(String(long), 4 * 1024 ** 3);
    const reading = createReading();
    const faults = await load(folder).catch(String);
    for (const path of [pipe, zero, long]) expect(faults).toContain(`Cannot read ${path}`);
    expect(await digestOf([folder], reading)).toMatch(/^[\w-]{43}$/);
    expect((await reading.bytes('/dev/null')).length).toBe(0);
  });

  test('a link that leads nowhere, where its name is that of a policy', async () => {
    await writeFile(join(folder, 'a.yaml'), RULES);
    await symlink(join(folder, 'gone'), join(folder, 'notes'));
    await load(folder);
    await symlink(join(folder, 'gone'), join(folder, 'b.yaml'));
    await expect(load(folder)).rejects.toThrow(`Cannot read ${join(folder, 'b.yaml')}`);
  });

  test('folders so deep that changes in them would not be noticed are refused, not passed over', async () => {
    const deep = (levels: number) => join(folder, ...Array.from({ length: levels }, (_, n) => `f${n}`));
    await mkdir(deep(7), { recursive: true });
    await writeFile(join(deep(7), 'a.yaml'), RULES);
    const { set } = await load(folder);
    expect(set.rules.map(({ id }) => id)).toEqual(['s/a']);
    await mkdir(deep(8));
    await expect(load(folder)).rejects.toThrow(`${deep(8)} is too deep`);
  });
});
