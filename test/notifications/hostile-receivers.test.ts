import { createServer as createWebServer } from 'node:http';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, expect, it, onTestFinished } from 'vitest';
import type { Attempted, Receiver } from '../../src/effects/model/notification.ts';
import type { Message } from '../../src/notifications/message.ts';
import { send } from '../../src/notifications/send.ts';
import { postOnce } from '../../src/upstreams/http/request-once.ts';
import { longestHold } from '../longest-hold.ts';

/*
 * Receivers that mean harm: each attempt ends in its time, keeps no connection, and takes neither memory nor the
 * thread. What they do runs in this process too, so the bounds are wider than those of a gateway.
 */

const MESSAGE: Message = {
  id: 'msg_1',
  event: 'execution.lost',
  at: 0,
  title: 'A call\r\nBcc: other@svc.test',
  facts: [],
  link: { url: 'http://gateway.test/console', words: 'Look' },
  body: {},
};
const COMMON = { id: 'ops', name: 'ops', events: ['execution.lost'], workspaces: null, network: 'any' } as const;
const RETRIES = { retryFirstMs: 1_000, retryForMs: 1_000 } as const;

/** No answer within 10 s is a failure. */
const MOST_MS = 10_000;

const servers: Server[] = [];
const sockets = new Set<Socket>();
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  for (const server of servers.splice(0)) server.close();
});

/** A server that is told of each connection, and of each piece that comes on it. */
async function listening(
  greet: (socket: Socket) => void,
  hear: (socket: Socket, text: string) => void,
): Promise<number> {
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
    socket.on('data', (piece) => hear(socket, piece.toString()));
    greet(socket);
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

/** Sends as fast as it is taken, until the other side is gone. */
function flood(socket: Socket, piece: string): void {
  const more = (): void => {
    while (!socket.destroyed && socket.write(piece));
    if (!socket.destroyed) socket.once('drain', () => setImmediate(more));
  };
  more();
}

function drip(socket: Socket, text: string, everyMs: number): void {
  let at = 0;
  const timer = setInterval(() => {
    if (socket.destroyed) clearInterval(timer);
    else socket.write(text[at++ % text.length] ?? '');
  }, everyMs);
  socket.once('close', () => clearInterval(timer));
}

async function attempt(receiver: Receiver): Promise<Attempted> {
  return (await attempts([receiver]))[0]!;
}

async function attempts(receivers: readonly Receiver[]): Promise<readonly Attempted[]> {
  const before = process.memoryUsage().rss;
  const began = performance.now();
  let became: readonly Attempted[] = [];
  const held = await longestHold(async () => {
    became = await Promise.all(receivers.map((receiver) => send(receiver, MESSAGE, 0)));
  });
  expect(performance.now() - began).toBeLessThan(MOST_MS + 3_000);
  expect(held).toBeLessThan(100);
  expect((process.memoryUsage().rss - before) / 1e6).toBeLessThan(150);
  await expect.poll(() => sockets.size).toBe(0);
  return became;
}

const webhookAt = (port: number, path = '/'): Receiver => ({
  ...COMMON,
  ...RETRIES,
  format: 'standard',
  url: `http://127.0.0.1:${port}${path}`,
  secrets: [],
});

const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n';
it.each<[string, (socket: Socket) => void, Attempted['kind']]>([
  [
    'says 103 without end',
    (socket) => flood(socket, 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'.repeat(500)),
    'failed',
  ],
  ['says 100 without end', (socket) => flood(socket, 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(500)), 'failed'],
  [
    'has headers without end',
    (socket) => flood(socket, `${socket.bytesWritten === 0 ? HEAD : ''}${'x-a: b\r\n'.repeat(500)}`),
    'failed',
  ],
  ['has a body without end', (socket) => (socket.write(`${HEAD}\r\n`), flood(socket, 'x'.repeat(60_000))), 'delivered'],
  [
    'has chunks without end',
    (socket) => (socket.write(`${HEAD}transfer-encoding: chunked\r\n\r\n`), flood(socket, '1\r\nx\r\n'.repeat(2_000))),
    'delivered',
  ],
])('a webhook that %s', async (_, answer, kind) => {
  const answered = new Set<Socket>();
  const port = await listening(
    () => undefined,
    (socket) => {
      if (!answered.has(socket)) answer(answered.add(socket) && socket);
    },
  );
  expect((await attempt(webhookAt(port))).kind).toBe(kind);
});

it('a redirect to an address inside is not followed', async () => {
  const seen: string[] = [];
  const web = createWebServer((request, response) => {
    seen.push(request.url ?? '');
    response.writeHead(307, { location: '/inside' }).end();
  });
  servers.push(web);
  await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
  const became = await attempt(webhookAt((web.address() as AddressInfo).port, '/hook'));
  expect([became, seen]).toEqual([expect.objectContaining({ kind: 'failed' }), ['/hook']]);
});

/** The phases of a mail, by the command that a server hears, and its answer. */
const PHASES: readonly (readonly [command: string, answer: string])[] = [
  ['', '220 mail.test ESMTP\r\n'],
  ['EHLO', '250-mail.test\r\n250 AUTH PLAIN LOGIN\r\n'],
  ['AUTH', '235 in\r\n'],
  ['MAIL', '250 sender\r\n'],
  ['RCPT', '250 recipient\r\n'],
  ['DATA', '354 go on\r\n'],
  ['.', '250 taken\r\n'],
];

const mailTo = (port: number): Receiver => ({
  ...COMMON,
  ...RETRIES,
  format: 'mail',
  server: { host: '127.0.0.1', port, tls: 'none', user: 'gateway', password: 'canary' },
  from: 'gateway@svc.test',
  to: ['ops@svc.test'],
});

/** A mail server that does what it should up to a phase, and something else in it. @returns its port, and what it heard */
async function mailServer(phase: string, instead: (socket: Socket) => void) {
  let heard = '';
  const port = await listening(
    (socket) => (phase === '' ? instead(socket) : socket.write(PHASES[0]?.[1] ?? '')),
    (socket, text) => {
      heard += text;
      const command = /^(EHLO|AUTH|MAIL|RCPT|DATA)/.exec(text)?.[1] ?? (/(?:^|\r\n)\.\r\n$/.test(text) ? '.' : null);
      const answer = PHASES.find(([name]) => name !== '' && name === command)?.[1];
      if (command !== null && command === phase) instead(socket);
      else if (answer !== undefined) socket.write(answer);
      else if (text.startsWith('QUIT')) socket.end('221 bye\r\n');
    },
  );
  return { port, heard: () => heard };
}

const WAYS: readonly (readonly [string, (socket: Socket) => void])[] = [
  ['has a reply of lines without end', (socket) => flood(socket, '250-more\r\n'.repeat(5_000))],
  [
    'has a line without end',
    (socket) => flood(socket, `${socket.bytesWritten < 500 ? '250-' : ''}${'x'.repeat(60_000)}`),
  ],
];

it.each(
  PHASES.flatMap(([phase]) =>
    WAYS.map(([how, instead]) => [phase === '' ? 'greeting' : phase, how, phase, instead] as const),
  ),
)('a mail server that in %s %s', async (_phase, _how, phase, instead) => {
  const { port } = await mailServer(phase, instead);
  expect((await attempt(mailTo(port))).kind).toBe('failed');
});

it('receivers that stall or drip, in whatever they say, all at once', async () => {
  const webhooks: readonly ((socket: Socket) => void)[] = [
    () => undefined,
    (socket) => drip(socket, `${HEAD}${'x-a: b\r\n'.repeat(9_999)}`, 50),
    (socket) => (socket.write(`${HEAD}\r\n`), drip(socket, 'x', 100)),
    (socket) => (socket.write(`${HEAD}transfer-encoding: chunked\r\n\r\n`), drip(socket, '0', 100)),
  ];
  const ports = await Promise.all(webhooks.map((answer) => listening(() => undefined, answer)));
  const stalls: typeof WAYS = [
    ['says nothing', () => undefined],
    ['drips', (socket) => drip(socket, '250-x\r\n', 100)],
  ];
  const mails = PHASES.flatMap(([phase]) => stalls.map(([, instead]) => mailServer(phase, instead)));
  const receivers = [
    ...ports.map((port) => webhookAt(port)),
    ...(await Promise.all(mails)).map(({ port }) => mailTo(port)),
  ];
  const became = await attempts(receivers);
  // What comes behind the head of an answer changes nothing.
  const kinds = Array(receivers.length).fill('failed').fill('delivered', 2, 4);
  expect(became.map(({ kind }) => kind)).toEqual(kinds);
  const reasons = new Set(became.map((one) => (one.kind === 'failed' ? one.why : null)));
  expect(reasons).toEqual(new Set([null, 'it did not answer within 10 s']));
});

it('an attempt ends in its time, whatever is collected as garbage meanwhile', async () => {
  const port = await listening(
    () => undefined,
    () => undefined,
  );
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  const collecting = setInterval(collect, 20);
  onTestFinished(() => clearInterval(collecting));
  const url = `http://127.0.0.1:${port}/`;
  const attempted = postOnce({ method: 'POST', url, headers: {}, body: '{}', network: 'any', timeoutMs: 300 });
  await expect(Promise.race([attempted, delay(5_000)])).rejects.toMatchObject({ name: 'TimeoutError' });
});

it('a title with line ends makes no header', async () => {
  const { port, heard } = await mailServer('none', () => undefined);
  expect(await attempt(mailTo(port))).toEqual({ kind: 'delivered' });
  const [head = ''] = (heard().split('DATA\r\n')[1] ?? '').split('\r\n\r\n');
  expect(head).toContain('Subject: [svc] A call Bcc: other@svc.test');
  expect(head).not.toMatch(/^bcc:/im);
});
