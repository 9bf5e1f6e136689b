import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { startRedis } from '../redis/servers.ts';
import { onRedis } from '../system/fleet.ts';
import { makeApiKey, type TestFiles } from '../system/gateway.ts';
import { makeDisk } from './disk.ts';
import { startVictim, type Victim } from './victim.ts';
import type { AgentName } from './workload.ts';

/** What can be broken. */
export type TroubleName =
  | 'gateway_kill'
  | 'gateway_freeze'
  | 'crash_point'
  | 'freeze_point'
  | 'clock_jump'
  | 'disk_full'
  | 'redis_kill'
  | 'redis_freeze'
  | 'redis_disk_full'
  | 'primary_kill';

/** One way to break something, and to mend it. */
export interface Trouble {
  readonly name: TroubleName;
  /** How often it is chosen, against the others. */
  readonly weight: number;
  /** Processes that it kills at least. */
  readonly kills: number;
  /** @returns for how long nothing could be written, ms, where that is measured */
  run(random: () => number): Promise<number | null>;
}

/** What stands between the clients and the upstream. */
export interface Rig {
  /** Where a client sends a call, by chance where there are several gateways. */
  url(random: () => number): string;
  readonly agentKeys: Readonly<Record<AgentName, string>>;
  /** `null`: there are no records to look at, only answers. */
  readonly accountKey: string | null;
  readonly troubles: readonly Trouble[];
  /** Processes killed so far. */
  kills(): number;
  /** What gateways logged at level error. */
  complaints(): readonly string[];
  /** What `svc fsck` finds; where there are no records, nothing. Called last. */
  differences(): Promise<number>;
  dispose(): Promise<void>;
}

/** The longest that a process is frozen, ms; the fleet is told of it (`max_freeze`). */
const FREEZE_MS = 2500;

/** The longest that a disk is full, ms. */
const FULL_MS = 1500;

/** Room that a full disk may have left, bytes: what is written then is cut short. */
const SPARE_BYTES = 60_000;

interface Keys {
  readonly agentKeys: Readonly<Record<AgentName, string>>;
  readonly accountKey: string;
}

async function keysOf(victim: Victim): Promise<Keys> {
  const agentKey = (agent: AgentName): Promise<string> =>
    makeApiKey(victim.gateway(), 'tess', { kind: 'agent', workspace: 'demo', agent_id: agent });
  return {
    agentKeys: { rich: await agentKey('rich'), poor: await agentKey('poor') },
    accountKey: await makeApiKey(victim.gateway(), 'tess', { kind: 'account', workspace: 'demo' }),
  };
}

/** A trouble that tells nothing of how long it lasted. */
export function trouble(
  name: TroubleName,
  weight: number,
  kills: number,
  run: (random: () => number) => Promise<void>,
): Trouble {
  return {
    name,
    weight,
    kills,
    async run(random) {
      await run(random);
      return null;
    },
  };
}

/** What can happen to a gateway; `choose` says to which one. */
function gatewayTroubles(choose: (random: () => number) => Victim): readonly Trouble[] {
  const canFill = choose(() => 0).disk.fill !== null;
  return [
    trouble('gateway_kill', 45, 1, (random) => choose(random).kill()),
    trouble('crash_point', 12, 2, (random) => choose(random).dieAtPoint(random)),
    trouble('gateway_freeze', 8, 0, (random) => choose(random).freeze(random() * FREEZE_MS)),
    trouble('freeze_point', 8, 1, (random) => choose(random).freezeAtPoint(random, random() * FREEZE_MS)),
    trouble('clock_jump', 8, 0, (random) => choose(random).shiftClock(random)),
    trouble('disk_full', canFill ? 6 : 0, 0, async (random) => {
      const { disk } = choose(random);
      disk.fill?.(Math.floor(random() * SPARE_BYTES));
      await pause(random() * FULL_MS);
      disk.empty();
    }),
  ];
}

/** One gateway on its embedded store. */
export async function embeddedRig(files: TestFiles): Promise<Rig> {
  const victim = await startVictim(files, '');
  return {
    url: () => victim.url,
    ...(await keysOf(victim)),
    troubles: gatewayTroubles(() => victim),
    kills: () => victim.kills(),
    complaints: () => victim.complaints(),
    async differences() {
      await victim.gateway().stop();
      return differencesIn(await victim.command('fsck', '--json'));
    },
    dispose: () => victim.dispose(),
  };
}

function differencesIn(said: { readonly code: number; readonly out: string }): number {
  if (said.code === 0) return 0;
  console.error(said.out);
  const found: unknown = said.code === 1 ? JSON.parse(said.out) : null;
  const isList = typeof found === 'object' && found !== null && 'differences' in found;
  // That it could not be told is no better than a difference.
  return isList && Array.isArray(found.differences) ? found.differences.length : 1;
}

/** Two gateways that share a store on Redis. */
export interface Pair {
  readonly first: Victim;
  readonly keys: Keys;
  oneOf(random: () => number): Victim;
  readonly part: Pick<Rig, 'url' | 'agentKeys' | 'accountKey' | 'complaints' | 'differences'>;
  kills(): number;
  dispose(): Promise<void>;
}

/** Starts them. `store`: fields of the section beside kind and journal, as YAML flow. */
export async function startPair(files: TestFiles, store: string): Promise<Pair> {
  const shared = await mkdtemp(join(tmpdir(), 'svc-torture-keys-'));
  const config = onRedis(files, `${store}, max_freeze: ${FREEZE_MS + 500}ms`);
  const first = await startVictim(config, shared);
  const second = await startVictim(config, shared);
  const keys = await keysOf(first);
  const oneOf = (random: () => number): Victim => (random() < 0.5 ? first : second);
  return {
    first,
    keys,
    oneOf,
    part: {
      url: (random) => oneOf(random).url,
      ...keys,
      complaints: () => [...first.complaints(), ...second.complaints()],
      differences: async () => differencesIn(await first.command('fsck', '--json')),
    },
    kills: () => first.kills() + second.kills(),
    async dispose() {
      await Promise.all([first.dispose(), second.dispose()]);
      await rm(shared, { recursive: true, force: true });
    },
  };
}

/** Two gateways before one Redis that syncs its append-only file at every step. */
export async function redisRig(files: TestFiles): Promise<Rig> {
  const disk = await makeDisk();
  const redis = await startRedis(['--dir', disk.folder]);
  const pair = await startPair(files, `url: "${redis.url}"`);
  let kills = 0;
  return {
    ...pair.part,
    troubles: [
      ...gatewayTroubles(pair.oneOf),
      trouble('redis_kill', 16, 1, async () => {
        kills += 1;
        await redis.restart();
      }),
      trouble('redis_freeze', 6, 0, async (random) => {
        redis.signal('SIGSTOP');
        await pause(random() * FREEZE_MS);
        redis.signal('SIGCONT');
      }),
      trouble('redis_disk_full', disk.fill === null ? 0 : 4, 1, async (random) => {
        disk.fill?.(Math.floor(random() * SPARE_BYTES));
        await pause(random() * FULL_MS);
        disk.empty();
        // With `appendfsync always` Redis ends itself when it cannot write; where nobody wrote, it is killed.
        kills += 1;
        await redis.restart();
      }),
    ],
    kills: () => kills + pair.kills(),
    async dispose() {
      await pair.dispose();
      await redis.stop();
      await disk.remove();
    },
  };
}
