import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import { until } from '../redis/servers.ts';
import { send, type TestGateway } from './gateway.ts';
import { openStoreOf } from './in-flight.ts';
import { startWorld, type World, worldFiles } from './world.ts';

/*
 * Streams of governed writes, each at another of twenty points, when one of the three processes that they run through is
 * killed, or the gateway is told to stop. The ledger file of the model says what happened. One gateway, side by side.
 */

const EVENT = 'data: {"usage":{"total_tokens":42}}\n\n';
/** What a whole answer posts, and what an answer that is not over holds. */
const POSTED = 42;
const HELD = 1000;

/** How far a stream has got: nothing, its head, some of its events, half of one more, its end. */
interface Point {
  readonly events?: number;
  readonly torn?: boolean;
  readonly end?: boolean;
}

const POINTS: readonly Point[] = Array.from({ length: 20 }, (_, n) => {
  if (n === 0) return {};
  return { events: n - 1, torn: n % 3 === 2, end: n % 4 === 3 };
});

let world: World;
/** The one that runs; each test may leave another. */
let gateway: TestGateway;
let model: Model;
let folder: string;

interface Model {
  readonly port: number;
  kill(): Promise<void>;
}

const ledgerFile = (): string => join(folder, 'model.jsonl');

async function startModel(port = 0): Promise<Model> {
  const child = node('model-upstream.mjs', [ledgerFile(), String(port)]);
  const [line] = await once(child.lines, 'line');
  return { port: Number(line), kill: () => killed(child.process) };
}

function node(script: string, args: readonly string[]): { readonly process: ChildProcess; readonly lines: Interface } {
  const child = spawn(process.execPath, [join(import.meta.dirname, script), ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  return { process: child, lines: createInterface({ input: child.stdout }) };
}

async function killed(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

/** What the model says of itself. */
async function ledger(): Promise<{ asked(key: string): number; over(key: string): number }> {
  const lines = (await readFile(ledgerFile(), 'utf8')).trimEnd().split('\n');
  const entries: { event: string; key: string }[] = lines.map((line) => JSON.parse(line));
  const count = (event: string, key: string): number =>
    entries.filter((entry) => entry.event === event && entry.key === key).length;
  return { asked: (key) => count('asked', key), over: (key) => count('over', key) };
}

async function tellModel(what: 'finish' | 'break', keys: readonly string[]): Promise<void> {
  const { ok } = await fetch(`http://127.0.0.1:${model.port}/__${what}`, {
    method: 'POST',
    body: JSON.stringify(keys),
  });
  expect(ok).toBe(true);
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-model-'));
  model = await startModel();
  world = await startWorld({
    files(upstream) {
      const { config, policies } = worldFiles(upstream);
      const chat = (name: string, path: string): string => `
  - name: model.${name}
    upstream: model
    kind: write
    request: { method: POST, path: ${path}, body: "*" }
    response: stream
    actual: { token: usage.total_tokens }`;
      const tools = `${chat('chat', '/chat')}${chat('brief', '/brief')}
    stream_time: 3s
  - { name: model.events, upstream: model, kind: read, request: { method: GET, path: /events } }
  - { name: model.socket, upstream: payments, kind: read, request: { method: GET, path: /socket } }`;
      const routes = `
  - upstream: model
    prefix: /model
    rules:
      - { match: "POST /chat", tool: model.chat }
      - { match: "POST /brief", tool: model.brief }
      - { match: "GET /events", tool: model.events }
  - { upstream: payments, prefix: /live, rules: [ { match: "GET /socket", tool: model.socket, frames: ungoverned } ] }`;
      const url = `http://127.0.0.1:${model.port}`;
      return {
        config: config
          .replace('timeout: 10s } ]', `timeout: 10s }, { id: model, url: "${url}", timeout: 60s } ]`)
          .replace('\ntools:', `\ntools:${tools}`)
          .replace('\nroutes:', `\nroutes:${routes}`),
        policies: {
          ...policies,
          'model.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: model
owner: test
budgets: { tokens: { unit: token, by: [agent.id], per: day, limit: 1000000 } }
rules:
  - { id: reads, effect: allow, match: { tools: [model.events, model.socket] } }
  - id: chat
    effect: allow
    match: { tools: [model.chat, model.brief] }
    obligations: [ { budget: { use: tokens, amount: ${HELD} } } ]
`,
        },
      };
    },
  });
  ({ gateway } = world);
});
afterAll(async () => {
  await model.kill();
  await world.close();
  await rm(folder, { recursive: true, force: true });
});

/** A call of the model, and what has come of its answer. */
interface Call {
  readonly key: string;
  /** The answer, when its head has come. */
  readonly head: Promise<IncomingMessage>;
  /** Whether the answer was whole, at its end. */
  readonly whole: Promise<boolean>;
  text(): string;
  leave(): void;
}

function call(key: string, point: Point, path = '/model/chat'): Call {
  const sent = request(`${gateway.url}${path}`, {
    method: path.endsWith('/events') ? 'GET' : 'POST',
    agent: false,
    headers: { 'x-api-key': world.keys.bot, 'x-call': key, 'content-type': 'application/json', 'idempotency-key': key },
  });
  sent.on('error', () => undefined);
  sent.end(path.endsWith('/events') ? undefined : JSON.stringify(point));
  let text = '';
  let answer: IncomingMessage | null = null;
  const head = new Promise<IncomingMessage>((resolve) => {
    sent.once('response', (response) => {
      answer = response.on('error', () => undefined);
      response.on('data', (piece) => {
        text += String(piece);
      });
      resolve(response);
    });
  });
  const whole = new Promise<boolean>((resolve) => {
    sent.once('close', () => resolve(answer?.complete ?? false));
  });
  return { key, head, whole, text: () => text, leave: () => void sent.destroy() };
}

/** Begins all twenty, and waits until each is where it is to be. */
async function begin(name: string): Promise<readonly Call[]> {
  const calls = POINTS.map((point, n) => call(`${name}-${n}`, point));
  for (const [n, { events, end = false }] of POINTS.entries()) {
    const one = calls[n];
    if (events === undefined) await until(async () => (await ledger()).asked(`${name}-${n}`) === 1);
    else await one?.head;
    if (end) expect(await one?.whole).toBe(true);
    else await until(() => one?.text() === EVENT.repeat(events ?? 0));
  }
  return calls;
}

/** What the budget says. */
async function tokens(): Promise<{ readonly spent: number; readonly held: number }> {
  const { body } = await send(gateway.url, world.keys.account, 'GET', '/v1/workspaces/demo/budgets');
  const rows: { budget: string; spent: number; held: number }[] = body.budgets;
  const { spent, held } = rows.find(({ budget }) => budget === 'model/tokens') ?? { spent: 0, held: 0 };
  return { spent, held };
}

/** The end of an answer that broke off says so, between two events. */
function lastEvent(text: string): unknown {
  const last = text.split(/(?<=\n\n)/).at(-1) ?? '';
  expect(last).toMatch(/^event: error\ndata: /);
  return JSON.parse(last.slice('event: error\ndata: '.length));
}

/**
 * Every call again, under its key: it is not sent, its outcome is what the model's ledger says, and its tokens are
 * posted or held.
 */
async function expectTruth(name: string, before: { spent: number; held: number }): Promise<void> {
  let over = 0;
  for (const [n, point] of POINTS.entries()) {
    const key = `${name}-${n}`;
    const happened = (await ledger()).over(key) === 1;
    if (happened) over += 1;
    const again = call(key, point);
    await again.whole;
    const { decision, receipt } = JSON.parse(again.text());
    expect([key, decision]).toEqual([key, happened ? 'duplicate_blocked' : 'unknown_effect']);
    if (happened) expect(receipt.budget).toMatchObject([{ posted: POSTED }]);
    expect([key, (await ledger()).asked(key)]).toEqual([key, 1]);
  }
  expect(await tokens()).toEqual({
    spent: before.spent + over * POSTED,
    held: before.held + (POINTS.length - over) * HELD,
  });
}

test('an upstream that is killed: what was over is committed, the rest unknown, said as an event of the stream; nothing is sent again', async () => {
  const before = await tokens();
  const calls = await begin('upstream');
  const { port } = model;
  await model.kill();
  for (const [n, { events, end = false }] of POINTS.entries()) {
    const one = calls[n];
    // Whole as an answer: it ends with the error, or in place of a stream there is the decision.
    expect([n, await one?.whole]).toEqual([n, true]);
    const response = await one?.head;
    const decision = events === undefined ? response?.headers['svc-decision'] : response?.trailers['svc-decision'];
    expect([n, decision]).toEqual([n, end ? 'committed' : 'unknown_effect']);
    if (events !== undefined && !end) {
      expect(lastEvent(one?.text() ?? '')).toMatchObject({
        decision: 'unknown_effect',
        error: { code: 'outcome_unknown' },
      });
    }
  }
  model = await startModel(port);
  await expectTruth('upstream', before);
});

test('a client that is killed: the model is heard to the end, and what it says is the outcome; nothing is sent again', async () => {
  const before = await tokens();
  const clients = node('model-clients.mjs', [`${gateway.url}/model/chat`, world.keys.bot]);
  const seen = new Map<string, number>();
  clients.lines.on('line', (line) => {
    const [key = '', bytes] = line.split(' ');
    seen.set(key, (seen.get(key) ?? 0) + (bytes === 'head' ? 0 : Number(bytes)));
  });
  const asked = POINTS.map((body, n) => ({ key: `client-${n}`, body }));
  clients.process.stdin?.write(`${JSON.stringify(asked)}\n`);
  for (const { key, body } of asked) {
    await until(async () => (await ledger()).asked(key) === 1);
    const events = (body.events ?? 0) + (body.end === true ? 1 : 0) + (body.end === true && body.torn === true ? 1 : 0);
    if (body.events !== undefined) await until(() => seen.get(key) === events * EVENT.length);
  }
  await killed(clients.process);
  // Half of those that wait go on to their end, and the others break off.
  const waiting = asked.filter(({ body }) => body.end !== true).map(({ key }) => key);
  await tellModel(
    'finish',
    waiting.filter((_, n) => n % 2 === 0),
  );
  await tellModel(
    'break',
    waiting.filter((_, n) => n % 2 === 1),
  );
  await until(async () => {
    const { body } = await send(gateway.url, world.keys.account, 'GET', '/v1/workspaces/demo/effects?state=executing');
    return body.effects.length === 0;
  });
  await expectTruth('client', before);
});

test('a gateway that is told to stop: streams of reads and tunnels are cut, governed streams are heard to their end or their limit', async () => {
  const before = await tokens();
  const read = call('read', {}, '/model/events');
  await read.head;
  const tunnel = request(`${gateway.url}/live/socket`, {
    agent: false,
    headers: { 'x-api-key': world.keys.bot, connection: 'upgrade', upgrade: 'websocket' },
  });
  tunnel.on('error', () => undefined).end();
  const [, socket] = await once(tunnel, 'upgrade');
  socket.on('error', () => undefined);
  const whenCut = once(socket, 'close');
  const whole = call('stop-0', { events: 0 });
  const left = call('stop-1', { events: 1 });
  const broken = call('stop-2', { events: 2, torn: true });
  const late = call('stop-3', { events: 3 }, '/model/brief');
  for (const one of [whole, left, broken, late]) await one.head;
  left.leave();
  gateway.kill('SIGTERM');
  expect(await read.whole).toBe(false);
  await whenCut;
  // A governed stream goes on, while the gateway stops, until its stream_time is over.
  expect(await late.whole).toBe(true);
  expect(lastEvent(late.text())).toMatchObject({ decision: 'unknown_effect' });
  await tellModel('break', ['stop-2']);
  expect(await broken.whole).toBe(true);
  expect(lastEvent(broken.text())).toMatchObject({ decision: 'unknown_effect' });
  await tellModel('finish', ['stop-0', 'stop-1']);
  expect(await whole.whole).toBe(true);
  expect((await whole.head).trailers).toEqual({ 'svc-decision': 'committed' });
  gateway = await gateway.restart();
  for (const { key, point, decision, path } of [
    { key: 'stop-0', point: { events: 0 }, decision: 'duplicate_blocked' },
    { key: 'stop-1', point: { events: 1 }, decision: 'duplicate_blocked' },
    { key: 'stop-2', point: { events: 2, torn: true }, decision: 'unknown_effect' },
    { key: 'stop-3', point: { events: 3 }, path: '/model/brief', decision: 'unknown_effect' },
  ]) {
    const again = call(key, point, path);
    await again.whole;
    expect([key, JSON.parse(again.text()).decision]).toEqual([key, decision]);
    expect((await ledger()).asked(key)).toBe(1);
  }
  expect(await tokens()).toEqual({ spent: before.spent + 2 * POSTED, held: before.held + 2 * HELD });
});

test('a gateway that is killed: what was over is committed, the rest unknown at once; nothing is sent again', async () => {
  const before = await tokens();
  const calls = await begin('gateway');
  gateway.kill('SIGKILL');
  for (const [n, { end = false }] of POINTS.entries()) expect([n, await calls[n]?.whole]).toEqual([n, end]);
  gateway = await gateway.restart();
  await expectTruth('gateway', before);
  await gateway.stop();
  const { store } = await openStoreOf(world.gateway, {});
  expect(await checkWorkspace(store, 'demo')).toEqual([]);
  await store.close();
});
