import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { backUpStore, restoreStore } from '../../src/gateway/backups.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { readUpkeep } from '../../src/gateway/upkeep.ts';
import { RETENTION } from '../contract/fixture.ts';
import { dispatched, leaseOf } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

/* What the ledger of the installation keeps of a restore, and what is left to be acknowledged. */

let folder = '';
const path = () => join(folder, 'store');
const options = () => ({ configFile: join(folder, 'gateway.yaml'), environment: {} });
const opened = () =>
  openEmbeddedStore({ path: path(), lockWaitMs: 0, worker: 'never', retention: RETENTION, keySeals: KEY_SEALS });

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'svc-restored-'));
  writeFileSync(
    join(folder, 'gateway.yaml'),
    `store: { path: ${JSON.stringify(path())}, fence: ${JSON.stringify(join(folder, 'fence'))} }\n`,
  );
  await called('before');
  await backUpStore(options(), join(folder, 'backup'));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** A gateway sends a call, and ends. @returns its epoch */
async function called(idempotencyKey: string): Promise<number> {
  const store = await opened();
  const { effect } = await dispatched(store, { idempotencyKey });
  await store.close();
  return leaseOf(effect).fence.epoch;
}

async function restoredEvent() {
  const restored = await restoreStore(options(), join(folder, 'backup'), true);
  const store = await opened();
  const { items } = await store.ledgerPage(INSTALLATION, {
    kind: 'store.restored',
    since: null,
    until: null,
    limit: 10,
    cursor: null,
  });
  await store.close();
  const { restore } = await readUpkeep(path());
  return { data: items[0]?.data ?? {}, restored, isLossNoted: restore?.clean === false };
}

it('a store that could be read is on record as read, with how many calls were brought over', async () => {
  await called('since');
  const { data, restored, isLossNoted } = await restoredEvent();
  expect(data).toMatchObject({ replaced: 'read', unknown: 1, epoch: await called('after') });
  expect(data['made_at']).toBe(new Date(restored.madeAt).toISOString());
  expect(Number(data['transactions_known'])).toBeGreaterThan(Number(data['transactions']));
  expect([restored.hasLoss, isLossNoted]).toEqual([false, false]);
});

it('one that could not be is on record as unreadable, and the loss waits to be acknowledged', async () => {
  writeFileSync(join(path(), 'store.db'), Buffer.alloc(65_536, 'not a database '));
  const { data, restored, isLossNoted } = await restoredEvent();
  expect(data).toMatchObject({ replaced: 'unreadable', unknown: 0 });
  expect([restored.hasLoss, isLossNoted]).toEqual([true, true]);
});

it('one that is gone is on record as absent, with how many transactions are known to have been', async () => {
  await called('since');
  rmSync(join(path(), 'store.db'));
  const { data, restored, isLossNoted } = await restoredEvent();
  expect(data).toMatchObject({ replaced: 'absent', transactions_known: restored.transactionsKnown });
  expect(restored.transactionsKnown ?? 0).toBeGreaterThan(restored.transactions);
  expect([restored.hasLoss, isLossNoted]).toEqual([true, true]);
});
