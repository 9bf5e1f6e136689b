import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { receiptView } from '../../src/receipts/view.ts';
import { type ProxiedWorld, startProxiedWorld } from './gateway.ts';

/*
 * Governed writes whose answer is passed on as it comes, before a model API whose every piece the test sends.
 */

let world: ProxiedWorld;
const model = createServer();

beforeAll(async () => {
  model.listen(0, '127.0.0.1');
  await once(model, 'listening');
  const address = model.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  world = await startProxiedWorld({ model: `http://127.0.0.1:${port}` });
});
afterAll(async () => {
  await world.close();
  model.close();
});

const EVENTS = { 'content-type': 'text/event-stream' };
const delta = (content: string): string =>
  `data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', choices: [{ index: 0, delta: { content } }] })}\n\n`;
const DONE = 'data: [DONE]\n\n';

/** The next request to the model, and its answer, which the test writes. */
function asked(): Promise<ServerResponse> {
  return new Promise((resolve) => {
    model.once('request', (incoming: IncomingMessage, response: ServerResponse) => {
      incoming.resume().on('end', () => resolve(response));
    });
  });
}

interface Caller {
  readonly response: IncomingMessage;
  /** What has come so far. */
  text(): string;
  /** The next piece. */
  more(): Promise<void>;
  /** How it ended, and the trailers. */
  readonly end: Promise<{ readonly complete: boolean; readonly trailers: NodeJS.Dict<string> }>;
  leave(): void;
}

interface Called {
  readonly key?: string;
  readonly path?: string;
  readonly headers?: Record<string, string>;
}

/** Calls the model through the gateway; resolves when the head of the answer has come. */
async function call({
  key = world.keys.bot,
  path = '/v1/chat/completions',
  headers = {},
}: Called = {}): Promise<Caller> {
  const sent = httpRequest(`${world.url}/model${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
  });
  sent.on('error', () => undefined);
  sent.end('{"stream":true}');
  const response = await new Promise<IncomingMessage>((resolve) => {
    sent.once('response', resolve);
  });
  let text = '';
  response.on('data', (piece) => {
    text += String(piece);
  });
  response.on('error', () => undefined);
  return {
    response,
    text: () => text,
    more: async () => void (await once(response, 'data')),
    end: new Promise((resolve) => {
      response.on('close', () => resolve({ complete: response.complete, trailers: response.trailers }));
    }),
    leave: () => sent.destroy(),
  };
}

async function effectOf({ response }: Caller): Promise<EffectRecord> {
  const id = response.headers['svc-effect-id'];
  const found = await world.store.effect('demo', typeof id === 'string' ? id : '');
  if (found === null) throw new Error('there is no such effect');
  return found;
}

/** Waits until an effect has a state. */
async function settled(caller: Caller): Promise<EffectRecord> {
  for (;;) {
    const effect = await effectOf(caller);
    if (effect.life.state !== 'executing') return effect;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A stream whose first event has reached the caller. */
async function begun(how: Called = {}): Promise<{ readonly caller: Caller; readonly upstream: ServerResponse }> {
  const arrived = asked();
  const called = call(how);
  const upstream = await arrived;
  upstream.writeHead(200, EVENTS).write(delta('Hel'));
  const caller = await called;
  while (caller.text() === '') await caller.more();
  return { caller, upstream };
}

describe('an answer that is passed on', () => {
  test('comes as it was sent, is settled at its end, and says so in the trailer', async () => {
    const { caller, upstream } = await begun();
    expect(caller.text()).toBe(delta('Hel'));
    expect(caller.response.statusCode).toBe(200);
    expect(caller.response.headers).toMatchObject({
      ...EVENTS,
      'svc-receipt': expect.stringContaining(String(caller.response.headers['svc-effect-id'])),
    });
    expect(caller.response.headers).toMatchObject({ trailer: 'svc-decision, svc-observed, svc-settlement' });
    expect(caller.response.headers['svc-decision']).toBeUndefined();
    const running = await effectOf(caller);
    if (running.life.state !== 'executing') throw new Error(running.life.state);
    // Nobody may call it unknown while it may still come: stream_time is 10 minutes, timeout 20 s.
    expect(running.life.lease.leaseEnd - running.life.lease.dispatchBy).toBeGreaterThan(600_000);
    upstream.end(delta('lo') + DONE);
    const { complete, trailers } = await caller.end;
    const whole = delta('Hel') + delta('lo') + DONE;
    expect(caller.text()).toBe(whole);
    expect(complete).toBe(true);
    expect(trailers).toEqual({ 'svc-decision': 'committed' });
    // The end went out after the settlement.
    const { life } = await effectOf(caller);
    if (life.state !== 'committed') throw new Error(life.state);
    expect(life.result?.body).toEqual({
      kind: 'passed_on',
      value: { bytes: whole.length, sha256: createHash('sha256').update(whole).digest('hex'), tail: whole },
    });
  });

  test('an event goes on when it is complete, and what follows the last one with the end', async () => {
    const { caller, upstream } = await begun();
    const rest = delta('lo').slice(20);
    upstream.write(delta('lo').slice(0, 20));
    upstream.write(rest);
    while (!caller.text().endsWith(rest)) await caller.more();
    upstream.write('data: without an end');
    upstream.end();
    expect((await caller.end).complete).toBe(true);
    expect(caller.text()).toBe(`${delta('Hel')}${delta('lo')}data: without an end`);
  });

  test('a refusal, an error and JSON come whole, with the decision in the head', async () => {
    for (const [status, type, decision] of [
      [429, 'text/event-stream', 'failed'],
      [500, 'text/event-stream', 'unknown_effect'],
      [200, 'application/json', 'committed'],
    ] as const) {
      const arrived = asked();
      const called = call();
      (await arrived).writeHead(status, { 'content-type': type }).end('{"error":{"message":"no"}}');
      const caller = await called;
      expect(caller.response.headers['svc-decision']).toBe(decision);
      expect((await caller.end).complete).toBe(true);
    }
  });
});

describe('an answer that breaks off', () => {
  test('ends with an event that says that the outcome is unknown', async () => {
    const { caller, upstream } = await begun();
    // Shorter than what is held back, so the caller has none of it. It comes before the end of the connection.
    upstream.write(`data: ${'x'.repeat(60_000)}`);
    upstream.socket?.end();
    const { complete, trailers } = await caller.end;
    expect(complete).toBe(true);
    expect(trailers).toEqual({ 'svc-decision': 'unknown_effect' });
    const [first, event = '', ...others] = caller.text().split(/(?<=\n\n)/);
    expect([first, others]).toEqual([delta('Hel'), []]);
    const [name, data = ''] = event.trimEnd().split('\n');
    expect(name).toBe('event: error');
    expect(JSON.parse(data.slice('data: '.length))).toMatchObject({
      decision: 'unknown_effect',
      effect_id: caller.response.headers['svc-effect-id'],
      did_it_happen: 'maybe',
      error: { code: 'outcome_unknown' },
    });
    expect((await effectOf(caller)).life.state).toBe('unknown');
  });

  test.each([
    ['65,536 bytes is held back', 65_536, true],
    ['65,537 bytes is passed on in pieces', 65_537, false],
  ])('inside an event: one of %s', async (_, bytes, isSaid) => {
    const { caller, upstream } = await begun();
    upstream.write(`data: ${'x'.repeat(bytes - 6)}`);
    // Ended, not reset: all that was written arrives before the end does.
    upstream.socket?.end();
    expect((await caller.end).complete).toBe(isSaid);
    expect([caller.text().includes('xxx'), caller.text().includes('unknown_effect')]).toEqual([!isSaid, isSaid]);
  });

  // docs/upstreams/streams.md: "Where that cannot be (another content type, an event of more than 64 KiB that broke off in
  // its middle) the connection is cut, so that no client takes the answer for whole."
  test('is cut where no event can say so: inside one too long to hold back, or in no event stream', async () => {
    const long = await begun();
    long.upstream.write(`data: ${'x'.repeat(70_000)}`);
    while (long.caller.text().length < 70_000) await long.caller.more();
    long.upstream.socket?.resetAndDestroy();
    expect((await long.caller.end).complete).toBe(false);
    expect(long.caller.text()).not.toContain('unknown_effect');
    expect((await effectOf(long.caller)).life.state).toBe('unknown');

    // Behind a long one that is over, an event can say so again.
    const over = await begun();
    over.upstream.write(`data: ${'x'.repeat(70_000)}`);
    while (over.caller.text().length < 70_000) await over.caller.more();
    over.upstream.write('\n\n');
    while (!over.caller.text().endsWith('x\n\n')) await over.caller.more();
    over.upstream.socket?.resetAndDestroy();
    expect((await over.caller.end).complete).toBe(true);
    expect(over.caller.text()).toContain('unknown_effect');

    const arrived = asked();
    const called = call();
    const upstream = await arrived;
    upstream.writeHead(200, { 'content-type': 'audio/mpeg' }).write('abc');
    const audio = await called;
    upstream.socket?.resetAndDestroy();
    expect((await audio.end).complete).toBe(false);
    expect((await effectOf(audio)).life.state).toBe('unknown');
  });
});

describe('the same key again', () => {
  const headers = { 'idempotency-key': 'stream-1' };

  test('while the answer comes, and after it: nothing is sent, and what is kept is said', async () => {
    const { caller, upstream } = await begun({ headers });
    const during = await call({ headers });
    expect(during.response.headers['svc-decision']).toBe('in_progress');
    await during.end;
    upstream.end(DONE);
    await caller.end;
    const after = await call({ headers });
    await after.end;
    // Bytes that are gone cannot be replayed, whatever the route says.
    expect(after.response.statusCode).toBe(409);
    expect(JSON.parse(after.text())).toMatchObject({
      decision: 'duplicate_blocked',
      receipt: { effect: { id: caller.response.headers['svc-effect-id'] } },
      upstream_status: 200,
      result_encoding: 'digest',
      result: { bytes: (delta('Hel') + DONE).length, tail: delta('Hel') + DONE },
    });
  });
});

describe('a caller that goes', () => {
  test('the upstream is heard to the end, and what happened is committed', async () => {
    const { caller, upstream } = await begun();
    caller.leave();
    await caller.end;
    upstream.write(delta('lo'));
    expect((await effectOf(caller)).life.state).toBe('executing');
    upstream.end(DONE);
    const { life } = await settled(caller);
    if (life.state !== 'committed') throw new Error(life.state);
    const bytes = (delta('Hel') + delta('lo') + DONE).length;
    expect(life.result?.body).toMatchObject({ value: { bytes } });
  });

  test('or takes nothing for as long as the time-out: it is cut off, and the upstream heard to the end', async () => {
    const { caller, upstream } = await begun({ path: '/v1/brief' });
    caller.response.pause();
    // More than fits into the buffers on the way.
    const piece = delta('x'.repeat(60_000));
    for (let sent = 0; sent < 500; sent += 1)
      if (!upstream.write(piece)) await new Promise((resolve) => upstream.once('drain', resolve));
    upstream.end(DONE);
    expect((await settled(caller)).life.state).toBe('committed');
    caller.response.resume();
    expect((await caller.end).complete).toBe(false);
  });

  test.each(['its key is revoked', 'a pause is set'])('is cut off when %s, and the call is finished', async (why) => {
    const bot = await world.freshBot();
    const { caller, upstream } = await begun({ key: bot.key });
    const resume = why === 'a pause is set' ? await world.pause('model.chat') : null;
    if (resume === null) await bot.revoke();
    expect((await caller.end).complete).toBe(false);
    upstream.end(DONE);
    expect((await settled(caller)).life.state).toBe('committed');
    await resume?.();
  });
});

test('a streamed answer that is over is not judged again', async () => {
  const fresh = await world.freshBot();
  const { caller, upstream } = await begun({ key: fresh.key });
  const judged = (): number => world.identified.filter((key) => key === fresh.key).length;
  const before = judged();
  await (await world.pause('some.other'))();
  expect(judged()).toBeGreaterThan(before);
  upstream.end(DONE);
  await caller.end;
  await settled(caller);
  const known = judged();
  await (await world.pause('some.other'))();
  expect(judged()).toBe(known);
});

describe('what an answer says it cost', () => {
  const usage = (tokens: unknown): string =>
    `data: ${JSON.stringify({ choices: [], usage: { total_tokens: tokens } })}\n\n`;
  const figures = async (): Promise<{ spent: number; held: number }> => {
    const row = (await world.store.budgets('demo')).find(({ budget }) => budget === 'proxied/tokens');
    return { spent: row?.spent ?? 0, held: row?.held ?? 0 };
  };
  /** What a call changes, its events about money, and what its receipt says. */
  async function costs(call: () => Promise<Caller>) {
    const before = await figures();
    const caller = await call();
    const effect = await settled(caller);
    const after = await figures();
    const ledger = await world.store.effectLedger('demo', effect.id);
    const receipt = effect.life.state === 'committed' ? receiptView(effect.life.receipt.jws) : null;
    return {
      spent: after.spent - before.spent,
      held: after.held - before.held,
      events: ledger.filter(({ kind }) => kind.startsWith('budget.')).map(({ kind, data }) => ({ kind, data })),
      receipt: receipt?.['budget'],
    };
  }
  const streamed = (...events: string[]) =>
    costs(async () => {
      const { caller, upstream } = await begun();
      for (const event of events) upstream.write(event);
      upstream.end(DONE);
      await caller.end;
      return caller;
    });
  const posted = (amount: number) => [{ id: 'proxied/tokens', posted: amount, unit: 'token' }];

  test('is posted in place of what was held: less is given back', async () => {
    expect(await streamed('data: {"usage":null}\n\n', usage(41), usage(42))).toMatchObject({
      spent: 42,
      held: 0,
      events: [{ kind: 'budget.held' }, { kind: 'budget.posted', data: { holds: [{ amount: 1000, posted: 42 }] } }],
      receipt: posted(42),
    });
  });

  test('more is posted too, and is an overdraft', async () => {
    const seen = await streamed(usage(1500));
    expect(seen).toMatchObject({ spent: 1500, held: 0, receipt: posted(1500) });
    expect(seen.events.slice(1)).toMatchObject([
      { kind: 'budget.posted', data: { holds: [{ amount: 1000 }] } },
      { kind: 'budget.overdraft', data: { holds: [{ amount: 500 }] } },
    ]);
  });

  test.each([
    ['nothing', 'data: {}\n\n'],
    ['a text', usage('42')],
    ['less than nothing', usage(-1)],
    ['a part', usage(0.5)],
  ])('where it says %s, what was held is posted, and that is said', async (_, event) => {
    const seen = await streamed(event);
    expect(seen).toMatchObject({ spent: 1000, held: 0, receipt: posted(1000) });
    expect(seen.events.slice(1)).toMatchObject([{ kind: 'budget.posted', data: { actual_missing: ['token'] } }]);
  });

  test('of an answer in JSON as well', async () => {
    const seen = await costs(async () => {
      const arrived = asked();
      const called = call();
      (await arrived).writeHead(200, { 'content-type': 'application/json' }).end('{"usage":{"total_tokens":7}}');
      const caller = await called;
      await caller.end;
      return caller;
    });
    expect(seen).toMatchObject({ spent: 7, held: 0, receipt: posted(7) });
  });

  test('of an outcome that is not known, what was held stays held', async () => {
    const seen = await costs(async () => {
      const { caller, upstream } = await begun();
      upstream.write(usage(42), () => upstream.socket?.resetAndDestroy());
      await caller.end;
      return caller;
    });
    expect(seen).toMatchObject({ spent: 0, held: 1000, receipt: undefined });
  });

  test('the ledger gives the same figures', async () => {
    expect(await checkWorkspace(world.store, 'demo')).toEqual([]);
  });
});

describe('the unmodified openai SDK', () => {
  const client = (): OpenAI => new OpenAI({ apiKey: world.keys.bot, baseURL: `${world.url}/model/v1`, maxRetries: 2 });
  const chat = async (): Promise<string> => {
    const stream = await client().chat.completions.create({
      model: 'gpt-5',
      stream: true,
      messages: [{ role: 'user', content: 'hi' }],
    });
    let text = '';
    for await (const { choices } of stream) text += choices[0]?.delta.content ?? '';
    return text;
  };

  test('reads a whole stream', async () => {
    const arrived = asked();
    const text = chat();
    const upstream = await arrived;
    upstream.writeHead(200, EVENTS).write(delta('Hel'));
    upstream.end(delta('lo') + DONE);
    expect(await text).toBe('Hello');
  });
});

/** Where a stream breaks off. The rest of each answer never comes. */
const BREAKS: Readonly<Record<string, (upstream: ServerResponse, event: string) => void>> = {
  'before its head': ({ socket }) => void socket?.resetAndDestroy(),
  'after its head': (upstream) => {
    upstream.writeHead(200, EVENTS).flushHeaders();
    setImmediate(() => upstream.socket?.resetAndDestroy());
  },
  'after an event': (upstream, event) => {
    upstream.writeHead(200, EVENTS).write(event, () => upstream.socket?.resetAndDestroy());
  },
  'within an event': (upstream, event) => {
    upstream.writeHead(200, EVENTS).write(event);
    upstream.write(event.slice(0, 30), () => upstream.socket?.resetAndDestroy());
  },
  'in silence': (upstream, event) => void upstream.writeHead(200, EVENTS).write(event),
};

/** Each reads a stream to its end as its library does by default, with its own retries. */
const READERS = [
  {
    name: 'openai',
    event: delta('Hel'),
    tool: 'model.short',
    async read() {
      const client = new OpenAI({ apiKey: world.keys.bot, baseURL: `${world.url}/brief/v1` });
      const messages = [{ role: 'user' as const, content: 'hi' }];
      for await (const _ of await client.chat.completions.create({ model: 'gpt-5', stream: true, messages }));
    },
    told: (error: unknown) =>
      error instanceof OpenAI.APIError ? { code: error.code, type: error.type, message: error.message } : null,
  },
  {
    name: '@anthropic-ai/sdk',
    event: `event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}\n\n`,
    tool: 'model.messages',
    async read() {
      const client = new Anthropic({ apiKey: world.keys.bot, baseURL: `${world.url}/claude` });
      const messages = [{ role: 'user' as const, content: 'hi' }];
      const stream = await client.messages.create({ model: 'claude', max_tokens: 10, stream: true, messages });
      for await (const _ of stream);
    },
    told: (error: unknown) =>
      error instanceof Anthropic.APIError ? { code: error.errorCode, type: error.type, message: error.message } : null,
  },
];

describe.each(READERS)('the unmodified library $name', ({ event, tool, read, told }) => {
  test.each(Object.keys(BREAKS))(
    'throws its own error, with the decision, for a stream that breaks off %s, and asks once',
    async (where) => {
      let requests = 0;
      const play = (incoming: IncomingMessage, response: ServerResponse): void => {
        requests += 1;
        incoming.resume().on('end', () => BREAKS[where]?.(response, event));
      };
      model.on('request', play);
      const error: unknown = await read().then(
        () => null,
        (thrown: unknown) => thrown,
      );
      model.off('request', play);
      expect(told(error)).toEqual({
        code: 'outcome_unknown',
        type: 'unknown_effect',
        message: expect.stringContaining('not known'),
      });
      expect(requests).toBe(1);
      const all = { decision: null, agentId: null, since: null, until: null, cursor: null };
      const { items } = await world.store.effects('demo', { ...all, state: 'unknown', tool, limit: 10 });
      expect(items).toHaveLength(1 + Object.keys(BREAKS).indexOf(where));
    },
  );
});

// docs/upstreams/streams.md: "More: it is posted as well, though it goes beyond the limit, and the ledger has
// `budget.overdraft` with what was too much; the next call is refused if nothing is left."
test('a budget that an answer overdrew refuses the next call', async () => {
  const { caller, upstream } = await begun();
  upstream.write('data: {"choices":[],"usage":{"total_tokens":1000000}}\n\n');
  upstream.end(DONE);
  await caller.end;
  const { id } = await settled(caller);
  const ledger = await world.store.effectLedger('demo', id);
  expect(ledger.map(({ kind }) => kind)).toContain('budget.overdraft');
  const refused = await call();
  expect(refused.response.headers['svc-decision']).toBe('denied_budget');
  await refused.end;
});
