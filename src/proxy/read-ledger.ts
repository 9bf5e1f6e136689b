import type { JsonObject } from '../json/value.ts';
import type { LedgerDraft } from '../effects/model/ledger.ts';

export interface PassedRead {
  readonly workspace: string;
  readonly agentId: string;
  readonly keyId: string;
  /** The tool's name; `null` for a read of an undeclared route. */
  readonly tool: string | null;
  readonly upstream: string;
  readonly rule: string | null;
  readonly policyVersion: string;
  /** In `observe` mode: what policy would have said. */
  readonly observed: ObservedRead | null;
}

/** A read that policy would have stopped if it were enforced. */
export interface ObservedRead {
  readonly would: string;
  /** The rule that would have stopped it; `null` if no rule allows it. */
  readonly rule: string | null;
  /** Method and path, without the query. If several reads are added up, those of the first one. */
  readonly example: string;
}

/** Collects reads that passed and writes them into the ledger in batches. */
export type ReadLedger = ReturnType<typeof createReadLedger>;

/** How long a read waits for its batch, ms. */
const BATCH_MS = 1000;
/** A batch with this many entries is written at once. */
const BATCH_ENTRIES = 500;
/**
 * The most entries that wait while the store cannot be reached. Beyond it, all reads of a key are counted in the key's
 * first entry.
 */
const MAX_ENTRIES = 10_000;
/** For reads without an answer. */
const NO_STATUS = 0;

interface Entry {
  readonly read: PassedRead;
  count: number;
  first: number;
  last: number;
  readonly statuses: Map<number, number>;
}

/**
 * Adds up reads with the same caller, tool and reason. Once a second it appends one `read.batch` event for each sum.
 * @param now ms since the epoch, store time
 */
export function createReadLedger(
  append: (workspace: string, events: readonly LedgerDraft[]) => Promise<void>,
  now: () => number,
) {
  const sums = createReadSums();
  let flushing: Promise<void> | null = null;
  let timer: NodeJS.Timeout | null = null;

  const write = async (): Promise<void> => {
    for (const [workspace, list] of sums.take()) {
      try {
        await append(workspace, list.map(draftOf));
      } catch {
        // Kept for the next batch. That the store is down is reported elsewhere.
        for (const { read, count, first, last, statuses } of list) sums.add(read, count, first, last, statuses);
      }
    }
  };
  const flush = async (): Promise<void> => {
    await flushing;
    if (sums.size() === 0) return;
    flushing = write().finally(() => {
      flushing = null;
    });
    await flushing;
  };
  const schedule = (): void => {
    if (timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      void flush().then(() => {
        if (sums.size() > 0) schedule();
      });
    }, BATCH_MS);
    timer.unref();
  };
  return {
    /** @param status of the upstream's answer; `null` if none came */
    record: (read: PassedRead, answered: number | null): void => {
      const at = now();
      const entry = sums.entryOf(read, at);
      const status = answered ?? NO_STATUS;
      entry.count += 1;
      entry.last = at;
      entry.statuses.set(status, (entry.statuses.get(status) ?? 0) + 1);
      if (sums.size() === BATCH_ENTRIES && flushing === null) void flush();
      schedule();
    },
    flush,
    close: async (): Promise<void> => {
      if (timer !== null) clearTimeout(timer);
      await flush();
    },
  };
}

/** Reads that are added up until they are taken. */
function createReadSums() {
  /** By key id. A key reads few different things, so a linear search is quick. */
  let entries = new Map<string, Entry[]>();
  let size = 0;

  const entryOf = (read: PassedRead, at: number): Entry => {
    let list = entries.get(read.keyId);
    if (list === undefined) {
      list = [];
      entries.set(read.keyId, list);
    }
    for (const entry of list) if (sameRead(entry.read, read)) return entry;
    const [first] = list;
    if (size >= MAX_ENTRIES && first !== undefined) return first;
    const entry: Entry = { read, count: 0, first: at, last: at, statuses: new Map() };
    list.push(entry);
    size += 1;
    return entry;
  };
  const add = (
    read: PassedRead,
    count: number,
    first: number,
    last: number,
    statuses: Iterable<[number, number]>,
  ): void => {
    const entry = entryOf(read, first);
    entry.count += count;
    if (first < entry.first) entry.first = first;
    if (last > entry.last) entry.last = last;
    for (const [status, times] of statuses) entry.statuses.set(status, (entry.statuses.get(status) ?? 0) + times);
  };
  return {
    size: () => size,
    entryOf,
    add,
    /** What was added up, by workspace. It begins anew. */
    take(): ReadonlyMap<string, readonly Entry[]> {
      const batch = entries;
      entries = new Map();
      size = 0;
      const byWorkspace = new Map<string, Entry[]>();
      for (const entry of [...batch.values()].flat()) {
        const list = byWorkspace.get(entry.read.workspace);
        if (list === undefined) byWorkspace.set(entry.read.workspace, [entry]);
        else list.push(entry);
      }
      return byWorkspace;
    },
  };
}

function sameRead(left: PassedRead, right: PassedRead): boolean {
  return (
    left.tool === right.tool &&
    left.rule === right.rule &&
    left.agentId === right.agentId &&
    left.upstream === right.upstream &&
    left.observed?.would === right.observed?.would &&
    left.observed?.rule === right.observed?.rule &&
    left.policyVersion === right.policyVersion &&
    left.workspace === right.workspace
  );
}

function draftOf({ read, count, first, last, statuses }: Entry): LedgerDraft {
  const data: JsonObject = {
    tool: read.tool,
    upstream: read.upstream,
    key_id: read.keyId,
    rule: read.rule,
    policy_version: read.policyVersion,
    ...(read.observed === null
      ? {}
      : {
          observed: read.observed.would,
          observed_by: read.observed.rule,
          example: read.observed.example,
        }),
    count,
    first_at: new Date(first).toISOString(),
    last_at: new Date(last).toISOString(),
    statuses: Object.fromEntries(
      [...statuses].map(([status, n]) => [status === NO_STATUS ? 'none' : String(status), n]),
    ),
  };
  return { kind: 'read.batch', effectId: null, actor: { type: 'agent', id: read.agentId }, data };
}
