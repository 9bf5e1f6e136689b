import type { FastifyReply, FastifyRequest } from 'fastify';
import type { EffectState } from '../effects/model/effect.ts';
import type { RunOutcome, RunResult } from '../effects/model/outcome.ts';
import type { RunRequest } from '../effects/model/run-request.ts';
import { outcomeFor, outcomeOfRecord } from '../effects/run/to-outcome.ts';
import { StoreUnavailable } from '../effects/store.ts';
import { permit } from '../identity/permissions.ts';
import type { ApiApp } from './app.ts';
import { createEffectWatch } from './effect-watch.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';

/** Longest wait that `Prefer: wait=n` may ask for, s. */
const MAX_WAIT_S = 30;
/** When a caller should ask again for a call that was approved and runs, ms. */
const POLL_MS = 1000;

const RUNNING: readonly EffectState[] = ['executing'];
/** From the request for approval until it is known what became of the call. */
const UNDECIDED: readonly EffectState[] = ['pending_approval', 'executing'];

/**
 * Holds the connection of a caller that prefers to wait (RFC 7240), for a running twin and for people's decision. What it
 * makes answers a call when it has ended, or when its caller has waited as long as it would.
 */
export function createPreferredWait(app: ApiApp, ports: ApiPorts) {
  const watch = createEffectWatch((workspace, id) => ports.store.effect(workspace, id));
  app.addHook('preClose', async () => watch.end());

  return async (reply: FastifyReply, call: RunRequest, first: RunOutcome, waitMs: number): Promise<RunResult> => {
    const unchanged = { kind: 'outcome', outcome: first } as const;
    const { decision } = first;
    if (reply.raw.destroyed || (decision !== 'in_progress' && decision !== 'pending_approval')) return unchanged;
    const gone = new AbortController();
    reply.raw.once('close', () => gone.abort());
    const waiting = watch.left(decision === 'in_progress' ? RUNNING : UNDECIDED, first, waitMs, gone.signal);
    if (waiting === null) return unchanged;
    reply.header('preference-applied', `wait=${waitMs / 1000}`);
    const hasLeft = await waiting;
    if (decision === 'pending_approval') return becameOf(ports, call, first);
    return hasLeft ? ports.run(call) : unchanged;
  };
}

/**
 * What has become of a call that waits for people. It is not run again for that: who waited has asked once, and of a
 * request that is over nobody is asked anew.
 * @throws Refused
 */
async function becameOf(
  { store, stillValid }: ApiPorts,
  call: RunRequest,
  first: Extract<RunOutcome, { decision: 'pending_approval' }>,
): Promise<RunResult> {
  try {
    const { workspace, effectId } = first;
    const owner = await stillValid(call.principal.keyId);
    if ('failure' in owner || !permit(owner, 'effects.run', workspace).ok)
      throw refuse('invalid_key', 'The key was revoked or has expired while the call waited.');
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

/** How long the caller of a request would wait by `Prefer: wait=n` (RFC 7240), at most {@link MAX_WAIT_S}; 0: not at all. */
export function preferredWaitMs(request: FastifyRequest): number {
  const { prefer } = request.headers;
  const header = typeof prefer === 'string' ? prefer : '';
  const seconds = /(?:^|[,;\s])wait\s*=\s*"?([0-9]{1,6})/i.exec(header)?.[1];
  return seconds === undefined ? 0 : Math.min(Number(seconds), MAX_WAIT_S) * 1000;
}
