import { judgeCondition, newConditionJudge, type Standing } from './conditions.ts';
import { type JsonObject, isJsonObject } from '../../json/value.ts';
import { fieldList } from './mismatches.ts';
import { CHECK_LIMITS, type Effort, EffortSpent, jsonEquals, newEffort } from './state-fields.ts';

/** A reconciliation as asked for (interface specification, 2.7); `outcome` is always `UNKNOWN` and left out. */
export interface ReconcileRequest {
  readonly action: { readonly intent: string; readonly tool: string; readonly params: JsonObject };
  readonly currentState: JsonObject;
  readonly conditions: JsonObject;
}

/** Its answer (interface specification, 2.8). */
export interface ReconcileResult {
  readonly decision: 'do_not_retry' | 'retry_allowed' | 'replan';
  readonly reason: string;
  readonly status: 'reconciled';
}

/**
 * Says from the live state whether an action of unknown outcome may be tried again. All conditions hold: it happened.
 * Every one is refuted by a field that is there, and nothing else contradicts the action: it did not. Everything else
 * is neither what success nor what the untouched start would look like. Pure.
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

/** Fields that the params and the live state both carry, with different values; objects are compared member by member. */
function contradictions(
  params: JsonObject,
  state: JsonObject,
  judged: ReadonlySet<string>,
  effort: Effort,
): readonly string[] {
  const found: string[] = [];
  const visit = (part: JsonObject, live: JsonObject, prefix: string) => {
    for (const [name, sent] of Object.entries(part)) {
      // A path longer than a condition's field may be is not made: it would be made anew for each member below it.
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

/** One character more than a field may have, so that it is no condition's field. */
function cutPath(path: string): string {
  return path.length <= CHECK_LIMITS.field ? path : path.slice(0, CHECK_LIMITS.field + 1);
}

function answer(decision: ReconcileResult['decision'], reason: string): ReconcileResult {
  return { decision, reason, status: 'reconciled' };
}

function hold(fields: readonly string[]): string {
  return fields.length === 1 ? 'holds' : 'hold';
}

/** Names of fields in quotes. */
function list(fields: readonly string[]): string {
  return fieldList(fields, (field) => `"${field}"`);
}
