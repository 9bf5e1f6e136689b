import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { isJsonObject, type Json } from '../../../src/json/value.ts';
import { startGivenTime } from './given-time.ts';
import { textOf } from './lenient-server.ts';
import { callOf, type McpWorld, post, resultOf, startMcpWorld } from './world.ts';

/*
 * A thousand calls that are cut off in the middle: by the client, by the server, and by SIGKILL of the gateway. Each is
 * sent again under its key. By what the server ran: nothing twice; and what counts as done, once. And each client has an
 * answer within a second: of the server's breaking off, of the gateway's death, and of asking again.
 */

const CLIENT_CUTS = 440;
const SERVER_CUTS = 440;
const KILLED = 120;
/** Calls at once: below what one agent gets of the connections to a server. */
const WIDTH = 40;
/** An answer has to be there so long after the cut is known, ms: of time that the machine gave. */
const SOON_MS = 1_000;

let world: McpWorld;
/** Goes since the server broke off the call of an intent. */
const sinceCut = new Map<string, () => number>();
beforeAll(async () => {
  world = await startMcpWorld();
  world.server.onCut = (given) => sinceCut.set(intentOf(given), startGivenTime(world.gateway().pid));
  // The first calls of a process are slower, and none of these is cut.
  await inParallel(WIDTH, (n) => call('echo', `honest-${n}`));
});
afterAll(() => world.close());
beforeEach(() => {
  world.server.ran.length = 0;
});

function inParallel<T>(count: number, make: (n: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, n) => make(n)));
}

/** So many calls, some at once. */
async function inBatches<T>(count: number, make: (n: number) => Promise<T>): Promise<T[]> {
  const made: T[] = [];
  for (let from = 0; from < count; from += WIDTH)
    made.push(...(await inParallel(Math.min(WIDTH, count - from), (n) => make(from + n))));
  return made;
}

interface Ended {
  readonly decision: string;
  /** How long the answer took. */
  readonly ms: number;
}

const intentOf = (given: Json): string => (isJsonObject(given) ? textOf(given['intent']) : '');

const messageOf = (tool: string, intent: string) =>
  callOf(tool, { intent }, { _meta: { 'dev.svc-gateway/idempotency-key': intent } });

/** Makes a call under the key of its intent. @returns the decision */
async function call(tool: string, intent: string): Promise<string> {
  return textOf(resultOf(await post(world, messageOf(tool, intent))).decision['decision']);
}

/** Begins a call, and breaks it off when told. */
function cuttable(tool: string, intent: string): { readonly over: Promise<void>; cut(): void } {
  const gone = new AbortController();
  const over = fetch(world.door(), {
    method: 'POST',
    headers: { 'x-api-key': world.keys.bot, 'content-type': 'application/json' },
    body: JSON.stringify(messageOf(tool, intent)),
    signal: gone.signal,
  })
    .then((response) => response.text())
    .then(
      () => undefined,
      () => undefined,
    );
  return { over, cut: () => gone.abort() };
}

/** Makes a call that the server breaks off. The time is that from when it did so. */
async function cutByServer(tool: string, intent: string): Promise<Ended> {
  const decision = await call(tool, intent);
  return { decision, ms: sinceCut.get(intent)?.() ?? Number.POSITIVE_INFINITY };
}

/** Sends the call again until it is over, as a client does. The time is that of all of this. */
async function again(tool: string, intent: string): Promise<Ended> {
  const time = startGivenTime(world.gateway().pid);
  for (;;) {
    const decision = await call(tool, intent);
    if (decision !== 'in_progress') return { decision, ms: time() };
  }
}

/** How often each intent ran. */
function runs(): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { arguments: given } of world.server.ran) {
    const intent = intentOf(given);
    counts.set(intent, (counts.get(intent) ?? 0) + 1);
  }
  return counts;
}

function expectSoon(answers: readonly Pick<Ended, 'ms'>[]): void {
  expect(Math.max(...answers.map(({ ms }) => ms))).toBeLessThan(SOON_MS);
}

test(`${CLIENT_CUTS} clients cut: each intent is done once, and its answer is there for who asks again`, async () => {
  const intents = Array.from({ length: CLIENT_CUTS }, (_, n) => `client-${n}`);
  const answers: Ended[] = [];
  for (let from = 0; from < intents.length; from += WIDTH) {
    const batch = intents.slice(from, from + WIDTH);
    // Every other batch is cut while the server is at it, the others anywhere on their way there.
    const isWaitedFor = (from / WIDTH) % 2 === 0;
    const tool = isWaitedFor ? 'slow' : 'echo';
    const before = world.server.ran.length;
    const calls = batch.map((intent) => cuttable(tool, intent));
    if (isWaitedFor) await expect.poll(() => world.server.ran.length, { interval: 5 }).toBe(before + batch.length);
    else for (let turn = 0; turn < from / WIDTH; turn += 1) await new Promise(setImmediate);
    for (const { cut } of calls) cut();
    await Promise.all(calls.map(({ over }) => over));
    world.server.release();
    answers.push(...(await Promise.all(batch.map((intent) => again(tool, intent)))));
  }
  expect(answers.filter(({ decision }) => !['committed', 'duplicate_blocked'].includes(decision))).toEqual([]);
  expect(runs()).toEqual(new Map(intents.map((intent) => [intent, 1])));
  expectSoon(answers);
});

test(`${SERVER_CUTS} servers cut: the answer is that nobody knows, at once, and nothing runs again`, async () => {
  const tools = ['drop', 'cut'] as const;
  const toolOf = (n: number) => tools[n % 2] ?? 'drop';
  const first = await inBatches(SERVER_CUTS, (n) => cutByServer(toolOf(n), `server-${n}`));
  const second = await inBatches(SERVER_CUTS, (n) => again(toolOf(n), `server-${n}`));
  const answers = [...first, ...second];
  expect(new Set(answers.map(({ decision }) => decision))).toEqual(new Set(['unknown_effect']));
  expect(runs()).toEqual(new Map(Array.from({ length: SERVER_CUTS }, (_, n) => [`server-${n}`, 1])));
  expectSoon(answers);
});

test(`the gateway is killed with ${KILLED} calls under way: none runs twice, and what is said to be done was done`, async () => {
  const intents = Array.from({ length: KILLED }, (_, n) => `killed-${n}`);
  const toolOf = (n: number) => (n < KILLED / 2 ? 'slow' : 'echo');
  const waiting = intents.slice(0, KILLED / 2).map((intent) => cuttable('slow', intent));
  await expect.poll(() => world.server.ran.length, { interval: 5 }).toBe(KILLED / 2);
  // These are anywhere: not admitted, admitted, sent, answered, settled.
  const running = intents.slice(KILLED / 2).map((intent) => cuttable('echo', intent));
  await expect.poll(() => world.server.ran.length, { interval: 1 }).toBeGreaterThan(KILLED / 2);
  const time = startGivenTime(world.gateway().pid);
  world.kill();
  await Promise.all([...waiting, ...running].map(({ over }) => over));
  expectSoon([{ ms: time() }]);
  world.server.release();
  await world.restart();
  const answers = await inBatches(KILLED, async (n) => again(toolOf(n), intents[n] ?? ''));
  const ran = runs();
  for (const [n, { decision }] of answers.entries()) {
    const times = ran.get(intents[n] ?? '') ?? 0;
    if (toolOf(n) === 'slow') expect([decision, times]).toEqual(['unknown_effect', 1]);
    else if (decision === 'unknown_effect') expect(times).toBeLessThanOrEqual(1);
    else expect([['committed', 'duplicate_blocked'].includes(decision), times], decision).toEqual([true, 1]);
  }
  expectSoon(answers);
});
