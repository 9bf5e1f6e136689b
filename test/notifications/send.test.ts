import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Attempted, Receiver } from '../../src/effects/model/notification.ts';
import type { Message } from '../../src/notifications/message.ts';
import { send } from '../../src/notifications/send.ts';

/* What comes to a receiver, and what its answer means. */

const [NOW, BEFORE] = [Buffer.alloc(32, 1).toString('base64'), Buffer.alloc(32, 2).toString('base64')];
const MESSAGE: Message = {
  id: 'msg_1',
  event: 'pause.set',
  at: 0,
  title: 'Calls are paused',
  facts: [['reason', 'look']],
  link: { url: 'http://gateway.test/console', words: 'Look' },
  body: { type: 'pause.set' },
};

let server: Server;
let url = '';
let answer: { status: number; headers?: Readonly<Record<string, string>> };
let came: { headers: IncomingHttpHeaders; body: string } | null = null;

beforeAll(async () => {
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (piece: Buffer) => {
      body += piece.toString();
    });
    request.on('end', () => {
      came = { headers: request.headers, body };
      response.writeHead(answer.status, answer.headers).end();
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}/`;
});
afterAll(() => server.close());
beforeEach(() => {
  answer = { status: 200 };
  came = null;
});

const attempt = (
  format: 'standard' | 'slack',
  secrets: readonly string[],
  network: 'any' | 'public' = 'any',
): Promise<Attempted> => {
  const common = { id: 'ops', name: 'ops', events: ['pause.set'], workspaces: null, network } as const;
  const receiver: Receiver = { ...common, format, url, secrets, retryFirstMs: 1_000, retryForMs: 1_000 };
  return send(receiver, MESSAGE, Date.now());
};

/** Whether the library of receivers takes what came, by this secret. */
function isSignedBy(secret: string): boolean {
  const { 'webhook-id': id, 'webhook-timestamp': at, 'webhook-signature': signature } = came?.headers ?? {};
  const headers = { 'webhook-id': String(id), 'webhook-timestamp': String(at), 'webhook-signature': String(signature) };
  try {
    new Webhook(secret).verify(came?.body ?? '', headers);
    return true;
  } catch {
    return false;
  }
}

describe('a notification', () => {
  it.each(['standard', 'slack'] as const)(
    'is signed by the secret, while one is replaced by both, and without one by none: %s',
    async (format) => {
      await attempt(format, [NOW, BEFORE]);
      expect([isSignedBy(NOW), isSignedBy(BEFORE)]).toEqual([true, true]);
      await attempt(format, [NOW]);
      expect([isSignedBy(NOW), isSignedBy(BEFORE)]).toEqual([true, false]);
      await attempt(format, []);
      expect(came?.headers['webhook-id']).toBe('msg_1');
      expect(came?.headers['content-type']).toBe('application/json; charset=utf-8');
      expect(came?.headers['user-agent']).toMatch(/^svc-gateway\/\d+\.\d+\.\d+/);
      expect(came?.headers).not.toHaveProperty('webhook-signature');
    },
  );

  it.each(['standard', 'slack'] as const)(
    'goes to no address that is not public, where only those are allowed: %s',
    async (format) => {
      const why = "the receiver's address is refused: it is a loopback address";
      expect(await attempt(format, [NOW], 'public')).toEqual({ kind: 'failed', why, afterMs: 0 });
      expect(came).toBeNull();
    },
  );

  it.each<[number, Readonly<Record<string, string>>, Partial<Attempted>]>([
    [200, {}, { kind: 'delivered' }],
    [202, {}, { kind: 'delivered' }],
    [299, {}, { kind: 'delivered' }],
    [301, { location: '/' }, { kind: 'failed', afterMs: 0 }],
    [410, {}, { kind: 'refused' }],
    [404, {}, { kind: 'failed', afterMs: 0 }],
    [503, { 'retry-after': '7' }, { kind: 'failed', afterMs: 7_000 }],
  ])('that is answered %i with %j is %j', async (status, headers, became) => {
    answer = { status, headers };
    expect(await attempt('standard', [NOW])).toMatchObject(became);
  });
});
