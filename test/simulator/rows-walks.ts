import { seededRandom } from '../torture/random.ts';
import { newWorld, type Product, type Scope } from './rows-world.ts';

const STEPS = 120;

/** What a walk is about: some keys, and as much trouble as there may be. */
export function scopeOf(seed: number): Scope {
  const random = seededRandom(seed * 7919);
  const pick = <T>(all: readonly T[]): T => all[Math.floor(random() * all.length)] as T;
  return {
    keys: pick([
      ['a', 'b'],
      ['a', 'b', 'c'],
      ['d', 'e'],
      ['p', 'q'],
      ['v', 'a'],
      ['s', 't'],
      ['a', 'd', 'e', 'p', 'q', 'v'],
    ]),
    gateways: pick([2, 3]),
    skews: [0, Math.floor(random() * 1400) - 700, Math.floor(random() * 1400) - 700],
    requests: 10,
    faults: pick([0, 2, 6]),
    crashes: pick([0, 0, 2]),
    failovers: pick([0, 0, 0, 1]),
    people: pick([
      ['vote', 'sweep', 'resolve'],
      ['pause', 'lift', 'policy', 'sweep', 'vote'],
      ['claim', 'release', 'reserve', 'sweep', 'vote', 'resolve'],
    ] as const),
    deeds: pick([2, 5]),
    passes: [300, 1500, 4000],
    passings: pick([2, 6]),
    isUpstreamPrompt: false,
    knowsTheDead: random() < 0.5,
  };
}

/** Little but claims, of an agent that has almost all that it may have; some end soon. */
export function claimsOf(seed: number): Scope {
  return {
    ...scopeOf(seed),
    keys: ['s', 'd'],
    requests: 3,
    people: ['claim', 'claim another', 'release', 'reserve', 'sweep'],
    deeds: 8,
    passes: [300, 1500, 4000],
    passings: 6,
    claims: Array.from({ length: 19 }, (_, n) => (n < 3 ? 2000 : 30_000)),
  };
}

/** One random life of the world. @returns what broke, with the history that led there, or `null` */
export async function walk(
  seed: number,
  scope: Scope,
  product: Product,
): Promise<{ readonly broken: string; readonly history: readonly string[] } | null> {
  const random = seededRandom(seed);
  const world = await newWorld(scope, product);
  const history: string[] = [];
  for (let step = 0; step < STEPS; step += 1) {
    const possible = world.actions();
    let at = random() * possible.reduce((sum, { weight }) => sum + weight, 0);
    const chosen = possible.find(({ weight }) => (at -= weight) < 0) ?? possible.at(-1);
    if (chosen === undefined) break;
    history.push(chosen.name);
    chosen.apply();
    await world.turn();
    const broken = world.broken();
    if (broken !== null) return { broken, history };
  }
  history.push('the end');
  const broken = await world.end();
  return broken === null ? null : { broken, history };
}

const WALKS = 150;
const WALKS_OF_CLAIMS = 50;

/** What breaks in the first of all walks in which something does, with the history that led there; `null` where nothing does. */
export async function firstBroken(product: Product): Promise<readonly string[] | null> {
  const all = (of: (seed: number) => Scope, walks: number): readonly (readonly [number, Scope])[] =>
    Array.from({ length: walks }, (_, n) => [n + 1, of(n + 1)]);
  for (const [seed, scope] of [...all(claimsOf, WALKS_OF_CLAIMS), ...all(scopeOf, WALKS)]) {
    const found = await walk(seed, scope, product);
    if (found !== null) return [`seed ${seed}: ${found.broken}`, ...found.history];
  }
  return null;
}
