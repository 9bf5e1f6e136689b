import type { Json, JsonObject } from '../../src/json/value.ts';
import type { Random } from './random.ts';
import type { ReferenceNames } from './reference.ts';

/** Names that random conditions refer to, for the room (as YAML data) and for the reference. */
export const NAMES: ReferenceNames = {
  lists: { currencies: ['EUR', 'USD'], sizes: [1, 2, 900], nobody: [] },
  values: {
    auto: { by: ({ env }) => env, of: { prod: 500, staging: 5 }, else: 900 },
    home: { by: ({ agent }) => agent.team, of: { support: 'EUR' }, else: 'USD' },
    kinds: { by: ({ tool }) => tool.kind, of: { read: ['EUR', 'CHF'] }, else: ['USD'] },
  },
  conditions: {
    small: { 'params.amount': { lte: 500 } },
    odd: { any: [{ not: { condition: 'small' } }, { 'params.currency': { nin: '$currencies' } }] },
  },
};

const SCALARS: readonly Json[] = [
  'EUR',
  'USD',
  '',
  '900',
  '0x384',
  'a.b:c/d',
  1,
  2,
  5,
  500,
  900,
  0,
  -0,
  -1,
  1e308,
  true,
  false,
];
const HOSTILE: readonly Json[] = [
  ...SCALARS,
  null,
  '900 EUR',
  'constructor',
  '__proto__',
  '\u202eEUR',
  'EUR\nUSD',
  'ada@example.com',
  'Ada+x@a.EXAMPLE.com',
  'x@evil.com, ada@example.com',
  'Ada <ada@example.com>',
  'b.a.example.com',
  'example.com.',
  2 ** 53,
  0.1 + 0.2,
  [],
  {},
  [900],
  [900, 1],
  ['EUR'],
  ['EUR', 900, null],
  { value: 900 },
  { length: 3 },
  { fact: 'params.amount' },
  { a: { a: 1 }, b: [1, { c: null }] },
  { b: [1, { c: null }], a: { a: 1 } },
  [
    { sku: 'A-1', qty: 2 },
    { sku: 'B-2', qty: 11 },
  ],
  [{ sku: 'A-1' }, { qty: '2' }, null, 'A-1'],
  [{ sku: 'A-1', qty: 3 }],
  [['EUR']],
];
const PARAMS = ['amount', 'currency', 'tags', 'lines', 'nested', 'list', 'a.b'];
const PATHS = [
  'params.amount',
  'params.currency',
  'params.tags',
  'params.lines',
  'params.nested.a',
  'params["a.b"]',
  'params.list[0]',
  'agent.team',
  'agent.roles',
  'agent.attributes.trust',
  'env',
  'tool.kind',
  'target',
  'key.profile',
  'request.ip',
];
const ITEM_PATHS = ['item', 'item.sku', 'item.qty', 'params.amount', 'env'];
const TEXTS = ['EUR', 'A-', 'a.b', 'b:c', '9', 'r'];
const GLOBS = ['*', '**', 'a.*', 'a.**', 'EU?', '*-*', 'A-1', 'payment:*'];
const EMAILS = ['*@example.com', 'ada@example.com', '*@**.example.com', 'ada@*.example.com'];
const DOMAINS = ['example.com', '*.example.com', '**.example.com', 'a.example.com'];
const REGEXES = ['EUR|USD', '[0-9]+', 'A-.*', '[a-z.:/]+', 'EUR$', '.{3}', 'EUR.*'];

const USUAL: Readonly<Record<string, readonly Json[]>> = {
  amount: [1, 5, 499, 500, 501, 900],
  currency: ['EUR', 'USD', 'CHF', 'A-1', 'ada@example.com', 'a.example.com'],
  tags: [['EUR'], ['EUR', 'USD'], [], [1, 2]],
  lines: [
    [
      { sku: 'A-1', qty: 2 },
      { sku: 'B-2', qty: 11 },
    ],
    [{ sku: 'A-1', qty: 3 }],
    [],
  ],
};

/** Any param may be absent, or anything at all. */
export function hostileParams(random: Random): JsonObject {
  const entries: [string, Json][] = [];
  for (const name of PARAMS) {
    if (random.chance(0.25)) continue;
    const value = random.chance(0.5) ? random.pick(USUAL[name] ?? HOSTILE) : random.pick(HOSTILE);
    entries.push([name, name === 'nested' && random.chance(0.7) ? { a: value } : value]);
  }
  return Object.fromEntries(entries);
}

/** A condition in either form, as YAML would give it; always one that loads. */
export function randomBlock(random: Random, depth = 0, inItem = false): JsonObject {
  const paths = inItem ? ITEM_PATHS : PATHS;
  const roll = depth >= 3 ? 9 : random.below(10);
  switch (roll) {
    case 0:
      return { all: someBlocks(random, depth, inItem) };
    case 1:
      return { any: someBlocks(random, depth, inItem) };
    case 2:
      return { not: randomBlock(random, depth + 1, inItem) };
    case 3:
      return inItem
        ? { [random.pick(paths)]: randomTests(random, depth) }
        : { condition: random.pick(['small', 'odd']) };
    case 4:
      return inItem ? { [random.pick(paths)]: randomTests(random, depth) } : engineLeaf(random);
    case 5:
      return { [random.pick(paths)]: randomTests(random, depth), any: someBlocks(random, depth, inItem) };
    default: {
      const block: Record<string, Json> = { [random.pick(paths)]: randomTests(random, depth) };
      if (random.chance(0.3)) block[random.pick(paths)] = randomTests(random, depth);
      return block;
    }
  }
}

function someBlocks(random: Random, depth: number, inItem: boolean): Json {
  return Array.from({ length: 1 + random.below(3) }, () => randomBlock(random, depth + 1, inItem));
}

function randomTests(random: Random, depth: number): Json {
  if (random.chance(0.1)) return random.pick(SCALARS);
  const tests: Record<string, Json> = {};
  for (let count = random.chance(0.25) ? 2 : 1; count > 0; count -= 1) {
    const name = random.pick(OPERATORS);
    tests[name] = rightOf(random, name, depth);
  }
  if (!('exists' in tests) && !('type' in tests) && random.chance(0.2)) tests['if_absent'] = random.chance(0.5);
  return tests;
}

const OPERATORS =
  'eq ne in nin gt gte lt lte equals starts_with ends_with substring glob regex regex_find email_in domain_in contains contains_all some every exists type gt eq in some'.split(
    ' ',
  );

function rightOf(random: Random, name: string, depth: number): Json {
  switch (name) {
    case 'eq':
    case 'ne':
      return random.pick<Json>([
        random.pick(SCALARS),
        random.pick(SCALARS),
        { fact: random.pick(['agent.team', 'env', 'agent.attributes.trust', 'key.profile', 'agent.roles']) },
        { fact: random.pick(['params.amount', 'params.currency', 'target']), untrusted: true },
        '$home',
        '$auto',
      ]);
    case 'in':
    case 'nin':
      return random.pick<Json>([list(random), '$currencies', '$sizes', '$kinds', '$nobody', { fact: 'agent.roles' }]);
    case 'contains_all':
      return random.pick<Json>([list(random), '$currencies']);
    case 'gt':
    case 'gte':
    case 'lt':
    case 'lte':
      return random.pick<Json>([
        1,
        5,
        500,
        900,
        -1,
        '$auto',
        { fact: 'agent.attributes.trust' },
        { fact: 'agent.team' },
      ]);
    case 'equals':
      return random.pick(HOSTILE.filter((value) => value !== null && !(typeof value === 'object' && 'fact' in value)));
    case 'starts_with':
    case 'ends_with':
    case 'substring':
      return random.pick<Json>([
        random.pick(TEXTS),
        [random.pick(TEXTS), random.pick(TEXTS)],
        '$home',
        { fact: 'agent.team' },
      ]);
    case 'glob':
      return random.chance(0.5) ? random.pick(GLOBS) : [random.pick(GLOBS), random.pick(GLOBS)];
    case 'regex':
    case 'regex_find':
      return random.chance(0.5) ? random.pick(REGEXES) : [random.pick(REGEXES), random.pick(REGEXES)];
    case 'email_in':
      return random.chance(0.5) ? random.pick(EMAILS) : [random.pick(EMAILS), random.pick(EMAILS)];
    case 'domain_in':
      return random.chance(0.5) ? random.pick(DOMAINS) : [random.pick(DOMAINS), random.pick(DOMAINS)];
    case 'contains':
      return random.pick(SCALARS);
    case 'exists':
      return random.chance(0.5);
    case 'type':
      return random.pick<Json>([
        'string',
        'number',
        'integer',
        'boolean',
        'array',
        'object',
        'null',
        ['string', 'array'],
      ]);
    default:
      return randomBlock(random, depth + 1, true);
  }
}

function list(random: Random): Json {
  const type = random.pick(['string', 'number', 'boolean']);
  const pool = SCALARS.filter((value) => typeof value === type);
  return Array.from({ length: 1 + random.below(3) }, () => random.pick(pool));
}

const ENGINE_OPERATORS: Readonly<Record<string, string>> = {
  equal: 'eq',
  notEqual: 'ne',
  in: 'in',
  notIn: 'nin',
  lessThan: 'lt',
  lessThanInclusive: 'lte',
  greaterThan: 'gt',
  greaterThanInclusive: 'gte',
  contains: 'contains',
  doesNotContain: 'contains',
};

function engineLeaf(random: Random): JsonObject {
  const operator = random.pick(Object.keys(ENGINE_OPERATORS));
  const decorator = random.pick(['', '', 'not:', 'someFact:', 'everyFact:', 'not:someFact:', 'everyFact:not:']);
  const place = random.pick<JsonObject>([
    { fact: 'params', path: '$.amount' },
    { fact: 'params', path: 'tags' },
    { fact: 'agent', path: 'roles' },
    { fact: 'env' },
  ]);
  return {
    ...place,
    operator: decorator + operator,
    value: rightOf(random, ENGINE_OPERATORS[operator] ?? operator, 3),
  };
}
