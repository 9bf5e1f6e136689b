import type { RunOutcome } from '../../effects/model/outcome.ts';
import { approvalUrl } from '../../effects/run/render.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { ELICITATION } from '../../mcp-protocol/elicitation.ts';

type Waiting = Extract<RunOutcome, { decision: 'pending_approval' }>;

/** Names what the gateway asks of clients: what they answer is for the gateway, and for no server. */
const ASKED = 'svc-gateway/approval';

/**
 * What a call that waits for a person is answered with in the era without sessions, where the client has its user visit
 * addresses: the address of the page. The client calls again with what its user said to that, and gets the decision as it
 * is then. What it says decides nothing.
 */
export function urlAsked(outcome: Waiting, publicUrl: string, meta: JsonObject): JsonObject {
  const request = { method: ELICITATION, params: paramsOf(outcome, publicUrl) };
  return { resultType: 'input_required', inputRequests: { [ASKED]: request }, _meta: meta };
}

/**
 * The same in the era of sessions: a request to the client, which comes before the result and does not keep it waiting.
 * (The error -32042 would be an answer in place of the decision, and official clients keep nothing of it but the address.)
 */
export function urlRequest(outcome: Waiting, publicUrl: string): JsonObject {
  const { id } = outcome.approval;
  const params = { ...paramsOf(outcome, publicUrl), elicitationId: id };
  return { jsonrpc: '2.0', id: `${ASKED}/${id}`, method: ELICITATION, params };
}

/** Whether this is the id of what {@link urlRequest} asks. */
export function isAskedHere(id: Json): boolean {
  return typeof id === 'string' && id.startsWith(`${ASKED}/`);
}

/** Params of a call without the answer to {@link urlAsked}. */
export function withoutAnswerToUs(params: JsonObject): JsonObject {
  const { inputResponses: responses, ...others } = params;
  if (!isJsonObject(responses) || responses[ASKED] === undefined) return params;
  const { [ASKED]: _ours, ...theirs } = responses;
  return Object.keys(theirs).length === 0 ? others : { ...others, inputResponses: theirs };
}

function paramsOf({ tool, approval }: Waiting, publicUrl: string): JsonObject {
  return {
    mode: 'url',
    url: approvalUrl(approval, publicUrl),
    message: `${tool} waits for a person to approve it. On this page approvers see what is asked, and decide with a key of their own.`,
  };
}
