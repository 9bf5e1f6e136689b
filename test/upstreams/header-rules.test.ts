import { describe, expect, test } from 'vitest';
import {
  headerRules,
  type HeaderTarget,
  mediaType,
  sortHeaders,
  takenHeaders,
} from '../../src/upstreams/http/request-template.ts';
import { makeTool } from './tool.ts';
import type { HeaderSettings } from '../../src/effects/upstream.ts';

const rules = (changes: Partial<HeaderSettings> = {}): HeaderSettings => ({
  forward: [],
  drop: [],
  volatile: [],
  set: {},
  ...changes,
});
const VALUES = { agent_id: 'bot', client_ip: '10.0.0.1', host: 'gw', proto: 'https', request_id: 'req_1' };

function sorted(
  headers: Parameters<typeof sortHeaders>[0],
  { upstream, route, ...target }: Partial<HeaderTarget> & { upstream?: HeaderSettings; route?: HeaderSettings } = {},
) {
  const given = sortHeaders(headers, {
    rules: headerRules(upstream, route),
    taken: [],
    ownCredentials: false,
    governed: true,
    values: VALUES,
    ...target,
  });
  const { 'x-request-id': id, ...sent } = given.headers.sent;
  // To be compared with toEqual: an empty object matches any.
  return { ...given, sent, id, bound: given.headers.bound, paths: given.faults.map(({ path }) => path) };
}

describe('what goes on', () => {
  test('what no rule names: it is a fact for rules, and part of the call', () => {
    const { sent, bound, credentials, paths } = sorted({ 'stripe-account': 'acct_1', 'x-list': ['a', 'b'] });
    expect(sent).toEqual({ 'stripe-account': 'acct_1', 'x-list': 'a, b' });
    expect([bound, credentials, paths]).toEqual([sent, {}, []]);
  });

  test.each([
    ['wait=30', {}],
    ['Wait = "5"', {}],
    ['return=minimal, wait=30, handling=strict', { prefer: 'return=minimal, handling=strict' }],
    ['return=minimal', { prefer: 'return=minimal' }],
    ['wait=30, return=minimal', { prefer: 'return=minimal' }],
    ['wait-for=30', { prefer: 'wait-for=30' }],
    ['wait=30; until=done', { prefer: 'wait=30; until=done' }],
    ['a="b, wait=3"', { prefer: 'a="b, wait=3"' }],
  ])('of Prefer: %s how long the caller waits is no part of the call, and goes on all the same', (prefer, expected) => {
    expect(sorted({ prefer })).toMatchObject({ sent: { prefer } });
    expect(sorted({ prefer }).bound).toEqual(expected);
  });

  test('what differs between tries is no part of the call, as the configuration adds to', () => {
    const headers = { 'user-agent': 'a', traceparent: 't', 'x-b3-flags': '1', 'x-try': '2', 'x-own': '3' };
    const { sent, bound } = sorted(headers, {
      upstream: rules({ volatile: ['x-try'] }),
      route: rules({ volatile: ['x-o*'] }),
    });
    expect([sent, bound]).toEqual([headers, {}]);
    expect(sorted(headers).bound).toEqual({ 'x-try': '2', 'x-own': '3' });
  });

  test('a content type, of which only one that is not usual is part of the call', () => {
    for (const type of [
      'application/json; charset=utf-8',
      'Multipart/Form-Data; boundary=b',
      'application/x-www-form-urlencoded',
      'application/octet-stream',
    ])
      expect(sorted({ 'content-type': type }).headers).toEqual({
        sent: { 'content-type': type, 'x-request-id': 'req_1' },
        bound: {},
      });
    expect(sorted({ 'content-type': 'Text/CSV; header=present' }).bound).toEqual({ 'content-type': 'text/csv' });
    // Only types are the same whatever their case, and whatever follows them.
    expect(sorted({ 'stripe-account': 'Acct_1; live' }).bound).toEqual({ 'stripe-account': 'Acct_1; live' });
    // No rule takes it away: it says how to read the body.
    expect(sorted({ 'content-type': 'text/csv' }, { route: rules({ drop: ['content-*'] }) }).sent).toHaveProperty(
      'content-type',
    );
    expect([mediaType(' A/B ;c=d'), mediaType('a/b')]).toEqual(['a/b', 'a/b']);
  });

  test('what asks for a part, or packed, only where nobody here reads the answer', () => {
    const headers = { 'accept-encoding': 'gzip', range: 'bytes=0-1', 'if-range': 'x', accept: '*/*' };
    expect(sorted(headers).sent).toEqual({ accept: '*/*' });
    expect(sorted(headers, { governed: false }).sent).toEqual(headers);
  });

  test('an id of the request: that of the caller, else the gateway’s, unless a rule drops it', () => {
    expect(sorted({}).id).toBe('req_1');
    expect(sorted({ 'x-request-id': 'mine' }).id).toBe('mine');
    expect(sorted({ 'x-request-id': 'mine' }, { route: rules({ drop: ['x-request-id'] }) }).id).toBeUndefined();
    expect(sorted({ 'x-request-id': 'mine' }, { taken: ['x-request-id'] }).id).toBeUndefined();
  });

  test('what the configuration sets, over the caller’s; a route over its upstream; nothing where it is empty', () => {
    const upstream = rules({ set: { 'x-by': 'upstream', 'x-for': '{client_ip} via {host}/{proto}/{nothing}' } });
    const route = rules({ set: { 'x-by': '{agent_id}' } });
    const { sent, bound } = sorted({ 'x-by': 'caller' }, { upstream, route });
    expect([sent, bound]).toEqual([{ 'x-by': 'bot', 'x-for': '10.0.0.1 via gw/https/{nothing}' }, {}]);
    expect(sorted({ 'x-by': 'caller' }, { route, values: { ...VALUES, agent_id: '' } }).sent).toEqual({});
  });
});

describe('what stays here', () => {
  test('what is of the connection, of the gateway, or changes what a request is, whatever a rule says', () => {
    const never = {
      connection: 'close',
      host: 'h',
      'content-length': '1',
      'transfer-encoding': 'chunked',
      'proxy-authorization': 'p',
      'x-api-key': 'k',
      'svc-agent-id': 'bot',
      'idempotency-key': 'k',
      'x-http-method-override': 'DELETE',
      x_http_method_override: 'DELETE',
      'x-original-url': '/admin',
    };
    const forward = [...Object.keys(never), 'x-*', 'svc-*'];
    const { sent, credentials, paths } = sorted(never, { route: rules({ forward }) });
    expect([sent, credentials, paths]).toEqual([{}, {}, []]);
  });

  test('what callers claim of themselves, unless it is forwarded, and what the configuration drops', () => {
    const headers = { 'x-forwarded-for': '1.1.1.1', forwarded: 'for=1.1.1.1', x_real_ip: '1.1.1.1', 'x-note': 'n' };
    const { sent, paths } = sorted(headers, { upstream: rules({ drop: ['x-n*'] }) });
    expect([sent, paths]).toEqual([{}, []]);
    // The beginning of a name stands nowhere else in it.
    expect(sorted({ 'my-x-note': 'n' }, { upstream: rules({ drop: ['x-n*'] }) }).sent).toEqual({ 'my-x-note': 'n' });
    expect(sorted(headers, { route: rules({ forward: ['x-forwarded-*'] }) }).sent).toEqual({
      'x-forwarded-for': '1.1.1.1',
      'x-note': 'n',
    });
    expect(
      sorted({ 'x-note': 'n' }, { upstream: rules({ drop: ['x-note'] }), route: rules({ forward: ['x-note'] }) }).sent,
    ).toEqual({ 'x-note': 'n' });
    // Of both, whichever says it; credentials too.
    for (const where of ['upstream', 'route']) {
      expect(sorted({ forwarded: 'for=1.1.1.1' }, { [where]: rules({ forward: ['forwarded'] }) }).sent).toEqual({
        forwarded: 'for=1.1.1.1',
      });
      const dropped = sorted({ authorization: 'Bearer x', 'x-note': 'n' }, { [where]: rules({ drop: ['*'] }) });
      expect([dropped.sent, dropped.credentials, dropped.paths]).toEqual([{}, {}, []]);
    }
  });

  test('what the tool or the gateway sets itself', () => {
    const request = { method: 'POST', path: '/a', query: [], headers: { account: 'x-account' }, body: [] } as const;
    const idempotent = { kind: 'header', header: 'Request-Key', forMs: 1 } as const;
    const tool = makeTool({ request, idempotent });
    expect(takenHeaders(tool, undefined)).toEqual(['x-account', 'request-key']);
    // Another configuration has another credential.
    const taken = takenHeaders(tool, 'X-Upstream-Key');
    expect(taken).toEqual(['x-account', 'x-upstream-key', 'request-key']);
    expect(takenHeaders(tool, undefined)).toEqual(['x-account', 'request-key']);
    expect(takenHeaders(null, 'x-upstream-key')).toEqual([]);
    // A body with files is written anew, with a boundary of the gateway's.
    const files = makeTool({ request: { ...request, headers: {}, bodyType: 'multipart', body: '*' } });
    expect(takenHeaders(files, undefined)).toEqual(['content-type']);
    const headers = { 'x-account': 'a', 'x-upstream-key': 'k', 'request-key': 'r', 'x-open': 'o' };
    expect(sorted(headers, { taken }).sent).toEqual({ 'x-open': 'o' });
  });
});

test('credentials of the caller go on where the gateway has none, and no rule sees them', () => {
  const headers = { authorization: 'Bearer x', 'x-goog-api-key': 'g', cookie: 'a=1; svc_console=s; b=2' };
  const { sent, bound, credentials } = sorted(headers);
  expect([sent, bound, credentials]).toEqual([{}, {}, { authorization: 'Bearer x', 'x-goog-api-key': 'g' }]);
  const route = rules({ forward: ['cookie'] });
  expect(sorted(headers, { route }).credentials).toEqual({ ...headers, cookie: 'a=1; b=2' });
  // By each of these a browser is known to the gateway's own pages.
  for (const own of ['svc_console=s', '__Host-svc_console=s', 'svc_approver=s']) {
    expect(sorted({ cookie: own }, { route }).credentials, own).toEqual({});
    expect(sorted({ cookie: `a=1; ${own}` }, { route }).credentials, own).toEqual({ cookie: 'a=1' });
  }
  const own = sorted(headers, { route, ownCredentials: true });
  expect([own.sent, own.credentials]).toEqual([{}, {}]);
});

test('what servers read in more than one way is refused, and it is said where it stands', () => {
  expect(sorted({ stripe_account: 'a' }).paths).toEqual(['/headers/stripe_account']);
  const route = rules({ forward: ['stripe_account'] });
  expect(sorted({ stripe_account: 'a' }, { route })).toMatchObject({ sent: { stripe_account: 'a' }, paths: [] });
  expect(sorted({ stripe_account: 'a', 'stripe-account': 'b' }, { route }).paths).toEqual(['/headers/stripe_account']);
  expect(sorted({ stripe_account: 'a' }, { route: rules({ drop: ['stripe_account'] }) }).paths).toEqual([]);
  // Forwarding the one spelling says nothing of the other.
  expect(sorted({ stripe_account: 'a' }, { route: rules({ forward: ['stripe-account'] }) }).paths).toEqual([
    '/headers/stripe_account',
  ]);
  // What Connection names ends here by the rules of HTTP: a rule about it would be for nothing.
  expect(sorted({ connection: 'close, X-Note', 'x-note': 'n', 'x-open': 'o' })).toMatchObject({
    sent: { 'x-open': 'o' },
    paths: ['/headers/x-note'],
  });
  expect(sorted({ connection: 'keep-alive', 'x-note': 'n' }).paths).toEqual([]);
});
