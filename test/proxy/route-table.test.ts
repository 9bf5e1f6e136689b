import { describe, expect, test } from 'vitest';
import type { Route } from '../../src/config/configuration.ts';
import { createRouteTable } from '../../src/proxy/route-table.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { makeTool } from '../upstreams/tool.ts';

const none = { forward: [], drop: [], volatile: [], set: {} };

function table(rules: readonly string[], kind: 'read' | 'write' = 'read') {
  const made: Route = {
    upstream: 'api',
    prefix: '',
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
  const compiled = createRouteTable([made], createCatalog(rules.map((name) => makeTool({ name, kind }))));
  return (method: string, path: string): string => {
    const located = compiled.locate(path, { kind: 'routes', listen: null, host: 'api.example.com' });
    if (located === null) return 'nowhere';
    const match = compiled.match(located.route, method, path.slice(1).split('/').map(decodeURIComponent));
    if (match.kind === 'none') return 'none';
    return match.kind === 'rule' ? match.tool.name : `undeclared${match.resembles ? ', resembles' : ''}`;
  };
}

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
