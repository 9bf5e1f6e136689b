import type { IncomingMessage, IncomingHttpHeaders } from 'node:http';
import { setImmediate as others } from 'node:timers/promises';
import { type ReadBody, readBody, TinyPieces } from '../bytes/gathered.ts';
import { ulid } from 'ulid';
import type { Route, RouteRule } from '../config/configuration.ts';
import { type JsonObject, isJsonObject, type Json, pointerTo } from '../json/value.ts';
import { NO_FILES } from '../effects/model/files.ts';
import type { Problem, RunRequest, RequestFault } from '../effects/model/run-request.ts';
import type { RequestBody } from '../effects/upstream.ts';
import { type JsonLimits, LARGE_TEXT } from '../json/strict.ts';
import { isUsualSpelling } from '../upstreams/http/url.ts';
import { isNested, writeQuery, type CollectedQuery, collectQuery, type QueryPairs } from '../upstreams/http/url.ts';
import { takesFiles, renderBody, type RequestPlan } from '../upstreams/http/request-template.ts';
import type { Upload } from '../upstreams/http/spool.ts';
import { type Arrived, keyGoesOn, pathAndQuery, problemOf } from './arrival.ts';
import { decodeBody } from './decode-body.ts';
import { forwardedHeaders } from './headers.ts';
import { readIdempotencyKey } from '../effects/run/fingerprint.ts';
import type { LiveConnection } from '../identity/live.ts';
import { mayHear } from './judge-read.ts';
import type { ProxyPorts } from './ports.ts';
import { contentFault, type ReadContent, readContent } from './read-content.ts';
import { readUpload } from './read-upload.ts';
import type { RouteMatch, RuleMatch } from './route-table.ts';
import { MOST_FAULTS } from '../diagnostics/stop-at.ts';
import { isNeverSent } from '../effects/run/header-names.ts';
import type { HttpTool } from '../effects/model/tool.ts';
import type { Catalog } from '../upstreams/catalog.ts';
import { MOST_SHOWN, overrideFault } from '../upstreams/http/form.ts';

type ReadPorts = Pick<ProxyPorts, 'catalog' | 'settings' | 'policyMode' | 'spool'>;
type ReadArrived = Pick<Arrived, 'key' | 'principal' | 'query' | 'workspace'>;
type ReadMatch = Pick<RuleMatch, 'tool' | 'plan' | 'pathParams'> & { readonly route: Pick<Route, 'undeclaredQuery'> };

/** A request that was read completely: what policy sees of it, and the bytes that go on. */
export type ReadRequest =
  | {
      readonly kind: 'read';
      readonly params: JsonObject;
      readonly body: RequestBody;
      /** The query that goes on; `null`: as it came. */
      readonly query: string | null;
      /** Whoever gets the upload must discard it; `null` if the body has no files. */
      readonly upload: Upload | null;
    }
  | { readonly kind: 'problem'; readonly problem: Problem }
  | { readonly kind: 'gone' };

const CHANGED: Problem = {
  code: 'not_ready',
  detail: 'The configuration changed while the body came in, so nothing was sent. Send the same request again.',
  errors: [],
  retryAfterMs: 1000,
};

export function hasBody(request: IncomingMessage): boolean {
  return request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0;
}

/** What is to be passed on of a read that has no body, and what it matched; `null` where it is no such read. */
export function bareRead(
  ports: ReadPorts,
  arrived: Arrived,
  request: IncomingMessage,
): { readonly match: Exclude<RouteMatch, { kind: 'none' }>; readonly read: ReadRequest } | null {
  const { match } = arrived;
  if (match.kind === 'rule')
    return match.tool.kind === 'write' || hasBody(request)
      ? null
      : { match, read: paramsOf(ports, arrived, match, request, null) };
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  return match.kind === 'undeclared' && match.route.undeclared === 'passthrough_reads' && isRead && !match.resembles
    ? { match, read: { kind: 'read', params: {}, body: null, query: null, upload: null } }
    : null;
}

/** Reads params, and the body if there is one, strictly. Nothing is checked against the tool's schema. */
export async function readRequest(
  ports: ReadPorts,
  arrived: ReadArrived,
  match: ReadMatch,
  request: IncomingMessage,
): Promise<ReadRequest> {
  if (!hasBody(request)) return paramsOf(ports, arrived, match, request, null);
  const type = contentFault(match, request.headers);
  if (type !== null) return { kind: 'problem', problem: type };
  if (takesFiles(match.plan)) return readWithFiles(ports, arrived, match, request);
  const { bodyLimit, jsonLimits } = ports.settings();
  const read = await readBody(request, bodyLimit);
  if (read.kind !== 'body') return unread(read, bodyLimit);
  const decoded = await decodeBody(read.bytes, request.headers['content-encoding'], bodyLimit);
  return 'problem' in decoded
    ? { kind: 'problem', problem: decoded.problem }
    : readParams(ports, arrived, match, request, decoded.bytes, jsonLimits);
}

/** What becomes of a request whose body was not read as a whole. */
export function unread({ kind }: Exclude<ReadBody, { kind: 'body' }>, limit: number): ReadRequest {
  if (kind === 'gone') return { kind };
  const problem =
    kind === 'tiny_pieces'
      ? problemOf('invalid_request', TinyPieces.DETAIL)
      : problemOf('too_large', `The body is larger than the ${limit} bytes that are inspected.`);
  return { kind: 'problem', problem };
}

/** Whose room files take: that of the agent whose key it is. A name that a request only claims gives no other room. */
function ownerOf({ principal, workspace }: ReadArrived): string {
  return principal.kind === 'agent' ? `${workspace}\n${principal.agentId}` : principal.keyId;
}

/** If the request is refused, none of its files stay. */
async function readWithFiles(
  ports: ReadPorts,
  arrived: ReadArrived,
  match: ReadMatch,
  request: IncomingMessage,
): Promise<ReadRequest> {
  const { uploads, jsonLimits } = ports.settings();
  const upload = ports.spool.begin(uploads, ownerOf(arrived));
  let isKept = false;
  try {
    const read = await readUpload(request, match, upload, { limits: uploads, jsonLimits, key: arrived.key });
    if (read.kind !== 'content') return read;
    if (!isInForce(ports, match)) return { kind: 'problem', problem: CHANGED };
    const collected = paramsOf(ports, arrived, match, request, { bytes: null, content: read.content });
    isKept = collected.kind === 'read';
    return collected.kind === 'read' ? { ...collected, upload } : collected;
  } finally {
    if (!isKept) await upload.discard();
  }
}

/** Reads params from a body that has come as a whole. A promise only where it is large. */
export function readParams(
  ports: ReadPorts,
  arrived: ReadArrived,
  match: ReadMatch,
  request: IncomingMessage,
  body: Buffer,
  jsonLimits: JsonLimits,
): ReadRequest | Promise<ReadRequest> {
  if (!isInForce(ports, match)) return { kind: 'problem', problem: CHANGED };
  if (body.includes(arrived.key)) return { kind: 'problem', problem: keyGoesOn() };
  const content = readContent(match, body, jsonLimits);
  if (body.byteLength < LARGE_TEXT && !(content instanceof Promise))
    return paramsOf(ports, arrived, match, request, { bytes: body, content }, jsonLimits);
  return readLarge(ports, arrived, match, request, { bytes: body, content });
}

async function readLarge(
  ports: ReadPorts,
  arrived: ReadArrived,
  match: ReadMatch,
  request: IncomingMessage,
  body: { readonly bytes: Buffer; readonly content: ReadContent | Promise<ReadContent> },
): Promise<ReadRequest> {
  const content = await body.content;
  await others();
  if (!isInForce(ports, match)) return { kind: 'problem', problem: CHANGED };
  const read = paramsOf(ports, arrived, match, request, { bytes: body.bytes, content });
  await others();
  return isInForce(ports, match) ? read : { kind: 'problem', problem: CHANGED };
}

/** Whether the configuration that matched the request is still in force. */
function isInForce(ports: ReadPorts, match: ReadMatch): boolean {
  return ports.catalog().tool(match.tool.name) === match.tool;
}

/** Like {@link readRequest} for a request without a body, but synchronous. */
export function paramsOf(
  ports: ReadPorts,
  arrived: ReadArrived,
  match: ReadMatch,
  request: IncomingMessage,
  body: { readonly bytes: Buffer | null; readonly content: ReadContent } | null,
  limits = ports.settings().jsonLimits,
): ReadRequest {
  const observes = ports.policyMode() === 'observe';
  const { plan } = match;
  const collected = collectParams(ports.catalog(), match.tool, plan, {
    pathParams: match.pathParams,
    query: arrived.query.pairs,
    observes,
    onlyDeclared: match.route.undeclaredQuery === 'refuse',
    headers: request.headers,
    body: body?.content ?? null,
    limits,
  });
  if (collected.ok) {
    // The JSON of reads goes on unchanged. So does that of writes while policy only observes: nothing should change
    // before a rule is in force.
    const asItCame = plan.bodyType === 'json' && (match.tool.kind === 'read' || observes);
    // The same holds for queries of single values; servers read lists and objects in different ways.
    const queryAsItCame = observes || (match.tool.kind === 'read' && !isNested(plan.query));
    return {
      kind: 'read',
      params: collected.params,
      body: asItCame ? (body?.bytes ?? null) : collected.body,
      query: queryAsItCame ? null : writeQuery(plan.query, collected.params),
      upload: null,
    };
  }
  const [first] = collected.faults;
  const detail =
    collected.code === 'invalid_json'
      ? `The body is not strict JSON: ${first?.message ?? ''}.`
      : `The request does not fit the tool ${match.tool.name}.`;
  return { kind: 'problem', problem: problemOf(collected.code, detail, collected.faults) };
}

/** The run request for a governed request, or what is wrong with it. */
export function runRequestOf(
  ports: ProxyPorts,
  arrived: Arrived,
  match: RuleMatch,
  request: IncomingMessage,
  read: Extract<ReadRequest, { kind: 'read' }>,
): RunRequest | { readonly kind: 'problem'; readonly problem: Problem } {
  const { principal } = arrived;
  const key = keyOf(match.rule, request);
  if (typeof key === 'object' && 'problem' in key) return { kind: 'problem', problem: key.problem };
  const forwarded = forwardedHeaders(request, {
    tool: match.tool,
    route: match.route,
    upstream: ports.upstream(match.tool.upstream),
    arrived,
    governed: true,
  });
  if (forwarded.kind === 'problem') return forwarded;
  return {
    principal,
    via: 'proxy',
    workspace: arrived.workspace,
    agentId: arrived.agentId,
    actionType: null,
    tool: match.tool.name,
    target: null,
    params: read.params,
    files: read.upload?.files ?? NO_FILES,
    headers: isUsualSpelling(arrived.path, match.rule.path)
      ? forwarded.headers
      : { ...forwarded.headers, bound: { ...forwarded.headers.bound, ':path': arrived.path } },
    idempotencyKey: key,
    stateCheck: null,
    claimId: null,
    reservationId: null,
    metadata: null,
    proxied: {
      kind: 'http',
      method: request.method ?? match.rule.method,
      pathAndQuery: pathAndQuery(arrived, read.query),
      headers: forwarded.apart,
      body: read.body,
      setCookie: match.route.setCookie,
    },
    requestIp: arrived.address,
    stages: [
      {
        stage: 'authenticate',
        status: 'passed',
        startedAt: arrived.authenticatedAt,
        durationMs: arrived.authenticatedInMs,
        detail: null,
      },
    ],
  };
}

/** What is checked again and again while the answer to an admitted call is passed on. */
export function liveAnswer(
  ports: ProxyPorts,
  arrived: Arrived,
  { tool, route }: RuleMatch,
  { params, headers }: Pick<RunRequest, 'params' | 'headers'>,
  cut: () => void,
): LiveConnection {
  const { workspace, agentId, address, key } = arrived;
  const target = ports.catalog().target(tool, params) ?? tool.name;
  const call = { workspace, agentId, tool, upstream: route.upstream, target, params };
  const mayStay: LiveConnection['mayStay'] = (principal) =>
    mayHear(ports, { ...call, principal, headers: headers.sent, requestIp: address });
  return { key, address, mayStay, isAdmitted: true, stands: () => false, cut };
}

function keyOf(
  rule: RouteRule,
  request: IncomingMessage,
): RunRequest['idempotencyKey'] | { readonly problem: Problem } {
  const read = readIdempotencyKey(request.headers['idempotency-key']);
  if (read.kind === 'key') return read.key;
  if (read.kind === 'invalid') {
    const fault = { path: '/headers/idempotency-key', message: read.message };
    return { problem: problemOf('invalid_request', 'The header Idempotency-Key cannot be used.', [fault]) };
  }
  switch (rule.idempotency.kind) {
    case 'required': {
      const fault = { path: '/headers/idempotency-key', message: 'is required on this route' };
      return { problem: problemOf('idempotency_key_required', 'Send the header Idempotency-Key.', [fault]) };
    }
    case 'derive':
      return { deriveWindowMs: rule.idempotency.windowMs };
    case 'none':
      return `once:${ulid().toLowerCase()}`;
  }
}

type CollectedParams =
  /** `body`: the bytes that go on, written anew from what was read. */
  | { readonly ok: true; readonly params: JsonObject; readonly body: RequestBody }
  | { readonly ok: false; readonly code: 'invalid_json' | 'invalid_request'; readonly faults: readonly RequestFault[] };

/**
 * Reads a tool's params out of a request: path, query, the headers that the tool names, and the body. Everything that
 * goes on and is not transport becomes a param, and each param is read from its own place only. So policy sees what the
 * upstream sees. The params are not checked against the schema here.
 */
function collectParams(
  catalog: Catalog,
  tool: HttpTool,
  plan: RequestPlan,
  request: {
    readonly pathParams: Readonly<Record<string, string>>;
    readonly query: QueryPairs;
    /** Whether the route refuses what no tool declares, whatever the tool says. */
    readonly onlyDeclared: boolean;
    /** Policy only observes: what no tool declares goes on. */
    readonly observes: boolean;
    readonly headers: IncomingHttpHeaders;
    readonly body: ReadContent | null;
    readonly limits: JsonLimits;
  },
): CollectedParams {
  const params: Record<string, Json> = {};
  const faults: RequestFault[] = [];
  let body: RequestBody = null;
  // By names, here and below: entries are a list for each member.
  for (const name of Object.keys(request.pathParams))
    params[name] = catalog.textParam(tool, name, request.pathParams[name] ?? '');
  const flat = (name: string, text: string): Json => catalog.textParam(tool, name, text);
  const query: CollectedQuery = isNested(plan.query)
    ? collectQuery(plan.query, request.query, flat, { schema: tool.paramsSchema, limits: request.limits })
    : { ok: true, params: Object.fromEntries(request.query.map(([name, text]) => [name, flat(name, text)])) };
  if (query.ok)
    for (const name of Object.keys(query.params)) {
      const value = query.params[name] ?? null;
      const place = plan.places.get(name);
      // A name that the tool does not know stays in the params while policy observes, so that it is seen.
      const isKnown = place === undefined ? request.observes && plan.body !== '*' : place.in === 'query';
      if (isKnown && !(request.onlyDeclared && name === plan.query.rest)) params[name] = value;
      else
        for (const each of isKnown && isJsonObject(value) ? Object.keys(value) : [name])
          faults.push({
            path: `/query${pointerTo([each], MOST_SHOWN)}`,
            message: undeclared(tool, request.onlyDeclared),
          });
    }
  else faults.push(...query.faults);
  for (const [name, header] of plan.headers) {
    const value = request.headers[header];
    if (typeof value === 'string' && !isNeverSent(header)) params[name] = catalog.textParam(tool, name, value);
  }
  if (request.body !== null) {
    const read = request.body;
    if (!read.ok) return { ok: false, code: read.code, faults: [{ path: `/body${read.path}`, message: read.message }] };
    const { value: content } = read;
    if (plan.bodyAs !== null) {
      params[plan.bodyAs] = content;
      body = renderBody(plan, content);
    } else if (!isJsonObject(content))
      faults.push({
        path: '/body',
        message: 'must be a JSON object; for other values add body_as: NAME to the request of the tool',
      });
    else {
      body = renderBody(plan, content);
      for (const name of Object.keys(content)) {
        const value = content[name] ?? null;
        const place = plan.places.get(name);
        const override = place === undefined && plan.bodyType !== 'json' ? overrideFault(name, 'body') : null;
        if (override !== null) faults.push({ path: `/body/${name}`, message: override });
        else if ((place === undefined || place.in === 'body') && !Object.hasOwn(params, name)) params[name] = value;
        else faults.push({ path: `/body/${name}`, message: `is not in the body of the tool ${tool.name}` });
        if (faults.length >= MOST_FAULTS) break;
      }
    }
  }
  return faults.length === 0 ? { ok: true, params, body } : { ok: false, code: 'invalid_request', faults };
}

function undeclared({ name }: HttpTool, isRefusedByRoute: boolean): string {
  return isRefusedByRoute
    ? `is not in the query of the tool ${name}, and its route says undeclared_query: refuse`
    : `is not in the query of the tool ${name}; to take it, add it to query of its request, or query_rest: NAME for all that is there`;
}
