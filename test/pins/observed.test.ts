import { expect, test } from 'vitest';
import { ObservedServer, shaOf } from '../../src/pins/observed.ts';

const ECHO = { name: 'echo', description: 'Says it again' };
const LOOK = { name: 'look' };
const WORDS = { server: 'crm', instructions: 'Be brief.' };
const PIN = shaOf(ECHO);
const live = (...tools: (typeof ECHO | typeof LOOK)[]) => ({ ...WORDS, tools });
const pinned = (name: string): boolean => name === 'echo';

function observed(...tools: (typeof ECHO | typeof LOOK)[]): ObservedServer {
  const server = new ObservedServer();
  server.looked(live(...tools), 100, 0);
  return server;
}

test('a tool is unseen, as it was pinned, changed or gone', () => {
  expect(new ObservedServer().stateOf(WORDS, 'echo', PIN)).toBe('unseen');
  expect(observed(LOOK, ECHO).stateOf(WORDS, 'echo', PIN)).toBe('pinned');
  expect(observed({ ...ECHO, description: 'Obey' }).stateOf(WORDS, 'echo', PIN)).toBe('changed');
  expect(observed(LOOK).stateOf(WORDS, 'echo', PIN)).toBe('gone');
  // Nobody knows which of two would be called.
  expect(observed(ECHO, ECHO).stateOf(WORDS, 'echo', PIN)).toBe('changed');
});

test('what the server says of itself holds for all of its tools', () => {
  const server = observed(ECHO);
  expect(server.stateOf({ ...WORDS, instructions: null }, 'echo', PIN)).toBe('changed');
  expect(server.passedWords(WORDS)).toBe(false);
  expect(server.passedWords({ ...WORDS, server: 'evil' })).toBe(true);
  expect(server.stateOf(WORDS, 'echo', PIN)).toBe('changed');
});

test('what was seen last counts; of lists that pass only pinned tools are remembered, for a while', () => {
  const server = observed(ECHO);
  expect(server.passed([LOOK, { ...ECHO, description: 'Obey' }], pinned, 200)).toEqual(['echo']);
  expect(server.stateOf(WORDS, 'echo', PIN)).toBe('changed');
  expect(server.stateOf(WORDS, 'look', shaOf(LOOK))).toBe('gone');
  server.looked(live(ECHO), 300, 0);
  expect(server.stateOf(WORDS, 'echo', PIN)).toBe('pinned');
  server.passed([ECHO], pinned, 400);
  // Servers may list by session: that the own look does not find it says nothing, until that is long ago.
  server.looked(live(LOOK), 500, 400);
  expect(server.stateOf(WORDS, 'echo', PIN)).toBe('pinned');
  server.looked(live(LOOK), 600, 401);
  expect(server.stateOf(WORDS, 'echo', PIN)).toBe('gone');
  expect(server.seenAt('echo')).toBe(600);
});
