import { canonicalJson } from '../json/text.ts';
import { followSteps, isJsonObject, type Json, type JsonObject, type Step, pointerTo } from '../json/value.ts';
import { MAX_TARGET, type McpCall, pinnedCall, type Tool } from '../effects/model/tool.ts';
import { paramSteps, splitTemplate } from '../effects/model/param-template.ts';
import { memberSchema, readTyped, type SchemaAt, typesOf } from '../json/schema-walk.ts';
import { planOf, type RequestPlan, misfit, type Place, placeOf } from './http/request-template.ts';
import { CLASHES, foldedName, formMisfit, MOST_SHOWN, overrideFault } from './http/form.ts';
import { multipartMisfit, opaqueMisfit } from './http/multipart-body.ts';
import { queryMisfit, restMisfit } from './http/url.ts';
import { Ajv2020, type AnySchema, type ErrorObject, type Options, type ValidateFunction } from 'ajv/dist/2020.js';
import ajvFormats from 'ajv-formats';
import { RE2JS } from 're2js';
import { MOST_FAULTS, stopAt } from '../diagnostics/stop-at.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import { shortened } from '../effects/model/shortened.ts';

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
  readonly textTypes: ReadonlyMap<string, SchemaAt>;
}

/** A text, or the place of a value in the params. */
type TargetPart = string | { readonly steps: readonly Step[]; readonly last: boolean };

/** Compiles the tools of a configuration. @throws Error naming the tool whose schema or request cannot be used */
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
    textParam: (tool, name, text) => {
      const at = of(tool).textTypes.get(name);
      return at === undefined ? text : readTyped(at, text);
    },
  };
}

function compileTool(schemas: ParamsSchemas, tool: Tool): CompiledTool {
  try {
    return {
      plan: planOfCall(tool.call),
      schema: tool.paramsSchema,
      checkSchema: tool.paramsSchema === null ? null : schemas(tool.paramsSchema),
      target: tool.target === null ? null : readTarget(tool.target, tool.paramsSchema),
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
  const violations = tool.checkSchema?.(params) ?? NO_FAULTS;
  const { plan, schema } = tool;
  const most = violations.length === 0 ? MOST_FAULTS : MOST_FAULTS - new Set(violations.map(({ path }) => path)).size;
  const unfit = plan === null ? NONE : misfits({ plan, schema }, params, most);
  return violations.length === 0 && unfit.length === 0 && isTargetShort(tool.target, params)
    ? NO_FAULTS
    : faultsOf(tool, params, violations, unfit);
}

/** A character of UTF-16 takes at most this many in a target: three bytes, each percent-encoded. */
const MOST_ENCODED = 9;

/** Whether params name a target that has room however it is spelled: without rendering it, which is done once it is needed. */
function isTargetShort(parts: readonly TargetPart[] | null, params: JsonObject): boolean {
  let most = 0;
  for (const part of parts ?? NO_PARTS) {
    const text = typeof part === 'string' ? part : targetValue(params, part.steps);
    if (text === undefined) return false;
    most += String(text).length * MOST_ENCODED;
  }
  return most <= MAX_TARGET;
}

function faultsOf(
  tool: CompiledTool,
  params: JsonObject,
  violations: readonly RequestFault[],
  unfit: readonly Misfit[],
): readonly RequestFault[] {
  const faults = new Map<string, RequestFault>();
  const add = (path: string, message: string): void => {
    if (!faults.has(path)) faults.set(path, { path, message });
  };
  for (const { path, message } of violations) add(path, message);
  for (const { name, message } of unfit) add(pathOf([name]), message);
  const target = tool.target ?? NO_PARTS;
  for (const part of target) {
    if (typeof part !== 'string' && targetValue(params, part.steps) === undefined)
      add(pathOf(part.steps), 'names the target: it must be a string that is not empty, or an integer');
  }
  if (faults.size === 0 && (renderTarget(tool.target, params)?.length ?? 0) > MAX_TARGET) {
    for (const part of target) {
      if (typeof part !== 'string')
        add(pathOf(part.steps), `names the target, which may have at most ${MAX_TARGET} characters`);
    }
  }
  return [...faults.values()];
}

function pathOf(steps: readonly Step[]): string {
  return `/params${pointerTo(steps, MOST_SHOWN)}`;
}

/** @throws Error on a template that the configuration should have refused */
function readTarget(template: string, schema: JsonObject | null): readonly TargetPart[] {
  const parts = splitTemplate(template);
  return parts.flatMap((text, index): TargetPart[] => {
    if (index % 2 === 0) return text === '' ? [] : [text];
    const steps = paramSteps(text, schema);
    if (steps === null) throw new Error(`the target names no param '${text}'`);
    return [{ steps, last: index === parts.length - 2 && parts.at(-1) === '' }];
  });
}

/**
 * Separators in a value are encoded unless the value is the last one. So no two sets of params have the same target,
 * and no value can imitate another target.
 */
function renderTarget(parts: readonly TargetPart[] | null, params: JsonObject): string | null {
  if (parts === null) return null;
  let target = '';
  for (const part of parts) {
    if (typeof part === 'string') {
      target += part;
      continue;
    }
    const value = targetValue(params, part.steps);
    if (value === undefined) throw new Error(`the param ${part.steps.join('.')} does not name a target`);
    target += part.last ? String(value) : encodeURIComponent(String(value));
  }
  return target;
}

/** The value at a place, if it can name a target. */
function targetValue(params: JsonObject, steps: readonly Step[]): string | number | undefined {
  const value = followSteps(params, steps);
  if (typeof value === 'string') return value === '' ? undefined : value;
  return typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined;
}

/** Schemas of params whose texts are numbers or booleans. */
function textTypes(schema: JsonObject | null): ReadonlyMap<string, SchemaAt> {
  const properties = schema?.['properties'];
  const names = isJsonObject(properties) ? Object.keys(properties) : [];
  return new Map(
    names.flatMap((name) => {
      const at = memberSchema({ schema, root: schema }, name);
      const types = typesOf(at);
      return types.has('integer') || types.has('number') || types.has('boolean') ? [[name, at]] : [];
    }),
  );
}

/** The request that a tool declares, with the schema of its params. */
interface DeclaredRequest {
  readonly plan: RequestPlan;
  readonly schema: JsonObject | null;
}

/** A param that cannot stand where the request has it, or that the request needs. */
interface Misfit {
  readonly name: string;
  readonly message: string;
}

/** Most calls have none. */
const NONE: readonly Misfit[] = [];
const NO_FAULTS: readonly RequestFault[] = [];
const NO_PARTS: readonly TargetPart[] = [];

/**
 * What keeps params from becoming the request: params without a place, those that do not fit theirs, and missing parts
 * of the path.
 * @param most after as many, no further params are looked at; what the path misses is always said
 */
function misfits(request: DeclaredRequest, params: JsonObject, most: number): readonly Misfit[] {
  const { plan } = request;
  let found: Misfit[] | null = null;
  let fields: Set<string> | null = null;
  for (const name of Object.keys(params)) {
    if ((found?.length ?? 0) >= most) break;
    const value = params[name] ?? null;
    const place = plan.places.get(name) ?? placeOf(plan, name);
    if (place?.in === 'body' && plan.bodyType === 'json') continue;
    const message =
      place === null
        ? 'is a param that no part of the request uses; if it stands in the query, add it to query of the request of the tool, or query_rest: NAME for all that is there'
        : place.in === 'body'
          ? (fieldFault(plan, name, (fields ??= new Set())) ?? bodyMisfit(request, name, value))
          : (misfit(place, value) ?? (place.in === 'query' ? queryPartsMisfit(request, place, name, params) : null));
    if (message !== null) (found ??= []).push({ name, message });
  }
  for (const [name, place] of plan.places) {
    if (place.in === 'path' && !Object.hasOwn(params, name))
      (found ??= []).push({ name, message: 'is required: the path needs it' });
  }
  return found ?? NONE;
}

function queryPartsMisfit(
  { plan, schema }: DeclaredRequest,
  place: Extract<Place, { in: 'query' }>,
  name: string,
  params: JsonObject,
): string | null {
  const value = params[name];
  if (place.style === null || value === undefined) return null;
  return place.style === 'rest'
    ? restMisfit(plan.query, value, params, schema)
    : queryMisfit(name, value, place.style, schema);
}

/** Why a name cannot be that of a field beside those before it, as `readForm` says; `null` if it can. */
function fieldFault({ places }: RequestPlan, name: string, before: Set<string>): string | null {
  const folded = foldedName(name);
  if (before.has(folded)) return CLASHES;
  before.add(folded);
  return places.has(name) ? null : overrideFault(name, 'body');
}

function bodyMisfit({ plan, schema }: DeclaredRequest, name: string, value: Json): string | null {
  const { bodyType, formLists: lists } = plan;
  switch (bodyType) {
    case 'json':
      return null;
    case 'form':
      return formMisfit(name, value, { lists, schema });
    case 'multipart':
      return multipartMisfit(name, value, { lists, schema });
    case 'opaque':
      return opaqueMisfit(value);
  }
}

/** The faults that a schema finds in params, at most {@link MOST_FAULTS}; paths are JSON Pointers, `/params/…`. */
type ParamsCheck = (params: JsonObject) => readonly RequestFault[];

/** Makes the checks of schemas. @throws Error on a schema that cannot be used */
type ParamsSchemas = (schema: JsonObject) => ParamsCheck;

/**
 * How much work patterns and formats may cost for one set of params. A pattern costs the size of its compiled form
 * times the length of the text. A format costs a fixed number of steps for each character. Matching is linear, and this
 * limits the factor.
 */
export const TEXT_STEPS = { most: 500_000, format: 16 } as const;

/**
 * Thrown inside a validator: a text that was not checked must count neither as valid nor, where a failure would let the
 * params pass, as invalid.
 */
class TextTooLong extends Error {}

/**
 * A compiler of params schemas (JSON Schema 2020-12). Nothing is filled in, coerced or removed. Every call is checked
 * by a validator that stops at the first fault. The validator that lists all faults is made only when there is a fault
 * to list. That a schema is one was checked where the configuration was read.
 */
export function createParamsSchemas(): ParamsSchemas {
  let left = 0;
  const take = (steps: number): void => {
    left -= steps;
    if (left < 0) throw new TextTooLong();
  };
  const judging = createAjv({}, take);
  let listing: Ajv2020 | null = null;
  return (schema) => {
    const judge = judging.compile(schema as AnySchema);
    let list: ValidateFunction | null = null;
    return (params) => {
      left = TEXT_STEPS.most;
      try {
        if (judge(params)) return [];
      } catch (error) {
        if (!(error instanceof TextTooLong)) throw error;
        return [{ path: '/params', message: 'hold more text under patterns and formats than is matched for one call' }];
      }
      const [first] = (judge.errors ?? []).map(faultOf);
      listing ??= createAjv({ allErrors: true, code: { process: stopAt(MOST_FAULTS) } }, take);
      list ??= listing.compile(schema as AnySchema);
      left = TEXT_STEPS.most;
      const faults = listed(list, params);
      return faults.length > 0 || first === undefined ? faults : [first];
    };
  };
}

function listed(validate: ValidateFunction, params: JsonObject): readonly RequestFault[] {
  try {
    if (validate(params)) return [];
  } catch (error) {
    if (!(error instanceof TextTooLong)) throw error;
    return [];
  }
  return (validate.errors ?? []).map(faultOf);
}

function createAjv(options: Options, take: (steps: number) => void): Ajv2020 {
  const regExp = Object.assign((pattern: string) => linearRegex(pattern, take), { code: 'linearRegex' });
  const ajv = new Ajv2020({
    strict: true,
    // People write schemas of params by hand; these options would refuse sound ones.
    strictRequired: false,
    strictTypes: false,
    strictTuples: false,
    useDefaults: false,
    coerceTypes: false,
    removeAdditional: false,
    validateSchema: false,
    ownProperties: true,
    ...options,
    // Patterns run in linear time, because agents choose the texts.
    code: { ...options.code, regExp },
  });
  ajvFormats.default(ajv);
  for (const [name, format] of Object.entries(ajv.formats)) {
    const test = textFormat(format);
    if (test !== null)
      ajv.addFormat(name, (text: string) => {
        take(text.length * TEXT_STEPS.format);
        return test(text);
      });
  }
  // Ajv compares every item with every other item, which takes quadratic time.
  ajv.removeKeyword('uniqueItems');
  ajv.addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    errors: false,
    error: { message: 'must not have the same item twice' },
    validate: (wanted: boolean, items: readonly Json[]) =>
      !wanted || new Set(items.map((item) => canonicalJson(item))).size === items.length,
  });
  return ajv;
}

/** The test for a format of texts; `null` for formats of numbers and for formats that are turned off. */
function textFormat(format: unknown): ((text: string) => boolean) | null {
  if (format instanceof RegExp) return (text) => format.test(text);
  if (typeof format === 'function') return (text) => format(text) === true;
  if (typeof format !== 'object' || format === null || ('type' in format && format.type === 'number')) return null;
  return 'validate' in format ? textFormat(format.validate) : null;
}

/** A pattern with the interface that Ajv wants. It may match anywhere in the text. */
function linearRegex(
  pattern: string,
  take: (steps: number) => void,
): { test(text: string): boolean; toString(): string } {
  const compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
  const size = compiled.programSize();
  return {
    test: (text) => {
      take(size * text.length);
      return compiled.test(text);
    },
    toString: () => pattern,
  };
}

const shown = (text: string): string => shortened(text, MOST_SHOWN);

function faultOf(error: ErrorObject): RequestFault {
  const base = `/params${error.instancePath}`;
  const at = (name: unknown): string => shown(`${base}${pointerTo([String(name)], MOST_SHOWN)}`);
  switch (error.keyword) {
    case 'required':
      return { path: at(error.params['missingProperty']), message: 'is required' };
    case 'additionalProperties':
      return { path: at(error.params['additionalProperty']), message: 'is not a param of this tool' };
    case 'unevaluatedProperties':
      return { path: at(error.params['unevaluatedProperty']), message: 'is not a param of this tool' };
    case 'enum':
      return { path: shown(base), message: shown(`must be one of ${JSON.stringify(error.params['allowedValues'])}`) };
    case 'const':
      return { path: shown(base), message: shown(`must be ${JSON.stringify(error.params['allowedValue'])}`) };
    default:
      return { path: shown(base), message: shown(error.message ?? `breaks the rule ${error.keyword}`) };
  }
}
