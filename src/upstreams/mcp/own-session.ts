import type { JsonObject } from '../../json/value.ts';
import { type Begun, beginWith } from '../../mcp-protocol/begin.ts';
import { VERSION } from '../../version.ts';
import { type Reached, ServerRequests } from './server-requests.ts';

/** What a call that the gateway makes itself is sent with. */
export interface Entered {
  readonly id: number;
  readonly begun: Begun;
}

const NAME = 'svc-gateway';
/** How long a server may take to hear an answer, ms. */
const NOTIFY_MS = 5_000;

/**
 * How the gateway itself speaks with a server, for calls that did not come in a session with it. It is found out when
 * the first such call comes, and again after the server has refused to be spoken to in this way: it may have forgotten
 * the session, or be of another era since.
 */
export class OwnSession {
  readonly #holder: string | undefined;
  #begun: Promise<Begun | string> | null = null;
  #lastId = 0;

  /** @param holder whom it is for; absent: for whoever calls without a session */
  constructor(holder?: string) {
    this.#holder = holder;
  }

  /** Resolves with what to send, or with why nothing can be sent. */
  async enter(upstream: Reached, timeoutMs: number): Promise<Entered | string> {
    const beginning = (this.#begun ??= begin(upstream, timeoutMs, this.#holder));
    const begun = await beginning;
    if (typeof begun === 'string') {
      if (this.#begun === beginning) this.#begun = null;
      return begun;
    }
    this.#lastId += 1;
    return { id: this.#lastId, begun };
  }

  /** The server does not take it any more: the next call begins anew. @param refused what it did not take */
  async forget(refused: Begun): Promise<void> {
    const beginning = this.#begun;
    if ((await beginning) === refused && this.#begun === beginning) this.#begun = null;
  }

  /** Ends it at the server, if it was begun. Whether that is heard does not matter: servers end what is not used. */
  end(upstream: Reached): void {
    void this.#begun?.then((begun) => {
      if (typeof begun === 'string' || begun.kind === 'stateless' || !begun.isNamed) return;
      return requests(upstream, NOTIFY_MS).end(begun.headers);
    });
    this.#begun = null;
  }
}

function requests(upstream: Reached, timeoutMs: number, holder?: string): ServerRequests {
  return new ServerRequests(upstream, NAME, AbortSignal.timeout(timeoutMs), holder);
}

/**
 * Answers what a server asks. Whether it takes the answer shows in what it does next. In the stateless era no server
 * asks in this way, and none is answered.
 */
export async function answerServer(upstream: Reached, begun: Begun, message: JsonObject): Promise<void> {
  if (begun.kind !== 'stateless') await requests(upstream, NOTIFY_MS).tell(message, begun.headers);
}

async function begin(upstream: Reached, timeoutMs: number, holder: string | undefined): Promise<Begun | string> {
  try {
    const answer = await beginWith(requests(upstream, timeoutMs, holder), { name: NAME, version: VERSION });
    if (answer.begun !== null) return answer.begun;
    return `the server answers neither initialize (${answer.answered.status}) nor server/discover`;
  } catch (error) {
    return error instanceof Error ? error.message : 'the server cannot be spoken to';
  }
}
