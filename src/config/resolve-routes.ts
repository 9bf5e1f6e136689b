import { isIP } from 'node:net';
import { isNeverSent } from '../effects/run/header-names.ts';
import { isHttpTool, pathParams, type Tool } from '../effects/model/tool.ts';
import type { Route, RouteRule } from './configuration.ts';
import type { JsonObject } from '../json/value.ts';
import { at, type Judge } from './judge.ts';
import { resolveHeaders } from './resolve-headers.ts';
import { isAmbiguous, isNumber, NUMBER, REST, type Segments } from './rule-order.ts';
import type { GatewayFile } from './schema.ts';
import { parseDuration } from './units.ts';
import type { KeyCarriers } from '../effects/model/key.ts';

type RouteEntry = GatewayFile['routes'][number];
type RuleEntry = RouteEntry['rules'][number];

/** First segments of the gateway's addresses. A route must not begin with one. */
export const OWN_PREFIXES: readonly string[] = [
  '/v1',
  '/state',
  '/outcomes',
  '/mcp',
  '/console',
  '/docs',
  '/openapi.json',
  '/.well-known',
  '/log',
  '/approve',
  '/livez',
  '/readyz',
  '/metrics',
];

/** A path, without query, that is one of the gateway's own addresses where the entrance is its own. */
export const OWN_PATH = new RegExp(`^(?:${OWN_PREFIXES.map((prefix) => prefix.replace('.', '\\.')).join('|')})(?:/|$)`);

/** How long a derived key is valid when the rule only says `derive`. */
const DERIVE_MS = 10 * 60_000;

interface Names {
  readonly upstreams: ReadonlySet<string>;
  readonly tools: ReadonlySet<string>;
}

export function resolveRoutes(file: GatewayFile, tools: readonly Tool[], names: Names, judge: Judge): readonly Route[] {
  checkPrefixes(file, judge);
  const toolsByName = new Map(tools.map((tool) => [tool.name, tool]));
  return file.routes.map((route) => {
    judge.known('upstream', at(route, 'upstream'), route.upstream, names.upstreams);
    const patterns = new Map<string, { pattern: Pattern; rule: RuleEntry }[]>();
    const rules: RouteRule[] = [];
    for (const rule of route.rules) {
      const tool = toolsByName.get(rule.tool);
      if (tool === undefined) judge.known('tool', at(rule, 'tool'), rule.tool, names.tools);
      const pattern = readMatch(rule, tool?.paramsSchema ?? null, judge);
      if (pattern === null) continue;
      const isRest = pattern.segments.at(-1) === REST;
      const key = `${pattern.method} ${isRest ? '*' : pattern.segments.length}`;
      const alike = patterns.get(key) ?? [];
      patterns.set(key, alike);
      const rivals = isRest
        ? [...patterns].flatMap(([one, some]) => (one.startsWith(`${pattern.method} `) ? some : []))
        : [...alike, ...(patterns.get(`${pattern.method} *`) ?? [])];
      const other = rivals.find((earlier) => isAmbiguous(earlier.pattern.segments, pattern.segments));
      if (other !== undefined)
        judge.error('overlapping_rules', at(rule, 'match'), [
          `'${rule.match}' and '${other.rule.match}' match the same requests`,
          'where two match, one has to have all the fixed segments of the other: make them differ in method, length or a fixed segment, or say type: integer of a param',
        ]);
      alike.push({ pattern, rule });
      if (tool !== undefined) checkAgainstTool(route, rule, pattern, tool, judge);
      rules.push({
        method: pattern.method,
        path: pattern.path,
        tool: rule.tool,
        idempotency: resolveIdempotency(rule, tool),
        onDuplicate: rule.on_duplicate,
        frames: rule.frames ?? null,
      });
    }
    return {
      upstream: route.upstream,
      prefix: route.prefix === '/' ? '' : route.prefix,
      host: route.host?.toLowerCase() ?? null,
      listen: route.listen ?? null,
      undeclared: route.undeclared,
      setCookie: route.set_cookie,
      foreignLinks: route.foreign_links,
      // Slack's libraries send their token to the address of an upload: to another origin it is the agent's key.
      links: [...(route.error_format === 'slack' ? ['upload_url'] : []), ...route.links].map(namesOf),
      headers: resolveHeaders(route.headers, judge),
      keys: resolveKeys(route, judge),
      pendingStatus: route.pending_status,
      errorFormat: route.error_format,
      // Libraries for GitHub repeat what is neither a fault of the request nor forbidden, three times over.
      finalStatus: route.final_status ?? (route.error_format === 'github' ? 422 : null),
      undeclaredQuery: route.undeclared_query ?? null,
      rules,
    };
  });
}

/** Names of a path such as `_links.*.href`. */
function namesOf(path: string): readonly string[] {
  return (path.match(/(?:\\.|[^.\\])+/g) ?? []).map((name) => name.replaceAll(/\\(.)/g, '$1'));
}

const SCHEMES = ['bearer', 'token', 'basic'] as const;

function resolveKeys(route: RouteEntry, judge: Judge): KeyCarriers {
  const headers: string[] = [];
  const query: string[] = [];
  for (const [index, carrier] of route.keys.entries()) {
    const [kind = '', name] = carrier.split(':');
    if (kind === 'query') query.push(name ?? 'api_key');
    else if (kind === 'header' || kind === 'x-api-key' || kind === 'api-key') {
      const header = (name ?? kind).toLowerCase();
      if (header !== 'x-api-key' && (isNeverSent(header) || ['authorization', 'cookie'].includes(header)))
        judge.error('forbidden_header', at(route, 'keys', index), `The header '${header}' cannot carry a key`);
      headers.push(header);
    }
  }
  if (route.keys.length === 0)
    judge.error('no_keys', at(route, 'keys'), [
      'Callers of the route could not carry a key',
      'keys: [x-api-key, bearer]',
    ]);
  return { headers, schemes: SCHEMES.filter((scheme) => route.keys.includes(scheme)), query };
}

/**
 * Checks prefixes. Routes with the same host name and listener share an address space. Without either, they share it
 * with the gateway.
 */
function checkPrefixes(file: GatewayFile, judge: Judge): void {
  const seen = new Map<string, string[]>();
  for (const route of file.routes) {
    const { prefix } = route;
    const refuse = (code: string, message: string, hint: string | null = null): void =>
      judge.error(code, at(route, 'prefix'), [message, hint]);
    checkHost(route, file, judge);
    const isApart = route.host !== undefined || route.listen !== undefined;
    const first = `/${prefix.split('/')[1] ?? ''}`.toLowerCase();
    if (!isApart && OWN_PREFIXES.includes(first)) {
      refuse('reserved_prefix', `'${first}' is the gateway's own`, 'choose another first segment');
      continue;
    }
    if (!(isApart && prefix === '/') && !/^(\/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$/.test(prefix)) {
      const why = /^\/*$/.test(prefix)
        ? "it would hide the gateway's own addresses; with a host or a listen of its own a route can have /"
        : 'a slash before each segment, letters, digits and _ . ~ - in it, no slash at the end';
      refuse('bad_prefix', `'${prefix}' cannot be a prefix`, why);
      continue;
    }
    const entrance = `${route.listen ?? ''} ${route.host?.toLowerCase() ?? ''}`;
    const others = seen.get(entrance) ?? [];
    seen.set(entrance, others);
    const whole = prefix === '/' ? '' : prefix;
    const other = others.find(
      (earlier) => `${whole}/`.startsWith(`${earlier}/`) || `${earlier}/`.startsWith(`${whole}/`),
    );
    if (other !== undefined)
      refuse(
        'overlapping_prefixes',
        other === whole
          ? `There are two routes with the prefix '${prefix}'`
          : `The prefixes '${other === '' ? '/' : other}' and '${prefix}' overlap`,
      );
    others.push(whole);
  }
}

/** Refuses a host that is also a name of the gateway, because the route would hide the gateway's addresses. */
function checkHost(route: RouteEntry, { server }: GatewayFile, judge: Judge): void {
  const { host, listen } = route;
  if (host === undefined) return;
  const name = host.toLowerCase();
  if (isIP(name) !== 0)
    judge.error('bad_host', at(route, 'host'), [
      `'${host}' is an address`,
      'a host is a name; listen takes an address',
    ]);
  if (listen !== undefined) return;
  const published = server.public_url !== undefined && URL.canParse(server.public_url);
  const own = [
    'localhost',
    server.host.toLowerCase(),
    ...server.allowed_hosts.map((allowed) => allowed.toLowerCase()),
    ...(published ? [new URL(server.public_url ?? '').hostname] : []),
  ];
  if (own.includes(name))
    judge.error('reserved_host', at(route, 'host'), [
      `'${host}' is a name of the gateway itself`,
      'give the route a name of its own, or a listener: listen',
    ]);
}

interface Pattern {
  readonly method: string;
  readonly path: string;
  readonly segments: Segments;
  readonly params: readonly string[];
}

/** Parses a match such as `POST /v1/payments/:payment_id`; reports faults. */
function readMatch(rule: RuleEntry, schema: JsonObject | null, judge: Judge): Pattern | null {
  const refuse = (message: string, hint: string | null = 'write METHOD /path/:param'): null => {
    judge.error('bad_match', at(rule, 'match'), [message, hint]);
    return null;
  };
  const [, method, path] = /^([A-Z]+) (\/\S*)$/.exec(rule.match) ?? [];
  if (method === undefined || path === undefined) {
    if (/^[a-z]+ /i.test(rule.match) && !/^[A-Z]+ /.test(rule.match))
      return refuse('The method is written in capitals');
    return refuse('A match is a method, one space and a path');
  }
  if (!/^(GET|POST|PUT|PATCH|DELETE|OPTIONS)$/.test(method))
    return refuse(
      method === 'HEAD' ? 'HEAD follows GET and is not written' : `${method} is not a method that can be routed`,
      'GET, POST, PUT, PATCH, DELETE or OPTIONS',
    );
  if (/[?#]/.test(path)) return refuse("The path of a match has no '?' or '#'", 'the query becomes params by the tool');
  if (!/^\/[A-Za-z0-9\-._~!$&'()*+,;=:@%/{}]*$/.test(path))
    return refuse('The path has a character that a path may not have', 'percent-encode it');
  const segments: Segments[number][] = [];
  const params: string[] = [];
  const parts = path.slice(1).split('/');
  for (const [index, part] of parts.entries()) {
    const [, rest] = /^(?:\*|\{\+)([A-Za-z_][A-Za-z0-9_]*)\}?$/.exec(part) ?? [];
    const name =
      rest ?? /^:([A-Za-z_][A-Za-z0-9_]*)$/.exec(part)?.[1] ?? /^\{([A-Za-z_][A-Za-z0-9_]*)\}$/.exec(part)?.[1];
    if (rest === undefined ? part.includes('*') : index < parts.length - 1)
      return refuse(
        "A '*' begins the last segment of a match: *name is the rest of the path",
        'write :params for whole segments; encoded_slashes names those that may hold %2F',
      );
    if (name !== undefined && params.includes(name))
      return refuse(`The param '${name}' stands twice in the path`, null);
    if (name === undefined && (part.startsWith(':') || /[{}]/.test(part)))
      return refuse('A param fills a whole segment of the path', 'write /:name/');
    if (part === '' && index < parts.length - 1) return refuse("The path has an empty segment ('//')", null);
    if (/^\.{1,2}$/.test(part) || /%(2e|2f|5c|00)/i.test(part))
      return refuse("The path has a '.' or '..' segment, or an encoded one", null);
    if (name !== undefined) params.push(name);
    segments.push(rest !== undefined ? REST : name === undefined ? part : isNumber(name, schema) ? NUMBER : null);
  }
  return { method, path, segments, params };
}

/** A call must mean the same through the route and through the effects API, which sends the request of the tool. */
function checkAgainstTool(route: RouteEntry, rule: RuleEntry, pattern: Pattern, tool: Tool, judge: Judge): void {
  if (tool.upstream !== route.upstream)
    judge.error(
      'wrong_upstream',
      at(rule, 'tool'),
      `The tool '${tool.name}' belongs to the upstream '${tool.upstream}', the route to '${route.upstream}'`,
    );
  if (!isHttpTool(tool)) {
    judge.error('not_http', at(rule, 'tool'), [
      `The tool '${tool.name}' is one of an MCP server, which has no requests that a route could match`,
      `agents reach it at /mcp/${tool.upstream}`,
    ]);
    return;
  }
  const { request } = tool.call;
  const own = pathParams(request.path);
  const strange = pattern.params.find((name) => !own.includes(name));
  const missing = own.find((name) => !pattern.params.includes(name));
  if (strange !== undefined || missing !== undefined) {
    const message =
      strange === undefined
        ? `The match lacks the param '${missing}' of the tool's path`
        : `The tool's path has no param '${strange}'`;
    judge.error('route_differs', at(rule, 'match'), [
      message,
      `the tool's request is ${request.method} ${request.path}`,
    ]);
    return;
  }
  for (const [index, name] of rule.encoded_slashes.entries())
    judge.known('param', at(rule, 'encoded_slashes', index), name, new Set(own));
  const shape = shapeOf(request.path);
  if (shapeOf(pattern.path).includes('/*') && !shape.includes('/*')) {
    const message = "The rest of the path is no single segment, as the tool's path has it";
    judge.error('route_differs', at(rule, 'match'), [
      message,
      `write ${request.path.replace(/\{([^{}]+)\}$/, '{+$1}')} there`,
    ]);
  } else if (pattern.method !== request.method || shapeOf(pattern.path) !== shape)
    judge.warn('route_differs', at(rule, 'match'), [
      `The match is not the tool's own request`,
      `the tool's request is ${request.method} ${shape}; the same call means two things now`,
    ]);
  const isKeyed = rule.idempotency !== undefined && rule.idempotency !== 'none';
  if (tool.kind === 'read' && isKeyed)
    judge.warn('read_with_key', at(rule, 'idempotency'), 'Reads are not effects and need no idempotency key');
  if (rule.frames !== undefined && pattern.method !== 'GET')
    judge.error('frames_on_write', at(rule, 'frames'), 'A WebSocket begins with GET');
}

function shapeOf(path: string): string {
  return path.replaceAll(/\{\+([^{}]+)\}/g, '*$1').replaceAll(/\{([^{}]+)\}/g, ':$1');
}

function resolveIdempotency(rule: RuleEntry, tool: Tool | undefined): RouteRule['idempotency'] {
  if (rule.idempotency === undefined) return tool?.kind === 'read' ? { kind: 'none' } : { kind: 'required' };
  if (rule.idempotency === 'derive') return { kind: 'derive', windowMs: DERIVE_MS };
  if (typeof rule.idempotency === 'string') return { kind: rule.idempotency };
  return { kind: 'derive', windowMs: parseDuration(rule.idempotency.derive) ?? DERIVE_MS };
}
