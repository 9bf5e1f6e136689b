import type { IncomingHttpHeaders } from 'node:http';
import { connectionNames, passesBack } from '../upstreams/answer.ts';

/** Headers of a request that go on with every call. All others stay here: keys, cookies, overrides, forwarding. */
const TRANSPORT = [
  'accept',
  'accept-language',
  'content-type',
  'content-language',
  'user-agent',
  'if-match',
  'if-none-match',
  'if-modified-since',
  'if-unmodified-since',
  'traceparent',
  'tracestate',
] as const;

/** What else goes on with reads that stream: the gateway does not look into their answers. */
const STREAMED = ['accept-encoding', 'range', 'if-range', 'cache-control', 'last-event-id'] as const;

/** Never forwarded by name, not even where a tool names them: they may carry the gateway's own key, or change what a request is. */
const NEVER: ReadonlySet<string> = new Set([
  'authorization',
  'connection',
  'content-length',
  'cookie',
  'expect',
  'forwarded',
  'host',
  'idempotency-key',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'svc-agent-id',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'x-api-key',
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
  'x-original-url',
  'x-real-ip',
  'x-rewrite-url',
]);

/**
 * The headers of a request that go on to the upstream.
 * @param named headers that the tool's request takes as params
 * @param authorization the caller's own, for an upstream that the gateway holds no credentials of
 */
export function forwardedHeaders(
  headers: IncomingHttpHeaders,
  named: readonly (readonly [string, string])[],
  streamed: boolean,
  authorization: string | null,
): Record<string, string> {
  const forwarded: Record<string, string> = {};
  if (authorization !== null) forwarded['authorization'] = authorization;
  for (const name of TRANSPORT) {
    const value = headers[name];
    if (typeof value === 'string') forwarded[name] = value;
  }
  if (streamed) {
    for (const name of STREAMED) {
      const value = headers[name];
      if (typeof value === 'string') forwarded[name] = value;
    }
  }
  for (const [, header] of named) {
    const value = headers[header];
    if (typeof value === 'string' && mayBeNamed(header)) forwarded[header] = value;
  }
  return forwarded;
}

/** Whether a text stands in a header that would go on. */
export function wouldForward(headers: IncomingHttpHeaders, text: string): boolean {
  const carries = (name: string): boolean => {
    const value = headers[name];
    return typeof value === 'string' && value.includes(text);
  };
  return TRANSPORT.some(carries) || STREAMED.some(carries);
}

/** Whether a tool may take a header as a param. */
export function mayBeNamed(header: string): boolean {
  return !NEVER.has(header) && !header.startsWith('x-forwarded-') && !header.startsWith('svc-');
}

/**
 * The headers of an upstream's answer that go back to the caller, with `Location` turned into the gateway's own space:
 * the caller knows the upstream by the route's prefix only.
 */
export function returnedHeaders(
  headers: Readonly<Record<string, string | readonly string[] | number | undefined>>,
  options: { readonly setCookie: boolean; readonly prefix: string; readonly upstreamUrl: string },
): Record<string, string | string[]> {
  const { connection } = headers;
  const named = connectionNames(typeof connection === 'number' ? undefined : connection);
  const returned: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || !passesBack(name, options.setCookie, named)) continue;
    if (name === 'location' && typeof value === 'string') returned[name] = asBytes(ownLocation(value, options));
    else returned[name] = typeof value === 'object' ? value.map(asBytes) : asBytes(String(value));
  }
  return returned;
}

/** Header bytes come decoded as UTF-8 and are written as Latin-1: what is not ASCII goes on as the bytes it came as. */
function asBytes(value: string): string {
  return !/[^ -~\t]/.test(value) ? value : Buffer.from(value, 'utf8').toString('latin1');
}

function ownLocation(location: string, options: { readonly prefix: string; readonly upstreamUrl: string }): string {
  const path = location.startsWith(`${options.upstreamUrl}/`) ? location.slice(options.upstreamUrl.length) : location;
  return path.startsWith('/') && !path.startsWith('//') ? `${options.prefix}${path}` : location;
}
