import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { readJson } from '../../json/text.ts';

/*
 * What an upstream answers, by its kind. Here alone the core says what kinds there are. Elsewhere it hands answers on,
 * keeps them, and asks for what every kind has: a body, or the number that the wire formats show.
 */

/** An answer on its way to the caller, whole (up to the limit for answers). Only the door of its kind reads it. */
export type UpstreamAnswer = HttpAnswer | PassedOnAnswer | MessageAnswer;

export interface HttpAnswer {
  readonly kind: 'http';
  readonly status: number;
  /**
   * Lower-case names. Hop-by-hop headers, `svc-*`, `x-should-retry` and (unless the route allows it) `set-cookie` are
   * removed.
   */
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: Buffer;
}

/** The head of an answer that is passed on while it comes, as in {@link HttpAnswer}. */
export type AnswerHead = Pick<HttpAnswer, 'kind' | 'status' | 'headers'>;

/** An answer that was passed on while it came. Its caller has it; here is nothing of it. */
export interface PassedOnAnswer {
  readonly kind: 'passed_on';
}

/** One message with nothing beside it, as a tool or a function gives it back. Whether it is an error, it says itself. */
export interface MessageAnswer {
  readonly kind: 'message';
  readonly message: Json;
}

export type Answered = { readonly kind: 'http'; readonly status: number } | { readonly kind: 'message' };

/** The part of an answer that is kept for duplicates (up to `limits.response_kept`). */
export type KeptResult = KeptHttpResult | KeptMessage;

export interface KeptHttpResult extends Kept {
  readonly kind: 'http';
  readonly status: number;
  /** While the body is sealed, the headers are sealed with it, and none are here. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface KeptMessage extends Kept {
  readonly kind: 'message';
}

interface Kept {
  readonly body: KeptBody;
  /** The body was longer than the part that is kept. */
  readonly truncated: boolean;
}

export type KeptBody =
  | { readonly kind: 'json'; readonly value: Json }
  | { readonly kind: 'text'; readonly value: string }
  | { readonly kind: 'base64'; readonly value: string }
  /** Of an answer that was passed on, only this. */
  | { readonly kind: 'passed_on'; readonly value: PassedOnFacts }
  /** The form in the store, encrypted. Elsewhere it means that the result was not decrypted. */
  | { readonly kind: 'sealed'; readonly value: string };

/** What is kept of an answer that was passed on. `null` where its end is no text. */
export type PassedOnFacts = JsonObject & {
  readonly bytes: number;
  /** SHA-256 of all bytes, in hex. */
  readonly sha256: string;
  /** The end of the text; of server-sent events whole events only. */
  readonly tail: string | null;
};

/**
 * The number that the wire formats show as the upstream's status; `null` without an answer, or where answers of its
 * kind have no such number.
 */
export function statusShown(answered: Answered | KeptResult | null): number | null {
  if (answered === null) return null;
  switch (answered.kind) {
    case 'http':
      return answered.status;
    case 'message':
      return null;
  }
}

/**
 * An answer as the conditions of a probe see it, or why there is nothing to see. Over HTTP the members of its body and
 * `http_status`; of a tool of an MCP server its result, `isError` in any case, and `json`: what its only text says, if
 * that is JSON.
 */
export function stateOfAnswer(result: KeptResult): JsonObject | string {
  const { body } = result;
  if (result.truncated) return 'the answer is longer than what is kept of one (limits.response_kept)';
  switch (result.kind) {
    case 'http': {
      const { value } = body;
      const members = isJsonObject(value) || isJsonArray(value) ? Object.entries<Json>(value) : [];
      return { ...Object.fromEntries(members), http_status: result.status };
    }
    case 'message': {
      if (!isJsonObject(body.value)) return 'the answer is no result';
      const { isError, error } = body.value;
      return { ...body.value, isError: isError === true || error !== undefined, ...jsonIn(body.value['content']) };
    }
  }
}

function jsonIn(content: Json | undefined): { readonly json?: Json } {
  const [only, more] = isJsonArray(content) ? content : [];
  if (!isJsonObject(only) || more !== undefined || typeof only['text'] !== 'string') return {};
  try {
    return { json: readJson(only['text']) };
  } catch {
    return {};
  }
}

/** What conditions ask of an answer that they do not name: an answer that says that it could not read shows nothing. */
export const IMPLIED: Readonly<Record<KeptResult['kind'], readonly [field: string, condition: Json]>> = {
  http: ['http_status', { $gte: 200, $lt: 300 }],
  message: ['isError', false],
};

/**
 * What the answer to a call says was really spent, by unit, for the units of which the tool says where that stands.
 * `null`: the answer does not say it, or not as a whole number from 0 to 2^53-1.
 */
export type Amounts = Readonly<Record<string, number | null>>;

/** The amount that a hold is posted with: what was really spent, else what was held. */
export function amountToPost(
  { unit, amount }: { readonly unit: string; readonly amount: number },
  amounts: Amounts | undefined,
): number {
  return (amounts !== undefined && Object.hasOwn(amounts, unit) ? amounts[unit] : null) ?? amount;
}
