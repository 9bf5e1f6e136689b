import { rmSync } from 'node:fs';
import { expect, it } from 'vitest';
import { cellText, jsonLines } from '../../src/api/export-lines.ts';
import type { LedgerEvent } from '../../src/effects/model/ledger.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

it.each([
  ['=1+2', "'=1+2"],
  ['+1', "'+1"],
  ['-1', "'-1"],
  ['@SUM(A1)', "'@SUM(A1)"],
  ['\t=1', "'\t=1"],
  ['\r=1', `"'\r=1"`],
  ['\n=1', `"'\n=1"`],
  ['＝1+2', "'＝1+2"],
  ['＠SUM(A1)', "'＠SUM(A1)"],
  ['=1,"x"', `"'=1,""x"""`],
  ['order-7=8', 'order-7=8'],
])('a text that a spreadsheet would run is marked as text: %j', (text, cell) => {
  expect(cellText(text)).toBe(cell);
});

it('a receipt stands after the event that names it; one that is not kept any more is not another of its effect', async () => {
  const path = storeFolder();
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  const store = await openEmbeddedStore({ path, lockWaitMs: 5000, retention, keySeals: KEY_SEALS, worker: 'never' });
  const issued = (seq: number, id: string): LedgerEvent => ({
    seq,
    id: `led_${seq}`,
    at: 0,
    kind: 'receipt.issued',
    effectId: 'eff_1',
    actor: { type: 'gateway', id: 'one' },
    data: { receipt_id: id },
  });
  async function* ledgerFrom() {
    yield [issued(1, 'rcp_before'), issued(2, 'rcp_now')];
  }
  const receipts = async (_: string, ids: readonly string[]) => ids.map(() => ({ id: 'rcp_now', jws: 'e30.e30.e30' }));
  const request = {
    workspace: 'w',
    filter: { since: null, until: 1 },
    asked: {},
    what: new Set(['receipts'] as const),
    showEffect: () => ({}),
  };
  let text = '';
  for await (const lines of jsonLines({ store: { ...store, ledgerFrom, receipts } }, request)) text += lines;
  await store.close();
  rmSync(path, { recursive: true });
  const lines = text
    .trimEnd()
    .split('\n')
    .map((line): Record<string, unknown> => JSON.parse(line));
  expect(lines.map(({ receipt_id: id, jws }) => [id, jws])).toEqual([
    ['rcp_before', null],
    ['rcp_now', 'e30.e30.e30'],
  ]);
});
