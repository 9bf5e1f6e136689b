import { Agent, type IncomingMessage, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { median } from './cpu.ts';
import type { BenchResult } from './result.ts';
import { openStage } from './stage.ts';

const ROUNDS = 6;
const CALLS = 50;
const WARM_UP = 200;
const OPEN = 1_000;
/** How many of them begin at the same time. */
const AT_ONCE = 50;
/** How long all of them are open together, with an event a second each, ms. */
const OPEN_MS = 5_000;

/** Streams through the gateway: how late their first event comes, and what those that are open take of memory. */
export async function run(): Promise<BenchResult[]> {
  const stage = await openStage();
  const agent = new Agent({ keepAlive: true });
  try {
    const proxy = await stage.proxy();
    const gateway = await stage.gateway({ name: 'gateway', rules: 'streams' });
    const ways = [
      { url: `${stage.upstream.url}/v1/streams`, key: '' },
      { url: `${proxy.url}/payments/v1/streams`, key: '' },
      { url: `${gateway.url}/models/v1/streams`, key: gateway.key },
    ];
    const firstOf = async ({ url, key }: { url: string; key: string }, calls: number): Promise<number> => {
      const times: number[] = [];
      for (let call = 0; call < calls; call += 1) {
        const stream = await begin(url, key, agent);
        times.push(stream.firstAfterMs);
        await stream.end;
      }
      return median(times);
    };
    for (const way of ways) await firstOf(way, WARM_UP);
    const medians = ways.map((): number[] => []);
    // In turns, so that whatever else the machine does falls on all.
    for (let round = 0; round < ROUNDS; round += 1)
      for (const [index, way] of ways.entries()) medians[index]?.push(await firstOf(way, CALLS));
    const [direct = 0, plain = 0, governed = 0] = medians.map(median);

    const before = gateway.residentBytes() ?? Number.NaN;
    const streams: Stream[] = [];
    for (let begun = 0; begun < OPEN; begun += AT_ONCE) {
      const some = Array.from({ length: AT_ONCE }, () => begin(`${gateway.url}/models/v1/streams/open`, gateway.key));
      streams.push(...(await Promise.all(some)));
    }
    let most = before;
    for (let waited = 0; waited < OPEN_MS; waited += 500) {
      await sleep(500);
      most = Math.max(most, gateway.residentBytes() ?? Number.NaN);
    }
    await fetch(`${stage.upstream.url}/release`, { method: 'POST' });
    const ends = await Promise.all(streams.map(({ end }) => end));
    const committed = ends.filter((decision) => decision === 'committed').length;
    if (committed !== OPEN) throw new Error(`${committed} of ${OPEN} streams were committed`);
    return [
      {
        name: 'first event of a governed stream: p50 later than direct',
        value: Number((governed - direct).toFixed(2)),
        unit: 'ms',
        peer: `${governed.toFixed(2)} ms; direct ${direct.toFixed(2)} ms, through @fastify/http-proxy ${plain.toFixed(2)} ms`,
        ratio: null,
        target: '<= 5',
      },
      {
        name: `${OPEN} open governed streams: growth of the gateway`,
        value: Math.round((most - before) / 1e6),
        unit: 'MB',
        peer: `${Math.round(before / 1e6)} MB before`,
        ratio: null,
        target: '< 300',
      },
    ];
  } finally {
    agent.destroy();
    await stage.stop();
  }
}

interface Stream {
  readonly firstAfterMs: number;
  /** The decision in its trailer, when it is over. */
  readonly end: Promise<string | undefined>;
}

/** Asks for a stream; resolves with its first bytes. */
async function begin(url: string, key: string, agent?: Agent): Promise<Stream> {
  const since = performance.now();
  const sent = request(url, {
    method: 'POST',
    agent: agent ?? false,
    headers: { 'content-type': 'application/json', ...(key === '' ? {} : { 'x-api-key': key }) },
  });
  sent.end('{"stream":true}');
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    sent.once('response', resolve).once('error', reject);
  });
  if (response.statusCode !== 200) throw new Error(`a stream was answered with ${response.statusCode}`);
  const end = new Promise<string | undefined>((resolve) => {
    response.once('close', () => resolve(response.trailers['svc-decision']));
  });
  await new Promise((resolve) => response.once('data', resolve));
  return { firstAfterMs: performance.now() - since, end };
}
