import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';

/** Vouches for versions of policies, and for proposals of them. A version is the digest of what it names. */
export type PolicySeals = ReturnType<typeof createPolicySeals>;

/** @param keys the one to seal with, then those whose seals still hold */
export function createPolicySeals(keys: readonly KeyObject[]) {
  const macs = (text: string): readonly Buffer[] => keys.map((key) => createHmac('sha256', key).update(text).digest());
  const seal = (text: string): string => (macs(text)[0] ?? Buffer.alloc(0)).toString('base64url');
  const fits = (text: string, given: string): boolean => {
    const there = Buffer.from(given, 'base64url');
    return macs(text).some((mac) => mac.length === there.length && timingSafeEqual(mac, there));
  };
  const version = (of: string): string => `policy/1\n${of}`;
  const proposal = (terms: string): string => `policy-proposal/1\n${terms}`;
  return {
    seal: (of: string): string => seal(version(of)),
    fits: (of: string, given: string): boolean => fits(version(of), given),
    /** @param terms what is proposed, and who stands behind it, as one text */
    sealProposal: (terms: string): string => seal(proposal(terms)),
    fitsProposal: (terms: string, given: string): boolean => fits(proposal(terms), given),
  };
}
