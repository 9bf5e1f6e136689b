import { type IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { readIdempotencyKey } from '../../src/effects/run/fingerprint.ts';
import { isNeverSent } from '../../src/effects/run/header-names.ts';
import { forwardedHeaders, type HeaderContext, returnedHeaders } from '../../src/proxy/headers.ts';
import type { ProxiedUpstream } from '../../src/proxy/ports.ts';
import { createIdentities, readQuery } from '../../src/proxy/arrival.ts';
import { headersNamed } from '../../src/mcp/gateway/arrival.ts';
import type { Identified } from '../../src/identity/identified.ts';
import { isUsualSpelling, matchPattern, readPath, readPattern } from '../../src/upstreams/http/url.ts';
import { makeTool } from '../upstreams/tool.ts';
import { BOT } from './principal.ts';
import type { HeaderSettings } from '../../src/effects/upstream.ts';

describe('paths', () => {
  test.each([
    '/v1/../admin',
    '/v1/..',
    '/..',
    '/./v1',
    '/v1/.',
    '/v1/%2e%2e/admin',
    '/v1/%2E./admin',
    '/v1/.%2e/admin',
    '/v1/a%2eb',
    '/v1/..;/admin',
    '/v1/..;x=1/admin',
    '/v1/.;/admin',
    '/v1/a;b',
    '/v1/a;/b',
    '/v1/a%2fb',
    '/v1/a%2Fb',
    '/v1/a%5cb',
    '/v1/a\\b',
    '/v1//b',
    '//v1',
    '/v1/a%00b',
    '/v1/a\u0000b',
    '/v1/a%0ab',
    '/v1/a%0d%0ab',
    '/v1/a%7fb',
    '/v1/a b',
    '/v1/a\tb',
    '/v1/a%',
    '/v1/a%2',
    '/v1/a%zz',
    '/v1/a%ff',
    '/v1/a%c0%ae',
    '/v1/a%ed%a0%80',
    '/v1/é',
    '/v1/a#b',
    '/v1/a"b',
    '/v1/<a>',
    '/v1/{a}',
    '/v1/a|b',
    '/v1/a^b',
    '/v1/a`b',
    'v1',
    '*',
    'http://elsewhere/v1',
    '',
  ])('%s is refused', (path) => {
    expect(readPath(path).ok).toBe(false);
  });

  test.each([
    ['/', ['']],
    ['/v1/payments/', ['v1', 'payments', '']],
    ['/v1/a...b/..c', ['v1', 'a...b', '..c']],
    ['/v1/%C3%A9%20x', ['v1', 'é x']],
    ["/v1/a-b_c~d!$&'()*+,=:@", ['v1', "a-b_c~d!$&'()*+,=:@"]],
    ['/v1/%252e%252e', ['v1', '%2e%2e']],
  ])('%s passes', (path, segments) => {
    expect(readPath(path)).toEqual({ ok: true, segments });
  });

  test('encoded slashes, where a param may hold them, and nothing else that servers read in two ways', () => {
    expect(readPath('/v1/a%2fb%2Fc', true)).toEqual({ ok: true, segments: ['v1', 'a/b/c'] });
    for (const path of ['/a%2f..%2fb', '/..%2fa', '/a%2F.', '/a%2F%2e%2e', '/a%2Fb%5cc', '/a%2Fb%00', '/%2F..;x'])
      expect(readPath(path, true), path).toMatchObject({ ok: false });
  });

  test.each([
    ['/files/a/b', true],
    ['/files/a%2Fb', false],
    ['/files/a/b%2Fc', false],
    ['/files/a+b/c', false],
    ['/files/a%2Bb/c', true],
    ['/files/%61/c', true],
  ])('of the spellings of one value, that of the request of the tool is usual: %s', (path, usual) => {
    expect(isUsualSpelling(path, '/files/*path')).toBe(usual);
  });
  test('in the middle, an encoded slash is spelled as the request of the tool has it', () => {
    expect(isUsualSpelling('/projects/a%2Fb/x', '/projects/:id/x')).toBe(true);
    expect(isUsualSpelling('/projects/a%2fb/x', '/projects/:id/x')).toBe(true);
  });

  test('a URL parser leaves a path that passes as it is', () => {
    for (let code = 0x21; code < 0x7f; code += 1) {
      const path = `/a${String.fromCharCode(code)}b/c`;
      if (readPath(path).ok) expect(new URL(path, 'http://upstream').pathname, path).toBe(path);
    }
  });

  test('patterns', () => {
    const pattern = readPattern('/v1/payments/:id/refunds');
    expect(readPattern('/v1/payments/{id}/refunds')).toEqual(pattern);
    expect(readPattern('/v1/x{id}')).toBeNull();
    expect(matchPattern(pattern ?? [], ['v1', 'payments', 'p1', 'refunds'])).toEqual({ id: 'p1' });
    expect(matchPattern(pattern ?? [], ['v1', 'payments', '', 'refunds'])).toBeNull();
    expect(matchPattern(pattern ?? [], ['v1', 'payments', 'p1'])).toBeNull();
    expect(matchPattern(pattern ?? [], ['V1', 'payments', 'p1', 'refunds'])).toBeNull();
  });
});

describe('queries', () => {
  test.each([
    [null, [], '', []],
    ['', [], '', []],
    [
      'a=1&b=%20x+y&flag',
      [
        ['a', '1'],
        ['b', ' x y'],
        ['flag', ''],
      ],
      'a=1&b=%20x+y&flag',
      [],
    ],
    ['api_key=k', [], '', ['k']],
    [
      'a=1&api_key=k&b=2',
      [
        ['a', '1'],
        ['b', '2'],
      ],
      'a=1&b=2',
      ['k'],
    ],
    ['api%5fkey=k&a=1', [['a', '1']], 'a=1', ['k']],
    ['api_key=k&api_key=l', [], '', ['k', 'l']],
    ['API_KEY=k&a=1', [['a', '1']], 'a=1', []],
  ])('%s', (text, params, forwarded, keys) => {
    const query = readQuery(text);
    expect([query.pairs, query.forwarded, query.keys, query.faults, query.repeated]).toEqual([
      params,
      forwarded,
      keys,
      [],
      [],
    ]);
  });

  test('what carries keys on a route goes no further, and api_key nowhere', () => {
    const { forwarded, keys, pairs } = readQuery('api_key=k&token=t&Token=u&a=1', ['token']);
    expect([forwarded, keys, pairs]).toEqual(['a=1', ['t'], [['a', '1']]]);
  });

  test.each(['a=1&a=2', 'a=1&A=2', 'a=1&%61=2', 'a=%ff', 'a=%', '=1', '__proto__=1', 'a=1;b=2', 'a=é', 'a=1#b'])(
    '%s is refused',
    (text) => {
      const { faults, repeated } = readQuery(text);
      expect(faults.length + repeated.length).toBe(1);
    },
  );
});

describe('idempotency keys', () => {
  test.each([
    ['a', 'a'],
    ['"a"', 'a'],
    ['"a\\"b\\\\c"', 'a"b\\c'],
    ['a"b', 'a"b'],
  ])('%s', (header, key) => {
    expect(readIdempotencyKey(header)).toEqual({ kind: 'key', key });
  });
  test.each(['', '""', 'a b', 'a, a', '"a", "a"', '"a', '"a\\x"', 'é', 'x'.repeat(256)])('%s is refused', (header) => {
    expect(readIdempotencyKey(header).kind).toBe('invalid');
  });
  test('none', () => {
    expect(readIdempotencyKey(undefined).kind).toBe('absent');
  });
});

/** Where the answer of an upstream goes back. */
const AT_SHOP = { prefix: '/shop', upstreamUrl: 'http://upstream:9', origin: () => 'https://gateway.test' } as const;

describe('headers', () => {
  const hostile = {
    host: 'gateway',
    'x-api-key': 'secret',
    authorization: 'Bearer secret',
    cookie: 'a=secret',
    'proxy-authorization': 'secret',
    'idempotency-key': 'k',
    'svc-agent-id': 'bot',
    'svc-anything': 'x',
    'x-http-method-override': 'DELETE',
    'x-method-override': 'DELETE',
    'x-original-url': '/admin',
    'x-rewrite-url': '/admin',
    'x-forwarded-for': '1.2.3.4',
    'x-forwarded-host': 'evil',
    forwarded: 'for=1.2.3.4',
    connection: 'keep-alive, x-tenant',
    'transfer-encoding': 'chunked',
    te: 'trailers',
    x_tenant: 'twin',
    'x-unknown': 'x',
    'x-tenant': 'blue',
    accept: 'application/json',
    'accept-encoding': 'gzip',
    'content-type': 'application/json',
    'user-agent': 'test',
  };
  const arrived: HeaderContext['arrived'] = {
    key: 'the-gateways-own-key',
    carriedIn: [],
    authorization: null,
    address: '192.0.2.7',
    agentId: 'bot',
    requestId: 'req_1',
    principal: BOT,
  };
  const none = { forward: [], drop: [], volatile: [], set: {} };
  function forward(
    headers: IncomingHttpHeaders,
    changes: {
      governed?: boolean;
      named?: Record<string, string>;
      rules?: Partial<HeaderSettings>;
      arrived?: Partial<HeaderContext['arrived']>;
      credentials?: ProxiedUpstream['credentials'];
      socket?: Socket;
    } = {},
    raw: readonly string[] = [],
  ) {
    const { request } = makeTool().call;
    return forwardedHeaders(
      { headers, rawHeaders: [...raw], socket: changes.socket ?? new Socket() },
      {
        tool: makeTool({ request: { ...request, headers: changes.named ?? {} } }),
        route: {
          upstream: 'shop',
          prefix: '/shop',
          host: null,
          listen: null,
          undeclared: 'deny',
          setCookie: false,
          foreignLinks: 'hide',
          links: [],
          rules: [],
          headers: { ...none, ...changes.rules },
          keys: { headers: [], schemes: [], query: [] },
          pendingStatus: 202,
          errorFormat: 'problem',
          finalStatus: null,
          undeclaredQuery: null,
        },
        upstream: { url: 'http://upstream:9', network: 'any', credentials: changes.credentials ?? null },
        arrived: { ...arrived, ...changes.arrived },
        governed: changes.governed ?? true,
      },
    );
  }
  const { x_tenant: _, ...plain } = hostile;

  test('what belongs to the connection, to the gateway, or claims an address stays here; all else goes on', () => {
    const result = forward({ ...plain, connection: 'keep-alive' }, { named: { tenant: 'x-tenant' } });
    expect(result).toEqual({
      kind: 'headers',
      apart: { 'x-tenant': 'blue' },
      headers: {
        sent: {
          accept: 'application/json',
          'content-type': 'application/json',
          'user-agent': 'test',
          'x-unknown': 'x',
          'x-request-id': 'req_1',
        },
        bound: { 'x-unknown': 'x' },
      },
    });
    const streamed = forward({ ...plain, connection: 'keep-alive' }, { governed: false });
    expect(streamed).toMatchObject({ headers: { sent: { 'accept-encoding': 'gzip', 'x-tenant': 'blue' } } });
  });

  test('an Authorization of the caller’s own goes on where the gateway has no credentials for the upstream, and only there', () => {
    const from = { authorization: 'Bearer of-the-caller' };
    expect(forward({}, { arrived: from })).toMatchObject({ apart: { authorization: 'Bearer of-the-caller' } });
    const credentials = { header: 'x-api-key', value: 'of the gateway' };
    expect(forward({}, { arrived: from, credentials })).toMatchObject({ kind: 'headers' });
    expect(forward({}, { arrived: from, credentials })).not.toHaveProperty('apart.authorization');
  });

  test.each([
    [false, 'http'],
    [true, 'https'],
  ])('over TLS: %s, {proto} is %s', (isEncrypted, proto) => {
    const rules = { set: { 'x-seen-proto': '{proto}' } };
    expect(forward({}, { rules, socket: isEncrypted ? new TLSSocket(new Socket()) : new Socket() })).toMatchObject({
      headers: { sent: { 'x-seen-proto': proto } },
    });
  });

  test('a tool cannot name what may never go on, and no rule can forward it', () => {
    const names = Object.keys(plain).filter((name) => isNeverSent(name));
    expect(names.length).toBeGreaterThan(8);
    const named = Object.fromEntries(names.map((name) => [name, name]));
    const { connection: _connection, ...rest } = plain;
    const result = forward(rest, { named, rules: { forward: names } });
    expect(result).toMatchObject({ kind: 'headers' });
    for (const name of names) expect(JSON.stringify(result)).not.toContain(`"${name}"`);
  });

  test.each<[string, IncomingHttpHeaders, readonly string[]]>([
    ['a name with "_"', { x_tenant: 'a' }, []],
    ['a name that Connection lists', { connection: 'close, stripe-account', 'stripe-account': 'acct_1' }, []],
    ['the gateway’s key', { 'x-note': 'see the-gateways-own-key' }, []],
  ])('%s is refused', (_name, headers, raw) => {
    expect(forward(headers, {}, raw)).toMatchObject({ kind: 'problem', problem: { code: 'invalid_request' } });
  });

  test.each(['Authorization', 'Content-Encoding', 'Content-Type', 'Idempotency-Key', 'SVC-Agent-Id'])(
    '%s that comes twice is refused by its name: servers read the first, or the last',
    (name) => {
      const path = `/headers/${name.toLowerCase()}`;
      const raw = ['accept', 'a', name, 'a', 'x-more', 'b', 'x-more', 'c', name.toLowerCase(), 'b'];
      expect(forward({}, {}, raw)).toMatchObject({ problem: { code: 'invalid_request', errors: [{ path }] } });
      expect(forward({}, {}, raw.slice(0, -2))).toMatchObject({ kind: 'headers' });
    },
  );

  test('rules: forward, drop, volatile, set', () => {
    const headers = { 'x-tenant': 'a', 'x-trace': 't', 'x-forwarded-for': '1.1.1.1', x_legacy: 'l', cookie: 'c=1' };
    const rules = {
      forward: ['x-tenant', 'x_legacy', 'x-trace', 'cookie'],
      drop: ['*'],
      volatile: ['x-tra*'],
      set: { 'x-forwarded-for': '{client_ip}', 'x-by': 'agent {agent_id} {other}' },
    };
    expect(forward(headers, { rules })).toEqual({
      kind: 'headers',
      apart: { cookie: 'c=1' },
      headers: {
        sent: {
          'x-tenant': 'a',
          'x-trace': 't',
          x_legacy: 'l',
          'x-forwarded-for': '192.0.2.7',
          'x-by': 'agent bot {other}',
        },
        bound: { 'x-tenant': 'a', x_legacy: 'l' },
      },
    });
    expect(forward({ x_tenant: 'a', 'x-tenant': 'b' }, { rules: { forward: ['x_tenant'] } })).toMatchObject({
      kind: 'problem',
    });
  });

  test('what the gateway sets says how the request came: for whom, under which name, with TLS or without', () => {
    const set = { 'x-by': '{agent_id}', 'x-host': '{host}', 'x-proto': '{proto}' };
    const { keyId, user, madeBy, keyCreatedAt, readOnly, allowedTools } = BOT;
    const account = {
      keyId,
      user,
      madeBy,
      keyCreatedAt,
      readOnly,
      allowedTools,
      kind: 'account',
      workspace: 'demo',
    } as const;
    const said = (changes: Parameters<typeof forward>[1]) => {
      const found = forward({ host: 'gateway.test:8080' }, { rules: { set }, ...changes });
      return found.kind === 'headers' ? found.headers.sent : null;
    };
    const host = { 'x-host': 'gateway.test:8080' };
    expect(said({ arrived: { agentId: 'other', principal: account } })).toEqual(
      expect.objectContaining({ ...host, 'x-by': 'other', 'x-proto': 'http' }),
    );
    expect(said({ arrived: { agentId: null }, socket: new TLSSocket(new Socket()) })).toEqual(
      expect.objectContaining({ ...host, 'x-by': 'bot', 'x-proto': 'https' }),
    );
    // The agent of the key, whatever else is named.
    const profile = { ...account, kind: 'profile', profile: 'p', agentId: 'shop-bot', scopes: [] } as const;
    expect(said({ arrived: { agentId: 'other' } })).toHaveProperty('x-by', 'bot');
    expect(said({ arrived: { agentId: null, principal: profile } })).toHaveProperty('x-by', 'shop-bot');
    // Nobody: the header is not sent.
    expect(said({ arrived: { agentId: null, principal: account } })).not.toHaveProperty('x-by');
  });

  test('credentials of the caller go on to an upstream for which the gateway has none, and to no other', () => {
    const headers = { cookie: 'session=1' };
    const of = { rules: { forward: ['cookie'] }, arrived: { authorization: 'Bearer theirs' } };
    const apart = (credentials: ProxiedUpstream['credentials']) => {
      const found = forward(headers, { ...of, credentials });
      return found.kind === 'headers' ? found.apart : null;
    };
    expect(apart(null)).toEqual({ cookie: 'session=1', authorization: 'Bearer theirs' });
    expect(apart({ header: 'x-token', value: 'own' })).toEqual({});
  });

  test('the gateway’s key goes nowhere: not in the header that carried it, in a credential, or in a name', () => {
    const { key } = arrived;
    const carried = forward({ 'x-goog-key': key, accept: 'a' }, { arrived: { carriedIn: ['x-goog-key'] } });
    expect(carried.kind === 'headers' && Object.keys(carried.headers.sent)).not.toContain('x-goog-key');
    expect(carried.kind).toBe('headers');
    for (const headers of [{ cookie: `a=${key}` }, { [`x-${key}`]: '1' }])
      expect(forward(headers, { rules: { forward: ['*'] } })).toMatchObject({ problem: { code: 'invalid_request' } });
  });

  test('the gateway’s own cookies go nowhere, whatever is forwarded', () => {
    const own = ['svc_console=a', '__Host-svc_console=b', 'svc_approver=c', ' svc_console =d'];
    for (const forwarded of ['cookie', '*']) {
      const others = forward(
        { cookie: ['a=1', ...own, 'svc_consoles=2', 'b'].join(';') },
        { rules: { forward: [forwarded] } },
      );
      expect(others).toMatchObject({ apart: { cookie: 'a=1; svc_consoles=2; b' } });
      const alone = forward({ cookie: own.join('; ') }, { rules: { forward: [forwarded] } });
      expect(alone.kind === 'headers' && alone.apart).toEqual({});
    }
    const cookie = `a=1; ${own.join('; ')}`;
    expect(headersNamed({ headers: { cookie } }, ['cookie'])).toEqual({ cookie: 'a=1' });
    expect(headersNamed({ headers: { cookie: 'svc_console=a' } }, ['cookie'])).toEqual({});
  });

  test('a media type is part of the action where it is not the usual one of its kind', () => {
    const bound = (type: string) => {
      const result = forward({ 'content-type': type });
      return result.kind === 'headers' ? result.headers.bound : null;
    };
    expect(bound('application/json; charset=utf-8')).toEqual({});
    expect(bound('multipart/form-data; boundary=x1')).toEqual({});
    expect(bound('application/merge-patch+JSON; charset=utf-8')).toEqual({
      'content-type': 'application/merge-patch+json',
    });
  });

  test('what comes back', () => {
    const answer = {
      connection: 'close, x-hop',
      'x-hop': '1',
      'keep-alive': 'timeout=5',
      'transfer-encoding': 'chunked',
      'set-cookie': ['a=1', 'b=2'],
      'svc-decision': 'committed',
      'x-should-retry': 'true',
      // What a browser would do at the origin of the approver's page.
      refresh: '0; url=https://evil.example',
      'clear-site-data': '"cookies"',
      'service-worker-allowed': '/',
      'access-control-allow-origin': '*',
      'access-control-allow-credentials': 'true',
      location: 'http://upstream:9/v1/x?a=1',
      etag: '"1"',
    };
    const options = {
      setCookie: false,
      ...AT_SHOP,
      foreignLinks: 'hide',
      links: [],
    } as const;
    expect(returnedHeaders(answer, options)).toEqual({ location: '/shop/v1/x?a=1', etag: '"1"' });
    expect(returnedHeaders(answer, { ...options, setCookie: true })['set-cookie']).toEqual(['a=1', 'b=2']);
  });

  test.each([
    ['/v1/x', { location: '/shop/v1/x' }],
    ['v1/x', { location: 'v1/x' }],
    ['?page=2', { location: '?page=2' }],
    ['HTTP://UPSTREAM:9/v1/x#a', { location: '/shop/v1/x#a' }],
    ['//upstream:9/v1/x', { location: '/shop/v1/x' }],
    ['http://key@upstream:9/v1/x', { location: '/shop/v1/x' }],
    ['//elsewhere/x', { 'svc-foreign-location': '//elsewhere/x' }],
    ['/\\elsewhere/x', { 'svc-foreign-location': '/\\elsewhere/x' }],
    [String.raw`\\upstream:9/v1/x`, { location: '/shop/v1/x' }],
    ['\\\\elsewhere/x', { 'svc-foreign-location': '\\\\elsewhere/x' }],
    ['/\t/elsewhere/x', { 'svc-foreign-location': '/\t/elsewhere/x' }],
    ['http://upstream:99/x', { 'svc-foreign-location': 'http://upstream:99/x' }],
    ['https://upstream:9/x', { 'svc-foreign-location': 'https://upstream:9/x' }],
    ['http://upstream:9@elsewhere/x', { 'svc-foreign-location': 'http://upstream:9@elsewhere/x' }],
    ['http://upstream:9.elsewhere/x', { 'svc-foreign-location': 'http://upstream:9.elsewhere/x' }],
    ['http://[', { 'svc-foreign-location': 'http://[' }],
    ['https://elsewhere/a%2Fb?sig=x%3D&b=#c', { 'svc-foreign-location': 'https://elsewhere/a%2Fb?sig=x%3D&b=#c' }],
    ['app://done', { location: 'app://done' }],
  ])('a redirect to %s', (location, expected) => {
    const options = {
      setCookie: false,
      ...AT_SHOP,
      foreignLinks: 'hide',
      links: [],
    } as const;
    expect(returnedHeaders({ location }, options)).toEqual(expected);
    expect(returnedHeaders({ 'content-location': location }, options)).toEqual(
      Object.fromEntries(
        Object.entries(expected).map(([name, value]) => [name.replace('location', 'content-location'), value]),
      ),
    );
    const passed = returnedHeaders({ location }, { ...options, foreignLinks: 'pass' });
    expect(passed).toEqual('location' in expected ? expected : { location });
  });

  test.each([
    [
      '<http://upstream:9/i?page=2>; rel="next", </i?page=9>; rel=last',
      { link: '<https://gateway.test/shop/i?page=2>; rel="next", </shop/i?page=9>; rel=last' },
    ],
    ['< http://upstream:9/i >; rel="next"', { link: '<https://gateway.test/shop/i>; rel="next"' }],
    ['<//upstream:9/i>; rel="next"', { link: '<https://gateway.test/shop/i>; rel="next"' }],
    [String.raw`<\\upstream:9/i>; rel="next"`, { link: '<https://gateway.test/shop/i>; rel="next"' }],
    ['<?page=2>; rel="next"', { link: '<?page=2>; rel="next"' }],
    [
      '<http://elsewhere/i>; rel="next", <http://elsewhere/j>; rel="last"',
      { 'svc-foreign-link': '<http://elsewhere/i>; rel="next", <http://elsewhere/j>; rel="last"' },
    ],
    [
      String.raw`</i>; title="a \" <http://elsewhere/>; rel=next, \" b"`,
      { link: String.raw`</shop/i>; title="a \" <http://elsewhere/>; rel=next, \" b"` },
    ],
    ['<http://elsewhere/i>; rel="next"', { 'svc-foreign-link': '<http://elsewhere/i>; rel="next"' }],
    [
      '<http://upstream:9/i>; title="a, <http://elsewhere/>; b"; rel="next", <http://elsewhere/d>; rel="help"',
      {
        link: '<https://gateway.test/shop/i>; title="a, <http://elsewhere/>; b"; rel="next"',
        'svc-foreign-link': '<http://elsewhere/d>; rel="help"',
      },
    ],
    [
      '<http://upstream:9/i>; rel="next", http://elsewhere',
      { 'svc-foreign-link': '<http://upstream:9/i>; rel="next", http://elsewhere' },
    ],
    [
      '<http://upstream:9/i>; rel="next" <http://elsewhere/>; rel="next"',
      { 'svc-foreign-link': '<http://upstream:9/i>; rel="next" <http://elsewhere/>; rel="next"' },
    ],
  ])('links %s', (link, expected) => {
    const options = {
      setCookie: false,
      ...AT_SHOP,
    };
    expect(returnedHeaders({ link }, { ...options, foreignLinks: 'hide' })).toEqual(expected);
    // Nothing is put aside, nor lost, where the route passes what leads elsewhere.
    const passed = returnedHeaders({ link }, { ...options, foreignLinks: 'pass' });
    expect(Object.keys(passed)).toEqual(['link']);
    if (link.includes('http://elsewhere')) expect(passed['link']).toContain('http://elsewhere');
  });

  test('of a header that comes several times all goes back, each byte as it came', () => {
    const options = {
      setCookie: true,
      ...AT_SHOP,
      foreignLinks: 'hide',
    } as const;
    const link = ['</i>; rel="next"; title="é"', '</j>; rel="last"'];
    const asBytes = Buffer.from('é').toString('latin1');
    expect(returnedHeaders({ link, etag: '"é"', 'set-cookie': ['a=é', 'b=2'] }, options)).toEqual({
      link: `</shop/i>; rel="next"; title="${asBytes}", </shop/j>; rel="last"`,
      etag: `"${asBytes}"`,
      'set-cookie': [`a=${asBytes}`, 'b=2'],
    });
  });
});

describe('who sends the requests of a connection', () => {
  afterEach(() => void vi.useRealTimers());

  function door() {
    vi.useFakeTimers({ toFake: ['performance'] });
    const looked: string[] = [];
    let changed = (): void => undefined;
    const good: Identified = { kind: 'principal', principal: BOT };
    const bad: Identified = {
      kind: 'problem',
      problem: { code: 'invalid_key', detail: 'It is revoked.', errors: [], retryAfterMs: null },
    };
    const answer = { now: good as Identified | Promise<Identified> };
    const identities = createIdentities({
      identify(key) {
        looked.push(key);
        return answer.now;
      },
      onAccessChanged(listener) {
        changed = listener;
        return () => undefined;
      },
    });
    const request = new IncomingMessage(new Socket());
    const ask = (key: string, from = request) => identities.of(from, key, '127.0.0.1');
    return { looked, good, bad, answer, ask, changed: () => changed() };
  }

  test('is looked up twice a second, and at once where another key comes, on another connection or after a change', () => {
    const { looked, ask, changed } = door();
    void ask('one');
    vi.advanceTimersByTime(499);
    void ask('one');
    expect(looked).toEqual(['one']);
    vi.advanceTimersByTime(1);
    void ask('one');
    void ask('two');
    void ask('two', new IncomingMessage(new Socket()));
    changed();
    void ask('two');
    expect(looked).toEqual(['one', 'one', 'two', 'two', 'two']);
  });

  test('is not remembered where the key was bad, or something changed while it was looked up', async () => {
    const { looked, good, bad, answer, ask, changed } = door();
    answer.now = bad;
    void ask('one');
    expect(ask('one')).toBe(bad);
    expect(looked).toHaveLength(2);
    answer.now = Promise.resolve(good);
    const asked = ask('one');
    changed();
    expect(await asked).toBe(good);
    answer.now = bad;
    expect(ask('one')).toBe(bad);
  });
});
