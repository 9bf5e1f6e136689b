import { expect, it } from 'vitest';
import { MUTANTS } from './mutants.ts';
import { actions, copyWorld, newWorld, PRODUCTION, type Rules, type Scope, violation, type World } from './world.ts';

const SCOPE: Scope = {
  keys: ['a', 'b'],
  gateways: 3,
  crashes: 2,
  freezes: 2,
  requests: 4,
  amount: 2,
  limits: { narrow: 3, wide: 8 },
  idempotentUpstream: false,
};

/**
 * The state of a world without what cannot matter: absolute time, names of gateways, nonces. Two worlds with the same
 * signature have the same futures.
 */
function signature(world: World): string {
  const { now } = world;
  const nonces = new Map<string, number>();
  const label = (nonce: string): number => {
    const known = nonces.get(nonce) ?? nonces.size;
    nonces.set(nonce, known);
    return known;
  };
  const left = (at: number): number => Math.max(-1, at - now);
  const effects = [...world.state.effects.values()]
    .filter((effect) => effect.life.state !== 'denied')
    .map((effect) => {
      const { life } = effect;
      const lease =
        life.state === 'executing' || life.state === 'unknown'
          ? [
              label(life.lease.fence.nonce),
              left(life.lease.dispatchBy),
              left(life.lease.leaseEnd),
              left(life.lease.quiesceUntil),
            ]
          : [];
      const { idempotencyKey, attempt, generation, mayHaveHappened, holdState } = effect;
      return JSON.stringify([idempotencyKey, life.state, attempt, generation, mayHaveHappened, holdState, ...lease]);
    })
    .sort();
  const gateways = world.gateways
    .map((gateway) =>
      gateway.kind === 'idle'
        ? 'idle'
        : [
            gateway.kind,
            label(gateway.attempt.fence.nonce),
            left(gateway.attempt.dispatchBy),
            left(gateway.attempt.timeoutAt),
            gateway.kind === 'admitted' && gateway.frozenSince !== null,
          ].join(),
    )
    .sort();
  const wire = world.wire
    .map((message) => [message.upstreamKey, label(message.from.nonce), left(message.until)].join())
    .sort();
  return JSON.stringify([
    effects,
    gateways,
    wire,
    world.happened,
    [...world.state.budgets].map(([key, { spent, held }]) => [key, spent, held]),
    [...world.state.bindings.keys()],
    world.crashesLeft,
    world.freezesLeft,
    world.requestsLeft,
  ]);
}

interface Search {
  readonly states: number;
  readonly broken: string | null;
}

function search(scope: Scope, rules: Rules): Search {
  const first = newWorld(scope);
  const seen = new Set([signature(first)]);
  const open: World[] = [first];
  for (let world = open.pop(); world !== undefined; world = open.pop()) {
    for (const action of actions(world, scope, rules)) {
      const next = copyWorld(world);
      action.apply(next);
      const broken = violation(next, scope);
      if (broken !== null) return { states: seen.size, broken };
      const known = signature(next);
      if (seen.has(known)) continue;
      seen.add(known);
      open.push(next);
    }
  }
  return { states: seen.size, broken: null };
}

it('exhaustive: 2 keys, 2 budgets, 3 gateways, crashes and freezes: no reachable state breaks an invariant', {
  timeout: 180_000,
}, () => {
  const result = search(SCOPE, PRODUCTION);
  console.log(`${result.states} states`);
  expect(result.broken).toBeNull();
  expect(result.states).toBeGreaterThan(10_000);
});

it('exhaustive where the upstream removes duplicates and unknown outcomes are repeated', { timeout: 180_000 }, () => {
  const result = search({ ...SCOPE, keys: ['a'], idempotentUpstream: true }, PRODUCTION);
  console.log(`${result.states} states`);
  expect(result.broken).toBeNull();
});

it.each(Object.keys(MUTANTS))('exhaustive search catches the mutant: %s', { timeout: 240_000 }, (name) => {
  const rules = MUTANTS[name] ?? PRODUCTION;
  const found = search(SCOPE, rules).broken ?? search({ ...SCOPE, idempotentUpstream: true }, rules).broken;
  expect(found).toEqual(expect.any(String));
});
