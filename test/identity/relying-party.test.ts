import { describe, expect, it } from 'vitest';
import { relyingPartyOf } from '../../src/identity/passkeys/relying-party.ts';

describe('for whom passkeys are', () => {
  it.each([
    ['https://gateway.example', 'evil.example', { id: 'gateway.example', origin: 'https://gateway.example' }],
    ['https://gateway.example:8443', undefined, { id: 'gateway.example', origin: 'https://gateway.example:8443' }],
    ['http://127.0.0.1:8080', 'localhost:8080', { id: 'localhost', origin: 'http://localhost:8080' }],
    ['http://[::1]:8080', 'localhost:9000', { id: 'localhost', origin: 'http://localhost:9000' }],
    ['http://localhost:8080', 'LOCALHOST', { id: 'localhost', origin: 'http://localhost' }],
    ['https://localhost', 'localhost', { id: 'localhost', origin: 'https://localhost' }],
  ])('%s, asked as %s', (publicUrl, host, party) => {
    expect(relyingPartyOf(publicUrl, host)).toEqual(party);
  });

  it.each([
    ['a name without TLS', 'http://gateway.example', 'gateway.example'],
    ['an address', 'https://192.0.2.1', '192.0.2.1'],
    ['an address of version 6', 'https://[2001:db8::1]', '[2001:db8::1]'],
    ['loopback, asked by its address', 'http://127.0.0.1:8080', '127.0.0.1:8080'],
    ['loopback, asked by another name', 'http://localhost:8080', 'localhost.evil.example'],
    ['loopback, asked with something before it', 'http://localhost:8080', 'evil@localhost'],
    ['loopback, asked for a port that there is not', 'http://localhost:8080', 'localhost:99999'],
    ['loopback, asked without a name', 'http://localhost:8080', undefined],
  ])('nobody: %s', (_, publicUrl, host) => {
    expect(relyingPartyOf(publicUrl, host)).toBeNull();
  });
});
