import { type Static, Type } from 'typebox';
import type { FastifyReply } from 'fastify';
import {
  INSTALLATION,
  LEDGER_GROUPS,
  LEDGER_KINDS,
  ledgerEventToWire,
  type LedgerFilter,
} from '../effects/model/ledger.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import { permit } from '../identity/permissions.ts';
import { type ApiApp, type Caller, guarded } from './app.ts';
import { callerOf, refuseAgents } from './caller.ts';
import { LedgerEvent } from './effect-answers.ts';
import { type Lists, PAGE_QUERY, pageOf, TIME_QUERY, timesOf, WHO_QUERY } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, refuseFaults } from './problem.ts';
import { AgentId, answers, closed, component, InWorkspace, List, paged, Tool } from './schema.ts';

const KIND = Type.Optional(
  Type.Enum([...LEDGER_KINDS, ...LEDGER_GROUPS], {
    description: 'A kind of event, or what stands before the dot: all kinds about one thing.',
  }),
);
const ACTOR = Type.Optional(
  Type.String({
    minLength: 1,
    maxLength: 200,
    description: 'Id of who caused the event: user, agent, key or gateway.',
  }),
);

/** Query members by which events of effects, and about effects, are found. */
export const EVENT_QUERY = {
  kind: KIND,
  actor: ACTOR,
  effect_id: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
  agent_id: Type.Optional(AgentId),
  tool: Type.Optional(Tool),
  target: Type.Optional(Type.String({ minLength: 1, maxLength: 1000 })),
  rule: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
  ...WHO_QUERY,
  ...TIME_QUERY,
};

const LedgerQuery = closed({ ...EVENT_QUERY, ...PAGE_QUERY });
const InstallationQuery = closed({ kind: KIND, actor: ACTOR, ...WHO_QUERY, ...TIME_QUERY, ...PAGE_QUERY });
const LedgerPage = component('LedgerPage', paged({ events: List(LedgerEvent) }));

const ABOUT =
  'A page looks at a part of the ledger, and may be short or empty though others follow: go on until `next_cursor` is null.';

/** `GET …/ledger`: the append-only ledger of a workspace, and that of the installation. */
export function addLedgerRoutes(app: ApiApp, ports: Pick<ApiPorts, 'store'>, lists: Lists): void {
  async function answer(
    reply: FastifyReply,
    caller: Caller,
    workspace: string,
    query: Static<typeof LedgerQuery>,
  ): Promise<FastifyReply> {
    const faults: RequestFault[] = [];
    const filter = { ...eventFilter(query, faults), ...pageOf(query, faults) };
    if (faults.length > 0) throw refuseFaults(faults);
    return lists.make(caller, async () => {
      const page = await ports.store.ledgerPage(workspace, filter);
      return lists.send(reply, LedgerPage, 'events', page.items, ledgerEventToWire, { next_cursor: page.next });
    });
  }

  const listLedger = guarded('ledger.read', {
    operationId: 'listLedger',
    summary: 'The ledger of a workspace, newest first',
    description: `Every event: what became of calls, and who changed keys, pauses, claims, agents and entities. \`agent_id\`, \`tool\`, \`target\`, \`rule\`, \`user\` and \`key_id\` fit what the event says, and the effect that it is about. ${ABOUT}`,
    params: InWorkspace,
    querystring: LedgerQuery,
    response: answers({ 200: LedgerPage }),
  });
  app.get('/v1/workspaces/:ws/ledger', listLedger, async (request, reply) => {
    const caller = callerOf(request);
    refuseAgents(caller);
    return answer(reply, caller, request.params.ws, request.query);
  });

  const listInstallationLedger = guarded('ledger.users', {
    operationId: 'listInstallationLedger',
    summary: 'The ledger of what belongs to no workspace, newest first',
    description: `Administrative keys, policies that were put in force or refused, what was decided about the store, refusals of keys without a workspace, and users: with \`kind=user\` or \`kind=passkey\` an auditor reads these. ${ABOUT}`,
    querystring: InstallationQuery,
    response: answers({ 200: LedgerPage }),
  });
  app.get('/v1/beta/ledger', listInstallationLedger, async (request, reply) => {
    const caller = callerOf(request);
    const { kind = '' } = request.query;
    const all = /^(?:user|passkey)(?:\.|$)/.test(kind) ? null : permit(caller.principal, 'ledger.installation');
    if (all?.ok === false) throw refuse(all.code, all.detail);
    return answer(reply, caller, INSTALLATION, request.query);
  });
}

/** Which events a query asks for. Faults that its schema cannot find are added to `faults`. */
export function eventFilter(
  query: Static<typeof LedgerQuery>,
  faults: RequestFault[],
): Omit<LedgerFilter, 'limit' | 'cursor'> {
  const { kind, actor, tool, target, rule, user } = query;
  return {
    kind,
    actor,
    effectId: query.effect_id,
    agentId: query.agent_id,
    tool,
    target,
    rule,
    user,
    keyId: query.key_id,
    ...timesOf(query, faults),
  };
}
