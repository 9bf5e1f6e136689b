import { percentDecoded } from '../bytes/percent-decoded.ts';
import type { Route, RouteRule } from '../config/configuration.ts';
import { type Entrance, placeOf } from '../config/entrance.ts';
import { isAmbiguous, isNumber, isNumberText, isWithin, REST, type Segments } from '../config/rule-order.ts';
import { undeclaredRead } from '../config/stand-in-tools.ts';
import { type HttpTool, isHttpTool } from '../effects/model/tool.ts';
import type { Catalog } from '../upstreams/catalog.ts';
import {
  fitsDecoded,
  holdsSlashes,
  isReadAlike,
  matchPattern,
  type PatternSegment,
  readPattern,
  withoutInvisible,
} from '../upstreams/http/url.ts';
import { planOf, type RequestPlan } from '../upstreams/http/request-template.ts';

export type RouteMatch =
  | {
      readonly kind: 'rule';
      readonly route: Route;
      readonly rule: RouteRule;
      readonly tool: HttpTool;
      readonly plan: RequestPlan;
      /** Params of the path, as texts. */
      readonly pathParams: Readonly<Record<string, string>>;
    }
  /** The route exists, but none of its rules matches. */
  | {
      readonly kind: 'undeclared';
      readonly route: Route;
      readonly tool: HttpTool;
      /**
       * Some server may take the path for a declared one. A rule for GET or HEAD would match with other case, another
       * Unicode form, the other of the two methods, or one "/" more or less; or servers do not all read a segment in
       * the same way.
       */
      readonly resembles: boolean;
    }
  | { readonly kind: 'none' };

export type RuleMatch = Extract<RouteMatch, { kind: 'rule' }>;

export type RouteTable = ReturnType<typeof createRouteTable>;

export interface CompiledRoute {
  readonly route: Route;
  readonly undeclared: HttpTool;
  readonly rules: ReadonlyMap<string, readonly CompiledRule[]>;
  /** Patterns of the rules for GET and HEAD, folded, without a "/" at the end. */
  readonly reads: readonly (readonly PatternSegment[])[];
  /** Whether a param of some rule may hold slashes, so that a path may have them encoded. */
  readonly takesSlashes: boolean;
}

interface CompiledRule {
  readonly rule: RouteRule;
  readonly tool: HttpTool;
  readonly plan: RequestPlan;
  readonly pattern: readonly PatternSegment[];
  /**
   * Patterns, folded, of rules that win over this one if both match: `/users/me` wins over `/users/:id`. Over a rule whose
   * params may hold slashes those win, too, that a server finds which decodes slashes first.
   */
  readonly before: readonly (readonly PatternSegment[])[];
  /** Params that have to be numbers, because another rule matches where they are none. */
  readonly numbers: readonly string[];
}

/** Compiles routes. @throws Error on a rule that the configuration should have refused */
export function createRouteTable(routes: readonly Route[], catalog: Catalog) {
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
    /** The route of an entrance whose prefix matches a raw path, and the rest of the path as it will be sent. */
    locate: (path: string, entrance: Entrance): { readonly route: CompiledRoute; readonly rest: string } | null => {
      for (const route of routesAt(entrance)) {
        const { prefix } = route.route;
        if (!path.startsWith(prefix)) continue;
        const rest = path.slice(prefix.length);
        if (rest === '' || rest.startsWith('/')) return { route, rest: rest === '' ? '/' : rest };
      }
      return null;
    },
    /** The rule that matches. Reads: a rule for GET also covers HEAD. */
    match: (compiledRoute: CompiledRoute, method: string, segments: readonly string[]): RouteMatch => {
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
  // two rules match, one of them has all the fixed segments of the other. Those for the rest of a path come last.
  for (const some of [rules.get(`${method} ${segments.length}`), rules.get(`${method} *`)])
    for (const { rule, tool, plan, pattern, before, numbers } of some ?? []) {
      const pathParams = matchPattern(pattern, segments);
      if (pathParams === null || !numbers.every((name) => isNumberText(pathParams[name] ?? ''))) continue;
      // `/users/ME` matches no rule: it fits `/users/:id`, but some servers take it for `/users/me`.
      if (before.length > 0) {
        const cut = decodedSegments(segments).map(asCut);
        if (before.some((each) => fitsDecoded(each, cut))) return null;
      }
      return { kind: 'rule', route, rule, tool, plan, pathParams };
    }
  return null;
}

/** Segments as a server sees them that decodes slashes before it looks at segments. */
function decodedSegments(segments: readonly string[]): readonly string[] {
  return segments.flatMap((segment) => segment.split('/'));
}

/**
 * A segment as some server may take it, because it ignores case, changes the Unicode form, leaves out what nobody sees, or
 * cuts off an end.
 */

function asCut(segment: string): string {
  let text = segment;
  // Each turn removes one level of encoding. A text without any ends the loop.
  while (/%[0-9a-f]{2}/i.test(text)) {
    const decoded = percentDecoded(text);
    if (decoded === null) break;
    text = decoded;
  }
  return fold(
    text
      .trim()
      .replace(/;.*$/s, '')
      .replace(/[\s.]+$/, ''),
  );
}

/** Many servers take such a path for the declared one, so it must not get around the rule. */
function resembles({ reads }: CompiledRoute, segments: readonly string[]): boolean {
  if (!segments.every(isReadAlike)) return true;
  const folded = withoutLastSlash(segments, segments.at(-1) === '').map(fold);
  return reads.some((pattern) => fitsDecoded(pattern, folded));
}

function foldedPattern(pattern: readonly PatternSegment[]): readonly PatternSegment[] {
  return pattern.map((part) => (part.kind === 'param' ? part : { kind: 'literal', text: fold(part.text) }));
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
    const tool = catalog.tool(rule.tool);
    const request = tool !== null && isHttpTool(tool) ? tool.call.request : null;
    const pattern = readPattern(rule.path, request?.encodedSlashes);
    if (pattern === null || tool === null || !isHttpTool(tool)) {
      throw new Error(`the rule ${rule.method} ${rule.path} of ${route.prefix} cannot be used`);
    }
    const last = pattern.at(-1);
    if (rule.method === 'GET' || rule.method === 'HEAD')
      reads.push(foldedPattern(withoutLastSlash(pattern, last?.kind === 'literal' && last.text === '')));
    const isRest = last?.kind === 'param' && last.holds === 'any';
    const key = `${rule.method} ${isRest ? '*' : pattern.length}`;
    const compiled = { rule, tool, plan: planOf(tool.call.request), pattern, before: [], numbers: [] };
    const same = found.get(key);
    if (same === undefined) found.set(key, [compiled]);
    else same.push(compiled);
  }
  const all = [...found.values()].flat();
  const rules = new Map([...found].map(([key, same]) => [key, inOrder(same, all)] as const));
  const takesSlashes = all.some(({ pattern }) => holdsSlashes(pattern));
  return { route, undeclared: undeclaredRead(route.upstream), rules, reads, takesSlashes };
}

/** @param all the rules of the route */
function inOrder(rules: readonly CompiledRule[], all: readonly CompiledRule[]): readonly CompiledRule[] {
  const sorted = rules.toSorted((a, b) => b.pattern.length - a.pattern.length || paramsOf(a) - paramsOf(b));
  return sorted.map((rule) => {
    if (paramsOf(rule) === 0) return rule;
    const segments = segmentsOf(rule);
    const winners = holdsSlashes(rule.pattern)
      ? all.filter((one) => one.rule.method === rule.rule.method && !isWithin(segments, segmentsOf(one)))
      : sorted.filter((one) => one !== rule && isWithin(segmentsOf(one), segments));
    const isCrossed = rules.some((one) => one !== rule && isAmbiguous(segmentsOf(one), segments));
    return {
      ...rule,
      before: winners.map(({ pattern }) => foldedPattern(pattern.map(asOne))),
      numbers: isCrossed
        ? rule.pattern.flatMap((part) =>
            part.kind === 'param' && isNumber(part.name, rule.tool.paramsSchema) ? [part.name] : [],
          )
        : [],
    };
  });
}

/** A server that decodes slashes first has them in the rest of a path only. */
function asOne(part: PatternSegment): PatternSegment {
  return part.kind === 'param' && part.holds === 'encoded' ? { kind: 'param', name: part.name } : part;
}

function paramsOf({ pattern }: CompiledRule): number {
  return pattern.filter(({ kind }) => kind === 'param').length;
}

function segmentsOf({ pattern }: CompiledRule): Segments {
  return pattern.map((part) => (part.kind === 'literal' ? part.text : part.holds === 'any' ? REST : null));
}
