import { createSecretKey } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { SCOPES } from '../../src/effects/model/principal.ts';
import { parseKey } from '../../src/identity/key-format.ts';
import {
  createKeyRecord,
  type KeyContext,
  type KeyRequest,
  keyState,
  keyToWire,
  successorOf,
} from '../../src/identity/key-record.ts';
import { allProfiles } from '../../src/identity/profiles.ts';

const DAY = 86_400_000;
const NOW = Date.UTC(2026, 0, 2, 3, 4, 5, 678);

const context: KeyContext = {
  pepper: createSecretKey(Buffer.alloc(32, 9)),
  now: NOW,
  profiles: allProfiles([
    {
      name: 'runner',
      description: '',
      scopes: ['effects:run', 'traces:read'],
      allowedTools: ['a.b', 'a.c'],
      readOnly: false,
    },
  ]),
  workspaces: ['demo'],
  defaultExpiryMs: { account: null, agent: 90 * DAY, administrative: null, profile: 30 * DAY },
};

const bare: KeyRequest = {
  user: 'maria',
  madeBy: 'root',
  name: 'A key',
  kind: null,
  profile: null,
  workspace: null,
  agentId: null,
  scopes: null,
  allowedTools: null,
  expiresInMs: null,
};

function made(request: Partial<KeyRequest>, around: Partial<KeyContext> = {}) {
  const answer = createKeyRecord({ ...bare, ...request }, { ...context, ...around });
  if (answer.kind !== 'made') throw new Error(JSON.stringify(answer.faults));
  return answer;
}

function faults(request: Partial<KeyRequest>, around: Partial<KeyContext> = {}): readonly string[] {
  const answer = createKeyRecord({ ...bare, ...request }, { ...context, ...around });
  if (answer.kind !== 'refused') throw new Error('made');
  return answer.faults.map((fault) => fault.path);
}

describe('making a key', () => {
  it('needs a name and a profile only; the workspace is the only one', () => {
    const { record, key } = made({ profile: 'mcp_readonly' });
    expect(record).toMatchObject({
      kind: 'profile',
      profile: 'mcp_readonly',
      workspace: 'demo',
      agentId: null,
      readOnly: true,
      allowedTools: ['svc.company_brain.query'],
      createdAt: NOW,
      expiresAt: NOW + 30 * DAY,
      user: 'maria',
      madeBy: 'root',
    });
    expect(parseKey(key)).toEqual({ kind: 'profile', handle: record.handle });
    expect(record.id).toBe(`key_${record.handle}`);
  });

  it('sees no workspace data where there are several workspaces and none is named', () => {
    expect(made({ profile: 'mcp_readonly' }, { workspaces: ['a', 'b'] }).record.workspace).toBeNull();
    expect(made({ profile: 'mcp_readonly' }, { workspaces: [] }).record.workspace).toBeNull();
    expect(made({ profile: 'mcp_readonly', workspace: 'b' }, { workspaces: ['a', 'b'] }).record.workspace).toBe('b');
  });

  it('makes the other kinds', () => {
    expect(made({ kind: 'account' }).record).toMatchObject({
      kind: 'account',
      workspace: 'demo',
      expiresAt: null,
      scopes: [],
    });
    expect(made({ kind: 'agent', agentId: 'bot' }).record).toMatchObject({ agentId: 'bot', expiresAt: NOW + 90 * DAY });
    expect(made({ kind: 'administrative' }).record).toMatchObject({ workspace: null, readOnly: false });
    expect(made({ kind: 'account', expiresInMs: 1000 }).record.expiresAt).toBe(NOW + 1000);
    expect(made({ kind: 'account', expiresInMs: 3650 * DAY }).record.expiresAt).toBe(NOW + 3650 * DAY);
    const longest = { name: 'a'.repeat(200), user: 'u'.repeat(128), allowedTools: ['t'.repeat(200)] };
    expect(made({ kind: 'account', ...longest }).record).toMatchObject(longest);
    expect(made({ kind: 'agent', agentId: 'bot', allowedTools: ['x', 'x'] }).record.allowedTools).toEqual(['x']);
  });

  it('gives a profile key some of the scopes and tools of its profile, never more', () => {
    const { record } = made({ profile: 'runner', scopes: ['traces:read'], allowedTools: ['a.c'] });
    expect(record).toMatchObject({ scopes: ['traces:read'], allowedTools: ['a.c'] });
    expect(faults({ profile: 'runner', scopes: ['traces:read', 'governance:write'] })).toEqual(['/scopes/1']);
    expect(faults({ profile: 'runner', allowedTools: ['a.b', 'a.d'] })).toEqual(['/allowed_tools/1']);
    expect(faults({ profile: 'mcp_readonly', allowedTools: ['payments.refund'] })).toEqual(['/allowed_tools/0']);
    expect(faults({ kind: 'account', allowedTools: ['a.b', 'a b', ''] })).toEqual([
      '/allowed_tools/1',
      '/allowed_tools/2',
    ]);
    expect(faults({ profile: 'mcp_readonly', scopes: ['effects:run'] })).toEqual(['/scopes/0']);
    expect(made({ profile: 'runner', scopes: [] }).record.scopes).toEqual([]);
    const twice = made({ profile: 'runner', scopes: ['traces:read', 'traces:read'] });
    expect(twice.record.scopes).toEqual(['traces:read']);
  });

  it.each<[string, Partial<KeyRequest>, string[]]>([
    ['neither kind nor profile', {}, ['/profile']],
    ['kind profile without profile', { kind: 'profile' }, ['/profile']],
    ['an unknown profile', { profile: 'mcp_root' }, ['/profile']],
    ['a profile on an account key', { kind: 'account', profile: 'mcp_agent' }, ['/profile']],
    ['an account key for one agent', { kind: 'account', agentId: 'bot' }, ['/agent_id']],
    ['an agent key for none', { kind: 'agent' }, ['/agent_id']],
    ['an agent id of the wrong form', { kind: 'agent', agentId: '../bot' }, ['/agent_id']],
    [
      'an administrative key for an agent, with tools',
      { kind: 'administrative', agentId: 'b', allowedTools: [] },
      ['/agent_id', '/allowed_tools'],
    ],
    ['an administrative key for a workspace', { kind: 'administrative', workspace: 'demo' }, ['/workspace']],
    ['scopes on an account key', { kind: 'account', scopes: ['effects:run'] }, ['/scopes']],
    ['a workspace that is not there', { kind: 'account', workspace: 'prod' }, ['/workspace']],
    ['an empty name', { kind: 'account', name: ' ' }, ['/name']],
    ['a name that writes on terminals', { kind: 'account', name: 'a\u001b[2Jb' }, ['/name']],
    ['a name that reverses text', { kind: 'account', name: 'a\u202eb' }, ['/name']],
    ['a long name', { kind: 'account', name: 'a'.repeat(201) }, ['/name']],
    ['an end before now', { kind: 'account', expiresInMs: -1 }, ['/expires_in']],
    ['an end at once', { kind: 'account', expiresInMs: 0 }, ['/expires_in']],
    ['an end that is no number', { kind: 'account', expiresInMs: Number.NaN }, ['/expires_in']],
    ['a life of a ms more than ten years', { kind: 'account', expiresInMs: 3650 * DAY + 1 }, ['/expires_in']],
    ['a user of 129 characters', { kind: 'account', user: 'a'.repeat(129) }, ['/user_id']],
    ['a tool of 201 characters', { kind: 'account', allowedTools: ['a'.repeat(201)] }, ['/allowed_tools/0']],
    ['a user of the wrong form', { kind: 'account', user: 'a b' }, ['/user_id']],
    ['all at once', { kind: 'agent', name: '', user: '?', scopes: [] }, ['/name', '/user_id', '/agent_id', '/scopes']],
  ])('refuses %s', (_, request, paths) => {
    expect(faults(request)).toEqual(paths);
  });

  it.each<[Partial<KeyRequest>, string]>([
    [{ kind: 'profile' }, 'Name a profile; known are mcp_readonly, mcp_operator, mcp_agent, auditor, runner.'],
    [
      { profile: 'mcp_root' },
      'There is no such profile; known are mcp_readonly, mcp_operator, mcp_agent, auditor, runner.',
    ],
    [{ profile: 'runner', scopes: ['claims:write'] }, 'The profile runner does not have claims:write.'],
    [{ profile: 'runner', allowedTools: ['a.d'] }, 'The profile runner does not allow a.d.'],
    [{ kind: 'account', workspace: 'c' }, 'There is no such workspace.'],
    [{ kind: 'account' }, 'Name the workspace: there are 2.'],
  ])('says of %j what would do', (request, message) => {
    const answer = createKeyRecord({ ...bare, ...request }, { ...context, workspaces: ['a', 'b'] });
    expect(answer).toMatchObject({ kind: 'refused', faults: [{ message }] });
  });

  it('asks for the workspace where there are several', () => {
    expect(faults({ kind: 'account' }, { workspaces: ['a', 'b'] })).toEqual(['/workspace']);
    expect(faults({ profile: 'mcp_agent', agentId: 'bot' }, { workspaces: ['a', 'b'] })).toEqual(['/workspace']);
  });
});

describe('a key on the wire', () => {
  it('has everything but the hash, in snake_case, with times in UTC', () => {
    const { record, key } = made({ profile: 'mcp_agent', agentId: 'bot' });
    const limits = { allowedTools: ['a.b'], readOnly: true };
    const times = { revokedAt: NOW + 1, lastUsedAt: NOW + 2, expiresAt: NOW + 3 };
    const wire = keyToWire({ ...record, ...limits, ...times, replacedBy: 'key_next' });
    expect(wire).toEqual({
      id: record.id,
      name: 'A key',
      kind: 'profile',
      profile: 'mcp_agent',
      workspace: 'demo',
      agent_id: 'bot',
      user_id: 'maria',
      scopes: record.scopes,
      allowed_tools: ['a.b'],
      read_only: true,
      made_by: 'root',
      created_at: '2026-01-02T03:04:05.678Z',
      expires_at: '2026-01-02T03:04:05.681Z',
      last_used_at: '2026-01-02T03:04:05.680Z',
      revoked_at: '2026-01-02T03:04:05.679Z',
      replaced_by: 'key_next',
    });
    expect(record.scopes).toContain('effects:run');
    const text = JSON.stringify([wire, record]);
    expect(JSON.stringify(wire)).not.toContain(record.hash);
    expect(text).not.toContain(key);
    expect(text).not.toContain(key.slice(-38));
  });
});

describe('rotation', () => {
  it('makes a successor with the same rights and the same length of life', () => {
    const { record, key } = made({ kind: 'agent', agentId: 'bot', allowedTools: ['a.b'] });
    const next = successorOf(record, 'ada', { pepper: context.pepper, now: NOW + 5 * DAY });
    expect(next.key).not.toBe(key);
    const { id, handle, hash, createdAt, expiresAt, madeBy, ...same } = next.record;
    expect(record).toMatchObject(same);
    expect(madeBy).toBe('ada');
    expect([id, handle, hash]).not.toContain(record.id);
    expect(createdAt).toBe(NOW + 5 * DAY);
    expect(expiresAt).toBe(NOW + 95 * DAY);
    const limited = made({ profile: 'mcp_readonly', scopes: ['traces:read'] }).record;
    const { profile, scopes, readOnly } = successorOf(limited, 'ada', { pepper: context.pepper, now: NOW }).record;
    expect({ profile, scopes, readOnly }).toEqual({ profile: 'mcp_readonly', scopes: ['traces:read'], readOnly: true });
  });

  it('never takes over that a key was revoked, used or replaced', () => {
    const { record } = made({ kind: 'account' });
    const ended = { ...record, revokedAt: NOW, lastUsedAt: NOW, replacedBy: 'key_x' };
    expect(successorOf(ended, null, { pepper: context.pepper, now: NOW + 1 }).record).toMatchObject({
      revokedAt: null,
      lastUsedAt: null,
      replacedBy: null,
      expiresAt: null,
    });
  });
});

describe('the state of a key', () => {
  it('is active until the very ms in which it expires', () => {
    const { record } = made({ kind: 'account', expiresInMs: 1000 });
    expect(keyState(record, NOW)).toBe('active');
    expect(keyState(record, NOW + 999)).toBe('active');
    expect(keyState(record, NOW + 1000)).toBe('expired');
    expect(keyState({ ...record, revokedAt: NOW }, NOW + 5000)).toBe('revoked');
    expect(keyState({ ...record, expiresAt: null }, NOW + 1000 * DAY)).toBe('active');
  });
});

describe('profiles', () => {
  it('ship mcp_readonly exactly as the specification has it (2.3)', () => {
    const profile = allProfiles([]).find(({ name }) => name === 'mcp_readonly');
    expect(profile).toMatchObject({
      scopes: [
        'tools:read',
        'brain:read',
        'policy:simulate',
        'traces:read',
        'approvals:read',
        'observability:read',
        'governance:read',
      ],
      allowedTools: ['svc.company_brain.query'],
      readOnly: true,
    });
  });

  it('add previews for operators, and runs for agents', () => {
    const [readonly, operator, agent] = allProfiles([]);
    expect(operator?.scopes).toEqual([...(readonly?.scopes ?? []), 'effects:preview']);
    expect(agent?.scopes).toEqual([...(operator?.scopes ?? []), 'effects:run']);
    expect([operator?.name, operator?.readOnly, agent?.name, agent?.readOnly]).toEqual([
      'mcp_operator',
      true,
      'mcp_agent',
      false,
    ]);
  });

  it('keep the names of the shipped ones', () => {
    const mine = { name: 'mcp_readonly', description: '', scopes: [], allowedTools: null, readOnly: false };
    expect(() => allProfiles([mine])).toThrow(/two profiles mcp_readonly/);
    expect(allProfiles([{ ...mine, name: 'mine' }]).map(({ name }) => name)).toEqual([
      'mcp_readonly',
      'mcp_operator',
      'mcp_agent',
      'auditor',
      'mine',
    ]);
  });

  it('an auditor that was configured before it was shipped stays what it was', () => {
    const mine = { name: 'auditor', description: '', scopes: [], allowedTools: null, readOnly: true };
    expect(allProfiles([mine]).filter(({ name }) => name === 'auditor')).toEqual([mine]);
    expect(allProfiles([mine])).toHaveLength(allProfiles([]).length);
  });

  it('the shipped auditor reads all that there is to read but params, and changes nothing', () => {
    const auditor = allProfiles([]).find(({ name }) => name === 'auditor');
    expect(auditor?.readOnly).toBe(true);
    expect(new Set(auditor?.scopes)).toEqual(
      new Set(
        SCOPES.filter((scope) => (scope.endsWith(':read') && scope !== 'params:read') || scope === 'policy:simulate'),
      ),
    );
  });
});
