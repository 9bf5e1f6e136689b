import { judgeCondition, type Standing } from './conditions.ts';
import { type JsonObject, isJsonObject } from './json.ts';
import { jsonEquals } from './state-fields.ts';

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
 */
export function reconcile(request: ReconcileRequest): ReconcileResult {
  const fields: Record<Standing, string[]> = { holds: [], refuted: [], absent: [], undecidable: [] };
  for (const [field, condition] of Object.entries(request.conditions))
    fields[judgeCondition(request.currentState, field, condition)].push(field);
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
  );
  if (contradicted.length > 0)
    return answer('replan', `The live state has drifted: ${list(contradicted)} is not what the action was sent with.`);
  return answer(
    'retry_allowed',
    `The live state confirms that the action did not succeed: ${list(refuted)} ${refuted.length === 1 ? 'is' : 'are'} not as success would leave ${refuted.length === 1 ? 'it' : 'them'}.`,
  );
}

/** Fields that the params and the live state both carry, with different values; objects are compared member by member. */
function contradictions(params: JsonObject, state: JsonObject, judged: ReadonlySet<string>): readonly string[] {
  const found: string[] = [];
  const visit = (part: JsonObject, live: JsonObject, prefix: string) => {
    for (const [name, sent] of Object.entries(part)) {
      const path = prefix === '' ? name : `${prefix}.${name}`;
      const current = Object.hasOwn(live, name) ? live[name] : undefined;
      if (current === undefined || judged.has(path)) continue;
      if (isJsonObject(sent) && isJsonObject(current)) visit(sent, current, path);
      else if (!jsonEquals(sent, current)) found.push(path);
    }
  };
  visit(params, state, '');
  return found;
}

function answer(decision: ReconcileResult['decision'], reason: string): ReconcileResult {
  return { decision, reason, status: 'reconciled' };
}

function hold(fields: readonly string[]): string {
  return fields.length === 1 ? 'holds' : 'hold';
}

/** At most ten names, so that an answer stays short. */
function list(fields: readonly string[]): string {
  const shown = fields.slice(0, 10).map((field) => `"${field}"`);
  return fields.length > shown.length
    ? `${shown.join(', ')} and ${fields.length - shown.length} more`
    : shown.join(', ');
}
