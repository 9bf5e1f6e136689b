import { expect, it } from 'vitest';
import { checkServer, type Durability } from '../../src/stores/redis/durability.ts';

/** In place of what is configured: the service forbids `CONFIG`. */
const FORBIDDEN = 'forbidden';

const SOUND = {
  role: 'master',
  redis_version: '7.2.6',
  maxmemory_policy: 'noeviction',
  aof_enabled: '1',
  connected_slaves: '1',
  appendfsync: 'always',
};

/** Checks a server that says this of itself; `appendfsync` is what it has configured. */
function checked(change: Partial<typeof SOUND>, durability: Durability, weak = false, atFirstStart = true) {
  const { appendfsync, ...fields } = { ...SOUND, ...change };
  const info = Object.entries(fields).map(([name, value]) => `${name}:${value}`);
  const command = async (name: string): Promise<unknown> => {
    if (name === 'INFO') return `# Server\r\n${info.join('\r\n')}\r\n`;
    if (appendfsync === FORBIDDEN)
      throw new Error("NOPERM this user has no permissions to run the 'config|get' command");
    return ['appendfsync', appendfsync];
  };
  return checkServer({ command }, durability, weak, atFirstStart);
}

it('a server that has what it takes provides what was asked for', async () => {
  expect(await checked({}, 'fsync')).toBe('none');
  expect(await checked({}, 'replica')).toBe('wait');
  expect(await checked({ redis_version: '7.0.0' }, 'fsync')).toBe('none');
  // Nobody asks for WAITAOF there, which confirms too early in this version.
  expect(await checked({ redis_version: '7.4.1' }, 'fsync')).toBe('none');
  expect(await checked({ aof_enabled: '0' }, 'local', true)).toBe('none');
  // After a fail-over replicas come back one by one.
  expect(await checked({ connected_slaves: '0' }, 'replica', false, false)).toBe('wait');
});

it.each<[Partial<typeof SOUND>, Durability, string]>([
  [{ role: 'slave' }, 'fsync', 'not a primary'],
  [{ redis_version: '6.2.14' }, 'fsync', 'too old'],
  [{ redis_version: '' }, 'fsync', 'too old'],
  [{ maxmemory_policy: 'allkeys-lru' }, 'fsync', 'noeviction'],
  [{ maxmemory_policy: 'volatile-ttl' }, 'replica', 'noeviction'],
  [{ aof_enabled: '0' }, 'fsync', 'append-only'],
  [{ aof_enabled: '0' }, 'replica', 'append-only'],
  [{}, 'local', 'allow_weak_durability'],
  [{ connected_slaves: '0' }, 'replica', 'none'],
  [{ appendfsync: 'everysec' }, 'fsync', 'appendfsync is everysec'],
  [{ appendfsync: 'no' }, 'fsync', 'appendfsync is no'],
  [{ appendfsync: FORBIDDEN, redis_version: '7.0.15' }, 'fsync', 'has no WAITAOF'],
  [{ appendfsync: FORBIDDEN, redis_version: '7.4.1' }, 'fsync', 'confirms what is not on the disk'],
])('a server with %j does not provide %s, and what is missing is said', async (change, durability, message) => {
  await expect(checked(change, durability)).rejects.toThrow(message);
});

it('where a service forbids CONFIG and does not show appendfsync, fsync waits with WAITAOF', async () => {
  expect(await checked({ appendfsync: FORBIDDEN }, 'fsync')).toBe('waitaof');
});

it('weak durability is a word about `local` alone: without an append-only file nothing else is provided', async () => {
  for (const durability of ['replica', 'fsync'] as const)
    await expect(checked({ aof_enabled: '0' }, durability, true)).rejects.toThrow('append-only');
  await expect(checked({ connected_slaves: '0' }, 'replica', true)).rejects.toThrow('the primary has none');
});
