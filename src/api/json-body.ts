import {
  type JsonLimits,
  LARGE_TEXT,
  parseStrictJson,
  parseStrictJsonInSlices,
  type StrictJson,
} from '../json/strict.ts';
import type { ApiApp } from './app.ts';
import { refuse } from './problem.ts';

/**
 * Bodies of the control plane: only `application/json`, UTF-8, strict I-JSON. An empty body counts as no body.
 * Fastify's own parsers are removed because they are too lenient.
 */
export function acceptStrictJson(app: ApiApp, limits: () => JsonLimits): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const charset = /;\s*charset\s*=\s*"?([^";\s]+)/i.exec(request.headers['content-type'] ?? '')?.[1];
    if (charset !== undefined && !/^utf-?8$/i.test(charset)) {
      done(refuse('invalid_request', 'The body must be UTF-8; other charsets are not read.'));
      return;
    }
    const encoding = request.headers['content-encoding'];
    if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
      done(refuse('unsupported_media_type', 'Compressed bodies are not read. Send the JSON as it is.'));
      return;
    }
    if (body.length === 0) {
      done(null, undefined);
      return;
    }
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    const finish = (parsed: StrictJson): void => {
      if (parsed.ok) return done(null, parsed.value);
      const at = parsed.at === null ? '' : ` (line ${parsed.at.line}, column ${parsed.at.column})`;
      done(refuse('invalid_json', `The body is not strict JSON: ${parsed.message}${at}.`));
    };
    if (bytes.length < LARGE_TEXT) finish(parseStrictJson(bytes, limits()));
    else void parseStrictJsonInSlices(bytes, limits()).then(finish, done);
  });
}
