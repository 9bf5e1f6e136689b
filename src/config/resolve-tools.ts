import { createHash } from 'node:crypto';
import { isNeverSent } from '../effects/run/header-names.ts';
import { canonicalJson } from '../json/text.ts';
import { isJsonObject, type JsonObject } from '../json/value.ts';
import { type OutcomeMap, pathParams, type Probe, type RequestTemplate, type Tool } from '../effects/model/tool.ts';
import type { UpstreamSettings } from './configuration.ts';
import { at, type Judge } from './judge.ts';
import { checkTarget, partOfParam } from './param-names.ts';
import { resolveProbe, UPSTREAM_KEY } from './resolve-probe.ts';
import {
  type ToolEntry,
  resolveQuery,
  restOf,
  toolsWithRest,
  withRest,
  checkPath,
  slashesIn,
  slashesOf,
} from './resolve-query.ts';
import type { GatewayFile } from './schema.ts';
import { schemaChecker, type SchemaFault } from './schema-fault.ts';
import { parseDuration, parseSize } from './units.ts';

type RequestEntry = ToolEntry['request'];

/** Whether a param can never be sent as a header: what is never sent on, credentials, and where a call came from. */
const isForbidden = (header: string): boolean =>
  isNeverSent(header) || /^(authorization|cookie|content-type|forwarded|x-forwarded-.*)$/.test(header);

/** Checks the tools and computes their digests. References to upstreams are checked against `upstreamNames`. */
export function resolveTools(
  file: GatewayFile,
  upstreams: readonly UpstreamSettings[],
  upstreamNames: ReadonlySet<string>,
  judge: Judge,
): readonly Tool[] {
  judge.unique('tool', file.tools, 'name');
  const tools: Tool[] = [];
  const schemaFault = schemaChecker();
  const passing = toolsWithRest(file);
  const holding = slashesOf(file);
  for (const entry of file.tools) {
    judge.known('upstream', at(entry, 'upstream'), entry.upstream, upstreamNames);
    if (/^svc[./:]/.test(entry.name))
      judge.error('reserved_name', at(entry, 'name'), [
        "Names that begin with 'svc' are those of the gateway's own tools",
        'choose another name',
      ]);
    const upstream = upstreams.find(({ id }) => id === entry.upstream);
    const rest = restOf(entry, passing, judge);
    const schema = withRest(entry.params_schema ?? null, rest);
    const params = schema === null ? null : paramsOf(schemaFault, entry, schema, judge);
    const taken = new Map<string, string>();
    if (upstream?.credentials) taken.set(upstream.credentials.header, 'the credentials of the upstream');
    const of = { params, rest, schema, slashes: holding.get(entry.name) ?? [] };
    const state = resolveState(entry, { ...of, rest: entry.state?.request.query_rest ?? null }, taken, judge);
    const idempotent = resolveIdempotent(entry, taken, judge);
    const request = resolveRequest(entry, 'request', entry.request, of, taken, judge);
    if (params !== null && request.body !== '*') warnOfUnused(entry, request, params, judge);
    checkTarget(entry, params === null ? null : schema, judge);
    if (upstream === undefined) continue;
    const tool: Tool = {
      name: entry.name,
      title: entry.title ?? entry.name,
      upstream: entry.upstream,
      kind: entry.kind,
      actionType: entry.action_type,
      tags: entry.tags,
      risk: entry.risk ?? null,
      env: upstream.env,
      call: { kind: 'http', request, outcomes: resolveOutcomes(entry, judge), state },
      paramsSchema: schema,
      target: entry.target ?? null,
      timeoutMs:
        entry.timeout === undefined ? upstream.timeoutMs : (parseDuration(entry.timeout) ?? upstream.timeoutMs),
      maxProcessingMs: parseDuration(entry.max_processing) ?? 0,
      ...streamsOf(file, entry, judge),
      ...actualOf(entry),
      idempotent,
      digest: digestOf(upstream, request),
    };
    const probe = resolveHttpProbe(tool, entry, { ...of, rest: entry.probe?.request.query_rest ?? null }, taken, judge);
    tools.push(probe === null ? tool : { ...tool, probe });
  }
  return tools;
}

/** The probe of a tool: a read of its own, whose params are those of the call and the key as the upstream got it. */
function resolveHttpProbe(
  tool: Tool,
  entry: ToolEntry,
  of: ToolParams,
  taken: ReadonlyMap<string, string>,
  judge: Judge,
): Probe | null {
  const { probe } = entry;
  if (probe === undefined) return null;
  const { params } = of;
  if (entry.kind === 'read')
    judge.error('bad_probe', at(entry, 'probe'), ['A read leaves nothing to find out', 'remove it']);
  if (params?.names.has(UPSTREAM_KEY) === true)
    judge.error(
      'bad_probe',
      at(entry, 'probe'),
      `A param of the tool is called ${UPSTREAM_KEY}, as the upstream's key is`,
    );
  const asking = params && {
    ...params,
    names: new Set([...params.names, UPSTREAM_KEY]),
    required: new Set([...params.required, UPSTREAM_KEY]),
  };
  const request = readOnly(
    resolveRequest(entry, 'state', probe.request, { ...of, params: asking }, taken, judge),
    probe,
    judge,
  );
  const names = [...pathParams(request.path), ...request.query, ...Object.keys(request.headers)];
  const { streams: _, ...whole } = tool;
  const read: Tool = {
    ...whole,
    kind: 'read',
    call: { kind: 'http', request, outcomes: { committed: [], failed: [], unknown: [], body: [] }, state: null },
    idempotent: { kind: 'none' },
  };
  const asked = {
    entry,
    names: params?.isOpen === false ? params.names : null,
    isKeyed: tool.idempotent.kind === 'header',
  };
  return resolveProbe(
    probe,
    { read, params: Object.fromEntries(names.map((name) => [name, `{${name}}`])) },
    asked,
    judge,
  );
}

function readOnly(
  template: RequestTemplate,
  { request }: { readonly request: RequestEntry },
  judge: Judge,
): RequestTemplate {
  if (request.method !== 'GET')
    judge.error('state_not_read', at(request, 'method'), `State is read with GET, not ${request.method}`);
  return template;
}

function actualOf({ actual }: ToolEntry): Pick<Tool, 'actual'> {
  if (actual === undefined) return {};
  const paths = Object.entries(actual).map(([unit, path]) => [unit, [path].flat().map((one) => [one].flat())] as const);
  return { actual: Object.fromEntries(paths) };
}

function streamsOf(file: GatewayFile, entry: ToolEntry, judge: Judge): Pick<Tool, 'streams'> {
  if (entry.response === 'whole') {
    if (entry.stream_time !== undefined)
      judge.error('no_stream', at(entry, 'stream_time'), [
        'stream_time is for tools whose answers are streams',
        'add response: stream, or use timeout',
      ]);
    return {};
  }
  if (entry.kind === 'read')
    judge.error('no_stream', at(entry, 'response'), [
      'Answers to reads stream through by themselves',
      'remove it, or write kind: write',
    ]);
  if (entry.outcomes.body.length > 0)
    judge.error('no_stream', at(entry, 'response'), [
      'An answer whose body says what it means (outcomes.body) cannot be passed on before it is whole',
      'write response: whole, or map statuses',
    ]);
  return {
    streams: {
      totalMs: parseDuration(entry.stream_time ?? STREAM_TIME) ?? 0,
      bytes: parseSize(file.limits.stream) ?? 0,
    },
  };
}

/** How long a stream may take by default. */
const STREAM_TIME = '10m';

/** Digest of what a repeat must find unchanged: where the call goes, with which credentials, and in which form. */
function digestOf(upstream: UpstreamSettings, request: RequestTemplate): string {
  const pinned: JsonObject = {
    upstream: { id: upstream.id, url: upstream.url, credentials: upstream.credentials?.header ?? null },
    request: {
      method: request.method,
      path: request.path,
      query: request.query,
      ...(request.queryStyles === undefined ? {} : { query_styles: request.queryStyles }),
      ...(request.queryRest === undefined ? {} : { query_rest: request.queryRest }),
      ...(request.queryLists === undefined ? {} : { query_lists: request.queryLists }),
      headers: request.headers,
      body: request.body,
      ...(request.bodyAs === undefined ? {} : { body_as: request.bodyAs }),
      ...(request.bodyType === undefined ? {} : { body_type: request.bodyType }),
      ...(request.formLists === undefined ? {} : { form_lists: request.formLists }),
    },
  };
  return createHash('sha256').update(canonicalJson(pinned)).digest('base64url');
}

interface Params {
  readonly names: ReadonlySet<string>;
  readonly required: ReadonlySet<string>;
  /** Whether the schema allows params that it does not name. */
  readonly isOpen: boolean;
}

interface ToolParams {
  readonly params: Params | null;
  /** The param that holds what stands in the query without a name. */
  readonly rest: string | null;
  readonly schema: JsonObject | null;
  readonly slashes: readonly string[];
}

/** The params that a schema declares. The schema must be valid JSON Schema 2020-12. */
function paramsOf(
  schemaFault: (schema: JsonObject) => SchemaFault | null,
  entry: ToolEntry,
  schema: JsonObject,
  judge: Judge,
): Params | null {
  if (schema['type'] !== 'object')
    judge.error('bad_params_schema', at(entry, 'params_schema', 'type'), [
      'A params_schema describes an object',
      'write type: object',
    ]);
  const fault = schemaFault(schema);
  if (fault !== null) {
    judge.error(
      'bad_params_schema',
      at(entry, 'params_schema', ...fault.steps),
      `The params_schema does not hold: ${fault.message}`,
    );
    return null;
  }
  const properties = schema['properties'];
  const names = new Set(isJsonObject(properties) ? Object.keys(properties) : []);
  const required = schema['required'];
  const isComposed = ['$ref', 'allOf', 'anyOf', 'oneOf', 'patternProperties', 'if'].some(
    (keyword) => schema[keyword] !== undefined,
  );
  return {
    names,
    required: new Set(Array.isArray(required) ? required.filter((name) => typeof name === 'string') : []),
    isOpen: schema['additionalProperties'] !== false || isComposed,
  };
}

/** @param taken headers that the gateway sets, with what they carry; a param in such a header would be overwritten */
function resolveRequest(
  entry: ToolEntry,
  field: 'request' | 'state',
  request: RequestEntry,
  { params, rest, schema, slashes }: ToolParams,
  taken: ReadonlyMap<string, string>,
  judge: Judge,
): RequestTemplate {
  const place = placing(request, params, judge);
  const path = checkPath(request, judge);
  for (const name of path) place(name, 'the path', ['path']);
  for (const [index, name] of request.query.entries()) place(name, 'the query', ['query', index]);
  if (rest !== null) place(rest, 'the query', request.query_rest === undefined ? [] : ['query_rest']);
  const headers = resolveHeaders(request, taken, place, judge);
  if (Array.isArray(request.body))
    for (const [index, name] of request.body.entries()) place(name, 'the body', ['body', index]);
  if (request.body_as !== undefined) place(request.body_as, 'the body', ['body_as']);
  checkBody(entry, field, request, judge);
  return {
    method: request.method,
    path: request.path,
    ...slashesIn(request.path, slashes),
    query: request.query,
    ...resolveQuery(request, rest, schema, judge),
    headers,
    body: request.body,
    ...(request.body_as === undefined ? {} : { bodyAs: request.body_as }),
    ...(request.body_type === 'json' ? {} : { bodyType: request.body_type, formLists: request.form_lists }),
  };
}

/** Notes where a param goes, and says what is wrong with that. */
type Place = (name: string, where: string, steps: readonly (string | number)[]) => void;

function placing(request: RequestEntry, params: ToolParams['params'], judge: Judge): Place {
  const seen = new Map<string, string>();
  return (name, where, steps) => {
    const before = seen.get(name);
    if (before !== undefined)
      judge.error('param_twice', at(request, ...steps), [
        `The param '${name}' stands in ${before} and in ${where}`,
        'a param has one place in a request',
      ]);
    seen.set(name, where);
    const whole = params === null || params.names.has(name) ? null : partOfParam(name, params.names);
    if (whole !== null)
      judge.error('part_of_param', at(request, ...steps), [
        `'${name}' is a part of the param '${whole}'`,
        `a request takes whole params: put '${whole}' into the body, or declare a param of its own`,
      ]);
    else if (params !== null && !params.isOpen) judge.known('param', at(request, ...steps), name, params.names);
    if (where === 'the path' && params !== null && !params.required.has(name) && params.names.has(name))
      judge.warn('path_param_optional', at(request, ...steps), [
        `The param '${name}' stands in the path and is not required`,
        'add it to required of params_schema',
      ]);
  };
}

function resolveHeaders(
  request: RequestEntry,
  taken: ReadonlyMap<string, string>,
  place: Place,
  judge: Judge,
): Record<string, string> {
  const headers: Record<string, string> = {};
  const pairs = Array.isArray(request.headers)
    ? request.headers.map((name, index) => ({
        name,
        header: name.toLowerCase().replaceAll('_', '-'),
        steps: ['headers', index],
      }))
    : Object.entries(request.headers).map(([name, header]) => ({
        name,
        header: header.toLowerCase(),
        steps: ['headers', name],
      }));
  for (const { name, header, steps } of pairs) {
    place(name, 'the headers', steps);
    if (isForbidden(header) || !/^[a-z0-9!#$%&*+.^_|~-]+$/.test(header))
      judge.error('forbidden_header', at(request, ...steps), `A param cannot be sent as the header '${header}'`);
    if (Object.values(headers).includes(header))
      judge.error('header_twice', at(request, ...steps), `Two params are sent as the header '${header}'`);
    const other = taken.get(header);
    if (other !== undefined)
      judge.error('header_twice', at(request, ...steps), `The header '${header}' carries ${other}, and no param`);
    headers[name] = header;
  }
  return headers;
}

function checkBody(entry: ToolEntry, field: 'request' | 'state', request: RequestEntry, judge: Judge): void {
  if (request.body_as !== undefined) {
    const isWhole = request.body_type === 'json' || request.body_type === 'opaque';
    if (request.body === '*' || request.body.length > 0 || !isWhole)
      judge.error('body_twice', at(request, 'body_as'), [
        'body_as is the whole of a body of JSON, or of any type',
        isWhole ? 'leave out body' : 'leave out body and body_type',
      ]);
  }
  const hasBody = request.body === '*' || request.body.length > 0 || request.body_as !== undefined;
  if (hasBody && (request.method === 'GET' || request.method === 'HEAD'))
    judge.error('body_on_read', at(request, 'body'), `A ${request.method} request has no body`);
  if (/^(CONNECT|TRACE|HEAD)$/.test(request.method))
    judge.error('bad_method', at(request, 'method'), `${request.method} cannot be the method of a tool`);
  if (field === 'request' && entry.kind === 'read' && /^(PUT|PATCH|DELETE)$/.test(request.method))
    judge.warn('read_that_writes', at(entry, 'kind'), [
      `A tool of kind read sends ${request.method}`,
      'reads are repeated and not recorded as effects; is it kind: write?',
    ]);
  if (request.body_type === 'opaque' && request.body_as === undefined)
    judge.error('opaque_without_param', at(request, 'body_type'), [
      'A body of any type is one param',
      'add body_as: body, and leave out body',
    ]);
  if (takesFiles(request.body_type) && (field === 'state' || entry.kind === 'read'))
    judge.error('files_of_read', at(request, 'body_type'), [
      `body_type: ${request.body_type} is for writes: what it sends is spooled and governed`,
      'declare the tool with kind: write',
    ]);
  if (request.form_lists !== 'indices' && request.body_type !== 'form' && request.body_type !== 'multipart')
    judge.error('unused_field', at(request, 'form_lists'), ['form_lists is for forms', 'add body_type: form']);
}

function takesFiles(type: RequestEntry['body_type']): boolean {
  return type === 'multipart' || type === 'opaque';
}

function warnOfUnused(entry: ToolEntry, request: RequestTemplate, params: Params, judge: Judge): void {
  const used = new Set(pathParams(request.path));
  for (const name of [...request.query, ...Object.keys(request.headers), ...(request.body === '*' ? [] : request.body)])
    used.add(name);
  if (request.bodyAs !== undefined) used.add(request.bodyAs);
  if (request.queryRest !== undefined) used.add(request.queryRest);
  for (const name of params.names)
    if (!used.has(name))
      judge.warn('param_unused', at(entry, 'params_schema', 'properties', name), [
        `No part of the request uses the param '${name}'`,
        'a call that has it is refused: add it to body or query, or remove it',
      ]);
}

/** @param taken the header of the idempotency key is added to it */
function resolveIdempotent(entry: ToolEntry, taken: Map<string, string>, judge: Judge): Tool['idempotent'] {
  if (entry.idempotent === false) return { kind: 'none' };
  const header = entry.idempotent.header.toLowerCase();
  const other = taken.get(header);
  // If the header were overwritten, the key would not arrive, and a repeat that relies on it would run twice.
  if (other !== undefined)
    judge.error(
      'header_twice',
      at(entry, 'idempotent', 'header'),
      `The header '${header}' carries ${other}, and no idempotency key`,
    );
  else taken.set(header, 'the idempotency key');
  if (header !== 'idempotency-key' && isForbidden(header))
    judge.error(
      'forbidden_header',
      at(entry, 'idempotent', 'header'),
      `The key cannot be sent as the header '${header}'`,
    );
  return { kind: 'header', header, forMs: parseDuration(entry.idempotent.for) ?? 0 };
}

function resolveOutcomes(entry: ToolEntry, judge: Judge): OutcomeMap {
  const { outcomes } = entry;
  const seen = new Map<number, string>();
  for (const outcome of ['committed', 'failed', 'unknown'] as const) {
    for (const [index, status] of outcomes[outcome].entries()) {
      const before = seen.get(status);
      if (before !== undefined)
        judge.error('status_twice', at(outcomes, outcome, index), [
          `The status ${status} means ${before} and ${outcome}`,
          'a status means one thing',
        ]);
      seen.set(status, outcome);
    }
  }
  return { committed: outcomes.committed, failed: outcomes.failed, unknown: outcomes.unknown, body: outcomes.body };
}

function resolveState(
  entry: ToolEntry,
  of: ToolParams,
  taken: ReadonlyMap<string, string>,
  judge: Judge,
): RequestTemplate | null {
  if (entry.state === undefined) return null;
  return readOnly(resolveRequest(entry, 'state', entry.state.request, of, taken, judge), entry.state, judge);
}
