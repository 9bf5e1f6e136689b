import { nearest } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import { splitTemplate } from '../effects/model/param-template.ts';
import type { Tool } from '../effects/model/tool.ts';
import { type Json, isJsonObject } from '../json/value.ts';
import { holds } from './compiled-condition.ts';
import type { CompiledRule } from './compiled-rule.ts';
import { type DecoratedOperator, type EngineCondition, isGroup, readOperator } from './engine-form.ts';
import { deadPattern } from './glob.ts';
import { isList, judgedType, judgement, type OperatorName, rightSideFault } from './operators.ts';
import { below, type Reporter } from './reporter.ts';
import type { RulePlan } from './rule-plan.ts';
import { inputOfTool } from './tool-index.ts';
import type { PolicyFile, RuleSource } from './schema.ts';
import type { Surroundings } from './set-context.ts';
import { contradictoryFact } from './value-range.ts';

/** Why a condition never holds, or what in it never does. */
interface Fault {
  readonly code: 'never_applies' | 'unknown_name';
  readonly message: string;
  readonly hint: string;
  /** The value, or the fact, at which the fault is shown. */
  readonly at: Json;
}

interface Known {
  readonly names: ReadonlyMap<string, readonly string[]>;
  readonly tools: () => readonly Tool[];
}

type Leaf = Exclude<EngineCondition, { all: unknown } | { any: unknown }>;

/**
 * Warns of rules that restrict and can never apply: they are over, they name what the configuration or the tool's schema
 * does not have, or no value can satisfy them. What they should have refused would pass without a word.
 */
export function warnOfNeverApplying(
  plans: readonly RulePlan[],
  rules: readonly CompiledRule[],
  file: PolicyFile,
  surroundings: Surroundings,
  report: Reporter,
): void {
  const names = new Map([...surroundings.declared, ...namesOfTools(surroundings.tools)]);
  const places = new Map(file.rules.map(({ id }, index) => [`${file.name}/${id}`, index]));
  for (const [index, plan] of plans.entries()) {
    const rule = rules[index];
    const place = places.get(plan.id);
    const source = place === undefined ? undefined : file.rules[place];
    if (plan.effect === 'allow' || rule === undefined || place === undefined || source === undefined) continue;
    const path: DataPath = ['rules', place];
    if (plan.until <= surroundings.now)
      report.warning('never_applies', below(path, 'until'), [
        `'${plan.id}' ended at ${String(source.until)} and applies to nothing any more`,
        'give it a later until, or remove it',
      ]);
    const { tools } = surroundings;
    const own = (): readonly Tool[] =>
      tools.filter((tool) => holds(rule.perTool, inputOfTool(tool), undefined, rule.unknownIs));
    const known: Known = { names, tools: own };
    const contradiction = contradictoryFact(plan.conditions, plan.symbols);
    const never = contradiction === null ? whyNever(plan.conditions, known) : contradicts(contradiction);
    const faults = [...(never === null ? [] : [never]), ...misspelt(plan.conditions, known)];
    for (const [message, { code, hint, at }] of new Map(faults.map((fault) => [fault.message, fault])))
      report.warning(code, below(path, ...placeOf(source, at)), [`'${plan.id}': ${message}`, hint]);
  }
}

function contradicts(fact: string): Fault {
  return {
    code: 'never_applies',
    message: `no value of ${fact} satisfies all its conditions on it`,
    hint: 'conditions that stand together must all hold: write any: [ … ] where one of them is enough',
    at: fact,
  };
}

/** Operators that name what a value is not: a rule that restricts all but what the schema lists is a second line. */
const EXCLUDING: ReadonlySet<string> = new Set(['notEqual', 'notIn']);

/** Why no call can satisfy a condition; `null` where one might. */
function whyNever(condition: EngineCondition, known: Known): Fault | null {
  if ('all' in condition) {
    for (const part of condition.all) {
      const fault = whyNever(part, known);
      if (fault !== null) return fault;
    }
    return null;
  }
  if ('any' in condition) {
    const faults = condition.any.map((part) => whyNever(part, known));
    return faults.every((fault) => fault !== null) ? (faults[0] ?? null) : null;
  }
  const operator = readOperator(condition.operator);
  if (operator.negated || operator.ifAbsent === true || EXCLUDING.has(operator.name)) return null;
  const unknown = unknownNames(condition, known);
  if (unknown !== null)
    return unknown.values.length === unknown.of ? unknownName(unknown.values[0] ?? '', unknown, known) : null;
  return whyNeverByPattern(condition, operator) ?? whyNeverByTools(condition, operator, known);
}

/** Names that are nearly those of the configuration, among others that it has. */
function misspelt(condition: EngineCondition, known: Known): readonly Fault[] {
  if ('all' in condition) return condition.all.flatMap((part) => misspelt(part, known));
  if ('any' in condition) return condition.any.flatMap((part) => misspelt(part, known));
  if (readOperator(condition.operator).negated) return [];
  const unknown = unknownNames(condition, known);
  if (unknown === null) return [];
  const all = known.names.get(unknown.fact) ?? [];
  return unknown.values
    .filter((value) => nearest(value, all) !== null)
    .map((value) => unknownName(value, unknown, known));
}

/** What the names of a fact are called. */
const CALLED: Readonly<Record<string, string>> = {
  env: 'environment',
  workspace: 'workspace',
  'agent.id': 'agent',
  'agent.team': 'team',
  'agent.roles': 'role of agents',
  'key.user': 'user',
  'tool.name': 'tool',
  'tool.upstream': 'upstream of tools',
  'tool.kind': 'kind of tools',
};

function namesOfTools(tools: readonly Tool[]): readonly (readonly [string, readonly string[]])[] {
  return [
    ['tool.name', tools.map(({ name }) => name)],
    ['tool.upstream', [...new Set(tools.map(({ upstream }) => upstream))]],
    ['tool.kind', ['read', 'write']],
  ];
}

interface UnknownNames {
  readonly fact: string;
  /** Those that the configuration does not have, of how many. */
  readonly values: readonly string[];
  readonly of: number;
}

/** The names that a leaf asks for and the configuration lacks; `null` where there are none. */
function unknownNames(leaf: Leaf, { names }: Known): UnknownNames | null {
  const declared = names.get(leaf.fact);
  if (declared === undefined || declared.length === 0) return null;
  const asked = namesAskedFor(leaf);
  const values = asked.filter((name) => !declared.includes(name));
  return values.length === 0 ? null : { fact: leaf.fact, values, of: asked.length };
}

function namesAskedFor({ operator, value }: Leaf): readonly string[] {
  const { name } = readOperator(operator);
  if (name === 'some' && isGroup(value)) {
    const [inner] = value.all;
    return inner !== undefined && 'fact' in inner && inner.fact === 'item' ? namesAskedFor(inner) : [];
  }
  if (name !== 'equal' && name !== 'in' && name !== 'contains') return [];
  return [value].flat().filter((one) => typeof one === 'string');
}

function unknownName(value: string, { fact }: UnknownNames, { names }: Known): Fault {
  const all = names.get(fact) ?? [];
  const near = nearest(value, all);
  return {
    code: 'unknown_name',
    message: `the configuration has no ${CALLED[fact] ?? fact} '${value}': the rule does not apply for it`,
    hint:
      near === null ? `it has ${all.slice(0, 8).join(', ')}${all.length > 8 ? ', …' : ''}` : `did you mean '${near}'?`,
    at: value,
  };
}

/** Patterns that no text fits. */
function whyNeverByPattern({ value }: Leaf, { name }: DecoratedOperator): Fault | null {
  if (name !== 'regex' && name !== 'regex_find') return null;
  const patterns = [value].flat().filter((one) => typeof one === 'string');
  const [dead] = patterns;
  if (dead === undefined || !patterns.every(deadPattern)) return null;
  const message = `no text fits the pattern ${dead}: ^ stands after, or $ before, what has to be there`;
  return { code: 'never_applies', message, hint: 'write \\^ or \\$ for the character itself', at: dead };
}

/** Values that the schema of a tool, or the template of its target, does not have: so for each tool of the rule. */
function whyNeverByTools(leaf: Leaf, { name }: DecoratedOperator, known: Known): Fault | null {
  const isOfCall = leaf.fact === 'target' || leaf.fact.startsWith('params.');
  if (!isOfCall || name === 'some' || name === 'every' || !isLiteral(leaf.value)) return null;
  let first: Fault | null = null;
  for (const tool of known.tools()) {
    const fault =
      leaf.fact === 'target'
        ? otherTarget(leaf.value, name, tool)
        : otherValue(leaf.fact, leaf.value, name, schemaOf(leaf.fact, tool), tool);
    if (fault === null) return null;
    first ??= fault;
  }
  return first;
}

function otherTarget(value: Json, operator: OperatorName, { name, target }: Tool): Fault | null {
  if (target === null || !['equal', 'in', 'glob', 'starts_with'].includes(operator)) return null;
  const begins = splitTemplate(target)[0] ?? '';
  const isOther = (one: string): boolean => {
    const wanted = (operator === 'glob' ? one.split(/[*?{\\]/)[0] : one) ?? '';
    return !begins.startsWith(wanted) && !wanted.startsWith(begins);
  };
  const values = (isList(value) ? value : [value]).filter((one) => typeof one === 'string');
  const [first] = values;
  if (first === undefined || !values.every(isOther)) return null;
  const message = `targets of ${name} are ${target}, never ${first}`;
  return { code: 'never_applies', message, hint: `begin the target with '${begins}'`, at: first };
}

function otherValue(fact: string, value: Json, operator: OperatorName, schema: Json, tool: Tool): Fault | null {
  if (!isJsonObject(schema) || rightSideFault(operator, value) !== null) return null;
  const { enum: listed, const: only, type } = schema;
  const values = isList(listed) ? listed : only === undefined ? null : [only];
  const at = isList(value) ? (value[0] ?? value) : value;
  if (values !== null && operator !== 'exists' && operator !== 'type') {
    const judge = judgement(operator, value);
    if (values.some((one) => judge(one) === true)) return null;
    const near =
      typeof at === 'string'
        ? nearest(
            at,
            values.filter((one) => typeof one === 'string'),
          )
        : null;
    return {
      code: 'never_applies',
      message: `${fact} of ${tool.name} is one of ${values.slice(0, 8).map(String).join(', ')}: none of them satisfies the condition`,
      hint: near === null ? 'compare it with a value of the schema' : `did you mean '${near}'?`,
      at,
    };
  }
  const needed = judgedType(operator, value);
  const types = (isList(type) ? type : [type]).filter((one) => typeof one === 'string');
  if (needed === null || types.length === 0) return null;
  if (types.some((one) => one === needed || (one === 'integer' && needed === 'number'))) return null;
  return {
    code: 'never_applies',
    message: `${fact} of ${tool.name} is ${types.join(' or ')} in its schema, and the condition needs ${needed}: it never judges it`,
    hint: `compare it with ${types.join(' or ')}; nothing is converted`,
    at,
  };
}

function isLiteral(value: unknown): value is Json {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' || Array.isArray(value);
}

/** What a tool's schema says of a param, also of a nested one; `null` where it says nothing for certain. */
function schemaOf(fact: string, tool: Tool): Json {
  let schema: Json = tool.paramsSchema;
  for (const step of fact.split('.').slice(1)) {
    const properties: Json = isJsonObject(schema) ? (schema['properties'] ?? null) : null;
    if (!isJsonObject(properties) || !Object.hasOwn(properties, step)) return null;
    schema = properties[step] ?? null;
  }
  return schema;
}

/** Where a fact or a value stands in a rule; the rule's id where it stands elsewhere, as in a list with a name. */
function placeOf(source: RuleSource, at: Json): DataPath {
  const { match, when, unless } = source;
  return findIn({ match, when, unless }, at) ?? ['id'];
}

function findIn(value: unknown, at: Json): DataPath | null {
  if (value === at) return [];
  if (typeof value !== 'object' || value === null) return null;
  for (const [key, part] of Object.entries(value)) {
    const within = key === at ? [] : findIn(part, at);
    if (within !== null) return [Array.isArray(value) ? Number(key) : key, ...within];
  }
  return null;
}
