import { expect, it } from 'vitest';
import { isLoopback } from '../../src/config/resolve-webhooks.ts';

it.each([
  ['127.0.0.1', true],
  ['127.9.9.9', true],
  ['localhost', true],
  ['[::1]', true],
  ['127.mail.example', false],
  ['127.0.0.1.mail.example', false],
  ['10.0.0.1', false],
])('what goes in clear to %s stays on this machine: %s', (host, stays) => {
  expect(isLoopback(host)).toBe(stays);
});
