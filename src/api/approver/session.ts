import { randomBytes } from 'node:crypto';
import { APPROVER_COOKIE } from '../../effects/run/header-names.ts';
import { parseObject } from '../../json/text.ts';
import type { JsonObject } from '../../json/value.ts';
import type { Principal } from '../../effects/model/principal.ts';
import type { Authenticated } from '../ports.ts';
import type { EffectStore } from '../../effects/store.ts';
import type { Secrets } from '../../secrets/vault.ts';

/** How long a person need not show the key again, ms. */
export const SESSION_MS = 10 * 60_000;

/** Who looks at a page, after showing a key or a passkey. */
export interface Approver {
  readonly principal: Principal;
  readonly user: string;
  /** The passkey that the session began with. Else they showed a key. */
  readonly passkey?: string | null;
  /** Unlike that of any other session: forms of one session are good in no other. */
  readonly session: string;
}

/** What sessions need of the rest of the gateway. */
export interface SessionPorts {
  readonly seals: Pick<Secrets, 'sealText' | 'openText'>;
  readonly stillValid: (keyId: string) => Promise<Authenticated>;
  /** Sessions that were left, and passkeys that are still somebody's. */
  readonly store: Pick<EffectStore, 'endSession' | 'hasEnded' | 'passkey'>;
  readonly now: () => number;
}

/**
 * A new session, as the value of `Set-Cookie`. Nothing is kept until it is left: the cookie is sealed under the master
 * secret, for this workspace. So it is good at every gateway of a store, and after a restart.
 * @param passkey that began it; `null`: a key
 */
export function begin(
  ports: SessionPorts,
  workspace: string,
  { keyId, user, passkey }: { readonly keyId: string; readonly user: string; readonly passkey: string | null },
  isSecure: boolean,
): string {
  const session = randomBytes(16).toString('base64url');
  const text = JSON.stringify({ keyId, user, passkey, session, until: ports.now() + SESSION_MS });
  const sealed = ports.seals.sealText(text, { what: 'approver', workspace, of: 'session', part: 0 });
  return setCookie(workspace, sealed, SESSION_MS / 1000, isSecure);
}

/**
 * Ends the session, also for whoever has a copy of the cookie.
 * @returns the value of `Set-Cookie` that takes it out of the browser
 * @throws StoreUnavailable
 */
export async function end(
  ports: SessionPorts,
  workspace: string,
  cookies: string | undefined,
  isSecure: boolean,
): Promise<string> {
  const sealed = cookieIn(cookies);
  const { session, until } = (sealed === null ? null : open(ports, sealed, workspace, 'session')) ?? {};
  if (typeof session === 'string' && typeof until === 'number' && until > ports.now())
    await ports.store.endSession(workspace, session, until);
  return setCookie(workspace, '', 0, isSecure);
}

/**
 * Who sends a request; `null` without a session that is good now. It ends when it is left, with its key or passkey,
 * and when the key is another user's.
 * @throws StoreUnavailable
 */
export async function approverOf(
  ports: SessionPorts,
  workspace: string,
  cookies: string | undefined,
): Promise<Approver | null> {
  const sealed = cookieIn(cookies);
  const opened = sealed === null ? null : open(ports, sealed, workspace, 'session');
  const { keyId, user, passkey: by, session, until } = opened ?? {};
  if (typeof keyId !== 'string' || typeof user !== 'string' || typeof session !== 'string') return null;
  if (typeof until !== 'number' || until <= ports.now()) return null;
  if (await ports.store.hasEnded(workspace, session)) return null;
  // A session ends with the passkey that began it.
  const passkey = typeof by === 'string' ? by : null;
  if (passkey !== null && (await ports.store.passkey(passkey))?.user !== user) return null;
  const principal = await ports.stillValid(keyId);
  return 'failure' in principal || principal.user !== user ? null : { principal, user, passkey, session };
}

/** Goes with a form, and comes back with the vote: what was shown, and to whom. No other page can have one. */
export function formOf(
  { seals }: SessionPorts,
  workspace: string,
  approval: { readonly id: string; readonly digest: string },
  { session }: Approver,
): string {
  const text = JSON.stringify({ session, digest: approval.digest });
  return seals.sealText(text, { what: 'approver', workspace, of: approval.id, part: 0 });
}

/** The digest of what a form has shown; `null` where it was not made for this session and this request. */
export function digestShown(
  ports: Pick<SessionPorts, 'seals'>,
  workspace: string,
  approvalId: string,
  form: string,
  { session }: Approver,
): string | null {
  const { session: of, digest } = open(ports, form, workspace, approvalId) ?? {};
  return of === session && typeof digest === 'string' ? digest : null;
}

/** @param of `session`, or the id of a request for approval: one never opens as the other */
function open(
  { seals }: Pick<SessionPorts, 'seals'>,
  sealed: string,
  workspace: string,
  of: string,
): JsonObject | null {
  const text = seals.openText(sealed, { what: 'approver', workspace, of, part: 0 });
  return text === null ? null : parseObject(text);
}

function setCookie(workspace: string, value: string, maxAgeS: number, isSecure: boolean): string {
  // The cookie goes to this page only.
  const attributes = `Path=/approve/${workspace}; Max-Age=${maxAgeS}; HttpOnly; SameSite=Strict`;
  return `${APPROVER_COOKIE}=${value}; ${attributes}${isSecure ? '; Secure' : ''}`;
}

function cookieIn(header: string | undefined): string | null {
  const own = (header ?? '')
    .split(';')
    .map((one) => one.trim())
    .filter((one) => one.startsWith(`${APPROVER_COOKIE}=`));
  // Two of one name: somebody else has put one there.
  return own.length === 1 ? (own[0] ?? '').slice(APPROVER_COOKIE.length + 1) : null;
}
