import { rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RedisStore } from '../../src/stores/redis/open.ts';
import { openRedisStore } from '../../src/stores/redis/open.ts';
import { emptyState, type MapState } from '../contract/map-view.ts';
import { admitRequest, ANY, leaseOf } from '../contract/requests.ts';
import { journalFolder, redisOptions } from '../redis/contract.ts';
import { randomOf, randomStep, type Seen, storeLikeView, sweepMap } from '../redis/random-steps.ts';
import { type RedisServer, startRedis } from '../redis/servers.ts';

const SEQUENCES = Number(process.env['SVC_DIFFERENTIAL'] ?? 60);
const STEPS = 60;
const FIRST_SEED = Number(process.env['SVC_SEED'] ?? 1);

describe('Redis decides what the pure steps decide', () => {
  let server: RedisServer;
  let store: RedisStore;
  let now = 1_750_000_000_000;
  const folder = journalFolder();

  beforeAll(async () => {
    server = await startRedis();
    store = await openRedisStore(
      redisOptions(server, { journalFolder: folder, clock: () => now, maxFreezeMs: 10_000 }),
    );
  });
  afterAll(async () => {
    await store.close();
    await server.stop();
    rmSync(folder, { recursive: true });
  });

  it(`in ${SEQUENCES} random sequences of ${STEPS} steps: same replies, same figures, same ledger`, async () => {
    const counts = new Map<string, number>();
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEQUENCES; seed += 1) {
      const workspace = `seed ${seed}`;
      const random = randomOf(seed);
      const state: MapState = emptyState({ policy: '', pauses: 0 });
      state.maxFreezeMs = 10_000;
      const seen: Seen = { attempts: [], approvals: [], granted: [], claims: [], reservations: [] };
      for (let n = 0; n < STEPS; n += 1) {
        now += random() < 0.1 ? 45_000 : 200 + Math.floor(random() * 3000);
        const step = randomStep(random, workspace, now, seen);
        const expected = step.onMap(state, now);
        const said = await step.onStore(store);
        expect(said, `seed ${seed}, step ${n}: ${step.name}`).toEqual(expected);
        note(seen, expected);
        const kind = `${step.name}: ${kindOf(expected)}`;
        counts.set(kind, (counts.get(kind) ?? 0) + 1);
      }
      // What nobody runs any more is declared by whoever reads it: so it is declared on both before they are compared.
      await store.sweep(10_000);
      sweepMap(state, now);
      await sameState(store, state, workspace, seed);
    }
    // Green on nothing is not green: the sequences must reach what matters.
    for (const kind of ['dispatch', 'pending', 'existing', 'refused', 'stale'])
      expect(counts.get(`admit: ${kind}`)).toBeGreaterThan(3);
    for (const kind of ['resolved', 'too_early', 'already_resolved']) {
      expect([...counts.keys()].some((name) => name.endsWith(`: ${kind}`))).toBe(true);
    }
    expect(counts.get('settle committed: refused')).toBeGreaterThan(3);
    expect(counts.get('vote approve: counted')).toBeGreaterThan(3);
    expect(counts.get('give up: given_up')).toBeGreaterThan(1);
    expect(counts.get('send granted: dispatch')).toBeGreaterThan(1);
    expect(counts.get('send granted: refused')).toBeGreaterThan(3);
  });

  it('gives an owner that asks again, because the answer was lost, a lease that begins anew', async () => {
    const request = admitRequest({ workspace: 'asked again' });
    const first = await store.admit(request);
    now += 3_000;
    const second = await store.admit(request);
    if (first.kind !== 'dispatch' || second.kind !== 'dispatch') throw new Error(`${first.kind}, ${second.kind}`);
    const { admittedAt, dispatchBy, leaseEnd, quiesceUntil } = leaseOf(second.effect);
    expect([admittedAt, dispatchBy, leaseEnd, quiesceUntil].map((at) => at - now)).toEqual([0, 2_000, 9_000, 79_000]);
    expect(second.effect).toMatchObject({ id: first.effect.id, attempt: 1 });
    expect(await store.effect('asked again', first.effect.id)).toEqual(second.effect);
  });

  async function sameState(of: RedisStore, state: MapState, workspace: string, seed: number): Promise<void> {
    for (const effect of state.effects.values()) {
      expect(await of.effect(workspace, effect.id), `seed ${seed}`).toEqual(effect);
    }
    expect((await of.effects(workspace, { ...ANY, limit: 1000 })).items).toHaveLength(state.effects.size);
    for (const approval of state.approvals.values()) {
      expect(await of.approval(workspace, approval.id), `seed ${seed}`).toEqual(approval);
    }
    const events = await of.ledger(workspace, 0, 10_000);
    expect(
      events.map(({ seq, at, kind, effectId, actor, data }) => ({ seq, at, kind, effectId, actor, data })),
      `seed ${seed}`,
    ).toEqual(state.ledger);
    const view = storeLikeView(state, now);
    for (const { budget, bucket, window, spent, held } of await of.budgets(workspace)) {
      const { rows: _, ...figures } = view.budget(workspace, budget, bucket, window);
      expect({ spent, held }, `seed ${seed}, ${budget} ${bucket} ${window}`).toEqual(figures);
    }
  }
});

function kindOf(reply: unknown): string {
  if (reply === null || typeof reply !== 'object' || !('kind' in reply)) return 'answered';
  return String(reply.kind);
}

/** Remembers attempts, approvals, claims and reservations for later steps. */
function note(seen: Seen, reply: unknown): void {
  if (reply === null || typeof reply !== 'object') return;
  if ('effect' in reply && typeof reply.effect === 'object' && reply.effect !== null) {
    const { effect } = reply as {
      effect: { id: string; life: { lease?: { fence: Seen['attempts'][number]['fence'] } } };
    };
    const fence = effect.life.lease?.fence;
    if (fence !== undefined) seen.attempts.push({ effectId: effect.id, fence });
  }
  if ('approval' in reply && reply.approval !== null) {
    const { approval, effect } = reply as {
      approval: { id: string; status: string };
      effect?: { idempotencyKey: string; fingerprint: string };
    };
    seen.approvals.push(approval.id);
    if (approval.status === 'granted' && effect !== undefined)
      seen.granted.push({ approvalId: approval.id, key: effect.idempotencyKey, fingerprint: effect.fingerprint });
  }
  if ('claim' in reply) seen.claims.push((reply as { claim: { id: string } }).claim.id);
  if ('reservation' in reply) seen.reservations.push((reply as { reservation: { id: string } }).reservation.id);
}
