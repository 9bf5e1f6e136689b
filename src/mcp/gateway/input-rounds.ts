import type { KeyObject } from 'node:crypto';
import { canonicalJson } from '../../json/text.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { parseStrictJson } from '../../json/strict.ts';
import { withMark, withoutMark } from './marks.ts';
import type { SessionOwner } from './sessions.ts';

/** Most characters of the state of a call. */
const MOST_STATE = 1_048_576;
const LIMITS = { depth: 3, values: 10_000, name: 10_000 };

/** The call that a server asks about: the same agent, tool and arguments. */
export interface AskedCall {
  readonly owner: SessionOwner;
  readonly tool: string;
  readonly given: JsonObject;
}

/**
 * A result that asks for more input, with a state that only this gateway can have made. It says what was asked: a client
 * can answer that, and tell the server nothing else beside its arguments.
 */
export function sealedRound(key: KeyObject, call: AskedCall, result: JsonObject): JsonObject {
  const { inputRequests, requestState: state = null } = result;
  const asked = isJsonObject(inputRequests) ? Object.keys(inputRequests) : [];
  const round = Buffer.from(JSON.stringify([state, asked])).toString('base64url');
  return { ...result, requestState: withMark(key, ofRound(call), round) };
}

/**
 * What a client answers to {@link sealedRound}, as the server gets it: its own state, and answers to what it asked.
 * @returns `null` where the state is none of this call
 */
export function openedRound(key: KeyObject, call: AskedCall, answer: JsonObject): JsonObject | null {
  const { inputResponses: responses, requestState: sealed } = answer;
  // Without a state nothing was asked: the server asks.
  if (sealed === undefined) return {};
  const round = typeof sealed === 'string' ? withoutMark(key, ofRound(call), sealed, MOST_STATE) : null;
  if (round === null) return null;
  const read = parseStrictJson(Buffer.from(round, 'base64url'), LIMITS);
  if (!read.ok || !isJsonArray(read.value)) return null;
  const [state = null, asked = []] = read.value;
  const names: readonly Json[] = isJsonArray(asked) ? asked : [];
  return roundOf(responses, names, state);
}

/**
 * The next round of a call that came with answers before anything was asked: the server has asked now, and gets what it
 * asked for.
 * @param last what the server said
 * @returns `null` where there is none
 */
export function answeredEarly(
  { inputResponses: responses, requestState: sealed }: JsonObject,
  last: { readonly message: JsonObject } | null,
): JsonObject | null {
  const result = last?.message['result'];
  if (sealed !== undefined || !isJsonObject(result) || !asksForMore(last?.message)) return null;
  const { inputRequests, requestState: state = null } = result;
  const round = roundOf(responses, isJsonObject(inputRequests) ? Object.keys(inputRequests) : [], state);
  return round['inputResponses'] === undefined ? null : round;
}

export function asksForMore(message: JsonObject | undefined): boolean {
  const result = message?.['result'];
  return isJsonObject(result) && result['resultType'] === 'input_required';
}

/** What goes on to the server: answers to what it asked, and its own state. */
function roundOf(responses: Json | undefined, asked: readonly Json[], state: Json): JsonObject {
  const given = isJsonObject(responses) ? Object.entries(responses).filter(([name]) => asked.includes(name)) : [];
  return {
    ...(given.length > 0 && { inputResponses: Object.fromEntries(given) }),
    ...(state !== null && { requestState: state }),
  };
}

function ofRound({ owner: { upstream, workspace, agentId }, tool, given }: AskedCall): readonly Json[] {
  return ['mcp round', 1, upstream, workspace, agentId, tool, canonicalJson(given)];
}
