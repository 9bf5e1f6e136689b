import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Answer, Change, Found, LedgerEntry, Seen, Watched } from '../../src/stores/port.ts';
import { probeRedis } from '../../src/stores/redis/probe.ts';
import { openRedisRows, type RedisRows, type RedisRowsOptions } from '../../src/stores/redis/rows/open.ts';
import { changeId, changeOf, done, eventOf, listOf, moved, putOf, sumOf } from '../port/changes.ts';
import { rowsOptions } from '../redis/rows.ts';
import { type RedisServer, routeTo, startRedis, startReplicated, until } from '../redis/servers.ts';
import { shortest } from '../shortest.ts';

const WEAK = { durability: 'local', allowWeakDurability: true } as const;
const WORKSPACE = 'acme';

let folder = '';
const closers: (() => Promise<unknown>)[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-redis-rows-'));
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

async function open(of: RedisServer, more: Partial<RedisRowsOptions> = {}): Promise<RedisRows> {
  const store = await openRedisRows(
    rowsOptions(of, { journalFolder: join(folder, more.gatewayId ?? 'gw-1'), ...more }),
  );
  closers.push(() => store.close());
  return store;
}

async function server(): Promise<RedisServer> {
  const started = await startRedis();
  closers.push(() => started.stop());
  return started;
}

/** A primary with a replica, and the way to the one that serves. */
async function behindRoute() {
  const replicated = await startReplicated(1, ['--appendfsync', 'everysec']);
  closers.push(() => replicated.stop());
  const [replica] = replicated.replicas;
  if (replica === undefined) throw new Error('no replica');
  const route = await routeTo(replicated.primary);
  closers.push(() => route.stop());
  return { replicated, replica, route };
}

/** Keeps what a server has on disk now. */
function snapshot(of: RedisServer): string {
  const copy = join(folder, 'snapshot');
  cpSync(of.folder, copy, { recursive: true });
  return copy;
}

/** Kills a server and starts it with what it had on disk earlier: the end of its log is gone. */
async function setBack(of: RedisServer, copy: string): Promise<void> {
  await of.restart(() => {
    rmSync(of.folder, { recursive: true });
    cpSync(copy, of.folder, { recursive: true });
  });
}

async function commit(store: RedisRows, parts: Partial<Change>): Promise<Answer> {
  const { epoch } = await store.read(WORKSPACE, [], []);
  return store.commit(changeOf(WORKSPACE, epoch, parts));
}

/** Waits until stores answer again, in a later epoch. */
async function back(epoch: number, ...stores: readonly RedisRows[]): Promise<void> {
  for (const store of stores) {
    await until(async () => (await store.read(WORKSPACE, [], [])).epoch >= epoch);
    await until(() => store.health().ready);
  }
}

async function put(store: RedisRows, id: string, text: string, parts: Partial<Change> = {}): Promise<string> {
  const change = changeId();
  done(await commit(store, { id: change, puts: [putOf('thing', id, text)], ...parts }));
  return change;
}

async function row(store: RedisRows, id: string): Promise<Found['row']> {
  const { rows } = await store.read(WORKSPACE, [{ kind: 'thing', id }], []);
  return rows[0]?.row ?? null;
}

function ledger(store: RedisRows): Promise<readonly LedgerEntry[]> {
  return store.ledger({ workspace: WORKSPACE, about: null, order: 'up', after: null, limit: 1_000 });
}

/** All that a store shows of the workspace, but for time and epoch. */
async function picture(store: RedisRows): Promise<unknown> {
  const sums = [
    { name: 's', group: 'group', span: { kind: 'until', end: Number.MAX_SAFE_INTEGER } },
    { name: 'r', group: 'group', span: { kind: 'rolling', ms: 86_400_000 } },
  ] as const;
  const wants = ['a', 'b', 'gone', 'long'].map((id) => ({ kind: 'thing', id }));
  const { rows, counters }: Seen = await store.read(WORKSPACE, wants, sums);
  const lists = await Promise.all(['l', 'm'].map((list) => store.list(listOf(WORKSPACE, list))));
  const about = await store.ledger({ workspace: WORKSPACE, about: 'a', order: 'up', after: null, limit: 100 });
  return { rows, counters, lists, sums: await store.sums(WORKSPACE, 10), ledger: await ledger(store), about };
}

describe('a tail of the log that is lost', () => {
  it('is made whole from the gateway’s journal: rows, lists, figures, ledger', async () => {
    const of = await server();
    const store = await open(of, WEAK);
    const gone = await put(store, 'gone', 'x', {
      puts: [putOf('thing', 'gone', 'x', { enter: [{ list: 'l', at: 1 }] })],
    });
    done(await commit(store, { sums: [sumOf('s', { hold: 7, spend: 1 })], events: [eventOf('before')] }));
    const copy = snapshot(of);
    const rolling = sumOf('r', { span: { kind: 'rolling', ms: 86_400_000 }, spend: 3 });
    const first = await put(store, 'a', 'one\nof two lines', {
      puts: [
        putOf('thing', 'a', 'one\nof two lines', { enter: [{ list: 'l', at: 5 }] }),
        putOf('thing', 'long', 'x'.repeat(20_000)),
      ],
      sums: [sumOf('s', { hold: 5, text: 'kept' }), rolling],
      events: [eventOf('a is there', 'a'), eventOf('second')],
    });
    const { epoch } = await store.read(WORKSPACE, [], []);
    const batch = await Promise.all([
      store.commit(
        changeOf(WORKSPACE, epoch, {
          puts: [
            putOf('thing', 'a', 'two', {
              version: first,
              leave: [{ list: 'l', at: 5 }],
              enter: [{ list: 'm', at: 9 }],
            }),
          ],
          sums: [sumOf('s', { hold: -5, spend: 4 }), rolling],
          events: [eventOf('a is done', 'a')],
        }),
      ),
      store.commit(changeOf(WORKSPACE, epoch, { puts: [putOf('thing', 'a', 'never')], events: [eventOf('never')] })),
      store.commit(
        changeOf(WORKSPACE, epoch, {
          puts: [
            putOf('thing', 'gone', null, { version: gone, leave: [{ list: 'l', at: 1 }] }),
            putOf('thing', 'b', 'lone \ud800 surrogate'),
          ],
          events: [eventOf('gone')],
        }),
      ),
    ]);
    expect(batch.map(({ kind }) => kind)).toEqual(['done', 'moved', 'done']);
    const before = await picture(store);
    await setBack(of, copy);
    await back(2, store);
    expect(await picture(store)).toEqual(before);
    const next = done(await commit(store, { events: [eventOf('after')] }));
    expect([next.epoch, next.seq]).toEqual([2, 6]);
  });

  it('is not made whole where the journal no longer has all of it: not ready, nothing is absent', async () => {
    const of = await server();
    const store = await open(of, WEAK);
    await put(store, 'before', 'x');
    const copy = snapshot(of);
    await put(store, 'victim', 'x');
    // More than a journal keeps, in less time than a fail-over may take.
    for (let n = 0; n < 80; n += 1) await put(store, `large-${n}`, 'x'.repeat(480_000));
    await setBack(of, copy);
    await until(() => store.health().problem?.code === 'store_rolled_back');
    await expect(row(store, 'victim')).rejects.toMatchObject({ name: 'StoreUnavailable' });
    await store.close();
    const again = await open(of, WEAK);
    await expect(row(again, 'victim')).rejects.toMatchObject({ name: 'StoreUnavailable' });
    expect(again.health().problem?.code).toBe('store_rolled_back');
  }, 60_000);

  it('is read as it was, or not at all: nothing that was acknowledged is told to be absent', async () => {
    const of = await server();
    const store = await open(of, WEAK);
    await put(store, 'first', 'x');
    for (let round = 0; round < 3; round += 1) {
      const copy = snapshot(of);
      const id = `lost-${round}`;
      await put(store, id, 'x');
      await setBack(of, copy);
      await until(async () => {
        const read = await row(store, id).catch(() => undefined);
        expect(read).not.toBeNull();
        return read !== undefined;
      });
    }
  });

  it('is waited for: commits stay refused until every gateway has handed in, and health names the one missed', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2', url: route.url });
    await put(one, 'of one', 'x');
    await put(two, 'of two', 'x');
    const copy = snapshot(of);
    const lost = await put(two, 'lost', 'two’s', { sums: [sumOf('s', { spend: 2 })] });
    await put(one, 'mine', 'one’s', { sums: [sumOf('s', { spend: 3 })] });
    route.cut();
    await setBack(of, copy);
    await until(() => one.health().problem?.message.includes('gw-2') ?? false);
    await expect(put(one, 'lost', 'again')).rejects.toThrow('gw-2');
    route.heal();
    await until(() => one.health().ready && two.health().ready);
    expect(await row(one, 'lost')).toEqual({ version: lost, text: 'two’s' });
    expect((await row(two, 'mine'))?.text).toBe('one’s');
    expect((await one.sums(WORKSPACE, 10)).map(({ spent }) => spent)).toEqual([5]);
    moved(await commit(one, { puts: [putOf('thing', 'lost', 'again')] }));
  });

  it('is given up where an operator declares a gateway lost, which stands in the ledger', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2', url: route.url });
    await put(one, 'of one', 'x');
    await put(two, 'of two', 'x');
    const copy = snapshot(of);
    const base = await put(two, 'lost', 'x');
    done(await commit(one, { puts: [putOf('thing', 'lost', 'y', { version: base })], events: [eventOf('over it')] }));
    await put(one, 'kept', 'x', { events: [eventOf('kept')] });
    route.cut();
    await setBack(of, copy);
    await until(() => one.health().problem?.message.includes('gw-2') ?? false);
    await one.recoverLost('gw-2');
    await until(() => one.health().ready);
    // What was written over a row that nobody brought back is left out; its neighbours are not.
    expect(await row(one, 'lost')).toBeNull();
    expect((await row(one, 'kept'))?.text).toBe('x');
    expect((await ledger(one)).map(({ text }) => text)).toEqual(['kept', 'gateway.declared_lost gw-2']);
    route.heal();
    await back(2, two);
    await put(two, 'later', 'x');
    expect(await row(two, 'lost')).toBeNull();
    const again = snapshot(of);
    await setBack(of, again);
    await back(3, one, two);
    expect((await ledger(two)).map(({ text }) => text)).toEqual(['kept', 'gateway.declared_lost gw-2']);
  });

  it('that was given up is not handed in after the next loss, though its steps have later numbers than those since', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2', url: route.url });
    await put(one, 'of one', 'x');
    await put(two, 'of two', 'x');
    const copy = snapshot(of);
    const lost = Array.from({ length: 9 }, (_, n) => `lost ${n}`);
    for (const id of lost) await put(two, id, 'x');
    route.cut();
    await setBack(of, copy);
    await until(() => one.health().problem?.message.includes('gw-2') ?? false);
    await one.recoverLost('gw-2');
    await until(() => one.health().ready);
    route.heal();
    await back(2, two);
    rmSync(copy, { recursive: true });
    const since = snapshot(of);
    await put(two, 'kept', 'x');
    await setBack(of, since);
    await back(3, one, two);
    expect((await row(one, 'kept'))?.text).toBe('x');
    for (const id of lost) expect([id, await row(one, id)]).toEqual([id, null]);
  });

  it('that was given up is not handed in by a gateway that comes again when writes wait anew', async () => {
    const of = await server();
    const [first, second] = [await routeTo(of), await routeTo(of)];
    closers.push(() => first.stop());
    closers.push(() => second.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1', url: first.url });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2', url: second.url });
    await put(one, 'of one', 'x');
    await put(two, 'of two', 'x');
    const copy = snapshot(of);
    const lost = Array.from({ length: 9 }, (_, n) => `lost ${n}`);
    for (const id of lost) await put(two, id, 'x');
    second.cut();
    await setBack(of, copy);
    await until(() => one.health().problem?.message.includes('gw-2') ?? false);
    await one.recoverLost('gw-2');
    await until(() => one.health().ready);
    // It has not seen yet that it was given up, and is the one that begins the next epoch.
    first.cut();
    await of.restart();
    second.heal();
    await until(() => two.health().problem?.message.includes('gw-1') ?? false);
    first.heal();
    await back(3, one, two);
    for (const id of lost) expect([id, await row(one, id)]).toEqual([id, null]);
  });

  it('is handed in by a gateway that starts again after the loss', async () => {
    const of = await server();
    let store = await openRedisRows(rowsOptions(of, { ...WEAK, journalFolder: join(folder, 'gw-1') }));
    await put(store, 'first', 'x');
    const copy = snapshot(of);
    const version = await put(store, 'lost', 'x');
    // As after a kill: it does not leave, and is waited for.
    cpSync(join(folder, 'gw-1'), join(folder, 'killed'), { recursive: true });
    await store.close();
    await setBack(of, copy);
    store = await open(of, { ...WEAK, journalFolder: join(folder, 'killed') });
    expect(await row(store, 'lost')).toEqual({ version, text: 'x' });
  });
});

describe('a store that is not the one that was left', () => {
  it('was emptied while in use: not ready, nothing is absent; the loss is accepted, and what the journal has is back', async () => {
    const of = await server();
    const store = await open(of, WEAK);
    const version = await put(store, 'a', 'x', { events: [eventOf('a')] });
    await of.client.flushall();
    await expect(row(store, 'a')).rejects.toMatchObject({ name: 'StoreUnavailable' });
    await expect(put(store, 'a', 'again')).rejects.toThrow('not the one that was left');
    expect(store.health().ready).toBe(false);
    await store.acceptLoss();
    expect(await row(store, 'a')).toEqual({ version, text: 'x' });
    const texts = (await store.ledger({ workspace: '', about: null, order: 'up', after: null, limit: 9 })).map(
      ({ text }) => text,
    );
    expect(texts).toEqual(['store.loss_accepted gw-1']);
    expect((await ledger(store)).map(({ text }) => text)).toEqual(['a', 'store.loss_accepted gw-1']);
  });

  it('its ledgers name the gateway in whose place the loss was accepted, whichever is the first in a workspace', async () => {
    const of = await server();
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2' });
    // The first gateway has never been in this workspace: it is the second one that brings it back.
    await put(two, 'a', 'x');
    await of.client.flushall();
    for (const store of [one, two]) await until(() => store.health().problem?.message.includes('accept-loss') ?? false);
    await one.acceptLoss();
    await back(2, two);
    expect((await ledger(two)).map(({ text }) => text)).toEqual(['store.loss_accepted gw-1']);
  });

  it('was written by a gateway of another format: refused, on both sides', async () => {
    const of = await server();
    await of.client.hset('svc:{_}:w', { install: 'older', epoch: '1', open: '1', sn: '0', seq: '0' });
    await expect(open(of, WEAK)).rejects.toThrow(
      /another version .* Redis of its own .* store\.journal.* svc migrate --check/,
    );
    const route = await routeTo(of);
    closers.push(() => route.stop());
    route.cut();
    const store = await open(of, { ...WEAK, gatewayId: 'gw-2', url: route.url, openUnreached: true });
    route.heal();
    await until(async () => {
      await expect(put(store, 'a', 'x')).rejects.toMatchObject({ name: 'StoreUnavailable' });
      return store.health().problem?.message.includes('another version') ?? false;
    });
    expect(await of.client.keys('*')).toEqual(['svc:{_}:w']);
  });
});

describe('what svc doctor sees of a store on Redis', () => {
  it('not there, ready, not fit, of another format, or out of reach; it changes nothing', async () => {
    const of = await server();
    const look = (more: Partial<RedisRowsOptions> = {}) => probeRedis(rowsOptions(of, { ...WEAK, ...more }));
    expect(await look()).toEqual({ state: 'absent' });
    expect(await of.client.keys('*')).toEqual([]);
    const store = await open(of, WEAK);
    await put(store, 'a', 'x');
    expect(await look()).toEqual({ state: 'ready', gateways: 1 });
    const wanted = { durability: 'replica', allowWeakDurability: false } as const;
    expect(await look(wanted)).toEqual({ state: 'unfit', message: expect.stringContaining('needs a replica') });
    await store.close();
    await of.client.hdel('svc:{_}:w', 'rows');
    expect(await look()).toEqual({ state: 'other_format', message: expect.stringContaining('another version') });
    expect(await look({ url: 'redis://127.0.0.1:1' })).toMatchObject({ state: 'unfit' });
  });
});

describe('a primary that is killed, and a replica takes over', () => {
  it('keeps all that was acknowledged, under load, with what the replica lacks', async () => {
    const { replicated, replica, route } = await behindRoute();
    const one = await open(replicated.primary, { ...WEAK, url: route.url, gatewayId: 'gw-1' });
    const two = await open(replicated.primary, { ...WEAK, url: route.url, gatewayId: 'gw-2' });
    const { epoch } = await one.read(WORKSPACE, [], []);
    const acknowledged = new Map<string, string>();
    let stop = false;
    let spent = 0;
    let uncertain = 0;
    const work = [one, two].flatMap((store, gateway) =>
      Array.from({ length: 8 }, async (_, worker) => {
        for (let n = 0; !stop; n += 1) {
          const id = `${gateway}-${worker}-${n}`;
          const change = changeOf(WORKSPACE, epoch, {
            puts: [putOf('thing', id, id, { enter: [{ list: 'all', at: n }] })],
            sums: [sumOf('s', { spend: 1 })],
            events: [eventOf(id, id)],
          });
          try {
            const answer = await store.commit(change);
            if (answer.kind === 'done') {
              acknowledged.set(id, change.id);
              spent += 1;
            }
          } catch {
            uncertain += 1;
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
        }
      }),
    );
    await until(() => acknowledged.size > 200);
    // From now on the replica gets nothing: what is acknowledged meanwhile is in the journals only.
    await replica.client.call('REPLICAOF', 'NO', 'ONE');
    const size = acknowledged.size;
    await until(() => acknowledged.size > size + 200);
    replicated.primary.signal('SIGKILL');
    const had = Number(await replica.client.zcard(`svc:{${WORKSPACE}}:z:all`));
    expect(had).toBeLessThan(acknowledged.size - 100);
    route.point(replica);
    // The installation recovers for itself: until it has, no gateway comes to a workspace anew.
    await until(async () => (await replica.client.hmget('svc:{_}:w', 'epoch', 'open')).join(' ') === '2 1');
    await back(2, one, two);
    stop = true;
    await Promise.all(work);
    const wants = [...acknowledged.keys()].map((id) => ({ kind: 'thing', id }));
    const { rows, counters } = await two.read(WORKSPACE, wants, [sumOf('s')]);
    expect(rows.filter(({ id, row: found }) => found?.version !== acknowledged.get(id))).toEqual([]);
    expect(counters[0]?.spent).toBeGreaterThanOrEqual(spent);
    expect(counters[0]?.spent).toBeLessThanOrEqual(spent + uncertain);
    const events = new Map<string, number>();
    for (let after: number | null = null; ; ) {
      const slice: readonly LedgerEntry[] = await one.ledger({
        workspace: WORKSPACE,
        about: null,
        order: 'up',
        after,
        limit: 500,
      });
      for (const { text } of slice) events.set(text, (events.get(text) ?? 0) + 1);
      after = slice.at(-1)?.seq ?? null;
      if (after === null) break;
    }
    for (const id of acknowledged.keys()) expect(events.get(id)).toBe(1);
    expect([...events.values()].every((times) => times === 1)).toBe(true);
    expect(done(await commit(one, {})).epoch).toBeGreaterThan(1);
  });
});

it('a gateway that came and left while the replica lagged is waited for', async () => {
  const { replicated, replica, route } = await behindRoute();
  const one = await open(replicated.primary, { ...WEAK, url: route.url, gatewayId: 'gw-1' });
  await put(one, 'a', 'x');
  // It left before, and the replica knows that: nobody waits for it.
  const three = await open(replicated.primary, { ...WEAK, url: route.url, gatewayId: 'gw-3' });
  await put(three, 'c', 'x');
  await three.close();
  await until(async () => Number(await replica.client.hexists(`svc:{${WORKSPACE}}:away`, 'gw-3')) === 1);
  await replica.client.call('REPLICAOF', 'NO', 'ONE');
  const two = await open(replicated.primary, { ...WEAK, url: route.url, gatewayId: 'gw-2' });
  const version = await put(two, 'victim', 'x');
  await two.close();
  await until(() => readFileSync(join(folder, 'gw-1', 'install.json'), 'utf8').includes('"gw-2"'));
  replicated.primary.signal('SIGKILL');
  route.point(replica);
  await until(() => one.health().problem?.message.includes('writes wait for the journal of gw-2') === true);
  await expect(row(one, 'victim')).rejects.toMatchObject({ name: 'StoreUnavailable' });
  const again = await open(replica, { ...WEAK, url: route.url, gatewayId: 'gw-2', openUnreached: true });
  await back(2, one, again);
  expect(await row(one, 'victim')).toEqual({ version, text: 'x' });
});

describe('what a gateway has in force', () => {
  it('is announced to the others, and again where it has disappeared', async () => {
    const of = await server();
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2' });
    const digests = { policies: 'p', configuration: 'c' };
    one.announce(digests);
    await until(() => two.others().has('gw-1'));
    expect([...two.others()]).toEqual([['gw-1', digests]]);
    await of.client.hdel('svc:{_}:on', 'gw-1');
    await until(async () => (await of.client.hget('svc:{_}:on', 'gw-1')) !== null);
    await until(() => two.others().has('gw-1'));
  });
});

describe('a replica that confirms nothing', () => {
  it('lets no change be told to be made, nor what others made; nothing is lost when it is back', async () => {
    const replicated = await startReplicated(1, ['--appendfsync', 'everysec']);
    closers.push(() => replicated.stop());
    const [replica] = replicated.replicas;
    const one = await open(replicated.primary, { durability: 'replica', gatewayId: 'gw-1' });
    const two = await open(replicated.primary, { durability: 'replica', gatewayId: 'gw-2' });
    const first = await put(one, 'a', 'x');
    expect(await row(two, 'a')).toEqual({ version: first, text: 'x' });
    const { epoch } = await one.read(WORKSPACE, [], []);
    const heard: (string | null)[] = [];
    one.watch(['thing'], ({ id }) => heard.push(id));
    await until(async () => (await replicated.primary.client.hget(`svc:{${WORKSPACE}}:w`, 'loud')) !== null);
    heard.length = 0;
    replica?.signal('SIGSTOP');
    const change = changeOf(WORKSPACE, epoch, { puts: [putOf('thing', 'b', 'y')] });
    await expect(one.commit(change)).rejects.toMatchObject({ name: 'StoreUnavailable' });
    // It was made all the same, so who made it has to look, too.
    await until(() => heard.includes('b') || heard.includes(null));
    await expect(row(two, 'b')).rejects.toMatchObject({ name: 'StoreUnavailable' });
    const same = changeOf(WORKSPACE, epoch, { puts: [putOf('thing', 'b', 'z')] });
    await expect(two.commit(same)).rejects.toMatchObject({ name: 'StoreUnavailable' });
    expect(one.impediment(WORKSPACE)).not.toBeNull();
    expect(one.health().ready).toBe(false);
    replica?.signal('SIGCONT');
    await until(() => one.health().ready && one.impediment(WORKSPACE) === null);
    await until(async () => (await row(two, 'b')) !== null);
    // Sent again it shows by its version that it was made.
    expect(moved(await one.commit(change)).rows).toEqual([
      { kind: 'thing', id: 'b', row: { version: change.id, text: 'y' } },
    ]);
  });
});

describe('a change that another gateway makes', () => {
  it('is heard within a second, also where no message told it', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2' });
    await row(two, 'nothing');
    const heard: Watched[] = [];
    two.watch(['thing'], (changed) => heard.push(changed));
    await until(async () => (await of.client.hget(`svc:{${WORKSPACE}}:w`, 'loud')) !== null);
    const hear = async (change: () => Promise<unknown>, isHeard: () => boolean): Promise<number> => {
      heard.length = 0;
      await change();
      const began = performance.now();
      await until(isHeard);
      return performance.now() - began;
    };
    const told = (time: number): Promise<number> =>
      hear(
        () => put(one, `a${time}`, 'x'),
        () => heard.some(({ id }) => id === `a${time}`),
      );
    expect(await shortest(1000, told)).toBeLessThan(1000);
    const untold = (time: number): Promise<number> =>
      hear(
        async () => {
          await of.client.hdel(`svc:{${WORKSPACE}}:w`, 'loud');
          await put(one, `b${time}`, 'x');
        },
        () => heard.some(({ workspace, kind }) => workspace === WORKSPACE && kind === 'thing'),
      );
    expect(await shortest(1000, untold)).toBeLessThan(1000);
  });

  it('is heard with the next one where its own message was lost', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2' });
    await row(two, 'nothing');
    const heard: Watched[] = [];
    two.watch(['thing'], (changed) => heard.push(changed));
    const told = `svc:{${WORKSPACE}}:w`;
    await until(async () => (await of.client.hget(told, 'loud')) !== null);
    await put(one, 'a', 'x');
    await until(() => heard.some(({ id }) => id === 'a'));
    const loud = (await of.client.hget(told, 'loud')) ?? '';
    // The gateway that listens says so again with each of its looks: one may come before the change.
    for (let isLost = false, time = 0; !isLost; time += 1) {
      heard.length = 0;
      await of.client.hdel(told, 'loud');
      await put(one, `b${time}`, 'x');
      isLost = (await of.client.hget(told, 'loud')) === null;
    }
    await of.client.hset(told, 'loud', loud);
    await put(one, 'c', 'x');
    // Of several things it is said that any may have changed.
    await until(() => heard.some(({ id }) => id === null));
  });
});
