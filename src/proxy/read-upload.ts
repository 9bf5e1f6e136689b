import type { IncomingMessage } from 'node:http';
import { bodyPieces, TinyPieces } from '../bytes/gathered.ts';
import type { Problem } from '../effects/model/run-request.ts';
import type { JsonLimits } from '../json/strict.ts';
import { typeFault } from '../upstreams/http/multipart-body.ts';
import { readBoundary } from '../upstreams/http/part-headers.ts';
import { readMultipart } from '../upstreams/http/read-multipart.ts';
import type { RuleMatch } from './route-table.ts';
import { FileTooLarge, SpoolFull, type Upload } from '../upstreams/http/spool.ts';
import { keyGoesOn, problemOf } from './arrival.ts';
import type { UploadLimits } from './ports.ts';
import type { ReadContent } from './read-content.ts';

export type ReadUpload =
  | { readonly kind: 'content'; readonly content: ReadContent }
  | { readonly kind: 'problem'; readonly problem: Problem }
  | { readonly kind: 'gone' };

class Refused extends Error {
  readonly problem: Problem;
  constructor(problem: Problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

/**
 * Reads a body with files as it arrives. Only its fields and one piece of a file are in memory.
 * @param key of the caller: it never goes on, not even inside a file
 */
export async function readUpload(
  request: IncomingMessage,
  { tool, plan }: Pick<RuleMatch, 'tool' | 'plan'>,
  upload: Upload,
  options: { readonly limits: UploadLimits; readonly jsonLimits: JsonLimits; readonly key: string },
): Promise<ReadUpload> {
  const { limits, jsonLimits } = options;
  if (Number(request.headers['content-length'] ?? 0) > limits.request) return tooLarge(limits.request);
  const type = request.headers['content-type'] ?? null;
  const source = watched(request, limits.request, options.key);
  try {
    if (plan.bodyType === 'opaque') return await readOpaque(source, type, upload);
    const named = readBoundary(type ?? '');
    if ('message' in named) return { kind: 'problem', problem: problemOf('invalid_request', `${named.message}.`) };
    const form = await readMultipart(source, {
      boundary: named.boundary,
      lists: plan.formLists,
      schema: tool.paramsSchema,
      limits: jsonLimits,
      fieldBytes: limits.fields,
      openFile: () => upload.open(),
    });
    if (!form.ok) return { kind: 'content', content: { ...form, code: 'invalid_request' } };
    await upload.kept();
    return { kind: 'content', content: { ok: true, value: form.members } };
  } catch (error) {
    if (error instanceof Refused) return { kind: 'problem', problem: error.problem };
    if (error instanceof TinyPieces) return { kind: 'problem', problem: problemOf('invalid_request', error.message) };
    if (error instanceof FileTooLarge) return tooLarge(limits.file, 'A file');
    if (error instanceof SpoolFull) return { kind: 'problem', problem: noRoom(error) };
    if (request.destroyed || request.readableAborted) return { kind: 'gone' };
    throw error;
  }
}

async function readOpaque(source: AsyncIterable<Buffer>, type: string | null, upload: Upload): Promise<ReadUpload> {
  const fault = typeFault(type ?? undefined);
  if (fault !== null) return { kind: 'problem', problem: problemOf('invalid_request', `The body ${fault}.`) };
  const file = upload.open();
  for await (const chunk of source) {
    const written = file.write(chunk);
    if (written !== null) await written;
  }
  await upload.kept();
  const value = { ...(type === null ? {} : { content_type: type }), ...file.end() };
  return { kind: 'content', content: { ok: true, value } };
}

/**
 * The bytes of a body as they arrive. If the request is refused in the middle, its connection stays open for the
 * answer.
 */
async function* watched(request: IncomingMessage, most: number, key: string): AsyncGenerator<Buffer> {
  const needle = Buffer.from(key);
  let tail: Buffer = Buffer.alloc(0);
  let length = 0;
  for await (const chunk of bodyPieces(request)) {
    length += chunk.byteLength;
    if (length > most) throw new Refused(limitProblem(most));
    // The key may be split between two chunks.
    const begin = Buffer.concat([tail, chunk.subarray(0, needle.byteLength)]);
    if (begin.includes(needle) || chunk.includes(needle)) throw new Refused(keyGoesOn());
    tail = Buffer.concat([tail, chunk.subarray(-needle.byteLength)]).subarray(-(needle.byteLength - 1));
    yield chunk;
  }
  if (!request.complete) throw new Error('the caller went away');
}

function tooLarge(most: number, what = 'The body'): ReadUpload {
  return { kind: 'problem', problem: limitProblem(most, what) };
}

function limitProblem(most: number, what = 'The body'): Problem {
  return problemOf('too_large', `${what} is larger than the ${most} bytes that are taken.`);
}

function noRoom(error: SpoolFull): Problem {
  const detail = `There is no room for the files of the request now: ${error.message}. Nothing was sent; send it again.`;
  return { code: 'busy', detail, errors: [], retryAfterMs: 1000 };
}
