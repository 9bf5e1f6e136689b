import { expect, it, vi } from 'vitest';
import { LONGEST_ADDRESS, namesGateway } from '../../src/api/own-names.ts';

const PUBLIC = { publicUrl: 'https://Gateway.example:8443', allowedHosts: ['gw', 'inner.example'] };
const LOCAL = { publicUrl: 'http://127.0.0.1:8080', allowedHosts: [] };

it.each([
  'https://gateway.example/approve/demo/apr_1',
  'https://gateway.example:9999/x',
  'http://GATEWAY.EXAMPLE./x',
  'https://gateway.example@evil.example/',
  'https://evil.example@gateway.example/',
  'https://gateway.example.evil.example/',
  'https://login.gateway.example/',
  'https://evil.example/go?to=https%3A%2F%2Fgateway.example%2Fapprove',
  'https://evil.example/go?to=https%253A%252F%252Fgateway%252Eexample',
  'https://evil.example/go?to=gateway%25252Eexample',
  'https://evil.example/#gateway.example',
  'https://evil.example/mygateway.example/gateway.example',
  'https://ｇateway.example/',
  'https://gateway%2Eexample/',
  'https:gateway.example/',
  'https:\\\\gateway.example\\approve',
  ' https://gateway.example',
  'custom://gateway.example/x',
  'gateway.example/approve',
  'https://gw/',
  'https://gw:1234/approve',
  'https://gw@evil.example/',
  'https://x:gw@evil.example/',
  'https://%67w@evil.example/',
  'gw/approve',
  'https://gw.evil.example/',
  'https://login.gw/',
  'https://inner.example/',
])('an address of the gateway: %s', (address) => {
  expect(namesGateway(address, PUBLIC)).toBe(true);
});

it.each([
  'https://crm.example/ok',
  'https://gateway.example-crm.com/',
  'https://mygateway.example/',
  'https://crm.example/gw/ok?gw=1',
  'http://127.0.0.1:8080/',
  'about:blank',
  '',
])('an address of another: %s', (address) => {
  expect(namesGateway(address, PUBLIC)).toBe(false);
});

it('on loopback the port counts, under each of its names', () => {
  for (const host of ['127.0.0.1', 'localhost', '[::1]', '127.1', '2130706433', '0.0.0.0', '[::]'])
    expect([namesGateway(`http://${host}:8080/approve`, LOCAL), namesGateway(`http://${host}:9090/ok`, LOCAL)]).toEqual(
      [true, false],
    );
});

it('on loopback a port that is not written is that of its scheme', () => {
  const tls = { publicUrl: 'https://127.0.0.1', allowedHosts: [] };
  const clear = { publicUrl: 'http://localhost', allowedHosts: [] };
  expect([namesGateway('http://localhost:443/', tls), namesGateway('https://localhost:80/', clear)]).toEqual([
    true,
    true,
  ]);
  expect([namesGateway('http://localhost/', tls), namesGateway('https://localhost/', clear)]).toEqual([false, false]);
});

it('what is too long to be looked at could be one', () => {
  const long = 'https://crm.example/'.padEnd(LONGEST_ADDRESS, 'x');
  expect([namesGateway(long, PUBLIC), namesGateway(`${long}x`, PUBLIC)]).toEqual([false, true]);
});

it('marks in a row are put in order in parts: all at once, n of them take n times n steps', () => {
  const parts: number[] = [];
  const normalize = vi.spyOn(String.prototype, 'normalize').mockImplementation(function (this: string) {
    parts.push(this.length);
    return String(this);
  });
  const marks = '\u0316\u0301'.repeat(1_000);
  expect(namesGateway(`https://crm.example/${marks}?${encodeURIComponent(marks).slice(0, 1_200)}`, PUBLIC)).toBe(false);
  normalize.mockRestore();
  expect(parts.length).toBeGreaterThan(8);
  expect(Math.max(...parts)).toBeLessThanOrEqual(512);
});

it('a host that is a dot alone is the name of nothing', () => {
  expect(namesGateway('https://crm.example/', { publicUrl: PUBLIC.publicUrl, allowedHosts: ['.'] })).toBe(false);
});
