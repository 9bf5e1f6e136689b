import { type Static, Type } from 'typebox';
import type { ApprovalCall } from '../effects/run/decide-approval.ts';
import { type ApprovalRecord, MOST_COMMENT } from '../effects/model/approval.ts';
import { type ApiApp, guarded } from './app.ts';
import {
  Bounds,
  Varies,
  answers,
  closed,
  component,
  Flag,
  InWorkspace,
  List,
  MapOf,
  Nullable,
  paged,
  record,
  Time,
  WithId,
} from './schema.ts';
import { askedToWire, foreseenText, requestToWire, voteToWire, whyAsked } from '../effects/wire/approval.ts';
import { readCalls } from '../effects/wire/calls.ts';
import { approvalFor, standingFor } from '../effects/wire/withheld.ts';
import type { Principal } from '../effects/model/principal.ts';
import { permit } from '../identity/permissions.ts';
import type { JsonObject } from '../json/value.ts';
import { earlierOnTarget, repeatText } from './approver/earlier.ts';
import { timeFromWire } from '../effects/wire/time.ts';
import { callerOf, mayBeSeen } from './caller.ts';
import { type Lists, PAGE_QUERY, pageOf } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, Refused, refuseFaults } from './problem.ts';
import { Decision, EffectState, PARAMS, PENDING_APPROVAL, Approvers, Requirement } from './effect-answers.ts';

const APPROVALS = '/v1/workspaces/:ws/approvals';

const VOTE = {
  comment: Type.Optional(Type.String({ maxLength: MOST_COMMENT })),
  digest: Type.Optional(
    Type.String({
      maxLength: 200,
      description: 'That of the request as the voter has seen it. If another is asked now, nothing is decided.',
    }),
  ),
};
const Changes = Type.Record(
  Type.String({ maxLength: 128 }),
  Type.Union([Type.String(), Type.Number(), Type.Boolean()]),
  {
    maxProperties: 20,
    description:
      'Params that the voter changes, by name: those that the policy names as editable, within their bounds. What runs is what they are changed to; everybody else votes on that from then on.',
  },
);
const AllowAlike = Type.Object(
  {
    times: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 100, description: 'As many as the policy lets if absent.' }),
    ),
    until: Type.Optional(Time),
  },
  {
    additionalProperties: false,
    description:
      'Also allows the next calls alike, so many, until then, as far as the policy lets; see `allow_alike` of the request. Nobody is asked about them; all else applies to them.',
  },
);
const ApproveBody = closed({ ...VOTE, changes: Type.Optional(Changes), allow_alike: Type.Optional(AllowAlike) });
const RejectBody = closed(VOTE);

const Votes = List(
  Type.Object({
    user: Type.String(),
    key_id: Type.String({ description: 'With which it was made, or for which the passkey stands.' }),
    verdict: Type.Enum(['approve', 'reject']),
    at: Time,
    comment: Nullable(Type.String()),
    comment_salt: Type.Optional(
      Type.String({ description: 'Of a rejection: with it `approval.rejected` commits to the comment.' }),
    ),
  }),
);
const Count = Type.Integer({ minimum: 0 });
/** The request itself, as votes answer it too. */
const REQUEST = {
  ...PENDING_APPROVAL,
  workspace: Type.String(),
  effect_id: Type.String(),
  tool: Type.String(),
  target: Type.String(),
  summary: Nullable(Type.String(), 'What would happen, in plain words.'),
  requested_by: Type.Object({
    agent_id: Type.String(),
    agent_owner: Nullable(Type.String()),
    user: Nullable(Type.String()),
    key_id: Type.String(),
  }),
  requirements: List(
    Type.Object({
      ...Requirement,
      approvals: Count,
      editable: Type.Optional(MapOf(Bounds, 'Params that who decides by this rule may change, with their bounds.')),
      escalates: Type.Optional(
        Type.Object({ at: Time, to: Approvers }, { description: 'From then on these may decide as well.' }),
      ),
      require_reason: Type.Optional(Flag('A rejection has to say why.')),
    }),
    'Each has its quorum of people.',
  ),
  changed: Type.Optional(
    Type.Object(
      { by: Type.String(), at: Time, params: List(Type.String()) },
      { description: 'An approver changed these params: votes are for that, and `asked_params` has what was asked.' },
    ),
  ),
  votes: Votes,
  decided_at: Nullable(Time),
  stopped: Type.Optional(
    Type.Object(
      {
        at: Time,
        decision: Decision,
        code: Type.String(),
        message: Type.String(),
        rule: Type.Optional(Type.String()),
      },
      { description: 'Why the call was not sent although it is approved.' },
    ),
  ),
  created_at: Time,
};
const Cost = Type.Object({
  budget: Type.String(),
  unit: Type.String(),
  amount: Nullable(Count),
  limit: Type.Optional(Count),
  spent: Type.Optional(Count),
  held: Type.Optional(Type.Integer({ minimum: 0, description: 'Set aside for other calls.' })),
  resets_at: Type.Optional(Nullable(Time)),
});
const ASKED = {
  ...REQUEST,
  costs: List(Cost, 'What the call takes from budgets; agents see no more than that.'),
  action: Type.Optional(
    Type.Object(
      {
        type: Type.String(),
        kind: Type.Enum(['read', 'write']),
        upstream: Type.String(),
        target: Type.String(),
        title: Type.Optional(Type.String()),
        method: Type.Optional(Type.String()),
        path: Type.Optional(Type.String()),
        name: Type.Optional(Type.String()),
        tool_changed: Type.Optional(Flag('The tool has changed since the request.')),
      },
      { description: 'What is sent where: method and path, or the name at the MCP server.' },
    ),
  ),
  ...PARAMS,
  allow_alike: Type.Optional(
    Type.Object(
      { times: Count, for_s: Count, varies: Varies },
      {
        description:
          'Who decides on all of it may also allow the next calls alike: at most so many, for so long. Alike: same agent, tool, target, headers and params but for those that may differ.',
      },
    ),
  ),
  attempt: Type.Optional(Count),
  digest: Type.String({ description: 'Of what a vote approves.' }),
};
const Why = Type.Object({
  rule: Type.String(),
  summary: Type.String(),
  description: Nullable(Type.String()),
  unknown: List(Type.String(), 'What the rule could not judge.'),
});
const Approval = record(
  'Approval',
  'A request for approval: what is asked, who may decide, who has. `url` is its page for people.',
  {
    ...ASKED,
    why: Type.Optional(List(Why, 'Each rule that asks; not in lists.')),
    foreseen: Type.Optional(
      Type.String({ description: 'Why an approval would send nothing now, or not yet; not in lists.' }),
    ),
    repeat: Type.Optional(
      Type.String({
        description: 'That the agent made the same call shortly before, or waits for more; not in lists.',
      }),
    ),
  },
);
const Approvals = component('ApprovalPage', paged({ approvals: List(Approval) }));

const Became = record('Became', 'What a vote did to the call.', {
  what: Type.Enum(['waiting', 'rejected', 'dispatched', 'stopped', 'asked_anew', 'ended']),
  message: Type.String({ description: 'For people.' }),
  decision: Type.Optional(Decision),
  code: Type.Optional(Type.String()),
  rule: Type.Optional(Type.String()),
  effect_id: Type.Optional(Type.String()),
  receipt_id: Type.Optional(Type.String()),
  approval_id: Type.Optional(Type.String({ description: '`asked_anew`: what people are asked now.' })),
});
const Voted = record('Voted', null, {
  ...REQUEST,
  effect: Type.Object({
    effect_id: Type.String(),
    state: EffectState,
    decision: Decision,
  }),
  allowance_id: Type.Optional(Type.String({ description: 'What was allowed ahead with it.' })),
  voted_already: Type.Boolean({ description: 'The same person had approved before: this vote changed nothing.' }),
  became: Became,
});

/** `…/approvals`: list, get, approve, reject. */
export function addApprovalRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  addListRoute(app, ports, lists);
  addApprovalRoute(app, ports);
  addVoteRoutes(app, ports);
}

function addListRoute(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const { store } = ports;
  const listApprovals = guarded('approvals.read', {
    operationId: 'listApprovals',
    summary: 'List requests for approval, newest first',
    description: 'A page may be short though others follow.',
    params: InWorkspace,
    querystring: closed({
      status: Type.Optional(Type.Enum(['pending', 'granted', 'rejected', 'expired', 'used'])),
      ...PAGE_QUERY,
    }),
    response: answers({ 200: Approvals }),
  });
  app.get(APPROVALS, listApprovals, async (request, reply) => {
    const caller = callerOf(request);
    const { view } = caller;
    const page = pageOf(request.query);
    return lists.make(caller, async () => {
      const { items, next } = await store.approvals(request.params.ws, {
        status: request.query.status ?? null,
        agentId: view.kind === 'own' ? view.agentId : null,
        ...page,
      });
      const calls = readCalls(ports, caller.principal, 'list');
      const approvals: Static<typeof Approval>[] = [];
      // One by one: records are large, but only a little of each is shown.
      for (const approval of items) {
        const effect = await store.turns.run(() => store.effect(approval.workspace, approval.effectId));
        const asked = askedToWire(approval, effect, calls, view.kind === 'own', null);
        const request = requestToWire(approvalFor(caller.principal, approval), ports.settings().publicUrl);
        approvals.push({ ...request, ...asked, digest: approval.digest });
      }
      return lists.send(reply, Approvals, 'approvals', approvals, (approval) => approval, { next_cursor: next });
    });
  });
}

function addApprovalRoute(app: ApiApp, ports: ApiPorts): void {
  const { store } = ports;
  const getApproval = guarded('approvals.read', {
    operationId: 'getApproval',
    summary: 'One request for approval',
    params: WithId,
    response: answers({ 200: Approval }),
  });
  app.get(`${APPROVALS}/:id`, getApproval, async (request) => {
    const caller = callerOf(request);
    const { ws, id } = request.params;
    const kept = await store.approval(ws, id);
    if (kept === null || !mayBeSeen(caller, kept.requester.agentId))
      throw refuse('not_found', 'There is no such request for approval here.');
    const approval = approvalFor(caller.principal, kept);
    const isForAgent = caller.view.kind === 'own';
    const [effect, budgets, known] = await Promise.all([
      store.effect(ws, approval.effectId),
      store.budgets(ws),
      approval.status !== 'pending' || isForAgent ? null : knownBefore(ports, caller.principal, kept),
    ]);
    const asked = askedToWire(approval, effect, readCalls(ports, caller.principal, 'page'), isForAgent, budgets);
    const shown: JsonObject = asked;
    const foreseen = foreseenText(kept, known?.standing ?? null);
    const repeat = repeatText(kept.tool, known?.onTarget ?? [], shown['params'], store.now());
    return {
      ...requestToWire(approval, ports.settings().publicUrl),
      ...asked,
      why: whyAsked(approval, effect, ports.policies().set.rules),
      ...(foreseen === '' ? {} : { foreseen }),
      ...(repeat === '' ? {} : { repeat }),
      digest: approval.digest,
    };
  });
}

/** What people should know before they vote; of earlier calls nothing for who may not read them. @throws StoreUnavailable */
async function knownBefore(ports: ApiPorts, principal: Principal, approval: ApprovalRecord) {
  const reading = permit(principal, 'effects.read', approval.workspace);
  const mayRead = reading.ok && reading.view.kind !== 'own';
  const [standing, onTarget] = await Promise.all([
    ports.standingOf(approval),
    mayRead ? earlierOnTarget(ports, approval, readCalls(ports, principal, 'page')) : [],
  ]);
  return { standing: standingFor(principal, approval, standing), onTarget };
}

function addVoteRoutes(app: ApiApp, ports: ApiPorts): void {
  const decide = async (vote: Omit<ApprovalCall, 'workspace' | 'approvalId'>, { ws, id }: Static<typeof WithId>) => {
    const result = await ports.decideApproval({ ...vote, workspace: ws, approvalId: id });
    if (result.kind === 'problem') throw new Refused(result.problem, {});
    return voteToWire(result, vote.principal, ports.settings().publicUrl);
  };
  const schema = {
    description: 'Nobody decides on a request of their own, and no key without a user decides at all.',
    tags: ['approvals'],
    params: WithId,
    response: answers({ 200: Voted }),
  };
  const config = { endpoint: 'approvals.decide' } as const;

  app.post(
    `${APPROVALS}/:id/approve`,
    {
      config,
      schema: {
        operationId: 'approve',
        summary: 'Approve; the last approval needed runs the action',
        ...schema,
        body: ApproveBody,
      },
    },
    (request) => {
      const { comment = null, digest = null, changes = null, allow_alike: asked } = request.body;
      const { principal, passkey } = callerOf(request);
      const until = asked?.until === undefined ? null : timeFromWire(asked.until);
      if (asked?.until !== undefined && until === null)
        throw refuseFaults([{ path: '/allow_alike/until', message: 'is no time' }]);
      const alike = asked === undefined ? undefined : { times: asked.times ?? null, until };
      return decide({ principal, passkey, verdict: 'approve', comment, changes, alike, digest }, request.params);
    },
  );

  app.post(
    `${APPROVALS}/:id/reject`,
    { config, schema: { operationId: 'reject', summary: 'Reject; binds the key', ...schema, body: RejectBody } },
    (request) => {
      const { comment = null, digest = null } = request.body;
      const { principal, passkey } = callerOf(request);
      return decide({ principal, passkey, verdict: 'reject', comment, changes: null, digest }, request.params);
    },
  );
}
