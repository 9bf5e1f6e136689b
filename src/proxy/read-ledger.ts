import type { JsonObject } from '../effects/json.ts';
import type { LedgerDraft } from '../effects/ledger.ts';

/** One read that passed. */
export interface PassedRead {
  readonly workspace: string;
  readonly agentId: string;
  readonly keyId: string;
  /** The tool's name; `null` for a read of an undeclared route. */
  readonly tool: string | null;
  readonly upstream: string;
  readonly rule: string | null;
  readonly policyVersion: string;
  /** In `observe` mode: the decision that policy would have made. */
  readonly observed: string | null;
  /** Of the upstream's answer; `null` where none came. */
  readonly status: number | null;
}

/** Reads that passed, on their way into the ledger in batches. */
export interface ReadLedger {
  record(read: PassedRead): void;
  /** Writes what is there. */
  flush(): Promise<void>;
  /** Writes what is there and stops. */
  close(): Promise<void>;
}

/** How long a read waits for its batch, ms. */
const BATCH_MS = 1000;
/** A batch is written at once when it has this many entries. */
const BATCH_ENTRIES = 500;
/** Entries that wait while the store cannot be reached; beyond, reads are added up without their statuses' detail. */
const MAX_ENTRIES = 10_000;

interface Entry {
  readonly read: PassedRead;
  count: number;
  first: number;
  last: number;
  readonly statuses: Map<string, number>;
}

/**
 * Adds up reads by who, what and why, and appends one `read.batch` event for each once a second.
 * @param now ms since the epoch, store time
 */
export function createReadLedger(
  append: (workspace: string, events: readonly LedgerDraft[]) => Promise<void>,
  now: () => number,
): ReadLedger {
  let entries = new Map<string, Entry>();
  let flushing: Promise<void> | null = null;
  let timer: NodeJS.Timeout | null = null;

  const add = (
    read: PassedRead,
    count: number,
    first: number,
    last: number,
    statuses: Iterable<[string, number]>,
  ): void => {
    const exact = `${read.workspace}\n${read.agentId}\n${read.keyId}\n${read.tool ?? ''}\n${read.upstream}\n${read.rule ?? ''}\n${read.policyVersion}\n${read.observed ?? ''}`;
    const key = entries.size < MAX_ENTRIES || entries.has(exact) ? exact : `${read.workspace}\n${read.agentId}`;
    let entry = entries.get(key);
    if (entry === undefined) {
      entry = { read, count: 0, first, last, statuses: new Map() };
      entries.set(key, entry);
    }
    entry.count += count;
    entry.first = Math.min(entry.first, first);
    entry.last = Math.max(entry.last, last);
    for (const [status, times] of statuses) entry.statuses.set(status, (entry.statuses.get(status) ?? 0) + times);
  };
  const write = async (): Promise<void> => {
    const batch = entries;
    entries = new Map();
    const byWorkspace = new Map<string, Entry[]>();
    for (const entry of batch.values()) {
      const list = byWorkspace.get(entry.read.workspace);
      if (list === undefined) byWorkspace.set(entry.read.workspace, [entry]);
      else list.push(entry);
    }
    for (const [workspace, list] of byWorkspace) {
      try {
        await append(workspace, list.map(draftOf));
      } catch {
        // Kept for the next batch: the store says elsewhere that it is down.
        for (const { read, count, first, last, statuses } of list) add(read, count, first, last, statuses);
      }
    }
  };
  const flush = async (): Promise<void> => {
    await flushing;
    if (entries.size === 0) return;
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
        if (entries.size > 0) schedule();
      });
    }, BATCH_MS);
    timer.unref();
  };
  return {
    record: (read) => {
      const at = now();
      add(read, 1, at, at, [[read.status === null ? 'none' : String(read.status), 1]]);
      if (entries.size === BATCH_ENTRIES && flushing === null) void flush();
      schedule();
    },
    flush,
    close: async () => {
      if (timer !== null) clearTimeout(timer);
      await flush();
    },
  };
}

function draftOf({ read, count, first, last, statuses }: Entry): LedgerDraft {
  const data: JsonObject = {
    tool: read.tool,
    upstream: read.upstream,
    key_id: read.keyId,
    rule: read.rule,
    policy_version: read.policyVersion,
    ...(read.observed === null ? {} : { observed: read.observed }),
    count,
    first_at: new Date(first).toISOString(),
    last_at: new Date(last).toISOString(),
    statuses: Object.fromEntries(statuses),
  };
  return { kind: 'read.batch', effectId: null, actor: { type: 'agent', id: read.agentId }, data };
}
