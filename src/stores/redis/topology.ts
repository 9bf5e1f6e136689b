import { StoreUnavailable } from '../../effects/store.ts';
import {
  openConnection,
  type RedisAccess,
  type RedisAddress,
  type RedisConnection,
  type RedisTarget,
} from './connection.ts';
import { BARRIER_ANSWER_MS, type BarrierMode, checkServer, Barrier, type Durability } from './durability.ts';
import { slotOf, workspaceTag } from './names.ts';
import { script, SCRIPT_NAMES } from './scripts.ts';

/** A primary: the server on which steps run, and the barrier that confirms them. */
export type Primary = Readonly<ReturnType<typeof openPrimary>>;

/** The servers, and which primary a workspace is on. */
export interface Topology {
  primaryOf(workspace: string): Primary;
  primaries(): readonly Primary[];
  /** Looks for the primaries again, because a server broke, or is none any more. */
  relocate(): Promise<void>;
  /** Goes where a server said that a workspace has moved to (`MOVED`, Redis Cluster specification). @throws StoreUnavailable */
  follow(workspace: string, moved: StoreUnavailable): Promise<void>;
  ready(): Promise<void>;
  close(): void;
}

export interface TopologySettings {
  readonly access: RedisAccess;
  readonly durability: Durability;
  readonly allowWeakDurability: boolean;
  readonly gatewayId: string;
  readonly clock: () => string;
  /** Whether the store is still being opened by a gateway that has not worked on it before. */
  readonly atFirstStart: () => boolean;
}

/** A server whose settings did not pass the check is checked again after this long, ms. */
const CHECK_AGAIN_MS = 100;

/** Opens a primary with its two connections. Its settings are checked on every new connection, before any step. */
function openPrimary(target: RedisTarget, settings: TopologySettings) {
  const { access, durability, allowWeakDurability } = settings;
  const steps = openConnection(target, access, { name: `svc:${settings.gatewayId}` });
  const barrierConnection = openConnection(target, access, {
    name: `svc:${settings.gatewayId}:barrier`,
    answerMs: BARRIER_ANSWER_MS,
  });
  let checked: { readonly mode: BarrierMode } | null = null;
  let fault: Error | null = null;
  const barrier = new Barrier(barrierConnection, () => checked?.mode ?? 'wait', settings.gatewayId, settings.clock);
  let closed = false;

  async function check(): Promise<void> {
    try {
      const mode = await checkServer(steps, durability, allowWeakDurability, settings.atFirstStart());
      await steps.pipeline(SCRIPT_NAMES.map((name) => ['SCRIPT', 'LOAD', script(name).source] as const));
      checked = { mode };
      fault = null;
    } catch (error) {
      checked = null;
      fault = error instanceof Error ? error : new Error(String(error));
      // A server that is not a primary may become one, or another one is found; a setting may be corrected.
      const mayPass = error instanceof StoreUnavailable;
      setTimeout(
        () => {
          if (closed || steps.client.status !== 'ready') return;
          if (mayPass) steps.reset();
          else void check();
        },
        mayPass ? CHECK_AGAIN_MS : CHECK_AGAIN_MS * 10,
      ).unref();
    }
  }
  steps.client.on('ready', () => void check());
  steps.client.on('close', () => {
    checked = null;
  });

  return {
    /** @throws StoreUnavailable while it cannot be reached or its settings have not passed the check */
    connection(): RedisConnection {
      if (checked === null) throw new StoreUnavailable(fault?.message ?? 'Redis cannot be reached');
      return steps;
    },
    barrier,
    /** Waits until it can be reached and was checked. @throws Error for settings that cannot be used, StoreUnavailable */
    async ready(): Promise<void> {
      await Promise.all([steps.ready(), barrierConnection.ready()]);
      const deadline = performance.now() + BARRIER_ANSWER_MS * 2;
      while (checked === null && fault === null && performance.now() < deadline) {
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      if (checked === null) throw fault ?? new StoreUnavailable('Redis cannot be reached');
    },
    /** What is wrong with its settings, or `null`. */
    fault: (): string | null => fault?.message ?? null,
    close() {
      closed = true;
      barrier.close();
      steps.close();
      barrierConnection.close();
    },
  };
}

/** One primary, at an address or found through Sentinel. */
export function openSinglePrimary(target: RedisTarget, settings: TopologySettings): Topology {
  const primary = openPrimary(target, settings);
  return {
    primaryOf: () => primary,
    primaries: () => [primary],
    relocate: () => Promise.resolve(),
    follow: (_workspace, moved) => Promise.reject(moved),
    ready: primary.ready,
    close: primary.close,
  };
}

/** How often the slots of a cluster are read, ms. */
const RELOCATE_EVERY_MS = 2000;

/** The slots are never read more often than this, whatever goes wrong, ms. */
const RELOCATE_AT_MOST_MS = 200;

/** Slots from, to, and the address of their primary. */
type Ranges = readonly (readonly [number, number, string])[];

/** A cluster: a primary for each range of slots. */
export function openCluster(nodes: readonly RedisAddress[], settings: TopologySettings): Topology {
  const primaries = new Map<string, Primary>();
  /** The address of the primary of each slot. */
  let owners: readonly string[] = [];
  /** The last one that was moved to. It knows of that before others do. */
  let newest: string | null = null;
  let checking: Promise<void> | null = null;
  let checkedAt = -RELOCATE_AT_MOST_MS;

  const newestFirst = () =>
    [...primaries].toSorted(([one], [other]) => Number(other === newest) - Number(one === newest));

  async function check(): Promise<void> {
    const before = newest;
    const ranges = await askSlots(newestFirst(), nodes, settings.access);
    // Somebody was sent elsewhere meanwhile: this may be how it was before. The next look is soon.
    if (newest !== before) return;
    const next: string[] = [];
    for (const [first, last, owner] of ranges) for (let slot = first; slot <= last; slot += 1) next[slot] = owner;
    owners = next;
    const wanted = new Set(ranges.map(([, , owner]) => owner));
    wanted.forEach(opened);
    for (const [owner, primary] of primaries) {
      if (wanted.has(owner)) continue;
      primaries.delete(owner);
      primary.close();
    }
  }

  function opened(owner: string): Primary {
    const known = primaries.get(owner);
    if (known !== undefined) return known;
    const primary = openPrimary({ kind: 'address', address: addressOf(owner) }, settings);
    primaries.set(owner, primary);
    return primary;
  }

  async function follow(workspace: string, moved: StoreUnavailable): Promise<void> {
    const slot = slotOf(workspaceTag(workspace));
    const [, host, port] = /^MOVED \d+ (.*):(\d+)$/.exec(moved.cause instanceof Error ? moved.cause.message : '') ?? [];
    if (host === undefined || port === undefined) throw moved;
    // Without a host it is that of the server that was asked.
    newest = `${host === '' ? addressOf(owners[slot] ?? '').host : host}:${port}`;
    const next = [...owners];
    next[slot] = newest;
    owners = next;
    await opened(newest).ready();
  }

  function relocate(): Promise<void> {
    if (checking === null && performance.now() - checkedAt < RELOCATE_AT_MOST_MS) return Promise.resolve();
    checking ??= check().finally(() => {
      checking = null;
      checkedAt = performance.now();
    });
    return checking;
  }

  const timer = setInterval(() => void relocate().catch(() => undefined), RELOCATE_EVERY_MS);
  timer.unref();

  return {
    primaryOf(workspace) {
      const owner = owners[slotOf(workspaceTag(workspace))];
      const primary = owner === undefined ? undefined : primaries.get(owner);
      if (primary === undefined)
        throw new StoreUnavailable('Redis: no node of the cluster has the slot of the workspace');
      return primary;
    },
    primaries: () => [...primaries.values()],
    relocate,
    follow,
    async ready() {
      await relocate();
      await Promise.all([...primaries.values()].map((primary) => primary.ready()));
    },
    close() {
      clearInterval(timer);
      for (const primary of primaries.values()) primary.close();
    },
  };
}

async function slotsFrom(address: RedisAddress, access: TopologySettings['access']): Promise<Ranges> {
  const connection = openConnection({ kind: 'address', address }, access, { name: 'svc:slots' });
  try {
    await connection.ready();
    return rangesOf(await connection.command('CLUSTER', 'SLOTS'), address.host);
  } finally {
    connection.close();
  }
}

/** Asks primaries that answer, then, on new connections, every server that was ever named. */
async function askSlots(
  primaries: readonly (readonly [string, Primary])[],
  nodes: readonly RedisAddress[],
  access: TopologySettings['access'],
): Promise<Ranges> {
  for (const [owner, primary] of primaries) {
    try {
      return rangesOf(await primary.connection().command('CLUSTER', 'SLOTS'), addressOf(owner).host);
    } catch {
      // Another server may answer.
    }
  }
  const asked = [...nodes, ...primaries.map(([owner]) => addressOf(owner))].map((address) =>
    slotsFrom(address, access),
  );
  try {
    return await Promise.any(asked);
  } catch (error) {
    throw new StoreUnavailable('Redis: no node of the cluster can be reached', { cause: error });
  }
}

/**
 * The ranges of `CLUSTER SLOTS`: first, last, address of the primary. An empty host means the server that was asked.
 */
function rangesOf(reply: unknown, askedHost: string): Ranges {
  if (!Array.isArray(reply)) throw new TypeError('CLUSTER SLOTS has another form');
  return reply.map((range: unknown) => {
    if (!Array.isArray(range) || !Array.isArray(range[2])) throw new TypeError('CLUSTER SLOTS has another form');
    const [host, port] = range[2];
    const name = typeof host === 'string' && host !== '' ? host : askedHost;
    return [Number(range[0]), Number(range[1]), `${name}:${String(port)}`] as const;
  });
}

function addressOf(owner: string): RedisAddress {
  const colon = owner.lastIndexOf(':');
  return { host: owner.slice(0, colon), port: Number(owner.slice(colon + 1)) };
}
