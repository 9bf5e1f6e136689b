import { createHmac, createSecretKey } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { hmacSha256 } from '../../src/effects/run/fingerprint.ts';

it('is HMAC-SHA-256, for keys and texts of every length', () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 1, maxLength: 150 }),
      fc.oneof(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary', minLength: 2_000, maxLength: 6_000 })),
      (bytes, text) => {
        const key = createSecretKey(bytes);
        const expected = createHmac('sha256', key).update(text, 'utf8').digest('base64url');
        expect(hmacSha256(key, text)).toBe(expected);
        expect(hmacSha256(key, text)).toBe(expected);
      },
    ),
  );
});
