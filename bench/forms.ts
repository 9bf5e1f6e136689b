import { median, sumOf, medianShares, perCall, type CpuShares } from './cpu.ts';
import { during, load, newFormWrite, newWrite } from './load.ts';
import type { BenchResult } from './result.ts';
import { openStage } from './stage.ts';

const ROUNDS = 4;
const WARM_UP_MS = 3_000;
const ROUND_MS = 3_000;
const CONNECTIONS = 64;

/** The same governed write as a form and as JSON, on one gateway in turns: what reading and writing a form costs. */
export async function run(): Promise<BenchResult[]> {
  const stage = await openStage();
  try {
    const gateway = await stage.gateway({ name: 'gateway', rules: 'forms' });
    const kinds = [newWrite, newFormWrite];
    const send = (make: (key: string) => string, ms: number) =>
      load({ url: gateway.url, connections: CONNECTIONS, next: during(ms, () => make(gateway.key)), expected: [201] });
    for (const make of kinds) await send(make, WARM_UP_MS);
    const rates = kinds.map((): number[] => []);
    const shares = kinds.map((): CpuShares[] => []);
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [index, make] of kinds.entries()) {
        const before = await gateway.cpu();
        const { calls, ms } = await send(make, ROUND_MS);
        rates[index]?.push((calls * 1_000) / ms);
        shares[index]?.push(perCall(before, await gateway.cpu(), calls));
      }
    }
    const [json = {}, form = {}] = shares.map(medianShares);
    const [jsonRate = 0, formRate = 0] = rates.map(median);
    return [
      {
        name: 'governed form write: CPU against that of a JSON write',
        value: Math.round(sumOf(form)),
        unit: 'µs a call',
        peer: `a JSON write ${Math.round(sumOf(json))} µs; ${Math.round(formRate)} and ${Math.round(jsonRate)} requests/s`,
        ratio: sumOf(form) / sumOf(json),
        target: '<= 1.15',
        cpu: { form, json },
      },
    ];
  } finally {
    await stage.stop();
  }
}
