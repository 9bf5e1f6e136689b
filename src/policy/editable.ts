import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import type { Bounds, Editable } from '../effects/model/editable.ts';
import type { Tool } from '../effects/model/tool.ts';
import { memberSchema, placeInSchema } from '../json/schema-walk.ts';
import { isJsonArray, type Json, type JsonObject } from '../json/value.ts';
import { holds } from './compiled-condition.ts';
import type { CompiledRule } from './compiled-rule.ts';
import { below, type Reporter } from './reporter.ts';
import type { RulePlan } from './rule-plan.ts';
import { inputOfTool } from './tool-index.ts';
import type { PolicyFile } from './schema.ts';
import type { BoundsSource } from './schema-approval.ts';

/** Reads the params that approvers may change. @returns `null` where bounds are faulty (reported) */
export function compileEditable(
  source: Readonly<Record<string, BoundsSource>>,
  path: DataPath,
  report: Reporter,
): Editable | null {
  const read = Object.entries(source).map(([name, bounds]) => {
    const made = boundsOf(bounds);
    if (typeof made === 'string') report.error('wrong_value', below(path, name), `'${name}': ${made}`);
    return [name, made] as const;
  });
  const sound = read.flatMap(([name, made]) => (typeof made === 'string' ? [] : [[name, made] as const]));
  return sound.length === read.length ? Object.fromEntries(sound) : null;
}

/** The bounds, or what is wrong with them. */
function boundsOf({ min, max, one_of: of, max_length: maxLength }: BoundsSource): Bounds | string {
  const isRange = min !== undefined || max !== undefined;
  if ([isRange, of !== undefined, maxLength !== undefined].filter(Boolean).length !== 1)
    return 'bounds are min and max, or one_of, or max_length';
  if (of !== undefined) return { kind: 'choice', of };
  if (maxLength !== undefined) return { kind: 'text', maxLength };
  if (typeof min === 'number' && typeof max === 'number' && min > max) return `no number is from ${min} to ${max}`;
  return { kind: 'range', min: min ?? null, max: max ?? null };
}

/**
 * Finds params that approvers could never change: which no tool of the rule has, which name its target, or for which no
 * value is within the bounds and within the schema of the tool. Where that is so of all its tools it is an error.
 */
export function reportEditable(
  plans: readonly RulePlan[],
  rules: readonly CompiledRule[],
  file: PolicyFile,
  tools: readonly Tool[],
  report: Reporter,
): void {
  for (const [place, { id, approval }] of file.rules.entries()) {
    const index = plans.findIndex((plan) => plan.id === `${file.name}/${id}`);
    const rule = rules[index];
    const editable = plans[index]?.approval?.editable;
    if (rule === undefined || editable === undefined || approval === undefined) continue;
    const own = tools.filter((tool) => holds(rule.perTool, inputOfTool(tool), undefined, rule.unknownIs));
    for (const [name, bounds] of Object.entries(editable)) {
      const faults = own.flatMap((tool) => {
        const fault = faultFor(tool, name, bounds);
        return fault === null ? [] : [{ ...fault, tool: tool.name }];
      });
      const [first] = faults;
      if (first === undefined) continue;
      report[faults.length === own.length ? 'error' : 'warning'](
        'not_editable',
        ['rules', place, 'approval', 'editable', name],
        [`An approver cannot change '${name}' of ${first.tool}: ${first.message}`, first.hint],
      );
    }
  }
}

interface Fault {
  readonly message: string;
  readonly hint: string | null;
}

/** Why a param of a tool cannot be changed within these bounds, as far as the tool's schema says for certain. */
function faultFor({ paramsSchema, target }: Tool, name: string, bounds: Bounds): Fault | null {
  const fault = (message: string, hint: string | null = null): Fault => ({ message, hint });
  if (target !== null && namesIn(target).includes(name))
    return fault('it names the target, and another target is another call');
  if (paramsSchema === null) return null;
  const { types, missing } = placeInSchema(paramsSchema, [name]);
  if (missing !== null) return fault('the tool has no such param', didYouMean(name, missing.names));
  const { schema } = memberSchema({ schema: paramsSchema, root: paramsSchema }, name);
  if (!fits(bounds, types, schema ?? {})) return fault('no value within the bounds fits the params_schema of the tool');
  return null;
}

/** The params that a template of a target begins its places with. */
function namesIn(template: string): readonly string[] {
  return [...template.matchAll(/\{([^{}.[]+)/g)].map(([, name]) => name ?? '');
}

function fits(bounds: Bounds, types: ReadonlySet<string>, schema: JsonObject): boolean {
  const may = (...names: readonly string[]): boolean => types.size === 0 || names.some((name) => types.has(name));
  const { enum: words, minLength } = schema;
  const known = isJsonArray(words) ? words : null;
  switch (bounds.kind) {
    case 'range': {
      if (!may('number', 'integer')) return false;
      const from = Math.max(numberOr(bounds.min, -Infinity), numberOr(schema['minimum'], -Infinity));
      const to = Math.min(numberOr(bounds.max, Infinity), numberOr(schema['maximum'], Infinity));
      const wholeOnly = types.size > 0 && !types.has('number');
      if (known !== null) return known.some((one) => typeof one === 'number' && one >= from && one <= to);
      return from <= to && (!wholeOnly || !Number.isFinite(from) || Math.ceil(from) <= to);
    }
    case 'choice':
      return bounds.of.some((one) => may(...typesOf(one)) && (known === null || known.includes(one)));
    case 'text':
      return may('string') && numberOr(minLength, 0) <= bounds.maxLength;
  }
}

function numberOr(value: Json | undefined, otherwise: number): number {
  return typeof value === 'number' ? value : otherwise;
}

function typesOf(value: string | number | boolean): readonly string[] {
  if (typeof value !== 'number') return [typeof value];
  return Number.isInteger(value) ? ['number', 'integer'] : ['number'];
}
