import { describe, expect, test } from 'vitest';
import type { Route } from '../../src/config/configuration.ts';
import type { Entrance } from '../../src/config/entrance.ts';
import { createRouteTable } from '../../src/proxy/route-table.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { makeTool } from '../upstreams/tool.ts';

const none = { forward: [], drop: [], volatile: [], set: {} };

/** The tool of a rule. A param that is called `id` may hold encoded slashes. */
function toolOf(name: string, kind: 'read' | 'write') {
  const [method = '', path = ''] = name.split(' ');
  const plain = path.replace(/\*(\w+)/, '{+$1}').replaceAll(/:(\w+)/g, '{$1}');
  const encodedSlashes = path.includes(':id') && path.includes('encoded') ? { encodedSlashes: ['id'] } : {};
  const request = { method, path: plain, ...encodedSlashes, query: [], headers: {}, body: [] };
  const properties = path.includes(':number') ? { number: { type: 'integer' } } : {};
  return makeTool({ name, kind, target: null, state: null, request, paramsSchema: { type: 'object', properties } });
}

function routeOf(rules: readonly string[], prefix: string): Route {
  return {
    upstream: 'api',
    prefix,
    host: 'api.example.com',
    listen: null,
    undeclared: 'passthrough_reads',
    setCookie: false,
    foreignLinks: 'hide',
    links: [],
    headers: none,
    keys: { headers: [], schemes: [], query: [] },
    pendingStatus: 202,
    errorFormat: 'problem',
    finalStatus: null,
    undeclaredQuery: null,
    rules: rules.map((rule) => {
      const [method = '', path = ''] = rule.split(' ');
      return { method, path, tool: rule, idempotency: { kind: 'none' }, onDuplicate: 'conflict', frames: null };
    }),
  };
}

function table(rules: readonly string[], kind: 'read' | 'write' = 'read', prefix = '') {
  const catalog = createCatalog(rules.map((name) => toolOf(name, kind)));
  const compiled = createRouteTable([routeOf(rules, prefix)], catalog);
  return (method: string, path: string): string => {
    const located = compiled.locate(path, { kind: 'routes', listen: null, host: 'api.example.com' });
    if (located === null) return 'nowhere';
    const match = compiled.match(located.route, method, located.rest.slice(1).split('/').map(decodeURIComponent));
    if (match.kind === 'none') return 'none';
    return match.kind === 'rule' ? match.tool.name : `undeclared${match.resembles ? ', resembles' : ''}`;
  };
}

test('routes share a host or a listener, each with its prefix, and are nowhere else', () => {
  const at = (listen: string | null, host: string | null, prefix: string) => ({ ...routeOf([], prefix), listen, host });
  const places = [
    at(null, 'a.example', '/one'),
    at(null, 'a.example', '/two'),
    at('l', null, '/one'),
    at('l', null, '/three'),
    at('l', 'a.example', ''),
    at(null, null, '/four'),
  ];
  const { locate } = createRouteTable(places, createCatalog([]));
  const found = (entrance: Entrance) =>
    ['/one', '/two', '/three', '/four'].map((path) =>
      places.findIndex((one) => one === locate(path, entrance)?.route.route),
    );
  expect(found({ kind: 'routes', listen: null, host: 'a.example' })).toEqual([0, 1, -1, -1]);
  expect(found({ kind: 'routes', listen: 'l', host: null })).toEqual([2, -1, 3, -1]);
  expect(found({ kind: 'routes', listen: 'l', host: 'a.example' })).toEqual([4, 4, 4, 4]);
  expect(found({ kind: 'own' })).toEqual([-1, -1, -1, 5]);
  expect(found({ kind: 'routes', listen: null, host: 'b.example' })).toEqual([-1, -1, -1, -1]);
  expect(found({ kind: 'none' })).toEqual([-1, -1, -1, -1]);
});

test('of two paths that only a number tells apart, each gets its own', () => {
  for (const rules of [
    ['GET /issues/comments/:id', 'GET /issues/:number/comments'],
    ['GET /issues/:number/comments', 'GET /issues/comments/:id'],
  ]) {
    const match = table(rules);
    expect(match('GET', '/issues/7/comments')).toBe('GET /issues/:number/comments');
    expect(match('GET', '/issues/comments/7')).toBe('GET /issues/comments/:id');
    expect(match('GET', '/issues/comments/comments')).toBe('GET /issues/comments/:id');
    expect(match('GET', '/issues/Comments/comments')).toBe('undeclared, resembles');
    expect(match('GET', '/issues/x/comments')).toBe('undeclared, resembles');
  }
  // Where no other rule is meant, the upstream says itself what is no number.
  expect(table(['GET /issues/:number'])('GET', '/issues/x')).toBe('GET /issues/:number');
});

describe('a fixed segment comes before a param', () => {
  const orders = [
    ['GET /users/:id', 'GET /users/me', 'GET /users/:id/posts/:post', 'GET /users/me/posts/:post'],
    ['GET /users/me/posts/:post', 'GET /users/:id/posts/:post', 'GET /users/me', 'GET /users/:id'],
  ];
  test.each(orders.map((rules) => [rules]))('whatever stands first in the file', (rules) => {
    const match = table(rules);
    expect(match('GET', '/users/me')).toBe('GET /users/me');
    expect(match('HEAD', '/users/me')).toBe('GET /users/me');
    expect(match('GET', '/users/you')).toBe('GET /users/:id');
    expect(match('GET', '/users/mee')).toBe('GET /users/:id');
    // What is encoded in it is no text.
    expect(match('GET', '/users/%25ff')).toBe('GET /users/:id');
    expect(match('GET', '/users/me/posts/1')).toBe('GET /users/me/posts/:post');
    expect(match('GET', '/users/1/posts/me')).toBe('GET /users/:id/posts/:post');
  });

  test('of the method that is asked for', () => {
    const match = table(['POST /users/me', 'GET /users/:id']);
    expect(match('GET', '/users/me')).toBe('GET /users/:id');
    expect(match('POST', '/users/me')).toBe('POST /users/me');
    expect(match('POST', '/users/1')).toBe('undeclared, resembles');
  });

  test.each([
    'ME',
    'Me',
    'ｍｅ',
    'me.',
    'me%20',
    ' me',
    '%256de',
    '%25256De',
    'me%2520.',
    'me%3Ba',
    // Encoded twice: what stands behind a ";", lines and all, is cut off.
    'me%253B%250Aa',
    'me%3Ba%0Ab',
    'm%e2%80%8be',
    'me%ef%b8%8f',
  ])('%s, which some server takes for the fixed one, is no rule’s', (segment) => {
    const match = table(['GET /users/:id', 'GET /users/me']);
    expect(match('GET', `/users/${segment}`)).toBe('undeclared, resembles');
    expect(table(['POST /users/:id', 'POST /users/me'], 'write')('POST', `/users/${segment}`)).toMatch(/^undeclared/);
    // Where there is no fixed one it is a param like any other.
    expect(table(['GET /users/:id'])('GET', `/users/${segment}`)).toBe('GET /users/:id');
  });

  test.each([
    'secrets%3Ba',
    'secrets%ef%bc%9ba',
    'secrets%e2%80%8b',
    'secrets%c2%ad',
    's%c2%85ecrets',
    'secrets%e3%85%a4',
  ])('%s, which some server takes for another name, is no undeclared read', (segment) => {
    const match = table(['GET /users/:id']);
    expect(match('GET', '/secrets')).toBe('undeclared');
    expect(match('GET', `/${segment}`)).toBe('undeclared, resembles');
    expect(match('GET', `/users/${segment}`)).toBe('GET /users/:id');
  });
});

test('an undeclared read resembles what is declared as a read, with a slash at its end or without, and no write', () => {
  expect(table(['GET /orders/'])('GET', '/orders')).toBe('undeclared, resembles');
  expect(table(['HEAD /orders'])('GET', '/orders')).toBe('undeclared, resembles');
  expect(table(['GET /orders'])('GET', '/orders/')).toBe('undeclared, resembles');
  expect(table(['POST /orders'], 'write')('GET', '/orders')).toBe('undeclared');
});

describe('params that hold slashes', () => {
  test('a fixed segment comes before a param, a param before the rest of the path', () => {
    const match = table(['GET /files/*path', 'GET /files/:name', 'GET /files/me', 'GET /*all', 'GET /files/a/*more']);
    expect(match('GET', '/files/me')).toBe('GET /files/me');
    expect(match('GET', '/files/b')).toBe('GET /files/:name');
    expect(match('GET', '/files/b/c')).toBe('GET /files/*path');
    expect(match('GET', '/files/a/c/d')).toBe('GET /files/a/*more');
    expect(match('GET', '/other/c/d')).toBe('GET /*all');
    expect(match('HEAD', '/files/b/c')).toBe('GET /files/*path');
    expect(table(['GET /files/*path'])('GET', '/files/')).toBe('undeclared');
    expect(table(['GET /files/*path'])('GET', '/files')).toBe('undeclared');
    expect(table(['GET /files/*path'])('GET', '/Files/a/b')).toBe('undeclared, resembles');
  });

  test.each(['me%2Fkeys', 'ME%2fkeys', 'me.%2Fkeys', 'ME/keys', 'm%e2%80%8be/keys'])(
    '%s, which a server that decodes it takes for another rule’s, is no rule’s',
    (path) => {
      const match = table(['GET /files/*path', 'GET /files/me/keys']);
      expect(match('GET', `/files/${path}`)).toMatch(/^undeclared/);
      expect(match('GET', '/files/me/keys')).toBe('GET /files/me/keys');
      expect(match('GET', '/files/me/locks')).toBe('GET /files/*path');
      expect(match('GET', '/files/me%2Flocks')).toBe('GET /files/*path');
    },
  );

  test('encoded slashes in the middle of a path, where they are declared', () => {
    const rules = ['GET /encoded/:id', 'GET /encoded/:id/issues', 'GET /encoded/:id/issues/:number'];
    const match = table(rules);
    expect(match('GET', '/encoded/a%2Fb')).toBe(rules[0]);
    expect(match('GET', '/encoded/a%2Fb/issues')).toBe(rules[1]);
    expect(match('GET', '/encoded/a%2Fb/issues/7')).toBe(rules[2]);
    expect(match('GET', '/encoded/a/issues')).toBe(rules[1]);
    // Decoded first, these are paths of other rules.
    expect(match('GET', '/encoded/a%2Fissues')).toMatch(/^undeclared/);
    expect(match('GET', '/encoded/a%2FIssues%2F7')).toMatch(/^undeclared/);
    // With a slash of its own it may be the same for some server.
    expect(match('GET', '/encoded/a/b')).toBe('undeclared, resembles');
    expect(match('GET', '/encoded/a/issues/7%2F8')).toMatch(/^undeclared/);
    expect(table(['GET /plain/:id'])('GET', '/plain/a%2Fb')).toMatch(/^undeclared/);
  });

  test('8,000 segments are compared in time', () => {
    const match = table(['GET /encoded/:id/a/:b/*path', 'GET /encoded/:id/x/:b/y']);
    const began = performance.now();
    match('GET', `/encoded/${'a/'.repeat(8_000)}b`);
    match('GET', `/encoded/1/x/${'a/'.repeat(8_000)}y`);
    expect(performance.now() - began).toBeLessThan(500);
  });
});

test('a prefix ends where a segment does, and a HEAD is a read of what a GET reads', () => {
  const match = table(['GET /orders', 'GET /'], 'read', '/shop');
  expect(match('GET', '/shop/orders')).toBe('GET /orders');
  expect(match('GET', '/shop')).toBe('GET /');
  expect(match('GET', '/shopping/orders')).toBe('nowhere');
  expect(match('HEAD', '/shop/orders')).toBe('GET /orders');
  // A GET that changes something is one tool, and a HEAD of it another.
  expect(table(['GET /orders'], 'write')('HEAD', '/orders')).toMatch(/^undeclared/);
});
