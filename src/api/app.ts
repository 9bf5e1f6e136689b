import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type {} from '@fastify/swagger';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifySchema,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify';
import type { Principal } from '../effects/model/principal.ts';
import type { EndpointId, Permission, View } from '../identity/permissions.ts';

/** The server, with bodies, queries and paths typed by their schemas. */
export type ApiApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

/** Where the document lists routes whose row does not begin with the word. */
const TAGS: Readonly<Partial<Record<EndpointId, string>>> = {
  'tools.read': 'catalog',
  'policies.read': 'catalog',
  'pins.read': 'catalog',
  'key_profiles.read': 'keys',
  'passkeys.read': 'keys',
  'passkeys.write': 'keys',
  'agents.register': 'workspaces',
  'agents.read': 'workspaces',
};

/** A route that only keys with this row of the permission table may use. */
export function guarded<const Schema extends FastifySchema>(endpoint: EndpointId, schema: Schema) {
  const [area = ''] = endpoint.split('.');
  return { config: { endpoint }, schema: { tags: [TAGS[endpoint] ?? area], ...schema } };
}

/** Who calls a control-plane route, and how much that key may see. */
export interface Caller {
  readonly principal: Principal;
  /** The passkey that a session of the console began with. Else they showed a key. */
  readonly passkey?: string | null;
  readonly view: View;
  /**
   * On a run request, a key without permission leads to a decision, which the core makes. On other routes such a
   * request never gets here.
   */
  readonly refusal: Extract<Permission, { ok: false }> | null;
  /** ms since the epoch, store time. */
  readonly authenticatedAt: number;
  readonly authenticatedInMs: number;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Row of the permission table for this route. A route without one needs no key. */
    readonly endpoint?: EndpointId;
    /** The gateway's own pages, which browsers may open as such. */
    readonly page?: true;
  }
  interface FastifyReply {
    /**
     * Where a browser opens the answer as a page, keeps it from running anything, and from being of the gateway's
     * origin: what upstreams say comes from the origin of the approver's page. Part of {@link lastHeaders}.
     */
    contained(): void;
    /** Sets the headers that every answer has, whatever it is. Called for all that is sent through `send`. */
    lastHeaders(): void;
  }
  interface FastifyRequest {
    caller: Caller | null;
  }
}
