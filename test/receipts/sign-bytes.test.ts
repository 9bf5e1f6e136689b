import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { loadSodium } from '../../src/sodium/load.ts';
import { keyBench, receiptInput } from './facts.ts';
import { signBytesWith } from '../../src/sodium/sign.ts';

const { privateKey } = generateKeyPairSync('ed25519');

afterEach(() => {
  vi.doUnmock('sodium-native');
  vi.resetModules();
});

describe('a signature', () => {
  it('has the same bytes by the native library and by node:crypto', async () => {
    const sodium = await loadSodium();
    if (sodium === null) throw new Error('sodium-native is not installed: this test proves nothing');
    const detached = vi.spyOn(sodium, 'crypto_sign_detached');
    for (let round = 0; round < 20; round += 1) {
      const { privateKey: key } = generateKeyPairSync('ed25519');
      const [native, plain] = [signBytesWith(key, sodium), signBytesWith(key, null)];
      for (const length of [0, 1, 1_300, 70_000]) {
        const bytes = randomBytes(length);
        detached.mockClear();
        expect(native(bytes)).toEqual(sign(null, bytes, key));
        expect(detached).toHaveBeenCalledOnce();
        expect(plain(bytes)).toEqual(sign(null, bytes, key));
        expect(detached).toHaveBeenCalledOnce();
      }
    }
  });

  it('is not made by a library that signs otherwise', async () => {
    const sodium = await loadSodium();
    if (sodium === null) throw new Error('sodium-native is not installed: this test proves nothing');
    const wrong = { ...sodium, crypto_sign_detached: (signature: Buffer) => void signature.fill(1) };
    const bytes = Buffer.from('a receipt');
    expect(signBytesWith(privateKey, wrong)(bytes)).toEqual(sign(null, bytes, privateKey));
  });

  it('is made by node:crypto where the library is absent: the receipt is the same', async () => {
    const bench = await keyBench();
    try {
      const native = (await bench.open()).issue(receiptInput());
      vi.resetModules();
      vi.doMock('sodium-native', () => {
        throw new Error('Cannot find package');
      });
      const absent = await import('../../src/sodium/load.ts');
      expect(await absent.loadSodium()).toBeNull();
      const { openSigner } = await import('../../src/receipts/sign.ts');
      const signer = await openSigner(bench.options());
      expect(signer.issue(receiptInput())).toEqual(native);
    } finally {
      await bench.close();
    }
  });
});
