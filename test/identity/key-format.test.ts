import { createSecretKey } from 'node:crypto';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KEY_KINDS } from '../../src/effects/model/principal.ts';
import { hashKey, holdsKey, makeKey, parseKey } from '../../src/identity/key-format.ts';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

describe('key format', () => {
  it.each([
    ['account', 'acct'],
    ['agent', 'agent'],
    ['administrative', 'admin'],
    ['profile', 'mcp'],
  ] as const)('a key of kind %s begins with svc_%s_ and says its kind and handle', (kind, word) => {
    const { key, handle } = makeKey(kind);
    expect(key).toMatch(new RegExp(`^svc_${word}_[0-9A-Za-z]{50}$`));
    expect(key.slice(`svc_${word}_`.length).slice(0, 12)).toBe(handle);
    expect(parseKey(key)).toEqual({ kind, handle });
  });

  it('ends in the CRC-32 of all before it, base62, most significant first', () => {
    const { key } = makeKey('agent');
    let number = 0n;
    for (const letter of key.slice(-6)) number = number * 62n + BigInt(ALPHABET.indexOf(letter));
    expect(number).toBe(BigInt(crc32(key.slice(0, -6))));
  });

  it('refuses every key with one letter changed', () => {
    const { key } = makeKey('account');
    for (let at = 0; at < key.length; at += 1)
      for (const letter of ['0', 'A', 'z', '_', '-', ' ', '\n', 'é', '\0'])
        if (key[at] !== letter) expect(parseKey(key.slice(0, at) + letter + key.slice(at + 1)), `${at}`).toBeNull();
  });

  it('refuses what is around, cut, doubled, or of another kind', () => {
    const { key } = makeKey('agent');
    const other = key.replace('svc_agent_', 'svc_admin_');
    for (const text of [`${key}\n`, ` ${key}`, `${key} `, key.slice(1), key.slice(0, -1), key + key, '', 'svc_', other])
      expect(parseKey(text)).toBeNull();
    expect(parseKey(key.toUpperCase())).toBeNull();
  });

  it('is found within a text; what only looks like one is none', () => {
    const { key } = makeKey('profile');
    const wrong = `${key.slice(0, -1)}${key.endsWith('0') ? '1' : '0'}`;
    expect([holdsKey(`asked with ${key}.`), holdsKey(`asked with ${wrong}.`)]).toEqual([true, false]);
    expect(holdsKey(`${wrong} ${key}`)).toBe(true);
  });

  it('refuses any other text', () => {
    fc.assert(fc.property(fc.string(), (text) => parseKey(text) === null));
    fc.assert(
      fc.property(
        fc.constantFrom('acct', 'agent', 'admin', 'mcp'),
        fc.stringMatching(/^[0-9A-Za-z]{50}$/),
        (word, body) => {
          // The chance that a random text has a right checksum is one in 2^32.
          expect(parseKey(`svc_${word}_${body}`)).toBeNull();
        },
      ),
    );
  });

  it('is found within a text wherever it stands, and what only has its form is none', () => {
    const { key } = makeKey('agent');
    const invented = `${key.slice(0, -1)}${key.endsWith('0') ? '1' : '0'}`;
    for (const text of [key, `see ${key}.`, `${invented} ${key}`, `x=${key}&y`]) expect(holdsKey(text)).toBe(true);
    for (const text of [invented, 'svc_agent_', key.replace('svc_', 'SVC_'), '']) expect(holdsKey(text)).toBe(false);
  });

  it('draws all letters evenly, and no key twice', () => {
    const counts = new Map<string, number>();
    const keys = new Set<string>();
    for (let round = 0; round < 4000; round += 1) {
      const { key } = makeKey(KEY_KINDS[round % 4]!);
      keys.add(key);
      for (const letter of key.slice(-50, -6)) counts.set(letter, (counts.get(letter) ?? 0) + 1);
    }
    expect(keys.size).toBe(4000);
    const expected = (4000 * 44) / 62;
    // Chi-squared with 61 degrees of freedom: beyond 130 about once in a million runs.
    let chi = 0;
    for (const letter of ALPHABET) chi += ((counts.get(letter) ?? 0) - expected) ** 2 / expected;
    expect(chi).toBeLessThan(130);
  });

  it('hashes the whole key under the pepper', () => {
    const { key } = makeKey('agent');
    const [one, two] = [createSecretKey(Buffer.alloc(32, 1)), createSecretKey(Buffer.alloc(32, 2))];
    expect(hashKey(one, key)).toHaveLength(32);
    expect(hashKey(one, key)).toEqual(hashKey(one, key));
    expect(hashKey(one, key)).not.toEqual(hashKey(two, key));
    expect(hashKey(one, key)).not.toEqual(hashKey(one, key.slice(0, -1)));
  });
});
