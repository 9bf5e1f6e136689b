/** What becomes of the headers of a request. A name that ends with `*` stands for all that begin so; lower case. */

/**
 * Never sent on, whatever a rule says: they belong to one connection, frame the body, carry the gateway's own keys, or
 * change what a request is.
 */
export const NEVER_HEADERS: readonly string[] = [
  'connection',
  'content-encoding',
  'content-length',
  'expect',
  'host',
  'http2-settings',
  'idempotency-key',
  'keep-alive',
  'proxy-*',
  'sec-websocket-*',
  'svc-*',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'x-api-key',
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
  'x-original-method',
  'x-original-url',
  'x-rewrite-url',
];

/** Credentials of the caller's own: they go on to upstreams that the gateway holds no credentials of, and no rule sees them. */
export const CREDENTIAL_HEADERS: readonly string[] = [
  'api-key',
  'authorization',
  'cookie',
  'private-token',
  'x-auth-token',
  'x-goog-api-key',
];

/**
 * Stay here unless `headers.forward` names them: what a caller may claim of its address, cookies, addresses of the
 * gateway, digests of bodies that are written anew.
 */
export const DROPPED_HEADERS: readonly string[] = [
  'cf-connecting-ip',
  'content-digest',
  'content-md5',
  'cookie',
  'digest',
  'fastly-client-ip',
  'forwarded',
  'referer',
  'repr-digest',
  'true-client-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-forwarded-*',
  'x-original-forwarded-for',
  'x-real-ip',
];

/** Not sent with calls that are governed: the gateway looks into their answers. */
export const NOT_GOVERNED_HEADERS: readonly string[] = ['accept-encoding', 'if-range', 'range'];

/** Differ from one try to the next, or say nothing of the action: they are no part of the fingerprint. */
export const VOLATILE_HEADERS: readonly string[] = [
  'accept',
  'accept-*',
  'anthropic-client-*',
  'b3',
  'baggage',
  'cache-control',
  'date',
  'dnt',
  'elastic-apm-traceparent',
  'grpc-timeout',
  'max-forwards',
  'newrelic',
  'origin',
  'pragma',
  'priority',
  'request-id',
  'save-data',
  'sec-*',
  'sentry-trace',
  'traceparent',
  'tracestate',
  'uber-trace-id',
  'upgrade-insecure-requests',
  'user-agent',
  'via',
  'x-amz-user-agent',
  'x-amzn-trace-id',
  'x-attempt',
  'x-b3-*',
  'x-client-request-id',
  'x-cloud-trace-context',
  'x-correlation-id',
  'x-datadog-*',
  'x-goog-api-client',
  'x-ms-client-request-id',
  'x-ot-span-context',
  'x-request-id',
  'x-request-start',
  'x-requested-with',
  'x-retry-count',
  'x-stainless-*',
  'x-stripe-client-telemetry',
  'x-stripe-client-user-agent',
  'x-trace-id',
];

/** What `headers.set` may be made of, in braces. */
export const HEADER_PLACEHOLDERS = ['agent_id', 'client_ip', 'host', 'proto', 'request_id'] as const;

/** Whether one of the patterns covers a name. */
export function namesHeader(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name));
}

/** Whether a header may never be sent on. Many servers read `_` as `-`. */
export function isNeverSent(name: string): boolean {
  return namesHeader(NEVER_HEADERS, name.replaceAll('_', '-'));
}
