import { Type } from 'typebox';
import { type Agent, ledgerActor, MOST_AGENTS_OF_USER } from '../effects/model/principal.ts';
import { permit } from '../identity/permissions.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf, mayBeSeen } from './caller.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';
import {
  AgentId,
  answers,
  closed,
  component,
  InWorkspace,
  List,
  Nullable,
  record,
  UserId,
  WorkspaceId,
} from './schema.ts';

const WORKSPACES = '/v1/workspaces';
const Name = Type.String({ minLength: 1, maxLength: 100 });

const Attributes = Type.Unsafe<Readonly<Record<string, string | number | boolean>>>({
  type: 'object',
  maxProperties: 100,
  additionalProperties: { type: ['string', 'number', 'boolean'] },
  description: 'Facts for policies.',
});
const Workspace = component('Workspace', Type.Object({ id: WorkspaceId }));
const RegisteredAgent = record('Agent', null, {
  id: Type.String(),
  workspace: Type.String(),
  disabled: Type.Boolean(),
  team: Nullable(Type.String()),
  owner: Nullable(Type.String()),
  registered_by: Nullable(Type.String()),
  roles: List(Type.String()),
  attributes: Attributes,
});

const AgentBody = closed({
  id: AgentId,
  owner: Type.Optional(UserId),
  team: Type.Optional(Name),
  roles: Type.Optional(Type.Array(Name, { maxItems: 100 })),
  attributes: Type.Optional(Attributes),
});

/** `/v1/workspaces`: create, list; `…/agents`: register, list. */
export function addWorkspaceRoutes(app: ApiApp, ports: ApiPorts): void {
  addCreateAndListRoutes(app, ports);
  addRegisterRoute(app, ports);
  addAgentsRoute(app, ports);
}

function addCreateAndListRoutes(app: ApiApp, { store, directory }: ApiPorts): void {
  const createWorkspace = guarded('workspaces.manage', {
    operationId: 'createWorkspace',
    summary: 'Make a workspace',
    body: closed({ id: WorkspaceId }),
    response: answers({ 201: Workspace }),
  });
  app.post(WORKSPACES, createWorkspace, async (request, reply) => {
    const { id } = request.body;
    const exists = () => refuse('conflict', `There is a workspace ${id} already.`);
    if (directory.workspaceExists(id)) throw exists();
    const made = await store.putWorkspace(id, ledgerActor(callerOf(request).principal));
    await directory.refresh();
    if (!made) throw exists();
    return reply.code(201).send({ id });
  });

  const listWorkspaces = guarded('workspaces.manage', {
    operationId: 'listWorkspaces',
    summary: 'List workspaces',
    response: answers({ 200: Type.Object({ workspaces: List(Workspace) }) }),
  });
  app.get(WORKSPACES, listWorkspaces, async () => ({ workspaces: directory.workspaces().map((id) => ({ id })) }));
}

function addRegisterRoute(app: ApiApp, { store, directory }: ApiPorts): void {
  const registerAgent = guarded('agents.register', {
    operationId: 'registerAgent',
    summary: 'Register an agent',
    description: `Team, roles and attributes, on which policies rest, and another owner than the user of the key are for administrative keys only. Who registers an agent decides on none of its requests. An id that is taken is a 409 \`conflict\`, and so is, with other keys, one agent more than the ${MOST_AGENTS_OF_USER} that a user may register.`,
    params: InWorkspace,
    body: AgentBody,
    response: answers({ 201: RegisteredAgent }),
  });
  app.post(`${WORKSPACES}/:ws/agents`, registerAgent, async (request, reply) => {
    const { ws } = request.params;
    const { body } = request;
    const { principal } = callerOf(request);
    const isDescribed = body.team !== undefined || body.roles !== undefined || body.attributes !== undefined;
    const isAnothers = body.owner !== undefined && body.owner !== principal.user;
    if (isDescribed || isAnothers) {
      const permission = permit(principal, 'agents.describe', ws);
      if (!permission.ok)
        throw refuse(
          permission.code,
          'Only an administrative key may give an agent team, roles or attributes, or another owner than its own user.',
        );
    }
    if (principal.kind !== 'administrative' && principal.user === null)
      throw refuse('wrong_key_kind', 'This key belongs to no user, so nobody would answer for the agent.');
    const exists = () => refuse('conflict', `There is an agent ${body.id} already.`);
    if (directory.agent(ws, body.id) !== null) throw exists();
    const agent: Agent = {
      id: body.id,
      workspace: ws,
      disabled: false,
      team: body.team ?? null,
      // The people behind an agent may not decide on its requests, and whoever registers it is one of them.
      owner: body.owner ?? principal.user,
      registeredBy: principal.user,
      isSelfMade: principal.kind !== 'administrative',
      roles: body.roles ?? [],
      attributes: body.attributes ?? {},
    };
    const put = await store.putAgent(agent, ledgerActor(principal));
    if (put === 'too_many')
      throw refuse(
        'conflict',
        `With keys of this user ${MOST_AGENTS_OF_USER} agents are registered, as many as may be. An administrative key may register more.`,
      );
    await directory.refresh();
    if (put === 'taken') throw exists();
    return reply.code(201).send(agentToWire(agent));
  });
}

function addAgentsRoute(app: ApiApp, { directory }: ApiPorts): void {
  const listAgents = guarded('agents.read', {
    operationId: 'listAgents',
    summary: 'List registered agents',
    params: InWorkspace,
    response: answers({ 200: Type.Object({ agents: List(RegisteredAgent) }) }),
  });
  app.get(`${WORKSPACES}/:ws/agents`, listAgents, async (request) => {
    const caller = callerOf(request);
    const agents = directory.agents(request.params.ws).filter(({ id }) => mayBeSeen(caller, id));
    return { agents: agents.map(agentToWire) };
  });
}

function agentToWire(agent: Agent) {
  return {
    id: agent.id,
    workspace: agent.workspace,
    disabled: agent.disabled,
    team: agent.team,
    owner: agent.owner,
    registered_by: agent.registeredBy ?? null,
    roles: agent.roles,
    attributes: agent.attributes,
  };
}
