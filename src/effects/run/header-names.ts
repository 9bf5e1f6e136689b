/**
 * Lists of headers by what the gateway does with them. All names are in lower case. A name that ends with `*` means
 * every name that begins so.
 */

/**
 * Never sent on, whatever a rule says. They belong to one connection, describe the framing of the body, carry gateway
 * keys, or change the meaning of a request.
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

/**
 * The caller's own credentials. They are sent on to upstreams for which the gateway holds none, and no rule sees them.
 */
export const CREDENTIAL_HEADERS: readonly string[] = [
  'api-key',
  'authorization',
  'cookie',
  'private-token',
  'x-auth-token',
  'x-goog-api-key',
];

/**
 * Not sent on unless `headers.forward` names them: claims of a caller about its address, cookies, addresses of the
 * gateway, digests of bodies that the gateway writes anew.
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

/** Not sent with governed calls, because the gateway reads their answers. */
export const NOT_GOVERNED_HEADERS: readonly string[] = ['accept-encoding', 'if-range', 'range'];

/** Not part of the fingerprint, because they differ between tries or say nothing about the action. */
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

/**
 * Cookies by which browsers are known to the gateway's own pages. Where a route is on their origin, browsers add them to
 * whatever they send there.
 */
export const APPROVER_COOKIE = 'svc_approver';
export const CONSOLE_COOKIE = 'svc_console';
/** With the prefix, a browser takes the cookie over TLS alone, for this host alone, and for all of its paths. */
export const CONSOLE_COOKIE_TLS = `__Host-${CONSOLE_COOKIE}`;
const OWN_COOKIES: readonly string[] = [APPROVER_COOKIE, CONSOLE_COOKIE, CONSOLE_COOKIE_TLS];

/** A `Cookie` header without the gateway's own cookies, which no upstream gets; empty if there are no others. */
export function withoutOwnCookies(header: string): string {
  if (!OWN_COOKIES.some((name) => header.includes(name))) return header;
  const pairs = header.split(';').map((pair) => pair.trim());
  return pairs.filter((pair) => !OWN_COOKIES.includes((pair.split('=')[0] ?? '').trim())).join('; ');
}

/** The placeholders that values of `headers.set` may use, in braces. */
export const HEADER_PLACEHOLDERS = ['agent_id', 'client_ip', 'host', 'proto', 'request_id'] as const;

/** Whether one of the patterns matches a name. */
export function namesHeader(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name));
}

/** Whether a header must never be sent on. Many servers read `_` as `-`. */
export function isNeverSent(name: string): boolean {
  return namesHeader(NEVER_HEADERS, name.replaceAll('_', '-'));
}
