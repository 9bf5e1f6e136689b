import type { IncomingHttpHeaders } from 'node:http';
import { MOST_FAULTS } from '../diagnostics/stop-at.ts';
import { isNeverSent } from '../effects/run/header-names.ts';
import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import type { HttpTool } from '../effects/model/tool.ts';
import type { RequestBody } from '../effects/upstream.ts';
import { pointerTo } from '../json/pointer.ts';
import type { JsonLimits } from '../json/strict.ts';
import type { Catalog } from '../upstreams/catalog.ts';
import { MOST_SHOWN } from '../upstreams/http/form.ts';
import { type CollectedQuery, collectQuery, isNested, type QueryPairs } from '../upstreams/http/query.ts';
import { planOf, renderBody, type RequestPlan } from '../upstreams/http/request-template.ts';
import type { ReadContent } from './read-content.ts';

/** The params of a proxied request. */
export type CollectedParams =
  /** `body`: the bytes that go on, written anew from what was read. */
  | { readonly ok: true; readonly params: JsonObject; readonly body: RequestBody }
  | { readonly ok: false; readonly code: 'invalid_json' | 'invalid_request'; readonly faults: readonly RequestFault[] };

/**
 * Reads a tool's params out of a request: path, query, the headers that the tool names, and the body. Everything that
 * goes on and is not transport becomes a param, and each param is read from its own place only. So policy sees what the
 * upstream sees. The params are not checked against the schema here.
 */
export function collectParams(
  catalog: Catalog,
  tool: HttpTool,
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
  const plan = planOf(tool.call.request);
  const params: Record<string, Json> = {};
  const faults: RequestFault[] = [];
  let body: RequestBody = null;
  for (const [name, text] of Object.entries(request.pathParams)) params[name] = catalog.textParam(tool, name, text);
  const flat = (name: string, text: string): Json => catalog.textParam(tool, name, text);
  const query: CollectedQuery = isNested(plan.query)
    ? collectQuery(plan.query, request.query, flat, { schema: tool.paramsSchema, limits: request.limits })
    : { ok: true, params: Object.fromEntries(request.query.map(([name, text]) => [name, flat(name, text)])) };
  if (query.ok)
    for (const [name, value] of Object.entries(query.params)) {
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
      if (plan.bodyType !== 'json') faults.push(...overrides(plan, content));
      body = renderBody(plan, content);
      for (const [name, value] of Object.entries(content)) {
        const place = plan.places.get(name);
        if ((place === undefined || place.in === 'body') && !Object.hasOwn(params, name)) params[name] = value;
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

/** Some servers act on these form fields: they change the method, or the charset of the other fields. */
function overrides(plan: RequestPlan, form: JsonObject): readonly RequestFault[] {
  return ['_method', '_charset_']
    .filter((name) => Object.hasOwn(form, name) && !plan.places.has(name))
    .map((name) => ({
      path: `/body/${name}`,
      message: 'changes for some servers what the request is; name it in request.body of the tool to let it go on',
    }));
}
