import { ledgerActor } from '../effects/model/principal.ts';
import { Type } from 'typebox';
import type { ApiApp } from './app.ts';
import { callerOf } from './caller.ts';
import type { ApiPorts, ChosenPolicy } from './ports.ts';
import { refuse } from './problem.ts';
import { timeToWire } from '../effects/wire/time.ts';
import { Actor } from './effect-answers.ts';
import { answers, component, List, NoQuery, Nullable, Time } from './schema.ts';
import type { PolicyInForce } from '../effects/policy-store.ts';

const ACTIVATIONS = '/v1/beta/policies/activations';

const Activated = Type.Object({ version: Type.String({ description: 'What is in force now.' }) });
const PolicyHistory = component(
  'PolicyHistory',
  Type.Object({
    in_force: Nullable(Type.String()),
    files_version: Nullable(Type.String(), 'Of the files of this gateway; `null` where they cannot be used.'),
    activations: List(
      Type.Object({
        version: Type.String(),
        at: Time,
        by: Actor,
        how: Type.Enum(['files', 'activate', 'rollback'], { description: '`files`: a gateway found them there.' }),
      }),
      'Newest first.',
    ),
  }),
);

/** `/v1/beta/policies`: what was in force, and what is to be. The policies are those of all gateways of the store. */
export function addPolicyActivationRoutes(app: ApiApp, ports: ApiPorts): void {
  app.get(
    ACTIVATIONS,
    {
      config: { endpoint: 'policies.history' },
      schema: {
        operationId: 'listPolicyActivations',
        summary: 'Which policies were in force, since when, and who put them there',
        description: 'Newest first, at most 100. `files_version` is what the files of this gateway say.',
        tags: ['policies'],
        querystring: NoQuery,
        response: answers({ 200: PolicyHistory }),
      },
    },
    async () => {
      const activations = await ports.store.policyHistory();
      return {
        in_force: await ports.store.policyInForce(),
        files_version: ports.policies().filesVersion,
        activations: activations.map(activationToWire),
      };
    },
  );

  app.post(
    ACTIVATIONS,
    {
      config: { endpoint: 'policies.activate' },
      schema: {
        operationId: 'activatePolicies',
        summary: 'Put policies in force on all gateways',
        description:
          'The policies in the files of this gateway; with `version`, those that were in force under it before.',
        tags: ['policies'],
        querystring: NoQuery,
        body: Type.Object(
          { version: Type.Optional(Type.String({ pattern: '^[A-Za-z0-9_-]{43}$' })) },
          { additionalProperties: false },
        ),
        response: answers({ 200: Activated }),
      },
    },
    async (request) => {
      const { version } = request.body;
      const choice = version === undefined ? ({ kind: 'files' } as const) : ({ kind: 'version', version } as const);
      return answerTo(await ports.choosePolicy(choice, ledgerActor(callerOf(request).principal)));
    },
  );

  app.post(
    '/v1/beta/policies/rollback',
    {
      config: { endpoint: 'policies.activate' },
      schema: {
        operationId: 'rollBackPolicies',
        summary: 'Put the policies in force that were in force before those that are now',
        tags: ['policies'],
        querystring: NoQuery,
        response: answers({ 200: Activated }),
      },
    },
    async (request) => answerTo(await ports.choosePolicy({ kind: 'before' }, ledgerActor(callerOf(request).principal))),
  );
}

function answerTo(chosen: ChosenPolicy) {
  switch (chosen.kind) {
    case 'active':
      return { version: chosen.version };
    case 'not_kept':
      throw refuse(
        'not_found',
        'There are no such policies in the store: those that were in force last are kept, up to ten.',
      );
    case 'refused':
      throw refuse('conflict', `Nothing was changed. ${chosen.message}`);
  }
}

function activationToWire({ version, at, by, how }: PolicyInForce) {
  return { version, at: timeToWire(at), by: { type: by.type, id: by.id }, how };
}
