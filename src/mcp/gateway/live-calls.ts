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
  const calls = new Map<string, LiveCall>();
  const given = new Set<string>();
  const nameOf = (session: string, id: RpcId): string => JSON.stringify([session, id]);
  return {
    /** @returns ends the entry */
    enter(session: string, id: RpcId, call: LiveCall): () => void {
      const name = nameOf(session, id);
      calls.set(name, call);
      return () => {
        if (calls.get(name) === call) calls.delete(name);
      };
    },
    /** The call that a client cancels; `null` if it is none of these. */
    of: (session: string, id: RpcId): LiveCall | null => calls.get(nameOf(session, id)) ?? null,
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
