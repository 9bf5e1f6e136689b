import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type CpuShares, median, perCall } from './cpu.ts';
import { count, load, requestOf } from './load.ts';
import type { BenchResult } from './result.ts';
import { type Gateway, openStage } from './stage.ts';

const ROUNDS = 7;
const CALLS = 100;
const STREAMS = 20;
/** As many as the compiler of JavaScript needs before it has done most of what it does, by several callers. */
const WARM_UP_CALLS = 10_000;
const WARM_UP_CALLERS = 16;
const WARM_UP_STREAMS = 200;
const CPU_CALLS = 1_000;
const OPEN_STREAMS = 1_000;

/** Whom calls go through. */
interface Way {
  readonly url: string;
  readonly key: string;
}

/**
 * Calls of tools through the gateway, through an ungoverned proxy and without either, one caller at a time; and what
 * open streams take of the gateway's memory.
 */
export async function run(): Promise<BenchResult[]> {
  const stage = await openStage('mcp');
  try {
    const gateway = await stage.gateway({ name: 'gateway' });
    const ways = [{ url: stage.upstream.url, key: gateway.key }, await stage.proxy(), gateway];
    // First: what calls leave behind for the collector would hide what streams take.
    const memory = await memoryOf(gateway);
    const cpuOf = async (tool: 'refund' | 'look'): Promise<CpuShares> => {
      const before = await gateway.cpu();
      await timesOf(gateway, tool, CPU_CALLS);
      return perCall(before, await gateway.cpu(), CPU_CALLS);
    };
    const timed = async (tool: 'refund' | 'look'): Promise<readonly number[]> => {
      for (const way of ways) await timesOf(way, tool, WARM_UP_CALLS, WARM_UP_CALLERS);
      return inTurns(ways, (way) => timesOf(way, tool, CALLS));
    };
    const write = await timed('refund');
    const read = await timed('look');
    for (const way of ways) await firstEvents(way, WARM_UP_STREAMS);
    const first = await inTurns(ways, (way) => firstEvents(way, STREAMS));
    return [
      added('a tool that writes: p50 added to the ungoverned proxy', write, '<= 1', await cpuOf('refund')),
      added('a tool that reads: p50 added to the ungoverned proxy', read, '<= 1', await cpuOf('look')),
      added('an answer that is a stream: p50 until its first event, added to the ungoverned proxy', first, '<= 5'),
      ...(memory === null ? [] : [memory]),
    ];
  } finally {
    await stage.stop();
  }
}

/** The median of each way, ms, in rounds in which they take turns: what else the machine does falls on all. */
async function inTurns(
  ways: readonly Way[],
  measure: (way: Way) => Promise<readonly number[]>,
): Promise<readonly number[]> {
  for (const way of ways) await measure(way);
  const medians = ways.map((): number[] => []);
  for (let round = 0; round < ROUNDS; round += 1)
    for (const [index, way] of ways.entries()) medians[index]?.push(median(await measure(way)));
  return medians.map(median);
}

function added(
  name: string,
  [direct = NaN, proxy = NaN, gateway = NaN]: readonly number[],
  target: string,
  cpu?: CpuShares,
): BenchResult {
  return {
    name: `tools/call, one caller, ${name}`,
    value: Number((gateway - proxy).toFixed(2)),
    unit: 'ms',
    peer: `gateway ${gateway.toFixed(2)} ms, @fastify/http-proxy ${proxy.toFixed(2)} ms, direct ${direct.toFixed(2)} ms`,
    ratio: null,
    target,
    ...(cpu === undefined ? {} : { cpu: { governed: cpu } }),
  };
}

let calls = 0;

/** A call with arguments of its own, so that it is no duplicate of another. */
function callOf(key: string, tool: 'refund' | 'look' | 'stream'): string {
  calls += 1;
  const given = { payment: `pay_${process.pid}_${calls}`, ...(tool === 'refund' ? { amount: 1200 } : {}) };
  const message = { jsonrpc: '2.0', id: calls, method: 'tools/call', params: { name: tool, arguments: given } };
  const headers = { 'x-api-key': key, accept: 'application/json, text/event-stream' };
  return requestOf('POST', '/mcp/tools', headers, JSON.stringify(message));
}

async function timesOf(
  { url, key }: Way,
  tool: 'refund' | 'look',
  most: number,
  connections = 1,
): Promise<readonly number[]> {
  const next = count(most, () => callOf(key, tool));
  return (await load({ url, connections, next, expected: [200] })).times;
}

/** Times until the first event of answers that are streams, ms. */
async function firstEvents({ url, key }: Way, most: number): Promise<readonly number[]> {
  const connection = await open(url);
  const times: number[] = [];
  try {
    for (let call = 0; call < most; call += 1) {
      const sent = performance.now();
      connection.socket.write(callOf(key, 'stream'));
      await connection.heard('data: ');
      times.push(performance.now() - sent);
      // The end of an answer in chunks.
      await connection.heard('\r\n0\r\n\r\n');
    }
    return times;
  } finally {
    connection.socket.destroy();
  }
}

interface Connection {
  readonly socket: Socket;
  /** Waits until a text has come, and forgets everything up to its end. */
  heard(text: string): Promise<void>;
}

async function open(url: string): Promise<Connection> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), noDelay: true });
  await once(socket, 'connect');
  let received = '';
  let look = (): void => undefined;
  socket
    .setEncoding('latin1')
    .on('data', (piece: string) => {
      received += piece;
      look();
    })
    .on('close', () => look());
  return {
    socket,
    heard: (text) =>
      new Promise((resolve, reject) => {
        look = (): void => {
          const at = received.indexOf(text);
          if (at === -1 && !socket.destroyed && !/HTTP\/1\.1 (?!200)/.test(received)) return;
          look = (): void => undefined;
          if (at === -1) {
            reject(new Error(`no stream: ${received}`));
            return;
          }
          received = received.slice(at + text.length);
          resolve();
        };
        look();
      }),
  };
}

/** What the gateway's memory grows by with many open streams; `null` where the system does not tell it. */
async function memoryOf(gateway: Gateway): Promise<BenchResult | null> {
  const opened: Connection[] = [];
  const get = requestOf('GET', '/mcp/tools', { 'x-api-key': gateway.key, accept: 'text/event-stream' }, null);
  const openMore = async (): Promise<void> => {
    const connection = await open(gateway.url);
    opened.push(connection);
    connection.socket.write(get);
    await connection.heard('data: ');
  };
  await openMore();
  const before = gateway.residentBytes();
  if (before === null) return null;
  while (opened.length <= OPEN_STREAMS) await openMore();
  // Whatever was only for opening them may go.
  await sleep(1_000);
  const grown = ((gateway.residentBytes() ?? NaN) - before) / 2 ** 20;
  for (const { socket } of opened) socket.destroy();
  return {
    name: `${OPEN_STREAMS} open streams: growth of the gateway’s resident memory`,
    value: Math.round(grown),
    unit: 'MB',
    peer: `${(before / 2 ** 20).toFixed(0)} MB before`,
    ratio: null,
    target: '< 300',
  };
}
