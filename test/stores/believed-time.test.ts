import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { createStoreClock } from '../../src/stores/embedded/clock.ts';
import { acceptTime, openKeyStore } from '../../src/gateway/embedded-store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import {
  admitRequest,
  budgetOf,
  committed,
  dispatched,
  keyRecord,
  permit,
  PERSON,
  settleRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const DAY = 86_400_000;
const machine = Date.now;

let path = '';
const opened: EffectStore[] = [];
beforeEach(() => {
  path = storeFolder();
});
afterEach(async () => {
  vi.restoreAllMocks();
  for (const store of opened.splice(0)) await store.close();
  rmSync(path, { recursive: true });
});

async function open(): Promise<EffectStore> {
  const retention = { keysMs: 30 * DAY, effectsMs: 10 * DAY, denialsMs: 10 * DAY };
  const store = await openEmbeddedStore({ path, lockWaitMs: 5000, retention, keySeals: KEY_SEALS, worker: 'never' });
  opened.push(store);
  return store;
}

function setClock(aheadMs: number): void {
  vi.spyOn(Date, 'now').mockImplementation(() => machine() + aheadMs);
}

/** Changes what the mark beside the store says of the machine when it was written. */
function changeSeen(change: (seen: { readonly up_ms: number }) => object): void {
  const file = join(path, 'install.json');
  const { seen, ...mark } = JSON.parse(readFileSync(file, 'utf8'));
  expect(seen).toMatchObject({ boot: expect.any(String), up_ms: expect.any(Number) });
  writeFileSync(file, JSON.stringify({ ...mark, seen: { ...seen, ...change(seen) } }));
}

/** What the machine counted since it started is not known of another start of it. */
const restartMachine = (): void => changeSeen(() => ({ boot: 'another' }));

/** Opens the store, does `work`, closes it; then the machine starts anew with a clock 400 days ahead. */
async function stopAndSetFarAhead(work: (store: EffectStore) => Promise<void>): Promise<void> {
  const first = await open();
  await work(first);
  await first.close();
  restartMachine();
  setClock(400 * DAY);
}

async function becomesReady(store: EffectStore): Promise<void> {
  await vi.waitFor(() => expect(store.health()).toMatchObject({ ready: true, problem: null }), { timeout: 30_000 });
}

async function becomesAhead(store: EffectStore): Promise<void> {
  await vi.waitFor(() => expect(store.health()).toMatchObject({ problem: { code: 'clock_ahead' } }), {
    timeout: 30_000,
  });
}

const DAILY = permit([budgetOf(100, 100)]);

async function spend(store: EffectStore): Promise<void> {
  const { effect } = await dispatched(store, { idempotencyKey: 'spent', verdict: DAILY });
  await store.settle(settleRequest(effect, committed('the.receipt')));
}

async function expectDisbelieved(store: EffectStore): Promise<void> {
  expect(store.health()).toMatchObject({
    ready: false,
    problem: { code: 'clock_ahead', message: expect.stringMatching(/400 days after.*7 days.*svc store accept-time/) },
  });
  await expect(store.admit(admitRequest())).rejects.toBeInstanceOf(StoreUnavailable);
  await expect(store.sweep(100)).rejects.toBeInstanceOf(StoreUnavailable);
}

describe('a start with a clock 400 days ahead, after the machine was off', () => {
  it('is not ready, forgets nothing, and goes on when the clock is set right', async () => {
    await stopAndSetFarAhead(spend);
    const second = await open();
    await expectDisbelieved(second);
    vi.restoreAllMocks();
    await becomesReady(second);
    await second.sweep(100);
    expect(await second.receipt(WORKSPACE, (await second.effects(WORKSPACE, ALL)).items[0]?.id ?? '')).toMatchObject({
      jws: 'the.receipt',
    });
    expect(Math.abs(second.now() - Date.now())).toBeLessThan(DAY);
  });

  it('goes on when an operator accepts the time, which stands in the ledger', async () => {
    await stopAndSetFarAhead(spend);
    const second = await open();
    await expectDisbelieved(second);
    const accepted = await acceptTime({ path });
    if (accepted === null) throw new Error('nothing was accepted');
    const { before, time } = accepted;
    expect(Math.round((time - before) / DAY)).toBe(400);
    await becomesReady(second);
    expect(await second.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ kind: 'dispatch' });
    expect(second.now()).toBeGreaterThanOrEqual(time);
    // What has gone by since then is nothing to accept.
    setClock(400 * DAY + 10_000);
    expect(await acceptTime({ path })).toBeNull();
    const events = await second.ledger(INSTALLATION, 0, 100);
    expect(events).toContainEqual(
      expect.objectContaining({
        kind: 'store.time_accepted',
        data: expect.objectContaining({ before: new Date(before).toISOString() }),
      }),
    );
  });

  it('lets a key be ended all the same, at the time on record', async () => {
    let left = 0;
    await stopAndSetFarAhead(async (store) => {
      await store.putKey(keyRecord({ id: 'key_old000000001' }), PERSON);
      left = store.now();
    });
    const keys = await openKeyStore({ path }, KEY_SEALS);
    await keys.endKey('key_old000000001', { kind: 'revoked' }, PERSON);
    await keys.close();
    vi.restoreAllMocks();
    const second = await open();
    expect(second.health()).toMatchObject({ ready: true });
    expect(second.now() - left).toBeLessThan(DAY);
  });
});

it('while the machine stays up its own count is believed, not its clock: a day’s budget is not spent twice', async () => {
  const first = await open();
  await spend(first);
  await first.close();
  setClock(2 * DAY);
  const second = await open();
  expect(second.health()).toMatchObject({ ready: true });
  expect(second.now() - machine()).toBeLessThan(DAY / 24);
  expect(await second.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ decision: 'denied_budget' });
});

it('time that the machine counted itself is nothing to accept, however long nothing was written', async () => {
  const first = await open();
  await spend(first);
  await first.close();
  changeSeen(({ up_ms }) => ({ up_ms: up_ms - 2 * DAY }));
  setClock(2 * DAY);
  expect(await acceptTime({ path })).toBeNull();
  setClock(9 * DAY);
  const accepted = await acceptTime({ path });
  if (accepted === null) throw new Error('nothing was accepted');
  expect(Math.round((accepted.time - accepted.before) / DAY)).toBe(7);
});

it('after the machine was off for some days they are believed', async () => {
  const first = await open();
  await spend(first);
  await first.close();
  restartMachine();
  setClock(3 * DAY);
  const second = await open();
  expect(second.health()).toMatchObject({ ready: true });
  expect(await second.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ kind: 'dispatch' });
});

describe('a clock that jumps 400 days while the gateway runs', () => {
  it('is not believed, and nothing is admitted until it is back; what is under way is settled', async () => {
    const store = await open();
    const { effect } = await dispatched(store, { verdict: DAILY });
    setClock(400 * DAY);
    await becomesAhead(store);
    await expectDisbelieved(store);
    expect(await store.settle(settleRequest(effect, committed()))).toMatchObject({ kind: 'settled' });
    expect(store.now() - machine()).toBeLessThan(60_000);
    vi.restoreAllMocks();
    await becomesReady(store);
    expect(await store.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ decision: 'denied_budget' });
  });

  it('is taken up when an operator accepts it', async () => {
    const store = await open();
    await spend(store);
    setClock(400 * DAY);
    await becomesAhead(store);
    const accepted = await acceptTime({ path });
    await becomesReady(store);
    expect(store.now()).toBeGreaterThanOrEqual(accepted?.time ?? Infinity);
    expect(await store.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ kind: 'dispatch' });
  });
});

const ALL = {
  state: null,
  decision: null,
  agentId: null,
  tool: null,
  since: null,
  until: null,
  limit: 10,
  cursor: null,
};

it('an operator’s word sets the time forward only', () => {
  const clock = createStoreClock(1_750_000_000_000, DAY);
  const before = clock.now();
  clock.accept(before - 60_000);
  expect(clock.now()).toBeGreaterThanOrEqual(before);
  clock.accept(before + 60_000);
  expect(clock.now()).toBeGreaterThanOrEqual(before + 60_000);
});
