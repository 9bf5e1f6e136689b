import type { Route } from '../config/configuration.ts';
import type { Json, JsonObject } from '../json/value.ts';

/** The content of an answer that the gateway made, for client libraries. */
export interface ShownError {
  /** The decision, or `problem` if the request was not accepted. */
  readonly decision: string;
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly docs: string;
}

/**
 * Extra members, `error` and `message`, in the form that clients of the upstream know. With them, client libraries
 * throw their own error with our code and message.
 */
export function errorMembers(shown: ShownError, format: Route['errorFormat']): JsonObject {
  const { code, message, docs } = shown;
  switch (format) {
    case 'problem':
      return { error: { type: shown.decision, code, message }, message };
    case 'openai':
      return { error: { message, type: shown.decision, param: null, code }, message };
    case 'stripe':
      return { error: { type: stripeType(shown), code, message, doc_url: docs }, message };
    case 'github':
      return { error: { type: shown.decision, code, message }, message, documentation_url: docs };
  }
}

/** The types for which Stripe's libraries have error classes. */
function stripeType({ decision, status }: ShownError): Json {
  if (decision === 'duplicate_blocked' || decision === 'idempotency_conflict') return 'idempotency_error';
  if (status === 401) return 'authentication_error';
  if (status === 429) return 'rate_limit_error';
  if (status >= 500 || decision === 'in_progress' || decision === 'unknown_effect') return 'api_error';
  return 'invalid_request_error';
}

/** Generated libraries obey one of these headers, Stripe's the other. */
export function withRetryHints<Headers extends Readonly<Record<string, string | string[]>>>(
  headers: Headers,
): Headers | (Headers & { readonly 'stripe-should-retry': string }) {
  const hint = headers['x-should-retry'];
  return typeof hint === 'string' ? { ...headers, 'stripe-should-retry': hint } : headers;
}
