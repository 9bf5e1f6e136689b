import { expect, it } from 'vitest';
import { accessOf, clusterNodes, targetOf } from '../../src/stores/redis/addresses.ts';

/* What `store.url` and `store.nodes` say: who signs in where. */

const OPEN = { username: null, password: null, database: 0, tls: false };

it.each([
  ['redis://localhost', OPEN],
  ['rediss://localhost', { ...OPEN, tls: true }],
  ['redis://localhost/', OPEN],
  ['redis://localhost:6379/3', { ...OPEN, database: 3 }],
  ['redis://:secret@localhost', { ...OPEN, password: 'secret' }],
  ['redis://svc@localhost', { ...OPEN, username: 'svc' }],
  ['redis://a%40b:p%3A%2F%40%25@localhost/1', { ...OPEN, username: 'a@b', password: 'p:/@%', database: 1 }],
])('who signs in by %s', (url, access) => {
  expect(accessOf(url)).toEqual(access);
});

it.each([
  ['standalone', 'redis://host', [], { host: 'host', port: 6379 }],
  ['standalone', 'redis://host:7000', ['ignored:1'], { host: 'host', port: 7000 }],
  ['standalone', 'redis://[::1]', [], { host: '::1', port: 6379 }],
  ['standalone', 'redis://[2001:db8::1]:7000', [], { host: '2001:db8::1', port: 7000 }],
  ['cluster', 'redis://host', ['[::1]:7001'], { host: '::1', port: 7001 }],
  ['cluster', 'redis://host', [], { host: 'host', port: 6379 }],
  ['cluster', 'redis://host:7000', ['one:7001', 'two:7002'], { host: 'one', port: 7001 }],
] as const)('%s at %s with the nodes %j begins at %j', (mode, url, nodes, address) => {
  expect(targetOf({ mode, url, nodes })).toEqual({ kind: 'address', address });
});

it('sentinels are asked for the name that the address says, and a cluster at each of its nodes', () => {
  const nodes = ['one:7001', 'two:7002'];
  const addresses = [
    { host: 'one', port: 7001 },
    { host: 'two', port: 7002 },
  ];
  const url = 'redis://primary:7000';
  expect(targetOf({ mode: 'sentinel', url, nodes })).toEqual({
    kind: 'sentinel',
    sentinels: addresses,
    name: 'primary',
  });
  expect(clusterNodes({ mode: 'cluster', url, nodes })).toEqual(addresses);
  expect(clusterNodes({ mode: 'cluster', url, nodes: [] })).toEqual([{ host: 'primary', port: 7000 }]);
});
