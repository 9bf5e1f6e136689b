import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, expect, it, vi } from 'vitest';
import type { EffectRecord, SignedReceipt } from '../../src/effects/model/effect.ts';
import type { EffectStore, SettleOutcome } from '../../src/effects/store.ts';
import { openSigner, type ReceiptSigner } from '../../src/receipts/sign.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { loadSodium } from '../../src/sodium/load.ts';
import { RETENTION } from '../contract/fixture.ts';
import { committed, dispatched, settleRequest, WORKSPACE } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { keyBench, receiptInput } from '../receipts/facts.ts';
import { compileStore } from './compiled.ts';

/** A thread that ended is begun again after 100 ms, and is not open for some more. */
const BEGUN_AGAIN_MS = 110;

const WORKER = 'src/stores/threads/serve.ts';
const HOLDS = 'serving.hold(message.name, message.key);';
const compiled = compileStore([]);
// Names of keys that end the thread, and that it never gets.
compiled.alter(
  WORKER,
  HOLDS,
  `if (message.name === 'end') throw new Error('ended'); if (process.env.LOSES_KEYS !== 'yes') ${HOLDS}`,
);
const openCompiled = await compiled.openEmbeddedStore();
const bench = await keyBench();
const folders: string[] = [];
afterAll(async () => {
  await bench.close();
  compiled.remove();
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

function open(worker: 'auto' | 'never'): Promise<EffectStore> {
  const folder = mkdtempSync(join(tmpdir(), 'signed-'));
  folders.push(folder);
  const opener = worker === 'auto' ? openCompiled : openEmbeddedStore;
  return opener({ path: join(folder, 'store'), lockWaitMs: 0, worker, retention: RETENTION, keySeals: KEY_SEALS });
}

const signerFor = (store: EffectStore): Promise<ReceiptSigner> =>
  openSigner({ ...bench.options(), lend: (head, key) => store.signWith(head, key) });

function withReceipt(receipt: SignedReceipt): SettleOutcome {
  const outcome = committed();
  return outcome.kind === 'committed' ? { ...outcome, receipt } : outcome;
}

/** Settles a call, and expects that its receipt is stored as the signer alone makes it. @returns signatures made here */
async function settle(store: EffectStore, signer: ReceiptSigner, facts = newFacts()): Promise<number> {
  const sodium = await loadSodium();
  if (sodium === null) throw new Error('sodium-native is not installed: this test counts its signatures');
  const { effect } = await dispatched(store);
  const signing = vi.spyOn(sodium, 'crypto_sign_detached');
  const receipt = signer.issue(facts);
  expect(await store.settle(settleRequest(effect, withReceipt(receipt)))).toEqual({ kind: 'settled' });
  const { jws } = receipt;
  const made = signing.mock.calls.length;
  signing.mockRestore();
  expect(jws).toBe(signer.issue(facts).jws);
  expect((await store.receipt(WORKSPACE, effect.id))?.jws).toBe(jws);
  return made;
}

const newFacts = () => receiptInput({ id: `rcp_${randomBytes(13).toString('hex')}` });

it('a receipt is signed in the thread of the store that has its key, with the same bytes, and after a rotation too', async () => {
  const store = await open('auto');
  try {
    const signer = await signerFor(store);
    expect(await settle(store, signer)).toBe(0);
    await signer.rotate();
    expect(await settle(store, signer)).toBe(0);
  } finally {
    await store.close();
  }
});

it('a store in the gateway’s thread, and one without the key, take the same receipt', async () => {
  for (const lend of [true, false]) {
    const store = await open('never');
    try {
      const signer = lend ? await signerFor(store) : await openSigner(bench.options());
      // With the first one, the key is tried.
      await settle(store, signer);
      expect(await settle(store, signer)).toBe(1);
    } finally {
      await store.close();
    }
  }
});

it('a thread that is started again has the keys', async () => {
  const store = await open('auto');
  try {
    const keys = new Map<string, Parameters<EffectStore['signWith']>[1]>();
    const signer = await openSigner({ ...bench.options(), lend: (head, key) => keys.set(head, key) });
    for (const [head, key] of keys) for (const name of ['end', 'spare', head]) store.signWith(name, key);
    await expect.poll(() => store.health().ready, { timeout: 20_000 }).toBe(false);
    const isThere = (): Promise<boolean> => store.pauses(WORKSPACE).then(Boolean, () => false);
    await expect.poll(isThere, { timeout: 20_000 }).toBe(true);
    expect(await settle(store, signer)).toBe(0);
  } finally {
    await store.close();
  }
});

it('a thread that is started again has the key that came while it started', async () => {
  const store = await open('auto');
  try {
    const keys = new Map<string, Parameters<EffectStore['signWith']>[1]>();
    const signer = await openSigner({ ...bench.options(), lend: (head, key) => keys.set(head, key) });
    const lend = (...names: readonly string[]): void => {
      for (const [, key] of keys) for (const name of names) store.signWith(name, key);
    };
    // Keys of other names push out the one that ends it.
    lend('end', 'one', 'two');
    while (store.health().ready) await delay(1);
    await delay(BEGUN_AGAIN_MS);
    for (const head of keys.keys()) lend(head);
    const isThere = (): Promise<boolean> => store.pauses(WORKSPACE).then(Boolean, () => false);
    await expect.poll(isThere, { timeout: 20_000 }).toBe(true);
    expect(await settle(store, signer)).toBe(0);
  } finally {
    await store.close();
  }
});

it('what cannot be signed is not committed', async () => {
  process.env['LOSES_KEYS'] = 'yes';
  const store = await open('auto');
  try {
    const signer = await signerFor(store);
    const { effect } = await dispatched(store);
    const settling = settleRequest(effect, withReceipt(signer.issue(newFacts())));
    await expect(store.settle(settling)).rejects.toThrow('a receipt is to be signed with a key that is not here');
    const stored: EffectRecord | null = await store.effect(WORKSPACE, effect.id);
    expect(stored?.life.state).toBe('executing');
  } finally {
    delete process.env['LOSES_KEYS'];
    await store.close();
  }
});
