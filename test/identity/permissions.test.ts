import { describe, expect, it } from 'vitest';
import { type KeyKind, type Principal, type Scope, SCOPES } from '../../src/effects/model/principal.ts';
import { ENDPOINTS, type EndpointId, permit } from '../../src/identity/permissions.ts';
import { allProfiles } from '../../src/identity/profiles.ts';
import { sessionMay } from '../../src/identity/session-permissions.ts';
import { permissionsPage } from './permissions-page.ts';

const base = {
  keyId: 'key_1',
  user: 'maria',
  madeBy: null,
  keyCreatedAt: 0,
  readOnly: false,
  allowedTools: null,
};

function principal(
  kind: KeyKind,
  change: { scopes?: readonly Scope[]; readOnly?: boolean; agentId?: string | null } = {},
): Principal {
  const { scopes = [], readOnly = false, agentId = null } = change;
  switch (kind) {
    case 'account':
      return { ...base, readOnly, kind, workspace: 'demo' };
    case 'agent':
      return { ...base, readOnly, kind, workspace: 'demo', agentId: 'bot' };
    case 'administrative':
      return { ...base, readOnly, kind };
    case 'profile':
      return { ...base, readOnly, kind, profile: 'p', workspace: 'demo', agentId, scopes };
  }
}

/** The table of the interface document, written down a second time: account, agent, administrative, profile. */
const DOCUMENT: Readonly<Record<EndpointId, readonly [string, string, string, string]>> = {
  'effects.run': ['workspace', 'own', 'no', 'effects:run'],
  'proxy.read': ['workspace', 'own', 'no', 'effects:run'],
  'effects.preview': ['workspace', 'own', 'no', 'effects:preview effects:run'],
  'effects.read': ['workspace', 'own', 'no', 'traces:read'],
  'ledger.read': ['workspace', 'no', 'any', 'ledger:read'],
  'ledger.export': ['workspace', 'no', 'no', 'ledger:read'],
  'ledger.users': ['no', 'no', 'any', 'ledger:read'],
  'ledger.installation': ['no', 'no', 'any', 'no'],
  'effects.resolve': ['workspace', 'no', 'no', 'no'],
  'effects.probe': ['workspace', 'own', 'no', 'no'],
  'effects.erase': ['workspace', 'no', 'no', 'no'],
  'approvals.decide': ['workspace', 'no', 'no', 'approvals:decide'],
  'approvals.read': ['workspace', 'own', 'no', 'approvals:read'],
  'claims.write': ['workspace', 'own', 'no', 'claims:write'],
  'claims.read': ['workspace', 'own', 'no', 'governance:read'],
  'reservations.write': ['workspace', 'own', 'no', 'claims:write'],
  'reservations.read': ['workspace', 'own', 'no', 'governance:read'],
  'pauses.write': ['workspace', 'no', 'any', 'governance:write'],
  'pauses.read': ['workspace', 'own', 'any', 'governance:read'],
  'brain.read': ['workspace', 'own', 'any', 'brain:read'],
  'brain.write': ['no', 'no', 'any', 'governance:write'],
  'budgets.read': ['workspace', 'own', 'no', 'governance:read'],
  'policies.read': ['workspace', 'own', 'any', 'governance:read'],
  'policies.suggest': ['workspace', 'no', 'no', 'no'],
  'policies.history': ['no', 'no', 'any', 'ledger:read'],
  'policies.activate': ['no', 'no', 'any', 'no'],
  'notifications.read': ['no', 'no', 'any', 'no'],
  'notifications.resend': ['no', 'no', 'any', 'no'],
  'tools.read': ['workspace', 'own', 'any', 'governance:read tools:read'],
  'pins.read': ['workspace', 'no', 'any', 'governance:read'],
  'agents.read': ['workspace', 'own', 'any', 'governance:read tools:read'],
  'agents.register': ['workspace', 'no', 'any', 'no'],
  'agents.describe': ['no', 'no', 'any', 'no'],
  'keys.manage': ['no', 'no', 'any', 'no'],
  'passkeys.read': ['workspace', 'no', 'any', 'approvals:decide'],
  'passkeys.write': ['workspace', 'no', 'any', 'approvals:decide'],
  'workspaces.manage': ['no', 'no', 'any', 'no'],
  'state.verify': ['workspace', 'own', 'any', 'policy:simulate'],
  'outcomes.reconcile': ['workspace', 'own', 'any', 'policy:simulate'],
  'mcp.connect': ['workspace', 'own', 'any', 'workspace'],
  'mcp.tools': ['workspace', 'own', 'any', 'tools:read'],
  'mcp.simulate': ['workspace', 'own', 'no', 'policy:simulate'],
  'mcp.brain': ['workspace', 'own', 'no', 'brain:read'],
  'mcp.approvals': ['workspace', 'own', 'no', 'approvals:read'],
  'mcp.traces': ['workspace', 'own', 'no', 'traces:read'],
  'mcp.observability': ['workspace', 'own', 'no', 'observability:read'],
  'mcp.governance': ['workspace', 'no', 'any', 'governance:read'],
  'console.enter': ['workspace', 'no', 'any', 'workspace'],
  'key_profiles.read': ['workspace', 'own', 'any', 'workspace'],
};

const ids = Object.keys(DOCUMENT) as EndpointId[];

function outcome(who: Principal, id: EndpointId, workspace: string | null = null): string {
  const permission = permit(who, id, workspace);
  return permission.ok ? permission.view.kind : permission.code;
}

describe('the permission table', () => {
  it('has the rows of the interface document, no more and no fewer', () => {
    expect(Object.keys(ENDPOINTS).sort()).toEqual([...ids].sort());
  });

  it.each(ids)('%s: each kind of key may what the document says', (id) => {
    const [account, agent, administrative, profile] = DOCUMENT[id];
    for (const [kind, says] of [
      ['account', account],
      ['agent', agent],
      ['administrative', administrative],
    ] as const)
      expect(outcome(principal(kind), id), kind).toBe(says === 'no' ? 'wrong_key_kind' : says);
    for (const scope of SCOPES) {
      const expected =
        profile === 'no'
          ? 'wrong_key_kind'
          : profile === 'workspace' || profile.split(' ').includes(scope)
            ? 'workspace'
            : 'insufficient_scope';
      expect(outcome(principal('profile', { scopes: [scope] }), id), scope).toBe(expected);
    }
    expect(outcome(principal('profile'), id)).toBe(
      profile === 'no' ? 'wrong_key_kind' : profile === 'workspace' ? 'workspace' : 'insufficient_scope',
    );
  });

  it.each(ids)('%s: a read-only key can change nothing, whatever else it was given', (id) => {
    for (const kind of ['account', 'agent', 'administrative', 'profile'] as const) {
      const free = outcome(principal(kind, { scopes: SCOPES }), id);
      const bound = outcome(principal(kind, { scopes: SCOPES, readOnly: true }), id);
      const refusal = ['wrong_key_kind', 'insufficient_scope'].includes(free);
      expect(bound, kind).toBe(ENDPOINTS[id].changes && !refusal ? 'read_only_key' : free);
    }
  });

  it.each(ids)('%s: another workspace in the path is refused, whether or not it exists', (id) => {
    for (const kind of ['account', 'agent', 'profile'] as const) {
      const own = outcome(principal(kind, { scopes: SCOPES }), id, 'demo');
      const other = outcome(principal(kind, { scopes: SCOPES }), id, 'other');
      expect(other, kind).toBe(own === 'wrong_key_kind' ? own : 'wrong_workspace');
    }
  });

  it('marks everything that is not a read as a change', () => {
    const looksOnly = [
      'console.enter',
      'effects.preview',
      'state.verify',
      'outcomes.reconcile',
      'mcp.connect',
      'proxy.read',
    ];
    for (const [id, row] of Object.entries(ENDPOINTS)) {
      const writes = row.routes.some((route) => /^(POST|PUT|PATCH|DELETE) /.test(route));
      expect(row.changes, id).toBe(writes && !looksOnly.includes(id));
    }
  });

  it('has a session that a link opened show its key before every change but these', () => {
    const withoutKey = Object.entries(ENDPOINTS).flatMap(([id, { changes, routes }]) =>
      routes.flatMap((route: string) => {
        const method = /^(POST|PUT|PATCH|DELETE) /.exec(route)?.[1];
        const isFree = changes && method !== undefined && sessionMay(id as EndpointId, method) === 'yes';
        return isFree ? [`${id} ${method}`] : [];
      }),
    );
    expect([...new Set(withoutKey)].toSorted()).toEqual([
      // Takes back what somebody allowed, or proposed.
      'approvals.decide DELETE',
      // Holds others back.
      'claims.write POST',
      // Asks the upstream, which alone answers.
      'effects.probe POST',
      // Says again what was said.
      'notifications.resend POST',
      'pauses.write POST',
      'policies.activate DELETE',
      'reservations.write POST',
    ]);
  });

  it('lets a profile key for one agent see what is that agent’s, and one without workspace no workspace at all', () => {
    const bound = principal('profile', { scopes: SCOPES, agentId: 'bot' });
    expect(permit(bound, 'effects.read', 'demo')).toEqual({
      ok: true,
      view: { kind: 'own', workspace: 'demo', agentId: 'bot' },
    });
    const homeless: Principal = {
      ...base,
      kind: 'profile',
      profile: 'p',
      workspace: null,
      agentId: null,
      scopes: SCOPES,
    };
    expect(permit(homeless, 'state.verify')).toEqual({ ok: true, view: { kind: 'none' } });
    expect(outcome(homeless, 'effects.read', 'demo')).toBe('wrong_workspace');
  });

  it('says what a key lacks, in words', () => {
    expect(permit(principal('agent'), 'effects.resolve')).toMatchObject({
      detail: 'An agent key may not do this. It takes: account key.',
    });
    expect(permit(principal('profile'), 'effects.preview')).toMatchObject({
      detail: 'The key needs the scope effects:preview or effects:run.',
    });
  });

  it('of the shipped profiles is this (reviewed as a diff)', async () => {
    const lines = allProfiles([]).flatMap(({ name, scopes, readOnly }) =>
      ids.map((id) => `${name.padEnd(13)} ${id.padEnd(19)} ${outcome(principal('profile', { scopes, readOnly }), id)}`),
    );
    await expect(`${lines.join('\n')}\n`).toMatchFileSnapshot('golden/profile-permissions.txt');
  });
});

describe('the page of the documentation', () => {
  it('says what the table says (write it again with: npx vitest run test/identity -u)', async () => {
    await expect(permissionsPage()).toMatchFileSnapshot('../../docs/operating/permissions.md');
  });
});
