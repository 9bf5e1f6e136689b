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

/** Users by id, each with all roles. */
export type Roster = readonly (readonly [user: string, roles: readonly string[]])[];

/** Who became a user or is none any more, and which roles were given and taken. */
export function userEvents(before: Roster, after: Roster, actor: LedgerActor): readonly LedgerDraft[] {
  const [was, is] = [new Map(before), new Map(after)];
  const without = (roles: readonly string[], others: readonly string[]) =>
    roles.filter((role) => !others.includes(role));
  return [...new Set([...was.keys(), ...is.keys()])].flatMap((user): LedgerDraft[] => {
    const [had, has] = [was.get(user), is.get(user)];
    const event = { effectId: null, actor };
    if (has === undefined) return [{ ...event, kind: 'user.removed', data: { user, roles: had ?? [] } }];
    if (had === undefined) return [{ ...event, kind: 'user.added', data: { user, roles: has } }];
    const [given, taken] = [without(has, had), without(had, has)];
    if (given.length + taken.length === 0) return [];
    return [{ ...event, kind: 'user.roles_changed', data: { user, given, taken } }];
  });
}
