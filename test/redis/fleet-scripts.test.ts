import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { script, type ScriptName } from '../../src/stores/redis/scripts.ts';
import { type RedisServer, startRedis } from './servers.ts';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());
beforeEach(() => server.client.flushall());

const START = 1_750_000_000_000;
const DAY = 86_400_000;
const key = (name: string): string => `svc:{shop}:${name}`;

/** Runs a script as a gateway at a time. */
async function run(name: ScriptName, gateway: string, now: number, ...args: readonly string[]): Promise<string[]> {
  const [epoch = '', ...rest] = args;
  const reply = await server.client.eval(script(name).source, 1, key('w'), epoch, gateway, String(now), ...rest);
  return (reply as unknown[]).map(String);
}

interface Joining {
  readonly install?: string;
  readonly first?: string;
  readonly returns?: string;
  readonly boot?: string;
  readonly now?: number;
}
const join = (gateway: string, { install = 'i1', first = '', returns = '', boot, now = START }: Joining = {}) =>
  run('join', gateway, now, '', install, first, returns, boot ?? `boot of ${gateway}`);
const leave = (gateway: string, now = START) => run('leave', gateway, now, '1');
const begin = (gateway: string, estimate = '', now = START) => run('epoch', gateway, now, '', estimate, '', '', '');
const accept = (gateway: string, now = START) => run('epoch', gateway, now, '', '', 'new', '0', 'accepted');
const handIn = (gateway: string, epoch: string, last: string, neighbours: readonly string[], ...steps: string[]) =>
  run('handin', gateway, START, epoch, last, JSON.stringify(neighbours), ...steps);
const redo = (gateway: string, epoch: string, lost = '') => run('redo', gateway, START, epoch, lost, `lost ${lost}`);

const meta = (field: string) => server.client.hget(key('w'), field);
/** The history of replication is another from now on, as after a fail-over. */
const loseHistory = () => server.client.hset(key('w'), 'rid', 'another');

it('a workspace is made by a first epoch only, and is one installation’s; who joins again takes no step', async () => {
  expect(await join('one')).toEqual(['absent']);
  expect(await server.client.dbsize()).toBe(0);
  expect(await join('one', { first: '3' })).toEqual(['joined', '3', '1', String(START), '', '0']);
  expect([await meta('sn'), await meta('members')]).toEqual(['1', '1']);
  expect(await join('one')).toEqual(['joined', '3', '1', String(START), '', '0']);
  expect(await join('two')).toEqual(['joined', '3', '2', String(START), '', '0']);
  expect([await meta('sn'), await meta('members')]).toEqual(['2', '2']);
  expect(await join('three', { install: 'i2' })).toEqual(['foreign']);
  await server.client.hset(key('w'), 'open', '0');
  expect(await join('three')).toEqual(['waiting', '3']);
  await loseHistory();
  expect((await join('three'))[0]).toBe('new_history');
  expect(Object.keys(await server.client.hgetall(key('gw')))).toEqual(['one', 'two']);
});

it('a boot has ended once its gateway has joined with another, and comes no more; the latest thousand are known', async () => {
  await join('one', { first: '1', boot: 'a' });
  const [, , , , , count, ...gone] = await join('one', { boot: 'b', now: START + 5 });
  expect([count, gone]).toEqual(['1', ['a']]);
  await expect(join('one', { boot: 'a' })).rejects.toThrow('ENDED');
  expect((await join('one', { boot: 'b' })).slice(5)).toEqual(['1', 'a']);
  const earlier = Array.from({ length: 999 }, (_, n) => [n + 1, `boot ${n}`]).flat();
  await server.client.zadd(key('gone'), ...earlier.map(String));
  const [, , , , , , ...all] = await join('one', { boot: 'c', now: START + 10 });
  expect([all.length, all[0], all.at(-1)]).toEqual([1_000, 'boot 1', 'b']);
});

it('who has left is not waited for; for 30 days it is known to have been here, a command is not', async () => {
  await join('one', { first: '1' });
  for (const gateway of ['two', 'command:x']) await join(gateway);
  await server.client.hset(key('on'), 'two', 'announced');
  await leave('two');
  await leave('command:x');
  expect(await server.client.hgetall(key('away'))).toEqual({ two: String(START) });
  expect(await server.client.hgetall(key('on'))).toEqual({});
  expect(Object.keys(await server.client.hgetall(key('gw')))).toEqual(['one']);
  expect(Object.keys(await server.client.hgetall(key('gb')))).toEqual(['one', 'two']);
  // Three that came, two that left: each is a step.
  expect([await meta('sn'), await meta('members')]).toEqual(['5', '5']);
  await leave('one', START + 30 * DAY);
  expect(Object.keys(await server.client.hgetall(key('away')))).toEqual(['two', 'one']);
  await join('three', { now: START + 30 * DAY + 1 });
  await leave('three', START + 30 * DAY + 1);
  expect(Object.keys(await server.client.hgetall(key('away')))).toEqual(['one', 'three']);
  await join('one');
  expect(Object.keys(await server.client.hgetall(key('away')))).toEqual(['three']);
});

it('after a fail-over an epoch waits for each that was here, and begins at the step that is there', async () => {
  for (const [gateway, first] of [
    ['one', '1'],
    ['two', ''],
    ['command:x', ''],
  ] as const)
    await join(gateway, { first });
  expect(await begin('one')).toEqual(['current', '1', '1', '0', '0', '1', '0']);
  await loseHistory();
  expect(await begin('one')).toEqual(['begun', '2', '0', '3', '1', '0', '0']);
  expect(await begin('two')).toEqual(['current', '2', '0', '3', '1', '0', '0']);
  expect(await handIn('one', '1', '1', [])).toEqual(['new_epoch', '2']);
  expect(await handIn('one', '2', '0', [], '4', 'a lost step')).toEqual(['taken']);
  expect((await begin('one'))[5]).toBe('0');
  await handIn('one', '2', '1', []);
  expect((await begin('one'))[5]).toBe('1');
  expect(await redo('one', '2')).toEqual(['waiting', 'two']);
  expect(await redo('one', '1')).toEqual(['new_epoch', '2']);
  // It fails over once more before it is open: what counts is still the epoch that was open last.
  await loseHistory();
  expect(await begin('two')).toEqual(['begun', '3', '0', '3', '1', '0', '0']);
  expect(await redo('two', '3')).toEqual(['waiting', 'one', 'two']);
  // And what was handed in is handed in again, by whom it is still waited for.
  expect(await server.client.exists(key('redo'), key('redox'))).toBe(0);
  for (const gateway of ['one', 'two']) await handIn(gateway, '3', '1', []);
  expect(await redo('two', '3')).toEqual(['open']);
  expect([await meta('open'), await redo('one', '3')]).toEqual(['1', ['open']]);
  // A command has no journal to wait for.
  expect(Object.keys(await server.client.hgetall(key('gw')))).toEqual(['one', 'two']);
});

it('who is declared lost is waited for no more, returns without what it had, and stands in the ledger', async () => {
  for (const [gateway, first] of [
    ['one', '1'],
    ['two', ''],
  ] as const)
    await join(gateway, { first });
  await loseHistory();
  await begin('one');
  await handIn('one', '2', '1', []);
  const members = Number(await meta('members'));
  const [tag, at, epoch, step, seq, ...texts] = await redo('one', '2', 'two');
  expect([tag, at, epoch, step, seq, texts]).toEqual(['ok', String(START), '2', '3', '1', ['lost two']]);
  expect(await meta('members')).toBe(String(members + 1));
  const [entry] = await server.client.xrange(key('l'), '-', '+');
  expect(entry).toEqual(['1-0', [String(START), '2', '', 'lost two']]);
  expect(await redo('one', '2', 'nobody')).toEqual(['open']);
  expect(await join('two')).toEqual(['lost']);
  expect((await join('two', { returns: '1' }))[0]).toBe('joined');
  expect((await join('two'))[0]).toBe('joined');
  expect(await server.client.hgetall(key('lg'))).toEqual({});
});

it('whom others know to have been here is waited for, but who was given up in this epoch, or has left', async () => {
  for (const [gateway, first] of [
    ['one', '1'],
    ['left', ''],
    ['lost', ''],
  ] as const)
    await join(gateway, { first });
  await leave('left');
  await loseHistory();
  await begin('one');
  await redo('one', '2', 'lost');
  await handIn('one', '2', '1', ['lost', 'later', '?left', '?gone']);
  const waiting = await redo('one', '2');
  expect([waiting[0], waiting.slice(1).sort()]).toEqual(['waiting', ['gone', 'later']]);
  for (const gateway of ['gone', 'later']) await redo('one', '2', gateway);
  await loseHistory();
  await begin('one');
  // In a later epoch it may have been here again.
  await handIn('one', '3', '1', ['lost']);
  expect(await redo('one', '3')).toEqual(['waiting', 'lost']);
});

it('an accepted loss waits also for who has left within 30 days, and has a number that others know it by', async () => {
  for (const [gateway, first] of [
    ['one', '1'],
    ['two', ''],
    ['lost', ''],
    ['old', ''],
  ] as const)
    await join(gateway, { first });
  for (const gateway of ['two', 'lost', 'old']) await leave(gateway);
  await server.client.hset(key('away'), 'old', String(START - 30 * DAY - 1));
  await server.client.hset(key('lg'), 'lost', '1');
  expect((await accept('one')).slice(0, 3)).toEqual(['begun', '2', '0']);
  expect(await server.client.hgetall(key('gw'))).toEqual({ one: '1', two: '0' });
  expect([await meta('accepted'), await meta('acceptor'), await meta('from')]).toEqual(['2', 'one', '0']);
  expect(await server.client.lrange(key('pe'), '0', '-1')).toEqual(['accepted']);
  // The same loss, by its number: no epoch again. Another one begins above what its gateway has seen.
  expect((await run('epoch', 'two', START, '', '', '2', '7', 'accepted')).slice(0, 2)).toEqual(['current', '2']);
  expect((await run('epoch', 'two', START, '', '', '9', '7', 'accepted')).slice(0, 2)).toEqual(['begun', '8']);
  expect([await meta('accepted'), await meta('acceptor')]).toEqual(['9', 'one']);
});

it('a new epoch goes on in the time that a gateway has seen, where the clock of its server is another by seconds', async () => {
  await join('one', { first: '1' });
  const clock = async (estimate: number) => {
    await loseHistory();
    await server.client.hdel(key('w'), 'skew');
    await begin('one', String(estimate), START + 10_000);
    return [Number(await meta('clock')) - START, Number(await meta('skew'))];
  };
  expect(await clock(START + 12_000)).toEqual([10_000, 0]);
  expect(await clock(START + 12_001)).toEqual([12_001, 2_001]);
  await server.client.hset(key('w'), 'clock', String(START));
  expect(await clock(START + 7_000)).toEqual([7_000, -3_000]);
  // Never before what is on record.
  await server.client.hset(key('w'), 'clock', String(START + 9_000));
  expect(await clock(START + 7_000)).toEqual([9_000, -1_000]);
});
