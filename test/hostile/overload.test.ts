import { type ChildProcess, spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startWorld, type World, worldFiles } from '../system/world.ts';

const CALLS = 2_000;
/** What the upstream takes at once, and how long it takes for each: few of the calls, in the time that each may wait. */
const CONNECTIONS = 16;
const LATENCY_MS = 500;
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

const call = (index: number) => ({
  tool: 'notes.add',
  params: { text: `${index}` },
  idempotency_key: `many-${index}`,
});
const keyOf = (index: number): string => (index % 2 === 0 ? world.keys.bot : world.keys.otherBot);

async function run(index: number): Promise<{ readonly kind: Kind; readonly seen: string }> {
  try {
    const answer = await fetch(`${world.gateway.url}/v1/workspaces/demo/effects`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': keyOf(index) },
      body: JSON.stringify(call(index)),
    });
    const text = await answer.text();
    const retryAfter = answer.headers.get('retry-after');
    const seen = `${answer.status}, Retry-After ${retryAfter}: ${text}`;
    return { kind: kindOf(answer.status, /^\d+$/.test(retryAfter ?? ''), text), seen };
  } catch (error) {
    return { kind: 'cut', seen: String(error) };
  }
}

function kindOf(status: number, hasRetryAfter: boolean, text: string): Kind {
  if (status === 200) return 'committed';
  // 408: on a slow machine the caller, or the gateway, took too long to write or read the request.
  if ([408, 429, 503].includes(status) && hasRetryAfter) return 'told';
  return status === 502 && text.includes('"not_dispatched"') ? 'not_dispatched' : 'other';
}

it('2,000 calls at once on a machine with no time to spare: admitted is what can be sent, the rest is told so before', async () => {
  await world.upstream.mode({ latency_ms: LATENCY_MS });
  startBusy();
  const ends = await Promise.all(Array.from({ length: CALLS }, (_, index) => run(index)));
  expect(busy.filter(({ exitCode, signalCode }) => exitCode !== null || signalCode !== null)).toEqual([]);
  stopBusy();
  await world.upstream.mode({ latency_ms: 0 });

  const of = (kind: Kind): readonly number[] => [...ends.keys()].filter((index) => ends[index]?.kind === kind);
  const [committed, told, notDispatched, cut] = [of('committed'), of('told'), of('not_dispatched'), of('cut')];
  expect(of('other').map((index) => ends[index]?.seen)).toEqual([]);
  expect(committed.length).toBeGreaterThanOrEqual(CONNECTIONS);
  // A machine that stands still costs those that hold a place just then. Admitted without places, it is nearly all.
  expect(notDispatched.length).toBeLessThanOrEqual(CALLS / 20);
  // Who came too late to be heard is told so, and only one that writes after that may miss it.
  expect(cut.length).toBeLessThanOrEqual(CALLS / 4);
  expect(told.length).toBeGreaterThan(ASKED_AGAIN);
  // What was answered is what happened, and nothing else reached the upstream.
  expect(await world.upstream.counts()).toEqual({ requests: committed.length, effects: committed.length });
  // Those that were told so left nothing behind; those that nothing was sent of may be sent again.
  for (const index of [...notDispatched, ...told.slice(0, ASKED_AGAIN), ...cut.slice(0, ASKED_AGAIN)]) {
    const again = await world.run(call(index), keyOf(index));
    const attempt = ends[index]?.kind === 'not_dispatched' ? 2 : 1;
    expect([again.body.decision, again.body.attempt], JSON.stringify(again.body)).toEqual(['committed', attempt]);
  }
});
