import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { isJsonObject } from '../../../src/json/value.ts';
import { textOf } from './lenient-server.ts';
import { callOf, type McpWorld, post, resultOf, startMcpWorld } from './world.ts';

/*
 * A thousand calls that are cut off in the middle: by the client, by the server, and by SIGKILL of the gateway. Each is
 * sent again under its key. By what the server ran: nothing twice; and what counts as done, once.
 */

const CLIENT_CUTS = 440;
const SERVER_CUTS = 440;
const KILLED = 120;
/** Calls at once: below what one agent gets of the connections to a server. */
const WIDTH = 40;
/** An answer has to be there so long after the cut is known, and after what an honest call takes on this machine, ms. */
const SOON_MS = 1_000;

let world: McpWorld;
let honestMs = 0;
beforeAll(async () => {
  world = await startMcpWorld();
  const times = await inParallel(WIDTH, async (n) => timed(() => call('echo', `honest-${n}`)));
  honestMs = Math.max(...times.map(({ ms }) => ms));
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

async function timed<T>(work: () => Promise<T>): Promise<{ readonly ms: number; readonly value: T }> {
  const begun = performance.now();
  const value = await work();
  return { ms: performance.now() - begun, value };
}

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

/** Sends the call again until it is over, as a client does. @returns how it ended, and how long the slowest answer took */
async function again(tool: string, intent: string): Promise<{ readonly decision: string; readonly ms: number }> {
  let slowest = 0;
  for (;;) {
    const { ms, value } = await timed(() => call(tool, intent));
    slowest = Math.max(slowest, ms);
    if (value !== 'in_progress') return { decision: value, ms: slowest };
  }
}

/** How often each intent ran. */
function runs(): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { arguments: given } of world.server.ran) {
    const intent = isJsonObject(given) ? textOf(given['intent']) : '';
    counts.set(intent, (counts.get(intent) ?? 0) + 1);
  }
  return counts;
}

function expectSoon(answers: readonly { readonly ms: number }[]): void {
  expect(Math.max(...answers.map(({ ms }) => ms))).toBeLessThan(SOON_MS + honestMs);
}

test(`${CLIENT_CUTS} clients cut: each intent is done once, and its answer is there for who asks again`, async () => {
  const intents = Array.from({ length: CLIENT_CUTS }, (_, n) => `client-${n}`);
  const answers: { readonly decision: string; readonly ms: number }[] = [];
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
  const first = await inBatches(SERVER_CUTS, async (n) => timed(() => call(toolOf(n), `server-${n}`)));
  const second = await inBatches(SERVER_CUTS, async (n) => again(toolOf(n), `server-${n}`));
  expect(new Set([...first.map(({ value }) => value), ...second.map(({ decision }) => decision)])).toEqual(
    new Set(['unknown_effect']),
  );
  expect(runs()).toEqual(new Map(Array.from({ length: SERVER_CUTS }, (_, n) => [`server-${n}`, 1])));
  expectSoon([...first, ...second]);
});

test(`the gateway is killed with ${KILLED} calls under way: none runs twice, and what is said to be done was done`, async () => {
  const intents = Array.from({ length: KILLED }, (_, n) => `killed-${n}`);
  const toolOf = (n: number) => (n < KILLED / 2 ? 'slow' : 'echo');
  const waiting = intents.slice(0, KILLED / 2).map((intent) => cuttable('slow', intent));
  await expect.poll(() => world.server.ran.length, { interval: 5 }).toBe(KILLED / 2);
  // These are anywhere: not admitted, admitted, sent, answered, settled.
  const running = intents.slice(KILLED / 2).map((intent) => cuttable('echo', intent));
  await expect.poll(() => world.server.ran.length, { interval: 1 }).toBeGreaterThan(KILLED / 2);
  world.kill();
  const { ms } = await timed(() => Promise.all([...waiting, ...running].map(({ over }) => over)));
  expectSoon([{ ms }]);
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
