import { keyCreated, keyEnded } from '../../effects/key-events.ts';
import type { KeyRecord } from '../../effects/controls.ts';
import { INSTALLATION, type LedgerActor } from '../../effects/ledger.ts';
import type { EffectStore } from '../../effects/store.ts';
import type { Session } from './session.ts';

/** `lastUsedAt` of a key is written at most this often, ms. */
const TOUCH_EVERY_MS = 60_000;

/** Puts a key, new or changed. */
export function putKey(
  session: Session,
  { key, actor }: { readonly key: KeyRecord; readonly actor: LedgerActor },
): null {
  const isNew = session.keys.get(key.id) === null;
  session.keys.put(key);
  session.changes.keys.add(key.handle);
  if (!isNew) return null;
  session.append(key.workspace ?? INSTALLATION, [keyCreated(key, actor)]);
  return null;
}

/** Puts a key where there is none at all. */
export function putFirstKey(session: Session, request: Parameters<typeof putKey>[1]): boolean {
  if (session.keys.list(null).length > 0) return false;
  putKey(session, request);
  return true;
}

/** Revokes a key, or lets its successor take over. A key that was ended before stays as it is. */
export function endKey(
  session: Session,
  request: { readonly id: string; readonly end: Parameters<EffectStore['endKey']>[1]; readonly actor: LedgerActor },
): KeyRecord | null {
  const { id, end, actor } = request;
  const key = session.keys.get(id);
  if (key === null || key.revokedAt !== null || (end.kind === 'replaced' && key.replacedBy !== null)) return key;
  const { now } = session.view;
  const ended: KeyRecord =
    end.kind === 'revoked'
      ? { ...key, revokedAt: now }
      : { ...key, replacedBy: end.by, expiresAt: Math.min(key.expiresAt ?? Infinity, now + end.overlapMs) };
  session.keys.put(ended);
  session.changes.keys.add(key.handle);
  session.append(key.workspace ?? INSTALLATION, [keyEnded(id, end, actor)]);
  return ended;
}

/** Notes that keys were used. */
export function touchKeys(
  session: Session,
  { ids, at }: { readonly ids: readonly string[]; readonly at: number },
): null {
  for (const id of ids) {
    const key = session.keys.get(id);
    if (key === null || (key.lastUsedAt !== null && at - key.lastUsedAt < TOUCH_EVERY_MS)) continue;
    session.keys.put({ ...key, lastUsedAt: at });
  }
  return null;
}

/** Binds the store to a master secret; see {@link EffectStore.bindSecret}. */
export function bindSecret(session: Session, { marks }: { readonly marks: readonly [string, ...string[]] }): boolean {
  const there = session.controls.secretMark();
  if (there !== null && !marks.includes(there)) return false;
  if (there !== marks[0]) session.controls.putSecretMark(marks[0]);
  return true;
}
