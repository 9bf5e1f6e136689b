import type { JsonObject } from '../json/value.ts';
import { HANDSHAKE_VERSIONS, META, STATELESS_VERSIONS } from './revisions.ts';

export interface Answered {
  readonly session: string | null;
  /** `null` where it was answered with anything but a result. */
  readonly result: JsonObject | null;
}

/** How messages come to a server. `headers`: those that the protocol asks for. */
export interface Line<Answer extends Answered> {
  ask(request: JsonObject & { readonly id: number }, headers: Headers): Promise<Answer>;
  notify(notification: JsonObject, headers: Headers): Promise<void>;
  /** The session is over. */
  end(headers: Headers): Promise<void>;
}

type Headers = Readonly<Record<string, string>>;

export type Begun =
  | {
      readonly kind: 'session';
      readonly headers: Headers;
      /** It has given the session a name, which it can be told to end. */
      readonly isNamed: boolean;
    }
  | { readonly kind: 'stateless'; readonly headers: Headers; readonly meta: JsonObject };

const [SESSIONS] = HANDSHAKE_VERSIONS;
const [STATELESS] = STATELESS_VERSIONS;

/**
 * Begins to speak with a server: in the era of sessions, which most servers know, and else in the stateless one. The
 * request has the id 0; those that follow have others.
 * @param capabilities what the client says that it can do
 * @returns `description`: what the server says of itself. `begun` is `null` where it speaks in no era; then `answered` is its
 *   answer to `initialize`
 * @throws what the line throws
 */
export async function beginWith<Answer extends Answered>(
  line: Line<Answer>,
  clientInfo: JsonObject,
  capabilities: JsonObject = {},
): Promise<
  { readonly begun: Begun; readonly description: JsonObject } | { readonly begun: null; readonly answered: Answer }
> {
  const params = { protocolVersion: SESSIONS, capabilities, clientInfo };
  const answered = await line.ask({ id: 0, method: 'initialize', params }, {});
  if (answered.result === null) {
    const client = { [META.clientInfo]: clientInfo, [META.clientCapabilities]: capabilities };
    const meta = { [META.protocolVersion]: STATELESS, ...client };
    const begun = { kind: 'stateless', headers: { 'mcp-protocol-version': STATELESS }, meta } as const;
    const { result } = await line.ask(...addressed(begun, 0, 'server/discover', {}));
    return result === null ? { begun: null, answered } : { begun, description: result };
  }
  const { protocolVersion: version } = answered.result;
  const headers = {
    ...(typeof version === 'string' && { 'mcp-protocol-version': version }),
    ...(answered.session !== null && { 'mcp-session-id': answered.session }),
  };
  await line.notify({ method: 'notifications/initialized' }, headers);
  return { begun: { kind: 'session', headers, isNamed: answered.session !== null }, description: answered.result };
}

/** A request as a server wants it, and its headers. What the header `Mcp-Name` repeats is added by who asks for it. */
export function addressed(
  begun: Begun,
  id: number,
  method: string,
  given: JsonObject,
): [JsonObject & { readonly id: number }, Headers] {
  switch (begun.kind) {
    case 'session':
      return [{ id, method, params: given }, begun.headers];
    case 'stateless':
      return [
        { id, method, params: { ...given, _meta: begun.meta } },
        { ...begun.headers, 'mcp-method': method },
      ];
  }
}
