import { expect, test } from 'vitest';
import { LARGE_TEXT } from '../../../src/json/strict.ts';
import type { JsonObject } from '../../../src/json/value.ts';
import { INSPECTOR } from '../../../src/upstreams/mcp/inspect-server.ts';
import type { PipeEvents } from '../../../src/upstreams/mcp/pipe/pipe.ts';
import { PipeServer } from '../../../src/upstreams/mcp/pipe/pipe-server.ts';
import { ask } from '../mcp-stdio/ask.ts';

/** A server over a pipe that answers `initialize`, and then only what the test has it say. */
async function begun({ most = 1, gone = Promise.resolve() } = {}) {
  const sent: JsonObject[] = [];
  /** How its pipes were ended. */
  const ended: string[] = [];
  let becomes: 'taken' | 'refused' | 'lost' = 'taken';
  let events: PipeEvents | null = null;
  const says = (line: string): void => events?.line(Buffer.from(line));
  const say = (message: JsonObject): void => says(JSON.stringify({ jsonrpc: '2.0', ...message }));
  let isPaused = false;
  const server = new PipeServer(
    {
      open: (heard) => {
        events = heard;
        return {
          pid: null,
          gone,
          send: (message, _headers, sending) => {
            if (!sending.start()) return;
            if (becomes === 'refused') return sending.refused(503, Buffer.from('{"not":"taken"}'));
            if (becomes === 'lost') return sending.lost(new Error('it broke'));
            const asked: JsonObject = JSON.parse(message.toString('utf8'));
            sent.push(asked);
            sending.taken();
            if (asked['method'] === 'initialize') setImmediate(say, { id: 0, result: {} });
          },
          pause: () => {
            isPaused = true;
          },
          resume: () => {
            isPaused = false;
          },
          end: () => void ended.push('end'),
          kill: (why) => void ended.push(why),
        };
      },
      most,
      idleMs: 60_000,
      mostWaitMs: 0,
    },
    () => 0,
  );
  const begin = async (holder: string): Promise<string> => {
    const asked = ask(server, 'POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} }, { holder });
    await asked.end;
    return String(asked.headers['mcp-session-id']);
  };
  const session = await begin('bot');
  const call = (id: number | string) =>
    ask(server, 'POST', { jsonrpc: '2.0', id, method: 'tools/call', params: {} }, { session });
  const over = (why: string): void => events?.over(why);
  const set = (next: typeof becomes): void => {
    becomes = next;
  };
  const own = { server, session, begin, sent, ended, set };
  return { ...own, say, says, over, call, isPaused: () => isPaused };
}

test('an id that is still open, and more requests than one session may have, are refused and not sent', async () => {
  const { server, sent, say, call } = await begun();
  const open = call(1);
  expect(call(1).status).toBe(400);
  // A text is another id than the number that looks like it.
  call('1');
  expect(sent.length).toBe(3);
  say({ id: 1, result: { n: 1 } });
  await open.end;
  expect(JSON.parse(open.text)).toMatchObject({ id: 1, result: { n: 1 } });
  for (let id = 2; id < 300; id += 1) call(id);
  expect(sent.length).toBe(1 + 1 + 256);
  expect(call(300).status).toBe(400);
  await server.close();
});

test('what the server says while nobody listens waits, up to a bound; beyond it, a question hears so', async () => {
  const { server, session, sent, say } = await begun();
  for (let at = 0; at < 100; at += 1) say({ method: 'notifications/message', params: { at } });
  say({ id: 'q', method: 'roots/list' });
  // What is no question is not answered.
  expect(sent.slice(1)).toMatchObject([{ id: 'q', error: { message: 'Nobody listens.' } }]);
  const listening = ask(server, 'GET', null, { session });
  await listening.head;
  expect(listening.text.match(/^data: /gm)?.length).toBe(64);
  expect(listening.text).toContain('"at":63');
  say({ id: 'q2', method: 'roots/list' });
  expect(listening.text).toContain('"q2"');
  await server.close();
});

test('what waited and was heard makes room: over a long session nothing is lost', async () => {
  const { server, session, say } = await begun();
  for (let round = 0; round < 3; round += 1) {
    // Two rounds are more than may wait at a time.
    for (let at = 0; at < 60; at += 1)
      say({ method: 'notifications/message', params: { round, at, data: 'x'.repeat(10_000) } });
    const listening = ask(server, 'GET', null, { session });
    await listening.head;
    expect(listening.text.match(/^data: /gm)?.length, `round ${round}`).toBe(60);
    listening.controller?.abort(new Error('it has left'));
    await expect(listening.end).rejects.toThrow('it has left');
  }
  await server.close();
});

const LONG = 'x'.repeat(LARGE_TEXT);

test('a long message is read in parts: the pipe waits, and what comes behind it comes after it', async () => {
  const { server, session, say, over, call, isPaused } = await begun();
  const listening = ask(server, 'GET', null, { session });
  await listening.head;
  const [one, two, three] = [call(1), call(2), call(3)];
  say({ method: 'notifications/message', params: { data: LONG } });
  say({ id: 1, result: { text: LONG } });
  say({ method: 'notifications/message', params: { data: 'last' } });
  say({ id: 2, result: {} });
  over('it ended');
  expect([isPaused(), listening.text, one.status, two.status]).toEqual([true, '', 0, 0]);
  await Promise.all([one.end, two.end, listening.end]);
  await expect(three.end).rejects.toThrow('it ended');
  expect(JSON.parse(one.text)).toMatchObject({ result: { text: LONG } });
  const said = listening.text.trim().split('\n\n');
  expect(said.map((event) => JSON.parse(event.slice(event.indexOf('{'))).params.data)).toEqual([LONG, 'last']);
  await server.close();
});

test('a long message that is not strict leaves nobody waiting, and the session goes on', async () => {
  const { server, says, say, call, isPaused } = await begun();
  const [one, two] = [call(1), call(2)];
  // What is no message is for nobody.
  says(LONG);
  says(`{"jsonrpc":"2.0","id":1,"id":2,"result":{"text":"${LONG}"}}`);
  for (const { end } of [one, two]) await expect(end).rejects.toThrow('the name "id" stands twice');
  expect(isPaused()).toBe(false);
  // Nor are their ids taken any more, or what stands before a message a way around.
  const again = call(1);
  says(`\t {"jsonrpc":"2.0","id":1,"id":2,"result":{"text":"${LONG}"}}`);
  await expect(again.end).rejects.toThrow('the name "id" stands twice');
  const three = call(3);
  say({ id: 3, result: {} });
  await three.end;
  await server.close();
});

test('a short message behind a long one is taken as it would be alone', async () => {
  const { server, says, call } = await begun();
  // The same name twice: what a long one may not have.
  const short = (id: number): string => `{"jsonrpc":"2.0","id":${id},"result":{"n":1,"n":2}}`;
  const alone = call(1);
  says(short(1));
  const behind = call(2);
  says(LONG);
  says(short(2));
  await Promise.all([alone.end, behind.end]);
  expect([alone.text, behind.text]).toEqual([short(1), short(2)]);
  await server.close();
});

test.each([
  ['short', ''],
  ['long', LONG],
])('line breaks between the parts of a %s message are none in its event', async (_name, text) => {
  const { server, session, says } = await begun();
  const listening = ask(server, 'GET', null, { session });
  await listening.head;
  says(`{"jsonrpc":"2.0",\r\n"method":\n"x",\r"params":{"text":"${text}"}}`);
  await expect.poll(() => listening.text).toContain('}}\n\n');
  const [type, data, ...others] = listening.text.split(/[\r\n]/);
  expect([type, others]).toEqual(['event: message', ['', '']]);
  expect(JSON.parse(data?.slice(6) ?? '')).toMatchObject({ method: 'x', params: { text } });
  await server.close();
});

/** A server whose pipes come up as the test says, by a clock of the test. */
function opening(settings: { readonly most: number; readonly mostWaitMs: number }) {
  let now = 0;
  let comesUp: boolean | 'and refuses' = true;
  const server = new PipeServer(
    {
      open: (heard) => ({
        pid: null,
        gone: Promise.resolve(),
        send: (_message, _headers, sending) => {
          if (!sending.start()) return;
          sending.taken();
          setImmediate(() => {
            const says = comesUp === true ? '"result":{}' : '"error":{}';
            if (comesUp !== false) heard.line(Buffer.from(`{"jsonrpc":"2.0","id":0,${says}}`));
            if (comesUp !== true) heard.over('it has no database');
          });
        },
        pause: () => undefined,
        resume: () => undefined,
        end: () => undefined,
        kill: () => undefined,
      }),
      idleMs: 60_000,
      ...settings,
    },
    () => now,
  );
  const begin = async (holder = 'bot'): Promise<string> => {
    const asked = ask(server, 'POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} }, { holder });
    await asked.end.catch(() => undefined);
    return `${asked.status} ${/tried again in \d+ ms; last: \w[\w ]+/.exec(asked.text)?.[0] ?? ''}`.trim();
  };
  const pass = (ms: number): void => {
    now += ms;
  };
  const set = (isUp: typeof comesUp): void => {
    comesUp = isUp;
  };
  return { server, begin, pass, set };
}

test('one that does not come up is tried again later and later, up to a bound; once it has, soon again', async () => {
  const { server, begin, pass, set } = opening({ most: 4, mostWaitMs: 600 });
  set(false);
  for (const wait of [250, 500, 600, 600]) {
    expect(await begin()).toBe('502');
    expect(await begin()).toBe(`503 tried again in ${wait} ms; last: it has no database`);
    pass(wait);
  }
  set(true);
  expect(await begin()).toBe('200');
  set(false);
  expect(await begin()).toBe('502');
  expect(await begin()).toBe('503 tried again in 250 ms; last: it has no database');
  await server.close();
});

test('a look of the gateway itself takes no place of an agent, and needs none', async () => {
  const { server, begin } = opening({ most: 1, mostWaitMs: 0 });
  expect(await begin(INSPECTOR)).toBe('200');
  expect(await begin()).toBe('200');
  expect(await begin(INSPECTOR)).toBe('200');
  expect(await begin('cat')).toBe('503');
  await server.close();
});

test('a client that leaves while it does not read holds up nobody', async () => {
  const { server, session, say, isPaused, call } = await begun();
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { _meta: { progressToken: 'p' } } };
  const paused = ask(server, 'POST', message, { session, pause: true });
  const other = call(2);
  say({ method: 'notifications/progress', params: { progressToken: 'p', progress: 1 } });
  await paused.head;
  expect(isPaused()).toBe(true);
  paused.controller?.abort(new Error('it has left'));
  await expect(paused.end).rejects.toThrow('it has left');
  expect(isPaused()).toBe(false);
  // So does the stream of the session.
  const listening = ask(server, 'GET', null, { session, pause: true });
  await listening.head;
  expect(isPaused()).toBe(true);
  listening.controller?.resume();
  expect(isPaused()).toBe(false);
  say({ id: 2, result: {} });
  await other.end;
  await server.close();
});

test('a session that is held back, or that the server refuses, is none; its stream ends with it', async () => {
  const { server, session, over } = await begun();
  const gate = (): void => {
    throw new Error('paused');
  };
  const listening = ask(server, 'GET', null, { session });
  await listening.head;
  over('it ended');
  await listening.end;
  expect(server.report()).toEqual({ running: 0, failures: 0, lastEnd: 'it ended' });
  const held = ask(server, 'POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} }, { gate });
  await expect(held.end).rejects.toThrow('paused');
  expect(server.report().running).toBe(0);
  await server.close();
  const after = ask(server, 'POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} });
  await after.end;
  expect([after.status, after.text]).toEqual([503, expect.stringContaining('the gateway is ending')]);
});

test('one that answers the first request with an error and ends has not come up', async () => {
  const { server, begin, set } = opening({ most: 4, mostWaitMs: 600 });
  set('and refuses');
  expect(await begin()).toBe('200');
  expect(await begin()).toBe('503 tried again in 250 ms; last: it has no database');
  expect(server.report()).toMatchObject({ running: 0, failures: 1 });
  await server.close();
});

test('one that cannot be opened is no session, and its client hears why', async () => {
  const open = (): never => {
    throw new Error('no descriptors are left');
  };
  const server = new PipeServer({ open, most: 1, idleMs: 60_000, mostWaitMs: 600 }, () => 0);
  const asked = ask(server, 'POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} });
  await asked.end;
  expect([asked.status, asked.text]).toEqual([502, expect.stringContaining('no descriptors are left')]);
  expect(server.report().running).toBe(0);
  await server.close();
});

test('what is asked in no session, or in the wrong way, is refused and not sent', async () => {
  const { server, session, sent } = await begun();
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
  for (const [method, message, of, refusal] of [
    ['GET', null, undefined, [404, -32_001]],
    ['DELETE', null, 'other', [404, -32_001]],
    ['POST', list, 'other', [404, -32_001]],
    ['POST', list, undefined, [400, -32_600]],
    ['POST', 'no message', session, [400, -32_700]],
    ['PUT', list, session, [405, -32_000]],
  ] as const) {
    const asked = ask(server, method, message, of === undefined ? {} : { session: of });
    await asked.end;
    const { id, error } = JSON.parse(asked.text);
    expect([asked.status, error.code, id], `${method} ${String(of)}`).toEqual([...refusal, null]);
  }
  expect(sent).toHaveLength(1);
  // A session that is begun twice is one.
  ask(server, 'POST', { jsonrpc: '2.0', id: 2, method: 'initialize' }, { session });
  expect([sent.length, server.report().running]).toEqual([2, 1]);
  await server.close();
});

test('a session ends when its client says so, unless that is held back; what its server does then is waited for', async () => {
  let leave = (): void => undefined;
  const gone = new Promise<void>((resolve) => (leave = resolve));
  const { server, session, ended } = await begun({ gone });
  const gate = (): void => {
    throw new Error('paused');
  };
  await expect(ask(server, 'DELETE', null, { session, gate }).end).rejects.toThrow('paused');
  expect([ended, server.report().running]).toEqual([[], 1]);
  const asked = ask(server, 'DELETE', null, { session });
  await asked.end;
  expect([asked.status, ended, server.report().running]).toEqual([200, ['end'], 0]);
  let isClosed = false;
  const closing = server.close().then(() => (isClosed = true));
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  expect(isClosed).toBe(false);
  leave();
  await closing;
});

test.each(['close', 'destroy'] as const)(
  'at the end (%s) sessions that had made room end with all others',
  async (end) => {
    const { server, session, begin, ended } = await begun({ most: 2 });
    const again = await begin('bot');
    for (const of of [session, again])
      ask(server, 'POST', { jsonrpc: '2.0', id: 1, method: 'tools/call', params: {} }, { session: of });
    await begin('cat');
    expect([ended, server.report().running]).toEqual([[], 3]);
    await server[end]();
    expect(ended.filter((how) => how === 'end')).toHaveLength(3);
    expect(ended.filter((how) => how === 'the gateway is ending')).toHaveLength(end === 'destroy' ? 3 : 0);
  },
);

test('the id of a request that was held back, refused or lost is free again', async () => {
  const { server, session, set, call } = await begun();
  const gate = (): void => {
    throw new Error('paused');
  };
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: {} };
  await expect(ask(server, 'POST', message, { session, gate }).end).rejects.toThrow('paused');
  set('refused');
  const refused = call(1);
  await refused.end;
  expect([refused.status, refused.text]).toEqual([503, '{"not":"taken"}']);
  set('lost');
  await expect(call(1).end).rejects.toThrow('it broke');
  set('taken');
  expect(call(1).status).toBe(0);
  // What gets no answer is taken as such.
  expect(ask(server, 'POST', { jsonrpc: '2.0', method: 'notifications/x' }, { session }).status).toBe(202);
  await server.close();
});

test('what the server says is heard by whom it is for: the only request that is open, else the stream of the session', async () => {
  const { server, session, say, call } = await begun();
  const note = (data: string, more: JsonObject = {}): void =>
    say({ method: 'notifications/progress', params: { data, ...more } });
  const left = call(1);
  left.controller?.abort(new Error('it has left'));
  note('waits');
  const gate = (): void => {
    throw new Error('paused');
  };
  await expect(ask(server, 'GET', null, { session, gate }).end).rejects.toThrow('paused');
  const listening = ask(server, 'GET', null, { session });
  await listening.head;
  const only = call(2);
  note('for the only one');
  const other = call(3);
  // Neither has said a token.
  note('for nobody of two');
  const said = [listening, only, other].map(({ text }) =>
    [...text.matchAll(/"data":"([^"]*)"/g)].map(([, data]) => data),
  );
  expect(said).toEqual([['waits', 'for nobody of two'], ['for the only one'], []]);
  await server.close();
});

test('what waits for a listener is at most a mebibyte', async () => {
  const { server, session, say } = await begun();
  for (let at = 0; at < 40; at += 1) say({ method: 'notifications/message', params: { data: 'x'.repeat(30_000) } });
  const listening = ask(server, 'GET', null, { session });
  await listening.head;
  expect(listening.text.match(/^data: /gm)?.length).toBe(Math.floor((1024 * 1024) / 30_100));
  await server.close();
});
