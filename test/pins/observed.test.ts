import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { canonicalJson } from '../../src/json/text.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { MAX_TOOL, toolDigest } from '../../src/pins/digest.ts';
import { readTools, ObservedServer, shaOf } from '../../src/pins/observed.ts';

const ECHO = { name: 'echo', description: 'Says it again' };
const LOOK = { name: 'look' };
const WORDS = { server: 'crm', instructions: 'Be brief.' };
const PIN = shaOf(ECHO);
const live = (...tools: (typeof ECHO | typeof LOOK)[]) => ({ ...WORDS, tools });
const pinned = (name: string): boolean => name === 'echo';

function observed(...tools: (typeof ECHO | typeof LOOK)[]): ObservedServer {
  const server = new ObservedServer();
  server.listed(live(...tools), 100, 0);
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
  server.listed(live(ECHO), 300, 0);
  expect(server.stateOf(WORDS, 'echo', PIN)).toBe('pinned');
  server.passed([ECHO], pinned, 400);
  expect([server.seenAt('echo'), server.seenAt('look')]).toEqual([400, 300]);
  // Servers may list by session: that the own look does not find it says nothing, until that is long ago.
  server.listed(live(LOOK), 500, 400);
  expect(server.stateOf(WORDS, 'echo', PIN)).toBe('pinned');
  server.listed(live(LOOK), 600, 401);
  expect(server.stateOf(WORDS, 'echo', PIN)).toBe('gone');
  expect(server.seenAt('echo')).toBe(600);
});

test('each member of a tool counts, however deep it is, and their order does not', () => {
  const tool = {
    name: 'echo',
    title: 'Echo',
    description: 'Says it again',
    inputSchema: { type: 'object', properties: { n: { enum: [1, 2, { deep: null }] } } },
    outputSchema: { type: 'object' },
    annotations: { readOnlyHint: true },
    icons: [{ src: 'https://crm.example/i.svg' }],
    _meta: { 'crm.example/x': 1 },
    'x-own': '',
  };
  const pin = createHash('sha256').update(canonicalJson(tool)).digest('hex');
  const stateOf = (listed: JsonObject): string => {
    const server = new ObservedServer();
    server.listed({ ...WORDS, tools: [listed] }, 100, 0);
    return server.stateOf(WORDS, 'echo', pin);
  };
  expect(stateOf(Object.fromEntries(Object.entries(tool).toReversed()))).toBe('pinned');
  for (const [name, value] of Object.entries(tool)) {
    if (name === 'name') continue;
    const { [name]: _left, ...others } = { ...tool } as JsonObject;
    expect(stateOf(others), name).toBe('changed');
    expect(stateOf({ ...tool, [name]: [value] }), name).toBe('changed');
  }
  const deep = { type: 'object', properties: { n: { enum: [1, 2, { deep: 0 }] } } };
  expect(stateOf({ ...tool, inputSchema: deep })).toBe('changed');
});

test('a tool that is too long for a pin is changed, whatever it says', async () => {
  const long = { ...ECHO, description: 'x'.repeat(MAX_TOOL) };
  expect(await readTools([long, LOOK], pinned)).toEqual([long]);
  const server = new ObservedServer();
  server.listed({ ...WORDS, tools: [long] }, 100, 0);
  expect(server.stateOf(WORDS, 'echo', shaOf(long))).toBe('changed');
  expect(toolDigest(long)).toEqual({ ok: false, why: `it is longer than ${MAX_TOOL} characters` });
});
