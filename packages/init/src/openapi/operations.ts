import type { Json, JsonObject } from '../../../../src/json/value.ts';
import { type ApiDocument, entries, list, object, resolve, resolveObject, textOf } from './document.ts';

/** Where a param of an operation is. */
export type ParamPlace = 'path' | 'query' | 'header' | 'cookie';

/** A param that is not in the body. */
export interface ApiParam {
  readonly name: string;
  readonly in: ParamPlace;
  readonly required: boolean;
  readonly schema: Json;
  /** Whether it holds slashes, as far as the document says so. For params of the path only. */
  readonly hasSlashes: boolean;
  /**
   * How a list or an object is written in a query: `a=1&a=2`, `a=1,2`, `a=1 2`, `a=1|2`, `a[b]=1`, as JSON, or in a way
   * that nothing else has.
   */
  readonly written: 'repeated' | 'joined' | 'spaced' | 'piped' | 'deep' | 'json' | 'other';
}

/** A body in one of the formats that the document allows. */
export interface ApiBody {
  readonly kind: 'json' | 'form' | 'multipart' | 'opaque';
  readonly media: string;
  readonly required: boolean;
  /** `null` if the document does not describe the content. */
  readonly schema: Json;
  /** For forms: members are written `a[b]=1` and lists `a[0]=1`, if the document says so; else the name is repeated. */
  readonly isDeep: boolean;
}

export interface ApiOperation {
  readonly method: string;
  /** As it is in the document. */
  readonly path: string;
  readonly server: ApiServer;
  readonly id: string | null;
  readonly summary: string | null;
  readonly tags: readonly string[];
  readonly params: readonly ApiParam[];
  readonly body: ApiBody | null;
  /** Statuses that say "not now", as far as the document describes them so. */
  readonly busy: readonly number[];
  /** References that lead nowhere. */
  readonly lost: readonly string[];
}

export interface ApiServer {
  /** `null` if the document names none. */
  readonly origin: string | null;
  /** The common start of all paths, without a slash at its end. */
  readonly base: string;
}

const METHODS = ['get', 'put', 'post', 'delete', 'options', 'patch'] as const;

/** All operations of a document, in its order. They are not judged here. */
export function operationsOf(document: ApiDocument): readonly ApiOperation[] {
  const isTwo = document.root['swagger'] !== undefined;
  const found: ApiOperation[] = [];
  for (const [path, value] of entries(document.root['paths'])) {
    if (path.startsWith('x-')) continue;
    const item = resolveObject(document, value);
    for (const method of METHODS) {
      if (item[method] === undefined) continue;
      const operation = object(item[method]);
      const { params, body, lost } = readParams(document, isTwo, item, operation);
      found.push({
        method: method.toUpperCase(),
        path,
        server: isTwo ? serverOfTwo(document) : serverOfThree(document, item, operation),
        id: textOf(operation['operationId']),
        summary: textOf(operation['summary']),
        tags: list(operation['tags']).filter((tag) => typeof tag === 'string'),
        params,
        body: body ?? (isTwo ? null : bodyOfThree(document, operation, lost)),
        busy: busyOf(document, operation),
        lost,
      });
    }
  }
  return found;
}

/** 529 means nothing else. A 503 may come after the work, unless it says when to ask again, or that too much is asked. */
function busyOf(document: ApiDocument, operation: JsonObject): readonly number[] {
  const responses = object(operation['responses']);
  const busy: number[] = [];
  if (responses['503'] !== undefined) {
    const unavailable = resolveObject(document, responses['503']);
    const waits = entries(unavailable['headers']).some(([name]) => name.toLowerCase() === 'retry-after');
    if (waits || /overload|too busy|slow down|capacity/i.test(textOf(unavailable['description']) ?? '')) busy.push(503);
  }
  if (responses['529'] !== undefined) busy.push(529);
  return busy;
}

/** The server for operations that name no other. */
export function serverOf(document: ApiDocument): ApiServer {
  return document.root['swagger'] === undefined ? serverOfThree(document, {}, {}) : serverOfTwo(document);
}

interface ReadParams {
  readonly params: readonly ApiParam[];
  readonly body: ApiBody | null;
  readonly lost: string[];
}

/** Params of the path item and of the operation. The operation's replace those with the same name and place. */
function readParams(document: ApiDocument, isTwo: boolean, item: JsonObject, operation: JsonObject): ReadParams {
  const params = new Map<string, ApiParam>();
  const fields: { readonly name: string; readonly param: JsonObject }[] = [];
  const lost: string[] = [];
  let body: JsonObject | null = null;
  for (const value of [...list(item['parameters']), ...list(operation['parameters'])]) {
    const found = resolve(document, value);
    if (found === null) lost.push(textOf(object(value)['$ref']) ?? '');
    const param = object(found ?? undefined);
    const name = textOf(param['name']);
    const place = param['in'];
    if (place === 'body') body = param;
    else if (name === null) continue;
    else if (place === 'formData') fields.push({ name, param });
    else if (place === 'path' || place === 'query' || place === 'header' || place === 'cookie')
      params.set(`${place} ${name}`, readParam(document, name, place, isTwo, param));
  }
  const consumes = mediaTypes(operation['consumes'] ?? document.root['consumes']);
  const readBody = !isTwo
    ? null
    : body !== null
      ? bodyOf(consumes.length > 0 ? consumes : ['application/json'], () => body, body)
      : fields.length > 0
        ? formOfTwo(consumes, fields)
        : null;
  return { params: [...params.values()], body: readBody, lost };
}

function readParam(
  document: ApiDocument,
  name: string,
  place: ParamPlace,
  isTwo: boolean,
  param: JsonObject,
): ApiParam {
  const [content] = entries(param['content']);
  const schema = isTwo ? param : ((content === undefined ? param['schema'] : object(content[1])['schema']) ?? {});
  const written = content !== undefined ? 'json' : isTwo ? writtenInTwo(param) : writtenInThree(param);
  const hasSlashes = place === 'path' && allowsSlashes(name, param, object(resolveObject(document, schema)));
  return { name, in: place, required: place === 'path' || param['required'] === true, schema, written, hasSlashes };
}

/** GitHub, OpenAPI 3.2, GitLab, and Kubernetes say it so. */
function allowsSlashes(name: string, param: JsonObject, schema: JsonObject): boolean {
  if (param['x-multi-segment'] === true || param['allowReserved'] === true || schema['format'] === 'path') return true;
  const text = textOf(param['description']) ?? '';
  return /\burl[- ]?encoded\b/i.test(text) || (/(^|_)path$/i.test(name) && /\bpath\b/i.test(text));
}

const FORMATS_IN_TWO: Readonly<Record<string, ApiParam['written']>> = {
  multi: 'repeated',
  ssv: 'spaced',
  pipes: 'piped',
  tsv: 'other',
};

function writtenInTwo({ collectionFormat }: JsonObject): ApiParam['written'] {
  return FORMATS_IN_TWO[textOf(collectionFormat) ?? ''] ?? 'joined';
}

function writtenInThree({ style, explode }: JsonObject): ApiParam['written'] {
  if (style === 'deepObject') return 'deep';
  if ((explode ?? (style === undefined || style === 'form')) === true) return 'repeated';
  return style === 'spaceDelimited' ? 'spaced' : style === 'pipeDelimited' ? 'piped' : 'joined';
}

function bodyOfThree(document: ApiDocument, operation: JsonObject, lost: string[]): ApiBody | null {
  const value = operation['requestBody'];
  if (value === undefined) return null;
  const found = resolve(document, value);
  if (found === null) lost.push(textOf(object(value)['$ref']) ?? '');
  const body = object(found ?? undefined);
  const content = object(body['content']);
  const media = Object.keys(content);
  return media.length === 0
    ? { kind: 'json', media: 'application/json', required: body['required'] === true, schema: null, isDeep: false }
    : bodyOf(media, (type) => object(content[type]), body);
}

/** If an API takes several formats, JSON says most, then forms, then files. */
function bodyOf(media: readonly string[], contentOf: (type: string) => JsonObject, body: JsonObject): ApiBody | null {
  const made = (kind: ApiBody['kind'], type: string): ApiBody => {
    const content = contentOf(type);
    return {
      kind,
      media: type,
      required: body['required'] === true,
      schema: content['schema'] ?? null,
      isDeep: entries(content['encoding']).some(([, encoding]) => object(encoding)['style'] === 'deepObject'),
    };
  };
  for (const [kind, form] of KINDS) {
    const type = media.find((one) => form.test(one.toLowerCase()));
    if (type !== undefined) return made(kind, type);
  }
  const [type] = media;
  return type === undefined ? null : made('opaque', type);
}

const KINDS: readonly (readonly [ApiBody['kind'], RegExp])[] = [
  ['json', /^application\/json *(?:;|$)/],
  // Among patch formats, the one whose body is an object.
  ['json', /^application\/merge-patch\+json\b/],
  ['json', /^application\/(?!json-patch)[\w.+-]*\+json\b/],
  ['json', /^(?:\*\/\*|application\/\*)/],
  ['form', /^application\/x-www-form-urlencoded\b/],
  ['multipart', /^multipart\//],
  ['json', /^application\/[\w.+-]*json\b/],
];

function formOfTwo(
  consumes: readonly string[],
  fields: readonly { readonly name: string; readonly param: JsonObject }[],
): ApiBody {
  const hasFile = fields.some(({ param }) => param['type'] === 'file');
  const isMultipart =
    hasFile || (consumes.includes('multipart/form-data') && !consumes.some((one) => /urlenc/.test(one)));
  const required = fields.filter(({ param }) => param['required'] === true).map(({ name }) => name);
  return {
    kind: isMultipart ? 'multipart' : 'form',
    media: isMultipart ? 'multipart/form-data' : 'application/x-www-form-urlencoded',
    required: required.length > 0,
    isDeep: false,
    schema: {
      type: 'object',
      ...(required.length > 0 && { required }),
      properties: Object.fromEntries(fields.map(({ name, param }) => [name, fieldOf(param)])),
    },
  };
}

/** In version 2, `required` of a field is a flag. Schemas have no such flag. */
function fieldOf({ required: _required, ...schema }: JsonObject): JsonObject {
  return schema;
}

function mediaTypes(value: Json | undefined): readonly string[] {
  return list(value).filter((one) => typeof one === 'string');
}

function serverOfTwo({ root, url }: ApiDocument): ApiServer {
  const host = textOf(root['host']);
  const own = new URL(url);
  const schemes = mediaTypes(root['schemes']);
  const given = own.protocol === 'file:' ? null : own.protocol.slice(0, -1);
  const scheme = schemes.includes('https') ? 'https' : (schemes[0] ?? given ?? 'https');
  const base = (textOf(root['basePath']) ?? '').replace(/\/+$/, '');
  if (host !== null && URL.canParse(`${scheme}://${host}`))
    return { origin: new URL(`${scheme}://${host}`).origin, base };
  return { origin: given === null ? null : own.origin, base };
}

function serverOfThree({ root, url }: ApiDocument, item: JsonObject, operation: JsonObject): ApiServer {
  const servers = [operation['servers'], item['servers'], root['servers']].find((one) => list(one).length > 0);
  const server = object(list(servers)[0]);
  const written = (textOf(server['url']) ?? '/').replace(/\{([^{}]+)\}/g, (found, name: string) => {
    const variable = object(object(server['variables'])[name]);
    return textOf(variable['default']) ?? textOf(list(variable['enum'])[0]) ?? found;
  });
  const own = new URL(url);
  const [, authority, path = ''] = /^(https?:\/\/[^/?#]*)?([^?#]*)/i.exec(written) ?? [];
  if (authority !== undefined) {
    const isWhole = !/[{}]/.test(authority) && URL.canParse(authority);
    return { origin: isWhole ? new URL(authority).origin : null, base: path.replace(/\/+$/, '') };
  }
  if (own.protocol === 'file:') return { origin: null, base: `/${path.replace(/^\.?\/+/, '')}`.replace(/\/+$/, '') };
  const whole = URL.canParse(path, url) ? new URL(path, url) : own;
  return { origin: whole.origin, base: decodeURI(whole.pathname).replace(/\/+$/, '') };
}
