import { expect, it } from 'vitest';
import type { RowStore } from '../../src/stores/port.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { DERIVED } from '../../src/effects/steps/generations.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { RETENTION } from '../contract/fixture.ts';
import {
  admitRequest,
  approvalBy,
  claimRequest,
  committed,
  dispatched,
  permit,
  rateOf,
  reservationRequest,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';

it('what is over leaves no row behind', async () => {
  let now = 1_750_000_000_000;
  const rows = emptyRows();
  const store = createEffectStore(
    { ...mapStore(rows, () => now), ...ALONE },
    { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
  const kinds = (): readonly string[] =>
    [...(rows.spaces.get(WORKSPACE)?.rows.values() ?? [])].map(({ kind }) => kind).toSorted();

  const waiting = await store.admit(admitRequest({ verdict: permit([], [approvalBy()]) }));
  if (waiting.kind !== 'pending') throw new Error(waiting.kind);
  await store.vote(voteRequest(waiting.approval, { verdict: 'reject' }));
  const { effect } = await dispatched(store, { idempotencyKey: `${DERIVED}action`, generationMs: 60_000 });
  await store.settle(settleRequest(effect, committed()));
  await store.takeClaim(claimRequest('customer:7', { ttlMs: 1_000 }));
  await store.makeReservation(reservationRequest({ ttlMs: 1_000 }));
  await store.endSession(WORKSPACE, 'session', now + 1_000);
  const limited = await dispatched(store, { verdict: permit([rateOf(5, 60_000)]) });
  await store.settle(settleRequest(limited.effect, committed('jws.2', 'rcp_2')));
  const counters = (): number => rows.spaces.get(WORKSPACE)?.counters.size ?? 0;
  expect(counters()).toBeGreaterThan(0);
  const before = kinds();
  for (const kind of ['approval', 'claim', 'effect', 'key', 'left', 'rejection', 'reservation'])
    expect(before).toContain(kind);

  now += RETENTION.effectsMs + 1;
  await store.sweep(100);
  now += RETENTION.keysMs + 1;
  await store.sweep(100);
  expect([kinds(), counters()]).toEqual([[], 0]);
  await store.close();
});

it('keys are kept for ever where nothing says for how long', async () => {
  let now = 1_750_000_000_000;
  const store = createEffectStore(
    { ...mapStore(emptyRows(), () => now), ...ALONE },
    { retention: { ...RETENTION, keysMs: null }, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
  const { effect } = await dispatched(store, { idempotencyKey: 'k' });
  await store.settle(settleRequest(effect, committed('jws.1', 'rcp_1')));
  now += RETENTION.effectsMs + 1;
  expect(await store.sweep(100)).toMatchObject({ aged: 1 });
  now += 50 * RETENTION.keysMs;
  expect(await store.sweep(100)).toMatchObject({ aged: 0 });
  expect(await store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({ kind: 'expired' });
  expect(await store.receipt(WORKSPACE, effect.id)).toMatchObject({ id: 'rcp_1' });
  await store.close();
});

it('a claim that is over is shown for a minute more: whoever names it is told that it is over', async () => {
  let now = 1_750_000_000_000;
  const store = createEffectStore(
    { ...mapStore(emptyRows(), () => now), ...ALONE },
    { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
  const taken = await store.takeClaim(claimRequest('customer:7', { ttlMs: 1_000 }));
  if (taken.kind !== 'made') throw new Error(taken.kind);
  const shown = async (): Promise<boolean> => (await store.claim(WORKSPACE, taken.claim.id)) !== null;
  for (const [ms, isShown] of [
    [1_000, true],
    [59_999, true],
    [1, false],
  ] as const) {
    now += ms;
    await store.sweep(100);
    expect(await shown()).toBe(isShown);
  }
  await store.close();
});

it('a sweep that ends between any two of its changes leaves no request for approval of an effect that is gone', async () => {
  for (let changes = 0, isCut = true; isCut; changes += 1) {
    let now = 1_750_000_000_000;
    const rows = emptyRows();
    const whole = { ...mapStore(rows, () => now), ...ALONE };
    const options = { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 };
    const before = createEffectStore(whole, options);
    const waiting = await before.admit(admitRequest({ verdict: permit([], [approvalBy()]) }));
    if (waiting.kind !== 'pending') throw new Error(waiting.kind);
    await before.vote(voteRequest(waiting.approval, { verdict: 'reject' }));
    await before.close();
    now += RETENTION.effectsMs + 1;

    let left = changes;
    isCut = false;
    const commit: RowStore['commit'] = (change) => {
      left -= 1;
      isCut ||= left < 0;
      return left < 0 ? Promise.reject(new StoreUnavailable('killed')) : whole.commit(change);
    };
    const killed = createEffectStore({ ...whole, commit }, options);
    await killed.sweep(100).catch(() => undefined);
    await killed.close();

    const after = createEffectStore(whole, options);
    await after.sweep(100);
    const kinds = [...(rows.spaces.get(WORKSPACE)?.rows.values() ?? [])].map(({ kind }) => kind);
    expect(kinds, `ended before change ${changes + 1}`).not.toContain('approval');
    await after.close();
  }
});
