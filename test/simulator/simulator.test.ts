import { describe, expect, it } from 'vitest';
import { seededRandom } from '../torture/random.ts';
import { MUTANTS } from './mutants.ts';
import { actions, fsckOf, newWorld, PRODUCTION, type Rules, type Scope, violation } from './world.ts';

const SCOPE: Scope = {
  keys: ['a', 'b', 'c'],
  gateways: 3,
  crashes: 4,
  freezes: 4,
  requests: 14,
  amount: 3,
  limits: { small: 7, large: 100 },
  idempotentUpstream: false,
};
const STEPS = 90;

/** One random life of the world. @returns what broke, with the history that led there, or `null` */
function walk(
  seed: number,
  scope: Scope,
  rules: Rules,
): { readonly broken: string; readonly history: readonly string[] } | null {
  const random = seededRandom(seed);
  const world = newWorld(scope, 'ledger');
  const history: string[] = [];
  for (let step = 0; step < STEPS; step += 1) {
    const possible = actions(world, scope, rules);
    const chosen = possible[Math.floor(random() * possible.length)];
    if (chosen === undefined) break;
    chosen.apply(world);
    history.push(`${world.now} ${chosen.name}`);
    const broken = violation(world, scope);
    if (broken !== null) return { broken, history };
  }
  const differs = fsckOf(world);
  return differs === null ? null : { broken: differs, history };
}

function firstBroken(seeds: number, scope: Scope, rules: Rules): ReturnType<typeof walk> {
  for (let seed = 1; seed <= seeds; seed += 1) {
    const found = walk(seed, scope, rules);
    if (found !== null) return { ...found, history: [`seed ${seed}`, ...found.history] };
  }
  return null;
}

describe('seeded random walks through crashes, freezes, lost and late answers', () => {
  it('break nothing', () => {
    expect(firstBroken(4000, SCOPE, PRODUCTION)).toBeNull();
  });

  it('break nothing where the upstream removes duplicates and unknown outcomes are repeated', () => {
    expect(firstBroken(4000, { ...SCOPE, idempotentUpstream: true }, PRODUCTION)).toBeNull();
  });

  it('a seed replays', () => {
    const rules = MUTANTS['call a 500 a failure'] ?? PRODUCTION;
    const first = firstBroken(500, SCOPE, rules);
    const seed = Number(first?.history[0]?.slice('seed '.length));
    expect(walk(seed, SCOPE, rules)).toEqual({ broken: first?.broken, history: first?.history.slice(1) });
  });
});

describe('planted mutants are caught', () => {
  it('those that issue and design name are among them', () => {
    expect(Object.keys(MUTANTS)).toEqual(
      expect.arrayContaining([
        'drop the compare-and-set',
        'resolve early',
        'take over a lease',
        'delete on error',
        'take a redirect for a refusal',
      ]),
    );
  });

  it.each(Object.keys(MUTANTS))('%s', (name) => {
    const rules = MUTANTS[name] ?? PRODUCTION;
    const broken =
      firstBroken(20_000, SCOPE, rules) ?? firstBroken(20_000, { ...SCOPE, idempotentUpstream: true }, rules);
    expect(broken?.broken).toEqual(expect.any(String));
  });
});
