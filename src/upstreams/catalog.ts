import { Ajv2020, type AnySchema, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import ajvFormats from 'ajv-formats';
import { RE2JS } from 're2js';
import { isJsonObject, type Json, type JsonObject } from '../effects/json.ts';
import type { RequestFault } from '../effects/run-request.ts';
import type { Tool } from '../effects/tool.ts';
import { misfit, placeOf, planOf, renderRequest, type RequestPlan } from './request-template.ts';

/** The tools of a configuration, with what follows from their declarations. */
export interface Catalog {
  tool(name: string): Tool | null;
  tools(): readonly Tool[];
  /**
   * All faults of params, empty when they may be evaluated and sent: schema, params without a use, params that do not
   * fit their place, what the target needs. Nothing is filled in or coerced. Paths are JSON Pointers, `/params/…`.
   */
  check(tool: Tool, params: JsonObject): readonly RequestFault[];
  /** The target that checked params name; `null` where the tool has no template. */
  target(tool: Tool, params: JsonObject): string | null;
  /** Path and query of the request that checked params stand for. */
  requestPath(tool: Tool, params: JsonObject): string;
  /**
   * The value of a param that came as a text (path, query, header): the schema's type, where the text is exactly how
   * that value is written; the text itself otherwise.
   */
  textParam(tool: Tool, name: string, text: string): Json;
}

interface CompiledTool {
  readonly plan: RequestPlan;
  readonly validate: ValidateFunction | null;
  readonly target: readonly TargetPart[] | null;
  /** Types of params whose text is not a string. */
  readonly textTypes: ReadonlyMap<string, 'integer' | 'number' | 'boolean'>;
}

type TargetPart =
  | { readonly kind: 'literal'; readonly text: string }
  | { readonly kind: 'param'; readonly name: string; readonly last: boolean };

/**
 * Compiles the tools of a configuration.
 * @throws Error naming the tool whose schema or request cannot be used
 */
export function createCatalog(tools: readonly Tool[]): Catalog {
  const ajv = createAjv();
  const byName = new Map<string, Tool>();
  const compiled = new Map<string, CompiledTool>();
  for (const tool of tools) {
    byName.set(tool.name, tool);
    compiled.set(tool.name, compileTool(ajv, tool));
  }
  const of = (tool: Tool): CompiledTool => {
    const found = compiled.get(tool.name);
    if (found === undefined) throw new Error(`the tool ${tool.name} is not in this catalog`);
    return found;
  };
  return {
    tool: (name) => byName.get(name) ?? null,
    tools: () => tools,
    check: (tool, params) => checkParams(of(tool), params),
    target: (tool, params) => renderTarget(of(tool).target, params),
    requestPath: (tool, params) => renderRequest(of(tool).plan, params).pathAndQuery,
    textParam: (tool, name, text) => readText(of(tool).textTypes.get(name), text),
  };
}

function createAjv(): Ajv2020 {
  const linear = Object.assign((pattern: string) => linearRegex(pattern), { code: 'linearRegex' });
  const ajv = new Ajv2020({
    strict: true,
    // Schemas of params are written by hand; these would refuse sound ones.
    strictRequired: false,
    strictTypes: false,
    strictTuples: false,
    allErrors: true,
    useDefaults: false,
    coerceTypes: false,
    removeAdditional: false,
    ownProperties: true,
    // Patterns are matched in linear time: they meet what agents write.
    code: { regExp: linear },
  });
  ajvFormats.default(ajv);
  return ajv;
}

/** A pattern as Ajv wants it: found anywhere in the text. */
function linearRegex(pattern: string): { test(text: string): boolean; toString(): string } {
  const compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
  return { test: (text) => compiled.matcher(text).find(), toString: () => pattern };
}

function compileTool(ajv: Ajv2020, tool: Tool): CompiledTool {
  try {
    const plan = planOf(tool.request);
    if (tool.state !== null) planOf(tool.state);
    return {
      plan,
      validate: tool.paramsSchema === null ? null : ajv.compile(tool.paramsSchema as AnySchema),
      target: tool.target === null ? null : readTarget(tool.target),
      textTypes: textTypes(tool.paramsSchema),
    };
  } catch (error) {
    throw new Error(`tool ${tool.name}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}

function checkParams(tool: CompiledTool, params: JsonObject): readonly RequestFault[] {
  const faults = new Map<string, RequestFault>();
  const add = (path: string, message: string): void => {
    if (!faults.has(path)) faults.set(path, { path, message });
  };
  if (tool.validate !== null && !tool.validate(params)) {
    for (const error of tool.validate.errors ?? []) add(...schemaFault(error));
  }
  for (const [name, value] of Object.entries(params)) {
    const place = placeOf(tool.plan, name);
    const message = place === null ? 'is a param that no part of the request uses' : misfit(place, value);
    if (message !== null) add(pathOf(name), message);
  }
  for (const [name, place] of tool.plan.places) {
    if (place.in === 'path' && !Object.hasOwn(params, name)) add(pathOf(name), 'is required: the path needs it');
  }
  for (const part of tool.target ?? []) {
    if (part.kind === 'param' && !isTargetValue(params[part.name])) {
      add(pathOf(part.name), 'names the target: it must be a string that is not empty, or an integer');
    }
  }
  return [...faults.values()];
}

function schemaFault(error: ErrorObject): [string, string] {
  const base = `/params${error.instancePath}`;
  const named = (name: unknown): string => `${base}/${pointer(String(name))}`;
  switch (error.keyword) {
    case 'required':
      return [named(error.params['missingProperty']), 'is required'];
    case 'additionalProperties':
      return [named(error.params['additionalProperty']), 'is not a param of this tool'];
    case 'unevaluatedProperties':
      return [named(error.params['unevaluatedProperty']), 'is not a param of this tool'];
    case 'enum':
      return [base, `must be one of ${JSON.stringify(error.params['allowedValues'])}`];
    case 'const':
      return [base, `must be ${JSON.stringify(error.params['allowedValue'])}`];
    default:
      return [base, error.message ?? `breaks the rule ${error.keyword}`];
  }
}

function pathOf(name: string): string {
  return `/params/${pointer(name)}`;
}

/** A name as a token of a JSON Pointer (RFC 6901). */
function pointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}

function readTarget(template: string): readonly TargetPart[] {
  const parts = template.split(/(\{[^{}]+\})/).filter((text) => text !== '');
  return parts.map((text, index) =>
    text.startsWith('{') && text.endsWith('}')
      ? { kind: 'param', name: text.slice(1, -1), last: index === parts.length - 1 }
      : { kind: 'literal', text },
  );
}

/**
 * A value that is not at the end has its separators encoded, so that no two sets of params have one target, and none
 * can be written to look like another.
 */
function renderTarget(parts: readonly TargetPart[] | null, params: JsonObject): string | null {
  if (parts === null) return null;
  let target = '';
  for (const part of parts) {
    if (part.kind === 'literal') {
      target += part.text;
      continue;
    }
    const value = params[part.name];
    if (!isTargetValue(value)) throw new Error(`the param ${part.name} does not name a target`);
    target += part.last ? String(value) : encodeURIComponent(String(value));
  }
  return target;
}

function isTargetValue(value: Json | undefined): value is string | number {
  return typeof value === 'string' ? value !== '' : Number.isSafeInteger(value);
}

function textTypes(schema: JsonObject | null): ReadonlyMap<string, 'integer' | 'number' | 'boolean'> {
  const types = new Map<string, 'integer' | 'number' | 'boolean'>();
  const properties = schema?.['properties'];
  if (!isJsonObject(properties)) return types;
  for (const [name, property] of Object.entries(properties)) {
    const type = isJsonObject(property) ? property['type'] : undefined;
    if (type === 'integer' || type === 'number' || type === 'boolean') types.set(name, type);
  }
  return types;
}

function readText(type: 'integer' | 'number' | 'boolean' | undefined, text: string): Json {
  if (type === undefined) return text;
  if (type === 'boolean') return text === 'true' ? true : text === 'false' ? false : text;
  const value = Number(text);
  // Only the one spelling that rendering would give, so that what is sent is what was evaluated.
  return Number.isFinite(value) && String(value) === text && (!Number.isInteger(value) || Number.isSafeInteger(value))
    ? value
    : text;
}
