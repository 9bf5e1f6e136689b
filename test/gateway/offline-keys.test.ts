import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CommandFailure } from '../../src/cli/ports.ts';
import { createKey, listKeys, revokeKey, rotateKey } from '../../src/gateway/offline-keys.ts';

const CONFIGURATION = `
store: { kind: embedded, path: "\${DATA}/store" }
secrets: { master: { file: "\${DATA}/master" } }
workspaces: [ { id: demo } ]
auth:
  default_expiry: { agent: 30d, profile: 90d }
  profiles: [ { name: clerk, description: "Reads.", scopes: ["tools:read"], allowed_tools: [notes.add], read_only: true } ]
`;
const DAY = 86_400_000;

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-keys-'));
  await writeFile(join(folder, 'gateway.yaml'), CONFIGURATION);
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const options = () => ({ configFile: join(folder, 'gateway.yaml'), environment: { DATA: folder } });
const nothing = { workspace: null, agent: null, user: null, profile: null, name: null } as const;
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');
const make = async (of: Partial<Parameters<typeof createKey>[0]>) => {
  const { record } = await createKey({ ...options(), ...nothing, kind: 'administrative', ...of });
  const days = (Date.parse(textOf(record['expires_at'])) - Date.parse(textOf(record['created_at']))) / DAY;
  return { ...record, id: textOf(record['id']), days };
};

it('keys that a command makes have the profiles, lifetimes and the one workspace of the configuration', async () => {
  const rights = { scopes: ['tools:read'], allowed_tools: ['notes.add'], read_only: true };
  const clerk = await make({ kind: 'profile', profile: 'clerk', workspace: 'demo' });
  expect(clerk).toMatchObject({ ...rights, days: 90 });
  expect(await make({ kind: 'agent', agent: 'bot' })).toMatchObject({ workspace: 'demo', agent_id: 'bot', days: 30 });
  expect(await make({ kind: 'account', user: 'maria' })).toMatchObject({ workspace: 'demo', user_id: 'maria' });
  // Nobody is its maker, whoever it is for.
  expect(await make({ kind: 'account', user: 'maria' })).toMatchObject({ user_id: 'maria', made_by: null });
  expect(await make({})).toMatchObject({ workspace: null, expires_at: null, name: 'administrative key' });
  expect((await listKeys(options())).map(({ kind }) => kind)).toEqual([
    'profile',
    'agent',
    'account',
    'account',
    'administrative',
  ]);
});

it('a key is rotated once, and not where there is none', async () => {
  expect(await rotateKey(options(), 'key_0123456789ab', 0)).toEqual({ kind: 'absent' });
  const { id } = await make({ kind: 'agent', agent: 'bot' });
  expect(await rotateKey(options(), 'key_0123456789ab', 0)).toEqual({ kind: 'absent' });
  const rotated = await rotateKey(options(), id, DAY);
  expect(rotated).toMatchObject({ kind: 'rotated', record: { replaces: id, agent_id: 'bot' } });
  expect(await rotateKey(options(), id, DAY)).toEqual({ kind: 'ended' });
});

it('who only looks for keys in a store that nobody has used makes no secret for it', async () => {
  expect(await listKeys(options())).toEqual([]);
  expect(await revokeKey(options(), 'key_0123456789ab')).toBeNull();
  expect(await rotateKey(options(), 'key_0123456789ab', 0)).toEqual({ kind: 'absent' });
  expect(existsSync(join(folder, 'master'))).toBe(false);
});

it('what a person can mend is told by the options, or as a failure of the command; the next one goes on', async () => {
  await expect(make({ kind: 'profile', profile: 'nobody' })).rejects.toThrow(/^--profile: .* clerk\.$/);
  await expect(make({ kind: 'agent' })).rejects.toThrow(/^--agent: /);
  await make({});
  await rm(join(folder, 'master'));
  await expect(make({})).rejects.toBeInstanceOf(CommandFailure);
});
