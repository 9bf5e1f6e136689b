import { rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { openStepJournal } from '../../src/stores/journal/step-journal.ts';
import type { Answer, Change } from '../../src/stores/port.ts';
import { Calls } from '../../src/stores/redis/calls.ts';
import { openConnection } from '../../src/stores/redis/connection.ts';
import { Barrier } from '../../src/stores/redis/durability.ts';
import type { Fleet } from '../../src/stores/redis/fleet.ts';
import { Batches } from '../../src/stores/redis/rows/batches.ts';
import { createStoreTime } from '../../src/stores/redis/store-time.ts';
import { changeOf, eventOf, putOf } from '../port/changes.ts';
import { journalFolder } from './contract.ts';

const WEEK = 7 * 86_400_000;

/** Calls on a primary that answers with these, one after the other; what was done beside is noted. */
async function world(
  answers: readonly (readonly unknown[] | Error | Promise<Error>)[],
  attachedAs: string | null = '1',
) {
  const done: string[] = [];
  const reports: (string | null)[] = [];
  const left = [...answers];
  const attached = new Map(attachedAs === null ? [] : [['shop', attachedAs]]);
  let epochs = 1;
  const closed = openConnection(
    { kind: 'address', address: { host: '127.0.0.1', port: 1 } },
    { username: null, password: null, database: 0, tls: false },
    { name: 'test' },
  );
  closed.close();
  const connection = {
    ...closed,
    evaluate: async (name: string, workspace: string, [epoch]: readonly (string | Buffer)[]) => {
      done.push(`${name} ${workspace} in ${String(epoch)}`);
      const next = await left.shift();
      if (next instanceof Error) throw next;
      return next ?? ['ok'];
    },
    reset: () => void done.push('reset'),
  };
  const primary = {
    connection: () => connection,
    barrier: new Barrier(
      connection,
      () => 'none',
      'one',
      () => '',
    ),
    ready: async () => {},
    fault: () => null,
    close: () => undefined,
  };
  const topology = {
    primaryOf: () => primary,
    primaries: () => [primary],
    relocate: async () => void done.push('relocate'),
    follow: async (workspace: string, { message }: StoreUnavailable) =>
      void done.push(`follow ${workspace} ${message}`),
    ready: async () => {},
    close: () => undefined,
  };
  const never = () => Promise.reject(new Error('nobody asks for it'));
  const fleet: Fleet = {
    attached: () => attached,
    detach: (workspace) => {
      done.push(`detach ${workspace}`);
      attached.delete(workspace);
    },
    async attach(workspace) {
      const known = attached.get(workspace);
      if (known !== undefined) return known;
      epochs += 1;
      done.push(`attach ${workspace}`);
      attached.set(workspace, String(epochs));
      return String(epochs);
    },
    recover: async (workspace) => void done.push(`recover ${workspace}`),
    installId: () => 'inst_1',
    waiting: () => new Map(),
    rolledBack: () => null,
    refused: () => null,
    recoverLost: never,
    acceptLoss: never,
    followAcceptance: never,
    noteNeighbours: never,
    leave: never,
  };
  const time = createStoreTime(undefined, WEEK);
  const calls = new Calls({ topology, gatewayId: 'one', time }, fleet, (error) => reports.push(error?.message ?? null));
  return { calls, done, reports, time, topology };
}

it.each(['absent', 'unregistered', 'new_epoch'])(
  'a gateway that hears %s registers anew, and calls again in the epoch that there is then',
  async (tag) => {
    const { calls, done, reports } = await world([
      [tag, '2'],
      ['ok', 'made'],
    ]);
    expect(await calls.evaluate('note', 'shop', [])).toEqual(['ok', 'made']);
    expect(done).toEqual(['note shop in 1', 'detach shop', 'attach shop', 'note shop in 2']);
    expect(reports).toEqual([null, null]);
  },
);

it.each(['new_history', 'waiting'])('one that hears %s hands in what it has before it calls again', async (tag) => {
  const { calls, done } = await world([[tag, '2']]);
  expect(await calls.evaluate('note', 'shop', [])).toEqual(['ok']);
  expect(done).toEqual(['note shop in 1', 'recover shop', 'note shop in 1']);
});

it('one that was late says so with the next call; one whose server has another time is answered all the same', async () => {
  const { calls, time } = await world([
    ['late', '1750000000000'],
    ['ahead', '1760000000000', 'ok', '1750000000000', '1', ''],
  ]);
  expect(await calls.evaluate('note', 'shop', [])).toEqual(['ok', '1750000000000', '1', '']);
  expect(time.argument()).toBe(`?1750000000000/${WEEK}/1750000000000`);
  // The known time, and what the clock says.
  expect(time.problem()).toMatch(/2025-10-09.*2025-06-15/);
});

it('on a server that is no primary any more nothing is tried again: another one is looked for', async () => {
  const { calls, done } = await world([['replica']]);
  await expect(calls.evaluate('note', 'shop', [])).rejects.toThrow('no longer a primary');
  expect(done).toEqual(['note shop in 1', 'reset', 'relocate']);
});

it('an epoch that changes over and over is given up after four more calls; what nobody knows is a fault', async () => {
  const { calls, done } = await world(Array.from({ length: 9 }, () => ['new_epoch']));
  await expect(calls.evaluate('note', 'shop', [])).rejects.toThrow('changes its epoch over and over');
  expect(done.filter((what) => what.startsWith('note'))).toHaveLength(4);
  const { calls: other } = await world([['what']], null);
  await expect(other.evaluate('note', 'shop', [])).rejects.toThrow('script note answered what');
});

it('a call that may have run is not made again: it fails, and health and the way to the server hear of it', async () => {
  const { calls, done, reports } = await world([new StoreUnavailable('Redis: Connection is closed.')]);
  await expect(calls.evaluate('note', 'shop', [])).rejects.toThrow('Connection is closed');
  expect(done).toEqual(['note shop in 1', 'relocate']);
  expect(reports).toEqual(['Redis: Connection is closed.']);
});

it('a workspace that has moved is followed, four times at most: the server says so before anything is done', async () => {
  const moved = new StoreUnavailable('Redis: MOVED 1 127.0.0.1:2');
  const { calls, done, reports } = await world([moved]);
  expect(await calls.evaluate('note', 'shop', [])).toEqual(['ok']);
  expect(done).toEqual(['note shop in 1', `follow shop ${moved.message}`, 'detach shop', 'note shop in 1']);
  expect(reports).toEqual([null]);
  const around = await world(Array.from({ length: 9 }, () => moved));
  await expect(around.calls.evaluate('note', 'shop', [])).rejects.toThrow('MOVED');
  expect(around.done.filter((what) => what.startsWith('follow'))).toHaveLength(4);
  expect(around.reports).toEqual([moved.message]);
});

it('a read is of what is there, also while the clock of its server is not believed; of nothing it is `null`', async () => {
  const { calls, done } = await world([['ok', '1'], ['ahead', '2', 'ok', '1'], ['absent']], null);
  const read = () => calls.read('list', 'shop', []);
  expect([await read(), await read(), await read()]).toEqual([['ok', '1'], ['ok', '1'], null]);
  expect(done).toEqual(Array.from({ length: 3 }, () => 'list shop in '));
});

describe('changes that are committed together', () => {
  let folder = '';
  beforeEach(() => {
    folder = journalFolder();
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  /** They go to a primary that answers so, and into a journal that is written when the test says. */
  async function batches(answers: readonly (readonly unknown[] | Error | Promise<Error>)[]) {
    const { calls, topology, time, done: asked } = await world(answers);
    const opened = await openStepJournal(folder);
    const written: ((error: Error | null) => void)[] = [];
    const append = (_step: unknown, done: (error: Error | null) => void): void => void written.push(done);
    const reports: string[] = [];
    const parts = { topology, time, journal: { ...opened, append } };
    const made = new Batches(parts, calls, 64, ({ message }) => void reports.push(message));
    const ended: (Answer | string)[] = [];
    const commit = (parts: Partial<Change> = { puts: [putOf('thing', 'a', 'x')] }): void =>
      made.commit(
        changeOf('shop', 1, parts),
        (answer) => void ended.push(answer),
        (error) => void ended.push(String(error)),
      );
    return { commit, asked, written, reports, ended, close: () => opened.close() };
  }

  it('are answered once the journal has them too, and fail where it cannot be written', async () => {
    const answer = ['ok', '1750000000000', '1', '7', 'd5'];
    const { commit, written, reports, ended, close } = await batches([answer, answer]);
    commit();
    await expect.poll(() => written.length).toBe(1);
    expect(ended).toEqual([]);
    written[0]?.(null);
    expect(ended).toMatchObject([{ kind: 'done', epoch: 1, seq: 5 }]);
    commit();
    await expect.poll(() => written.length).toBe(2);
    written[1]?.(new Error('no space'));
    expect(ended[1]).toContain('the journal beside the gateway cannot be written');
    expect(reports).toEqual(['the journal beside the gateway cannot be written']);
    await close();
  });

  it('that wait behind a call that is not answered are told so with it, and are not sent', async () => {
    let fail = (_error: Error): void => undefined;
    const lost = new Promise<Error>((resolve) => (fail = resolve));
    const { commit, asked, reports, ended, close } = await batches([lost]);
    commit();
    await expect.poll(() => asked.length).toBe(1);
    commit();
    commit();
    fail(new StoreUnavailable('Redis: Command timed out'));
    await expect.poll(() => ended.length).toBe(3);
    expect(new Set(ended)).toEqual(new Set(['StoreUnavailable: Redis: Command timed out']));
    expect([asked, reports]).toEqual([['commit shop in 1', 'relocate'], ['Redis: Command timed out']]);
    await close();
  });

  it('are one call up to 256 K characters of texts; a larger one goes alone', async () => {
    const row = (characters: number) => ({ puts: [putOf('thing', 'a', 'x'.repeat(characters))] });
    const event = (characters: number) => ({ events: [eventOf('x'.repeat(characters))] });
    const moved = (count: number) => ['ok', '1750000000000', '1', '', ...Array.from({ length: count }, () => [''])];
    const { commit, asked, ended, close } = await batches([moved(2), moved(1), moved(1)]);
    for (const parts of [row(128 * 1024), row(128 * 1024), event(600_000), row(2)]) commit(parts);
    await expect.poll(() => ended.length).toBe(4);
    expect(asked).toEqual(Array.from({ length: 3 }, () => 'commit shop in 1'));
    await close();
  });
});
