import { timingSafeEqual } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { hmacSha256 } from '../../effects/run/fingerprint.ts';

/** Whose a session is: a workspace and an agent, not a key, so that sessions outlive the rotation of keys. */
export interface SessionOwner {
  readonly upstream: string;
  readonly workspace: string;
  readonly agentId: string;
}

/** Longest id of a session that a server may give, and that is taken back, characters. */
const MAX_ID = 1_024;
const MARK_LENGTH = 43;

/**
 * The id of a session as an agent gets it: the server's own, a dot, and a mark that only the gateways of this
 * installation can make for this owner. Nothing has to be kept: any of them knows the session again, also after a restart.
 * @param key the key of the owner's workspace
 */
export function sealSession(key: KeyObject, owner: SessionOwner, id: string): string | null {
  return isVisible(id) && id.length <= MAX_ID ? `${id}.${markOf(key, owner, id)}` : null;
}

/** Headers of an answer. */
export type AnswerHeaders = Readonly<Record<string, string | readonly string[]>>;

/**
 * The headers of an answer, with the id of the session as the agent gets it. Clients take the id from every answer that
 * has one, not only from that to `initialize`: one that came unsealed would end their session.
 * @returns `unsealed`: the server gave an id that cannot be used, and the headers are without it
 */
export function sealHeaders(
  headers: AnswerHeaders,
  seal: (id: string) => string | null,
): { readonly headers: AnswerHeaders; readonly unsealed: boolean } {
  const { 'mcp-session-id': id, ...others } = headers;
  if (id === undefined) return { headers, unsealed: false };
  const sealed = typeof id === 'string' ? seal(id) : null;
  return sealed === null
    ? { headers: others, unsealed: true }
    : { headers: { ...others, 'mcp-session-id': sealed }, unsealed: false };
}

/** The server's id of a session; `null` if it is none that this owner began. */
export function openSession(key: KeyObject, owner: SessionOwner, sealed: string): string | null {
  const id = sealed.slice(0, -(MARK_LENGTH + 1));
  if (!isVisible(id) || id.length > MAX_ID || sealed[id.length] !== '.') return null;
  const mark = Buffer.from(sealed.slice(id.length + 1), 'latin1');
  const expected = Buffer.from(markOf(key, owner, id), 'latin1');
  return mark.length === expected.length && timingSafeEqual(mark, expected) ? id : null;
}

function markOf(key: KeyObject, { upstream, workspace, agentId }: SessionOwner, id: string): string {
  return hmacSha256(key, JSON.stringify(['mcp session', 1, upstream, workspace, agentId, id]));
}

function isVisible(id: string): boolean {
  return /^[\x21-\x7e]+$/.test(id);
}
