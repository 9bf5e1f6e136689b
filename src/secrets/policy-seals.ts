import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';

/** Vouches for versions of policies, and for proposals of them. A version is the digest of what it names. */
export interface PolicySeals {
  seal(version: string): string;
  fits(version: string, seal: string): boolean;
  /** @param terms what is proposed, and who stands behind it, as one text */
  sealProposal(terms: string): string;
  fitsProposal(terms: string, seal: string): boolean;
}

/** @param keys the one to seal with, then those whose seals still hold */
export function createPolicySeals(keys: readonly KeyObject[]): PolicySeals {
  const macs = (text: string): readonly Buffer[] => keys.map((key) => createHmac('sha256', key).update(text).digest());
  const seal = (text: string): string => (macs(text)[0] ?? Buffer.alloc(0)).toString('base64url');
  const fits = (text: string, given: string): boolean => {
    const there = Buffer.from(given, 'base64url');
    return macs(text).some((mac) => mac.length === there.length && timingSafeEqual(mac, there));
  };
  const version = (of: string): string => `policy/1\n${of}`;
  const proposal = (terms: string): string => `policy-proposal/1\n${terms}`;
  return {
    seal: (of) => seal(version(of)),
    fits: (of, given) => fits(version(of), given),
    sealProposal: (terms) => seal(proposal(terms)),
    fitsProposal: (terms, given) => fits(proposal(terms), given),
  };
}
