import type { RpcId } from '../jsonrpc.ts';

export interface LiveCall {
  /** The id under which its server knows it. */
  readonly sentAs: number;
  readonly onClientClose: 'finish' | 'abort';
  abort(): void;
}

/** So many effects are remembered. */
const MOST_GIVEN = 10_000;

export function createLiveCalls() {
  // A list: the tables of a `Map` that calls enter and leave would keep those that are over (docs/decisions/0067).
  const calls: { readonly session: string; readonly id: RpcId; readonly call: LiveCall }[] = [];
  const given = new Set<string>();
  return {
    /** @returns ends the entry */
    enter(session: string, id: RpcId, call: LiveCall): () => void {
      const entry = { session, id, call };
      calls.push(entry);
      return () => {
        const place = calls.indexOf(entry);
        if (place >= 0) calls.splice(place, 1);
      };
    },
    /** The call that a client cancels, of several the newest; `null` if it is none of these. */
    of: (session: string, id: RpcId): LiveCall | null =>
      calls.findLast((entry) => entry.session === session && entry.id === id)?.call ?? null,
    /** The result of an effect has been given to its caller. */
    gave(effectId: string): void {
      given.add(effectId);
      const [oldest] = given;
      if (given.size > MOST_GIVEN && oldest !== undefined) given.delete(oldest);
    },
    /** Whether this process has given it. What is not known any more counts as not given: then it is given once more. */
    hasGiven: (effectId: string): boolean => given.has(effectId),
  };
}
