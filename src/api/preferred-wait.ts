import type { IncomingMessage, ServerResponse } from 'node:http';
import type { EffectState, EffectRecord } from '../effects/model/effect.ts';
import type { RunOutcome, RunResult } from '../effects/model/outcome.ts';
import { actingAgent, type Principal } from '../effects/model/principal.ts';
import type { Problem, RunRequest } from '../effects/model/run-request.ts';
import { outcomeFor, outcomeOfRecord } from '../effects/run/to-outcome.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { permit } from '../identity/permissions.ts';

const FIRST_CHECK_MS = 25;
const SLOWEST_CHECK_MS = 500;
/** Callers that wait at once. Each holds a connection, and the store is read twice a second for the effect of each. */
const MOST_WAITS = 64;
/** Of these, callers of one agent: its calls that wait for people leave room for others. */
const MOST_OF_ONE = 16;

interface EffectWatch {
  /**
   * Resolves with `true` when the effect is in none of these states any more, and with `false` when the time ends
   * first, the caller has gone, or the gateway stops.
   * @param of whose caller it is
   * @returns `null` where too many wait already
   */
  left(
    states: readonly EffectState[],
    effect: { readonly workspace: string; readonly effectId: string },
    of: string,
    waitMs: number,
    gone: AbortSignal,
  ): Promise<boolean> | null;
  /** Ends every wait, and lets none begin. */
  end(): void;
}

/** Waits for effects on behalf of many callers. Callers that wait for the same effect share one series of reads. */
export function createEffectWatch(read: (workspace: string, id: string) => Promise<EffectRecord | null>): EffectWatch {
  const waiting = new Map<string, Set<(left: boolean) => void>>();
  let waits = 0;
  const waitsOf = new Map<string, number>();
  let isOver = false;

  /** Reads until all who wait have gone. Who comes after that begins a series of his own. */
  const check = async (
    waiters: ReadonlySet<(left: boolean) => void>,
    hasLeft: () => Promise<boolean>,
    delayMs: number,
  ): Promise<void> => {
    if (waiters.size === 0) return;
    // If the store cannot be read, try again later: the waiters have their own time limit.
    if (await hasLeft().catch(() => false)) for (const wake of waiters) wake(true);
    else setTimeout(() => void check(waiters, hasLeft, Math.min(delayMs * 2, SLOWEST_CHECK_MS)), delayMs).unref();
  };

  return {
    left(states, { workspace, effectId }, of, waitMs, gone) {
      const key = JSON.stringify([workspace, effectId, states]);
      const known = waiting.get(key);
      const own = waitsOf.get(of) ?? 0;
      if (isOver || gone.aborted || waits >= MOST_WAITS || own >= MOST_OF_ONE) return null;
      waits += 1;
      waitsOf.set(of, own + 1);
      return new Promise((resolve) => {
        const waiters = known ?? new Set();
        const end = (): void => wake(false);
        const timer = setTimeout(end, waitMs);
        const wake = (left: boolean): void => {
          clearTimeout(timer);
          gone.removeEventListener('abort', end);
          waiters.delete(wake);
          waits -= 1;
          const others = (waitsOf.get(of) ?? 1) - 1;
          if (others === 0) waitsOf.delete(of);
          else waitsOf.set(of, others);
          if (waiters.size === 0 && waiting.get(key) === waiters) waiting.delete(key);
          resolve(left);
        };
        gone.addEventListener('abort', end);
        waiters.add(wake);
        if (known !== undefined) return;
        waiting.set(key, waiters);
        const hasLeft = async (): Promise<boolean> => {
          const effect = await read(workspace, effectId);
          return effect === null || !states.includes(effect.life.state);
        };
        void check(waiters, hasLeft, FIRST_CHECK_MS);
      });
    },
    end() {
      isOver = true;
      for (const waiters of waiting.values()) for (const wake of waiters) wake(false);
    },
  };
}

/** Longest wait that `Prefer: wait=n` may ask for, s. */
const MAX_WAIT_S = 30;
/** When a caller should ask again for a call that was approved and runs, ms. */
const POLL_MS = 1000;

const RUNNING: readonly EffectState[] = ['executing'];
/** From the request for approval until it is known what became of the call. */
const UNDECIDED: readonly EffectState[] = ['pending_approval', 'executing'];

/** What is asked of a call that is waited for, and of the key that waits. */
interface WaitPorts {
  readonly store: Pick<EffectStore, 'effect' | 'approval'>;
  readonly stillValid: (keyId: string) => Promise<Principal | { readonly failure: string }>;
  readonly run: (request: RunRequest) => Promise<RunResult>;
}

export interface Held {
  /** Value of the header `Preference-Applied` of its answer. */
  readonly applied: string;
  readonly became: Promise<RunResult>;
}

/**
 * Holds the connections of callers that prefer to wait (RFC 7240), for a running twin and for people's decision, at all
 * doors: they are answered when the call has ended, or when they have waited as long as they would.
 */
export class PreferredWait {
  readonly #ports: WaitPorts;
  readonly #watch: EffectWatch;

  constructor(ports: WaitPorts) {
    this.#ports = ports;
    this.#watch = createEffectWatch((workspace, id) => ports.store.effect(workspace, id));
  }

  /**
   * @param first what the call was answered
   * @returns `null` where nothing is waited for: the caller did not ask to, has gone, what it asked for has ended, or too
   *   many wait, at the gateway or of this agent
   */
  hold(request: IncomingMessage, response: ServerResponse, call: RunRequest, first: RunResult): Held | null {
    if (first.kind === 'problem' || response.destroyed) return null;
    const { outcome } = first;
    if (outcome.decision !== 'in_progress' && outcome.decision !== 'pending_approval') return null;
    const waitMs = preferredWaitMs(request);
    if (waitMs === 0) return null;
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const states = outcome.decision === 'in_progress' ? RUNNING : UNDECIDED;
    const waiting = this.#watch.left(states, outcome, whoWaits(call), waitMs, gone.signal);
    if (waiting === null) return null;
    const became = waiting.then((hasLeft) => {
      if (outcome.decision === 'pending_approval') return becameOf(this.#ports, call, outcome);
      return hasLeft ? this.#ports.run(call) : first;
    });
    return { applied: `wait=${waitMs / 1000}`, became };
  }

  /** Answers all who wait, and lets nobody begin. */
  end(): void {
    this.#watch.end();
  }
}

/**
 * What has become of a call that waits for people. It is not run again for that: who waited has asked once, and of a
 * request that is over nobody is asked anew.
 */
async function becameOf(
  { store, stillValid }: WaitPorts,
  call: RunRequest,
  first: Extract<RunOutcome, { decision: 'pending_approval' }>,
): Promise<RunResult> {
  try {
    const { workspace, effectId } = first;
    const owner = await stillValid(call.principal.keyId);
    if ('failure' in owner || !permit(owner, 'effects.run', workspace).ok)
      return { kind: 'problem', problem: KEY_ENDED };
    const effect = await store.effect(workspace, effectId);
    if (effect === null) return { kind: 'outcome', outcome: first };
    const { life } = effect;
    const approval = 'approvalId' in life ? await store.approval(workspace, life.approvalId) : null;
    if (life.state === 'pending_approval')
      return { kind: 'outcome', outcome: { ...first, approval: approval ?? first.approval } };
    // It was approved, and is running.
    if (life.state === 'executing') return { kind: 'outcome', outcome: outcomeOfRecord(effect, false, POLL_MS) };
    return { kind: 'outcome', outcome: outcomeFor(effect, approval) };
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return { kind: 'outcome', outcome: first };
  }
}

const KEY_ENDED: Problem = {
  code: 'invalid_key',
  detail: 'The key was revoked or has expired while the call waited.',
  errors: [],
  retryAfterMs: null,
};

/** The agent whose key it is, else the key: a name that a request only claims gives no further places. */
function whoWaits(call: RunRequest): string {
  const { principal, workspace } = call;
  const agent = actingAgent(principal, null);
  return agent === null ? principal.keyId : `${workspace}\n${agent}`;
}

/** How long the caller of a request would wait by `Prefer: wait=n` (RFC 7240), at most {@link MAX_WAIT_S}; 0: not at all. */
function preferredWaitMs({ headers: { prefer } }: IncomingMessage): number {
  const header = typeof prefer === 'string' ? prefer : '';
  const seconds = /(?:^|[,;\s])wait\s*=\s*"?([0-9]{1,6})/i.exec(header)?.[1];
  return seconds === undefined ? 0 : Math.min(Number(seconds), MAX_WAIT_S) * 1000;
}
