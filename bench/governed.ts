import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Pace, sideBySide } from './compare.ts';
import { during, load, newRead, newWrite } from './load.ts';
import type { BenchResult } from './result.ts';
import { openStage } from './stage.ts';
import { stageCosts } from './stages.ts';

const PROFILE_MS = 4_000;
const CONNECTIONS = 64;

/**
 * A governed write and a governed read through the proxy, against ungoverned @fastify/http-proxy on the same upstream.
 * Beside the write: what would be left if all were free that a gateway with these promises can leave out.
 */
export async function run(): Promise<BenchResult[]> {
  const stage = await openStage();
  try {
    const proxy = await stage.proxy();
    const gateway = await stage.gateway({ name: 'gateway', rules: 'two' });
    const floor = await stage.floor();
    const [plain, least, governed] = await sideBySide([proxy, floor, gateway], stage.upstream, newWrite);
    const [plainRead, governedRead] = await sideBySide([proxy, gateway], stage.upstream, newRead);
    if (
      plain === undefined ||
      least === undefined ||
      governed === undefined ||
      plainRead === undefined ||
      governedRead === undefined
    )
      throw new Error('all were compared');
    const write = against(plain, 'governed write, embedded store', governed, '>= 0.65');
    // Apart from the rounds that are compared: to be looked at costs time.
    const next = during(PROFILE_MS, () => newWrite(gateway.key));
    const profile = await gateway.profile(() =>
      load({ url: gateway.url, connections: CONNECTIONS, next, expected: [201] }),
    );
    const micros = write.cpu?.['governed']?.['gateway main'] ?? 0;
    return [
      profile === null ? write : { ...write, stages: stageCosts(profile, micros) },
      against(plain, 'a write with what cannot be left out, and nothing else', least, null),
      against(plainRead, 'governed read', governedRead, '>= 1'),
      aSync(),
    ];
  } finally {
    await stage.stop();
  }
}

function against(plain: Pace, name: string, pace: Pace, target: string | null): BenchResult {
  return {
    name,
    value: Math.round(pace.rate),
    unit: 'requests/s',
    peer: `@fastify/http-proxy ${Math.round(plain.rate)} requests/s`,
    ratio: pace.rate / plain.rate,
    target,
    cpu: { governed: pace.cpu, ungoverned: plain.cpu },
  };
}

const SYNCS = 300;
/** What one group of admissions writes, more or less. */
const BLOCK = Buffer.alloc(16 * 1024, 'x');

/**
 * What the disk bounds: a write is durable before it is sent and before it is answered, and comes while another group is
 * being synced, so a caller waits for three syncs. On a disk whose sync takes longer, less is no fault of the gateway.
 */
function aSync(): BenchResult {
  const folder = mkdtempSync(join(tmpdir(), 'svc-bench-sync-'));
  const file = openSync(join(folder, 'log'), 'w');
  const times = Array.from({ length: SYNCS }, () => {
    const begun = performance.now();
    writeSync(file, BLOCK);
    fdatasyncSync(file);
    return performance.now() - begun;
  }).sort((one, other) => one - other);
  closeSync(file);
  rmSync(folder, { recursive: true, force: true });
  const ms = times[SYNCS / 2] ?? 0;
  return {
    name: 'a sync of 16 kB to the disk of the stores, median',
    value: Math.round(ms * 1000) / 1000,
    unit: 'ms',
    peer: `${CONNECTIONS} callers at three syncs a write: at most ${Math.round((CONNECTIONS * 1000) / (3 * ms))} writes/s`,
    ratio: null,
    target: null,
  };
}
