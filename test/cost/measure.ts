import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { count, load, requestOf } from '../../bench/load.ts';
import type { Answers, CostWorld, Door, Write } from './world.ts';

/** By as many callers as the gateway is measured with: what is alive at once is what the collector copies. */
const CALLERS = 64;
const EXPECTED = [200, 201];
/** A gateway that gets no time of the processor answers so; neither says anything of what a write costs. */
const OVERLOADED = [502, 503];
const WARM_UP = 2_000;
const HEAP_CALLS = 2_000;
/** How long what is allocated by the clock is measured: on a slow machine more of it falls on a write. */
const RESTING_MS = 1_000;
const HEAP_TRIES = 20;
const OVERLOADED_MS = 1_000;
/** Each counted alone, and the cheapest one counts: a timer may fall on some of them. Intervals wait meanwhile. */
const CALLS = 30;
/** After the answer, for what is done when it has gone. */
const SETTLING_MS = 10;

const COUNTED = ['promises', 'jsonTexts', 'hashes', 'ciphers', 'signatures', 'randoms', 'messages'] as const;

/** A function of ours: file, line, name, calls. */
type Called = readonly [file: string, line: number, name: string, calls: number];

interface Calls {
  readonly own: readonly Called[];
  /** Calls of functions of Node and of packages. */
  readonly outside: number;
}

interface Heap {
  readonly allocated: number;
  readonly moved: number;
}

type Counts = Readonly<Partial<Record<(typeof COUNTED)[number], number>>> & {
  /** Where promises were made, with how many. */
  readonly places?: readonly (readonly [place: string, promises: number])[];
};

/** What one write costs, by name: on the gateway's main thread, and on its other threads together. */
export interface Costs {
  readonly main: Readonly<Record<string, number>>;
  readonly threads: Readonly<Record<string, number>>;
}

/** What one write costs at a door of a gateway. What else happens meanwhile only adds: the least of several is nearest. */
export async function costsOf(world: CostWorld, door: Door): Promise<Costs> {
  await warmUp(world, door);
  const heap = await heapOf(world, door);
  const counts = await countsOf(world, door);
  const calls = await callsTo(world, door);
  return {
    main: { ...sizeOf(calls.map(ofMain)), ...counts.main, ...heap.main },
    threads: { ...sizeOf(calls.map(ofThreads)), ...counts.threads, ...heap.threads },
  };
}

/** Of each count the lesser. */
export function lesser(one: Costs, other: Costs): Costs {
  const of = (where: keyof Costs): Readonly<Record<string, number>> =>
    Object.fromEntries(
      Object.entries(one[where]).map(([name, cost]) => [name, Math.min(cost, other[where][name] ?? cost)]),
    );
  return { main: of('main'), threads: of('threads') };
}

/** The functions that a write calls, and the places where it makes promises, for a person. */
export async function listingOf(world: CostWorld, door: Door): Promise<string> {
  await warmUp(world, door);
  const rounds = await eachAlone<Counts>(world, door, 'start places', 'take counts');
  const places = new Set(rounds.flatMap(({ main: { places: made = [] } }) => made.map(([place]) => place)));
  const promises = [...places]
    .map((place) => [place, least(rounds.map((round) => new Map(round.main.places).get(place) ?? 0))] as const)
    .filter(([, made]) => made > 0)
    .sort(([, one], [, other]) => other - one)
    .map(([place, made]) => `${String(made).padStart(6)}  ${place}`);
  const calls = await callsTo(world, door);
  const outside = least(calls.map(({ main }) => main.outside));
  return [
    `# main thread: own functions, calls a write (and ${outside} of packages and Node)`,
    ...linesOf(cheapest(calls.map(ofMain))),
    '# other threads',
    ...linesOf(cheapest(calls.map(ofThreads))),
    '# promises by the first place of ours on the stack',
    ...promises,
  ].join('\n');
}

function linesOf(called: readonly Called[]): readonly string[] {
  const files = new Map<string, Called[]>();
  for (const one of called) files.set(one[0], [...(files.get(one[0]) ?? []), one]);
  return [...files]
    .map(([file, functions]) => ({ file, functions, calls: callsOf(functions) }))
    .sort((one, other) => other.calls - one.calls)
    .flatMap(({ file, functions, calls }) => [
      `${String(calls).padStart(6)}  ${file}`,
      ...functions
        .toSorted((one, other) => other[3] - one[3])
        .map(
          ([, line, name, each]) =>
            `        ${String(each).padStart(6)}  ${name === '' ? '(anonymous)' : name}:${line}`,
        ),
    ]);
}

/** @returns whether all were done; on a busy machine some may not be */
async function writeMany(world: CostWorld, door: Door, calls: number, connections = CALLERS): Promise<boolean> {
  const next = count(calls, () => {
    const { path, headers, body } = world.next(door);
    return requestOf('POST', path, headers, body);
  });
  try {
    await load({ url: world.url, connections, next, expected: EXPECTED });
    return true;
  } catch (error) {
    if (!(error instanceof Error) || !OVERLOADED.some((status) => error.message.includes(`HTTP/1.1 ${status} `)))
      throw error;
    await sleep(OVERLOADED_MS);
    return false;
  }
}

/** So that its code is compiled. A few callers at first, as code that is not takes long. */
async function warmUp(world: CostWorld, door: Door): Promise<void> {
  for (let part = 0; part < 10; part += 1)
    await writeMany(world, door, WARM_UP / 10, Math.min(8 * (part + 1), CALLERS));
}

/** Writes on one connection, and what was taken after each of them; the first ones make the connection. */
async function eachAlone<T>(world: CostWorld, door: Door, begin: string, take: string): Promise<readonly Answers<T>[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const taken: Answers<T>[] = [];
  try {
    for (let call = 0; call < CALLS; call += 1) {
      await world.ask(begin);
      const isDone = await writeOn(agent, world.url, world.next(door));
      await sleep(SETTLING_MS);
      const after = await world.ask<T>(take);
      if (isDone) taken.push(after);
    }
  } finally {
    agent.destroy();
  }
  return taken.slice(CALLS / 10);
}

async function writeOn(agent: Agent, url: string, { path, headers, body }: Write): Promise<boolean> {
  const length = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  const sent = request(new URL(path, url), { method: 'POST', agent, headers: { ...headers, ...length } });
  sent.end(body);
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  answer.resume();
  await once(answer, 'end');
  const { statusCode = 0 } = answer;
  if (EXPECTED.includes(statusCode)) return true;
  if (!OVERLOADED.includes(statusCode)) throw new Error(`answered with ${statusCode}`);
  await sleep(OVERLOADED_MS);
  return false;
}

async function heapOf(world: CostWorld, door: Door): Promise<Costs> {
  for (let tries = 0; tries < HEAP_TRIES; tries += 1) {
    await world.ask('start heap');
    const began = performance.now();
    const isDone = await writeMany(world, door, HEAP_CALLS);
    const lasted = performance.now() - began;
    const { main, others } = await world.ask<Heap>('take heap');
    if (!isDone) continue;
    // What the writes left to be done later is theirs, and no part of the rest.
    await sleep(RESTING_MS);
    await world.ask('start heap');
    await sleep(RESTING_MS);
    const atRest = await world.ask<Heap>('take heap');
    const allocatedBy = (all: readonly Heap[]): number => sum(all, ({ allocated }) => allocated);
    const aCall = (bytes: number, byTheClock: number): number =>
      Math.round((bytes - byTheClock * (lasted / RESTING_MS)) / HEAP_CALLS);
    return {
      main: { allocatedBytes: aCall(main.allocated, atRest.main.allocated), movedBytes: aCall(main.moved, 0) },
      threads: { allocatedBytes: aCall(allocatedBy(others), allocatedBy(atRest.others)) },
    };
  }
  throw new Error('the machine is too busy: the gateway refuses calls');
}

async function countsOf(world: CostWorld, door: Door): Promise<Costs> {
  const rounds = await eachAlone<Counts>(world, door, 'start counts', 'take counts');
  const each = (of: (answers: Answers<Counts>) => readonly Counts[]): Readonly<Record<string, number>> =>
    Object.fromEntries(
      COUNTED.map((name) => [name, least(rounds.map((round) => sum(of(round), (counts) => counts[name] ?? 0)))]),
    );
  return { main: each(({ main }) => [main]), threads: each(({ others }) => others) };
}

async function callsTo(world: CostWorld, door: Door): Promise<readonly Answers<Calls>[]> {
  await world.ask('start calls');
  const rounds = await eachAlone<Calls>(world, door, 'reset calls', 'take calls');
  await world.ask('stop calls');
  return rounds;
}

function ofMain({ main }: Answers<Calls>): readonly Called[] {
  return main.own;
}

function ofThreads({ others }: Answers<Calls>): readonly Called[] {
  return others.flatMap(({ own }) => own);
}

/** What the write with the fewest calls called. */
function cheapest(writes: readonly (readonly Called[])[]): readonly Called[] {
  return writes.reduce((one, other) => (callsOf(other) < callsOf(one) ? other : one));
}

function callsOf(called: readonly Called[]): number {
  return sum(called, ([, , , calls]) => calls);
}

function least(values: readonly number[]): number {
  return Math.min(...values);
}

/** Of the writes the least of each. */
function sizeOf(writes: readonly (readonly Called[])[]): Readonly<Record<string, number>> {
  return {
    ownFiles: least(writes.map((called) => new Set(called.map(([file]) => file)).size)),
    ownFunctions: least(writes.map((called) => called.length)),
    ownCalls: least(writes.map(callsOf)),
  };
}

function sum<T>(all: readonly T[], of: (one: T) => number): number {
  return all.reduce((so, one) => so + of(one), 0);
}
