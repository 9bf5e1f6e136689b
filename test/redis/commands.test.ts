import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { openConnection, type RedisAccess } from '../../src/stores/redis/connection.ts';
import { script } from '../../src/stores/redis/scripts.ts';
import { packedChanges } from '../../src/stores/redis/rows/words.ts';
import { openRedisRows, type RedisRows } from '../../src/stores/redis/rows/open.ts';
import { changeOf, done, listOf, newPlace, type Place, putOf } from '../port/changes.ts';
import { journalFolder } from './contract.ts';
import { rowsOptions } from './rows.ts';
import { freePort, type RedisServer, startRedis } from './servers.ts';

const ROWS = 50;

let server: RedisServer;
let store: RedisRows;
let place: Place;
beforeAll(async () => {
  server = await startRedis();
  store = await openRedisRows(rowsOptions(server, { journalFolder: journalFolder() }));
  place = await newPlace(store);
  const puts = Array.from({ length: ROWS }, (_, n) =>
    putOf('thing', `t${n}`, `text ${n}`, { enter: [{ list: 'l', at: n % 7 }] }),
  );
  done(await place.commit({ puts }));
});
afterAll(async () => {
  await store.close();
  await server.stop();
});
beforeEach(() => server.client.config('RESETSTAT'));

/** How often a command ran, in scripts too. */
async function runs(command: string): Promise<number> {
  const stats = await server.client.info('commandstats');
  return Number(new RegExp(`^cmdstat_${command}:calls=(\\d+)`, 'm').exec(stats)?.[1] ?? 0);
}

it.each(['up', 'down'] as const)(
  'a slice of a list, %s, is two commands, however many entries it has',
  async (order) => {
    const { entries, more } = await store.list(listOf(place.workspace, 'l', { order, limit: ROWS - 1 }));
    expect([entries.length, more]).toEqual([ROWS - 1, true]);
    expect([await runs('zrange'), await runs('mget'), await runs('get')]).toEqual([1, 1, 0]);
  },
);

it('reads of one turn of the event loop go together, and each has its own rows, each read once', async () => {
  const reads = Array.from({ length: ROWS }, (_, n) =>
    store.read(
      place.workspace,
      [
        { kind: 'thing', id: `t${n}` },
        { kind: 'thing', id: 'none' },
      ],
      [],
    ),
  );
  const texts = (await Promise.all(reads)).map(({ rows }) => rows.map(({ id, row }) => `${id} ${row?.text}`));
  expect(texts).toEqual(Array.from({ length: ROWS }, (_, n) => [`t${n} text ${n}`, 'none undefined']));
  // 16 at most in one call.
  const calls = await runs('evalsha');
  expect(calls).toBeGreaterThanOrEqual(4);
  expect(calls).toBeLessThan(10);
  expect([await runs('mget'), await runs('get')]).toEqual([4, 0]);
});

it('a change in a call without an epoch is not made', async () => {
  const key = `svc:{${place.workspace}}:w`;
  const epoch = Number(await server.client.hget(key, 'epoch'));
  const before = await server.client.hgetall(key);
  const change = changeOf(place.workspace, epoch, { puts: [putOf('thing', 'new', 'text')] });
  const packed = packedChanges([change]);
  const send = (as: string): Promise<unknown> =>
    server.client.eval(script('commit').source, 1, key, as, 'gw-1', String(Date.now()), packed);
  expect(await send('')).toMatchObject(['ok', expect.anything(), String(epoch), '', ['']]);
  expect(await server.client.hgetall(key)).toEqual(before);
  expect(await send(String(epoch))).toMatchObject({ 4: expect.stringMatching(/^d/) });
});

it('what is shown is read while this gateway may not write, and that writes nothing', async () => {
  const key = (name: string): string => `svc:{${place.workspace}}:${name}`;
  const want = { kind: 'thing', id: 't1' };
  const before = await server.client.hget(key('w'), 'sn');
  await server.client.hdel(key('gw'), 'gw-1');
  const { rows } = await store.read(place.workspace, [want], [], true);
  expect(rows[0]?.row?.text).toBe('text 1');
  expect([await server.client.hgetall(key('gw')), await server.client.hget(key('w'), 'sn')]).toEqual([{}, before]);
  // What is decided on is read by a gateway that is registered.
  await store.read(place.workspace, [want], []);
  expect(Object.keys(await server.client.hgetall(key('gw')))).toEqual(['gw-1']);
});

it('scripts that the server has lost are sent again: nothing had run', async () => {
  await server.client.script('FLUSH');
  const { rows } = await store.read(place.workspace, [{ kind: 'thing', id: 't1' }], []);
  expect(rows[0]?.row?.text).toBe('text 1');
});

const connectionTo = (port: number, access: Partial<RedisAccess> = {}) =>
  openConnection(
    { kind: 'address', address: { host: '127.0.0.1', port } },
    { username: null, password: null, database: 0, tls: false, ...access },
    { name: 'test' },
  );

it('what cannot be read is an error, not absent: also one of several commands', async () => {
  const connection = connectionTo(server.port);
  await connection.ready();
  await server.client.set('text', 'x');
  const commands = [
    ['GET', 'text'],
    ['HGETALL', 'text'],
  ] as const;
  await expect(connection.pipeline(commands)).rejects.toThrow('WRONGTYPE');
  connection.close();
});

it('who waits for a connection that is closed, or was, learns it at once', async () => {
  const connection = connectionTo(await freePort());
  const waiting = expect(connection.ready(3_600_000)).rejects.toThrow('Redis cannot be reached');
  connection.close();
  await waiting;
  await expect(connection.ready(3_600_000)).rejects.toThrow('Redis cannot be reached');
}, 5_000);

it('why a server cannot be reached is told without its address', async () => {
  const connection = connectionTo(await freePort());
  await expect(connection.ready()).rejects.toThrow(/^Redis cannot be reached: connect ECONNREFUSED$/);
  await expect(connection.command('PING')).rejects.toThrow(/writeable.*\(connect ECONNREFUSED\)$/);
  // However long it is away, it is tried again so soon.
  expect(connection.client.options.retryStrategy?.(1_000)).toBe(250);
  connection.close();
});

it('a connection has the name, the user and the database that it is to have', async () => {
  await server.client.call('ACL', 'SETUSER', 'ada', 'on', '>secret', '~*', '+@all');
  const connection = connectionTo(server.port, { username: 'ada', password: 'secret', database: 3 });
  await connection.ready();
  expect(await connection.command('CLIENT', 'INFO')).toMatch(/ name=test .* db=3 .* user=ada /);
  connection.close();
});

it('a connection that is to be encrypted sends nothing in clear text', async () => {
  const heard = new Promise<Buffer>((resolve) => {
    const listener = createServer((socket) => {
      socket.once('data', (bytes) => {
        resolve(bytes);
        socket.destroy();
        listener.close();
      });
    });
    listener.listen(0, '127.0.0.1', () => {
      const address = listener.address();
      if (address === null || typeof address === 'string') return;
      const connection = connectionTo(address.port, { password: 'secret', tls: true });
      void heard.then(() => connection.close());
    });
  });
  // A record of the handshake (RFC 8446, 5.1).
  expect((await heard)[0]).toBe(22);
});

it('a server that is a replica now is left, and a connection that has come to its end is opened again', async () => {
  const other = await startRedis();
  const connection = connectionTo(other.port);
  await connection.ready();
  await other.client.call('REPLICAOF', '127.0.0.1', '1');
  const left = once(connection.client, 'close');
  await expect(connection.command('SET', 'a', '1')).rejects.toThrow('READONLY');
  await left;
  await connection.ready();
  connection.client.disconnect();
  await once(connection.client, 'end');
  await connection.ready();
  expect(await connection.command('PING')).toBe('PONG');
  connection.close();
  await other.stop();
}, 20_000);
