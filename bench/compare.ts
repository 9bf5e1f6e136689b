import { type CpuShares, median, medianShares, perCall } from './cpu.ts';
import { during, load } from './load.ts';
import type { Server } from './processes.ts';
import type { Measured } from './stage.ts';

const ROUNDS = 5;
/** Until the compiler of JavaScript has done most of what it does: a server that runs for a week is not a cold one. */
const WARM_UP_MS = 20_000;
const ROUND_MS = 4_000;
const CONNECTIONS = 64;

/** What a server did in the median of its rounds. */
export interface Pace {
  /** Calls a second. */
  readonly rate: number;
  /** CPU of a call: the server's and its store's, the upstream's, and that of making the load. */
  readonly cpu: CpuShares;
}

/**
 * Rounds alternate between the servers, so that a slow minute of the machine falls on all.
 * @param make a request with the agent's key
 * @returns the pace of each, in their order
 */
export async function sideBySide(
  servers: readonly Measured[],
  upstream: Server,
  make: (key: string) => string,
): Promise<Pace[]> {
  const rates = servers.map((): number[] => []);
  const shares = servers.map((): CpuShares[] => []);
  const run = ({ url, key }: Measured, ms: number) =>
    load({ url, connections: CONNECTIONS, next: during(ms, () => make(key)), expected: [200, 201] });
  for (const server of servers) await run(server, WARM_UP_MS);
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const [index, server] of servers.entries()) {
      const look = async (): Promise<Map<string, number>> => {
        const all = [...(await upstream.cpu()).values()].reduce((sum, micros) => sum + micros, 0);
        const { user, system } = process.cpuUsage();
        return new Map([...(await server.cpu()), ['upstream', all], ['load', user + system]]);
      };
      const before = await look();
      const { calls, ms } = await run(server, ROUND_MS);
      rates[index]?.push((calls * 1_000) / ms);
      shares[index]?.push(perCall(before, await look(), calls));
    }
  }
  return servers.map((_, index) => ({ rate: median(rates[index] ?? []), cpu: medianShares(shares[index] ?? []) }));
}
