import { parseStrictJson } from '../effects/strict-json.ts';
import type { ApiApp } from './app.ts';
import { refuse } from './problem.ts';

/** After reading a body of so many bytes others have their turn before it is judged. */
const LARGE_BODY = 65_536;

/**
 * Bodies of the control plane: `application/json`, UTF-8, strict I-JSON, and nothing else. An empty body is none.
 * Fastify's own parsers, which forgive, are removed.
 */
export function acceptStrictJson(app: ApiApp, depthLimit: () => number): void {
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
    const parsed = parseStrictJson(bytes, { depth: depthLimit() });
    if (parsed.ok) {
      if (bytes.length < LARGE_BODY) done(null, parsed.value);
      else setImmediate(done, null, parsed.value);
      return;
    }
    const at = parsed.at === null ? '' : ` (line ${parsed.at.line}, column ${parsed.at.column})`;
    done(refuse('invalid_json', `The body is not strict JSON: ${parsed.message}${at}.`));
  });
}
