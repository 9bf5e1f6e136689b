import { perCall } from './cpu.ts';
import { count, load, newWrite, requestOf } from './load.ts';
import type { BenchOptions, BenchResult } from './result.ts';
import { type Gateway, openStage } from './stage.ts';

/** Calls between two looks at the memory. */
const STRETCH = 10_000;
/** From here on nothing may grow any more. */
const FLAT_FROM = 60_000;

interface Traffic {
  readonly name: string;
  readonly calls: number;
  readonly connections: number;
  readonly rules: 'one' | 'mixed';
  readonly store: 'embedded' | 'Redis';
  readonly target: string;
  /** The call with this number. */
  readonly make: (key: string, number: number) => string;
}

const TRAFFIC: readonly Traffic[] = [
  {
    name: 'plain writes',
    calls: 100_000,
    connections: 64,
    rules: 'one',
    store: 'embedded',
    target: '<= 300',
    make: newWrite,
  },
  {
    name: 'plain writes on Redis',
    calls: 100_000,
    connections: 64,
    rules: 'one',
    store: 'Redis',
    target: '<= 300',
    make: newWrite,
  },
  {
    name: 'mixed calls',
    calls: 170_000,
    connections: 16,
    rules: 'mixed',
    store: 'embedded',
    target: '<= 350',
    make: mixedCall,
  },
];

/** What a gateway has in memory while it works for long: the most, and by how much it still grows. */
export async function run({ effects }: BenchOptions): Promise<BenchResult[]> {
  const results: BenchResult[] = [];
  for (const traffic of TRAFFIC) {
    const stage = await openStage();
    try {
      const redis = traffic.store === 'Redis' ? { redis: await stage.redis() } : {};
      const gateway = await stage.gateway({ name: 'gateway', rules: traffic.rules, ...redis });
      results.push(...(await watched(gateway, { ...traffic, calls: Math.min(traffic.calls, effects) })));
    } finally {
      await stage.stop();
    }
  }
  return results;
}

async function watched(gateway: Gateway, traffic: Traffic): Promise<readonly BenchResult[]> {
  const { name, calls, connections, target, make } = traffic;
  const seen: number[] = [];
  const before = await gateway.cpu();
  let number = 0;
  const next = (): string => make(gateway.key, (number += 1));
  for (let sent = 0; sent < calls; sent += STRETCH) {
    const most = Math.min(STRETCH, calls - sent);
    // On a machine that others use, some may be told to come again.
    await load({ url: gateway.url, connections, next: count(most, next), expected: [200, 201, 503] });
    const resident = (gateway.residentBytes() ?? Number.NaN) / 1e6;
    seen.push(resident);
    console.error(`  ${name}, ${sent + most}: ${Math.round(resident)} MB`);
  }
  // Of fewer calls nothing is known.
  const later = seen.slice(FLAT_FROM / STRETCH - 1);
  const cpu = { governed: perCall(before, await gateway.cpu(), calls) };
  const common = { unit: 'MB', ratio: null } as const;
  const shown = seen.map(Math.round).join(' ');
  const about = `resident after ${calls.toLocaleString('en')} ${name}, ${connections} at once`;
  const most = { name: about, value: Math.round(Math.max(...seen)), peer: `every ${STRETCH}: ${shown}`, target, cpu };
  if (later.length < 2) return [{ ...most, ...common }];
  return [
    { ...most, ...common },
    {
      name: `${about}: growth after ${FLAT_FROM}`,
      value: Math.round(growth(later)),
      peer: null,
      target: '<= 20',
      ...common,
    },
  ];
}

/** By how much values grow in all, along the straight line that is nearest to them. */
function growth(values: readonly number[]): number {
  const middle = (values.length - 1) / 2;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, _value, at) => sum + (at - middle) ** 2, 0);
  const slope = values.reduce((sum, value, at) => sum + (at - middle) * (value - mean), 0) / squares;
  return slope * (values.length - 1);
}

const BOUNDARY = 'bench-boundary';
const FILE = [
  `--${BOUNDARY}`,
  'content-disposition: form-data; name="file"; filename="notes.txt"',
  'content-type: text/plain',
  '',
  'x'.repeat(20_000),
  `--${BOUNDARY}--`,
  '',
].join('\r\n');

/** Of each five calls one through the API, one through the proxy, one over MCP, one upload and one stream. */
function mixedCall(key: string, number: number): string {
  const id = `${process.pid}-${number}`;
  const headers = { 'x-api-key': key };
  switch (number % 5) {
    case 0: {
      const params = { payment_id: `pay_${id}`, amount: 1200, currency: 'EUR', reason: 'customer asked' };
      const body = { tool: 'payments.refund', params, idempotency_key: `mixed-${id}` };
      return requestOf('POST', '/v1/workspaces/bench/effects', headers, JSON.stringify(body));
    }
    case 1: {
      const call = { name: number % 2 === 0 ? 'refund' : 'stream', arguments: { payment: `pay_${id}`, amount: 1200 } };
      const message = { jsonrpc: '2.0', id: number, method: 'tools/call', params: call };
      const accept = 'application/json, text/event-stream';
      return requestOf('POST', '/mcp/tools', { ...headers, accept }, JSON.stringify(message));
    }
    case 2:
      return requestOf('POST', '/models/v1/files', headers, FILE, `multipart/form-data; boundary=${BOUNDARY}`);
    case 3:
      return requestOf('POST', '/models/v1/streams', headers, '{"stream":true}');
    default:
      return newWrite(key);
  }
}
