import type { RunOutcome } from '../../effects/model/outcome.ts';
import { renderOutcome } from '../../effects/run/render.ts';
import { urlAsked } from './approval-url.ts';
import { waitingTask } from './waiting-task.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';

/** Begins the names of what the gateway adds to `_meta`. */
export const META_PREFIX = 'dev.svc-gateway/';

export interface AnswerContext {
  readonly publicUrl: string;
  readonly receiptView: (jws: string) => JsonObject;
  readonly policyVersion: string;
  /** The tool says what its `structuredContent` is: clients check it, and throw at anything else. */
  readonly hasOutputSchema: boolean;
  /** The key was derived: the caller did not choose it. */
  readonly isDerived: boolean;
  /** The call is of the era in which a result says of itself that it is complete. */
  readonly isStateless: boolean;
  /** What the client takes in place of a result that waits. */
  readonly waits: WaitingForm;
}

/** `keptMs`: how long an effect is kept. `url`: the client has its user visit the approver's page, and calls again. */
export type WaitingForm =
  | { readonly kind: 'task'; readonly keptMs: number }
  | { readonly kind: 'url' }
  | { readonly kind: 'text' };

/** What the server said last to this call, if it said something. */
export interface LastMessage {
  readonly message: JsonObject;
}

/**
 * The result of a call as an MCP client gets it. What the server said is passed on as it is, with `_meta` beside it,
 * where it is the answer: committed, or failed with a reason of the server. Everything else is the gateway's decision.
 *
 * The content of an error ends with the decision as JSON on a line of its own, whatever the server said before it: some
 * clients throw an error with the text, and keep nothing else (LangChain's adapter).
 */
export function resultOf(outcome: RunOutcome, last: LastMessage | null, context: AnswerContext): JsonObject {
  const { publicUrl, receiptView } = context;
  const rendered = renderOutcome(outcome, { publicUrl, receiptView, forAgent: true });
  const meta = metaOf(outcome, rendered.status, rendered.body, context);
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
  const said = last?.message['result'];
  if (isJsonObject(said) && outcome.decision === 'committed') return withMeta(said, meta);
  if (isJsonObject(said) && outcome.decision === 'failed') {
    if (said['isError'] !== true || !isJsonArray(said['content'])) return withMeta(said, meta);
    // What the server said stands there already.
    const { result: _, ...decision } = rendered.body;
    return withMeta({ ...said, content: [...said['content'], asText(decision)] }, meta);
  }
  if (outcome.decision === 'committed' && outcome.answer?.kind === 'message' && isJsonObject(outcome.answer.message))
    return complete(withMeta(outcome.answer.message, meta), context);
  if (outcome.decision === 'committed' || (outcome.decision === 'duplicate_blocked' && !context.isDerived)) {
    const kept = outcome.result;
    if (kept?.body.kind === 'json' && !kept.truncated && isJsonObject(kept.body.value))
      return complete(withMeta(kept.body.value, meta), context);
  }
  const content: Json[] = [{ type: 'text', text: sentenceOf(outcome, context) }];
  // An outcome that is not known: what the server said helps to find out.
  if (isJsonObject(said) && isJsonArray(said['content'])) content.push(...said['content']);
  content.push(asText(rendered.body));
  const structured = context.hasOutputSchema ? {} : { structuredContent: rendered.body };
  return complete({ content, isError: true, ...structured, _meta: meta }, context);
}

function asText(decision: JsonObject): JsonObject {
  return { type: 'text', text: JSON.stringify(decision) };
}

/** A result that does not come from the server in answer to this call, in the form of the call's era. */
function complete(result: JsonObject, { isStateless }: AnswerContext): JsonObject {
  return isStateless && result['resultType'] === undefined ? { resultType: 'complete', ...result } : result;
}

function withMeta(result: JsonObject, added: JsonObject): JsonObject {
  const { _meta: own } = result;
  return { ...result, _meta: { ...(isJsonObject(own) ? own : {}), ...added } };
}

function metaOf(outcome: RunOutcome, status: number, body: JsonObject, { policyVersion }: AnswerContext): JsonObject {
  return {
    [`${META_PREFIX}decision`]: {
      decision: outcome.decision,
      http_status: status,
      effect_id: outcome.effectId,
      code: outcome.reason.code,
      retry_after_ms: outcome.retryAfterMs,
      safe_to_retry: body['safe_to_retry'] ?? false,
      policy_version: policyVersion,
    },
    ...(body['receipt'] === undefined ? {} : { [`${META_PREFIX}receipt`]: body['receipt'] }),
  };
}

/** What a model can act on. */
function sentenceOf(outcome: RunOutcome, { isDerived }: AnswerContext): string {
  const { decision, reason, tool } = outcome;
  switch (decision) {
    case 'committed':
      return `${tool} was done. ${reason.message}`;
    case 'duplicate_blocked':
      return isDerived
        ? `${tool} was done with the same arguments before, and nothing ran again: this is that call's receipt. Do not repeat it. If it is really meant a second time, call it with another ${META_PREFIX}idempotency-key in _meta, or later.`
        : `${tool} was done under this idempotency key before, and nothing ran again.`;
    case 'pending_approval':
      return `${tool} waits for a person to approve it; nothing has happened yet. Go on with something else. To ask how it stands, call it again with exactly the same arguments: that joins this request and does not make another.`;
    case 'in_progress':
      return `${tool} is running under the same arguments or key. Wait a moment, then call it again with exactly the same arguments to get its outcome.`;
    case 'failed':
      return `${tool} was not done: ${reason.message}`;
    case 'unknown_effect':
      return `Whether ${tool} was done is not known. ${reason.message}`;
    case 'idempotency_conflict':
      return `${tool} was not done: ${reason.message}`;
    case 'denied_permission':
    case 'denied_policy':
    case 'denied_identity':
    case 'denied_budget':
    case 'denied_claim':
    case 'denied_reservation':
    case 'denied_paused':
      return `${tool} was refused and nothing happened: ${reason.message}`;
  }
}
