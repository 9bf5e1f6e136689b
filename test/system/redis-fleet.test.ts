import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { INSTALLATION, type LedgerDraft } from '../../src/effects/model/ledger.ts';
import { openRedisStore, type RedisStore, type RedisStoreOptions } from '../../src/gateway/redis-store.ts';
import { keyOf, metaKey } from '../../src/stores/redis/names.ts';
import { script } from '../../src/stores/redis/scripts.ts';
import {
  admitRequest,
  budgetOf,
  committed,
  dispatched,
  permit,
  PERSON,
  settleRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { redisOptions } from '../redis/contract.ts';
import { countedRoute } from '../redis/counted-route.ts';
import { type RedisServer, routeTo, startCluster, startRedis, until } from '../redis/servers.ts';

const WEAK = { durability: 'local', allowWeakDurability: true } as const;

let folder = '';
const closers: (() => Promise<unknown>)[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-redis-fleet-'));
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

async function open(of: RedisServer, more: Partial<RedisStoreOptions> = {}): Promise<RedisStore> {
  const store = await openRedisStore(
    redisOptions(of, { journalFolder: join(folder, more.gatewayId ?? 'gw-1'), ...more }),
  );
  closers.push(() => store.close());
  return store;
}

async function server(): Promise<RedisServer> {
  const started = await startRedis();
  closers.push(() => started.stop());
  return started;
}

/** Waits until gateways have noted beside their journals who is there now, in the workspace. */
async function noted(of: RedisServer, ...gateways: readonly string[]): Promise<void> {
  const version = Number(await of.client.hget(`svc:{${WORKSPACE}}:w`, 'members'));
  expect(version).toBeGreaterThan(0);
  await until(() =>
    gateways.every((gateway) => {
      const { neighbours } = JSON.parse(readFileSync(join(folder, gateway, 'install.json'), 'utf8'));
      return neighbours[WORKSPACE]?.version >= version;
    }),
  );
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

const money = permit([budgetOf(1000, 10)]);
const noteOf = (n: number): LedgerDraft => ({ kind: 'policy.activated', effectId: null, actor: PERSON, data: { n } });

describe('a tail of the log that is lost', () => {
  it('is made whole from the gateway’s journal: keys, budgets, ledger', async () => {
    const of = await server();
    const store = await open(of, WEAK);
    await dispatched(store, { verdict: money });
    const copy = snapshot(of);
    const running = await dispatched(store, { idempotencyKey: 'running', verdict: money });
    const done = await dispatched(store, { idempotencyKey: 'done', verdict: money });
    await store.settle(settleRequest(done.effect, committed('the.same.bytes')));
    const before = {
      ledger: await store.ledger(WORKSPACE, 0, 100),
      budgets: await store.budgets(WORKSPACE),
      effects: [await store.effect(WORKSPACE, running.effect.id), await store.effect(WORKSPACE, done.effect.id)],
    };
    await setBack(of, copy);
    await until(async () => (await store.effect(WORKSPACE, done.effect.id)) !== null);
    await until(() => store.health().ready);
    expect(await store.admit(admitRequest({ idempotencyKey: 'running' }))).toMatchObject({
      kind: 'existing',
      effect: { id: running.effect.id, life: { state: 'executing' } },
    });
    expect(await store.admit(admitRequest({ idempotencyKey: 'done' }))).toMatchObject({
      kind: 'existing',
      effect: { life: { state: 'committed', receipt: { jws: 'the.same.bytes' } } },
    });
    expect((await store.ledger(WORKSPACE, 0, 100)).slice(0, before.ledger.length)).toEqual(before.ledger);
    expect(await store.budgets(WORKSPACE)).toEqual(before.budgets);
    const { effects } = before;
    expect([await store.effect(WORKSPACE, running.effect.id), await store.effect(WORKSPACE, done.effect.id)]).toEqual(
      effects,
    );
    const next = await dispatched(store);
    expect(next.ledger.epoch).toBe(2);
    expect(next.ledger.seq).toBeGreaterThan(before.ledger.length);
    expect(await store.settle(settleRequest(running.effect, committed()))).toMatchObject({ kind: 'settled' });
  });

  it('is made whole however many steps it has', async () => {
    const of = await server();
    const store = await open(of, WEAK);
    await store.append(WORKSPACE, [noteOf(-1)]);
    const copy = snapshot(of);
    // Scripts make them again a hundred at a time.
    for (let n = 0; n < 230; n += 1) await store.append(WORKSPACE, [noteOf(n)]);
    const before = await store.ledger(WORKSPACE, 0, 1_000);
    expect(before.length).toBeGreaterThan(230);
    await setBack(of, copy);
    await until(() => store.health().ready);
    await until(async () => (await store.ledger(WORKSPACE, 0, 1_000)).length === before.length);
    expect(await store.ledger(WORKSPACE, 0, 1_000)).toEqual(before);
  });

  it('is waited for: writes stay refused until every gateway has handed in, and health names the one missed', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2', url: route.url });
    await dispatched(one);
    await dispatched(two);
    const copy = snapshot(of);
    const lost = await dispatched(two, { idempotencyKey: 'lost' });
    await dispatched(one, { idempotencyKey: 'mine' });
    route.cut();
    await setBack(of, copy);
    await until(() => one.health().problem?.message.includes('gw-2') ?? false);
    await expect(one.admit(admitRequest({ idempotencyKey: 'lost' }))).rejects.toThrow('gw-2');
    route.heal();
    await until(async () => (await one.admit(admitRequest())).kind === 'dispatch');
    await until(() => one.health().ready && two.health().ready);
    expect(await one.admit(admitRequest({ idempotencyKey: 'lost' }))).toMatchObject({
      kind: 'existing',
      effect: { id: lost.effect.id },
    });
    expect(await two.admit(admitRequest({ idempotencyKey: 'mine' }))).toMatchObject({ kind: 'existing' });
    expect(await two.settle(settleRequest(lost.effect, committed()))).toMatchObject({ kind: 'settled' });
  });

  it('is waited for to its last part, where a gateway hands in more than goes with one command', async () => {
    const of = await server();
    let parts = Infinity;
    let refused = 0;
    const route = await countedRoute(of.port, ({ name, about }) => {
      if (name !== 'EVALSHA handin' || about !== metaKey('')) return true;
      parts -= 1;
      if (parts < 0) refused += 1;
      return parts >= 0;
    });
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2', url: route.url });
    await dispatched(one);
    await dispatched(two);
    const copy = snapshot(of);
    for (let n = 0; n < 60; n += 1) await two.append(INSTALLATION, [noteOf(n)]);
    const before = await two.ledger(INSTALLATION, 0, 1_000);
    parts = 1;
    await setBack(of, copy);
    await until(() => refused > 0);
    await until(() => one.health().problem?.message.includes('gw-2') ?? false);
    // The second of them begins after the first part is there.
    for (let n = 0; n < 2; n += 1) await expect(one.admit(admitRequest())).rejects.toThrow('gw-2');
    parts = Infinity;
    await until(() => one.health().ready && two.health().ready);
    expect((await one.ledger(INSTALLATION, 0, 1_000)).slice(0, before.length)).toEqual(before);
  });

  it('is given up where an operator declares a gateway lost', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2', url: route.url });
    await dispatched(one);
    await dispatched(two);
    route.cut();
    await of.restart();
    await until(() => one.health().problem?.message.includes('gw-2') ?? false);
    await one.recoverLost('gw-2');
    await until(async () => (await one.admit(admitRequest())).kind === 'dispatch');
    await until(() => one.health().ready);
    route.heal();
    await until(async () => (await two.admit(admitRequest())).kind === 'dispatch');
  });

  it('that was declared lost does not come back among the steps that others made since', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2', url: route.url });
    await dispatched(one);
    await dispatched(two);
    const copy = snapshot(of);
    for (const idempotencyKey of ['a', 'b', 'c']) await dispatched(two, { idempotencyKey });
    route.cut();
    await setBack(of, copy);
    await until(() => one.health().problem?.message.includes('gw-2') ?? false);
    await one.recoverLost('gw-2');
    await expect(one.recoverLost('gw-9')).rejects.toThrow('no gateway gw-9');
    await expect(one.recoverLost('gw-1')).rejects.toThrow('gateway gw-1 is this one: its journal is here');
    await until(async () => (await one.admit(admitRequest())).kind === 'dispatch');
    const base = snapshot(of);
    // More steps than were given up, of which the next fail-over loses the end.
    for (let n = 0; n < 5; n += 1) await dispatched(one, { idempotencyKey: `later-${n}` });
    route.heal();
    await until(async () => (await two.admit(admitRequest())).kind === 'dispatch');
    const ledger = await one.ledger(WORKSPACE, 0, 100);
    await noted(of, 'gw-1', 'gw-2');
    await setBack(of, base);
    await until(async () => (await one.admit(admitRequest())).kind === 'dispatch');
    await until(async () => (await two.admit(admitRequest())).kind === 'dispatch');
    expect((await one.ledger(WORKSPACE, 0, 100)).slice(0, ledger.length)).toEqual(ledger);
    for (let n = 0; n < 5; n += 1)
      expect(await two.admit(admitRequest({ idempotencyKey: `later-${n}` }))).toMatchObject({ kind: 'existing' });
    expect(await two.admit(admitRequest({ idempotencyKey: 'a' }))).toMatchObject({ kind: 'dispatch' });
  });

  it('is waited for from a gateway that came after what the store was set back to', async () => {
    const of = await server();
    const one = await open(of, { ...WEAK, gatewayId: 'gw-1' });
    await dispatched(one);
    const copy = snapshot(of);
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const two = await open(of, { ...WEAK, gatewayId: 'gw-2', url: route.url });
    const lost = await dispatched(two, { idempotencyKey: 'lost' });
    await noted(of, 'gw-1');
    route.cut();
    await setBack(of, copy);
    await until(() => one.health().problem?.message.includes('gw-2') ?? false);
    await expect(one.admit(admitRequest({ idempotencyKey: 'lost' }))).rejects.toThrow('gw-2');
    route.heal();
    await until(async () => (await one.admit(admitRequest())).kind === 'dispatch');
    expect(await one.admit(admitRequest({ idempotencyKey: 'lost' }))).toMatchObject({
      kind: 'existing',
      effect: { id: lost.effect.id },
    });
  });

  it('is not handed in by an empty journal under the name of one that is lost', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { url: route.url });
    await dispatched(one);
    route.cut();
    await one.close();
    await expect(open(of, { journalFolder: join(folder, 'empty') })).rejects.toThrow('declare gw-1 lost');
    const two = await open(of, { gatewayId: 'gw-2' });
    await two.recoverLost('gw-1');
    await of.restart();
    await until(async () => (await two.admit(admitRequest())).kind === 'dispatch');
  });

  it('waits for no gateway that left in order', async () => {
    const of = await server();
    const one = await open(of, { gatewayId: 'gw-1' });
    const two = await open(of, { gatewayId: 'gw-2' });
    await dispatched(one);
    await dispatched(two);
    await two.close();
    await of.restart();
    await until(async () => (await one.admit(admitRequest())).kind === 'dispatch');
  });

  it('waits for no command that was killed: it has no journal to hand in', async () => {
    const of = await server();
    const one = await open(of, { gatewayId: 'gw-1' });
    await dispatched(one);
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const command = await open(of, { gatewayId: 'command:1', url: route.url });
    await dispatched(command);
    route.cut();
    await command.close();
    await of.restart();
    await until(async () => (await one.admit(admitRequest())).kind === 'dispatch');
    await until(() => one.health().ready);
  });

  it('is handed in by a gateway that starts again after the loss', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { ...WEAK, url: route.url });
    await dispatched(one);
    const copy = snapshot(of);
    const lost = await dispatched(one, { idempotencyKey: 'lost' });
    route.cut();
    await one.close();
    await setBack(of, copy);
    const again = await open(of, WEAK);
    expect(await again.admit(admitRequest({ idempotencyKey: 'lost' }))).toMatchObject({
      kind: 'existing',
      effect: { id: lost.effect.id },
    });
  });
});

describe('a store that is not the one that was left', () => {
  it('was emptied while in use: not ready, nothing runs anew', async () => {
    const of = await server();
    const store = await open(of);
    await dispatched(store, { idempotencyKey: 'k' });
    await of.client.flushall();
    await expect(store.admit(admitRequest({ idempotencyKey: 'k' }))).rejects.toThrow('not the one that was left');
    expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_rolled_back' } });
    for (const workspace of ['demo', 'other'])
      await expect(store.admit(admitRequest({ workspace }))).rejects.toMatchObject({ name: 'StoreUnavailable' });
    expect(await of.client.dbsize()).toBe(0);
  });

  it('was emptied, and the loss is accepted: what the journal knows to be sent is not sent again, also after a restart', async () => {
    const of = await server();
    const store = await open(of);
    const { effect } = await dispatched(store, { idempotencyKey: 'k', verdict: money });
    await store.settle(settleRequest(effect, committed('the.same.bytes')));
    await of.client.flushall();
    await until(() => store.health().problem?.code === 'store_rolled_back');
    await store.acceptLoss();
    await until(() => store.health().ready);
    const bound = { kind: 'existing', effect: { life: { receipt: { jws: 'the.same.bytes' } } } };
    expect(await store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject(bound);
    await store.close();
    const again = await open(of);
    expect(again.health()).toMatchObject({ ready: true });
    expect(await again.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject(bound);
    await dispatched(again);
  });

  it('was emptied: a loss accepted beside one gateway waits for the other, also for a workspace that only that one knew', async () => {
    const of = await server();
    const route = await routeTo(of);
    closers.push(() => route.stop());
    const one = await open(of, { gatewayId: 'gw-1' });
    const two = await open(of, { gatewayId: 'gw-2', url: route.url });
    await dispatched(one, { idempotencyKey: 'a' });
    const b = await dispatched(two, { idempotencyKey: 'b' });
    await dispatched(one, { idempotencyKey: 'c' });
    const elsewhere = await dispatched(two, { idempotencyKey: 'd', workspace: 'elsewhere' });
    const three = await open(of, { gatewayId: 'gw-3' });
    const e = await dispatched(three, { idempotencyKey: 'e' });
    await three.close();
    await noted(of, 'gw-1', 'gw-2');
    route.cut();
    await of.client.flushall();
    await until(() => one.health().problem?.code === 'store_rolled_back');
    // Also for one that had left in order: its journal knows what it sent.
    expect([...(await one.acceptLoss())].sort()).toEqual(['gw-2', 'gw-3']);
    expect(one.health().problem?.message).toContain('gw-2');
    for (const [idempotencyKey, workspace] of [
      ['b', WORKSPACE],
      ['d', 'elsewhere'],
    ] as const)
      await expect(one.admit(admitRequest({ idempotencyKey, workspace }))).rejects.toMatchObject({
        name: 'StoreUnavailable',
      });
    route.heal();
    await until(() => two.health().problem?.message.includes('journal of gw-3') ?? false);
    const again = await open(of, { gatewayId: 'gw-3' });
    await until(() => [one, two, again].every((store) => store.health().ready));
    for (const store of [one, two, again]) {
      const asked = async (idempotencyKey: string, workspace: string) => {
        await until(async () => (await store.admit(admitRequest({ workspace }))).kind === 'dispatch');
        return store.admit(admitRequest({ idempotencyKey, workspace }));
      };
      expect(await asked('a', WORKSPACE)).toMatchObject({ kind: 'existing' });
      expect(await asked('b', WORKSPACE)).toMatchObject({ kind: 'existing', effect: { id: b.effect.id } });
      expect(await asked('c', WORKSPACE)).toMatchObject({ kind: 'existing' });
      expect(await asked('e', WORKSPACE)).toMatchObject({ kind: 'existing', effect: { id: e.effect.id } });
      expect(await asked('d', 'elsewhere')).toMatchObject({ kind: 'existing', effect: { id: elsewhere.effect.id } });
    }
  });

  it('was emptied between two starts: not ready', async () => {
    const of = await server();
    const first = await open(of);
    await dispatched(first);
    await first.close();
    await of.client.flushall();
    const store = await open(of);
    expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_rolled_back' } });
    await expect(store.admit(admitRequest())).rejects.toMatchObject({ name: 'StoreUnavailable' });
  });

  it('was restored from an older copy: not ready; it goes on where the loss is accepted', async () => {
    const of = await server();
    const store = await open(of, { maxReplayMs: 0 });
    await dispatched(store);
    const copy = snapshot(of);
    const known = await dispatched(store, { idempotencyKey: 'k' });
    // Steps of one millisecond span no time, and a fail-over may lose that. A step may be made some time after its effect.
    await until(async () => (await dispatched(store)).effect.createdAt > known.effect.createdAt + 500);
    await setBack(of, copy);
    await until(() => store.health().problem?.code === 'store_rolled_back');
    await expect(store.admit(admitRequest({ idempotencyKey: 'k' }))).rejects.toMatchObject({
      name: 'StoreUnavailable',
    });
    await store.acceptLoss();
    await until(() => store.health().ready);
    // What the journal shows to have been dispatched is not sent again.
    expect(await store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({ kind: 'existing' });
    expect((await dispatched(store)).ledger.epoch).toBeGreaterThan(1);
  });

  it('is another installation’s: not ready', async () => {
    const [mine, other] = [await server(), await server()];
    const first = await open(mine);
    await dispatched(first);
    await first.close();
    const stranger = await open(other, { gatewayId: 'gw-9' });
    await dispatched(stranger);
    const store = await open(other);
    expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_rolled_back' } });
  });
});

describe('a fail-over within a cluster', () => {
  it('moves a workspace to the replica that was elected, and nothing acknowledged is lost', async () => {
    const cluster = await startCluster(1);
    closers.push(() => cluster.stop());
    const [first] = cluster.nodes;
    if (first === undefined) throw new Error('a cluster has nodes');
    const store = await open(first, {
      mode: 'cluster',
      nodes: cluster.nodes.map(({ address }) => address),
      durability: 'replica',
    });
    const keys = Array.from({ length: 30 }, (_, n) => `k${n}`);
    for (const idempotencyKey of keys) await dispatched(store, { idempotencyKey });
    const owner = await cluster.primaryOf(`{${WORKSPACE}}`);
    await cluster.kill(owner);
    // The new primary has no replica of its own: nothing leaves until the old one is back as one.
    await expect(store.admit(admitRequest())).rejects.toMatchObject({ name: 'StoreUnavailable' });
    await owner.start();
    await until(async () => (await store.admit(admitRequest())).kind === 'dispatch', 40_000);
    for (const idempotencyKey of keys) {
      expect(await store.admit(admitRequest({ idempotencyKey }))).toMatchObject({ kind: 'existing' });
    }
  }, 240_000);
});

it('a run that has ended does not join again by what the network brings after its end', async () => {
  const of = await server();
  const first = await open(of, WEAK);
  await dispatched(first);
  const boot = String(await of.client.hget(keyOf(WORKSPACE, 'gb'), 'gw-1'));
  const install = String(await of.client.hget(metaKey(''), 'rows'));
  await first.close();
  const second = await open(of, WEAK);
  const { effect } = await dispatched(second, { idempotencyKey: 'running' });
  // Sent by the first run, on a connection that has outlived it.
  const late = of.client.eval(
    script('join').source,
    1,
    metaKey(WORKSPACE),
    '',
    'gw-1',
    '?/604800000',
    install,
    '',
    '',
    boot,
  );
  await expect(late).rejects.toThrow('ENDED');
  const other = await open(of, { ...WEAK, gatewayId: 'gw-2' });
  expect(await other.admit(admitRequest({ idempotencyKey: 'running' }))).toMatchObject({
    kind: 'existing',
    effect: { id: effect.id, life: { state: 'executing' } },
  });
});
