import { type Static, Type } from 'typebox';
import { type Json, isJsonObject } from '../effects/json.ts';
import { conditionFaults } from '../effects/conditions.ts';
import { reconcile } from '../effects/reconcile.ts';
import { verifyState } from '../effects/verify-state.ts';
import type { FastifyRequest } from 'fastify';
import type { ApiApp } from './app.ts';
import { refuse, refuseFaults } from './problem.ts';
import { AnyObject, AnyValue, NoQuery, answers } from './schema.ts';
import { validationFaults } from './validation-faults.ts';

const Conditions = AnyObject(
  'Field values that must hold: a value, or operators ($eq $ne $gt $gte $lt $lte $in $nin $exists $regex), all of which must hold. Fields may be paths (`order.lines.0.sku`).',
);

const VerifyBody = Type.Object(
  {
    intent: Type.String({ description: 'Human-readable label for the action.' }),
    required_fields: Type.Array(Type.String(), {
      description: 'Fields that must match between assumed and current state.',
    }),
    assumed_state: AnyObject('State that the agent resolved at plan time.'),
    current_state: AnyObject('Live state fetched immediately before the call.'),
    conditions: Conditions,
    on_mismatch: Type.Enum(['replan', 'block']),
  },
  { additionalProperties: false },
);

const VerifyAnswer = Type.Object({
  status: Type.Enum(['verified', 'mismatch_detected']),
  decision: Type.Enum(['proceed', 'replan', 'block']),
  mismatches: Type.Array(
    Type.Object({
      field: Type.String(),
      assumed: AnyValue('The assumed value.'),
      current: AnyValue('The live value.'),
    }),
  ),
});

const ReconcileBody = Type.Object(
  {
    action: Type.Object(
      {
        intent: Type.String({ description: 'Human-readable label for the action.' }),
        tool: Type.String({ description: 'The tool that was called.' }),
        params: AnyObject('Parameters passed to the tool.'),
      },
      { additionalProperties: false },
    ),
    outcome: Type.Literal('UNKNOWN'),
    current_state: AnyObject('Live state from the source of truth.'),
    conditions: Conditions,
  },
  { additionalProperties: false },
);

const ReconcileAnswer = Type.Object({
  decision: Type.Enum(['do_not_retry', 'retry_allowed', 'replan']),
  reason: Type.String(),
  status: Type.Literal('reconciled'),
});

/** `POST /state/verify` and `POST /outcomes/reconcile`: pure functions of their bodies. */
export function addCheckRoutes(app: ApiApp): void {
  app.post(
    '/state/verify',
    {
      config: { endpoint: 'state.verify' },
      attachValidation: true,
      schema: {
        operationId: 'verifyState',
        summary: 'Compare assumed with live state before a write',
        tags: ['checks'],
        querystring: NoQuery,
        body: VerifyBody,
        response: answers({ 200: VerifyAnswer }),
      },
    },
    async (request) => {
      refuseFaulty(request);
      const body: Static<typeof VerifyBody> = request.body;
      const { status, decision, mismatches } = verifyState({
        intent: body.intent,
        requiredFields: body.required_fields,
        assumedState: body.assumed_state,
        currentState: body.current_state,
        conditions: body.conditions,
        onMismatch: body.on_mismatch,
      });
      return {
        status,
        decision,
        mismatches: mismatches.map(({ field, assumed, current }) => ({ field, assumed, current })),
      };
    },
  );

  app.post(
    '/outcomes/reconcile',
    {
      config: { endpoint: 'outcomes.reconcile' },
      attachValidation: true,
      schema: {
        operationId: 'reconcileOutcome',
        summary: 'Decide from live state whether a retry is safe',
        tags: ['checks'],
        querystring: NoQuery,
        body: ReconcileBody,
        response: answers({ 200: ReconcileAnswer }),
      },
    },
    async (request) => {
      refuseFaulty(request);
      const body: Static<typeof ReconcileBody> = request.body;
      const { decision, reason, status } = reconcile({
        action: body.action,
        currentState: body.current_state,
        conditions: body.conditions,
      });
      return { decision, reason, status };
    },
  );
}

/** Faults of shape and of conditions in one answer. A known other outcome alone has a code of its own. */
function refuseFaulty(request: FastifyRequest): void {
  const body = request.body as Json | undefined;
  const conditions = isJsonObject(body) ? body['conditions'] : undefined;
  const ofConditions = isJsonObject(conditions) ? conditionFaults(conditions, '/conditions') : [];
  const error = request.validationError;
  const ofShape = error === undefined ? [] : validationFaults(error.validation, error.validationContext ?? 'body');
  const faults = [...ofShape, ...ofConditions];
  if (faults.length === 0) return;
  const onlyOutcome = faults.every(({ path }) => path === '/outcome');
  if (onlyOutcome && isJsonObject(body) && body['outcome'] !== undefined)
    throw refuse('outcome_not_unknown', 'Only the outcome UNKNOWN can be reconciled; any other is known already.', {
      errors: faults,
    });
  throw refuseFaults(faults);
}
