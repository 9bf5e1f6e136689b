import { sideBySide } from './compare.ts';
import { during, load, newRead, newWrite } from './load.ts';
import type { BenchResult } from './result.ts';
import { openStage } from './stage.ts';
import { stageCosts } from './stages.ts';

const PROFILE_MS = 4_000;
const CONNECTIONS = 64;

/** A governed write and a governed read through the proxy, against ungoverned @fastify/http-proxy on the same upstream. */
export async function run(): Promise<BenchResult[]> {
  const stage = await openStage();
  try {
    const proxy = await stage.proxy();
    const gateway = await stage.gateway({ name: 'gateway', rules: 'two' });
    const against = async (name: string, target: string, make: (key: string) => string): Promise<BenchResult> => {
      const [plain, governed] = await sideBySide([proxy, gateway], stage.upstream, make);
      if (plain === undefined || governed === undefined) throw new Error('two were compared');
      return {
        name,
        value: Math.round(governed.rate),
        unit: 'requests/s',
        peer: `@fastify/http-proxy ${Math.round(plain.rate)} requests/s`,
        ratio: governed.rate / plain.rate,
        target,
        cpu: { governed: governed.cpu, ungoverned: plain.cpu },
      };
    };
    const write = await against('governed write, embedded store', '>= 0.65', newWrite);
    // Apart from the rounds that are compared: to be looked at costs time.
    const next = during(PROFILE_MS, () => newWrite(gateway.key));
    const profile = await gateway.profile(() =>
      load({ url: gateway.url, connections: CONNECTIONS, next, expected: [201] }),
    );
    const micros = write.cpu?.['governed']?.['gateway main'] ?? 0;
    return [
      profile === null ? write : { ...write, stages: stageCosts(profile, micros) },
      await against('governed read', '>= 1', newRead),
    ];
  } finally {
    await stage.stop();
  }
}
