import { describe, expect, test } from 'vitest';
import type { Entity } from '../../src/effects/model/entity.ts';
import type { JsonObject } from '../../src/json/value.ts';
import type { PolicyInput } from '../../src/policy/input.ts';
import { atOnce } from '../../src/policy/operators.ts';
import { packPolicies, unpackPolicies } from '../../src/policy/packed.ts';
import { compileAll, faultsOf, HEAD, judge, outcome, TOOLS } from './fixtures.ts';

const ENTITIES = `entities:
  customer: { type: customer, id: params.customer_id }
  payment: { type: payment, id: params.payment_id }
  payer: { of: payment, link: paid_by }
  boss: { of: payer, link: led_by }
  mine: { type: desk, id: agent.id }
`;

function entity(type: string, id: string, attributes: JsonObject, links: Entity['links'] = []): Entity {
  return { type, id, name: `Name of ${id}`, attributes, links };
}

const link = (rel: string, type: string, id: string) => ({ rel, type, id });
const BRAIN: readonly Entity[] = [
  entity('customer', 'c1', { tier: 'gold', limit: 500, id: 'an attribute', address: { city: 'Köln' }, tags: ['vip'] }, [
    link('led_by', 'person', 'p1'),
  ]),
  entity('customer', 'c2', { tier: 7, limit: null }),
  entity('payment', 'pay1', {}, [link('paid_by', 'customer', 'c1')]),
  entity('payment', 'pay2', {}, [link('paid_by', 'customer', 'c1'), link('paid_by', 'customer', 'c2')]),
  entity('payment', 'pay3', {}, [link('paid_by', 'customer', 'gone')]),
  entity('payment', 'pay4', {}, [link('refunded_to', 'customer', 'c1')]),
  entity('person', 'p1', { sanctioned: false }),
  entity('desk', 'support-bot', { open: true }),
];
const brain: NonNullable<PolicyInput['entity']> = (type, id) =>
  BRAIN.find((one) => one.type === type && one.id === id) ?? null;

function setOf(head: string, ...lines: readonly string[]) {
  return compileAll([`${HEAD}${head}rules:\n${lines.map((line) => `  - ${line}\n`).join('')}`]);
}

function said(when: string, params: JsonObject, effect: 'allow' | 'deny'): string {
  const all = effect === 'deny' ? ['{ id: all, effect: allow }'] : [];
  const { set, plan } = setOf(ENTITIES, `{ id: r, effect: ${effect}, when: ${when} }`, ...all);
  const direct = outcome(judge(set, { params, entity: brain }));
  // The rules that a gateway runs were packed in another thread.
  const packed = atOnce(unpackPolicies(packPolicies(plan, set, TOOLS), TOOLS, new Map()));
  expect(outcome(judge(packed, { params, entity: brain }))).toBe(direct);
  return direct;
}

describe('facts of the company brain', () => {
  const C1 = { customer_id: 'c1' };

  test.each([
    ['{ brain.customer.tier: gold }', C1],
    ['{ brain.customer.limit: { gte: 500 } }', C1],
    ['{ brain.customer.address.city: Köln }', C1],
    ['{ brain.customer.tags: { contains: vip } }', C1],
    ['{ brain.customer.id: c1 }', C1],
    ['{ brain.customer.type: customer }', C1],
    ['{ brain.customer.name: Name of c1 }', C1],
    ['{ brain.customer.attributes.id: an attribute }', C1],
    ['{ brain.customer.attributes.address.city: Köln }', C1],
    ['{ brain.payer.tier: gold }', { payment_id: 'pay1' }],
    ['{ brain.boss.sanctioned: false }', { payment_id: 'pay1' }],
    ['{ brain.mine.open: true }', {}],
    ['{ params.amount: { lte: { fact: brain.customer.limit } } }', { ...C1, amount: 500 }],
    ['{ fact: brain, path: customer.tier, operator: equal, value: gold }', C1],
  ])('hold: %s', (when, params) => {
    expect(said(when, params, 'allow')).toBe('permit');
    expect(said(`{ not: ${when} }`, params, 'deny')).toBe('permit');
  });

  test.each([
    ['no such entity', '{ brain.customer.tier: gold }', { customer_id: 'none' }],
    ['no id', '{ brain.customer.tier: gold }', {}],
    ['an id that is no text', '{ brain.customer.tier: gold }', { customer_id: ['c1'] }],
    ['no such attribute', '{ brain.customer.colour: red }', { customer_id: 'c1' }],
    ['an attribute that is null', '{ brain.customer.limit: { lt: 1 } }', { customer_id: 'c2' }],
    ['an attribute of another type', '{ brain.customer.tier: gold }', { customer_id: 'c2' }],
    ['what every object inherits', '{ brain.customer.toString: x }', { customer_id: 'c1' }],
    ['two links that could be meant', '{ brain.payer.tier: gold }', { payment_id: 'pay2' }],
    ['a link to what is not there', '{ brain.payer.tier: gold }', { payment_id: 'pay3' }],
    ['a link of another kind', '{ brain.payer.tier: gold }', { payment_id: 'pay4' }],
    ['no link', '{ brain.boss.sanctioned: false }', { payment_id: 'pay3' }],
  ])('are unknown, and nothing is let through: %s', (_what, when, params) => {
    expect(said(when, params, 'allow')).toBe('denied_policy');
    expect(said(`{ not: ${when} }`, params, 'allow')).toBe('denied_policy');
    expect(said(when, params, 'deny')).toBe('denied_policy');
    expect(said(`{ not: ${when} }`, params, 'deny')).toBe('denied_policy');
  });

  test('are unknown where there is no brain at all', () => {
    const { set } = setOf(ENTITIES, '{ id: r, effect: allow, when: { brain.customer.tier: gold } }');
    expect(outcome(judge(set, { params: C1 }))).toBe('denied_policy');
  });

  test('say in the trace which entity could not be judged', () => {
    const { set } = setOf(ENTITIES, '{ id: r, effect: deny, when: { brain.payer.tier: gold } }');
    const { trace } = judge(set, { params: { payment_id: 'pay2' }, entity: brain });
    expect(trace.matched[0]?.unknown).toEqual(['brain.payer.tier <payment params.payment_id > paid_by>']);
  });

  test('choose values, and rows of budgets', () => {
    const { set } = setOf(
      `${ENTITIES}values: { cap: { by: brain.customer.tier, of: { gold: 900 }, else: 10 } }
budgets: { spent: { unit: EUR, by: [brain.customer.id], per: day, limit: 1000 } }
`,
      '{ id: r, effect: allow, when: { params.amount: { lte: $cap } }, obligations: [ { budget: { use: spent, amount: params.amount } } ] }',
    );
    const verdict = judge(set, { params: { customer_id: 'c1', amount: 800 }, entity: brain });
    expect(verdict).toMatchObject({ kind: 'permit', obligations: [{ budget: 's/spent' }] });
    expect(outcome(judge(set, { params: { customer_id: 'c2', amount: 800 }, entity: brain }))).toBe('denied_policy');
  });

  test('of two sets that call different entities by one name are two facts', () => {
    const file = (name: string, param: string): string =>
      `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: ${name}\nentities: { it: { type: customer, id: params.${param} } }\nrules:\n  - { id: r, effect: deny, when: { not: { brain.it.tier: gold } } }\n`;
    const { set } = compileAll([file('one', 'a'), file('two', 'b'), `${HEAD}rules: [ { id: all, effect: allow } ]\n`]);
    expect(outcome(judge(set, { params: { a: 'c1', b: 'c1' }, entity: brain }))).toBe('permit');
    expect(outcome(judge(set, { params: { a: 'c1', b: 'none' }, entity: brain }))).toBe('denied_policy');
    expect(outcome(judge(set, { params: { a: 'none', b: 'c1' }, entity: brain }))).toBe('denied_policy');
  });

  test.each([
    ['{ it: { type: customer, id: params.x } }', 'brain.other.tier', 'unknown_fact'],
    ['{ it: { type: customer, id: params.x } }', 'brain.it', 'unknown_fact'],
    ['{ it: { type: customer, id: params.x } }', 'brain.it.__proto__', 'bad_path'],
    ['{ it: { type: customer, id: brain.it.id } }', 'brain.it.tier', 'unknown_fact'],
    ['{ it: { type: customer, id: customer_id } }', 'brain.it.tier', 'unknown_fact'],
    ['{ it: { type: "no word", id: params.x } }', 'brain.it.tier', 'wrong_value'],
    ['{ it: { of: at, link: "no word" }, at: { type: t, id: params.x } }', 'brain.it.tier', 'wrong_value'],
    ['{ it: { type: t, id: params.x }, "a b": { type: t, id: params.x } }', 'brain.it.tier', 'wrong_value'],
    ['{ it: { of: other, link: x } }', 'brain.it.tier', 'unknown_entity'],
    ['{ it: { of: it, link: x } }', 'brain.it.tier', 'too_deep'],
    ['{ it: { type: customer } }', 'brain.it.tier', 'missing_field'],
  ])('are refused where they say nothing: %s, %s', (entities, fact, code) => {
    const faults = faultsOf(
      `${HEAD}entities: ${entities}\nrules: [ { id: r, effect: allow, when: { ${fact}: x } } ]\n`,
    );
    expect(faults.map((fault) => fault.split(' ')[1])).toContain(code);
  });

  test('are asked for by a name that nearly is one, and the right one is said', () => {
    const text = `${HEAD}${ENTITIES}  other: { of: paymnt, link: x }\nrules: [ { id: r, effect: allow } ]\n`;
    expect(() => compileAll([text])).toThrow("did you mean 'payment'?");
  });
});
