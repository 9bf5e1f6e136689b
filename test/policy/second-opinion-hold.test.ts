import { setImmediate as turn } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import { SecondOpinion } from '../../src/policy/second-opinion.ts';
import { longestHold } from '../longest-hold.ts';
import { shortest } from '../shortest.ts';
import { call, compileText, HEAD } from './fixtures.ts';

const MOST_MS = 50;
/** Turns of the event loop that a sample has: more than it may take. */
const TURNS = 400;

const numbers = (count: number): readonly number[] => Array.from({ length: count }, (_, n) => n);
const rule = (id: string, parts: readonly string[]): string =>
  `  - { id: ${id}, effect: deny, when: { all: [{ params.amount: { gt: 5 } }, ${parts.join(', ')}] } }\n`;
const TEXT = 'ab'.repeat(2_000);
/** Of the longest that a policy may have. */
const PATTERN = '*a*b'.repeat(60);

/** What decides stops at the first condition of each rule; the engine looks at all. */
const WORST: Readonly<Record<string, () => { readonly rules: string; readonly params: JsonObject }>> = {
  'as many leaves as are compared': () => ({
    rules: rule(
      'leaves',
      numbers(990).map((n) => `{ params.f${n}: { gt: ${n} } }`),
    ),
    params: { amount: 1, ...Object.fromEntries(numbers(990).map((n) => [`f${n}`, 5])) },
  }),
  'as many patterns as are compared, and long texts': () => ({
    rules: rule(
      'patterns',
      numbers(48).map((n) => `{ params.t${n % 4}: { glob: "${PATTERN}${n}" } }`),
    ),
    params: { amount: 1, t0: TEXT, t1: TEXT, t2: TEXT, t3: TEXT.slice(400) },
  }),
  'a pattern on each of many elements': () => ({
    rules: rule('elements', [`{ params.l: { every: { item: { glob: "${PATTERN}" } } } }`]),
    params: { amount: 1, l: numbers(990).map(() => 'abababab') },
  }),
  'many rules': () => ({
    rules: numbers(200)
      .map((n) => rule(`r${n}`, [`{ params.t: { glob: "${PATTERN}${n}" } }`]))
      .join(''),
    params: { amount: 1, t: TEXT },
  }),
};

it.each(Object.entries(WORST))(
  `a second opinion holds the event loop for at most ${MOST_MS} ms: %s`,
  async (_what, make) => {
    const { rules, params } = make();
    const set = compileText(`${HEAD}rules:\n${rules}`);
    const faults: unknown[] = [];
    const opinion = new SecondOpinion({
      everyMs: () => 1,
      elapsed: () => performance.now(),
      later: (run) => setImmediate(run),
      found: (difference) => faults.push(difference),
      failed: (error) => faults.push(error),
    });
    const held = await shortest(MOST_MS, (time) =>
      longestHold(async () => {
        opinion.offer('call', set, call({ now: 1_000 * (time + 1), params }));
        for (const _ of numbers(TURNS)) await turn();
      }),
    );
    expect(held).toBeLessThan(MOST_MS);
    expect(faults).toEqual([]);
  },
);

it('other work has its turn between the patterns of one rule', async () => {
  const globs = numbers(40).map((n) => `{ params.t: { glob: "*${n}*" } }`);
  const set = compileText(`${HEAD}rules:\n${rule('one', globs)}`);
  let now = 0;
  let turns = 0;
  const opinion = new SecondOpinion({
    everyMs: () => 1_000,
    elapsed: () => (now += 1),
    later: (run) => {
      turns += 1;
      setImmediate(run);
    },
    found: () => undefined,
    failed: () => undefined,
  });
  opinion.offer('call', set, call({ now: 1_000, params: { amount: 1, t: 'text' } }));
  for (const _ of numbers(TURNS)) await turn();
  // Each look at the clock is a ms later, and after five it is another's turn.
  expect(turns).toBeGreaterThan(6);
});
