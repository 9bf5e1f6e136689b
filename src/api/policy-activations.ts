import type { FastifyReply } from 'fastify';
import { Type } from 'typebox';
import { type ApiApp, guarded } from './app.ts';
import { callerOf, refuseAgents } from './caller.ts';
import type { Lists } from './lists.ts';
import type { ApiPorts, ChosenPolicy, ShownPolicy } from './ports.ts';
import { addPolicyProposalRoutes, proposalToWire, Proposed } from './policy-proposals.ts';
import { refuse } from './problem.ts';
import { activationToWire } from '../effects/wire/policy-in-force.ts';
import { Actor } from './effect-answers.ts';
import { answers, List, Nullable, record, Time } from './schema.ts';
import { policyTextToWire } from '../policy/policy-texts.ts';

const ACTIVATIONS = '/v1/beta/policies/activations';

const Version = Type.String({ pattern: '^[A-Za-z0-9_-]{43}$', description: 'One of the history.' });
const Comment = Type.Optional(
  Type.String({ minLength: 1, maxLength: 1000, description: 'Why; stands in the history.' }),
);
const PolicyVersion = record('PolicyVersion', null, {
  version: Type.String(),
  proven: Type.Boolean({
    description:
      'Whether the text was found to be that of the version. `false`: it does not fit the configuration of now, so it could not be held against it, or somebody altered it.',
  }),
  files: List(
    Type.Object({
      file: Type.String(),
      text: Type.String(),
      lists: List(Type.Object({ name: Type.String(), text: Nullable(Type.String(), '`null`: it could not be read.') })),
    }),
  ),
});
const Activated = Type.Object({ version: Type.String({ description: 'What is in force now.' }) });
const PolicyHistory = record('PolicyHistory', null, {
  in_force: Nullable(Type.String()),
  files_version: Nullable(Type.String(), 'Of the files of this gateway; `null` where they cannot be used.'),
  activations: List(
    Type.Object({
      version: Type.String(),
      at: Time,
      by: Actor,
      how: Type.Enum(['files', 'activate', 'rollback'], { description: '`files`: a gateway found them there.' }),
      why: Type.Optional(Type.String({ description: 'What the person said who put it there.' })),
      files: Type.Optional(List(Type.String(), 'Of `files`: those that were new or had changed, the first 20.')),
      confirmed_by: Type.Optional(List(Type.String(), 'Users who confirmed it, where it was proposed.')),
    }),
    'Newest first.',
  ),
});

/** `/v1/beta/policies`: what was in force, and what is to be. The policies are those of all gateways of the store. */
export function addPolicyActivationRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const listPolicyActivations = guarded('policies.history', {
    operationId: 'listPolicyActivations',
    summary: 'Which policies were in force, since when, and who put them there',
    description: 'Newest first, at most 100. `files_version` is what the files of this gateway say.',
    response: answers({ 200: PolicyHistory }),
  });
  app.get(ACTIVATIONS, listPolicyActivations, async () => {
    const activations = await ports.store.policyHistory();
    return {
      in_force: await ports.store.policyInForce(),
      files_version: ports.policies().filesVersion,
      activations: activations.map(activationToWire),
    };
  });

  addVersionRoute(app, ports, lists);
  addPolicyProposalRoutes(app, ports);

  const activatePolicies = guarded('policies.activate', {
    operationId: 'activatePolicies',
    summary: 'Put policies in force on all gateways',
    description:
      'The policies in the files of this gateway; with `version`, those that were in force under it before. Where `policies.second_person` is set they are only proposed: 202, with the proposal that another person confirms.',
    body: Type.Object({ version: Type.Optional(Version), comment: Comment }, { additionalProperties: false }),
    response: answers({ 200: Activated, 202: Proposed }),
  });
  app.post(ACTIVATIONS, activatePolicies, async (request, reply) => {
    const { version } = request.body;
    const choice = version === undefined ? ({ kind: 'files' } as const) : ({ kind: 'version', version } as const);
    const { principal } = callerOf(request);
    return answerTo(await ports.choosePolicy(choice, principal, request.body.comment ?? null), reply);
  });

  addRollbackRoute(app, ports);
}

function addRollbackRoute(app: ApiApp, ports: Pick<ApiPorts, 'store' | 'choosePolicy'>): void {
  const rollBackPolicies = guarded('policies.activate', {
    operationId: 'rollBackPolicies',
    summary: 'Put the policies in force that were in force before those that are now',
    description: 'Where `policies.second_person` is set they are only proposed, as by `activatePolicies`.',
    body: Type.Object({ comment: Comment }, { additionalProperties: false }),
    response: answers({ 200: Activated, 202: Proposed }),
  });
  app.post('/v1/beta/policies/rollback', rollBackPolicies, async (request, reply) => {
    const { principal } = callerOf(request);
    return answerTo(await ports.choosePolicy({ kind: 'before' }, principal, request.body.comment ?? null), reply);
  });
}

function addVersionRoute(app: ApiApp, ports: Pick<ApiPorts, 'showPolicy'>, lists: Lists): void {
  const getPolicyVersion = guarded('policies.history', {
    operationId: 'getPolicyVersion',
    summary: 'What the policies of a version said',
    description:
      'The files as they were read. Those of the history are kept, of more than its ten newest only as long as all take at most 16 MB, packed.',
    params: Type.Object({ version: Type.String({ description: 'One of the history.' }) }),
    response: answers({ 200: PolicyVersion }),
  });
  app.get('/v1/beta/policies/versions/:version', getPolicyVersion, async (request) => {
    const caller = callerOf(request);
    refuseAgents(caller);
    const { version } = request.params;
    return lists.make(caller, async () => versionToWire(version, await ports.showPolicy(version)));
  });
}

const NOT_KEPT =
  'There are no such policies in the store. It keeps the files of versions that stand in the history, as long as they are small.';

function answerTo(chosen: ChosenPolicy, reply: FastifyReply) {
  switch (chosen.kind) {
    case 'active':
      return { version: chosen.version };
    case 'proposed': {
      const { version, proposal } = chosen;
      reply.code(202);
      return { version, proposal: proposalToWire(proposal, proposal.at, version) };
    }
    case 'not_kept':
      throw refuse('not_found', NOT_KEPT);
    case 'refused':
      throw refuse('conflict', `Nothing was changed. ${chosen.message}`);
  }
}

function versionToWire(version: string, shown: ShownPolicy) {
  switch (shown.kind) {
    case 'shown':
      return { version, proven: shown.isProven, files: shown.files.map(policyTextToWire) };
    case 'not_kept':
      throw refuse('not_found', NOT_KEPT);
    case 'too_large':
      throw refuse('too_large', 'The policies of this version are larger than 1 MB: look into the files.');
  }
}
