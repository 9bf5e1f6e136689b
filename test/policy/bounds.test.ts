import { expect, test } from 'vitest';
import { faultsOf, HEAD } from './fixtures.ts';

const rule = (more: string): string => `${HEAD}rules:\n  - { id: r, effect: allow, ${more} }\n`;

function conditions(levels: number): string {
  return levels === 0 ? '{ params.a: 1 }' : `{ not: ${conditions(levels - 1)} }`;
}

function datesOf(count: number): string {
  const dates = Array.from({ length: count }, (_, day) => new Date(day * 86_400_000).toISOString().slice(0, 10));
  return `lists: { holidays: [${dates.map((date) => `"${date}"`).join(', ')}] }`;
}

function linksOf(count: number): string {
  const linked = Array.from({ length: count }, (_, at) => `e${at + 1}: { of: e${at}, link: parent }`);
  return `entities: { e0: { type: customer, id: params.id }, ${linked.join(', ')} }`;
}

const namesOf = (count: number, name: string): string => Array.from({ length: count }, (_, n) => name + n).join(', ');

const asking = (more: string): string =>
  `${HEAD}rules:\n  - { id: r, effect: require_approval, approval: { approvers: { roles: [oncall] }, ${more} } }\n`;

// What a message names as the most is taken, and one more is not.
test.each<[what: string, most: number, text: (count: number) => string, said: string]>([
  [
    'days of a window',
    36_500,
    (days) => `${HEAD}budgets: { b: { unit: x, limit: 5, rolling: ${days}d } }\nrules: [ { id: r, effect: allow } ]\n`,
    "'36501d' is longer than 36500d",
  ],
  [
    'dates that a schedule leaves out',
    1_000,
    (dates) =>
      `${HEAD}${datesOf(dates)}\nschedules: { office: { except_dates: $holidays } }\nrules: [ { id: r, effect: allow } ]\n`,
    'More than 1000 dates',
  ],
  [
    'hours for which calls alike are let in',
    24,
    (hours) =>
      `${HEAD}rules:\n  - { id: r, effect: require_approval, approval: { approvers: { users: [ada] }, allow_alike: { times: 1, for: ${hours}h } } }\n`,
    "'25h' is longer than 24h",
  ],
  ['levels of conditions', 32, (levels) => rule(`when: ${conditions(levels)}`), 'nest deeper than 32 levels'],
  [
    'characters of a pattern',
    256,
    (length) => rule(`when: { params.a: { glob: "${'a'.repeat(length)}" } }`),
    'A pattern has at most 256 characters',
  ],
  [
    'links of an entity in a row',
    3,
    (links) => `${HEAD}${linksOf(links)}\nrules: [ { id: r, effect: allow, when: { brain.e${links}.tier: x } } ]\n`,
    'at most 3 links in a row',
  ],
  [
    'characters of the name of an entity',
    63,
    (length) =>
      `${HEAD}entities: { ${'e'.repeat(length)}: { type: t, id: params.x } }\nrules: [ { id: r, effect: allow } ]\n`,
    'cannot stand in a path',
  ],
  [
    'characters of the type of an entity',
    64,
    (length) =>
      `${HEAD}entities: { e: { type: ${'t'.repeat(length)}, id: params.x } }\nrules: [ { id: r, effect: allow } ]\n`,
    "'type' has 65 characters; at most 64 are allowed",
  ],
  [
    'characters of a reason',
    1_000,
    (length) => rule(`reason: "${'a'.repeat(length)}"`),
    "'reason' has 1001 characters; at most 1000 are allowed",
  ],
  [
    'facts that a budget is kept by',
    8,
    (facts) =>
      `${HEAD}budgets: { b: { unit: x, limit: 5, per: day, by: [${namesOf(facts, 'agent.attributes.a')}] } }\nrules: [ { id: r, effect: allow } ]\n`,
    "'by' has 9 entries; at most 8 are allowed",
  ],
  [
    'obligations of a rule',
    32,
    (count) => rule(`obligations: [${'{ rate_limit: { by: [], limit: 5, per: minute } },'.repeat(count)}]`),
    "'obligations' has 33 entries; at most 32 are allowed",
  ],
  ['people who have to agree', 20, (quorum) => asking(`quorum: ${quorum}`), "'quorum' must be at most 20, not 21"],
  [
    'calls alike that are let in',
    100,
    (times) => asking(`allow_alike: { times: ${times}, for: 1h }`),
    "'times' must be at most 100, not 101",
  ],
  [
    'values that an approver chooses from',
    50,
    (count) => asking(`editable: { a: { one_of: [${namesOf(count, 'v')}] } }`),
    "'one_of' has 51 entries; at most 50 are allowed",
  ],
])('%s: %i, and not one more', (_, most, text, said) => {
  expect(faultsOf(text(most))).toEqual([]);
  expect(faultsOf(text(most + 1))).toContainEqual(expect.stringContaining(said));
});
