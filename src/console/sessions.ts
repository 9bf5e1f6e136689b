import { createHash, randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { ApiPorts, ApiSessions, Visitor } from '../api/ports.ts';
import type { Passkey } from '../effects/model/passkey.ts';
import type { Principal } from '../effects/model/principal.ts';
import { CONSOLE_COOKIE, CONSOLE_COOKIE_TLS } from '../effects/run/header-names.ts';
import { parseObject } from '../json/text.ts';

/** How long a link opens a session, ms. */
export const LINK_MS = 5 * 60_000;
/** How long a person need not sign in again, ms. */
const SESSION_MS = 8 * 60 * 60_000;

/** Scripts of the console's own pages send this header; pages of other origins cannot. */
const OWN_HEADER = 'svc-console';

/** Whether a request comes from a page of the console, as far as its headers say. */
export function isOwnPage(headers: IncomingHttpHeaders): boolean {
  const { 'sec-fetch-site': from } = headers;
  return headers[OWN_HEADER] === '1' && (from === undefined || from === 'same-origin');
}

/**
 * Sessions of the console, in the store: a digest of what the browser has, and, sealed under the master secret, whose key
 * began it. Who can only read the store cannot use one; who can only write to it cannot make one. A session ends with its key.
 */
export class ConsoleSessions implements ApiSessions {
  readonly #store;
  readonly #seals;
  readonly #stillValid;
  readonly #settings;

  constructor({ store, seals, stillValid, settings }: Pick<ApiPorts, 'store' | 'seals' | 'stillValid' | 'settings'>) {
    this.#store = store;
    this.#seals = seals;
    this.#stillValid = stillValid;
    this.#settings = settings;
  }

  /** Begins a session, as the value of `Set-Cookie`. The one that the request came with ends. @param passkey it ends with that */
  begin(principal: Principal, headers: IncomingHttpHeaders, passkey?: string): Promise<string> {
    return this.#begin(principal, true, headers, passkey ?? null);
  }

  /** The same for whoever has a link. @returns `null` where the link is not good, or no longer */
  async enter(token: string, headers: IncomingHttpHeaders): Promise<string | null> {
    if (!TOKEN.test(token)) return null;
    const id = idOf('link', token);
    const text = await this.#store.takeSession(id);
    const visitor = text === null ? null : await this.#open(id, text);
    return visitor === null ? null : this.#begin(visitor.principal, false, headers, null);
  }

  /** Ends the session of a request, at every gateway; and in the browser, by the value of `Set-Cookie`. */
  async leave(headers: IncomingHttpHeaders): Promise<string> {
    const token = tokenIn(headers.cookie, this.#nameOf());
    if (token !== null) await this.#store.takeSession(idOf('session', token));
    return this.#cookie('', 0);
  }

  async visitorOf(headers: IncomingHttpHeaders): Promise<Visitor | null> {
    const token = isOwnPage(headers) ? tokenIn(headers.cookie, this.#nameOf()) : null;
    if (token === null) return null;
    const id = idOf('session', token);
    const text = await this.#store.session(id);
    return text === null ? null : this.#open(id, text);
  }

  makeLink(principal: Principal): ReturnType<ApiSessions['makeLink']> {
    return this.#keep('link', principal, false, null);
  }

  async ownerOf({ user, keyId }: Pick<Passkey, 'user' | 'keyId'>): Promise<Principal | null> {
    let latest = await this.#store.key(keyId.slice('key_'.length));
    for (let rotations = 0; latest?.replacedBy != null && rotations < MOST_ROTATIONS; rotations += 1)
      latest = await this.#store.key(latest.replacedBy.slice('key_'.length));
    const principal = latest === null ? null : await this.#stillValid(latest.id);
    return principal === null || 'failure' in principal || principal.user !== user ? null : principal;
  }

  #isSecure(): boolean {
    return this.#settings().publicUrl.startsWith('https:');
  }

  #nameOf(): string {
    return this.#isSecure() ? CONSOLE_COOKIE_TLS : CONSOLE_COOKIE;
  }

  async #keep(
    kind: 'link' | 'session',
    { keyId, user }: Pick<Principal, 'keyId' | 'user'>,
    hasShownKey: boolean,
    passkey: string | null,
  ): Promise<{ readonly token: string; readonly until: number }> {
    const token = randomBytes(32).toString('base64url');
    const until = this.#store.now() + (kind === 'link' ? LINK_MS : SESSION_MS);
    const id = idOf(kind, token);
    const text = this.#seals.sealText(JSON.stringify({ keyId, user, hasShownKey, passkey, until }), bindingOf(id));
    await this.#store.putSession(id, { text, until, keyId });
    return { token, until };
  }

  /** Whose key it is; `null` where the text is not as it was sealed, or the key is no longer good, or another's. */
  async #open(id: string, text: string): Promise<Visitor | null> {
    const opened = this.#seals.openText(text, bindingOf(id));
    const { keyId, user, hasShownKey, passkey = null, until } = opened === null ? {} : (parseObject(opened) ?? {});
    if (typeof keyId !== 'string' || typeof hasShownKey !== 'boolean' || typeof until !== 'number') return null;
    const principal = until <= this.#store.now() ? { failure: true } : await this.#stillValid(keyId);
    if ('failure' in principal || principal.user !== user) return null;
    // A session ends with the passkey that began it.
    if (typeof passkey === 'string' && (await this.#store.passkey(passkey))?.user !== user) return null;
    return { principal, hasShownKey, passkey: typeof passkey === 'string' ? passkey : null, session: id, until };
  }

  #cookie(value: string, maxAgeS: number): string {
    const attributes = `Path=/; Max-Age=${maxAgeS}; HttpOnly; SameSite=Strict`;
    return `${this.#nameOf()}=${value}; ${attributes}${this.#isSecure() ? '; Secure' : ''}`;
  }

  async #begin(
    of: Pick<Principal, 'keyId' | 'user'>,
    hasShownKey: boolean,
    { cookie: header }: IncomingHttpHeaders,
    passkey: string | null,
  ): Promise<string> {
    const before = tokenIn(header, this.#nameOf());
    if (before !== null) await this.#store.takeSession(idOf('session', before));
    const { token } = await this.#keep('session', of, hasShownKey, passkey);
    return this.#cookie(token, SESSION_MS / 1000);
  }
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
