import { isDenied, type NextStep } from '../../effects/model/decision.ts';
import type { RunOutcome } from '../../effects/model/outcome.ts';
import { approvalUrl } from '../../effects/run/render.ts';

/**
 * A decision as a model reads it: what happened, what to do, how long to wait, and whom to tell. The first words say the
 * most, because some libraries hand on nothing but the text.
 */
export function sentenceOf(
  outcome: RunOutcome,
  context: {
    readonly publicUrl: string;
    readonly next: NextStep;
    /** How long an equal call without a key of its own is the same one, ms. */
    readonly sameForMs: number;
    /** Whether the tool declares a probe, which the agent may start. */
    readonly hasProbe: boolean;
  },
): string {
  const { reason, tool, retryAfterMs } = outcome;
  if (isDenied(outcome))
    return `Refused, nothing happened: ${ended(reason.message)} ${adviceOf(context.next, retryAfterMs)}`;
  const again = 'Call it again with exactly the same arguments';
  switch (outcome.decision) {
    case 'committed':
      return `Done: ${tool} ran. Its result is too long to be shown. Do not call it again for that.`;
    case 'duplicate_blocked':
      return outcome.result === null
        ? `Already done: ${tool} ran once with these arguments; its result cannot be shown, and nothing ran again. Do not repeat it.`
        : `Already done: ${tool} ran, you have its result. If meant again: wait ${inWords(context.sameForMs)} or send another idempotency-key in _meta.`;
    case 'pending_approval':
      return `Waiting for approval: ${tool} has not run. Tell your user: it is approved at ${approvalUrl(outcome.approval, context.publicUrl)} Repeat the call in a minute.`;
    case 'in_progress':
      return `Still running: ${tool} has no outcome yet. ${again} in ${inWords(retryAfterMs ?? 1_000)} to get its result.`;
    case 'failed':
      return `Not done: ${ended(reason.message)} ${retryAfterMs === null ? 'You may call it again.' : `You may call it again in ${inWords(retryAfterMs)}.`}`;
    case 'unknown_effect':
      if (outcome.safeToRetry) return `Unknown whether ${tool} was done. ${again}: the server removes duplicates.`;
      return context.hasProbe
        ? `Unknown whether ${tool} was done. Do not try it in another way: start its probe, which finds out (svc.executions.probe, or POST ${context.publicUrl}/v1/workspaces/${outcome.workspace}/effects/${outcome.effectId}/probe), then call it again.`
        : `Unknown whether ${tool} was done. Do not try it in another way: read what it would have changed, and tell your user. A person settles it.`;
    case 'idempotency_conflict':
      return `Not done: ${ended(reason.message)}`;
  }
}

function adviceOf(next: NextStep, retryAfterMs: number | null): string {
  switch (next) {
    case 'wait':
    case 'retry':
      return `Do not try it in another way. Call it again ${retryAfterMs === null ? 'later' : `in ${inWords(retryAfterMs)}`}.`;
    case 'replan':
      return 'Read how things stand now, and plan anew.';
    case 'block':
    case 'resolve':
    case 'proceed':
      return 'Do not try it again or in another way; tell your user.';
  }
}

function ended(text: string): string {
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(sentence) ? sentence : `${sentence}.`;
}

/** A time to wait, rounded up. */
function inWords(ms: number): string {
  const seconds = Math.max(1, Math.ceil(ms / 1_000));
  if (seconds <= 90) return seconds === 1 ? '1 second' : `${seconds} seconds`;
  const minutes = Math.ceil(seconds / 60);
  return minutes <= 90 ? `${minutes} minutes` : `${Math.ceil(minutes / 60)} hours`;
}
