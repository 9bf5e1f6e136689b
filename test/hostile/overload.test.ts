import { type ChildProcess, spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startWorld, type World, worldFiles } from '../system/world.ts';

const CALLS = 2_000;
/** What the upstream takes at once, and how long it takes for each: few of the calls, in the time that each may wait. */
const CONNECTIONS = 16;
const LATENCY_MS = 500;
/** Of 16 places one agent gets 12, a second one 3 of the rest: the last is for who has none (see `createPlaces`). */
const PLACES_OF_TWO = 15;
/** How many of those that were told are asked again one by one. */
const ASKED_AGAIN = 20;

let world: World;
/** Processes that want every processor for themselves. */
const busy: ChildProcess[] = [];
beforeAll(async () => {
  world = await startWorld({
    files: (url) => {
      const { config, policies } = worldFiles(url);
      return { config: config.replace('timeout: 10s }', `timeout: 10s, connections: ${CONNECTIONS} }`), policies };
    },
  });
});
afterAll(async () => {
  stopBusy();
  await world.close();
});

function startBusy(): void {
  for (let count = 0; count < availableParallelism(); count += 1)
    busy.push(spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }));
}

function stopBusy(): void {
  for (const child of busy.splice(0)) child.kill('SIGKILL');
}

/** `told`: come again, nothing was done. `cut`: the connection ended without an answer. */
type Kind = 'committed' | 'told' | 'not_dispatched' | 'cut' | 'other';

interface End {
  readonly kind: Kind;
  /** Since the calls began, ms. */
  readonly at: number;
  readonly seen: string;
}

/** What is said of the action, where nothing was done with this request. */
const MAY_HAVE_RUN = /An earlier request for the same action may have run\.".*"did_it_happen":"maybe"/;

const call = (index: number) => ({
  tool: 'notes.add',
  params: { text: `${index}` },
  idempotency_key: `many-${index}`,
});
const keyOf = (index: number): string => (index % 2 === 0 ? world.keys.bot : world.keys.otherBot);

/** Sends all calls at once, from a process of its own. */
async function sendAll(): Promise<readonly End[]> {
  const script = fileURLToPath(new URL('many-at-once.mjs', import.meta.url));
  const keys = [keyOf(0), keyOf(1)];
  const child = spawn(process.execPath, [script, world.gateway.url, String(CALLS), ...keys], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ends: End[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    const [index, at, status, retryAfter, text] = JSON.parse(line);
    const kind = kindOf(status, /^\d+$/.test(retryAfter ?? ''), text);
    ends[index] = { kind, at, seen: `${status}, Retry-After ${retryAfter}: ${text}` };
  }
  return ends;
}

function kindOf(status: number, hasRetryAfter: boolean, text: string): Kind {
  if (status === 0) return 'cut';
  if (status === 200) return 'committed';
  // Not 408: the callers were in time.
  if ([429, 503].includes(status) && hasRetryAfter) return 'told';
  return status === 502 && text.includes('"not_dispatched"') ? 'not_dispatched' : 'other';
}

it('2,000 calls at once on a machine with no time to spare: admitted is what can be sent, the rest is told so before', async () => {
  await world.upstream.mode({ latency_ms: LATENCY_MS });
  startBusy();
  const ends = await sendAll();
  expect(ends).toHaveLength(CALLS);
  expect(busy.filter(({ exitCode, signalCode }) => exitCode !== null || signalCode !== null)).toEqual([]);
  stopBusy();
  await world.upstream.mode({ latency_ms: 0 });

  const of = (kind: Kind): readonly number[] => [...ends.keys()].filter((index) => ends[index]?.kind === kind);
  const [committed, told, notDispatched, cut] = [of('committed'), of('told'), of('not_dispatched'), of('cut')];
  expect(of('other').map((index) => ends[index]?.seen)).toEqual([]);
  // Who was let in is carried through, however little of a processor there is.
  expect(committed.length).toBeGreaterThanOrEqual(PLACES_OF_TWO);
  // A machine that stands still costs those that hold a place just then. Admitted without places, it is nearly all.
  expect(notDispatched.length).toBeLessThanOrEqual(CONNECTIONS);
  // Who came too late to be heard is told so, and only one that writes after that may miss it.
  expect(cut.length).toBeLessThanOrEqual(CALLS / 4);
  expect(told.length).toBeGreaterThan(ASKED_AGAIN);
  // Nothing was done with these requests; whether the action happened, an earlier one may know.
  expect(told.map((index) => ends[index]?.seen).filter((seen) => !MAY_HAVE_RUN.test(seen ?? ''))).toEqual([]);
  // What is too much is refused as it arrives, and is not in the way of what was accepted. How much has arrived by the
  // last of these answers depends on the time that the sender is given, so it is not half of all.
  const last = Math.max(...committed.map((index) => ends[index]?.at ?? 0));
  expect(told.filter((index) => (ends[index]?.at ?? last) < last).length).toBeGreaterThan(CALLS / 4);
  // What was answered is what happened, and nothing else reached the upstream.
  expect(await world.upstream.counts()).toEqual({ requests: committed.length, effects: committed.length });
  // Those that were told so left nothing behind; those that nothing was sent of may be sent again.
  for (const index of [...notDispatched, ...told.slice(0, ASKED_AGAIN), ...cut.slice(0, ASKED_AGAIN)]) {
    const again = await world.run(call(index), keyOf(index));
    const attempt = ends[index]?.kind === 'not_dispatched' ? 2 : 1;
    expect([again.body.decision, again.body.attempt], JSON.stringify(again.body)).toEqual(['committed', attempt]);
  }
});
