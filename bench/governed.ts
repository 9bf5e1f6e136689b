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
