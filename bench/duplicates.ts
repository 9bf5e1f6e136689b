import { type CpuShares, median, medianShares, perCall, sumOf } from './cpu.ts';
import { count, load, newWrite, write } from './load.ts';
import type { BenchResult } from './result.ts';
import { type Gateway, openStage } from './stage.ts';

const DUPLICATES = 10_000;
const ROUNDS = 5;
const CALLS = 1_000;
const WARM_UP = 2_000;
const CONNECTIONS = 64;

/** Connections that send the duplicates of one key at once. */
const CROWD = 256;

interface Kind {
  readonly name: string;
  readonly status: number;
  make(key: string): string;
}

let number = 0;

const WRITE: Kind = { name: 'write', status: 201, make: newWrite };

/** Calls that do nothing: each is answered from what the gateway knows. */
const KINDS: readonly Kind[] = [
  { name: 'duplicate', status: 409, make: (key) => write(key, 'first', 'pay_first') },
  { name: 'conflict', status: 409, make: (key) => write(key, 'first', 'pay_second') },
  { name: 'denial', status: 403, make: denied },
];

/** Ten thousand duplicates of one key at once, and what a call that does nothing costs beside a write. */
export async function run(): Promise<BenchResult[]> {
  const stage = await openStage();
  try {
    const embedded = await resultsOf(await stage.gateway({ name: 'embedded' }));
    return [...embedded, ...(await resultsOf(await stage.gateway({ name: 'redis', redis: await stage.redis() })))];
  } finally {
    await stage.stop();
  }
}

async function resultsOf(gateway: Gateway): Promise<BenchResult[]> {
  const all = [WRITE, ...KINDS];
  await calls(gateway, { ...WRITE, make: (key) => write(key, 'first', 'pay_first') }, 1, 1);
  for (const kind of all) await calls(gateway, kind, WARM_UP, CONNECTIONS);
  const shares = new Map(all.map((kind): [Kind, CpuShares[]] => [kind, []]));
  const crowds: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const kind of all) {
      const before = await gateway.cpu();
      await calls(gateway, kind, CALLS, CONNECTIONS);
      shares.get(kind)?.push(perCall(before, await gateway.cpu(), CALLS));
    }
    const [duplicate] = KINDS;
    if (duplicate !== undefined) crowds.push(await calls(gateway, duplicate, DUPLICATES, CROWD));
  }
  const ofWrite = medianShares(shares.get(WRITE) ?? []);
  return [
    {
      name: `${DUPLICATES.toLocaleString('en')} duplicates of one key at once, ${gateway.name}`,
      value: Math.round(median(crowds)),
      unit: 'ms',
      peer: null,
      ratio: null,
      target: '<= 1000',
    },
    ...KINDS.map((kind) => {
      const ofKind = medianShares(shares.get(kind) ?? []);
      return {
        name: `CPU of a ${kind.name}, ${gateway.name}`,
        value: Math.round(sumOf(ofKind)),
        unit: 'µs',
        peer: `a write ${Math.round(sumOf(ofWrite))} µs`,
        ratio: sumOf(ofKind) / sumOf(ofWrite),
        target: '<= 0.5',
        cpu: { [kind.name]: ofKind, write: ofWrite },
      };
    }),
  ];
}

/** @returns how long they took, ms */
async function calls({ url, key }: Gateway, kind: Kind, most: number, connections: number): Promise<number> {
  const next = count(most, () => kind.make(key));
  return (await load({ url, connections, next, expected: [kind.status] })).ms;
}

/** More than the rule allows, each with a key of its own. */
function denied(key: string): string {
  number += 1;
  return write(key, `denied-${number}`, `pay_denied_${number}`, JSON.stringify({ amount: 60_000, currency: 'EUR' }));
}
