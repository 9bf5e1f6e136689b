import { createHash, randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { ApiPorts, ApiSessions, Visitor } from '../api/ports.ts';
import type { Principal } from '../effects/model/principal.ts';
import { CONSOLE_COOKIE, CONSOLE_COOKIE_TLS } from '../effects/run/header-names.ts';
import { parseObject } from '../json/parse.ts';

/** How long a link opens a session, ms. */
export const LINK_MS = 5 * 60_000;
/** How long a person need not sign in again, ms. */
const SESSION_MS = 8 * 60 * 60_000;

/** Scripts of the console's own pages send this header; pages of other origins cannot. */
const OWN_HEADER = 'svc-console';

/** Sessions of the console. */
export interface ConsoleSessions extends ApiSessions {
  /** Begins a session, as the value of `Set-Cookie`. The one that the request came with ends. @param passkey it ends with that */
  begin(principal: Principal, headers: IncomingHttpHeaders, passkey?: string): Promise<string>;
  /** The same for whoever has a link. @returns `null` where the link is not good, or no longer */
  enter(token: string, headers: IncomingHttpHeaders): Promise<string | null>;
  /** Ends the session of a request, at every gateway; and in the browser, by the value of `Set-Cookie`. */
  leave(headers: IncomingHttpHeaders): Promise<string>;
}

/** Whether a request comes from a page of the console, as far as its headers say. */
export function isOwnPage(headers: IncomingHttpHeaders): boolean {
  const { 'sec-fetch-site': from } = headers;
  return headers[OWN_HEADER] === '1' && (from === undefined || from === 'same-origin');
}

/**
 * Sessions in the store: a digest of what the browser has, and, sealed under the master secret, whose key began it. Who
 * can only read the store cannot use one; who can only write to it cannot make one. A session ends with its key.
 */
export function createSessions({
  store,
  seals,
  stillValid,
  settings,
}: Pick<ApiPorts, 'store' | 'seals' | 'stillValid' | 'settings'>): ConsoleSessions {
  const isSecure = (): boolean => settings().publicUrl.startsWith('https:');
  const nameOf = (): string => (isSecure() ? CONSOLE_COOKIE_TLS : CONSOLE_COOKIE);

  async function keep(
    kind: 'link' | 'session',
    { keyId, user }: Pick<Principal, 'keyId' | 'user'>,
    hasShownKey: boolean,
    passkey: string | null,
  ): Promise<{ readonly token: string; readonly until: number }> {
    const token = randomBytes(32).toString('base64url');
    const until = store.now() + (kind === 'link' ? LINK_MS : SESSION_MS);
    const id = idOf(kind, token);
    const text = seals.sealText(JSON.stringify({ keyId, user, hasShownKey, passkey, until }), bindingOf(id));
    await store.putSession(id, { text, until, keyId });
    return { token, until };
  }

  /** Whose key it is; `null` where the text is not as it was sealed, or the key is no longer good, or another's. */
  async function open(id: string, text: string): Promise<Visitor | null> {
    const opened = seals.openText(text, bindingOf(id));
    const { keyId, user, hasShownKey, passkey = null, until } = opened === null ? {} : (parseObject(opened) ?? {});
    if (typeof keyId !== 'string' || typeof hasShownKey !== 'boolean' || typeof until !== 'number') return null;
    const principal = until <= store.now() ? { failure: true } : await stillValid(keyId);
    if ('failure' in principal || principal.user !== user) return null;
    // A session ends with the passkey that began it.
    if (typeof passkey === 'string' && (await store.passkey(passkey))?.user !== user) return null;
    return { principal, hasShownKey, passkey: typeof passkey === 'string' ? passkey : null, session: id, until };
  }

  function cookie(value: string, maxAgeS: number): string {
    const attributes = `Path=/; Max-Age=${maxAgeS}; HttpOnly; SameSite=Strict`;
    return `${nameOf()}=${value}; ${attributes}${isSecure() ? '; Secure' : ''}`;
  }

  async function begin(
    of: Pick<Principal, 'keyId' | 'user'>,
    hasShownKey: boolean,
    { cookie: header }: IncomingHttpHeaders,
    passkey: string | null,
  ): Promise<string> {
    const before = tokenIn(header, nameOf());
    if (before !== null) await store.takeSession(idOf('session', before));
    const { token } = await keep('session', of, hasShownKey, passkey);
    return cookie(token, SESSION_MS / 1000);
  }

  return {
    async visitorOf(headers) {
      const token = isOwnPage(headers) ? tokenIn(headers.cookie, nameOf()) : null;
      if (token === null) return null;
      const id = idOf('session', token);
      const text = await store.session(id);
      return text === null ? null : open(id, text);
    },
    makeLink: (principal) => keep('link', principal, false, null),
    begin: (principal, headers, passkey) => begin(principal, true, headers, passkey ?? null),
    async enter(token, headers) {
      if (!TOKEN.test(token)) return null;
      const id = idOf('link', token);
      const text = await store.takeSession(id);
      const visitor = text === null ? null : await open(id, text);
      return visitor === null ? null : begin(visitor.principal, false, headers, null);
    },
    async ownerOf({ user, keyId }) {
      let latest = await store.key(keyId.slice('key_'.length));
      for (let rotations = 0; latest?.replacedBy != null && rotations < MOST_ROTATIONS; rotations += 1)
        latest = await store.key(latest.replacedBy.slice('key_'.length));
      const principal = latest === null ? null : await stillValid(latest.id);
      return principal === null || 'failure' in principal || principal.user !== user ? null : principal;
    },
    async leave(headers) {
      const token = tokenIn(headers.cookie, nameOf());
      if (token !== null) await store.takeSession(idOf('session', token));
      return cookie('', 0);
    },
  };
}

/** Successors of a key that are followed: those of ten years, a month each. */
const MOST_ROTATIONS = 120;

const TOKEN = /^[A-Za-z0-9_-]{43}$/;

function idOf(kind: 'link' | 'session', token: string): string {
  return `${kind}_${createHash('sha256').update(token).digest('base64url')}`;
}

function bindingOf(id: string) {
  return { what: 'console', workspace: '', of: id, part: 0 } as const;
}

/** The cookie of this name; of two, somebody else has put one there. */
function tokenIn(header: string | undefined, name: string): string | null {
  const own = (header ?? '')
    .split(';')
    .map((one) => one.trim())
    .filter((one) => one.startsWith(`${name}=`));
  const token = own.length === 1 ? (own[0] ?? '').slice(name.length + 1) : '';
  return TOKEN.test(token) ? token : null;
}
