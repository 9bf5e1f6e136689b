import type { IncomingMessage } from 'node:http';

/** How addresses in the headers of an upstream's answer are turned into the gateway's own. */
export interface LinkContext {
  /** Of the route; empty where everything is the route. */
  readonly prefix: string;
  /** Origin of the upstream. */
  readonly upstreamUrl: string;
  /** Origin under which the caller knows the gateway. Few answers need it. */
  readonly origin: () => string;
  /** What becomes of addresses of other origins: clients send the gateway's key wherever a redirect or a page leads. */
  readonly foreignLinks: 'hide' | 'pass';
}

/** The origin that a request was sent to. Where a balancer ends TLS before the gateway, `public_url` knows better. */
export function originOfRequest({ headers, socket }: IncomingMessage, publicUrl: string): string {
  const { host = '' } = headers;
  const published = URL.canParse(publicUrl) ? new URL(publicUrl) : null;
  if (published !== null && published.host === host.toLowerCase()) return published.origin;
  return `${'encrypted' in socket ? 'https' : 'http'}://${host}`;
}

/** Whether a header holds addresses that clients follow. */
export function isLinkHeader(name: string): boolean {
  return name === 'location' || name === 'content-location' || name === 'link';
}

/**
 * A header with addresses, as the caller may have it: those of the upstream lead to the gateway. Those of other origins
 * stand in a header that no client follows, `svc-foreign-…`, unless the route passes them.
 */
export function ownLinks(name: string, value: string, context: LinkContext): Readonly<Record<string, string>> {
  return name === 'link' ? ownLinkHeader(value, context) : ownAddress(name, value, context);
}

function ownAddress(name: string, value: string, context: LinkContext): Readonly<Record<string, string>> {
  const found = own(value, context);
  if (found.kind === 'foreign' && context.foreignLinks === 'hide') return { [`svc-foreign-${name}`]: value };
  return { [name]: found.kind === 'own' ? found.path : value };
}

/** Before an address of another origin in a field of JSON: no client follows it, and none takes it for the last page. */
const FOREIGN = 'svc-foreign:';

/** An address in a field of a JSON answer, as the caller may have it. */
export function ownField(address: string, context: LinkContext): string {
  // A template is no address yet: what stands behind the origin stays as it is written.
  const rest = address.startsWith(`${context.upstreamUrl}/`) ? address.slice(context.upstreamUrl.length) : null;
  if (rest !== null) return `${context.origin()}${context.prefix}${rest}`;
  const found = own(address, context);
  switch (found.kind) {
    case 'own':
      return `${found.whole ? context.origin() : ''}${found.path}`;
    case 'as_is':
      return address;
    case 'foreign':
      return context.foreignLinks === 'hide' ? `${FOREIGN}${address}` : address;
  }
}

/** RFC 8288: `<address>; rel="next", <address>; …`. */
const LINK = /\s*<([^<>]*)>((?:[^",<>]|"(?:[^"\\]|\\.)*")*)(?:,|$)/y;

function ownLinkHeader(value: string, context: LinkContext): Readonly<Record<string, string>> {
  const kept: string[] = [];
  const foreign: string[] = [];
  LINK.lastIndex = 0;
  for (let at = 0; at < value.length; at = LINK.lastIndex) {
    LINK.lastIndex = at;
    const [whole, address = '', params = ''] = LINK.exec(value) ?? [];
    // What cannot be read may be read by somebody else.
    if (whole === undefined) return context.foreignLinks === 'pass' ? { link: value } : { 'svc-foreign-link': value };
    const found = own(address.trim(), context);
    if (found.kind === 'foreign' && context.foreignLinks === 'hide') foreign.push(`<${address}>${params}`.trim());
    // Whole, where it was: client libraries put their base URL before what is a path, and that has the prefix already.
    else if (found.kind === 'own') kept.push(`<${found.whole ? context.origin() : ''}${found.path}>${params}`.trim());
    else kept.push(`<${address}>${params}`.trim());
  }
  return {
    ...(kept.length > 0 ? { link: kept.join(', ') } : {}),
    ...(foreign.length > 0 ? { 'svc-foreign-link': foreign.join(', ') } : {}),
  };
}

type Found =
  /** In the upstream: path, query and fragment in the gateway's space. `whole`: it named the origin. */
  | { readonly kind: 'own'; readonly path: string; readonly whole: boolean }
  /** Relative to the request's path, or no address that a client sends a request to. */
  | { readonly kind: 'as_is' }
  | { readonly kind: 'foreign' };

function own(address: string, { prefix, upstreamUrl }: LinkContext): Found {
  if (!URL.canParse(address, `${upstreamUrl}/`)) return { kind: 'foreign' };
  const url = new URL(address, `${upstreamUrl}/`);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return { kind: 'as_is' };
  if (url.origin !== upstreamUrl) return { kind: 'foreign' };
  const path = `${url.pathname}${url.search}${url.hash}`;
  if (/^[a-z][a-z0-9+.-]*:/i.test(address) || /^[/\\]{2}/.test(address))
    return { kind: 'own', path: `${prefix}${path}`, whole: true };
  return address.startsWith('/') ? { kind: 'own', path: `${prefix}${path}`, whole: false } : { kind: 'as_is' };
}
