import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';

/** Vouches for versions of policies. A version is the digest of what it names. */
export interface PolicySeals {
  seal(version: string): string;
  fits(version: string, seal: string): boolean;
}

/** @param keys the one to seal with, then those whose seals still hold */
export function createPolicySeals(keys: readonly KeyObject[]): PolicySeals {
  const macs = (version: string): readonly Buffer[] =>
    keys.map((key) => createHmac('sha256', key).update(`policy/1\n${version}`).digest());
  return {
    seal: (version) => (macs(version)[0] ?? Buffer.alloc(0)).toString('base64url'),
    fits(version, seal) {
      const there = Buffer.from(seal, 'base64url');
      return macs(version).some((mac) => mac.length === there.length && timingSafeEqual(mac, there));
    },
  };
}
