import { judgeCondition, newConditionJudge, type Standing } from './conditions.ts';
import { type JsonObject, isJsonObject } from '../../json/value.ts';
import { fieldList } from './mismatches.ts';
import { CHECK_LIMITS, type Effort, EffortSpent, jsonEquals, newEffort } from './state-fields.ts';

/** A request to reconcile (interface specification, 2.7). `outcome` is always `UNKNOWN`, so it is left out. */
export interface ReconcileRequest {
  readonly action: { readonly intent: string; readonly tool: string; readonly params: JsonObject };
  readonly currentState: JsonObject;
  readonly conditions: JsonObject;
}

/** The answer to it (interface specification, 2.8). */
export interface ReconcileResult {
  readonly decision: 'do_not_retry' | 'retry_allowed' | 'replan';
  readonly reason: string;
  readonly status: 'reconciled';
}

/**
 * Decides from the live state whether an action of unknown outcome may be tried again. If all conditions hold, it
 * happened. If each one is refuted by a field that exists, and nothing else contradicts the action, it did not happen.
 * Every other state fits neither success nor an untouched start. Pure.
 * @returns `null` where it would take more steps than one request may take
 */
export function reconcile(request: ReconcileRequest): ReconcileResult | null {
  try {
    return reconcileWithin(request, newEffort());
  } catch (error) {
    if (error instanceof EffortSpent) return null;
    throw error;
  }
}

function reconcileWithin(request: ReconcileRequest, effort: Effort): ReconcileResult {
  const fields: Record<Standing, string[]> = { holds: [], refuted: [], absent: [], undecidable: [] };
  const judge = newConditionJudge(effort);
  for (const [field, condition] of Object.entries(request.conditions))
    fields[judgeCondition(request.currentState, field, condition, judge)].push(field);
  const { holds, refuted, absent, undecidable } = fields;

  if (holds.length + refuted.length + absent.length + undecidable.length === 0)
    return answer('replan', 'There are no conditions, so the live state can confirm nothing.');
  if (refuted.length + absent.length + undecidable.length === 0)
    return answer('do_not_retry', `The live state confirms that the action succeeded: ${list(holds)} ${hold(holds)}.`);
  if (absent.length > 0)
    return answer(
      'replan',
      `The live state does not have ${list(absent)}, so it neither confirms nor refutes the action.`,
    );
  if (undecidable.length > 0) return answer('replan', `The condition on ${list(undecidable)} cannot be judged.`);
  if (holds.length > 0)
    return answer(
      'replan',
      `The live state has drifted: ${list(holds)} ${hold(holds)}, while ${list(refuted)} ${refuted.length === 1 ? 'does' : 'do'} not.`,
    );
  const contradicted = contradictions(
    request.action.params,
    request.currentState,
    new Set(Object.keys(request.conditions)),
    effort,
  );
  if (contradicted.length > 0)
    return answer('replan', `The live state has drifted: ${list(contradicted)} is not what the action was sent with.`);
  return answer(
    'retry_allowed',
    `The live state confirms that the action did not succeed: ${list(refuted)} ${refuted.length === 1 ? 'is' : 'are'} not as success would leave ${refuted.length === 1 ? 'it' : 'them'}.`,
  );
}

/** Fields that params and live state both have, with different values. Objects are compared member by member. */
function contradictions(
  params: JsonObject,
  state: JsonObject,
  judged: ReadonlySet<string>,
  effort: Effort,
): readonly string[] {
  const found: string[] = [];
  const visit = (part: JsonObject, live: JsonObject, prefix: string) => {
    for (const [name, sent] of Object.entries(part)) {
      // The path is cut to just above the longest field of a condition: it is copied for each member below it.
      const path = cutPath(prefix === '' ? name : `${prefix}.${name}`);
      const current = Object.hasOwn(live, name) ? live[name] : undefined;
      if (current === undefined || judged.has(path)) continue;
      if (isJsonObject(sent) && isJsonObject(current)) visit(sent, current, path);
      else if (!jsonEquals(sent, current, effort)) found.push(path);
    }
  };
  visit(params, state, '');
  return found;
}

/** Keeps one character more than a field may have, so that a cut path never equals the field of a condition. */
function cutPath(path: string): string {
  return path.length <= CHECK_LIMITS.field ? path : path.slice(0, CHECK_LIMITS.field + 1);
}

function answer(decision: ReconcileResult['decision'], reason: string): ReconcileResult {
  return { decision, reason, status: 'reconciled' };
}

function hold(fields: readonly string[]): string {
  return fields.length === 1 ? 'holds' : 'hold';
}

function list(fields: readonly string[]): string {
  return fieldList(fields, (field) => `"${field}"`);
}
