import { type Static, Type } from 'typebox';
import { PEOPLE_BEHIND, type PolicyProposal, proposalStatus } from '../effects/model/policy-proposal.ts';
import { ledgerActor } from '../effects/model/principal.ts';
import { timeToWire } from '../effects/wire/time.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf, refuseAgents } from './caller.ts';
import { Actor } from './effect-answers.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';
import { answers, List, Nullable, record, Time } from './schema.ts';

const PROPOSALS = '/v1/beta/policies/proposals';

const Proposal = record('PolicyProposal', null, {
  id: Type.String(),
  version: Type.String({ description: 'What is to come in force.' }),
  instead_of: Type.String({ description: 'What was in force when it was made. When that changes, it is over.' }),
  status: Type.Enum(['open', 'confirmed', 'withdrawn', 'superseded', 'expired']),
  how: Type.Enum(['files', 'activate', 'rollback'], { description: '`files`: a gateway found them there.' }),
  by: Actor,
  why: Type.Optional(Type.String()),
  files: Type.Optional(List(Type.String(), 'Of `files`: those that were new or had changed, the first 20.')),
  people: List(Type.String(), 'Who stands behind it: who proposed it, and who confirmed it.'),
  still_needs: Type.Integer({ minimum: 0, description: 'How many people still have to confirm it.' }),
  at: Time,
  expires_at: Time,
  ended: Type.Optional(Type.Object({ at: Time, by: Actor })),
});
/** What is in force now, and what was proposed. */
export const Proposed = Type.Object({
  version: Type.String({ description: 'What is in force now.' }),
  proposal: Proposal,
});
const Proposals = Type.Object({
  in_force: Nullable(Type.String()),
  proposals: List(Proposal, 'Newest first, also what is over; at most 20.'),
});
/** `/v1/beta/policies/proposals`: what waits for a second person. */
export function addPolicyProposalRoutes(app: ApiApp, ports: ApiPorts): void {
  const { store } = ports;

  const listPolicyProposals = guarded('policies.history', {
    operationId: 'listPolicyProposals',
    summary: 'Which policies were proposed, and wait for another person',
    response: answers({ 200: Proposals }),
  });
  app.get(PROPOSALS, listPolicyProposals, async (request) => {
    refuseAgents(callerOf(request));
    const inForce = await store.policyInForce();
    const proposals = await store.policyProposals();
    return { in_force: inForce, proposals: proposals.map((one) => proposalToWire(one, store.now(), inForce)) };
  });

  addConfirmRoute(app, ports);

  const withdrawPolicies = guarded('policies.activate', {
    operationId: 'withdrawPolicies',
    summary: 'Withdraw what was proposed, or turn it down',
    params: Type.Object({ id: Type.String() }),
    response: answers({ 200: Proposal }),
  });
  app.delete(`${PROPOSALS}/:id`, withdrawPolicies, async (request) => {
    const { id } = request.params;
    await store.endPolicyProposals({ id }, ledgerActor(callerOf(request).principal));
    const proposal = (await store.policyProposals()).find((one) => one.id === id);
    if (proposal === undefined) throw refuse('not_found', 'There is no such proposal.');
    return proposalToWire(proposal, store.now(), await store.policyInForce());
  });
}

function addConfirmRoute(app: ApiApp, { store, confirmPolicy }: ApiPorts): void {
  const confirmPolicies = guarded('policies.activate', {
    operationId: 'confirmPolicies',
    summary: 'Confirm policies that somebody else has proposed',
    description:
      'The confirmation after which two people stand behind them puts them in force on all gateways. Nobody confirms what they proposed, nor by a key that one of those made who stand behind it.',
    params: Type.Object({ id: Type.String() }),
    response: answers({ 200: Proposed }),
  });
  app.post(`${PROPOSALS}/:id/confirm`, confirmPolicies, async (request) => {
    const confirmed = await confirmPolicy(request.params.id, callerOf(request).principal);
    switch (confirmed.kind) {
      case 'active':
      case 'counted': {
        const { version, proposal } = confirmed;
        const wire = proposalToWire(proposal, store.now(), proposal.from);
        return { version, proposal: { ...wire, status: confirmed.kind === 'active' ? 'confirmed' : wire.status } };
      }
      case 'absent':
        throw refuse('not_found', 'There is no such proposal.');
      case 'own_request':
        throw refuse('own_request', confirmed.message);
      case 'refused':
        throw refuse('conflict', `Nothing was changed. ${confirmed.message}`);
    }
  });
}

/** @param inForce the version that is in force now */
export function proposalToWire(proposal: PolicyProposal, now: number, inForce: string | null): Static<typeof Proposal> {
  const { id, version, from, how, by, why, files, people, at, expiresAt, ended } = proposal;
  return {
    id,
    version,
    instead_of: from,
    status: proposalStatus(proposal, now, inForce),
    how,
    by: { type: by.type, id: by.id },
    ...(why === undefined ? {} : { why }),
    ...(files === undefined ? {} : { files }),
    people: people.map(({ user }) => user),
    still_needs: Math.max(0, PEOPLE_BEHIND - people.length),
    at: timeToWire(at),
    expires_at: timeToWire(expiresAt),
    ...(ended === undefined
      ? {}
      : { ended: { at: timeToWire(ended.at), by: { type: ended.by.type, id: ended.by.id } } }),
  };
}
