import type { LedgerActor } from './ledger.ts';

export const SCOPES = [
  'tools:read',
  'brain:read',
  'policy:simulate',
  'traces:read',
  'params:read',
  'ledger:read',
  'approvals:read',
  'approvals:decide',
  'observability:read',
  'governance:read',
  'governance:write',
  'claims:write',
  'effects:preview',
  'effects:run',
] as const;

export type Scope = (typeof SCOPES)[number];

export const KEY_KINDS = ['account', 'agent', 'administrative', 'profile'] as const;

export type KeyKind = (typeof KEY_KINDS)[number];

interface PrincipalBase {
  readonly keyId: string;
  /** The user that the key belongs to; `null` for keys without one (they cannot decide approvals). */
  readonly user: string | null;
  /** Who made the key: a user id, or `null` (bootstrap, command line). */
  readonly madeBy: string | null;
  /**
   * When the key was made, ms since the epoch. A key cannot decide a request for approval that is older than the key.
   */
  readonly keyCreatedAt: number;
  readonly readOnly: boolean;
  /** Tools that the key may call or see; `null` for no limit. */
  readonly allowedTools: readonly string[] | null;
}

/** The authenticated key behind a request, by kind. */
export type Principal =
  | (PrincipalBase & { readonly kind: 'account'; readonly workspace: string })
  | (PrincipalBase & { readonly kind: 'agent'; readonly workspace: string; readonly agentId: string })
  | (PrincipalBase & { readonly kind: 'administrative' })
  | (PrincipalBase & {
      readonly kind: 'profile';
      readonly profile: string;
      /** `null`: the key sees no workspace data. */
      readonly workspace: string | null;
      /** The agent that the key was made for; `null` for a key of no single agent. */
      readonly agentId: string | null;
      readonly scopes: readonly Scope[];
    });

/** Who acts: whom the key belongs to, else whom the request names. */
export function actingAgent(principal: Principal, named: string | null): string | null {
  if (principal.kind === 'agent') return principal.agentId;
  return (principal.kind === 'profile' ? principal.agentId : null) ?? named;
}

/** Who is named in a ledger event: the agent, else the user, else the key. */
export function ledgerActor(principal: Principal): LedgerActor {
  if (principal.kind === 'agent') return { type: 'agent', id: principal.agentId };
  if (principal.kind === 'profile' && principal.agentId !== null) return { type: 'agent', id: principal.agentId };
  return principal.user === null ? { type: 'key', id: principal.keyId } : { type: 'user', id: principal.user };
}

export interface KeyFacts {
  readonly id: string;
  readonly kind: KeyKind;
  readonly profile: string | null;
  readonly user: string | null;
}

export function keyFactsOf(principal: Principal): KeyFacts {
  const { keyId: id, kind, user } = principal;
  return { id, kind, profile: kind === 'profile' ? principal.profile : null, user };
}

/** Agents that one user registers with keys other than administrative ones, in all workspaces, at most. */
export const MOST_AGENTS_OF_USER = 100;

/** A registered agent, with its owner. */
export interface Agent {
  readonly id: string;
  readonly workspace: string;
  readonly disabled: boolean;
  readonly team: string | null;
  readonly owner: string | null;
  /** The user whose key registered it. Absent for agents in the configuration. */
  readonly registeredBy?: string | null;
  /** Registered by a key that is no administrator's: in budgets and rates, all such agents of a user are one. */
  readonly isSelfMade?: boolean;
  readonly roles: readonly string[];
  readonly attributes: Readonly<Record<string, string | number | boolean>>;
}
