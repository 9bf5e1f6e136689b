import type { KeyRecord } from '../effects/model/key.ts';
import type { LedgerActor } from '../effects/model/ledger.ts';
import type { EffectStore } from '../effects/store.ts';

type Answer<T> = T | Promise<T>;

/** The part of a store that rotation needs. It can be the gateway's store, or a store file that a command opened. */
interface KeyShelf {
  putKey(key: KeyRecord, actor: LedgerActor): Answer<void>;
  endKey(id: string, end: Parameters<EffectStore['endKey']>[1], actor: LedgerActor): Answer<KeyRecord | null>;
}

/**
 * Replaces a key by a successor. The old key stays valid for the overlap.
 * @returns whether it did: a key has one successor, and a revoked one has none
 */
export async function rotateKey(
  store: KeyShelf,
  key: KeyRecord,
  successor: KeyRecord,
  overlapMs: number,
  actor: LedgerActor,
): Promise<boolean> {
  if (key.revokedAt !== null || key.replacedBy !== null) return false;
  // The successor first: a failure in between leaves two valid keys, never none.
  await store.putKey(successor, actor);
  const old = await store.endKey(key.id, { kind: 'replaced', by: successor.id, overlapMs }, actor);
  if (old?.replacedBy === successor.id) return true;
  // Another request was first.
  await store.endKey(successor.id, { kind: 'revoked' }, actor);
  return false;
}
