import { type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { addEffectStream } from '../../src/api/effect-stream.ts';
import type { ApiApp } from '../../src/api/app.ts';
import type { ApiPorts } from '../../src/api/ports.ts';
import { createServer } from '../../src/api/server.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { LedgerEvent } from '../../src/effects/model/ledger.ts';
import type { Principal } from '../../src/effects/model/principal.ts';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { permit } from '../../src/identity/permissions.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { refund, type Rig, startRig } from './rig.ts';

const STREAM = '/v1/workspaces/demo/effects/stream';

let rig: Rig;
let model: EffectRecord;
beforeAll(async () => {
  rig = await startRig();
  const { json } = await rig.send('POST', '/v1/workspaces/demo/effects', { body: refund() });
  const effect = await rig.core.store.effect('demo', String(json['effect_id']));
  if (effect === null) throw new Error('it is on record');
  model = effect;
});
afterAll(() => rig.close());

/** What the stream is made of, as the tests set it. */
let events: LedgerEvent[];
let effects: Map<string, EffectRecord>;
let isAway: boolean;
let ended: Set<string>;
/** Keys that may not watch any more. */
let lessened: Set<string>;
/** From where on the ledger was read. */
let looks: number[];
/** How many turns were taken for those who read. */
let parts: number;
/** Until then nobody knows whether a session of the console asks. */
let whenKnown: Promise<void>;
/** How many asked whether one does. */
let asking: number;
/** Whom a session of the console lets in; `null`: a key asks. */
let visitor: Awaited<ReturnType<ApiPorts['sessions']['visitorOf']>>;
let app: ApiApp;
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  events = [];
  effects = new Map();
  isAway = false;
  ended = new Set();
  lessened = new Set();
  looks = [];
  parts = 0;
  asking = 0;
  visitor = null;
  whenKnown = Promise.resolve();
  let clock = 0;
  const reached = async <Found>(found: () => Found): Promise<Found> => {
    if (isAway) throw new StoreUnavailable('away');
    return found();
  };
  const store: ApiPorts['store'] = {
    ...rig.core.store,
    get installId() {
      return rig.core.store.installId;
    },
    turns: createReadingTurns({
      // Whatever is done takes longer than a part may.
      now: () => (clock += 3),
      used: () => 0,
      after(_ms, work) {
        parts += 1;
        setImmediate(work);
      },
    }),
    ledger(_workspace, after, limit) {
      looks.push(after);
      return reached(() => events.filter(({ seq }) => seq > after).slice(0, limit));
    },
    ledgerBefore: (_workspace, _before, limit) => reached(() => events.toReversed().slice(0, limit)),
    effect: (_workspace, id) => reached(() => effects.get(id) ?? null),
  };
  app = createServer({
    logger: createLogger({ level: 'silent', sink: process.stdout }),
    settings: () => rig.ports.settings(),
    bodyLimit: 1_000,
    connections: 1_000,
  });
  app.addHook('onRequest', async (request) => {
    const principal = principalOf(String(request.headers['x-api-key']));
    const { ok, ...rest } = permit(principal, 'effects.read', 'demo');
    const view = ok && 'view' in rest ? rest.view : ({ kind: 'none' } as const);
    request.caller = { principal, view, refusal: null, authenticatedAt: 0, authenticatedInMs: 0 };
  });
  addEffectStream(app, {
    ...rig.ports,
    store,
    sessions: {
      ...rig.ports.sessions,
      async visitorOf() {
        asking += 1;
        await whenKnown;
        return visitor;
      },
    },
    async stillValid(keyId) {
      if (ended.has(keyId)) return { failure: 'invalid_key', why: 'revoked' };
      const { kind: _, ...base } = principalOf(keyId);
      const none = { ...base, kind: 'profile', profile: 'p', workspace: 'demo', agentId: null, scopes: [] } as const;
      return lessened.has(keyId) ? none : principalOf(keyId);
    },
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
});
afterEach(async () => {
  await app.close();
  vi.useRealTimers();
});

/**
 * Names of keys that begin with `agent` are of the agent of this name; those that begin with `reader` are of an account,
 * and those that begin with `limited` of one that may call another tool alone.
 */
function principalOf(name: string): Principal {
  const user = name.startsWith('tom-') ? 'tom' : null;
  const allowedTools = name.startsWith('limited') ? ['deploy.start'] : null;
  const base = { keyId: name, user, madeBy: null, keyCreatedAt: 0, readOnly: false, allowedTools };
  if (name.startsWith('agent')) return { ...base, kind: 'agent', workspace: 'demo', agentId: name };
  return { ...base, kind: 'account', workspace: 'demo' };
}

interface Listening {
  readonly answer: IncomingMessage;
  text: string;
  isOver: boolean;
}

/** Opens a stream; `reads`: whether anybody takes what it says. */
async function listen(key: string, reads = true): Promise<Listening> {
  const { port } = app.server.address() as AddressInfo;
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const headers = { 'x-api-key': key };
    request({ port, path: STREAM, headers, agent: false }, resolve).once('error', reject).end();
  });
  const seen: Listening = { answer, text: '', isOver: false };
  answer.once('close', () => {
    seen.isOver = true;
  });
  answer.once('error', () => undefined);
  if (reads) answer.setEncoding('utf8').on('data', (piece: string) => (seen.text += piece));
  return seen;
}

const statusOf = ({ answer }: Listening): number | undefined => answer.statusCode;

/** The look that is under way comes to its end, and what it said arrives. */
async function settle(): Promise<void> {
  for (let turns = 0; turns < 100 && vi.getTimerCount() === 0; turns += 1) await delay(3);
  for (let turns = 0; turns < 3; turns += 1) await delay(3);
}

/** Lets time pass, with the looks in it. */
async function pass(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 500) {
    vi.advanceTimersByTime(Math.min(left, 500));
    await settle();
  }
}

/** Something happens to an effect of this agent. */
function happens(id: string, agentId = 'agent-1', { keyId } = model.actor): void {
  effects.set(id, { ...model, id, actor: { ...model.actor, agentId, keyId } });
  const seq = (events.at(-1)?.seq ?? 0) + 1;
  const actor = { type: 'agent', id: agentId } as const;
  events.push({ kind: 'effect.admitted', effectId: id, actor, data: {}, seq, id: `evt_${seq}`, at: 0 });
}

/** The ids of the effects that a listener was shown, in order. */
const shown = ({ text }: Listening): string[] =>
  [...text.matchAll(/^event: effect\ndata: \{"id":"(\w+)"/gm)].map(([, id = '']) => id);

describe('the stream of effects', () => {
  it('has each effect once for each look in which something happened to it, for each who may see it', async () => {
    happens('eff_before');
    const all = await listen('reader');
    const headers = { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' };
    expect(all.answer).toMatchObject({ statusCode: 200, headers });
    const one = await listen('agent-1');
    const other = await listen('agent-2');
    await settle();
    await expect.poll(() => [all.text, one.text]).toEqual([': open\n\n', ': open\n\n']);
    happens('eff_1');
    happens('eff_1');
    happens('eff_2', 'agent-2');
    await pass(500);
    await expect.poll(() => [shown(all), shown(one), shown(other)]).toEqual([['eff_1', 'eff_2'], ['eff_1'], ['eff_2']]);
    await pass(500);
    happens('eff_1');
    await pass(500);
    await expect.poll(() => shown(one)).toEqual(['eff_1', 'eff_1']);
    expect(all.text).not.toMatch(/"receipt":\{|"result":/);
  });

  it('has no text that a rule made of params for a key that may not call the tool', async () => {
    const [reader, limited] = [await listen('reader'), await listen('limited')];
    await settle();
    happens('eff_1');
    const reason = { code: 'rule_denied', message: 'Not to DE89370400440532013000', rule: 'rig/refund' } as const;
    const life = { state: 'denied', at: 0, decision: 'denied_policy', reason, mismatches: [] } as const;
    effects.set('eff_1', { ...model, id: 'eff_1', life });
    await pass(500);
    await expect.poll(() => [shown(reader), shown(limited)]).toEqual([['eff_1'], ['eff_1']]);
    expect([reader.text.includes('DE8937'), limited.text.includes('DE8937')]).toEqual([true, false]);
  });

  it('says that it is alive every two seconds, where nothing happens', async () => {
    const one = await listen('reader');
    await pass(2_000);
    await expect.poll(() => one.text).toBe(': open\n\n:\n\n');
    await pass(2_000);
    await expect.poll(() => one.text).toBe(': open\n\n:\n\n:\n\n');
  });

  it.each([
    [100, 'effect', 100],
    [101, 'more', 0],
  ])('of %i effects at once has each, or says only that there are more', async (count, event, each) => {
    const one = await listen('reader');
    for (let n = 0; n < count; n += 1) happens(`eff_${n}`);
    await pass(500);
    await expect.poll(() => one.text).toContain(`event: ${event}\n`);
    await expect.poll(() => shown(one)).toHaveLength(each);
    happens('eff_after');
    await pass(500);
    await expect.poll(() => shown(one).slice(each)).toEqual(['eff_after']);
  });

  it('leaves out more events than it reads at a look, and goes on after the last of them', async () => {
    const one = await listen('reader');
    for (let n = 0; n < 900; n += 1) happens('eff_busy');
    await pass(500);
    await expect.poll(() => one.text).toBe(': open\n\nevent: more\ndata: {}\n\n');
    happens('eff_after');
    await pass(500);
    await expect.poll(() => shown(one)).toEqual(['eff_after']);
  });

  it('misses nothing that happened while the store could not be read', async () => {
    const one = await listen('reader');
    isAway = true;
    happens('eff_1');
    await pass(3_000);
    expect([one.isOver, shown(one)]).toEqual([false, []]);
    isAway = false;
    await pass(500);
    await expect.poll(() => shown(one)).toEqual(['eff_1']);
  });

  it('goes on where the ledger goes on, after a loss that was accepted', async () => {
    for (let n = 0; n < 50; n += 1) happens('eff_lost');
    const one = await listen('reader');
    events = events.slice(0, 10);
    await pass(2_500);
    happens('eff_after');
    await pass(500);
    await expect.poll(() => shown(one)).toEqual(['eff_after']);
  });

  it.each([
    ['is revoked', () => ended],
    ['may not watch any more', () => lessened],
  ])('ends within two seconds for a key that %s, and for nobody else', async (_, keys) => {
    const gone = await listen('agent-1');
    const stays = await listen('reader');
    keys().add('agent-1');
    await pass(2_000);
    await expect.poll(() => [gone.isOver, stays.isOver]).toEqual([true, false]);
    happens('eff_1');
    await pass(500);
    await expect.poll(() => [shown(gone), shown(stays)]).toEqual([[], ['eff_1']]);
  });

  it('that a session of the console opened ends with it, though its key is good, and no other does', async () => {
    visitor = { principal: principalOf('reader-1'), hasShownKey: true, passkey: null, session: 's', until: 0 };
    const ofSession = await listen('reader-1');
    visitor = null;
    const ofKey = await listen('reader-1');
    await pass(2_000);
    await expect.poll(() => [ofSession.isOver, ofKey.isOver]).toEqual([true, false]);
  });

  it('reads the ledger once for all who watch a workspace', async () => {
    for (let n = 0; n < 3; n += 1) await listen('reader');
    await pass(500);
    const { length } = looks;
    await pass(1_000);
    expect(looks.length - length).toBe(2);
  });

  it('is cut off for who does not read, before it fills the memory; who reads has all of it', async () => {
    const slow = await listen('reader-1', false);
    const fast = await listen('reader-2');
    // The system takes some megabytes for who does not.
    for (let n = 0; n < 16; n += 1) {
      happens(`eff_${n}`, 'agent-1', { ...model.actor, keyId: 'x'.repeat(1_000_000) });
      await pass(500);
    }
    slow.answer.resume();
    await expect.poll(() => slow.isOver).toBe(true);
    await expect.poll(() => [fast.isOver, shown(fast).length]).toEqual([false, 16]);
  });

  it('gives its place back when it ends: of one key there are twenty, of all two hundred', async () => {
    const open: Listening[] = [];
    for (let n = 0; n < 20; n += 1) open.push(await listen('reader-0'));
    const beyond = await listen('reader-0');
    expect([statusOf(beyond), beyond.answer.headers['retry-after']]).toEqual([429, '10']);
    open[0]?.answer.destroy();
    await expect.poll(async () => statusOf(await listen('reader-0'))).toBe(200);
    for (let n = 20; n < 200; n += 1) expect(statusOf(await listen(`reader-${Math.floor(n / 20)}`))).toBe(200);
    expect(statusOf(await listen('reader-10'))).toBe(429);
  });

  it('is opened a hundred times for a user, with however many keys', async () => {
    for (let n = 0; n < 100; n += 1) expect(statusOf(await listen(`tom-${Math.floor(n / 20)}`))).toBe(200);
    expect(statusOf(await listen('tom-5'))).toBe(429);
    expect(statusOf(await listen('reader'))).toBe(200);
  });

  it('is opened twenty times for a key, also where all that ask ask at once', async () => {
    let know: () => void = () => undefined;
    whenKnown = new Promise((resolve) => {
      know = resolve;
    });
    const asked = Array.from({ length: 30 }, () => listen('reader-0'));
    await expect.poll(() => asking).toBe(30);
    know();
    const statuses = (await Promise.all(asked)).map(statusOf);
    expect([200, 429].map((status) => statuses.filter((one) => one === status).length)).toEqual([20, 10]);
  });

  it('gives back the places of those who had gone before they were let in', async () => {
    let know: () => void = () => undefined;
    whenKnown = new Promise((resolve) => {
      know = resolve;
    });
    const { port } = app.server.address() as AddressInfo;
    const gone = Array.from({ length: 20 }, () =>
      request({ port, path: STREAM, headers: { 'x-api-key': 'reader-0' }, agent: false })
        .on('error', () => undefined)
        .end(),
    );
    await expect.poll(() => asking).toBe(20);
    for (const one of gone) one.destroy();
    await expect.poll(() => promisify(app.server.getConnections).call(app.server)).toBe(0);
    know();
    await settle();
    for (let n = 0; n < 20; n += 1) expect(statusOf(await listen('reader-0'))).toBe(200);
  });

  it('tells each of those who watch in a turn of its own', async () => {
    const open: Listening[] = [];
    for (let n = 0; n < 30; n += 1) open.push(await listen(`reader-${Math.floor(n / 20)}`));
    await settle();
    const before = parts;
    happens('eff_1');
    await pass(500);
    await expect.poll(() => open.map(shown)).toEqual(open.map(() => ['eff_1']));
    expect(parts - before).toBeGreaterThanOrEqual(30);
  });

  it('is not opened any more once the gateway stops: nobody would end it', async () => {
    let know: () => void = () => undefined;
    whenKnown = new Promise((resolve) => {
      know = resolve;
    });
    const asked = listen('reader');
    await expect.poll(() => asking).toBe(1);
    const closed = app.close();
    await expect.poll(() => app.server.listening).toBe(false);
    know();
    const { answer } = await asked;
    answer.destroy();
    await closed;
    expect([answer.statusCode, answer.headers['retry-after']]).toEqual([503, '1']);
  });

  it('ends when the gateway stops', async () => {
    const one = await listen('reader');
    await app.close();
    await expect.poll(() => one.isOver).toBe(true);
  });

  it('costs nothing once nobody watches', async () => {
    const one = await listen('reader');
    one.answer.destroy();
    await pass(1_000);
    const { length } = looks;
    await pass(5_000);
    expect(looks).toHaveLength(length);
    expect(length).toBeGreaterThan(0);
  });
});
