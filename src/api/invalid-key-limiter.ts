/** How many invalid keys an address may send at once, and how many it gets back per second. */
export const INVALID_KEY_LIMIT = { burst: 500, perSecond: 10, addresses: 10_000, remembered: 10_000 } as const;

export type InvalidKeyLimiter = ReturnType<typeof createInvalidKeyLimiter>;

interface Bucket {
  tokens: number;
  at: number;
}

/**
 * Stops an address that guesses keys from causing many store reads. It is a token bucket per address that only invalid
 * keys use up. Memory is bounded: the oldest addresses are forgotten first.
 * @param now monotonic ms
 */
export function createInvalidKeyLimiter(now: () => number) {
  const buckets = new Map<string, Bucket>();
  const valid = new Set<string>();

  const refill = (bucket: Bucket): Bucket => {
    const time = now();
    const earned = ((time - bucket.at) / 1000) * INVALID_KEY_LIMIT.perSecond;
    bucket.tokens = Math.min(INVALID_KEY_LIMIT.burst, bucket.tokens + earned);
    bucket.at = time;
    return bucket;
  };

  return {
    /**
     * Called before a key is checked.
     * @param handle the public part of the key. A handle that was valid lately passes, whatever its address did
     * @returns `null` to go on, or ms to wait
     */
    check(address: string, handle: string | null): number | null {
      const bucket = buckets.get(address);
      if (bucket === undefined || refill(bucket).tokens >= 1) return null;
      if (handle !== null && valid.has(handle)) return null;
      return Math.ceil(((1 - bucket.tokens) / INVALID_KEY_LIMIT.perSecond) * 1000);
    },
    /** Called for each invalid key. */
    failed(address: string): void {
      const bucket = refill(buckets.get(address) ?? { tokens: INVALID_KEY_LIMIT.burst, at: now() });
      bucket.tokens = Math.max(0, bucket.tokens - 1);
      buckets.delete(address);
      buckets.set(address, bucket);
      forgetOldest(buckets, INVALID_KEY_LIMIT.addresses);
    },
    /** Called for each valid key. */
    passed(handle: string | null): void {
      if (handle === null || valid.has(handle)) return;
      valid.add(handle);
      forgetOldest(valid, INVALID_KEY_LIMIT.remembered);
    },
  };
}

function forgetOldest(entries: Map<string, Bucket> | Set<string>, most: number): void {
  const [oldest] = entries.keys();
  if (oldest !== undefined && entries.size > most) entries.delete(oldest);
}
