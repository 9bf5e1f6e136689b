import { admitRequest } from './admit-request.ts';
import type { Call } from './call.ts';
import type { EffectActor, Stage } from '../model/effect.ts';
import { keptFiles } from '../model/files.ts';
import type { EffectPorts } from '../ports.ts';
import type { AdmitRequest } from '../store.ts';
import type { Verdict } from '../model/verdict.ts';
import { turnOfOthers } from './turns.ts';

/** How often configuration, policy, pauses or a budget window may move on while one call is admitted. */
export const MAX_EVALUATIONS = 5;

/**
 * Lets others have their turn where the checks of a call took long. Then its seal takes long too, and is made in a turn
 * of its own. Files that would be kept are read here.
 * @param begun `ports.elapsed()` when the checks began
 */
export async function sealInTurn(ports: EffectPorts, call: Call, begun: number): Promise<void> {
  const { proposal, files } = call;
  if (files.bytes > 0 && files.bytes <= ports.settings().filesKeptBytes)
    proposal.keepFiles(await keptFiles(files, call.params));
  const turn = turnOfOthers(ports.elapsed, begun);
  if (turn === null) return;
  await turn;
  const sealing = ports.elapsed();
  proposal.sealed();
  await turnOfOthers(ports.elapsed, sealing);
}

/** The admission of a call under the verdict of now. */
export function evaluate(ports: EffectPorts, call: Call): AdmitRequest {
  const { agent, key, tool, requestIp } = call;
  const now = ports.store.now();
  const begun = ports.elapsed();
  const asked = ports.judge({
    agent,
    key,
    tool,
    workspace: call.workspace,
    target: call.target,
    params: call.params,
    headers: call.headers.sent,
    requestIp,
    now,
  });
  const judged = keepable(answeredFor(asked, call.actor), call);
  // Faulty params are refused before policy is asked, were it in force.
  const verdict: Verdict =
    call.faults.length === 0
      ? judged
      : { ...judged, trace: { ...judged.trace, observed: { would: 'invalid_request', rule: null } } };
  const policy: Stage = {
    stage: 'policy',
    status: verdict.kind === 'permit' ? 'passed' : 'refused',
    startedAt: now,
    durationMs: Math.round((ports.elapsed() - begun) * 1000) / 1000,
    detail: verdict.trace.matched[0]?.rule ?? null,
  };
  return admitRequest(ports, call, verdict, [...call.stages, policy]);
}

/**
 * Nobody decides on a request of their own: a request of nobody could be decided by the very person who made it, with
 * another key. Behind an agent's own key stands the agent's owner, where the key names no user.
 */
function answeredFor(verdict: Verdict, actor: EffectActor): Verdict {
  if (verdict.kind !== 'permit' || verdict.mode !== 'enforce') return verdict;
  const [asking] = verdict.approvals;
  const behind = actor.user ?? (actor.keyKind === 'agent' ? actor.agentOwner : null);
  if (asking === undefined || behind !== null) return verdict;
  return {
    kind: 'deny',
    decision: 'denied_policy',
    reason: {
      code: 'key_without_user',
      message:
        'The call needs approval, and its key belongs to no user: it could not be seen that somebody else decides. Use a key with a user, or give the agent an owner.',
      rule: asking.rule,
    },
    trace: verdict.trace,
  };
}

/** A call that waits has its files kept, sealed with its params: those that are too large for that cannot wait. */
function keepable(verdict: Verdict, { files, proposal }: Call): Verdict {
  if (files.bytes === 0 || verdict.kind !== 'permit' || verdict.mode !== 'enforce') return verdict;
  const [asking] = verdict.approvals;
  if (asking === undefined || proposal.sealedWithFiles() !== null) return verdict;
  return {
    kind: 'deny',
    decision: 'denied_policy',
    reason: {
      code: 'files_too_large_to_wait',
      message:
        'The call needs approval, and its files are larger than what is kept with a call that waits. Send smaller files, or raise limits.body.',
      rule: asking.rule,
    },
    trace: verdict.trace,
  };
}
