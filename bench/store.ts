import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { EffectStore } from '../src/effects/store.ts';
import { openEmbeddedStore } from '../src/gateway/embedded-store.ts';
import { admitRequest, budgetOf, committed, permit, settleRequest } from '../test/contract/requests.ts';
import type { BenchResult } from './result.ts';
import { KEY_SEALS } from '../test/identity/key-seals.ts';

/** Calls under way at a time. */
const CONCURRENT = 64;

const WARM_UP_MS = 1_000;
const MEASURE_MS = 3_000;
const ROUNDS = 3;

/** A compact JWS of about 1 kB. */
const JWS = `eyJ.${'r'.repeat(920)}.${'s'.repeat(86)}`;

/** Durable admit and settle pairs through the public port, with params, a budget and a receipt, at 64 concurrent. */
export async function run(): Promise<BenchResult[]> {
  const node = Number(process.versions.node.split('.')[0]);
  const target = node >= 24 ? 20_000 : node === 20 ? 12_000 : null;
  const path = mkdtempSync(join(tmpdir(), 'svc-bench-store-'));
  const store = await openEmbeddedStore({
    path,
    lockWaitMs: 0,
    retention: { keysMs: null, effectsMs: 30 * 86_400_000, denialsMs: 7 * 86_400_000 },
    keySeals: KEY_SEALS,
    worker: 'auto',
  });
  try {
    await pairsFor(store, WARM_UP_MS);
    const rates: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) rates.push(await pairsFor(store, MEASURE_MS));
    rates.sort((a, b) => a - b);
    return [
      {
        name: `store: durable admit+settle pairs at ${CONCURRENT} concurrent, Node ${node}`,
        value: Math.round(rates[Math.floor(ROUNDS / 2)] ?? 0),
        unit: 'pairs/s',
        peer: null,
        ratio: null,
        target: target === null ? null : `>= ${target}`,
      },
    ];
  } finally {
    await store.close();
    rmSync(path, { recursive: true, force: true });
  }
}

/** Pairs per second over a time. */
async function pairsFor(store: EffectStore, ms: number): Promise<number> {
  const start = performance.now();
  const end = start + ms;
  let pairs = 0;
  async function caller(): Promise<void> {
    while (performance.now() < end) {
      const admission = await store.admit(
        admitRequest({ verdict: permit([budgetOf(Number.MAX_SAFE_INTEGER, 1_250)]) }),
      );
      if (admission.kind !== 'dispatch') throw new Error(`not admitted: ${admission.kind}`);
      const settlement = await store.settle(settleRequest(admission.effect, committed(JWS)));
      if (settlement.kind !== 'settled') throw new Error(`not settled: ${settlement.kind}`);
      pairs += 1;
    }
  }
  await Promise.all(Array.from({ length: CONCURRENT }, caller));
  return (pairs * 1000) / (performance.now() - start);
}
