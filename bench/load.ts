import { connect, type Socket } from 'node:net';
import { once } from 'node:events';

/**
 * The load is made over plain sockets: a client library would use as much of a core as the servers that it measures. One
 * request is under way on a connection at a time.
 */
export interface Load {
  readonly url: string;
  readonly connections: number;
  /** The next request, as {@link requestOf} makes them; `null`: no more. */
  next(): string | null;
  /** Statuses that the answers may have. */
  readonly expected: readonly number[];
}

export interface Loaded {
  readonly calls: number;
  readonly ms: number;
  /** Of each call, ms, in the order of the answers. */
  readonly times: readonly number[];
}

/** Sends requests until there are no more. @throws when an answer has another status than expected */
export async function load({ url, connections, next, expected }: Load): Promise<Loaded> {
  const { hostname, port } = new URL(url);
  const sockets = await Promise.all(
    Array.from({ length: connections }, async () => {
      const socket = connect({ host: hostname, port: Number(port), noDelay: true });
      await once(socket, 'connect');
      return socket;
    }),
  );
  const times: number[] = [];
  const begun = performance.now();
  try {
    await Promise.all(sockets.map((socket) => callsOn(socket, next, expected, times)));
    return { calls: times.length, ms: performance.now() - begun, times };
  } finally {
    for (const socket of sockets) socket.destroy();
  }
}

function callsOn(
  socket: Socket,
  next: () => string | null,
  expected: readonly number[],
  times: number[],
): Promise<void> {
  return new Promise((resolve, reject) => {
    let received = '';
    let sent = 0;
    function send(): void {
      const request = next();
      if (request === null) {
        resolve();
        return;
      }
      sent = performance.now();
      socket.write(request);
    }
    // Bytes as characters: lengths are those of the wire.
    socket.setEncoding('latin1').on('data', (text: string) => {
      received = received === '' ? text : received + text;
      const head = received.indexOf('\r\n\r\n');
      if (head === -1) return;
      if (!isWhole(received, head)) return;
      const status = Number(received.slice(9, 12));
      if (!expected.includes(status)) {
        reject(new Error(`an answer that was not expected: ${received}`));
        return;
      }
      received = '';
      times.push(performance.now() - sent);
      send();
    });
    socket.on('error', reject).on('close', () => reject(new Error('the server ended a connection')));
    send();
  });
}

/** Whether an answer has come whole. @param head where its head ends. @throws when it has neither length nor chunks */
function isWhole(received: string, head: number): boolean {
  const length = /\r\ncontent-length: *(\d+)/i.exec(received)?.[1];
  if (length !== undefined) return received.length >= head + 4 + Number(length);
  if (!/\r\ntransfer-encoding: *chunked/i.test(received.slice(0, head)))
    throw new Error(`an answer without a length: ${received.slice(0, head)}`);
  return received.endsWith('\r\n\r\n') && received.includes('\r\n0\r\n', head);
}

/** One request of HTTP/1.1 as it goes onto a socket. */
export function requestOf(
  method: 'GET' | 'POST',
  path: string,
  headers: Readonly<Record<string, string>>,
  body: string | null,
  type = 'application/json',
): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const about = body === null ? '' : `content-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n`;
  return `${method} ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\n${lines.join('')}${about}\r\n${body ?? ''}`;
}

let calls = 0;

const REFUND = JSON.stringify({ amount: 1200, currency: 'EUR', reason: 'customer asked' });

/** A refund with an idempotency key of its own. */
export function newWrite(key: string): string {
  calls += 1;
  return write(key, `bench-${process.pid}-${calls}`, `pay_${calls}`, REFUND);
}

/** A refund under a given key of a given payment. */
export function write(key: string, idempotencyKey: string, payment: string, body: string = REFUND): string {
  const headers = { 'x-api-key': key, 'idempotency-key': idempotencyKey };
  return requestOf('POST', `/payments/v1/payments/${payment}/refunds`, headers, body);
}

const REFUND_FORM = new URLSearchParams({ amount: '1200', currency: 'EUR', reason: 'customer asked' }).toString();

/** The same refund as a form, with an idempotency key of its own. */
export function newFormWrite(key: string): string {
  calls += 1;
  const headers = { 'x-api-key': key, 'idempotency-key': `bench-${process.pid}-${calls}` };
  const path = `/forms/v1/payments/pay_${calls}/refunds`;
  return requestOf('POST', path, headers, REFUND_FORM, 'application/x-www-form-urlencoded');
}

/** A read of another payment each time. */
export function newRead(key: string): string {
  calls += 1;
  return requestOf('GET', `/payments/v1/payments/pay_${calls}`, { 'x-api-key': key }, null);
}

/** So many requests of a kind, and no more. */
export function count(most: number, make: () => string): () => string | null {
  let left = most;
  return () => {
    left -= 1;
    return left < 0 ? null : make();
  };
}

/** Requests of a kind for so long. */
export function during(ms: number, make: () => string): () => string | null {
  const end = performance.now() + ms;
  return () => (performance.now() < end ? make() : null);
}
