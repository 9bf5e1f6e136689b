import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freshKey, startWorld, type World } from '../system/world.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world.close());

/** Status and text of each answer to bytes on a socket; the connection is closed by the gateway. */
async function rawAnswers(text: string): Promise<{ readonly statuses: readonly number[]; readonly text: string }> {
  const { hostname, port } = new URL(world.gateway.url);
  const socket = connect(Number(port), hostname);
  socket.write(text);
  let got = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    got += chunk;
  });
  socket.on('error', () => undefined);
  await once(socket, 'close');
  return { statuses: [...got.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status)), text: got };
}

describe('path tricks on every prefix: nobody gets past a door by spelling', () => {
  const PREFIXES = [
    '/v1',
    '/state',
    '/outcomes',
    '/docs',
    '/.well-known',
    '/openapi.json',
    '/livez',
    '/metrics',
    '/payments',
  ];
  const TRICKS: readonly ((prefix: string) => string)[] = [
    (prefix) => `${prefix}/../payments/v1/payments/pay_1`,
    (prefix) => `${prefix}/..%2fpayments/v1/payments/pay_1`,
    (prefix) => `${prefix}/%2e%2e/payments/v1/payments/pay_1`,
    (prefix) => `${prefix}/.%2e/payments/v1/payments/pay_1`,
    (prefix) => `${prefix}/..;/payments/v1/payments/pay_1`,
    (prefix) => `${prefix}/..\\payments\\v1\\payments\\pay_1`,
    (prefix) => `${prefix}//payments/v1/payments/pay_1`,
    (prefix) => `/${prefix}/v1/payments/pay_1`,
    (prefix) => `${prefix}%00/v1/payments/pay_1`,
    (prefix) => `${prefix}%2fv1/payments/pay_1`,
    (prefix) => `/payments/../${prefix.slice(1)}/v1/payments/pay_1`,
    (prefix) => `${prefix.toUpperCase()}/v1/payments/pay_1`,
    (prefix) => `http://127.0.0.1:1${prefix}/v1/payments/pay_1`,
    (prefix) => `${prefix}/%c0%ae%c0%ae/payments/v1/payments/pay_1`,
    (prefix) => `${prefix}/v1/payments/pay_1%`,
  ];
  test.each(PREFIXES)('%s', async (prefix) => {
    const { host } = new URL(world.gateway.url);
    for (const trick of TRICKS) {
      const path = trick(prefix);
      const got = await rawAnswers(
        `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nX-API-Key: ${world.keys.bot}\r\nConnection: close\r\n\r\n`,
      );
      expect(got.statuses.length, path).toBe(1);
      expect(got.statuses[0], path).toBeGreaterThanOrEqual(400);
      expect(got.statuses[0], path).toBeLessThan(500);
      expect(got.text, path).toMatch(/x-should-retry: false/i);
    }
  });

  test('a write by a trick runs nothing either, with and without a key', async () => {
    const { host } = new URL(world.gateway.url);
    const body = '{"text":"x"}';
    for (const path of [
      '/v1/../payments/v1/notes',
      '/payments//v1/notes',
      '/payments/./v1/notes',
      '//payments/v1/notes',
      '/payments/v1/notes/',
      '/payments/v1/notes;x=1',
    ]) {
      for (const key of [`X-API-Key: ${world.keys.bot}\r\n`, '']) {
        const got = await rawAnswers(
          `POST ${path} HTTP/1.1\r\nHost: ${host}\r\n${key}Idempotency-Key: ${freshKey()}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
        );
        expect(got.statuses[0], path).toBeGreaterThanOrEqual(400);
        expect(got.statuses[0], path).toBeLessThan(500);
      }
    }
  });
});

test('after all of this nothing was executed, and no 500 was answered', async () => {
  expect(await world.upstream.counts()).toMatchObject({ requests: 0, effects: 0 });
  expect(world.gateway.log()).not.toMatch(/"status":50\d|a request failed inside the gateway/);
});
