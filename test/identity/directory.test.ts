import { describe, expect, it } from 'vitest';
import type { Agent } from '../../src/effects/model/principal.ts';
import { createDirectory, type DirectoryConfiguration } from '../../src/identity/directory.ts';

const agent = (workspace: string, id: string, team: string | null = null): Agent => ({
  id,
  workspace,
  disabled: false,
  team,
  owner: null,
  roles: [],
  attributes: {},
});

const configuration: DirectoryConfiguration = {
  workspaces: [{ id: 'demo', env: 'staging', agents: [agent('demo', 'bot', 'support')] }],
  rolesOf: new Map([['maria', ['finance-lead', 'finance']]]),
};

function registry() {
  const workspaces = ['made', 'demo'];
  const agents = [
    agent('made', 'new'),
    agent('demo', 'bot', 'impostor'),
    agent('demo', 'late'),
    agent('nowhere', 'lost'),
  ];
  return { rows: { workspaces, agents }, workspaces: async () => workspaces, agents: async () => agents };
}

describe('the directory', () => {
  it('knows what the configuration declares before it has asked the store', () => {
    const directory = createDirectory(configuration, registry());
    expect(directory.agent('demo', 'bot')?.team).toBe('support');
    expect(directory.agent('demo', 'late')).toBeNull();
    expect(directory.workspaces()).toEqual(['demo']);
    expect(directory.envOf('demo')).toBe('staging');
  });

  it('adds what was registered; what is declared counts more', async () => {
    const directory = createDirectory(configuration, registry());
    await directory.refresh();
    expect(directory.agent('demo', 'bot')?.team).toBe('support');
    expect(
      directory
        .agents('demo')
        .map(({ id }) => id)
        .sort(),
    ).toEqual(['bot', 'late']);
    expect(directory.agent('made', 'new')).not.toBeNull();
    expect(directory.workspaceExists('made')).toBe(true);
    expect([directory.envOf('made'), directory.envOf('demo')]).toEqual(['prod', 'staging']);
    expect(directory.agent('nowhere', 'lost')).toBeNull();
    expect(directory.workspaceExists('nowhere')).toBe(false);
  });

  it('follows store and configuration', async () => {
    const store = registry();
    const directory = createDirectory(configuration, store);
    await directory.refresh();
    store.rows.agents.push(agent('demo', 'later'));
    expect(directory.agent('demo', 'later')).toBeNull();
    await directory.refresh();
    expect(directory.agent('demo', 'later')).not.toBeNull();
    directory.update({ workspaces: [{ id: 'demo', env: 'prod', agents: [] }], rolesOf: new Map() });
    expect(directory.envOf('demo')).toBe('prod');
    expect(directory.agent('demo', 'bot')?.team).toBe('impostor');
    await directory.refresh();
    expect([directory.envOf('demo'), directory.agent('demo', 'bot')?.team]).toEqual(['prod', 'impostor']);
    expect(directory.rolesOf('maria')).toEqual([]);
  });

  it('knows all roles of users', () => {
    const directory = createDirectory(configuration, registry());
    expect(directory.rolesOf('maria')).toEqual(['finance-lead', 'finance']);
    expect(directory.rolesOf('tom')).toEqual([]);
    expect(directory.rolesOf('nobody')).toEqual([]);
    expect(directory.rolesOf('__proto__')).toEqual([]);
    expect([directory.isUser('maria'), directory.isUser('nobody')]).toEqual([true, false]);
    expect([directory.agents('nowhere'), directory.envOf('nowhere')]).toEqual([[], 'prod']);
  });

  it('has no member that an object inherits', () => {
    const directory = createDirectory(configuration, registry());
    for (const name of ['__proto__', 'constructor', 'toString']) {
      expect(directory.agent('demo', name)).toBeNull();
      expect(directory.agent(name, 'bot')).toBeNull();
      expect(directory.workspaceExists(name)).toBe(false);
    }
  });
});
