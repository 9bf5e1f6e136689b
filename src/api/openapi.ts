import swagger from '@fastify/swagger';
import { Type } from 'typebox';
import type { JsonObject } from '../json/value.ts';
import type { ApiApp } from './app.ts';
import { ProblemDocument } from './schema.ts';

/** What other doors have in the document. */
export interface DescribedElsewhere {
  readonly paths: Readonly<Record<string, JsonObject>>;
  readonly schemas: JsonObject;
}

/**
 * Collects the schemas of all routes that are added later into the OpenAPI document, and serves it at `/openapi.json`.
 * The document is made on the first request and kept.
 * @param version of the product
 * @param elsewhere routes that do not speak the API's JSON, and describe themselves
 */
export async function addOpenApi(
  app: ApiApp,
  publicUrl: () => string,
  version: string,
  elsewhere: DescribedElsewhere,
): Promise<void> {
  app.addSchema(ProblemDocument);
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'svc-gateway',
        version,
        description:
          'Runs the tool calls of agents as effects that happen at most once, within budget and policy, and can be proven afterwards. Every answer that is not 2xx carries `x-should-retry`, and says whether the action happened and what to do next.',
      },
      tags: TAGS,
      components: {
        securitySchemes: {
          apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
          bearer: { type: 'http', scheme: 'bearer' },
          queryKey: { type: 'apiKey', in: 'query', name: 'api_key', description: 'Deprecated.' },
        },
      },
      security: [{ apiKey: [] }, { bearer: [] }, { queryKey: [] }],
    },
    refResolver: {
      buildLocalReference: (schema, _base, _fragment, index) =>
        typeof schema['$id'] === 'string' ? schema['$id'] : `schema-${index}`,
    },
    // Routes of other doors have no operation id and are not in this document.
    transform: ({ schema, url }) => ({
      schema: { ...schema, ...(schema?.operationId === undefined ? { hide: true } : {}) },
      url,
    }),
  });

  let text: string | null = null;
  app.get(
    '/openapi.json',
    {
      schema: {
        operationId: 'openapi',
        summary: 'This document',
        tags: ['health'],
        security: [],
        querystring: Type.Object({}, { additionalProperties: false }),
      },
    },
    async (_request, reply) => {
      text ??= JSON.stringify(whole(app.swagger(), publicUrl(), elsewhere));
      return reply.type('application/json; charset=utf-8').send(text);
    },
  );
}

function whole(own: Own, url: string, { paths, schemas }: DescribedElsewhere): object {
  return {
    ...own,
    servers: [{ url }],
    paths: { ...own.paths, ...paths },
    components: { ...own.components, schemas: { ...own.components?.schemas, ...schemas } },
  };
}

/** The document as far as it is put together here. */
interface Own {
  readonly paths?: object;
  readonly components?: { readonly schemas?: object };
}

const TAGS = [
  { name: 'effects', description: 'Actions run by the gateway.' },
  { name: 'approvals', description: 'What waits for people.' },
  { name: 'claims', description: 'Exclusive rights on targets.' },
  { name: 'reservations', description: 'Units of pools, set aside.' },
  { name: 'pauses', description: 'Stop switches.' },
  { name: 'budgets', description: 'What is spent, held and left.' },
  { name: 'checks', description: 'State verification and outcome reconciliation, standing alone.' },
  { name: 'keys', description: 'Keys and their profiles.' },
  { name: 'workspaces', description: 'Workspaces and agents.' },
  { name: 'catalog', description: 'Tools and policies.' },
  { name: 'mcp', description: 'The Model Context Protocol: the control plane, and servers behind the gateway.' },
  { name: 'receipts', description: 'Keys that receipts are checked with.' },
  { name: 'health', description: 'For operators.' },
];
