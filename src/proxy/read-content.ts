import type { Json } from '../json/value.ts';
import type { Problem } from '../effects/model/run-request.ts';
import { parseStrictJsonInSlices } from '../json/strict-in-slices.ts';
import { type JsonLimits, LARGE_TEXT, parseStrictJson, type StrictJson } from '../json/strict.ts';
import { BODY_TYPES, type BodyType, type HttpTool } from '../effects/model/tool.ts';
import { type FormOptions, type ReadForm, readForm, readFormInSlices } from '../upstreams/http/form.ts';
import { mediaType, takesFiles } from '../upstreams/http/request-template.ts';
import { problemOf } from './arrival.ts';
import { codingFault } from './decode-body.ts';
import type { RuleMatch } from './route-table.ts';

/** The content of a body, or what is wrong with it. `path` is a JSON Pointer into it. */
export type ReadContent =
  | { readonly ok: true; readonly value: Json }
  | {
      readonly ok: false;
      readonly code: 'invalid_json' | 'invalid_request';
      readonly path: string;
      readonly message: string;
    };

export function readContent(
  { tool, plan }: Pick<RuleMatch, 'tool' | 'plan'>,
  bytes: Buffer,
  limits: JsonLimits,
): ReadContent | Promise<ReadContent> {
  const { bodyType, formLists } = plan;
  switch (bodyType) {
    case 'json':
      return bytes.byteLength < LARGE_TEXT
        ? ofJson(parseStrictJson(bytes, limits))
        : parseStrictJsonInSlices(bytes, limits).then(ofJson);
    case 'form': {
      const options: FormOptions = { lists: formLists, schema: tool.paramsSchema, limits };
      return bytes.byteLength < LARGE_TEXT
        ? ofForm(readForm(bytes, options))
        : readFormInSlices(bytes, options).then(ofForm);
    }
    case 'multipart':
    case 'opaque':
      throw new TypeError('a body with files is read as it arrives');
  }
}

function ofForm(form: ReadForm): ReadContent {
  return form.ok ? { ok: true, value: form.members } : { ...form, code: 'invalid_request' };
}

function ofJson(parsed: StrictJson): ReadContent {
  if (parsed.ok) return parsed;
  const where = parsed.at === null ? '' : `line ${parsed.at.line}, column ${parsed.at.column}: `;
  return { ok: false, code: 'invalid_json', path: '', message: `${where}${parsed.message}` };
}

/** `media` is for messages; `declared` is how a tool says that it takes this kind. */
const KINDS: Readonly<Record<BodyType, { readonly form: RegExp; readonly media: string; readonly declared: string }>> =
  {
    json: { form: /^application\/(?:[\w.+-]+\+)?json$/, media: 'application/json', declared: 'body_type: json' },
    form: {
      form: /^application\/x-www-form-urlencoded$/,
      media: 'application/x-www-form-urlencoded',
      declared: 'body_type: form',
    },
    multipart: { form: /^multipart\/form-data$/, media: 'multipart/form-data', declared: 'body_type: multipart' },
    // Must be the last one: it matches every type.
    opaque: { form: /^/, media: 'any type', declared: 'body_type: opaque and body_as: body' },
  };

/** The last type of a body that a tool took without a coding. */
const taken = new WeakMap<HttpTool, string>();

/** Why a tool cannot take a body with these headers; `null` if it can. */
export function contentFault(
  { tool, plan }: Pick<RuleMatch, 'tool' | 'plan'>,
  headers: { readonly 'content-type'?: string | undefined; readonly 'content-encoding'?: string | undefined },
): Problem | null {
  const type = headers['content-type'] ?? '';
  const isPlain = headers['content-encoding'] === undefined;
  // Callers send one and the same type with all their calls.
  if (isPlain && taken.get(tool) === type) return null;
  const { bodyType } = plan;
  const media = mediaType(type);
  if (!KINDS[bodyType].form.test(media)) {
    const other = BODY_TYPES.find((one) => KINDS[one].form.test(media));
    const line = other === undefined ? '' : ` To take this one, add ${KINDS[other].declared} to its request.`;
    const what = media === '' ? 'a body without Content-Type' : media.slice(0, 100);
    return problemOf(
      'unsupported_media_type',
      `The tool ${tool.name} takes ${KINDS[bodyType].media}, not ${what}.${line}`,
    );
  }
  const coding = codingFault(headers['content-encoding'], takesFiles(plan));
  if (coding !== null || takesFiles(plan)) return coding;
  const charsets = type
    .toLowerCase()
    .split(';')
    .slice(1)
    .map((parameter) => parameter.trim())
    .filter((parameter) => parameter.startsWith('charset'));
  if (!charsets.every((charset) => /^charset=(?:utf-8|"utf-8")$/.test(charset)))
    return problemOf('invalid_request', 'Bodies are read as UTF-8; send no other charset.');
  if (isPlain) taken.set(tool, type);
  return null;
}
