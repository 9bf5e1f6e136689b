import type { Route, RouteRule } from '../config/configuration.ts';
import { type Entrance, placeOf } from '../config/entrance.ts';
import { isWithin, type Segments } from '../config/rule-order.ts';
import { undeclaredRead } from '../config/stand-in-tools.ts';
import { type HttpTool, isHttpTool } from '../effects/model/tool.ts';
import type { Catalog } from '../upstreams/catalog.ts';
import {
  isReadAlike,
  matchPattern,
  type PatternSegment,
  readPattern,
  withoutInvisible,
} from '../upstreams/http/path.ts';

/** What a request matches. */
export type RouteMatch =
  | {
      readonly kind: 'rule';
      readonly route: Route;
      readonly rule: RouteRule;
      readonly tool: HttpTool;
      /** Params of the path, as texts. */
      readonly pathParams: Readonly<Record<string, string>>;
    }
  /** The route exists, but none of its rules matches. */
  | {
      readonly kind: 'undeclared';
      readonly route: Route;
      /** The tool as which its reads are judged. */
      readonly tool: HttpTool;
      /**
       * Some server may take the path for a declared one. A rule for GET or HEAD would match with other case, another
       * Unicode form, the other of the two methods, or one "/" more or less; or servers do not all read a segment in
       * the same way.
       */
      readonly resembles: boolean;
    }
  | { readonly kind: 'none' };

/** The routes of a configuration, compiled. */
export interface RouteTable {
  /** The route of an entrance whose prefix matches a raw path, and the rest of the path as it will be sent. */
  locate(path: string, entrance: Entrance): { readonly route: CompiledRoute; readonly rest: string } | null;
  /** The rule that matches. Reads: a rule for GET also covers HEAD. */
  match(route: CompiledRoute, method: string, segments: readonly string[]): RouteMatch;
}

export interface CompiledRoute {
  readonly route: Route;
  readonly undeclared: HttpTool;
  readonly rules: ReadonlyMap<string, readonly CompiledRule[]>;
  /** Patterns of the rules for GET and HEAD, without a "/" at the end. */
  readonly reads: readonly (readonly PatternSegment[])[];
}

interface CompiledRule {
  readonly rule: RouteRule;
  readonly tool: HttpTool;
  readonly pattern: readonly PatternSegment[];
  /** Patterns of rules that win over this one if both match: `/users/me` wins over `/users/:id`. */
  readonly before: readonly (readonly PatternSegment[])[];
}

/**
 * Compiles routes.
 * @throws Error on a rule that the configuration should have refused
 */
export function createRouteTable(routes: readonly Route[], catalog: Catalog): RouteTable {
  const own: CompiledRoute[] = [];
  const elsewhere = new Map<string, CompiledRoute[]>();
  for (const route of routes) {
    const compiled = compileRoute(route, catalog);
    if (route.listen === null && route.host === null) own.push(compiled);
    else {
      const place = placeOf(route);
      elsewhere.set(place, [...(elsewhere.get(place) ?? []), compiled]);
    }
  }
  const routesAt = (entrance: Entrance): readonly CompiledRoute[] => {
    switch (entrance.kind) {
      case 'own':
        return own;
      case 'routes':
        return elsewhere.get(placeOf(entrance)) ?? [];
      case 'none':
        return [];
    }
  };
  return {
    locate: (path, entrance) => {
      for (const route of routesAt(entrance)) {
        const { prefix } = route.route;
        if (!path.startsWith(prefix)) continue;
        const rest = path.slice(prefix.length);
        if (rest === '' || rest.startsWith('/')) return { route, rest: rest === '' ? '/' : rest };
      }
      return null;
    },
    match: (compiledRoute, method, segments) => {
      const found = find(compiledRoute, method, segments);
      if (found !== null) return found;
      if (method === 'HEAD') {
        const read = find(compiledRoute, 'GET', segments);
        if (read?.kind === 'rule' && read.tool.kind === 'read') return read;
      }
      const { route, undeclared: tool } = compiledRoute;
      return { kind: 'undeclared', route, tool, resembles: resembles(compiledRoute, segments) };
    },
  };
}

function find({ route, rules }: CompiledRoute, method: string, segments: readonly string[]): RouteMatch | null {
  // Rules with this method and length. Those with more fixed segments come first. The configuration makes sure that, if
  // two rules match, one of them has all the fixed segments of the other.
  for (const { rule, tool, pattern, before } of rules.get(`${method} ${segments.length}`) ?? []) {
    const pathParams = matchPattern(pattern, segments);
    if (pathParams === null) continue;
    // `/users/ME` matches no rule: it fits `/users/:id`, but some servers take it for `/users/me`.
    if (before.some((each) => isTakenFor(each, segments))) return null;
    return { kind: 'rule', route, rule, tool, pathParams };
  }
  return null;
}

/**
 * Whether some server may take segments for those of a pattern, because it ignores case, changes the Unicode form,
 * leaves out what nobody sees, or cuts off an end.
 */
function isTakenFor(pattern: readonly PatternSegment[], segments: readonly string[]): boolean {
  return pattern.every((part, index) => part.kind === 'param' || fold(part.text) === asCut(segments[index] ?? ''));
}

function asCut(segment: string): string {
  let text = segment;
  // Each turn removes one level of encoding. A text without any ends the loop.
  while (/%[0-9a-f]{2}/i.test(text)) {
    const decoded = decodedOnce(text);
    if (decoded === text) break;
    text = decoded;
  }
  return fold(
    text
      .trim()
      .replace(/;.*$/s, '')
      .replace(/[\s.]+$/, ''),
  );
}

function decodedOnce(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Many servers take such a path for the declared one, so it must not get around the rule. */
function resembles({ reads }: CompiledRoute, segments: readonly string[]): boolean {
  if (!segments.every(isReadAlike)) return true;
  const folded = withoutLastSlash(segments, segments.at(-1) === '').map(fold);
  return reads.some(
    (pattern) =>
      pattern.length === folded.length &&
      pattern.every((part, index) => part.kind === 'param' || fold(part.text) === folded[index]),
  );
}

function fold(text: string): string {
  return withoutInvisible(text.normalize('NFKC')).toLowerCase();
}

function withoutLastSlash<T>(segments: readonly T[], lastIsEmpty: boolean): readonly T[] {
  return lastIsEmpty ? segments.slice(0, -1) : segments;
}

function compileRoute(route: Route, catalog: Catalog): CompiledRoute {
  const found = new Map<string, CompiledRule[]>();
  const reads: (readonly PatternSegment[])[] = [];
  for (const rule of route.rules) {
    const pattern = readPattern(rule.path);
    const tool = catalog.tool(rule.tool);
    if (pattern === null || tool === null || !isHttpTool(tool)) {
      throw new Error(`the rule ${rule.method} ${rule.path} of ${route.prefix} cannot be used`);
    }
    const last = pattern.at(-1);
    if (rule.method === 'GET' || rule.method === 'HEAD')
      reads.push(withoutLastSlash(pattern, last?.kind === 'literal' && last.text === ''));
    const key = `${rule.method} ${pattern.length}`;
    const same = found.get(key);
    if (same === undefined) found.set(key, [{ rule, tool, pattern, before: [] }]);
    else same.push({ rule, tool, pattern, before: [] });
  }
  const rules = new Map([...found].map(([key, same]) => [key, inOrder(same)] as const));
  return { route, undeclared: undeclaredRead(route.upstream), rules, reads };
}

function inOrder(rules: readonly CompiledRule[]): readonly CompiledRule[] {
  const fixed = rules
    .toSorted((a, b) => paramsOf(a) - paramsOf(b))
    .map((rule) => ({ rule, segments: segmentsOf(rule) }));
  return fixed.map(({ rule, segments }) =>
    paramsOf(rule) === 0
      ? rule
      : {
          ...rule,
          before: fixed
            .filter((other) => other.rule !== rule && isWithin(other.segments, segments))
            .map((other) => other.rule.pattern),
        },
  );
}

function paramsOf({ pattern }: CompiledRule): number {
  return pattern.filter(({ kind }) => kind === 'param').length;
}

function segmentsOf({ pattern }: CompiledRule): Segments {
  return pattern.map((part) => (part.kind === 'literal' ? part.text : null));
}
