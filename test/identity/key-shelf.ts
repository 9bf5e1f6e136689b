import { createSecretKey } from 'node:crypto';
import type { KeyRecord } from '../../src/effects/model/key.ts';
import type { KeyKind } from '../../src/effects/model/principal.ts';
import type { EffectStore } from '../../src/effects/store.ts';
import { makeKey } from '../../src/identity/key-format.ts';
import { recordOf } from '../../src/identity/key-record.ts';

type Shelf = Pick<
  EffectStore,
  'key' | 'keys' | 'putKey' | 'putFirstKey' | 'touchKeys' | 'onKeysChanged' | 'now' | 'health' | 'userSince'
>;

/** The part of a store that keeps keys, in memory, with a clock to set, and with reads that can be held up. */
export interface KeyShelf extends Shelf {
  readonly records: Map<string, KeyRecord>;
  /** Users whom the configuration names, or has named: whether it does now. */
  readonly users: Map<string, boolean>;
  isUser(user: string): boolean;
  readonly touched: { readonly ids: readonly string[]; readonly at: number }[];
  reads: number;
  time: number;
  /** While set, reads wait for it, after they have looked. */
  gate: Promise<void> | null;
  fault: Error | null;
  ready: boolean;
  announce(handles: readonly string[] | null): void;
}

export function keyShelf(): KeyShelf {
  const listeners: ((handles: readonly string[] | null) => void)[] = [];
  const shelf: KeyShelf = {
    records: new Map(),
    users: new Map(),
    isUser: (user) => shelf.users.get(user) === true,
    userSince: async (user) => (shelf.users.has(user) ? 0 : null),
    touched: [],
    reads: 0,
    time: 1_000_000,
    gate: null,
    fault: null,
    ready: true,
    now: () => shelf.time,
    health: () => ({ ready: shelf.ready, problem: null, durability: 'fsync', epoch: 1 }),
    async key(handle) {
      shelf.reads += 1;
      if (shelf.fault !== null) throw shelf.fault;
      const found = shelf.records.get(handle) ?? null;
      if (shelf.gate !== null) await shelf.gate;
      return found;
    },
    keys: async () => [...shelf.records.values()],
    async putKey(record) {
      shelf.records.set(record.handle, record);
      shelf.announce([record.handle]);
    },
    async putFirstKey(record, actor) {
      if (shelf.records.size > 0) return false;
      await shelf.putKey(record, actor);
      return true;
    },
    async touchKeys(ids, at) {
      shelf.touched.push({ ids, at });
    },
    onKeysChanged: (listener) => void listeners.push(listener),
    announce(handles) {
      for (const listener of listeners) listener(handles);
    },
  };
  return shelf;
}

export const PEPPER = createSecretKey(Buffer.alloc(32, 5));

/** A key on the shelf. */
export function shelve(
  shelf: KeyShelf,
  kind: KeyKind,
  change: Partial<KeyRecord> = {},
  pepper = PEPPER,
): { readonly key: string; readonly record: KeyRecord } {
  const made = makeKey(kind);
  const rights = {
    kind,
    name: 'test',
    user: 'maria',
    madeBy: null,
    workspace: kind === 'administrative' ? null : 'demo',
    agentId: kind === 'agent' ? 'bot' : null,
    profile: kind === 'profile' ? 'mcp_agent' : null,
    scopes: [],
    allowedTools: null,
    readOnly: false,
  };
  const record = { ...recordOf(made, rights, null, { pepper, now: shelf.time }), ...change };
  shelf.records.set(record.handle, record);
  return { key: made.key, record };
}
