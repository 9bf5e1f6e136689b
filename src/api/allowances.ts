import { type Static, Type } from 'typebox';
import { type AllowanceRecord, allowanceStatus } from '../effects/model/allowance.ts';
import { editableToWire } from '../effects/model/editable.ts';
import { ledgerActor } from '../effects/model/principal.ts';
import { timeToWire } from '../effects/wire/time.ts';
import { type ApiApp, guarded } from './app.ts';
import { Varies, AgentId, answers, component, InWorkspace, List, paged, record, Time, WithId } from './schema.ts';
import { callerOf } from './caller.ts';
import { type Lists, PAGE_QUERY, pageOf } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';

const ALLOWANCES = '/v1/workspaces/:ws/allowances';

const Allowance = record(
  'Allowance',
  'Permission for the next calls alike, given with an approval. Nobody is asked about these.',
  {
    id: Type.String(),
    workspace: Type.String(),
    status: Type.Enum(['open', 'used_up', 'over', 'revoked', 'replaced', 'forged']),
    given_by: Type.String({ description: 'The user whose vote allowed them.' }),
    approval_id: Type.String({ description: 'The request that was approved with it.' }),
    effect_id: Type.String({ description: 'The call that was asked about: what is let in is like it.' }),
    agent_id: AgentId,
    tool: Type.String(),
    target: Type.String(),
    rules: List(Type.String(), 'The rules that would ask somebody.'),
    varies: Varies,
    times: Type.Integer({ minimum: 1 }),
    used: Type.Integer({ minimum: 0 }),
    given_at: Time,
    expires_at: Time,
    ended: Type.Optional(
      Type.Object({ at: Time, by: Type.String() }, { description: 'Who ended it before its time.' }),
    ),
  },
);
const Allowances = component('AllowancePage', paged({ allowances: List(Allowance) }));

/** `…/allowances`: list, revoke. They are given with votes. */
export function addAllowanceRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const { store } = ports;
  const toWire = (allowance: AllowanceRecord) => allowanceToWire(allowance, store.now(), store.health().epoch);

  const listAllowances = guarded('approvals.read', {
    operationId: 'listAllowances',
    summary: 'List what was allowed ahead, newest first; also what is over, for a day',
    description: 'A page may be short though others follow.',
    params: InWorkspace,
    querystring: Type.Object(PAGE_QUERY, { additionalProperties: false }),
    response: answers({ 200: Allowances }),
  });
  app.get(ALLOWANCES, listAllowances, async (request, reply) => {
    const caller = callerOf(request);
    const page = pageOf(request.query);
    return lists.make(caller, async () => {
      const agentId = caller.view.kind === 'own' ? caller.view.agentId : null;
      const { items, next } = await store.allowances(request.params.ws, { agentId, ...page });
      return lists.send(reply, Allowances, 'allowances', items, toWire, { next_cursor: next });
    });
  });

  const revokeAllowance = guarded('approvals.decide', {
    operationId: 'revokeAllowance',
    summary: 'Revoke it: the next call is asked about again',
    description: 'What it has let in stays as it is.',
    params: WithId,
    response: answers({ 200: Allowance }),
  });
  app.delete(`${ALLOWANCES}/:id`, revokeAllowance, async (request) => {
    const { principal } = callerOf(request);
    const { ws: workspace, id } = request.params;
    const by = principal.user ?? principal.keyId;
    const revoked = await store.revokeAllowance({ workspace, id, by, actor: ledgerActor(principal) });
    switch (revoked.kind) {
      case 'revoked':
      // Who revokes wants it to let nothing in, and so it is.
      case 'over':
        return toWire(revoked.allowance);
      case 'absent':
        throw refuse('not_found', 'There is no such allowance here.');
    }
  });
}

function allowanceToWire(allowance: AllowanceRecord, now: number, epoch: number): Static<typeof Allowance> {
  const { ended } = allowance;
  return {
    id: allowance.id,
    workspace: allowance.workspace,
    status: allowance.isForged === true ? 'forged' : allowanceStatus(allowance, now, epoch),
    given_by: allowance.by.user,
    approval_id: allowance.approvalId,
    effect_id: allowance.effectId,
    agent_id: allowance.agentId,
    tool: allowance.tool,
    target: allowance.target,
    rules: allowance.rules,
    varies: editableToWire(allowance.varies),
    times: allowance.times,
    used: allowance.used,
    given_at: timeToWire(allowance.givenAt),
    expires_at: timeToWire(allowance.expiresAt),
    ...(ended === undefined ? {} : { ended: { at: timeToWire(ended.at), by: ended.by } }),
  };
}
