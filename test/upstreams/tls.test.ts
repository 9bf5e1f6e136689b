import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type AddressInfo } from 'node:net';
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import type { UpstreamResult, UpstreamTls } from '../../src/effects/upstream.ts';
import { handshakeFault } from '../../src/upstreams/http/tls-faults.ts';
import { sameTls } from '../../src/upstreams/http/upstream-tls.ts';
import { probeUpstream } from '../../src/upstreams/http/probe.ts';
import { Keeper } from '../../src/upstreams/mcp/stdio/keeper.ts';
import { openThrough } from '../../src/upstreams/mcp/through.ts';
import { createUpstreams, type Upstreams } from '../../src/upstreams/upstreams.ts';
import { type Issued, makeCa, type TestCa } from '../upstream/certificates.ts';
import { startTlsUpstream, type TlsUpstream, type TlsUpstreamOptions } from '../upstream/tls-start.ts';
import { makeDispatch, makeTool } from './tool.ts';

const LIMITS = { responseBytes: 100_000, responseKeptBytes: 1000 };
const DAY_MS = 86_400_000;

let ca: TestCa;
let other: TestCa;
let server: Issued;
let client: Issued;
let successor: Issued;
beforeAll(() => {
  ca = makeCa('secret-ca.internal');
  other = makeCa('other-ca.internal');
  server = ca.issue('localhost');
  client = ca.issue('gateway-one');
  successor = ca.issue('gateway-two');
});

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
});

async function start(options: Partial<TlsUpstreamOptions> = {}): Promise<TlsUpstream> {
  const upstream = await startTlsUpstream({ ...server, ...options });
  open.push({ close: () => upstream.stop() });
  return upstream;
}

/** An upstream that wants a certificate of the CA. */
function strict(options: Partial<TlsUpstreamOptions> = {}): Promise<TlsUpstream> {
  return start({ ca: ca.cert, requestCert: true, rejectUnauthorized: true, ...options });
}

function tlsOf(changes: Partial<UpstreamTls> = {}): UpstreamTls {
  return { ca: ca.cert, client: null, serverName: null, minVersion: 'TLSv1.2', ...changes };
}

const settingsOf = (url: string, tls: UpstreamTls | null, connections = 4) => ({
  id: 'payments',
  url,
  timeoutMs: 10_000,
  connections,
  network: 'any' as const,
  credentials: null,
  tls,
});

function connect(url: string, tls: UpstreamTls | null, connections = 4): Upstreams {
  const upstreams = createUpstreams([settingsOf(url, tls, connections)], LIMITS);
  open.push(upstreams);
  return upstreams;
}

function send(upstreams: Upstreams, path = '/refunds', kind: 'read' | 'write' = 'write'): Promise<UpstreamResult> {
  const request = { method: 'POST', path, query: [], headers: {}, body: ['amount'] };
  return upstreams.send(makeDispatch({ tool: makeTool({ request, kind, timeoutMs: 20_000 }), params: { amount: 1 } }));
}

const COMMITTED = { kind: 'committed' };
const NOT_SENT = (message: string) => ({
  kind: 'failed',
  evidence: { code: 'connect_failed', message, startedAt: null, answered: null },
});
const UNKNOWN_CA = 'TLS with the upstream failed: no CA that is trusted for it has signed its certificate';

test('a private CA is trusted for the upstream that names it, in place of those that Node trusts', async () => {
  const upstream = await start();
  expect(await send(connect(upstream.url, tlsOf()))).toMatchObject(COMMITTED);
  expect(await send(connect(upstream.url, tlsOf({ ca: `${other.cert}${ca.cert}` })))).toMatchObject(COMMITTED);
  for (const without of [null, tlsOf({ ca: null }), tlsOf({ ca: other.cert })])
    expect(await send(connect(upstream.url, without))).toMatchObject(NOT_SENT(UNKNOWN_CA));
  expect(await upstream.seen()).toHaveLength(2);
});

test.each(['TLSv1.2', 'TLSv1.3'] as const)('an upstream that speaks %s alone is spoken to', async (version) => {
  const upstream = await start({ minVersion: version, maxVersion: version });
  expect(await send(connect(upstream.url, tlsOf()))).toMatchObject(COMMITTED);
  // Without settings of TLS it comes as far as the certificate, which only this test trusts.
  expect(await send(connect(upstream.url, null))).toMatchObject(NOT_SENT(UNKNOWN_CA));
});

describe('a handshake that fails: nothing was sent, and the reason is named', () => {
  const at = (days: number): Date => new Date(Date.now() + days * DAY_MS);
  const failed = (why: string): string => `TLS with the upstream failed: ${why}`;
  test.each<[string, () => Partial<TlsUpstreamOptions>, Partial<UpstreamTls>, string]>([
    ['another CA', () => other.issue('localhost'), {}, UNKNOWN_CA],
    ['a certificate that signs itself', () => makeCa('localhost'), {}, UNKNOWN_CA],
    ['expired', () => ca.issue('localhost', { from: at(-9), to: at(-2) }), {}, failed('its certificate has expired')],
    [
      'not yet',
      () => ca.issue('localhost', { from: at(2), to: at(9) }),
      {},
      failed('its certificate is not valid yet'),
    ],
    ['another name', () => ca.issue('db.internal'), {}, failed('its certificate is for another name')],
    ['not the server_name', () => ({}), { serverName: 'db.internal' }, failed('its certificate is for another name')],
    [
      'too old',
      () => ({ maxVersion: 'TLSv1.2' }),
      { minVersion: 'TLSv1.3' },
      failed('it speaks no version of TLS that is allowed'),
    ],
    [
      'no certificate of ours, TLS 1.2',
      () => ({ ca: ca.cert, requestCert: true, rejectUnauthorized: true, maxVersion: 'TLSv1.2' }),
      {},
      failed('it agreed to no handshake: it may want a certificate of the gateway'),
    ],
  ])('%s', async (_what, options, tls, message) => {
    const upstream = await start(options());
    const upstreams = connect(upstream.url, tlsOf(tls));
    const result = await send(upstreams);
    expect(result).toMatchObject(NOT_SENT(message));
    expect(await upstreams.readState(makeTool(), { payment_id: 'p1' })).toEqual({ kind: 'unreadable', message });
    expect(await probeUpstream(settingsOf(upstream.url, tlsOf(tls)), 3000)).toEqual({ kind: 'silent', why: message });
    expect(JSON.stringify(result)).not.toMatch(/internal|localhost|127\.0\.0\.1|CN=|OpenSSL|deps/i);
    expect(await upstream.seen()).toEqual([]);
  });

  test.each([
    ['does not speak TLS', 'HTTP/1.1 400 Bad Request\r\n\r\n', 'it does not speak TLS'],
    ['speaks something like it', Buffer.from([0x16, 3, 3, 0xff, 0xff, 0]), 'it does not speak TLS'],
    ['goes away', null, 'it closed the connection in mid-handshake'],
  ])('one that %s', async (_what, answer, why) => {
    const received: Buffer[] = [];
    const plain = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', (data) => {
        received.push(data);
        if (answer === null) socket.destroy();
        else socket.write(answer);
      });
    }).listen(0, '127.0.0.1');
    await once(plain, 'listening');
    open.push({ close: async () => void plain.close() });
    const { port } = plain.address() as AddressInfo;
    expect(await send(connect(`https://localhost:${port}`, tlsOf()))).toMatchObject(NOT_SENT(failed(why)));
    expect(Buffer.concat(received).toString('latin1')).not.toContain('refunds');
  });
});

test('no word of the environment turns verification off', async () => {
  const upstream = await start();
  vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0');
  try {
    for (const tls of [null, tlsOf({ ca: other.cert })]) {
      expect(await send(connect(upstream.url, tls))).toMatchObject(NOT_SENT(UNKNOWN_CA));
      expect(await probeUpstream(settingsOf(upstream.url, tls), 3000)).toMatchObject({ kind: 'silent' });
    }
  } finally {
    vi.unstubAllEnvs();
  }
  expect(await upstream.seen()).toEqual([]);
});

test('the name that is asked for: the host of the URL, an address by itself, or server_name', async () => {
  const upstream = await start(ca.issue('db.internal', { ip: '127.0.0.1' }));
  const byAddress = `https://127.0.0.1:${upstream.port}`;
  expect(await send(connect(upstream.url, tlsOf({ serverName: 'db.internal' })))).toMatchObject(COMMITTED);
  expect(await send(connect(byAddress, tlsOf({ serverName: 'db.internal' })))).toMatchObject(COMMITTED);
  expect(await send(connect(byAddress, tlsOf()))).toMatchObject(COMMITTED);
  expect((await upstream.seen()).map(({ name }) => name)).toEqual(['db.internal', 'db.internal', null]);
});

test.each([
  ['ERR_SSL_TLSV1_ALERT_UNKNOWN_CA', ": it refused the gateway's certificate (it does not know the CA)"],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED', ": it refused the gateway's certificate (it has expired)"],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_REVOKED', ": it refused the gateway's certificate (it was revoked)"],
  ['ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_REVOKED', ": it refused the gateway's certificate (it was revoked)"],
  ['ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE', ": it refused the gateway's certificate (bad certificate)"],
  ['ERR_SSL_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE', ": it refused the gateway's certificate (unsupported certificate)"],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN', ": it refused the gateway's certificate (certificate unknown)"],
  ['ERR_SSL_TLSV1_ALERT_ACCESS_DENIED', ": it refused the gateway's certificate (access denied)"],
  ['ERR_SSL_TLSV1_ALERT_DECRYPT_ERROR', ": it refused the gateway's certificate (decrypt error)"],
  ['ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION', ': it speaks no version of TLS that is allowed'],
  ['ERR_SSL_TLSV1_UNRECOGNIZED_NAME', ': it does not know the name that it was asked for'],
  ['ERR_SSL_DATA_LENGTH_TOO_LONG', ': it does not speak TLS'],
  ['UNABLE_TO_GET_ISSUER_CERT', ': no CA that is trusted for it has signed its certificate'],
  ['SELF_SIGNED_CERT_IN_CHAIN', ': no CA that is trusted for it has signed its certificate'],
  [`ERR_${'A'.repeat(90)}`, ''],
  ['ERR_SSL_SOMETHING_ELSE', ' (ERR_SSL_SOMETHING_ELSE)'],
  ['db.internal said no', ''],
])('what the upstream says of our certificate in mid-handshake (TLS 1.2), by its code: %s', (code, words) => {
  expect(handshakeFault(Object.assign(new Error('80B0:error: db.internal'), { code }))).toBe(
    `TLS with the upstream failed${words}`,
  );
});

test('an upstream that says no time is alive, and has no clock to compare with', async () => {
  const upstream = createHttpServer((_, response) => {
    response.sendDate = false;
    response.end();
  });
  await once(upstream.listen(0, '127.0.0.1'), 'listening');
  const { port } = upstream.address() as AddressInfo;
  const probed = await probeUpstream(settingsOf(`http://127.0.0.1:${port}`, null), 3000);
  expect(probed).toEqual({ kind: 'answered', status: 200, date: null });
  upstream.close();
});

describe('the certificate of the gateway', () => {
  test('is shown in calls, state requests, streamed reads and probes', async () => {
    const upstream = await strict();
    const tls = tlsOf({ client });
    const upstreams = connect(upstream.url, tls);
    expect(await send(upstreams)).toMatchObject(COMMITTED);
    expect(await upstreams.readState(makeTool(), { payment_id: 'p1' })).toMatchObject({ kind: 'read' });
    const read = await upstreams.stream('payments')?.request({ origin: upstream.url, path: '/read', method: 'GET' });
    expect(await read?.body.json()).toEqual({ client: 'gateway-one' });
    expect(await probeUpstream(settingsOf(upstream.url, tls), 3000)).toMatchObject({ kind: 'answered', status: 200 });
    const seen = await upstream.seen();
    expect(seen.map(({ method, client: by }) => [method, by])).toEqual(
      ['POST', 'GET', 'GET', 'HEAD'].map((method) => [method, 'gateway-one']),
    );
  });

  test('is shown to MCP servers as well, which are trusted by the same CA', async () => {
    const upstream = await strict();
    const ask = async (tls: UpstreamTls): Promise<unknown> => {
      const settings = { ...settingsOf(upstream.url, tls), mcp: { path: '/mcp', allow: [] } };
      const through = openThrough(settings, new Keeper());
      open.push(through);
      if (!('request' in through)) throw new Error('it is spoken to over connections');
      const answer = await through.request({ method: 'GET', path: '/mcp' });
      return answer.body.json();
    };
    expect(await ask(tlsOf({ client }))).toEqual({ client: 'gateway-one' });
    await expect(ask(tlsOf({ client, ca: other.cert }))).rejects.toThrow(UNKNOWN_CA);
  });

  /** With TLS 1.3 the handshake is over for the gateway before the upstream has looked at its certificate. */
  test.each<[string, () => Issued | null]>([
    ['none', () => null],
    ['one of another CA', () => other.issue('gateway-one')],
    ['one that has expired', () => ca.issue('gateway-one', { to: new Date(Date.now() - 1000) })],
  ])('refused after the request was written (%s): a write is unknown, a read failed', async (_what, shown) => {
    const upstream = await strict({ minVersion: 'TLSv1.3' });
    const tls = tlsOf({ client: shown() });
    const message =
      "the connection broke before the answer came; it was new: the upstream may refuse the gateway's certificate, or want one (tls: { cert, key })";
    for (const [kind, outcome] of [
      ['write', 'unknown'],
      ['read', 'failed'],
    ] as const)
      expect(await send(connect(upstream.url, tls), '/refunds', kind)).toMatchObject({
        kind: outcome,
        evidence: { code: 'reset', message, startedAt: expect.any(Number) },
      });
    const state = await connect(upstream.url, tls).readState(makeTool(), { payment_id: 'p1' });
    expect(state).toEqual({ kind: 'unreadable', message });
    const probed = await probeUpstream(settingsOf(upstream.url, tls), 3000);
    expect(probed).toMatchObject({ kind: 'silent', why: expect.stringContaining("refuse the gateway's certificate") });
    // Once it is a good one, the same connections work.
    const upstreams = connect(upstream.url, tls, 1);
    await send(upstreams);
    upstreams.update([settingsOf(upstream.url, tlsOf({ client }), 1)], LIMITS);
    expect(await send(upstreams)).toMatchObject(COMMITTED);
    expect(await upstream.seen()).toHaveLength(1);
  });
});

test('a later connection that breaks is new too; one that has answered before is not', async () => {
  const upstream = await strict({ minVersion: 'TLSv1.3' });
  const upstreams = connect(upstream.url, tlsOf({ client }), 1);
  const broken = async (): Promise<unknown> => {
    const result = await send(upstreams, '/cut');
    return result.kind === 'unknown' ? result.evidence.message : result;
  };
  expect(await send(upstreams)).toMatchObject(COMMITTED);
  expect(await broken()).toBe('the connection broke before the answer came');
  expect(await broken()).toMatch(/^the connection broke before the answer came; it was new: /);
});

test.each<[string, Partial<UpstreamTls>]>([
  ['CA', { ca: 'other' }],
  ['certificate of the gateway', { client: { cert: 'other', key: 'key' } }],
  ['key of the gateway', { client: { cert: 'cert', key: 'other' } }],
  ['certificate at all', { client: null }],
  ['server name', { serverName: 'other' }],
  ['lowest version', { minVersion: 'TLSv1.3' }],
])('connections that were opened with another %s are not used after a reload', (_what, changes) => {
  const before = tlsOf({ ca: 'ca', client: { cert: 'cert', key: 'key' }, serverName: 'db' });
  expect(sameTls(before, structuredClone(before))).toBe(true);
  expect(sameTls(before, { ...before, ...changes })).toBe(false);
});

test('a reload that leaves certificates and keys as they are leaves the connections', async () => {
  const upstream = await strict();
  const settings = [settingsOf(upstream.url, tlsOf({ client }), 1)];
  const upstreams = createUpstreams(settings, LIMITS);
  open.push(upstreams);
  const both = async (): Promise<void> => {
    expect(await send(upstreams)).toMatchObject(COMMITTED);
    const read = await upstreams.stream('payments')?.request({ origin: upstream.url, path: '/read', method: 'GET' });
    await read?.body.dump();
  };
  await both();
  upstreams.update(structuredClone(settings), LIMITS);
  await both();
  expect(new Set((await upstream.seen()).map(({ connection }) => connection)).size).toBe(2);
});

test('new certificates: a running call ends on its connection, those that wait and those that come get new ones', async () => {
  const upstream = await strict();
  const upstreams = connect(upstream.url, tlsOf({ client }), 1);
  const seen = async (count: number): Promise<readonly (string | null)[]> => {
    await vi.waitFor(async () => expect(await upstream.seen()).toHaveLength(count), { timeout: 20_000 });
    return (await upstream.seen()).map(({ client: by }) => by);
  };
  expect(await send(upstreams)).toMatchObject(COMMITTED);
  const running = send(upstreams, '/held');
  const streaming = await upstreams
    .stream('payments')
    ?.request({ origin: upstream.url, path: '/stream', method: 'GET' });
  const waiting = send(upstreams, '/waited');
  await seen(3);

  // The upstream itself has another CA from now on, too.
  await upstream.use({ ...other.issue('localhost'), ca: ca.cert, requestCert: true, rejectUnauthorized: true });
  const next = [settingsOf(upstream.url, tlsOf({ ca: other.cert, client: successor }), 1)];
  upstreams.update(next, LIMITS);
  await upstream.release();
  expect(await running).toMatchObject(COMMITTED);
  expect(await waiting).toMatchObject(COMMITTED);
  expect(await send(upstreams)).toMatchObject(COMMITTED);
  const read = await upstreams.stream('payments')?.request({ origin: upstream.url, path: '/read', method: 'GET' });
  expect(await read?.body.json()).toEqual({ client: 'gateway-two' });
  await upstream.tick();
  const events: string[] = [];
  for await (const chunk of streaming?.body ?? [])
    if (events.push(String(chunk)) > 0 && /more/.test(events.join(''))) break;
  expect(events.join('')).toBe('data: begun\n\ndata: more\n\n');
  const shown = await seen(6);
  for (const name of ['gateway-one', 'gateway-two']) expect(shown.filter((by) => by === name)).toHaveLength(3);
});
