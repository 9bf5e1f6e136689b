import { describe, expect, it } from 'vitest';
import { actingAgent, type Agent, ledgerActor, type Principal } from '../../src/effects/model/principal.ts';
import { authorize } from '../../src/identity/directory.ts';

const agent = (id: string, disabled = false): Agent => ({
  id,
  workspace: 'demo',
  disabled,
  team: null,
  owner: null,
  roles: [],
  attributes: {},
});
const agents = new Map([agent('bot'), agent('other'), agent('retired', true)].map((one) => [one.id, one]));
const directory = {
  agent: (workspace: string, id: string) => (workspace === 'demo' ? (agents.get(id) ?? null) : null),
};

const base = { keyId: 'key_1', user: null, madeBy: null, keyCreatedAt: 0, readOnly: false, allowedTools: null };
const account: Principal = { ...base, kind: 'account', workspace: 'demo' };
const agentKey = (agentId: string): Principal => ({ ...base, kind: 'agent', workspace: 'demo', agentId });
const runner: Principal = {
  ...base,
  kind: 'profile',
  profile: 'p',
  workspace: 'demo',
  agentId: null,
  scopes: ['effects:run'],
};

function ask(principal: Principal, change: { agentId?: string | null; tool?: string; workspace?: string } = {}) {
  const { agentId = null, tool = 'payments.refund', workspace = 'demo' } = change;
  const answer = authorize(directory, principal, { endpoint: 'effects.run', workspace, tool, agentId });
  switch (answer.kind) {
    case 'agent':
      return answer.agent.id;
    case 'denied':
      return `${answer.decision} ${answer.reason.code}`;
    case 'invalid':
      return `invalid ${answer.fault.path}`;
  }
}

describe('whose call it is said to be', () => {
  it.each<[string, Principal, string | null, string | null]>([
    ['the agent that a key is of', agentKey('bot'), 'other', 'bot'],
    ['the agent that a profile key is for', { ...runner, agentId: 'bot' }, 'other', 'bot'],
    ['the agent that a profile key names', runner, 'other', 'other'],
    ['the agent that an account key names', account, 'other', 'other'],
    ['nobody, where none is named', account, null, null],
  ])('%s', (_what, principal, named, acting) => {
    expect(actingAgent(principal, named)).toBe(acting);
  });
});

describe('who may have an agent act', () => {
  it.each<[string, Principal, Parameters<typeof ask>[1], string]>([
    ['an account key names the agent', account, { agentId: 'bot' }, 'bot'],
    ['an account key names none', account, {}, 'invalid /agent_id'],
    ['an account key names an unknown one', account, { agentId: 'ghost' }, 'denied_identity unknown_agent'],
    ['an account key names a disabled one', account, { agentId: 'retired' }, 'denied_identity agent_disabled'],
    ['an account key names an inherited name', account, { agentId: '__proto__' }, 'denied_identity unknown_agent'],
    ['an agent key is its agent', agentKey('bot'), {}, 'bot'],
    ['an agent key names its agent', agentKey('bot'), { agentId: 'bot' }, 'bot'],
    ['an agent key names another', agentKey('bot'), { agentId: 'other' }, 'denied_identity agent_mismatch'],
    ['an agent key of an unknown agent', agentKey('ghost'), {}, 'denied_identity unknown_agent'],
    ['an agent key of a disabled agent', agentKey('retired'), {}, 'denied_identity agent_disabled'],
    ['a profile key names the agent', runner, { agentId: 'bot' }, 'bot'],
    ['a profile key names none', runner, {}, 'invalid /agent_id'],
    ['a profile key for one agent', { ...runner, agentId: 'bot' }, {}, 'bot'],
    [
      'a profile key for one agent names another',
      { ...runner, agentId: 'bot' },
      { agentId: 'other' },
      'denied_identity agent_mismatch',
    ],
    [
      'a profile key without the scope',
      { ...runner, scopes: ['effects:preview'] },
      { agentId: 'bot' },
      'denied_permission insufficient_scope',
    ],
    [
      'a read-only key with the scope',
      { ...runner, readOnly: true },
      { agentId: 'bot' },
      'denied_permission read_only_key',
    ],
    [
      'an administrative key',
      { ...base, kind: 'administrative' },
      { agentId: 'bot' },
      'denied_permission wrong_key_kind',
    ],
    ['another workspace', account, { agentId: 'bot', workspace: 'other' }, 'denied_permission wrong_workspace'],
    [
      'a tool beyond allowed_tools',
      { ...account, allowedTools: ['payments.get'] },
      { agentId: 'bot' },
      'denied_permission tool_not_allowed',
    ],
    ['a tool within allowed_tools', { ...account, allowedTools: ['payments.refund'] }, { agentId: 'bot' }, 'bot'],
    [
      'no tool allowed at all',
      { ...account, allowedTools: [] },
      { agentId: 'bot' },
      'denied_permission tool_not_allowed',
    ],
    // Permission is judged first: a key that may not learns nothing of who is there.
    [
      'a forbidden tool and an unknown agent',
      { ...account, allowedTools: [] },
      { agentId: 'ghost' },
      'denied_permission tool_not_allowed',
    ],
    ['a forbidden tool and no agent', { ...account, allowedTools: [] }, {}, 'denied_permission tool_not_allowed'],
  ])('%s', (_, principal, request, expected) => {
    expect(ask(principal, request)).toBe(expected);
  });
});

it('the ledger names the agent that a key acts for, else the user, else the key', () => {
  const ofUser = { ...runner, user: 'maria' };
  expect([agentKey('bot'), { ...ofUser, agentId: 'bot' }, ofUser, runner].map(ledgerActor)).toEqual([
    { type: 'agent', id: 'bot' },
    { type: 'agent', id: 'bot' },
    { type: 'user', id: 'maria' },
    { type: 'key', id: 'key_1' },
  ]);
});
