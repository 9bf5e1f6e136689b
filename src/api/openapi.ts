import { readFileSync } from 'node:fs';
import { Type } from 'typebox';
import { HOME } from '../home.ts';
import { isJsonObject, type JsonObject } from '../json/value.ts';
import type { ApiApp } from './app.ts';

/** Made from the schemas of all routes by `npx vitest run test/api/openapi.test.ts -u`, which compares it otherwise. */
const DOCUMENT = new URL('schemas/openapi.json', HOME);

/**
 * Serves the OpenAPI document at `/openapi.json`. It is read on the first request and kept.
 * @param version of the product
 * @param healthElsewhere health and metrics have their own port, and are not in the document
 */
export function addOpenApi(app: ApiApp, publicUrl: () => string, version: string, healthElsewhere: boolean): void {
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
      text ??= JSON.stringify(documentFor(publicUrl(), version, healthElsewhere));
      return reply.type('application/json; charset=utf-8').send(text);
    },
  );
}

function documentFor(url: string, version: string, healthElsewhere: boolean): JsonObject {
  const document: JsonObject = JSON.parse(readFileSync(DOCUMENT, 'utf8'));
  const { info, paths } = document;
  if (!isJsonObject(info) || !isJsonObject(paths)) throw new Error(`${DOCUMENT.pathname} is no OpenAPI document`);
  const shown = Object.entries(paths).filter(([path]) => !healthElsewhere || !HEALTH.includes(path));
  return { ...document, info: { ...info, version }, servers: [{ url }], paths: Object.fromEntries(shown) };
}

const HEALTH: readonly string[] = ['/livez', '/metrics', '/readyz'];
