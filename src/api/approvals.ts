import { Type } from 'typebox';
import type { JsonObject } from '../json/value.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import { MOST_COMMENT } from '../effects/model/approval.ts';
import type { ApiApp } from './app.ts';
import { askedToWire, requestToWire, voteToWire, whyAsked } from '../effects/wire/approval.ts';
import { readCalls } from '../effects/wire/calls.ts';
import { callerOf, mayBeSeen } from './caller.ts';
import type { Lists } from './lists.ts';
import { PAGE_QUERY, pageOf } from './paging.ts';
import type { ApiPorts } from './ports.ts';
import { Refused, refuse, refuseFaults } from './problem.ts';
import { AnyObject, InWorkspace, NoQuery, WithId, answers } from './schema.ts';

const APPROVALS = '/v1/workspaces/:ws/approvals';

const VoteBody = Type.Object(
  {
    comment: Type.Optional(Type.String({ maxLength: MOST_COMMENT })),
    digest: Type.Optional(
      Type.String({
        maxLength: 200,
        description: 'That of the request as the voter has seen it. If another is asked now, nothing is decided.',
      }),
    ),
  },
  { additionalProperties: false },
);

const Record = AnyObject(
  'A request for approval: what is asked, who may decide, who has. `url` is its page for people.',
);

/** `…/approvals`: list, get, approve, reject. */
export function addApprovalRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const { store } = ports;

  app.get(
    APPROVALS,
    {
      config: { endpoint: 'approvals.read' },
      schema: {
        operationId: 'listApprovals',
        summary: 'List requests for approval',
        tags: ['approvals'],
        params: InWorkspace,
        querystring: Type.Object(
          { status: Type.Optional(Type.Enum(['pending', 'granted', 'rejected', 'expired', 'used'])), ...PAGE_QUERY },
          { additionalProperties: false },
        ),
        response: answers({
          200: AnyObject(
            '`approvals`, newest first, and `next_cursor` for the next page. A page may be short though others follow.',
          ),
        }),
      },
    },
    async (request, reply) => {
      const caller = callerOf(request);
      const { view } = caller;
      const faults: RequestFault[] = [];
      const page = pageOf(request.query, faults);
      if (faults.length > 0) throw refuseFaults(faults);
      return lists.make(caller, async () => {
        const { items, next } = await store.approvals(request.params.ws, {
          status: request.query.status ?? null,
          agentId: view.kind === 'own' ? view.agentId : null,
          ...page,
        });
        const calls = readCalls(ports, caller.principal, 'list');
        const approvals: JsonObject[] = [];
        // One by one: records are large, but only a little of each is shown.
        for (const approval of items) {
          const effect = await store.turns.run(() => store.effect(approval.workspace, approval.effectId));
          const asked = askedToWire(approval, effect, calls, view.kind === 'own', null);
          approvals.push({ ...requestToWire(approval, ports.settings().publicUrl), ...asked, digest: approval.digest });
        }
        return lists.send(reply, 'approvals', approvals, (approval) => approval, { next_cursor: next });
      });
    },
  );

  app.get(
    `${APPROVALS}/:id`,
    {
      config: { endpoint: 'approvals.read' },
      schema: {
        operationId: 'getApproval',
        summary: 'One request for approval',
        tags: ['approvals'],
        params: WithId,
        querystring: NoQuery,
        response: answers({ 200: Record }),
      },
    },
    async (request) => {
      const caller = callerOf(request);
      const { ws, id } = request.params;
      const approval = await store.approval(ws, id);
      if (approval === null || !mayBeSeen(caller, approval.requester.agentId))
        throw refuse('not_found', 'There is no such request for approval here.');
      const [effect, budgets] = await Promise.all([store.effect(ws, approval.effectId), store.budgets(ws)]);
      return {
        ...requestToWire(approval, ports.settings().publicUrl),
        ...askedToWire(
          approval,
          effect,
          readCalls(ports, caller.principal, 'one'),
          caller.view.kind === 'own',
          budgets,
        ),
        why: whyAsked(approval, effect, ports.policies().set.rules),
        digest: approval.digest,
      };
    },
  );

  for (const verdict of ['approve', 'reject'] as const) {
    app.post(
      `${APPROVALS}/:id/${verdict}`,
      {
        config: { endpoint: 'approvals.decide' },
        schema: {
          operationId: verdict === 'approve' ? 'approve' : 'reject',
          summary:
            verdict === 'approve' ? 'Approve; the last approval needed runs the action' : 'Reject; binds the key',
          description: 'Nobody decides on a request of their own, and no key without a user decides at all.',
          tags: ['approvals'],
          params: WithId,
          querystring: NoQuery,
          body: VoteBody,
          response: answers({
            200: AnyObject('The request as it is now, the `effect`, and what `became` of the call by this vote.'),
          }),
        },
      },
      async (request) => {
        const { principal } = callerOf(request);
        const { ws, id } = request.params;
        const { comment = null, digest = null } = request.body;
        const result = await ports.decideApproval({
          principal,
          workspace: ws,
          approvalId: id,
          verdict,
          comment,
          digest,
        });
        if (result.kind === 'problem') throw new Refused(result.problem, {});
        return voteToWire(result, ports.settings().publicUrl);
      },
    );
  }
}
