import { expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json/value.ts';
import type { PipeEvents } from '../../../src/upstreams/mcp/pipe/pipe.ts';
import { PipeServer } from '../../../src/upstreams/mcp/pipe/pipe-server.ts';
import { ask } from '../mcp-stdio/ask.ts';

/** A server over a pipe that answers `initialize`, and then only what the test has it say. */
async function begun() {
  const sent: JsonObject[] = [];
  let events: PipeEvents | null = null;
  const say = (message: JsonObject): void => events?.line(Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message })));
  const server = new PipeServer(
    {
      open: (heard) => {
        events = heard;
        return {
          pid: null,
          gone: Promise.resolve(),
          send: (message, _headers, sending) => {
            if (!sending.start()) return;
            const asked: JsonObject = JSON.parse(message.toString('utf8'));
            sent.push(asked);
            sending.taken();
            if (asked['method'] === 'initialize') setImmediate(say, { id: 0, result: {} });
          },
          pause: () => undefined,
          resume: () => undefined,
          end: () => undefined,
          kill: () => undefined,
        };
      },
      most: 1,
      idleMs: 60_000,
      mostWaitMs: 0,
    },
    () => 0,
  );
  const first = ask(server, 'POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} });
  await first.end;
  const session = String(first.headers['mcp-session-id']);
  const call = (id: number | string) =>
    ask(server, 'POST', { jsonrpc: '2.0', id, method: 'tools/call', params: {} }, { session });
  return { server, session, sent, say, call };
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
  expect(sent.at(-1)).toMatchObject({ id: 'q', error: { message: 'Nobody listens.' } });
  const listening = ask(server, 'GET', null, { session });
  await listening.head;
  expect(listening.text.match(/^data: /gm)?.length).toBe(64);
  expect(listening.text).toContain('"at":63');
  say({ id: 'q2', method: 'roots/list' });
  expect(listening.text).toContain('"q2"');
  await server.close();
});
