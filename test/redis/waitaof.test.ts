import { expect, it } from 'vitest';
import { Barrier, waitaofFault } from '../../src/stores/redis/durability.ts';
import { metaKey } from '../../src/stores/redis/names.ts';

it.each([
  ['redis_version:7.0.15', 'no WAITAOF'],
  ['redis_version:7.2.0', null],
  ['redis_version:7.2.6', null],
  ['redis_version:7.4.0', 'not on the disk'],
  ['redis_version:7.4.2', 'not on the disk'],
  ['redis_version:7.4.3', null],
  ['redis_version:8.0.0', null],
  ['redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.5', null],
  ['redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1', 'not on the disk'],
])('what %s says of WAITAOF is relied on only where it is true', (lines, fault) => {
  const info = `# Server\r\n${lines}\r\n# Clients\r\n`;
  if (fault === null) expect(waitaofFault(info)).toBeNull();
  else expect(waitaofFault(info)).toContain(fault);
});

type Command = readonly unknown[];

/** A barrier before a server that answers so. @param heard told of each pipeline, and of each command alone */
function barrierBefore(
  { mark, waitaof }: { readonly mark: string; readonly waitaof: unknown },
  heard: (commands: readonly Command[]) => void = () => undefined,
): Barrier {
  const connection = {
    ready: async () => {},
    async pipeline(commands: readonly Command[]) {
      heard(commands);
      return commands.map(() => [mark]);
    },
    async command(...command: Command) {
      heard([command]);
      return command[0] === 'WAITAOF' ? waitaof : null;
    },
    reset: () => {},
  };
  return new Barrier(
    connection,
    () => 'waitaof',
    'gw-1',
    () => '',
  );
}

/** What one says that has synced all. */
const SYNCED = { mark: 'ok', waitaof: [1, 0] };

it.each([
  { of: 'a synced file', mark: 'ok', waitaof: [1, 0], error: null, stays: false },
  { of: 'a file that was not synced in time', mark: 'ok', waitaof: [0, 0], error: 'was not synced', stays: true },
  { of: 'another form', mark: 'ok', waitaof: 1, error: 'was not synced', stays: true },
  // Steps find out by themselves where they are now: what comes next is not refused.
  { of: 'another primary', mark: 'new_history', waitaof: [1, 0], error: 'primary has changed', stays: false },
])('what an answer of $of says of a step: $error', async ({ mark, waitaof, error, stays }) => {
  const barrier = barrierBefore({ mark, waitaof });
  const waiting = barrier.wait('w', '1');
  if (error === null) await waiting;
  else await expect(waiting).rejects.toThrow(error);
  expect(barrier.fault() !== null).toBe(stays);
  barrier.close();
});

it('a sync has less time than a second: with `appendfsync everysec` most calls would wait for the next one', async () => {
  const asked: Command[] = [];
  const barrier = barrierBefore(SYNCED, (commands) => void asked.push(...commands));
  await barrier.wait('a', '1');
  const syncs = asked.filter(([name]) => name === 'WAITAOF');
  expect(syncs).toEqual([['WAITAOF', 1, 0, expect.any(Number)]]);
  expect(Number(syncs[0]?.[3])).toBeLessThan(1_000);
  barrier.close();
});

it('a round marks each workspace whose steps it stands for, once', async () => {
  const rounds: (readonly unknown[])[] = [];
  const barrier = barrierBefore(SYNCED, (commands) => {
    if (commands[0]?.[0] === 'EVALSHA') rounds.push(commands.map(([, , , key]) => key));
  });
  // What arrives while the first round runs shares the next one.
  await Promise.all(['a', 'b', 'c', 'b'].map((workspace) => barrier.wait(workspace, '1')));
  expect(rounds).toEqual([[metaKey('a')], [metaKey('b'), metaKey('c')]]);
  barrier.close();
});
