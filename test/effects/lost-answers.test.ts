import { expect, test, vi } from 'vitest';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { SettleRequest } from '../../src/effects/store.ts';
import { watchLostAnswers } from '../../src/effects/upkeep/lost-answers.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { admitRequest } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';

/** An effect that a store admitted, of which the caller never heard. */
async function admitted(nonce: string): Promise<EffectRecord> {
  const store = createEffectStore(
    { ...mapStore(emptyRows(), () => 1_000_000), ...ALONE },
    { retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 }, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
  try {
    const admission = await store.admit(admitRequest({ idempotencyKey: 'k', nonce }));
    if (admission.kind !== 'dispatch') throw new Error(admission.kind);
    return admission.effect;
  } finally {
    await store.close();
  }
}

test('an admission whose answer was lost is settled before its key is asked for again, and only then', async () => {
  const effect = await admitted('first');
  const settled: SettleRequest[] = [];
  const watch = watchLostAnswers(
    async (_workspace, key) => (key === 'k' ? effect : null),
    async (request) => void settled.push(request),
  );
  const first = admitRequest({ idempotencyKey: 'k', nonce: 'first' });
  try {
    watch.lost(first);
    expect(watch.before(admitRequest({ idempotencyKey: 'other' }))).toBeNull();
    expect(watch.before({ ...first, workspace: 'elsewhere' })).toBeNull();
    await watch.before(admitRequest({ idempotencyKey: 'k', nonce: 'second' }));
    expect(settled).toMatchObject([
      { effectId: effect.id, outcome: { kind: 'failed' }, evidence: { code: 'not_dispatched' } },
    ]);
    // Once is enough.
    expect(watch.before(admitRequest({ idempotencyKey: 'k', nonce: 'third' }))).toBeNull();
  } finally {
    watch.close();
  }
});

test('an admission that is asked for again itself is not settled, and neither is one that another call made', async () => {
  const effect = await admitted('of another');
  const settled: SettleRequest[] = [];
  const watch = watchLostAnswers(
    async () => effect,
    async (request) => void settled.push(request),
  );
  try {
    const lost = admitRequest({ idempotencyKey: 'k', nonce: 'lost' });
    watch.lost(lost);
    await watch.before(admitRequest({ idempotencyKey: 'k', nonce: 'next' }));
    expect(settled).toEqual([]);
    expect(watch.before(lost)).toBeNull();
    expect(watch.before(admitRequest({ idempotencyKey: 'k', nonce: 'next' }))).toBeNull();
  } finally {
    watch.close();
  }
});

test('a lost admission is looked for at once and after 1, 5, 30 and 120 seconds; found, it is settled and forgotten', async () => {
  const effect = await admitted('lost');
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  const begun = performance.now();
  const looks: number[] = [];
  const settled: SettleRequest[] = [];
  let appearsAt = Infinity;
  const watch = watchLostAnswers(
    async () => {
      const now = performance.now() - begun;
      looks.push(Math.floor(now / 1000));
      if (now > 4_000 && now < 6_000) throw new Error('the store is away');
      return now >= appearsAt ? effect : null;
    },
    async (request) => void settled.push(request),
  );
  try {
    watch.lost(admitRequest({ idempotencyKey: 'k', nonce: 'lost' }));
    await vi.advanceTimersByTimeAsync(200_000);
    // Looks that found the store away count as none.
    expect(looks.filter((at) => at < 4 || at >= 6)).toEqual([0, 1, 6, 30, 120]);
    expect(watch.before(admitRequest({ idempotencyKey: 'k', nonce: 'next' }))).toBeNull();
    watch.lost(admitRequest({ idempotencyKey: 'k', nonce: 'lost' }));
    appearsAt = 200_500;
    await vi.advanceTimersByTimeAsync(2_000);
    expect(settled).toHaveLength(1);
    looks.length = 0;
    await vi.advanceTimersByTimeAsync(200_000);
    expect(looks).toEqual([]);
  } finally {
    watch.close();
    vi.useRealTimers();
  }
});

test('ten thousand lost admissions are remembered', () => {
  const watch = watchLostAnswers(
    async () => null,
    async () => undefined,
  );
  const lost = (n: number) => admitRequest({ idempotencyKey: `k${n}`, nonce: `n${n}` });
  const isAwaited = (n: number): boolean => watch.before({ ...lost(n), nonce: 'next' }) !== null;
  try {
    for (let n = 0; n <= 10_000; n += 1) watch.lost(lost(n));
    expect([isAwaited(0), isAwaited(9_999), isAwaited(10_000)]).toEqual([true, true, false]);
  } finally {
    watch.close();
  }
});
