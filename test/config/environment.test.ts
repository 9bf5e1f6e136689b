import { afterEach, expect, test, vi } from 'vitest';
import { bootstrapAdminKeyFile, environmentLookup, stateFolder } from '../../src/config/environment.ts';

afterEach(() => void vi.unstubAllEnvs());

test.each([
  ['/var/lib/state', '/var/lib/state/svc-gateway'],
  ['', '/home/of/.local/state/svc-gateway'],
  // As the specification of these folders has it: what is not absolute does not count.
  ['state', '/home/of/.local/state/svc-gateway'],
])('the state of this user is below XDG_STATE_HOME, or ~/.local/state: %j', (home, folder) => {
  vi.stubEnv('HOME', '/home/of');
  vi.stubEnv('XDG_STATE_HOME', home);
  expect(stateFolder()).toBe(folder);
});

test('a file of a first key that is named by an empty variable is none', () => {
  vi.stubEnv('SVC_BOOTSTRAP_ADMIN_KEY_FILE', '/run/key');
  expect(bootstrapAdminKeyFile()).toBe('/run/key');
  vi.stubEnv('SVC_BOOTSTRAP_ADMIN_KEY_FILE', '');
  expect(bootstrapAdminKeyFile()).toBeNull();
});

test('what is given counts before the environment, and nothing that every object has', () => {
  vi.stubEnv('SVC_TEST_ONE', 'of the environment');
  vi.stubEnv('SVC_TEST_TWO', 'of the environment');
  const lookup = environmentLookup({ SVC_TEST_ONE: 'given' });
  expect(['SVC_TEST_ONE', 'SVC_TEST_TWO', 'toString', '__proto__'].map(lookup)).toEqual([
    'given',
    'of the environment',
    undefined,
    undefined,
  ]);
});
