import { MOST_FAULTS } from '../diagnostics/stop-at.ts';
import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import { MAX_TARGET, type McpCall, pinnedCall, type Tool } from '../effects/model/tool.ts';
import { pointerTo } from '../json/pointer.ts';
import { createParamsSchemas, type ParamsCheck, type ParamsSchemas } from './params-schema.ts';
import { misfits } from './http/request-fit.ts';
import { planOf, type RequestPlan } from './http/request-template.ts';

/** The tools of a configuration, with everything derived from their declarations. */
export interface Catalog {
  tool(name: string): Tool | null;
  tools(): readonly Tool[];
  /**
   * The faults of params, at most {@link MOST_FAULTS}; empty if the params may be evaluated and sent. Checked are the
   * schema, params without a use, params that do not fit their place, and what the target needs. Nothing is filled in
   * or coerced. Paths are JSON Pointers, `/params/…`.
   */
  check(tool: Tool, params: JsonObject): readonly RequestFault[];
  /** The target that checked params name; `null` if the tool has no template. */
  target(tool: Tool, params: JsonObject): string | null;
  /**
   * The value of a param that came as a text (path, query, header). It gets the schema's type if the text is exactly
   * how that value is written. Otherwise it is the text itself.
   */
  textParam(tool: Tool, name: string, text: string): Json;
}

/** A tool of an MCP server that was pinned. */
export interface PinnedAt {
  readonly tool: Tool;
  readonly call: McpCall;
}

/** The pinned tool that a server calls so; `null` if there is none. */
export function pinnedAt(catalog: Pick<Catalog, 'tool'>, upstream: string, name: string): PinnedAt | null {
  const tool = catalog.tool(`${upstream}.${name}`);
  const call = tool === null ? null : pinnedCall(tool);
  return tool !== null && call?.name === name ? { tool, call } : null;
}

interface CompiledTool {
  /** `null`: params are sent as they are, as arguments. */
  readonly plan: RequestPlan | null;
  readonly schema: JsonObject | null;
  readonly checkSchema: ParamsCheck | null;
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
  const steps = catalogInSteps(tools);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Like {@link createCatalog}, one tool per step. */
export function* catalogInSteps(tools: readonly Tool[]): Generator<void, Catalog> {
  const schemas = createParamsSchemas();
  const byName = new Map<string, Tool>();
  const compiled = new Map<string, CompiledTool>();
  for (const tool of tools) {
    byName.set(tool.name, tool);
    compiled.set(tool.name, compileTool(schemas, tool));
    yield;
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
    textParam: (tool, name, text) => readText(of(tool).textTypes.get(name), text),
  };
}

function compileTool(schemas: ParamsSchemas, tool: Tool): CompiledTool {
  try {
    return {
      plan: planOfCall(tool.call),
      schema: tool.paramsSchema,
      checkSchema: tool.paramsSchema === null ? null : schemas(tool.paramsSchema),
      target: tool.target === null ? null : readTarget(tool.target),
      textTypes: textTypes(tool.paramsSchema),
    };
  } catch (error) {
    throw new Error(`tool ${tool.name}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}

function planOfCall(call: Tool['call']): RequestPlan | null {
  switch (call.kind) {
    case 'http':
      if (call.state !== null) planOf(call.state);
      return planOf(call.request);
    case 'mcp':
      return null;
  }
}

function checkParams(tool: CompiledTool, params: JsonObject): readonly RequestFault[] {
  const faults = new Map<string, RequestFault>();
  const add = (path: string, message: string): void => {
    if (!faults.has(path)) faults.set(path, { path, message });
  };
  for (const { path, message } of tool.checkSchema?.(params) ?? []) add(path, message);
  const most = MOST_FAULTS - faults.size;
  const { plan, schema } = tool;
  for (const { name, message } of plan === null ? [] : misfits({ plan, schema }, params, most))
    add(pathOf(name), message);
  const target = tool.target ?? [];
  for (const part of target) {
    if (part.kind === 'param' && !isTargetValue(params[part.name])) {
      add(pathOf(part.name), 'names the target: it must be a string that is not empty, or an integer');
    }
  }
  if (faults.size === 0 && (renderTarget(tool.target, params)?.length ?? 0) > MAX_TARGET) {
    for (const part of target) {
      if (part.kind === 'param')
        add(pathOf(part.name), `names the target, which may have at most ${MAX_TARGET} characters`);
    }
  }
  return [...faults.values()];
}

/** The most characters of a name that a path shows. */
const MOST_SHOWN = 300;

function pathOf(name: string): string {
  return `/params${pointerTo([name], MOST_SHOWN)}`;
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
 * Separators in a value are encoded unless the value is the last one. So no two sets of params have the same target,
 * and no value can imitate another target.
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
  // Only the spelling that rendering would give, so that what is sent is what was evaluated.
  return Number.isFinite(value) && String(value) === text && (!Number.isInteger(value) || Number.isSafeInteger(value))
    ? value
    : text;
}
