import { pathParams } from '../effects/model/tool.ts';
import type { Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';

const PLAIN_PATH = /^\/[A-Za-z0-9\-._~!$&'()*+,;=:@%/{}]*$/;

/** The params of a path template; reports faults. */
export function checkPath(request: GatewayFile['tools'][number]['request'], judge: Judge): string[] {
  const { path } = request;
  const fault = (message: string, hint: string | null = null): string[] => {
    judge.error('bad_path', request, ['path'], message, hint);
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
