import { mismatchToWire } from '../../effects/model/action-call.ts';
import { statusOf, isDenied, type NextStep } from '../../effects/model/decision.ts';
import type { RunOutcome } from '../../effects/model/outcome.ts';
import { budgetToWire, isSafeToRetry, nextStep, approvalUrl } from '../../effects/run/render.ts';
import { sentence } from '../../effects/wire/effect.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { urlAsked } from './approval-url.ts';
import { waitingTask } from './waiting-task.ts';

/** Begins the names of what the gateway adds to `_meta`. */
export const META_PREFIX = 'dev.svc-gateway/';

export interface AnswerContext {
  readonly publicUrl: string;
  readonly policyVersion: string;
  /** The tool says what its `structuredContent` is: clients check it, and throw at an answer without it that is no error. */
  readonly hasOutputSchema: boolean;
  /** The caller has the result of the effect already, and did not choose its key: an equal call may be meant anew. */
  readonly hasResult: boolean;
  /** How long an equal call without a key of its own is the same one, ms. */
  readonly sameForMs: number;
  /** The call is of the era in which a result says of itself that it is complete. */
  readonly isStateless: boolean;
  readonly hasProbe: boolean;
  /** What the client takes in place of a result that waits. `keptMs`: how long an effect is kept. `url`: the client has its user visit the approver's page, and calls again. */
  readonly waits:
    | { readonly kind: 'task'; readonly keptMs: number }
    | { readonly kind: 'url' }
    | { readonly kind: 'text' };
}

/**
 * The result of a call as an MCP client gets it. What the server said is passed on as it is, with `_meta` beside it,
 * where it is the answer: committed, or failed with a reason of the server. A call that is joined to its own effect, because
 * that was approved meanwhile or its answer was lost, gets the same. Everything else is the gateway's decision.
 *
 * It begins with a sentence, and ends with the decision as JSON on a line of its own, whatever the server said in between:
 * some clients throw an error with the text, or hand it on, and keep nothing else.
 */
export function resultOf(
  outcome: RunOutcome,
  last: {
    readonly message: JsonObject;
  } | null,
  context: AnswerContext,
): JsonObject {
  const { publicUrl } = context;
  const meta = metaOf(outcome, context);
  if (outcome.decision === 'pending_approval')
    switch (context.waits.kind) {
      case 'task':
        return waitingTask(outcome, context.waits.keptMs, meta);
      case 'url':
        // A person is asked once. Whoever calls again wants to know how it stands.
        if (!outcome.repeat) return urlAsked(outcome, publicUrl, meta);
        break;
      case 'text':
        break;
    }
  const given = last?.message['result'];
  const isRefusal = isJsonObject(given) && given['isError'] === true && isJsonArray(given['content']);
  if (isJsonObject(given) && (outcome.decision === 'committed' || (outcome.decision === 'failed' && !isRefusal)))
    return withMeta(given, meta);
  const kept = keptResult(outcome, context);
  if (kept !== null) return complete(withMeta(kept, meta), context);
  const sentence = sentenceOf(outcome, {
    publicUrl,
    next: nextStep(outcome),
    sameForMs: context.sameForMs,
    hasProbe: context.hasProbe,
  });
  const content: Json[] = [asText(sentence)];
  // What the server said helps to mend the call, or to find out what became of it.
  if (isJsonObject(given) && isJsonArray(given['content'])) content.push(...given['content']);
  content.push(asText(JSON.stringify(lineOf(outcome))));
  const isDone = outcome.decision === 'committed' || (outcome.decision === 'duplicate_blocked' && !context.hasResult);
  const result = { content, ...(isDone && !context.hasOutputSchema ? {} : { isError: true }) };
  return complete(withMeta(isJsonObject(given) && isRefusal ? { ...given, ...result } : result, meta), context);
}

/** The server's own result of an effect that is done, where the caller is to have it. */
function keptResult(outcome: RunOutcome, { hasResult }: AnswerContext): JsonObject | null {
  if (outcome.decision === 'committed' && outcome.answer?.kind === 'message' && isJsonObject(outcome.answer.message))
    return outcome.answer.message;
  if (outcome.decision !== 'committed' && (outcome.decision !== 'duplicate_blocked' || hasResult)) return null;
  const { result } = outcome;
  return result?.body.kind === 'json' && !result.truncated && isJsonObject(result.body.value)
    ? result.body.value
    : null;
}

function asText(text: string): JsonObject {
  return { type: 'text', text };
}

/** A result that does not come from the server in answer to this call, in the form of the call's era. */
function complete(result: JsonObject, { isStateless }: AnswerContext): JsonObject {
  return isStateless && result['resultType'] === undefined ? { resultType: 'complete', ...result } : result;
}

function withMeta(result: JsonObject, added: JsonObject): JsonObject {
  const { _meta: own } = result;
  return { ...result, _meta: { ...(isJsonObject(own) ? own : {}), ...added } };
}

/** For programs. */
function metaOf(outcome: RunOutcome, { policyVersion, publicUrl, hasResult }: AnswerContext): JsonObject {
  const { decision, effectId, reason, repeat, workspace } = outcome;
  const decided = {
    decision,
    http_status: statusOf(decision, repeat),
    effect_id: effectId,
    code: reason.code,
    retry_after_ms: outcome.retryAfterMs,
    safe_to_retry: isSafeToRetry(outcome),
    policy_version: policyVersion,
  };
  if (outcome.decision !== 'committed' && outcome.decision !== 'duplicate_blocked')
    return { [`${META_PREFIX}decision`]: decided };
  const { id } = outcome.receipt;
  // The address came with the result.
  const receipt = hasResult
    ? { id }
    : { id, url: `${publicUrl}/v1/workspaces/${workspace}/effects/${effectId}/receipt` };
  return { [`${META_PREFIX}decision`]: decided, [`${META_PREFIX}receipt`]: receipt };
}

/** For programs that keep nothing but the text, and what a model needs to plan anew. */
function lineOf(outcome: RunOutcome): JsonObject {
  const { decision, effectId, reason, budgets, retryAfterMs: wait } = outcome;
  return {
    decision,
    effect_id: effectId,
    reason: { code: reason.code },
    safe_to_retry: isSafeToRetry(outcome),
    ...(wait === null ? {} : { retry_after_ms: wait }),
    ...('mismatches' in outcome &&
      outcome.mismatches.length > 0 && { mismatches: outcome.mismatches.map(mismatchToWire) }),
    ...(outcome.decision === 'denied_budget' && { budgets: budgets.map((budget) => budgetToWire(budget, true)) }),
  };
}

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
    return `Refused, nothing happened: ${sentence(reason.message)} ${adviceOf(context.next, retryAfterMs)}`;
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
      return `Not done: ${sentence(reason.message)} ${retryAfterMs === null ? 'You may call it again.' : `You may call it again in ${inWords(retryAfterMs)}.`}`;
    case 'unknown_effect':
      if (outcome.safeToRetry) return `Unknown whether ${tool} was done. ${again}: the server removes duplicates.`;
      return context.hasProbe
        ? `Unknown whether ${tool} was done. Do not try it in another way: start its probe, which finds out (svc.executions.probe, or POST ${context.publicUrl}/v1/workspaces/${outcome.workspace}/effects/${outcome.effectId}/probe), then call it again.`
        : `Unknown whether ${tool} was done. Do not try it in another way: read what it would have changed, and tell your user. A person settles it.`;
    case 'idempotency_conflict':
      return `Not done: ${sentence(reason.message)}`;
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

/** A time to wait, rounded up. */
function inWords(ms: number): string {
  const seconds = Math.max(1, Math.ceil(ms / 1_000));
  if (seconds <= 90) return seconds === 1 ? '1 second' : `${seconds} seconds`;
  const minutes = Math.ceil(seconds / 60);
  return minutes <= 90 ? `${minutes} minutes` : `${Math.ceil(minutes / 60)} hours`;
}
