import { type NetConnectOpts, Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import { guardedConnector } from '../../src/upstreams/http/connect.ts';

/*
 * Where a connection goes, and what is said of one that does not come about: each ends as the test has it end.
 */

let asked: NetConnectOpts | null = null;
let code: string | undefined;
vi.mock('node:net', async (original) => {
  const net = await original<typeof import('node:net')>();
  const connect = (options: NetConnectOpts) => {
    asked = options;
    const error = Object.assign(new Error('connect 10.0.0.7:8443, db.internal'), code === undefined ? {} : { code });
    return new Socket().destroy(error);
  };
  return { ...net, connect };
});

function failed(target: { readonly hostname: string; readonly protocol: string; readonly port: string }) {
  return new Promise<string | undefined>((resolve) => {
    const connector = guardedConnector({ network: 'any', timeoutMs: 60_000, tls: null }, () => undefined);
    connector(target, (...[error]) => resolve(error?.message));
  });
}

test.each([
  ['http:', '', 80],
  ['https:', '', 443],
  ['http:', '8080', 8080],
  ['https:', '8443', 8443],
])('%s with the port "%s" is port %i', async (protocol, port, expected) => {
  await failed({ hostname: 'api.example', protocol, port });
  expect(asked).toMatchObject({ host: 'api.example', port: expected, noDelay: true, keepAlive: true });
});

test('an address of IPv6 is connected to without its brackets', async () => {
  await failed({ hostname: '[2606:4700::1111]', protocol: 'https:', port: '' });
  expect(asked).toMatchObject({ host: '2606:4700::1111' });
});

test.each([
  ['ECONNREFUSED', 'the upstream refuses connections'],
  ['ENOTFOUND', "the upstream's name does not resolve"],
  ['EAI_AGAIN', "the upstream's name does not resolve"],
  ['EHOSTUNREACH', 'the upstream cannot be reached from here'],
  ['ENETUNREACH', 'the upstream cannot be reached from here'],
  ['ETIMEDOUT', 'the connection did not come about (ETIMEDOUT)'],
  [undefined, 'the connection did not come about'],
])('of %s is said what it means, and neither name nor address', async (given, words) => {
  code = given;
  expect(await failed({ hostname: 'db.internal', protocol: 'http:', port: '8443' })).toBe(words);
});
