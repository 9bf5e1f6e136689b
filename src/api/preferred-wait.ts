import type { IncomingMessage, ServerResponse } from 'node:http';
import type { EffectState } from '../effects/model/effect.ts';
import type { RunOutcome, RunResult } from '../effects/model/outcome.ts';
import type { Problem, RunRequest } from '../effects/model/run-request.ts';
import { outcomeFor, outcomeOfRecord } from '../effects/run/to-outcome.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { actingAgent, type Principal } from '../effects/model/principal.ts';
import { permit } from '../identity/permissions.ts';
import { createEffectWatch, type EffectWatch } from './effect-watch.ts';

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
