import { isAmbiguous, isWithin, NUMBER, REST, type Segments } from '../../../../src/config/rule-order.ts';
import type { Tree } from '../../../../src/config/expand.ts';
import {
  CREDENTIAL_HEADERS,
  DROPPED_HEADERS,
  isNeverSent,
  namesHeader,
  NOT_GOVERNED_HEADERS,
  VOLATILE_HEADERS,
} from '../../../../src/effects/run/header-names.ts';
import { pathParams, type QueryStyle } from '../../../../src/effects/model/tool.ts';
import { type ApiDocument, resolveObject } from './document.ts';
import type { ApiBody, ApiOperation, ApiParam } from './operations.ts';
import {
  fileFieldSchema,
  isPropertyName,
  membersOf,
  schemaWriter,
  type SchemaWriter,
  isTreeMap,
} from './params-schema.ts';
import { type PathParam, type PathTemplate, readTemplate } from './path-template.ts';
import { queryNames, querySchema } from './query-params.ts';
import { type Risk, riskOf } from './risk.ts';
import { plainText, snakeWord, word } from './words.ts';

/** A tool that `svc init` drafts from an OpenAPI document, with the request that calls it. */
export interface DraftTool {
  readonly name: string;
  readonly title: string;
  readonly upstream: string;
  readonly kind: 'read' | 'write';
  /** For writes only. */
  readonly risk: Risk | null;
  readonly tags: readonly string[];
  readonly method: string;
  /** Such as `/v1/payments/{payment_id}`, or `/v1/files/{+path}`. */
  readonly path: string;
  /** Params in the middle of the path that hold slashes. */
  readonly encodedSlashes: readonly string[];
  readonly query: readonly string[];
  /** How lists and objects of the query are written. */
  readonly queryStyles: Readonly<Record<string, QueryStyle>>;
  /** Param name and header name. */
  readonly headers: readonly (readonly [string, string])[];
  /** How to write the body; `null` if there is none. */
  readonly body: DraftBody | null;
  readonly schema: { readonly [name: string]: Tree };
  /** Statuses after which nothing was done, and libraries may ask again. For writes only. */
  readonly busy: readonly number[];
  /** What the document says but the tool cannot express, one line each. */
  readonly notes: readonly string[];
}

/** A body. Either all params without another place are its members, or one param is the whole body. */
export type DraftBody =
  /** `repeat`: a list repeats its name for each element. */
  | { readonly as: 'members'; readonly type: 'json' | 'form' | 'multipart'; readonly lists: 'indices' | 'repeat' }
  | { readonly as: 'param'; readonly type: 'json' | 'opaque'; readonly name: string };

export interface LeftOut {
  /** Such as `POST /v1/files`. */
  readonly operation: string;
  readonly why: string;
}

export interface Draft {
  readonly tools: readonly DraftTool[];
  readonly leftOut: readonly LeftOut[];
}

/** The most params of one operation besides its body. A document may name thousands. */
const MOST_PARAMS = 200;
const MOST_MEMBERS = 1_000;
const MOST_NAME = 128;
const MOST_TITLE = 80;
const MOST_TAGS = 5;

/**
 * Headers that are handled without a declaration: those of the transport, credentials, and headers that differ between
 * tries.
 */
const NOT_PARAMS = [
  ...CREDENTIAL_HEADERS,
  ...DROPPED_HEADERS,
  ...NOT_GOVERNED_HEADERS,
  ...VOLATILE_HEADERS,
  'content-*',
  'proxy-*',
];

/**
 * How many characters the schema of one tool may have. Tried in turn until all schemas together fit into one file. What
 * does not fit is left open.
 */
const ROOMS = [12_000, 6_000, 3_000, 1_500] as const;
const MOST_SCHEMAS = 1_200_000;

/**
 * Drafts tools from operations. Operations that cannot be declared are listed with the reason.
 * @param upstreamOf id of the upstream that serves an operation
 */
export function draftTools(
  document: ApiDocument,
  operations: readonly ApiOperation[],
  upstreamOf: (operation: ApiOperation) => string,
): Draft {
  let draft: Draft = { tools: [], leftOut: [] };
  for (const room of ROOMS) {
    draft = draftWithin(document, operations, upstreamOf, room);
    const size = draft.tools.reduce((sum, { schema }) => sum + JSON.stringify(schema).length, 0);
    if (size <= MOST_SCHEMAS) break;
  }
  return draft;
}

function draftWithin(
  document: ApiDocument,
  operations: readonly ApiOperation[],
  upstreamOf: (operation: ApiOperation) => string,
  room: number,
): Draft {
  const tools = new Map<string, DraftTool>();
  const leftOut: LeftOut[] = [];
  for (const operation of operations) {
    const made = draftTool(document, operation, upstreamOf(operation), room);
    if (typeof made === 'string') leftOut.push({ operation: shown(operation), why: made });
    else {
      const name = freeName(made, tools);
      tools.set(name, { ...made, name });
    }
  }
  return withoutOverlaps([...tools.values()], leftOut);
}

function shown({ method, path, server }: ApiOperation): string {
  return plainText(`${method} ${server.base}${path}`, 160);
}

/** If two operations get the same name, the path tells them apart, else a number. */
function freeName({ name, path }: DraftTool, tools: ReadonlyMap<string, DraftTool>): string {
  if (!tools.has(name)) return name;
  const last = pathParams(path).at(-1);
  const byParam = last === undefined ? name : `${name}_by_${snakeWord(last)}`;
  let free = byParam;
  for (let count = 2; tools.has(free); count += 1) free = `${byParam}_${count}`;
  return free;
}

/**
 * A request must have only one meaning. `/users/me` wins over `/users/{id}`. If neither of two operations wins over the
 * other, only one can get a rule: the one with more params, because its rule also lets requests of the other pass.
 */
function withoutOverlaps(tools: readonly DraftTool[], leftOut: readonly LeftOut[]): Draft {
  const kept = new Map<string, { readonly tool: DraftTool; readonly shape: Segments }[]>();
  const dropped = new Map<DraftTool, LeftOut>();
  const excluded = new Map<DraftTool, Map<string, Set<string>>>();
  const params = ({ path }: DraftTool): number => path.split('{').length;
  for (const tool of tools.toSorted((a, b) => params(b) - params(a))) {
    const shape = tool.path.split('/').map((segment) => {
      if (!segment.startsWith('{')) return segment;
      return segment.startsWith('{+') ? REST : isNumber(tool, segment.slice(1, -1)) ? NUMBER : null;
    });
    const key = `${tool.upstream} ${tool.method}`;
    const alike = kept.get(key) ?? [];
    kept.set(key, alike);
    const other = alike.find((one) => isAmbiguous(one.shape, shape));
    if (other === undefined) {
      for (const one of alike) if (isWithin(shape, one.shape)) exclude(excluded, one.tool, shape);
      alike.push({ tool, shape });
    } else
      dropped.set(tool, {
        operation: `${tool.method} ${tool.path}`,
        why: `the same requests as ${other.tool.path}`,
      });
  }
  const left = tools.filter((tool) => !dropped.has(tool));
  return {
    tools: left.map((tool) => withoutValues(tool, excluded.get(tool))),
    leftOut: [...leftOut, ...dropped.values()],
  };
}

function isNumber({ schema: { properties } }: DraftTool, name: string): boolean {
  const declared = isTreeMap(properties) ? properties[name] : undefined;
  return isTreeMap(declared) && declared['type'] === 'integer';
}

/**
 * If only one segment separates an operation from one that wins over it, the param there must not have that segment as
 * its value.
 */
function exclude(excluded: Map<DraftTool, Map<string, Set<string>>>, tool: DraftTool, before: Segments): void {
  const differing = tool.path
    .split('/')
    .flatMap((segment, index) => (segment.startsWith('{') && before[index] !== null ? [{ segment, index }] : []));
  const [only] = differing;
  if (only === undefined || differing.length > 1) return;
  const param = only.segment.replace(/^\{\+?|\}$/g, '');
  const values = before.slice(only.index, only.segment.startsWith('{+') ? undefined : only.index + 1);
  if (!values.every((value) => typeof value === 'string')) return;
  const byParam = excluded.get(tool) ?? new Map<string, Set<string>>();
  excluded.set(tool, byParam);
  byParam.set(param, (byParam.get(param) ?? new Set()).add(values.join('/')));
}

/** With this value, a request through the effects API would be the other operation but would be judged as this one. */
function withoutValues(tool: DraftTool, excluded: ReadonlyMap<string, ReadonlySet<string>> | undefined): DraftTool {
  const properties = tool.schema['properties'];
  if (excluded === undefined || !isTreeMap(properties)) return tool;
  const narrowed = Object.fromEntries(
    Object.entries(properties).map(([name, schema]) => {
      const values = excluded.get(name);
      return [name, values === undefined || !isTreeMap(schema) ? schema : { ...schema, not: { enum: [...values] } }];
    }),
  );
  return { ...tool, schema: { ...tool.schema, properties: narrowed } };
}

function draftTool(document: ApiDocument, operation: ApiOperation, upstream: string, room: number): DraftTool | string {
  const { method, server, body } = operation;
  if (/[{}]/.test(server.base)) return 'the URL of its server has a variable without a default';
  const template = readTemplate(server.base + operation.path);
  if (typeof template === 'string') return template;
  const [lost] = operation.lost;
  if (lost !== undefined) return `$ref ${plainText(lost, 100)} leads nowhere`;
  const notes: string[] = [];
  const sends = method !== 'GET' && body !== null;
  if (method === 'GET' && body?.required === true) return 'a GET with a body, which many servers drop';
  const unsent = sends ? unsentBody(document, operation) : null;
  if (unsent !== null) return unsent;
  const params = draftParams(document, operation, template, room, notes);
  if (typeof params === 'string') return params;
  const { path, query, headers, whole, schema } = params;
  const tags = operation.tags.map((tag) => tagOf(tag)).filter((tag) => tag !== '');
  return {
    name: `${upstream}.${toolWord(operation, template)}`,
    title:
      plainText(operation.summary ?? '', MOST_TITLE) ||
      plainText(`${method} ${server.base}${operation.path}`, MOST_TITLE),
    upstream,
    kind: method === 'GET' || method === 'OPTIONS' ? 'read' : 'write',
    risk: method === 'GET' || method === 'OPTIONS' ? null : riskOf(method, operation.path, operation.id ?? ''),
    tags: [...new Set(tags)].slice(0, MOST_TAGS),
    method,
    path: path.text,
    encodedSlashes: path.encoded,
    query: [...query.keys()],
    queryStyles: Object.fromEntries(
      [...query].flatMap(([name, { style }]): [string, QueryStyle][] => (style === null ? [] : [[name, style]])),
    ),
    headers,
    body: sends ? bodyAs(document, body, whole) : null,
    schema,
    busy: method === 'GET' || method === 'OPTIONS' ? [] : operation.busy,
    notes,
  };
}

/** What a tool takes, and where each param stands in its request. @returns a text where there is no way to draft it */
function draftParams(
  document: ApiDocument,
  operation: ApiOperation,
  template: Exclude<ReturnType<typeof readTemplate>, string>,
  room: number,
  notes: string[],
) {
  const { body } = operation;
  const sends = operation.method !== 'GET' && body !== null;
  const members = sends && body.kind !== 'opaque' ? membersOf(document, body.schema) : null;
  const properties = [...(members?.properties ?? [])].filter(([name]) => isPropertyName(name)).slice(0, MOST_MEMBERS);
  const writer = schemaWriter(document, room);
  const schemas: { [name: string]: Tree } = {};
  const required: string[] = [];

  const query = queryNames(document, operation.params, notes);
  const headers = headerNames(operation.params, notes);
  const fault = nameFault([...query.keys(), ...headers.map(([name]) => name)]);
  if (fault !== null) return fault;
  const inBody = new Set(properties.map(([name]) => name));
  const doubled = leaveToBody(query, inBody, notes);
  if (doubled !== null) return doubled;

  const taken = new Set([...inBody, ...query.keys()]);
  const path = renamed(template, taken, (one) => holdsSlashes(one, operation));
  for (const [param, name] of path.names) {
    const own = operation.params.find((one) => one.in === 'path' && param.of.includes(one.name));
    const schema = param.pattern === null ? pathSchema(writer, own) : { type: 'string', pattern: param.pattern };
    schemas[name] = schema;
    required.push(name);
    taken.add(name);
  }
  for (const [name, param] of query) {
    schemas[name] = querySchema(writer, param);
    if (param.required) required.push(name);
  }
  const sent: (readonly [string, string])[] = [];
  for (const [wanted, header, param] of headers) {
    const name = taken.has(wanted) ? `${wanted}_header` : wanted;
    if (taken.has(name)) return `the header ${header} has the name of another param`;
    taken.add(name);
    sent.push([name, header]);
    schemas[name] = writer.text(param.schema);
    if (param.required) required.push(name);
  }
  for (const [name, schema] of properties)
    schemas[name] = (body?.kind === 'multipart' ? fileFieldSchema(document, schema) : null) ?? writer.whole(schema);
  let whole: string | null = null;
  if (sends && members === null) {
    whole = ['body', 'request_body', 'whole_body'].find((name) => !taken.has(name)) ?? null;
    if (whole === null) return 'its body has no name that is free';
    schemas[whole] = body.kind === 'opaque' ? { type: 'object' } : writer.whole(body.schema);
    if (body.required) required.push(whole);
  }
  if (body?.required === true) for (const name of members?.required ?? []) if (inBody.has(name)) required.push(name);
  if (!writer.finish()) notes.push('the schema goes deeper in the document; what lies deeper is not checked');
  const alternatives = body?.required === true ? (members?.alternatives ?? []) : [];
  const defs = writer.defs();
  const schema = {
    type: 'object',
    ...(required.length > 0 && { required: [...new Set(required)] }),
    properties: schemas,
    ...(alternatives.length > 0 && { anyOf: alternatives.map((names) => requiring(names)) }),
    ...(members?.isClosed === true && properties.length === members.properties.size && { additionalProperties: false }),
    ...(Object.keys(defs).length > 0 && { $defs: defs }),
  };
  return { path, query, headers: sent, whole, schema };
}

function holdsSlashes(one: PathParam, { params }: ApiOperation): boolean {
  return one.hasSlashes || params.some(({ name, hasSlashes }) => hasSlashes && one.of.includes(name));
}

/** Takes out of the query what stands in the body as well, unless it has to be there: then it says so. */
function leaveToBody(
  query: ReturnType<typeof queryNames>,
  inBody: ReadonlySet<string>,
  notes: string[],
): string | null {
  for (const [name, { required }] of [...query].filter(([name]) => inBody.has(name))) {
    if (required) return `the param ${name} stands in the query and in the body`;
    query.delete(name);
    notes.push(`${plainText(name, 60)} stands in the query as well; it is declared in the body`);
  }
  return null;
}

function requiring(names: readonly string[]): Tree {
  const known = names.filter(isPropertyName);
  return { required: known, properties: Object.fromEntries(known.map((name): [string, Tree] => [name, {}])) };
}

/** Why the gateway cannot send a body unchanged; `null` if it can. */
function unsentBody(document: ApiDocument, { body, method }: ApiOperation): string | null {
  if (body === null) return null;
  const media = plainText(body.media, 80);
  const hasFiles = body.kind === 'multipart' || body.kind === 'opaque';
  if (hasFiles && method === 'OPTIONS') return `its body is ${media}, and it is a read`;
  // The parts of `related` and `mixed` have an order but no names.
  if (body.kind === 'multipart' && !/^multipart\/(?:form-data|\*)/i.test(body.media)) return `its body is ${media}`;
  if (body.kind === 'json' || body.kind === 'opaque') return null;
  return membersOf(document, body.schema) === null ? `its body is ${media}, and no object` : null;
}

/** @param whole the param that is the whole body; `null` if its members are params */
function bodyAs(document: ApiDocument, { kind, schema, isDeep }: ApiBody, whole: string | null): DraftBody {
  if (kind === 'opaque' || whole !== null)
    return { as: 'param', type: kind === 'opaque' ? 'opaque' : 'json', name: whole ?? 'body' };
  const lists = [...(membersOf(document, schema)?.properties.values() ?? [])].some(
    (member) => resolveObject(document, member)['type'] === 'array',
  );
  return { as: 'members', type: kind, lists: kind !== 'json' && lists && !isDeep ? 'repeat' : 'indices' };
}

/** A tag in the form that tools use: `Pull requests` becomes `pull-requests`. */
export function tagOf(tag: string): string {
  return tag
    .replace(/[^A-Za-z0-9_.:-]+/g, '-')
    .replace(/^[^A-Za-z0-9]+|-+$/g, '')
    .slice(0, 60)
    .toLowerCase();
}

function pathSchema(writer: SchemaWriter, param: ApiParam | undefined): { [name: string]: Tree } {
  const schema = param === undefined ? { type: 'string' } : writer.text(param.schema);
  // A value in a path must be a text that is not empty, or an integer.
  return schema['type'] === 'boolean' || schema['type'] === 'number' ? { type: 'string' } : schema;
}

function headerNames(
  params: readonly ApiParam[],
  notes: string[],
): readonly (readonly [name: string, header: string, param: ApiParam])[] {
  const found: (readonly [string, string, ApiParam])[] = [];
  const seen = new Set<string>();
  for (const param of params) {
    const header = param.name.toLowerCase();
    if (param.in !== 'header' || seen.has(header)) continue;
    seen.add(header);
    if (header === 'idempotency-key')
      notes.push('the API takes an Idempotency-Key: where it removes duplicates by it, declare `idempotent`');
    if (isNeverSent(header) || namesHeader(NOT_PARAMS, header)) continue;
    if (!/^[a-z0-9!#$%&*+.^_|~-]{1,100}$/.test(header)) notes.push('a header of the document is no name of a header');
    else found.push([snakeWord(param.name), param.name, param]);
  }
  return found;
}

/** Why a param cannot be declared under its name; `null` if it can. */
function nameFault(names: readonly string[]): string | null {
  if (names.length > MOST_PARAMS) return `more than ${MOST_PARAMS} params`;
  const isOdd = (name: string): boolean =>
    name === '' || name === '__proto__' || /[{}]/.test(name) || name !== plainText(name, MOST_NAME);
  return names.some(isOdd) ? 'a param whose name cannot be declared' : null;
}

/** The path with other param names if a param of the query or the body has the same name. */
function renamed(
  { segments }: PathTemplate,
  taken: ReadonlySet<string>,
  holdsSlashes: (param: PathParam) => boolean,
): { readonly text: string; readonly encoded: readonly string[]; readonly names: ReadonlyMap<PathParam, string> } {
  const used = new Set(taken);
  const names = new Map<PathParam, string>();
  const encoded: string[] = [];
  let text = '';
  for (const segment of segments) {
    if (typeof segment === 'string') {
      text += `/${segment}`;
      continue;
    }
    let { name } = segment;
    while (used.has(name)) name = `path_${name}`;
    used.add(name);
    names.set(segment, name);
    const isRest = holdsSlashes(segment) && segment === segments.at(-1);
    if (holdsSlashes(segment) && !isRest) encoded.push(name);
    text += isRest ? `/{+${name}}` : `/{${name}}`;
  }
  return { text, encoded, names };
}

/** `getPaymentById` becomes `get_payment_by_id`. Without an operation id: the method and the literal segments. */
function toolWord({ id, method }: ApiOperation, { segments }: PathTemplate): string {
  const literal = segments.filter((one) => typeof one === 'string').filter((text) => !/^v\d+$/.test(text));
  return snakeWord(id !== null && /[A-Za-z0-9]/.test(id) ? id : word([method, ...literal].join('_')));
}
