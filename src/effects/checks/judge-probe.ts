import { IMPLIED, type KeptResult } from '../model/answer.ts';
import type { Probe } from '../model/tool.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { judgeCondition, newConditionJudge } from './conditions.ts';
import { EffortSpent, newEffort } from './state-fields.ts';

export interface ProbeFinding {
  readonly finding: 'happened' | 'not_happened' | 'unknown';
  /** For people, a sentence: what it rests on. */
  readonly why: string;
  readonly fields: readonly string[];
}

const PLACEHOLDER = /^\{([^{}]+)\}$/;

/** The param that a text of a probe stands for; `null` where it stands for itself. */
export function placeholderIn(value: Json): string | null {
  return typeof value === 'string' ? (PLACEHOLDER.exec(value)?.[1] ?? null) : null;
}

/** The params of a probe, with what the call has in place of `{name}`. What the call does not have is left out. */
export function filledIn(template: JsonObject, given: JsonObject): JsonObject {
  const fill = (value: Json): Json | undefined => {
    const name = placeholderIn(value);
    if (name !== null) return Object.hasOwn(given, name) ? given[name] : undefined;
    if (isJsonArray(value)) return value.map(fill).filter((item) => item !== undefined);
    return isJsonObject(value) ? filledIn(value, given) : value;
  };
  const filled: Record<string, Json> = {};
  for (const [name, value] of Object.entries(template)) {
    const one = fill(value);
    if (one !== undefined) filled[name] = one;
  }
  return filled;
}

/**
 * Judges an answer by the two sets of conditions of a probe. Where neither holds, or both, nothing is known. Pure.
 * @param given the params of the call, and the key as the upstream got it
 */
export function judgeProbe(probe: Probe, kind: KeptResult['kind'], state: JsonObject, given: JsonObject): ProbeFinding {
  try {
    const [happened, notHappened] = [probe.happened, probe.notHappened].map((set) => isMet(set, kind, state, given));
    if (happened !== notHappened)
      return happened
        ? {
            finding: 'happened',
            why: 'The upstream shows what the call was to do.',
            fields: Object.keys(probe.happened),
          }
        : {
            finding: 'not_happened',
            why: 'The upstream shows that it was not done.',
            fields: Object.keys(probe.notHappened),
          };
    const why = happened
      ? 'says both that it happened and that it did not'
      : 'shows neither that it happened nor that it did not';
    return { finding: 'unknown', why: `The upstream ${why}.`, fields: [] };
  } catch (error) {
    if (!(error instanceof EffortSpent)) throw error;
    return { finding: 'unknown', why: 'The answer takes too many steps to be judged.', fields: [] };
  }
}

function isMet(set: JsonObject, kind: KeptResult['kind'], state: JsonObject, given: JsonObject): boolean {
  const judge = newConditionJudge(newEffort());
  const [field, implied] = IMPLIED[kind];
  const conditions = Object.hasOwn(set, field) ? set : { ...set, [field]: implied };
  return (
    Object.keys(set).length > 0 &&
    Object.entries(conditions).every(([name, condition]) => {
      const filled = conditionFor(condition, given);
      return filled !== null && judgeCondition(state, name, filled, judge) === 'holds';
    })
  );
}

/**
 * A condition with what the call has in place of `{name}`, which is compared and never read as a condition; `null` where
 * the call does not have it.
 */
function conditionFor(condition: Json, given: JsonObject): Json | null {
  const name = placeholderIn(condition);
  if (name !== null) return Object.hasOwn(given, name) ? { $eq: given[name] ?? null } : null;
  if (!isJsonObject(condition)) return condition;
  const filled: Record<string, Json> = {};
  for (const [operator, operand] of Object.entries(condition)) {
    const named = operator.startsWith('$') && operator !== '$regex' ? placeholderIn(operand) : null;
    if (named !== null && !Object.hasOwn(given, named)) return null;
    filled[operator] = named === null ? operand : (given[named] ?? null);
  }
  return filled;
}
