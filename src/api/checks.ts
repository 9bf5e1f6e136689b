import { type Static, Type } from 'typebox';
import { mismatchToWire } from '../effects/model/action-call.ts';
import { isJsonArray, isJsonObject, type Json } from '../json/value.ts';
import { conditionFaults, requiredFieldFaults } from '../effects/checks/conditions.ts';
import { reconcile } from '../effects/checks/reconcile.ts';
import { CHECK_LIMITS } from '../effects/checks/state-fields.ts';
import { verifyState } from '../effects/checks/verify-state.ts';
import type { FastifyRequest } from 'fastify';
import { type ApiApp, guarded } from './app.ts';
import { refuse, type Refused, refuseFaults } from './problem.ts';
import { Mismatches } from './effect-answers.ts';
import { answers, AnyObject, closed, record } from './schema.ts';
import { validationFaults } from './validation-faults.ts';

const Conditions = AnyObject(
  'Field values that must hold: a value, or operators ($eq $ne $gt $gte $lt $lte $in $nin $exists $regex), all of which must hold. Fields may be paths (`order.lines.0.sku`).',
);

/**
 * Limits the length of field names. In conditions, the check of the conditions refuses longer paths, with its own
 * message.
 */
const Fields = Type.Array(Type.String({ maxLength: CHECK_LIMITS.field }), {
  maxItems: CHECK_LIMITS.fields,
  description: 'Fields that must match between assumed and current state.',
});

const VerifyBody = closed({
  intent: Type.String({ description: 'Human-readable label for the action.' }),
  required_fields: Fields,
  assumed_state: AnyObject('State that the agent resolved at plan time.'),
  current_state: AnyObject('Live state fetched immediately before the call.'),
  conditions: Conditions,
  on_mismatch: Type.Enum(['replan', 'block']),
});

const VerifyAnswer = record('StateVerdict', null, {
  status: Type.Enum(['verified', 'mismatch_detected']),
  decision: Type.Enum(['proceed', 'replan', 'block']),
  mismatches: Mismatches,
});

const ReconcileBody = closed({
  action: closed({
    intent: Type.String({ description: 'Human-readable label for the action.' }),
    tool: Type.String({ description: 'The tool that was called.' }),
    params: AnyObject('Parameters passed to the tool.'),
  }),
  outcome: Type.Literal('UNKNOWN'),
  current_state: AnyObject('Live state from the source of truth.'),
  conditions: Conditions,
});

const ReconcileAnswer = record('ReconcileVerdict', null, {
  decision: Type.Enum(['do_not_retry', 'retry_allowed', 'replan']),
  reason: Type.String(),
  status: Type.Literal('reconciled'),
});

/** `POST /state/verify` and `POST /outcomes/reconcile`: pure functions of their bodies. */
export function addCheckRoutes(app: ApiApp): void {
  const verifying = guarded('state.verify', {
    operationId: 'verifyState',
    summary: 'Compare assumed with live state before a write',
    tags: ['checks'],
    body: VerifyBody,
    response: answers({ 200: VerifyAnswer }),
  });
  app.post('/state/verify', { ...verifying, attachValidation: true }, async (request) => {
    refuseFaulty(request);
    const body: Static<typeof VerifyBody> = request.body;
    const result = verifyState({
      intent: body.intent,
      requiredFields: body.required_fields,
      assumedState: body.assumed_state,
      currentState: body.current_state,
      conditions: body.conditions,
      onMismatch: body.on_mismatch,
    });
    if (result === null) throw tooManySteps();
    const { status, decision, mismatches } = result;
    return { status, decision, mismatches: mismatches.map(mismatchToWire) };
  });

  const reconciling = guarded('outcomes.reconcile', {
    operationId: 'reconcileOutcome',
    summary: 'Decide from live state whether a retry is safe',
    tags: ['checks'],
    body: ReconcileBody,
    response: answers({ 200: ReconcileAnswer }),
  });
  app.post('/outcomes/reconcile', { ...reconciling, attachValidation: true }, async (request) => {
    refuseFaulty(request);
    const body: Static<typeof ReconcileBody> = request.body;
    const result = reconcile({
      action: body.action,
      currentState: body.current_state,
      conditions: body.conditions,
    });
    if (result === null) throw tooManySteps();
    const { decision, reason, status } = result;
    return { decision, reason, status };
  });
}

function tooManySteps(): Refused {
  return refuse(
    'invalid_request',
    `The fields and conditions take more than ${CHECK_LIMITS.effort} steps on these states: ask for fewer, or for smaller parts, and mind names with dots, which can be read in many ways.`,
  );
}

/**
 * Reports faults of shape and of conditions in one answer. If the only fault is an outcome other than UNKNOWN, it has
 * its own code.
 */
function refuseFaulty(request: FastifyRequest): void {
  const body = request.body as Json | undefined;
  const conditions = isJsonObject(body) ? body['conditions'] : undefined;
  const ofConditions = isJsonObject(conditions) ? conditionFaults(conditions, '/conditions') : [];
  const required = isJsonObject(body) ? body['required_fields'] : undefined;
  const ofFields = isJsonArray(required) ? requiredFieldFaults(required, '/required_fields') : [];
  const error = request.validationError;
  const ofShape = error === undefined ? [] : validationFaults(error.validation, error.validationContext ?? 'body');
  const faults = [...ofShape, ...ofFields, ...ofConditions];
  if (faults.length === 0) return;
  const onlyOutcome = faults.every(({ path }) => path === '/outcome');
  if (onlyOutcome && isJsonObject(body) && body['outcome'] !== undefined)
    throw refuse('outcome_not_unknown', 'Only the outcome UNKNOWN can be reconciled; any other is known already.', {
      errors: faults,
    });
  throw refuseFaults(faults);
}
