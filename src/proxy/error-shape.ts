import type { Route } from '../config/configuration.ts';
import type { Json, JsonObject } from '../json/value.ts';

/** What an answer that is not the upstream's says, for client libraries. */
export interface ShownError {
  /** The decision, or `problem` of a request that was not accepted. */
  readonly decision: string;
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly docs: string;
}

/**
 * The members that client libraries look for beside the decision, so that they throw their own error with our code and
 * message: `error` and `message`, in the form that the family of the upstream knows.
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

/** The types that Stripe's libraries make classes of. */
function stripeType({ decision, status }: ShownError): Json {
  if (decision === 'duplicate_blocked' || decision === 'idempotency_conflict') return 'idempotency_error';
  if (status === 401) return 'authentication_error';
  if (status === 429) return 'rate_limit_error';
  if (status >= 500 || decision === 'in_progress' || decision === 'unknown_effect') return 'api_error';
  return 'invalid_request_error';
}

/** Generated libraries obey the one, Stripe's the other. */
export function withRetryHints<Headers extends Readonly<Record<string, string | string[]>>>(
  headers: Headers,
): Headers | (Headers & { readonly 'stripe-should-retry': string }) {
  const hint = headers['x-should-retry'];
  return typeof hint === 'string' ? { ...headers, 'stripe-should-retry': hint } : headers;
}
