import { execFile } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import type { openRedisStoreInThread } from '../../src/gateway/redis-store.ts';
import { openSigner } from '../../src/receipts/sign.ts';
import type { OpenRows } from '../../src/stores/open-rows.ts';
import type { Durability } from '../../src/stores/redis/durability.ts';
import type { openThreadedRows } from '../../src/stores/redis/rows/threaded.ts';
import { loadSodium } from '../../src/sodium/load.ts';
import { admitRequest, committed, dispatched, settleRequest, WORKSPACE } from '../contract/requests.ts';
import { reopening } from '../contract/reopening.ts';
import { done, newPlace, putOf } from '../port/changes.ts';
import { describePort } from '../port/port-contract.ts';
import { keyBench, receiptInput } from '../receipts/facts.ts';
import { journalFolder, openThroughProgram, redisOptions } from '../redis/contract.ts';
import { rowsOptions } from '../redis/rows.ts';
import { type RedisServer, startRedis, startReplicated } from '../redis/servers.ts';
import { compileStore } from '../stores/compiled.ts';

// Threads do not run TypeScript on every Node.
const THREADED = 'src/stores/redis/rows/threaded.ts';
const STORE = 'src/gateway/redis-store.ts';
const compiled = compileStore([THREADED, STORE]);
/** Pruning a workspace of this name ends the thread. */
const ENDS = 'ends-the-thread';
const PRUNE = 'prune: answered(({ workspace, limit }) => ';
compiled.alter('src/stores/redis/rows/served.ts', PRUNE, `${PRUNE}workspace === '${ENDS}' ? process.exit() : `);
const addressOf = (source: string): URL => pathToFileURL(compiled.file(source));
const threaded: { openThreadedRows: typeof openThreadedRows } = await import(addressOf(THREADED).href);
const onRedis: { openRedisStoreInThread: typeof openRedisStoreInThread } = await import(addressOf(STORE).href);

const servers: RedisServer[] = [];
beforeAll(async () => {
  servers.push(await startRedis());
});
afterAll(async () => {
  compiled.remove();
  await Promise.all(servers.map((server) => server.stop()));
});

function server(): RedisServer {
  const [first] = servers;
  if (first === undefined) throw new Error('a store needs a server');
  return first;
}

/** What the thread is started with. */
function dataFor(journal: string, url = server().url, durability: Durability = 'fsync') {
  const {
    operatorEvent: _,
    clock: __,
    ...rows
  } = rowsOptions({ ...server(), url }, { journalFolder: journal, durability });
  return { rows, maxFreezeMs: 0, program: addressOf('src/records/program.ts').href };
}

const openRows = (...of: Parameters<typeof dataFor>): Promise<OpenRows> =>
  threaded.openThreadedRows(addressOf('src/stores/threads/worker.ts'), dataFor(...of));

describePort(
  'Redis, in a thread of its own',
  async () => {
    await server().client.flushall();
    const folder = journalFolder();
    const store = await reopening(
      () => openRows(folder),
      () => rmSync(folder, { recursive: true }),
    );
    return Object.assign(store, { setClock: null });
  },
  'the thread runs by the server’s clock',
);

it('the steps of a call run in the thread, which signs its receipt with the same bytes', async () => {
  await server().client.flushall();
  const folder = journalFolder();
  const store = await onRedis.openRedisStoreInThread(redisOptions(server(), { journalFolder: folder }));
  const bench = await keyBench();
  const sodium = await loadSodium();
  if (sodium === null) throw new Error('sodium-native is not installed: this test counts its signatures');
  try {
    const signer = await openSigner({ ...bench.options(), lend: (head, key) => store.signWith(head, key) });
    const facts = receiptInput({ id: 'rcp_00000000000000000000000001' });
    const { effect } = await dispatched(store);
    const signing = vi.spyOn(sodium, 'crypto_sign_detached');
    const receipt = signer.issue(facts);
    const outcome = committed();
    if (outcome.kind !== 'committed') throw new Error('it is of a call that happened');
    expect(await store.settle(settleRequest(effect, { ...outcome, receipt }))).toEqual({ kind: 'settled' });
    const { jws } = receipt;
    expect(signing).not.toHaveBeenCalled();
    signing.mockRestore();
    expect(jws).toBe(signer.issue(facts).jws);
    expect((await store.receipt(WORKSPACE, effect.id))?.jws).toBe(jws);
    expect(store.commits()).toMatchObject({ givenUp: 0 });
    expect(store.commits().done).toBeGreaterThanOrEqual(2);
  } finally {
    await bench.close();
    await store.close();
    rmSync(folder, { recursive: true });
  }
});

it('servers that are away make it not ready, and it is ready when they are back', async () => {
  const own = await startRedis();
  const folder = journalFolder();
  const store = await openRows(folder, own.url);
  try {
    expect(store.health()).toMatchObject({ ready: true, problem: null });
    own.signal('SIGSTOP');
    await expect.poll(() => store.health().problem?.code, { timeout: 10_000 }).toBe('store_unavailable');
    own.signal('SIGCONT');
    await expect.poll(() => store.health().ready, { timeout: 10_000 }).toBe(true);
  } finally {
    await store.close();
    await own.stop();
    rmSync(folder, { recursive: true });
  }
});

it('while nothing is confirmed, no key is bound, though the gateway has not heard of it yet', async () => {
  const replicated = await startReplicated(1, ['--appendfsync', 'everysec']);
  const folder = journalFolder();
  const options = redisOptions(replicated.primary, { journalFolder: folder, durability: 'replica' });
  const store = await openThroughProgram(options, { impediment: () => null });
  const admit = (idempotencyKey: string) => store.admit(admitRequest({ idempotencyKey }));
  const isUnavailable = { name: StoreUnavailable.name };
  try {
    await dispatched(store);
    replicated.replicas[0]?.signal('SIGSTOP');
    await expect(admit('first')).rejects.toMatchObject(isUnavailable);
    await expect(admit('second')).rejects.toMatchObject(isUnavailable);
    // Reads for people do not wait for what is confirmed.
    expect(await store.boundTo(WORKSPACE, 'first')).not.toBeNull();
    expect(await store.boundTo(WORKSPACE, 'second')).toBeNull();
  } finally {
    replicated.replicas[0]?.signal('SIGCONT');
    await store.close();
    await replicated.stop();
    rmSync(folder, { recursive: true });
  }
});

it('while nothing is confirmed, people still see what is there, and nothing is decided on it', async () => {
  const replicated = await startReplicated(1, ['--appendfsync', 'everysec']);
  const folder = journalFolder();
  const store = await openRows(folder, replicated.primary.url, 'replica');
  try {
    const place = await newPlace(store, 'w');
    done(await place.commit({ puts: [putOf('thing', 'a', 'x')] }));
    replicated.replicas[0]?.signal('SIGSTOP');
    await expect(place.commit({ puts: [putOf('thing', 'b', 'y')] })).rejects.toMatchObject({
      name: StoreUnavailable.name,
    });
    const look = (isShown: boolean) => store.read('w', [{ kind: 'thing', id: 'a' }], [], isShown);
    expect((await look(true)).rows).toMatchObject([{ row: { text: 'x' } }]);
    await expect(look(false)).rejects.toMatchObject({ name: StoreUnavailable.name });
    expect(store.impediment('w')).not.toBeNull();
  } finally {
    replicated.replicas[0]?.signal('SIGCONT');
    await store.close();
    await replicated.stop();
    rmSync(folder, { recursive: true });
  }
});

it('before a failure is answered, the gateway knows that the store is not ready', async () => {
  const own = await startRedis();
  const folder = journalFolder();
  const store = await openRows(folder, own.url);
  try {
    const place = await newPlace(store, 'w');
    expect(store.health().ready).toBe(true);
    own.signal('SIGKILL');
    const isReady = await place.commit({}).then(
      () => 'it was made',
      () => store.health().ready,
    );
    expect(isReady).toBe(false);
  } finally {
    await store.close();
    await own.stop();
    rmSync(folder, { recursive: true });
  }
});

it('settings that cannot be used are told apart from servers that are away', async () => {
  const weak = await startRedis(['--appendonly', 'no']);
  const folder = journalFolder();
  try {
    const refused = openRows(folder, weak.url);
    await expect(refused).rejects.toThrow(/append/i);
    await expect(refused).rejects.not.toMatchObject({ name: StoreUnavailable.name });
    await weak.stop();
    await expect(openRows(folder, weak.url)).rejects.toMatchObject({ name: StoreUnavailable.name });
  } finally {
    await weak.stop();
    rmSync(folder, { recursive: true });
  }
});

it('a thread that ends by itself ends the process: what is still to be settled is told at once that its store is away', async () => {
  await server().client.flushall();
  const folder = journalFolder();
  const program = `
    const { openThreadedRows } = await import(${JSON.stringify(addressOf(THREADED).href)});
    const entry = new URL(${JSON.stringify(addressOf('src/stores/threads/worker.ts').href)});
    const store = await openThreadedRows(entry, ${JSON.stringify(dataFor(folder))});
    setInterval(() => {}, 1000);
    process.on('uncaughtException', async ({ message }) => {
      console.log(message);
      await store.prune('any', 1).catch(({ name }) => console.log(name));
      process.exit(1);
    });
    await store.prune('${ENDS}', 1).catch(() => {});`;
  const file = join(folder, 'program.mjs');
  writeFileSync(file, program);
  const run = promisify(execFile)(process.execPath, [file]);
  const stdout = expect.stringMatching(/^The store stopped: .*\nStoreUnavailable\n$/);
  await expect(run).rejects.toMatchObject({ code: 1, stdout });
  rmSync(folder, { recursive: true });
});
