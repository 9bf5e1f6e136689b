import { expect, test } from 'vitest';
import { compileAll, faultsOf, HEAD } from './fixtures.ts';

const BUDGET =
  'budgets: { day: { unit: c, by: [agent.id], per: day, limit: 5 }, other: { unit: c, per: day, limit: 5 } }\n';
const ASKS =
  '{ id: small, effect: allow, when: { params.amount: { lte: 500 } }, obligations: [ { budget: { use: day, amount: params.amount } } ] }';

function faults(...rules: readonly string[]): readonly string[] {
  return faultsOf(`${HEAD}${BUDGET}rules:\n${rules.map((rule) => `  - ${rule}\n`).join('')}`);
}

test('what another rule allows without them is said at the rule, with what to write instead', () => {
  expect(faults(ASKS, '{ id: wide, effect: allow }')).toEqual([
    "6:11 avoidable_obligation A call avoids the obligations of 's/small' by leaving params.amount out: 's/wide' allows it then, without them",
  ]);
  try {
    compileAll([`${HEAD}${BUDGET}rules:\n  - ${ASKS}\n  - { id: wide, effect: allow }\n`]);
  } catch (error) {
    expect(String(error)).toContain('write them into a rule of effect: constrain with the same match');
  }
});

test.each([
  [
    'by leaving it out, where absence is allowed',
    '{ id: b, effect: allow, when: { params.amount: { lte: 5, if_absent: true } } }',
    'leaving params.amount out',
  ],
  [
    'by leaving it out, where nothing is asked for',
    '{ id: b, effect: allow, when: { params.amount: { exists: false } } }',
    'leaving params.amount out',
  ],
  [
    'by another type',
    '{ id: b, effect: allow, when: { params.amount: { in: [all, none] } } }',
    'sending params.amount as another type than number',
  ],
  [
    'by a type that is asked for',
    '{ id: b, effect: allow, when: { params.amount: { type: string } } }',
    'sending params.amount as another type',
  ],
  [
    'for a part of the tools',
    '{ id: b, effect: allow, match: { tools: [payments.get] } }',
    'leaving params.amount out',
  ],
  [
    'with another budget',
    '{ id: b, effect: allow, obligations: [ { budget: { use: other, amount: 1 } } ] }',
    'leaving params.amount out',
  ],
  [
    'under a rule that denies only others',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, match: { agents: { team: [sales] } }, unless: { params.amount: { type: number } } }',
    'leaving params.amount out',
  ],
  [
    'under a rule that denies only of other tools',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, match: { tools: [mail.send] }, unless: { params.amount: { type: number } } }',
    'leaving params.amount out',
  ],
  [
    'under a rule that denies only what can be judged',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, on_unknown: skip, when: { params.amount: { gt: 500 } } }',
    'leaving params.amount out',
  ],
  [
    'where a param is asked for whose name begins alike',
    '{ id: b, effect: allow, when: { params.amount_note: late } }',
    'leaving params.amount out',
  ],
  [
    'by leaving it out, where one of several conditions is that',
    '{ id: b, effect: allow, when: { any: [ { params.amount: { lte: 5 } }, { params.amount: { exists: false } } ] } }',
    'leaving params.amount out',
  ],
  [
    'by leaving it out, where it must not be there',
    '{ id: b, effect: allow, unless: { params.amount: { exists: true } } }',
    'leaving params.amount out',
  ],
  [
    'by leaving it out, where it must be no number',
    '{ id: b, effect: allow, unless: { params.amount: { type: number } } }',
    'leaving params.amount out',
  ],
  [
    'by leaving it out, where absence is not what is excepted',
    '{ id: b, effect: allow, unless: { params.amount: { gt: 5, if_absent: false } } }',
    'leaving params.amount out',
  ],
  [
    'by an object, where a part of it is asked for',
    '{ id: b, effect: allow, when: { params.amount.value: { gt: 0 } } }',
    'sending params.amount as another type than number',
  ],
  [
    'by an object, where only what has no part of that name is refused',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, when: { params.amount.value: { exists: false } } }',
    'sending params.amount as another type than number',
  ],
  [
    'by another type, where it must not be absent',
    '{ id: b, effect: allow, unless: { params.amount: { exists: false } } }',
    'sending params.amount as another type than number',
  ],
  [
    'once a rule that denies is over',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, until: 2026-06-01, unless: { params.amount: { type: number } } }',
    'leaving params.amount out',
  ],
  [
    'before a rule that denies begins',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, from: 2026-06-01, unless: { params.amount: { type: number } } }',
    'leaving params.amount out',
  ],
])('%s', (_what, other, how) => {
  expect(faults(ASKS, other).join('\n')).toContain(how);
});

test.each([
  ['no other rule', '{ id: b, effect: deny, when: { params.amount: { gt: 5 } } }'],
  ['one that needs the amount too', '{ id: b, effect: allow, when: { params.amount: { gt: 500 } } }'],
  ['one of other tools', '{ id: b, effect: allow, match: { tools: [mail.send] } }'.replace('mail.send', 'mail.send')],
  [
    'one that holds the same budget',
    '{ id: b, effect: allow, obligations: [ { budget: { use: day, amount: params.amount } } ] }',
  ],
  ['one that is in shadow', '{ id: b, effect: allow, mode: shadow }'],
  [
    'one beside a rule that refuses what cannot be judged',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, unless: { params.amount: { type: number } } }',
  ],
  [
    'one beside a rule that pauses what cannot be judged',
    '{ id: b, effect: allow }\n  - { id: d, effect: pause, unless: { params.amount: { type: number } } }',
  ],
  [
    'one beside a rule that refuses too much, and so what is unknown',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, when: { params.amount: { gt: 500 } } }',
  ],
  [
    'one beside a rule that refuses what cannot be judged, or else something',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, when: { any: [ { not: { params.amount: { type: number } } }, { agent.team: sales } ] } }',
  ],
  [
    'one beside a rule that refuses what cannot be judged, of tools by their names',
    '{ id: b, effect: allow }\n  - { id: d, effect: deny, match: { tools: ["*.*"] }, unless: { params.amount: { type: number } } }',
  ],
  ['one that wants a whole number', '{ id: b, effect: allow, when: { params.amount: { type: integer } } }'],
  [
    'one beside a rule that asks the same of all',
    '{ id: b, effect: allow }\n  - { id: c, effect: constrain, obligations: [ { budget: { use: day, amount: params.amount } } ] }',
  ],
])('cannot be avoided through %s', (_what, other) => {
  const asks = other.includes('mail.send')
    ? ASKS.replace('effect: allow,', 'effect: allow, match: { tools: [payments.refund] },')
    : ASKS;
  expect(faults(asks, other)).toEqual([]);
});

test('an amount that is one of several conditions can be left out like one that stands alone', () => {
  const either = '{ any: [ { params.amount: { lte: 5 } }, { params.amount: { gt: 400 } } ] }';
  const asks = ASKS.replace('{ params.amount: { lte: 500 } }', either);
  expect(faults(asks, '{ id: b, effect: allow }').join('\n')).toContain('leaving params.amount out');
});

test('where a file has another fault nothing is compared: some of its rules are missing', () => {
  const sound = `${HEAD}${BUDGET}rules:\n  - ${ASKS}\n  - { id: wide, effect: allow }\n`;
  const faulty = `${HEAD.replace('name: s', 'name: t')}rules:\n  - { id: no, effect: dney }\n`;
  expect(faultsOf(sound, faulty)).toEqual([expect.stringContaining('wrong_value')]);
});

test('rules for different agents, or of different times, do not meet', () => {
  const of = (team: string, rule: string) =>
    rule.replace('effect: allow', `effect: allow, match: { agents: { team: [${team}] } }`);
  expect(faults(of('support', ASKS), of('sales', '{ id: b, effect: allow }'))).toEqual([]);
  expect(faults(of('support', ASKS), of('support', '{ id: b, effect: allow }'))).toHaveLength(1);
  expect(
    faults(
      ASKS.replace('effect: allow', 'effect: allow, until: 2026-01-01'),
      '{ id: b, effect: allow, from: 2026-01-01 }',
    ),
  ).toEqual([]);
});

test('rules for some of the same agents meet, and one that refuses others, or only a part of them, covers neither', () => {
  const of = (teams: string, rule: string) =>
    rule.replace('effect: allow', `effect: allow, match: { agents: { team: [${teams}] } }`);
  const wide = of('sales', '{ id: b, effect: allow }');
  const asks = of('support, sales', ASKS);
  expect(faults(asks, wide)).toHaveLength(1);
  const denies = (team: string) =>
    `{ id: d, effect: deny, when: { ${team} }, unless: { params.amount: { type: number } } }`;
  expect(faults(asks, wide, denies('agent.team: { in: [sales, support] }'))).toEqual([]);
  expect(faults(asks, wide, denies('agent.team: sales'))).toEqual([]);
  const both = of('support, sales', '{ id: b, effect: allow }');
  expect(faults(asks, both, denies('agent.team: support'))).toHaveLength(1);
  expect(faults(of('support', ASKS), '{ id: b, effect: allow }')).toHaveLength(1);
  expect(faults(asks, wide, denies('not: { agent.team: sales }'))).toHaveLength(1);
});

test('an amount that has to be one number is avoided by a text that another rule asks for', () => {
  const one = ASKS.replace('{ lte: 500 }', '5');
  expect(faults(one, '{ id: b, effect: allow, when: { params.amount: all } }').join()).toContain(
    'sending params.amount as another type than number',
  );
});

test("a bound that a fact chooses is a number too; a text that tells calls apart is the caller's choice, and what is known of an agent is not", () => {
  const values = 'values: { auto: { by: env, of: { prod: 5 }, else: 9 } }\n';
  const bound = ASKS.replace('lte: 500', 'lte: $auto');
  expect(faultsOf(`${HEAD}${values}${BUDGET}rules:\n  - ${bound}\n  - { id: b, effect: allow }\n`)).toHaveLength(1);
  for (const when of ['{ params.from: burst }', '{ agent.attributes.trust: { lte: 5 } }'])
    expect(faults(ASKS.replace('{ params.amount: { lte: 500 } }', when), '{ id: b, effect: allow }')).toEqual([]);
});

test('a rule in another file is a way around too', () => {
  const other = `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: t\nrules:\n  - { id: wide, effect: allow }\n`;
  expect(faultsOf(`${HEAD}${BUDGET}rules:\n  - ${ASKS}\n`, other).join()).toContain("'t/wide' allows it then");
});
