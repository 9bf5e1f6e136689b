import { expect, test } from 'vitest';
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
