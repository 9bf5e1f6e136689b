import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { Barrier } from '../../src/stores/redis/durability.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

type Command = readonly unknown[];

/** A primary with replicas, and the barrier before it. The test says what it answers. */
function world() {
  const server = {
    history: 'a1',
    replicas: ['online'],
    /** What `CLUSTER NODES` says; `null`: it is no node of a cluster. */
    nodes: null as string | null,
    mark: 'ok',
    confirmed: 9,
    /** What the next pipeline fails with. */
    fault: null as Error | null,
    /** What the next command alone fails with. */
    lost: null as Error | null,
  };
  const counts: unknown[] = [];
  const asked: unknown[] = [];
  let resets = 0;
  const connection = {
    ready: async () => {},
    async pipeline(commands: readonly Command[]) {
      const { fault } = server;
      server.fault = null;
      if (fault !== null) throw fault;
      counts.push(commands.at(-1)?.[1]);
      return commands.map(([name]) => (name === 'WAIT' ? server.confirmed : [server.mark]));
    },
    async command(...command: Command) {
      asked.push(command[0]);
      const { lost } = server;
      server.lost = null;
      if (lost !== null) throw lost;
      if (command[0] === 'CLUSTER' && server.nodes !== null) return server.nodes;
      if (command[0] !== 'INFO') return '1';
      const lines = server.replicas.map((state, n) => `slave${n}:ip=127.0.0.1,port=1,state=${state},offset=1,lag=0`);
      const enabled = `cluster_enabled:${server.nodes === null ? 0 : 1}`;
      return ['role:master', ...lines, `master_replid:${server.history}`, enabled].join('\r\n');
    },
    reset: () => void (resets += 1),
  };
  const barrier = new Barrier(
    connection,
    () => 'wait',
    'gw-1',
    () => '',
  );
  return { server, barrier, counts, asked, resets: () => resets };
}

it('each replica that was in sync under this history has to confirm; what is in its first sync does not count', async () => {
  const { server, barrier, counts, asked } = world();
  server.replicas = ['online', 'online', 'wait_bgsave', 'send_bulk'];
  await barrier.wait('w', '1');
  server.replicas = ['online'];
  // They are counted once in a second.
  await barrier.wait('w', '1');
  vi.advanceTimersByTime(1_000);
  await barrier.wait('w', '1');
  expect([counts, asked]).toEqual([
    [2, 2, 2],
    ['INFO', 'INFO'],
  ]);
  // After a fail-over nobody knows of the others.
  server.history = 'b2';
  vi.advanceTimersByTime(1_000);
  await barrier.wait('w', '1');
  // Without any, writes wait for the first.
  server.replicas = [];
  server.history = 'c3';
  vi.advanceTimersByTime(1_000);
  await barrier.wait('w', '1');
  expect(counts.slice(3)).toEqual([1, 1]);
  barrier.close();
});

it('of a cluster, one that has gone to another primary has to confirm no more; one that has failed has to', async () => {
  const { server, barrier, counts } = world();
  server.nodes = '';
  server.replicas = ['online', 'online', 'online'];
  await barrier.wait('w', '1');
  const rest = '0 1700000000000 1 connected';
  server.nodes = [
    `aa 127.0.0.1:1@2 myself,master - ${rest} 0-5460`,
    `bb 127.0.0.1:2@3 slave,fail aa ${rest}`,
    `cc 127.0.0.1:3@4 slave aa ${rest}`,
    `dd 127.0.0.1:4@5 slave ee ${rest}`,
    `ee 127.0.0.1:5@6 master - ${rest} 5461-16383`,
    '',
  ].join('\n');
  server.replicas = ['online'];
  vi.advanceTimersByTime(1_000);
  await barrier.wait('w', '1');
  // Where the server does not say it, all count.
  server.nodes = '';
  vi.advanceTimersByTime(1_000);
  await barrier.wait('w', '1');
  expect(counts).toEqual([3, 2, 2]);
  barrier.close();
});

it('where too few have confirmed the step is not, and they are counted anew at once', async () => {
  const { server, barrier, asked } = world();
  server.replicas = ['online', 'online'];
  server.confirmed = 1;
  await expect(barrier.wait('w', '1')).rejects.toThrow('1 of 2 replicas confirmed in 900 ms');
  expect(barrier.fault()).toBeInstanceOf(StoreUnavailable);
  server.confirmed = 2;
  await barrier.wait('w', '1');
  expect([asked, barrier.fault()]).toEqual([['INFO', 'INFO'], null]);
  barrier.close();
});

it.each([
  ['new_history', 1],
  ['replica', 1],
  ['absent', 1],
  ['late', 0],
  ['new_epoch', 0],
  ['waiting', 0],
  ['unregistered', 0],
])('a mark that is answered with %s confirms nothing; %i connections are left for that', async (mark, left) => {
  const { server, barrier, resets } = world();
  server.mark = mark;
  await expect(barrier.wait('w', '1')).rejects.toThrow('the primary has changed');
  expect(resets()).toBe(left);
  barrier.close();
});

it('without a call it is tried again, until something is confirmed or it is closed', async () => {
  const { server, barrier, counts } = world();
  server.confirmed = 0;
  await expect(barrier.wait('w', '1')).rejects.toThrow('0 of 1');
  await vi.advanceTimersByTimeAsync(99);
  expect(counts).toHaveLength(1);
  // Also where the server cannot even be asked for the epoch.
  server.lost = new StoreUnavailable('Redis: gone');
  await vi.advanceTimersByTimeAsync(1);
  await vi.advanceTimersByTimeAsync(100);
  expect(counts).toHaveLength(2);
  server.confirmed = 1;
  await vi.advanceTimersByTimeAsync(100);
  expect([counts.length, barrier.fault()]).toEqual([3, null]);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(counts).toHaveLength(3);
  server.confirmed = 0;
  await expect(barrier.wait('w', '1')).rejects.toThrow('0 of 1');
  barrier.close();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(counts).toHaveLength(4);
  // Who comes later learns it, and nothing is tried after that.
  const { server: other, barrier: closed, counts: tried } = world();
  closed.close();
  other.confirmed = 0;
  await expect(closed.wait('w', '1')).rejects.toThrow('0 of 1');
  await vi.advanceTimersByTimeAsync(1_000);
  expect(tried).toHaveLength(1);
});

it('a server that has lost the script of the mark gets it again, and the round goes on; other errors are told', async () => {
  const { server, barrier, counts, asked } = world();
  server.fault = new StoreUnavailable('Redis: NOSCRIPT No matching script.');
  await barrier.wait('w', '1');
  expect([asked, counts]).toEqual([['INFO', 'SCRIPT'], [1]]);
  server.fault = new StoreUnavailable('Redis: OOM');
  await expect(barrier.wait('w', '1')).rejects.toThrow('OOM');
  barrier.close();
});
