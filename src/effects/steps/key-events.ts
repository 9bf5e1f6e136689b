import type { KeyRecord } from '../model/key.ts';
import type { LedgerActor, LedgerDraft } from '../model/ledger.ts';
import type { EffectStore } from '../store.ts';

/** How long a rotated key stays valid beside its successor, s. */
export const OVERLAP_S = { usual: 3600, most: 30 * 86_400 } as const;

export function keyCreated(key: KeyRecord, actor: LedgerActor): LedgerDraft {
  return {
    kind: 'key.created',
    effectId: null,
    actor,
    data: {
      key_id: key.id,
      kind: key.kind,
      name: key.name,
      user: key.user,
      agent_id: key.agentId,
      profile: key.profile,
      expires_at: key.expiresAt === null ? null : new Date(key.expiresAt).toISOString(),
    },
  };
}

export function keyEnded(id: string, end: Parameters<EffectStore['endKey']>[1], actor: LedgerActor): LedgerDraft {
  return end.kind === 'revoked'
    ? { kind: 'key.revoked', effectId: null, actor, data: { key_id: id } }
    : { kind: 'key.rotated', effectId: null, actor, data: { key_id: id, replaced_by: end.by } };
}
