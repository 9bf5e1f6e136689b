import { sideBySide } from './compare.ts';
import { newRead, newWrite } from './load.ts';
import type { BenchResult } from './result.ts';
import { openStage } from './stage.ts';

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
    return [
      await against('governed write, embedded store', '>= 0.65', newWrite),
      await against('governed read', '>= 0.8', newRead),
    ];
  } finally {
    await stage.stop();
  }
}
