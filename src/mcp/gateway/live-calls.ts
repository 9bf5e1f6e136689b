import type { RpcId } from '../jsonrpc.ts';

/** A call that runs here. */
export interface LiveCall {
  readonly onClientClose: 'finish' | 'abort';
  abort(): void;
}

/** The governed calls that run in this process, so that a cancellation does with them what their tools say. */
export interface LiveCalls {
  /** @returns ends the entry */
  enter(session: string, id: RpcId, call: LiveCall): () => void;
  /** The call that a client cancels; `null` if it is none of these. */
  of(session: string, id: RpcId): LiveCall | null;
}

export function createLiveCalls(): LiveCalls {
  const calls = new Map<string, LiveCall>();
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
  };
}
