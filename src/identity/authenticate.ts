import { type KeyObject, timingSafeEqual } from 'node:crypto';
import type { KeyRecord } from '../effects/model/key.ts';
import type { Principal } from '../effects/model/principal.ts';
import type { EffectStore } from '../effects/store.ts';
import type { Directory } from './directory.ts';
import { hashKey, parseKey } from './key-format.ts';
import { keyState } from './key-record.ts';

/** A key that is not valid. Callers learn nothing more; `why` is for logs and metrics. */
interface InvalidKey {
  readonly failure: 'invalid_key';
  readonly why: 'malformed' | 'unknown' | 'wrong_secret' | 'expired' | 'revoked' | 'user_removed';
}

export type Authenticator = ReturnType<typeof createAuthenticator>;

/**
 * How long a record is used without asking the store. If the notice of a revocation is lost, the key works this long.
 */
const FRESH_MS = 1_000;
/** From this age, the record of a key in use is read again in the background, so that busy keys never wait. */
const REFRESH_MS = 500;
const MAX_ENTRIES = 50_000;
/** Length of HMAC-SHA-256. */
const HASH_BYTES = 32;
/** `last_used_at` is coarse: it is written at most this often. */
const TOUCH_MS = 60_000;
const TOUCH_BATCH_MS = 1_000;

interface Entry {
  readonly record: KeyRecord;
  readonly hash: Buffer;
  readonly principal: Principal | null;
  /** Whether a configuration in force has named its user: the key ends when none names him any more. */
  readonly isNamed: boolean;
  /** On the monotonic clock. */
  readonly readAt: number;
}

/**
 * Makes the authenticator. It finds keys through a cache, and drops what the store reports as changed.
 * @param options.peppers the pepper in use, then those that are being rotated out
 */
export function createAuthenticator(options: {
  readonly store: Pick<EffectStore, 'key' | 'touchKeys' | 'onKeysChanged' | 'now' | 'userSince'>;
  /** Whom the configuration names now. */
  readonly users: Pick<Directory, 'isUser'>;
  readonly peppers: readonly [KeyObject, ...KeyObject[]];
  /** Monotonic ms. */
  readonly elapsed: () => number;
}) {
  const { store, users, peppers, elapsed } = options;
  const { fresh, read } = keyCache(store, users, elapsed);
  const touches = touchBook(store);

  function judge(entry: Entry | null, key: string): Principal | InvalidKey {
    if (entry === null) return invalid('unknown');
    // All peppers are tried, also after a match, so that the time taken reveals nothing about the secret.
    let matches = false;
    for (const pepper of peppers) if (timingSafeEqual(hashKey(pepper, key), entry.hash)) matches = true;
    return matches ? ownerOf(entry) : invalid('wrong_secret');
  }

  function ownerOf(entry: Entry): Principal | InvalidKey {
    const now = store.now();
    const state = keyState(entry.record, now);
    if (state !== 'active') return invalid(state);
    if (entry.principal === null) return invalid('unknown');
    if (entry.isNamed && !users.isUser(entry.record.user ?? '')) return invalid('user_removed');
    touches.note(entry.record, now);
    return entry.principal;
  }

  return {
    /**
     * Finds out who a key (in clear text) belongs to. Returns a promise only when the key is not in the cache. The
     * promise rejects with `StoreUnavailable` when the store cannot be reached.
     */
    authenticate(key: string): Principal | InvalidKey | Promise<Principal | InvalidKey> {
      const parsed = parseKey(key);
      if (parsed === null) return invalid('malformed');
      const { handle } = parsed;
      const entry = fresh(handle);
      return entry === null ? read(handle).then((found) => judge(found, key)) : judge(entry, key);
    },
    /**
     * Whom a key that has proved itself before belongs to now, by its id: for sessions that began with the key and end
     * with it. Rejects like {@link Authenticator.authenticate}.
     */
    async stillValid(keyId: string): Promise<Principal | InvalidKey> {
      const handle = keyId.slice('key_'.length);
      const entry = fresh(handle) ?? (await read(handle));
      return entry === null ? invalid('unknown') : ownerOf(entry);
    },
    close: (): Promise<void> => touches.close(),
  };
}

/** Records of keys, with what the store reports as changed dropped. */
function keyCache(
  store: Pick<EffectStore, 'key' | 'onKeysChanged' | 'userSince'>,
  users: Pick<Directory, 'isUser'>,
  elapsed: () => number,
) {
  const entries = new Map<string, Entry>();
  const reading = new Map<string, Promise<Entry | null>>();
  /** Counts invalidations. A record whose read began before one must not enter the cache after it. */
  let invalidations = 0;

  store.onKeysChanged((handles) => {
    invalidations += 1;
    if (handles === null) {
      entries.clear();
      reading.clear();
      return;
    }
    for (const handle of handles) {
      entries.delete(handle);
      reading.delete(handle);
    }
  });

  function read(handle: string): Promise<Entry | null> {
    const underWay = reading.get(handle);
    if (underWay !== undefined) return underWay;
    const before = invalidations;
    const started = elapsed();
    const promise = store
      .key(handle)
      .then(async (record) => {
        if (record === null) {
          if (before === invalidations) entries.delete(handle);
          return null;
        }
        const entry = { ...entryOf(record, started), isNamed: await wasNamed(record.user, users, store) };
        if (before === invalidations) keep(handle, entry);
        return entry;
      })
      .finally(() => {
        if (reading.get(handle) === promise) reading.delete(handle);
      });
    reading.set(handle, promise);
    return promise;
  }

  function keep(handle: string, entry: Entry): void {
    if (entries.size >= MAX_ENTRIES && !entries.has(handle)) {
      const [oldest] = entries.keys();
      if (oldest !== undefined) entries.delete(oldest);
    }
    entries.set(handle, entry);
  }

  /** The record of a key that was read lately; `null` if the store has to be asked. */
  function fresh(handle: string): Entry | null {
    const entry = entries.get(handle);
    if (entry === undefined) return null;
    const age = elapsed() - entry.readAt;
    if (age >= FRESH_MS) return null;
    // A failure here is ignored: the entry grows old, and the next request asks the store itself.
    if (age >= REFRESH_MS && !reading.has(handle)) read(handle).catch(() => undefined);
    return entry;
  }

  return { fresh, read };
}

/** Whether a configuration names a user, or has named him before. A key may also be made for a user whom none ever named. */
export async function wasNamed(
  user: string | null,
  users: Pick<Directory, 'isUser'>,
  store: Pick<EffectStore, 'userSince'>,
): Promise<boolean> {
  return user !== null && (users.isUser(user) || (await store.userSince(user)) !== null);
}

function invalid(why: InvalidKey['why']): InvalidKey {
  return { failure: 'invalid_key', why };
}

/** Why the record of a key can never be valid, whatever secret comes with its handle; `null` where it is sound. */
export function faultOfKey(record: KeyRecord): string | null {
  if (record.id !== `key_${record.handle}`) return 'its id is not that of its handle';
  if (Buffer.from(record.hash, 'base64url').length !== HASH_BYTES) return 'its hash is none';
  return principalOf(record) === null ? 'it lacks what its kind needs' : null;
}

function entryOf(record: KeyRecord, readAt: number): Omit<Entry, 'isNamed'> {
  const hash = Buffer.from(record.hash, 'base64url');
  // `timingSafeEqual` needs equal lengths. A record with a malformed hash matches nothing.
  return {
    record,
    hash: hash.length === HASH_BYTES ? hash : Buffer.alloc(HASH_BYTES),
    principal: principalOf(record),
    readAt,
  };
}

/** @returns `null` for a record without the fields that its kind needs; such a key is not valid */
function principalOf(record: KeyRecord): Principal | null {
  const { workspace, agentId, profile } = record;
  const base = {
    keyId: record.id,
    user: record.user,
    madeBy: record.madeBy,
    keyCreatedAt: record.createdAt,
    readOnly: record.readOnly,
    allowedTools: record.allowedTools,
  };
  switch (record.kind) {
    case 'account':
      return workspace === null ? null : { ...base, kind: 'account', workspace };
    case 'agent':
      return workspace === null || agentId === null ? null : { ...base, kind: 'agent', workspace, agentId };
    case 'administrative':
      return { ...base, kind: 'administrative' };
    case 'profile':
      return profile === null ? null : { ...base, kind: 'profile', profile, workspace, agentId, scopes: record.scopes };
  }
}

/** Collects which keys were used, and writes that in batches. */
function touchBook(store: Pick<EffectStore, 'touchKeys' | 'now'>): {
  note(record: KeyRecord, now: number): void;
  close(): Promise<void>;
} {
  const writtenAt = new Map<string, number>();
  let batch: string[] = [];
  let timer: NodeJS.Timeout | null = null;

  async function flush(): Promise<void> {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    const ids = batch;
    batch = [];
    if (ids.length === 0) return;
    try {
      await store.touchKeys(ids, store.now());
    } catch {
      // Only a coarse time for people: not worth failing a request or a retry.
    }
  }

  return {
    note(record, now) {
      const last = writtenAt.get(record.id) ?? record.lastUsedAt;
      if (last !== null && now - last < TOUCH_MS) return;
      if (writtenAt.size >= MAX_ENTRIES) writtenAt.clear();
      writtenAt.set(record.id, now);
      batch.push(record.id);
      timer ??= setTimeout(() => void flush(), TOUCH_BATCH_MS).unref();
    },
    close: flush,
  };
}
