import { once } from 'node:events';
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import Stripe from 'stripe';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type FakeApi, startFakeApi } from '../sdks/fake-api.ts';
import { listenerOf, makeApiKey, startGateway, type TestGateway } from './gateway.ts';

const TLS = join(process.cwd(), 'test', 'system', 'tls');
const CA = readFileSync(join(TLS, 'ca.pem'));

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 30_000, interval: 50 } as const;

let api: FakeApi;
let gateway: TestGateway;
let key: string;
let folder: string;
/** Ports by what the configuration says. */
let plainPort: number;
let tlsPort: number;

const RULES =
  '[ { match: POST /v1/refunds, tool: refund }, { match: GET /v1/workspaces, tool: effects }, { match: GET /livez, tool: health } ]';
const config = (url: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: api, url: "${url}", timeout: 10s, credentials: { header: authorization, value: "Bearer \${UPSTREAM_KEY}" } } ]
tools:
  - { name: refund, upstream: api, kind: write, request: { method: POST, path: /v1/refunds, body: "*", body_type: form } }
  - { name: effects, upstream: api, kind: read, request: { method: GET, path: "/v1/workspaces" } }
  - { name: health, upstream: api, kind: read, request: { method: GET, path: "/livez" } }
routes:
  - { upstream: api, prefix: /, listen: "127.0.0.1:0", rules: ${RULES} }
  - { upstream: api, prefix: /, host: api.example.com, rules: ${RULES} }
  - { upstream: api, prefix: /, listen: "localhost:0", tls: { cert: "${'${TLS}'}/cert.pem", key: "${'${TLS}'}/key.pem" }, rules: ${RULES} }
`;
const POLICIES = {
  'p.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: p
owner: team
rules: [ { id: all, effect: allow, match: { tools: [refund, effects, health] } } ]
`,
};

async function usePair(name: string): Promise<void> {
  await copyFile(join(TLS, `${name}.pem`), join(folder, 'cert.pem'));
  await copyFile(join(TLS, `${name}.key.pem`), join(folder, 'key.pem'));
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-tls-'));
  await usePair('one');
  api = await startFakeApi(({ url }) => ({ json: { from: 'upstream', url, id: 're_1', object: 'refund' } }));
  gateway = await startGateway(
    { config: config(api.url), policies: POLICIES },
    { env: { TLS: folder, UPSTREAM_KEY: 'sk_upstream' } },
  );
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
  plainPort = Number((await listenerOf(gateway, '127.0.0.1:0')).port);
  tlsPort = Number((await listenerOf(gateway, 'localhost:0')).port);
});
afterAll(async () => {
  await gateway.dispose();
  await api.close();
  await rm(folder, { recursive: true, force: true });
});

function plain(port: number): Socket {
  return connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => undefined);
}

function encrypted(port = tlsPort): TLSSocket {
  return connectTls({ port, host: '127.0.0.1', ca: CA, servername: 'localhost' }).on('error', () => undefined);
}

/** Everything that comes on a connection after a text was sent on it. */
async function exchange(socket: Socket, text: string): Promise<string> {
  let all = '';
  socket.setEncoding('latin1').on('data', (data: string) => (all += data));
  socket.write(text);
  await Promise.race([once(socket, 'end'), once(socket, 'close')]);
  socket.destroy();
  return all;
}

const ask = (path: string, host: string, more = ''): string =>
  `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nX-API-Key: ${key}\r\n${more}Connection: close\r\n\r\n`;
const main = (): number => Number(new URL(gateway.url).port);

describe("a listener of a route's own", () => {
  it('serves the unmodified stripe SDK, which takes host, port and protocol only', async () => {
    for (const [port, protocol] of [
      [plainPort, 'http'],
      [tlsPort, 'https'],
    ] as const) {
      const agent = protocol === 'http' ? {} : { httpAgent: new (await import('node:https')).Agent({ ca: CA }) };
      const stripe = new Stripe(key, { host: 'localhost', port, protocol, maxNetworkRetries: 0, ...agent });
      const refund = await stripe.refunds.create({ charge: 'ch_1', amount: 5 }, { idempotencyKey: `s-${port}` });
      expect(refund.id).toBe('re_1');
      expect(api.seen.at(-1)).toMatchObject({ method: 'POST', url: '/v1/refunds' });
    }
  });

  it.each(['/v1/workspaces', '/livez'])(
    "%s is the upstream's there, and the gateway's own at its own port",
    async (path) => {
      for (const socket of [plain(plainPort), encrypted()])
        expect(await exchange(socket, ask(path, 'localhost'))).toContain(`{"from":"upstream","url":"${path}"`);
      expect(await exchange(plain(main()), ask(path, 'localhost'))).not.toContain('upstream');
    },
  );

  it.each([
    '/metrics',
    '/readyz',
    '/v1/workspaces/demo/effects',
    '/openapi.json',
    '/console',
    '/docs',
    '/.well-known/jwks.json',
  ])('the control plane is not there: %s', async (path) => {
    const seen = api.seen.length;
    for (const socket of [plain(plainPort), encrypted()])
      expect(await exchange(socket, ask(path, 'localhost'))).toMatch(/^HTTP\/1\.1 403 [^]*route_not_declared/);
    expect(await exchange(plain(main()), ask(path, 'api.example.com'))).toMatch(
      /^HTTP\/1\.1 403 [^]*route_not_declared/,
    );
    expect(api.seen.length).toBe(seen);
  });

  it('every refusal of what is no request holds there', async () => {
    const cases: readonly (readonly [string, string])[] = [
      ['400', 'not http\r\n\r\n'],
      ['501', 'CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n'],
      ['417', `GET /livez HTTP/1.1\r\nHost: localhost\r\nExpect: more\r\nConnection: close\r\n\r\n`],
      ['400', `POST /v1/refunds HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
      ['431', `GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ${'a'.repeat(40_000)}\r\n\r\n`],
      ['421|403', ask('/livez', 'evil.example.com')],
      ['400', ask('/livez', 'localhost', 'Host: localhost\r\n')],
      ['400', ask('http://localhost/livez', 'localhost')],
    ];
    const seen = api.seen.length;
    for (const [status, text] of cases)
      for (const socket of [plain(plainPort), encrypted()])
        expect([text.slice(0, 60), await exchange(socket, text)]).toEqual([
          text.slice(0, 60),
          expect.stringMatching(new RegExp(`^HTTP/1\\.1 (${status}) `)),
        ]);
    expect(api.seen.length).toBe(seen);
  });

  it('a connection that says nothing, or half of its headers, or half of a handshake, is let go; a call that follows does not happen', async () => {
    const silent = [plain(plainPort), plain(tlsPort), encrypted()];
    const partial = plain(plainPort);
    partial.write('GET /livez HTTP/1.1\r\nHost: loc');
    const ended = [...silent, partial].map(async (socket) => {
      socket.resume();
      await Promise.race([once(socket, 'end'), once(socket, 'close')]);
      socket.destroy();
    });
    await Promise.all(ended);
  });
});

describe('a host name of a route', () => {
  const upstream = /^HTTP\/1\.1 200 [^]*"from":"upstream"/;
  it.each(['api.example.com', 'API.Example.COM', 'api.example.com.', 'api.example.com:443'])(
    '%s leads to it',
    async (host) => {
      expect(await exchange(plain(main()), ask('/livez', host))).toMatch(upstream);
    },
  );
  it.each([
    ['another name', ask('/livez', 'other.example.com'), 403],
    ['a name behind it', ask('/livez', 'api.example.com.evil.com'), 403],
    ['a name before it', ask('/livez', 'x.api.example.com'), 403],
    ['no port', ask('/livez', 'api.example.com:'), 403],
    ['a port that is none', ask('/livez', 'api.example.com:http'), 403],
    ['two dots', ask('/livez', 'api.example.com..'), 403],
    ['a user', ask('/livez', 'x@api.example.com'), 403],
    ['two of it', ask('/livez', 'api.example.com', 'Host: api.example.com\r\n'), 400],
    ['it and the gateway', ask('/livez', 'api.example.com', 'Host: localhost\r\n'), 400],
    ['the gateway in the target', ask('http://localhost/livez', 'api.example.com'), 400],
    ['it in the target', ask('http://api.example.com/livez', 'localhost'), 403],
    ['it in the target too', ask('http://api.example.com/livez', 'api.example.com'), 400],
    ["a page of another site's", ask('/livez', 'api.example.com', 'Origin: https://evil.example\r\n'), 403],
  ])('%s does not', async (_what, text, status) => {
    const seen = api.seen.length;
    expect(await exchange(plain(main()), text)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(api.seen.length).toBe(seen);
  });
});

describe('certificates', () => {
  const nameOf = async (): Promise<string> => {
    const socket = encrypted();
    await once(socket, 'secureConnect');
    const { CN } = socket.getPeerCertificate().subject;
    socket.destroy();
    return String(CN);
  };
  const answersOn = async (socket: TLSSocket): Promise<string> => {
    socket.write(ask('/livez', 'localhost').replace('Connection: close\r\n', ''));
    const [data] = (await once(socket, 'data')) as [Buffer];
    return data.toString('latin1').slice(0, 12);
  };

  it('are taken on when they change; open connections go on; a broken pair leaves the one before', async () => {
    expect(await nameOf()).toBe('one');
    const open = encrypted();
    await once(open, 'secureConnect');
    expect(await answersOn(open)).toBe('HTTP/1.1 200');

    await copyFile(join(TLS, 'two.pem'), join(folder, 'cert.pem'));
    const said = async (): Promise<string> => (await fetch(`${gateway.url}/readyz`)).text();
    await vi.waitFor(async () => expect(await said()).toMatch(/last good version is in force/), PATIENT);
    // The line of the log may come after the answer.
    await vi.waitFor(
      () => expect(gateway.log()).toMatch(/key\.pem is not the key of the certificate in .*cert\.pem/),
      PATIENT,
    );
    expect(await nameOf()).toBe('one');
    expect(await answersOn(open)).toBe('HTTP/1.1 200');

    await copyFile(join(TLS, 'two.key.pem'), join(folder, 'key.pem'));
    await vi.waitFor(async () => expect(await nameOf()).toBe('two'), PATIENT);
    await vi.waitFor(async () => expect(await said()).not.toMatch(/last good version is in force/), PATIENT);
    expect(await answersOn(open)).toBe('HTTP/1.1 200');
    open.destroy();
  });

  it('at the main port: TLS alone, with the control plane behind it', async () => {
    const secure = await startGateway(
      {
        config: config(api.url).replace(
          'port: 0 }',
          `port: 0, tls: { cert: "${TLS}/one.pem", key: "${TLS}/one.key.pem" } }`,
        ),
        policies: POLICIES,
      },
      { env: { TLS: folder, UPSTREAM_KEY: 'sk_upstream' } },
    );
    try {
      expect(secure.url).toMatch(/^https:/);
      const port = Number(new URL(secure.url).port);
      expect(await exchange(encrypted(port), ask('/livez', 'localhost'))).toMatch(/^HTTP\/1\.1 200 /);
      expect(await exchange(plain(port), ask('/livez', 'localhost'))).not.toMatch(/HTTP/);
      expect(await exchange(encrypted(port), 'not http\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 /);
      const open = encrypted(port);
      await once(open, 'secureConnect');
      await secure.stop();
    } finally {
      await secure.dispose();
    }
  });
});

describe('a gateway of a test', () => {
  // Of the first process that runs in the folder. Node warns on standard error.
  const LISTENS_TOO_OFTEN = `
    import { EventEmitter } from 'node:events';
    import { writeFileSync } from 'node:fs';
    try {
      writeFileSync('listens', '', { flag: 'wx' });
      const emitter = new EventEmitter();
      for (let listeners = 0; listeners < 11; listeners += 1) emitter.on('said', () => {});
    } catch {}
  `;

  it.each(['dispose', 'restart'] as const)('fails its test where Node warns of a leak in it: %s', async (then) => {
    const leaky = await startGateway(
      { config: config(api.url), policies: POLICIES },
      {
        env: {
          TLS: folder,
          UPSTREAM_KEY: 'sk_upstream',
          NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(LISTENS_TOO_OFTEN)}`,
        },
      },
    );
    if (then === 'restart') {
      await leaky.stop();
      await leaky.restart();
    }
    await expect(leaky.dispose()).rejects.toThrow('it listens too often');
  });
});
