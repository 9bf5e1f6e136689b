import { pathParams, type QueryStyle, type RequestTemplate, rootOfName } from '../effects/model/tool.ts';
import { memberSchema, typesOf } from '../json/schema-walk.ts';
import { isJsonObject, type JsonObject } from '../json/value.ts';
import { at, type Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';

export type ToolEntry = GatewayFile['tools'][number];
/** The param that holds undeclared query params where only a route says that they pass. */
const REST = 'query';

/** Names of the tools to which a route passes query params on that they do not declare. */
export function toolsWithRest(file: GatewayFile): ReadonlySet<string> {
  return new Set(
    file.routes
      .filter((route) => route.undeclared_query === 'pass')
      .flatMap((route) => route.rules.map(({ tool }) => tool)),
  );
}

/** The param that holds what stands in the query of a tool without a name; `null`: that is refused. */
export function restOf(entry: ToolEntry, withRest: ReadonlySet<string>, judge: Judge): string | null {
  const { request } = entry;
  if (request.query_rest !== undefined || !withRest.has(entry.name)) return request.query_rest ?? null;
  const properties = entry.params_schema?.['properties'];
  const named = [
    ...pathParams(request.path),
    ...request.query,
    ...(Array.isArray(request.headers) ? request.headers : Object.keys(request.headers)),
    ...(request.body === '*' ? [] : request.body),
    request.body_as,
    ...(isJsonObject(properties) ? Object.keys(properties) : []),
  ];
  if (!named.includes(REST)) return REST;
  judge.error('query_rest_taken', at(entry, 'request'), [
    `A route passes undeclared query params of '${entry.name}' on as the param '${REST}', which the tool has already`,
    'give them another name: query_rest: more_query',
  ]);
  return null;
}

/** A schema that allows the param which holds the rest of the query, if it forbids what it does not name. */
export function withRest(schema: JsonObject | null, rest: string | null): JsonObject | null {
  if (schema === null || rest === null || schema['additionalProperties'] !== false) return schema;
  const properties = isJsonObject(schema['properties']) ? schema['properties'] : {};
  if (Object.hasOwn(properties, rest)) return schema;
  return { ...schema, properties: { ...properties, [rest]: { type: 'object' } } };
}

/** How a request writes its query. Lists and objects are what the schema says may be one, or what has a style. */
export function resolveQuery(
  request: ToolEntry['request'],
  rest: string | null,
  schema: JsonObject | null,
  judge: Judge,
): Pick<RequestTemplate, 'queryStyles' | 'queryRest' | 'queryLists'> {
  const names = new Set(request.query);
  for (const name of Object.keys(request.query_styles))
    judge.known('param', at(request, 'query_styles', name), name, names);
  const styles = new Map<string, QueryStyle>();
  for (const [index, name] of request.query.entries()) {
    const types = typesOf(memberSchema({ schema, root: schema }, name));
    const hasParts = types.has('array') || types.has('object');
    const style = request.query_styles[name] ?? (hasParts ? request.query_lists : null);
    if (style === null) continue;
    styles.set(name, style);
    if (/[[\]]/.test(name))
      judge.error('bad_query_name', at(request, 'query', index), [
        `The param '${name}' may be a list or an object, and has brackets in its name`,
        'its parts are written in brackets: leave them out of the name',
      ]);
    const isJoined = style === 'comma' || style === 'space' || style === 'pipe';
    if (isJoined && (!types.has('array') || [...types].some((type) => type !== 'array' && type !== 'null')))
      judge.error('bad_query_style', at(request, 'query_styles', name), [
        `'${name}' has to be a list to be written as one text with separators`,
        `say it in the params_schema: ${name}: { type: array }`,
      ]);
  }
  for (const [index, name] of request.query.entries()) {
    const root = rootOfName(name);
    if (root !== name && styles.has(root))
      judge.error('param_twice', at(request, 'query', index), [
        `The param '${name}' is a part of the param '${root}'`,
        'a param has one place in a request',
      ]);
  }
  if (request.query_lists !== 'repeat' && styles.size === 0 && rest === null)
    judge.error('unused_field', at(request, 'query_lists'), [
      'query_lists is for lists, and the query has none',
      'say type: array in the params_schema, or leave it out',
    ]);
  return {
    ...(styles.size === 0 ? {} : { queryStyles: Object.fromEntries(styles) }),
    ...(rest === null ? {} : { queryRest: rest }),
    ...(request.query_lists === 'repeat' ? {} : { queryLists: request.query_lists }),
  };
}

const PLAIN_PATH = /^\/[A-Za-z0-9\-._~!$&'()*+,;=:@%/{}]*$/;

/** The params of a path template; reports faults. */
export function checkPath(request: GatewayFile['tools'][number]['request'], judge: Judge): string[] {
  const { path } = request;
  const fault = (message: string, hint: string | null = null): string[] => {
    judge.error('bad_path', at(request, 'path'), [message, hint]);
    return [];
  };
  if (!path.startsWith('/'))
    return fault("A path begins with '/'", /^https?:/.test(path) ? 'the host stands in the upstream' : null);
  if (/[?#]/.test(path)) return fault("A path has no '?' or '#'", 'params of the query stand under query');
  if (!PLAIN_PATH.test(path)) return fault('The path has a character that a path may not have', 'percent-encode it');
  const params: string[] = [];
  for (const [index, segment] of path.slice(1).split('/').entries()) {
    const [, rest, name] = /^\{(\+?)([^{}]+)\}$/.exec(segment) ?? [];
    if (rest === '+' && !path.endsWith(segment))
      return fault(`${segment} is the rest of the path, and stands at its end`);
    if (name !== undefined) params.push(name);
    else if (/[{}]/.test(segment)) return fault('A param fills a whole segment of the path', 'write /{name}/');
    else if (segment.startsWith(':'))
      return fault(`'${segment}' is how routes write a param`, `write {${segment.slice(1)}}`);
    else if (segment === '' && (index > 0 || path.length > 1) && index < path.split('/').length - 2)
      return fault("The path has an empty segment ('//')");
    else if (/^\.{1,2}$/.test(segment) || /%(2e|2f|5c|00)/i.test(segment))
      return fault("The path has a '.' or '..' segment, or an encoded one");
  }
  return params;
}

/** The params of tools that may hold encoded slashes, because a rule of a route says so: a call means the same at all doors. */
export function slashesOf(file: GatewayFile): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, readonly string[]>();
  for (const { tool, encoded_slashes: names } of file.routes.flatMap(({ rules }) => rules))
    if (names.length > 0) found.set(tool, [...new Set([...(found.get(tool) ?? []), ...names])]);
  return found;
}

/** Those of them that stand in a path. */
export function slashesIn(path: string, names: readonly string[]): { readonly encodedSlashes?: readonly string[] } {
  const here = pathParams(path).filter((name) => names.includes(name));
  return here.length === 0 ? {} : { encodedSlashes: here };
}
