import type { Scope } from './rows-world.ts';

const SMALL: Scope = {
  keys: ['s', 't'],
  gateways: 2,
  skews: [0, 0],
  requests: 2,
  asks: [
    { gateway: 0, key: 's' },
    { gateway: 1, key: 't' },
  ],
  faults: 0,
  crashes: 0,
  failovers: 0,
  people: [],
  deeds: 0,
  passes: [],
  passings: 0,
  isUpstreamPrompt: true,
  knowsTheDead: false,
};

const SAME_KEY = [
  { gateway: 0, key: 's' },
  { gateway: 1, key: 's' },
];

/** Small worlds: two gateways, two keys, few messages; each with one kind of trouble. */
export const SCOPES: Readonly<Record<string, Scope>> = {
  // The smallest first.
  'an agent has all claims but one': {
    ...SMALL,
    keys: ['s'],
    requests: 0,
    people: ['claim another'],
    deeds: 2,
    claims: Array.from({ length: 19 }, () => 30_000),
  },
  'a claim ends, and another is asked for': {
    ...SMALL,
    keys: ['s'],
    requests: 0,
    people: ['claim another'],
    deeds: 1,
    claims: [2000, ...Array.from({ length: 19 }, () => 30_000)],
    passes: [3000],
    passings: 1,
  },
  'claims are released': {
    ...SMALL,
    keys: ['s'],
    requests: 0,
    people: ['release'],
    deeds: 1,
    claims: [30_000, 30_000],
    faults: 1,
  },
  'two keys, one budget': SMALL,
  'one key, two gateways': { ...SMALL, keys: ['s'], asks: SAME_KEY },
  'a message goes wrong': { ...SMALL, keys: ['s'], asks: SAME_KEY, faults: 1 },
  'a pause in between': {
    ...SMALL,
    keys: ['s'],
    requests: 1,
    asks: [{ gateway: 0, key: 's' }],
    people: ['pause'],
    deeds: 1,
  },
  'time passes': {
    ...SMALL,
    keys: ['s'],
    requests: 1,
    asks: [{ gateway: 0, key: 's' }],
    faults: 1,
    passes: [3000],
    passings: 1,
  },
  'a lost answer is looked for': {
    ...SMALL,
    keys: ['s'],
    asks: SAME_KEY,
    faults: 1,
    isOnlyLoss: true,
    passes: [600],
    passings: 1,
  },
};
