import { Engine } from 'json-rules-engine';
import type { Json } from '../../src/json/value.ts';
import { valueReader } from '../../src/policy/compiled-condition.ts';
import { type EngineCondition, readOperator, type Symbols } from '../../src/policy/engine-form.ts';
import { readerOf } from '../../src/policy/fact-path.ts';
import type { PolicyInput } from '../../src/policy/evaluate.ts';
import { judgement, rightSideFault, seesAbsence } from '../../src/policy/operators.ts';

/**
 * What json-rules-engine's own evaluation says of a compiled condition: a fresh engine, every operator registered
 * strictly under its compiled name (its ten own names too), facts as they are.
 */
export async function engineTruth(
  conditions: Extract<EngineCondition, { all: unknown }>,
  symbols: Symbols,
  input: PolicyInput,
): Promise<boolean> {
  const engine = new Engine();
  for (const name of operatorsOf(conditions))
    engine.addOperator(name, (left: Json | undefined, right: unknown) => operate(name, left, right, symbols, input));
  for (const [name, path] of symbols.facts)
    if (path.root !== 'item') engine.addFact(name, readerOf(path)(input, undefined));
  for (const [name, table] of symbols.tables) engine.addFact(name, valueReader(table)(input));
  engine.addRule({ conditions, event: { type: 'matched' } });
  const { events } = await engine.run();
  return events.length === 1;
}

function operatorsOf(condition: EngineCondition): ReadonlySet<string> {
  if ('all' in condition) return new Set(condition.all.flatMap((part) => [...operatorsOf(part)]));
  if ('any' in condition) return new Set(condition.any.flatMap((part) => [...operatorsOf(part)]));
  return new Set([condition.operator]);
}

function operate(
  spelled: string,
  left: Json | undefined,
  right: unknown,
  symbols: Symbols,
  input: PolicyInput,
): boolean {
  const { maybe, negated, ifAbsent, name } = readOperator(spelled);
  const isAbsent = left === undefined || left === null;
  if (name === 'some' || name === 'every') {
    if (isAbsent) return ifAbsent ?? maybe;
    if (!isList(left) || left.length > 10_000 || !isCondition(right)) return maybe;
    const truth = (item: Json): boolean => blockTruth(right, item, symbols, input);
    return name === 'some' ? left.some(truth) : left.every(truth);
  }
  if (isAbsent && !seesAbsence(name)) return ifAbsent === null ? maybe : ifAbsent !== negated;
  if (!isJson(right) || rightSideFault(name, right) !== null) return maybe;
  const truth = judgement(name, right)(left);
  return truth === undefined ? maybe : truth !== negated;
}

/** The engine has no elements: blocks over them are evaluated here, by the same operators. */
function blockTruth(condition: EngineCondition, item: Json, symbols: Symbols, input: PolicyInput): boolean {
  if ('all' in condition) return condition.all.every((part) => blockTruth(part, item, symbols, input));
  if ('any' in condition) return condition.any.some((part) => blockTruth(part, item, symbols, input));
  const fact = symbols.facts.get(condition.fact);
  if (fact === undefined) throw new Error(`no such fact: ${condition.fact}`);
  return operate(
    condition.operator,
    readerOf(fact)(input, item),
    valueOf(condition.value, item, symbols, input),
    symbols,
    input,
  );
}

function valueOf(value: unknown, item: Json, symbols: Symbols, input: PolicyInput): unknown {
  if (typeof value !== 'object' || value === null || !('fact' in value) || typeof value.fact !== 'string') return value;
  const table = symbols.tables.get(value.fact);
  if (table !== undefined) return valueReader(table)(input);
  const fact = symbols.facts.get(value.fact);
  return fact === undefined ? undefined : readerOf(fact)(input, item);
}

function isList(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value);
}

function isJson(value: unknown): value is Json {
  return value !== undefined;
}

function isCondition(value: unknown): value is EngineCondition {
  return typeof value === 'object' && value !== null && 'all' in value;
}
