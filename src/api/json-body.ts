import type { FastifyRequest } from 'fastify';
import { wholeBody } from '../bytes/gathered.ts';
import { parseStrictJsonInSlices } from '../json/strict-in-slices.ts';
import { type JsonLimits, LARGE_TEXT, parseStrictJson } from '../json/strict.ts';
import type { ApiApp } from './app.ts';
import { refuse } from './problem.ts';

/**
 * Bodies of the control plane: only `application/json`, UTF-8, strict I-JSON. An empty body counts as no body.
 * Fastify's own parsers are removed because they are too lenient.
 */
export function acceptStrictJson(app: ApiApp, limits: () => JsonLimits): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', async (request: FastifyRequest) => {
    const charset = /;\s*charset\s*=\s*"?([^";\s]+)/i.exec(request.headers['content-type'] ?? '')?.[1];
    if (charset !== undefined && !/^utf-?8$/i.test(charset))
      throw refuse('invalid_request', 'The body must be UTF-8; other charsets are not read.');
    const encoding = request.headers['content-encoding'];
    if (encoding !== undefined && encoding.toLowerCase() !== 'identity')
      throw refuse('unsupported_media_type', 'Compressed bodies are not read. Send the JSON as it is.');
    const bytes = await wholeBody(request.raw, request.routeOptions.bodyLimit, refuse);
    if (bytes.byteLength === 0) return undefined;
    const isShort = bytes.byteLength < LARGE_TEXT;
    const parsed = isShort ? parseStrictJson(bytes, limits()) : await parseStrictJsonInSlices(bytes, limits());
    if (parsed.ok) return parsed.value;
    const at = parsed.at === null ? '' : ` (line ${parsed.at.line}, column ${parsed.at.column})`;
    throw refuse('invalid_json', `The body is not strict JSON: ${parsed.message}${at}.`);
  });
}
