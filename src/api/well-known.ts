import type { ApiApp } from './app.ts';
import type { ApiPorts } from './ports.ts';
import { AnyObject, NoQuery, answers } from './schema.ts';

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
        response: answers({ 200: AnyObject('A JSON Web Key Set.') }),
      },
    },
    async (_request, reply) => {
      reply.header('cache-control', 'public, max-age=300');
      return ports.receipts.jwks();
    },
  );
}
