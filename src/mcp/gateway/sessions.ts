import type { KeyObject } from 'node:crypto';
import type { Json } from '../../json/value.ts';
import { MAX_ID, withMark, withoutMark } from './marks.ts';

/** Whose a session is: a workspace and an agent, not a key, so that sessions outlive the rotation of keys. */
export interface SessionOwner {
  readonly upstream: string;
  readonly workspace: string;
  readonly agentId: string;
}

/** Whom sessions count for, where a server has room for some only. */
export function holderOf({ workspace, agentId }: SessionOwner): string {
  return JSON.stringify([workspace, agentId]);
}

export interface Session {
  readonly id: string;
  /** Its client has said that it has its user visit addresses. Nothing else remembers that: it stands in the mark. */
  readonly takesUrls: boolean;
}

/**
 * The id of a session as an agent gets it: the server's own, with a mark for this owner.
 * @param key the key of the owner's workspace
 */
export function sealSession(key: KeyObject, owner: SessionOwner, { id, takesUrls }: Session): string | null {
  return isVisible(id) && id.length <= MAX_ID ? withMark(key, ofSession(owner, takesUrls), id) : null;
}

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

/** A session as it was sealed; `null` if it is none that this owner began. */
export function openSession(key: KeyObject, owner: SessionOwner, sealed: string): Session | null {
  for (const takesUrls of [false, true]) {
    const id = withoutMark(key, ofSession(owner, takesUrls), sealed);
    if (id !== null && isVisible(id)) return { id, takesUrls };
  }
  return null;
}

function ofSession({ upstream, workspace, agentId }: SessionOwner, takesUrls: boolean): readonly Json[] {
  return ['mcp session', 1, upstream, workspace, agentId, ...(takesUrls ? ['urls'] : [])];
}

function isVisible(id: string): boolean {
  return /^[\x21-\x7e]+$/.test(id);
}
