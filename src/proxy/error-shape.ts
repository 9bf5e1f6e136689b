import type { Route } from '../config/configuration.ts';
import type { Json, JsonObject } from '../json/value.ts';

export type ErrorStyle = Pick<Route, 'errorFormat' | 'finalStatus'>;

/** The style where no route is known. */
export const PLAIN_STYLE: ErrorStyle = { errorFormat: 'problem', finalStatus: null };

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
  const { decision, code, message, docs } = shown;
  switch (format) {
    case 'problem':
      return { error: { type: decision, code, message }, message };
    case 'kubernetes':
      return {
        kind: 'Status',
        apiVersion: 'v1',
        metadata: {},
        status: 'Failure',
        message,
        reason: kubernetesReason(shown),
        details: { causes: [{ reason: code, message: decision }] },
        code: shown.status,
      };
    case 'openai':
      return { error: { message, type: decision, param: null, code }, message };
    case 'anthropic':
      return { type: 'error', error: { type: decision, message, code, details: { error_code: code } }, message };
    case 'stripe':
      return { error: { type: stripeType(shown), code, message, doc_url: docs }, message };
    case 'github':
      return { error: { type: decision, code, message }, message, documentation_url: docs };
    case 'slack':
      // Slack's libraries log what stands in `response_metadata`.
      return { ok: false, error: code, message, response_metadata: { messages: [`[ERROR] ${message}`] } };
    case 'graphql':
      return { data: null, errors: [{ message, extensions: { code, decision, docs } }], message };
  }
}

/** What a client of the upstream looks for in an answer that the gateway made of something that happened. */
export function successMembers(format: Route['errorFormat']): JsonObject {
  return format === 'slack' ? { ok: true } : {};
}

/**
 * The status of an answer that the gateway made. Some libraries obey no header: they repeat by the status alone, and a
 * repeated write without an idempotency key is another write.
 * @param status of the decision or problem
 * @param again what `x-should-retry` says
 */
export function shownStatus(status: number, again: boolean, { errorFormat, finalStatus }: ErrorStyle): number {
  switch (errorFormat) {
    case 'slack':
      // Slack says no with 200 and `ok: false`. Its libraries repeat everything else for half an hour.
      return MAY_PASS.includes(status) ? status : 200;
    case 'graphql':
      // What a server of GraphQL has to say about an operation stands in `errors`. Other statuses are the transport's.
      return status === 401 || MAY_PASS.includes(status) ? status : 200;
    case 'problem':
    case 'stripe':
    case 'openai':
    case 'anthropic':
    case 'github':
    case 'kubernetes':
      return finalStatus === null || again || status < 400 || NEVER_REPEATED.includes(status) ? status : finalStatus;
  }
}

/** Overload and a store that is not there: nothing was sent, and a repeat is right. */
const MAY_PASS: readonly number[] = [429, 503];
/** Statuses that no library repeats by itself. */
const NEVER_REPEATED: readonly number[] = [400, 401, 403, 404];

/** The types for which Stripe's libraries have error classes. */
function stripeType({ decision, status }: ShownError): Json {
  if (decision === 'duplicate_blocked' || decision === 'idempotency_conflict') return 'idempotency_error';
  if (status === 401) return 'authentication_error';
  if (status === 429) return 'rate_limit_error';
  if (status >= 500 || decision === 'in_progress' || decision === 'unknown_effect') return 'api_error';
  return 'invalid_request_error';
}

/** Why, in the words that clients of Kubernetes look for. A `Conflict` some of them repeat by themselves. */
function kubernetesReason({ decision, status }: ShownError): string {
  if (decision === 'duplicate_blocked') return 'AlreadyExists';
  return KUBERNETES_REASONS[status] ?? (status >= 500 ? 'InternalError' : 'Forbidden');
}

const KUBERNETES_REASONS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  413: 'RequestEntityTooLarge',
  415: 'UnsupportedMediaType',
  422: 'Invalid',
  429: 'TooManyRequests',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

/** Generated libraries obey one of these headers, Stripe's the other. */
export function withRetryHints<Headers extends Readonly<Record<string, string | string[]>>>(
  headers: Headers,
): Headers | (Headers & { readonly 'stripe-should-retry': string }) {
  const hint = headers['x-should-retry'];
  return typeof hint === 'string' ? { ...headers, 'stripe-should-retry': hint } : headers;
}

/** What client libraries look for in the headers of an answer that the gateway made. */
export function ownHeaders(
  headers: Readonly<Record<string, string>>,
  format: Route['errorFormat'],
  requestId: string,
): Readonly<Record<string, string>> {
  const hinted = withRetryHints(format === 'problem' ? headers : asJson(headers));
  switch (format) {
    case 'stripe':
    case 'anthropic':
      // These libraries read a request's id here, and not in `x-request-id`.
      return { ...hinted, 'request-id': requestId };
    case 'problem':
    case 'openai':
    case 'github':
    case 'slack':
    case 'graphql':
    case 'kubernetes':
      return hinted;
  }
}

/** Some libraries read a body as JSON by its exact type only. */
function asJson(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return headers['content-type']?.startsWith('application/problem+json') === true
    ? { ...headers, 'content-type': 'application/json; charset=utf-8' }
    : headers;
}
