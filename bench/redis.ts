import { sideBySide } from './compare.ts';
import { canPin, type CpuShares } from './cpu.ts';
import { newWrite } from './load.ts';
import type { BenchResult } from './result.ts';
import { openStage } from './stage.ts';

/**
 * A governed write with the store on Redis (append-only file, synced every second), against the ungoverned proxy: as it
 * runs where there are two cores, with its store in a thread of its own. Then on one core, where there is no such thread,
 * also against what a team would assemble from libraries on the same Redis, with one rule and with ten: the three compared
 * servers have one core each, the same; Redis, the upstream and the load have the others.
 */
export async function run(): Promise<BenchResult[]> {
  return [...(await inThreads()), ...(await compared('one', '>= 1')), ...(await compared('ten', '>= 1.7'))];
}

async function inThreads(): Promise<BenchResult[]> {
  const stage = await openStage();
  try {
    const redis = await stage.redis();
    const proxy = await stage.proxy();
    const gateway = await stage.gateway({ name: 'gateway', redis, rules: 'one' });
    const [plain, governed] = await sideBySide([proxy, gateway], stage.upstream, newWrite);
    if (plain === undefined || governed === undefined) throw new Error('two were compared');
    return [
      {
        name: 'governed write, Redis store, one rule',
        value: Math.round(governed.rate),
        unit: 'requests/s',
        peer: `@fastify/http-proxy ${Math.round(plain.rate)} requests/s`,
        ratio: governed.rate / plain.rate,
        target: '>= 0.5',
        cpu: { governed: governed.cpu, ungoverned: plain.cpu },
      },
    ];
  } finally {
    await stage.stop();
  }
}

async function compared(rules: 'one' | 'ten', target: string): Promise<BenchResult[]> {
  const stage = await openStage();
  try {
    const redis = await stage.redis();
    const proxy = await stage.proxy('first');
    const assembled = await stage.assembled(redis, rules);
    const gateway = await stage.gateway({ name: 'gateway', redis, rules, place: 'first' });
    const servers = [proxy, assembled, gateway];
    const [plain, libraries, governed] = await sideBySide(servers, stage.upstream, newWrite);
    if (plain === undefined || libraries === undefined || governed === undefined)
      throw new Error('three were compared');
    const against = (peer: string, other: typeof plain, wanted: string, cpu: Record<string, CpuShares>) => ({
      name: `governed write, Redis store, ${rules} rule${rules === 'one' ? '' : 's'}, ${canPin() ? 'on one core' : 'not on one core: there is no taskset'}`,
      value: Math.round(governed.rate),
      unit: 'requests/s',
      peer: `${peer} ${Math.round(other.rate)} requests/s`,
      ratio: governed.rate / other.rate,
      target: wanted,
      cpu,
    });
    return [
      against('@fastify/http-proxy', plain, '>= 0.5', { governed: governed.cpu, ungoverned: plain.cpu }),
      against('fastify, json-rules-engine, @node-idempotency, rate-limiter-flexible', libraries, target, {
        assembled: libraries.cpu,
      }),
    ];
  } finally {
    await stage.stop();
  }
}
