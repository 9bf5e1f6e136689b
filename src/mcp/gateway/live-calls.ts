import type { RpcId } from '../jsonrpc.ts';

export interface LiveCall {
  /** The id under which its server knows it. */
  readonly sentAs: number;
  readonly onClientClose: 'finish' | 'abort';
  abort(): void;
}

/** The governed calls that run in this process, so that a cancellation does with them what their tools say. */
export interface LiveCalls {
  /** @returns ends the entry */
  enter(session: string, id: RpcId, call: LiveCall): () => void;
  /** The call that a client cancels; `null` if it is none of these. */
  of(session: string, id: RpcId): LiveCall | null;
  /** The result of an effect has been given to its caller. */
  gave(effectId: string): void;
  /** Whether this process has given it. What is not known any more counts as not given: then it is given once more. */
  hasGiven(effectId: string): boolean;
}

/** So many effects are remembered. */
const MOST_GIVEN = 10_000;

export function createLiveCalls(): LiveCalls {
  const calls = new Map<string, LiveCall>();
  const given = new Set<string>();
  const nameOf = (session: string, id: RpcId): string => JSON.stringify([session, id]);
  return {
    enter(session, id, call) {
      const name = nameOf(session, id);
      calls.set(name, call);
      return () => {
        if (calls.get(name) === call) calls.delete(name);
      };
    },
    of: (session, id) => calls.get(nameOf(session, id)) ?? null,
    gave(effectId) {
      given.add(effectId);
      const [oldest] = given;
      if (given.size > MOST_GIVEN && oldest !== undefined) given.delete(oldest);
    },
    hasGiven: (effectId) => given.has(effectId),
  };
}
