import type { LedgerActor, LedgerDraft } from '../model/ledger.ts';

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
