import { Type } from 'typebox';
import type { JsonObject } from '../json/value.ts';
import type { ApiApp } from './app.ts';
import type { ApiPorts } from './ports.ts';
import { answers, List, NoQuery } from './schema.ts';

const JsonWebKey = Type.Unsafe<JsonObject>(
  Type.Object({
    kty: Type.Literal('OKP'),
    crv: Type.Literal('Ed25519'),
    x: Type.String(),
    kid: Type.String({ description: 'Its thumbprint (RFC 7638).' }),
    alg: Type.String(),
    use: Type.Literal('sig'),
    iat: Type.Integer({ description: 'When it was made, seconds since the epoch.' }),
    exp: Type.Optional(Type.Integer({ description: 'When the next one took its place.' })),
  }),
);
const JsonWebKeys = Type.Object({ keys: List(JsonWebKey) });

/** `GET /.well-known/jwks.json`: the keys for checking receipts. Needs no key itself. */
export function addWellKnownRoutes(app: ApiApp, ports: Pick<ApiPorts, 'receipts'>): void {
  app.get(
    '/.well-known/jwks.json',
    {
      schema: {
        operationId: 'getReceiptKeys',
        summary: 'Public keys of receipts, retired ones too (RFC 7517)',
        tags: ['receipts'],
        security: [],
        querystring: NoQuery,
        response: answers({ 200: JsonWebKeys }),
      },
    },
    async (_request, reply) => {
      reply.header('cache-control', 'public, max-age=300');
      return ports.receipts.jwks();
    },
  );
}
