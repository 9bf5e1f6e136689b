import { ledgerActor } from '../effects/model/principal.ts';
import { type Static, Type } from 'typebox';
import { MOST_PAUSES, type PauseRecord, type PauseScope } from '../effects/model/pause.ts';
import { KEY_KINDS } from '../effects/model/principal.ts';
import { undeclaredRead } from '../config/stand-in-tools.ts';
import { type CompiledPattern, compilePattern } from '../policy/glob.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf } from './caller.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, refuseFaults } from './problem.ts';
import { optionalTimeToWire, timeFromWire, timeToWire } from '../effects/wire/time.ts';
import {
  AgentId,
  answers,
  closed,
  component,
  InWorkspace,
  List,
  Nullable,
  OneOf,
  record,
  Time,
  WithId,
} from './schema.ts';

const PAUSES = '/v1/workspaces/:ws/pauses';

const Scope = Type.Object(
  {
    workspace: Type.Optional(Type.Literal(true)),
    tool: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'Glob over tool names.' })),
    agent: Type.Optional(AgentId),
    upstream: Type.Optional(Type.String({ minLength: 1, maxLength: 128 })),
    key: Type.Optional(Type.String({ pattern: '^key_[0-9A-Za-z]{12}$', examples: ['key_9fKq2LmXw3Za'] })),
  },
  {
    additionalProperties: false,
    minProperties: 1,
    maxProperties: 1,
    description: 'What is stopped: exactly one of these.',
  },
);

const Shown = component(
  'PauseScope',
  OneOf([
    Type.Object({ workspace: Type.Literal(true) }),
    Type.Object({ tool: Type.String() }),
    Type.Object({ agent: Type.String() }),
    Type.Object({ upstream: Type.String() }),
    Type.Object({ key: Type.String() }),
  ]),
);
const Pause = record('Pause', 'A stop switch.', {
  id: Type.String(),
  workspace: Type.String(),
  scope: Shown,
  reason: Type.String(),
  by: Type.Object({ key_id: Type.String(), key_kind: Type.Enum([...KEY_KINDS]), user: Nullable(Type.String()) }),
  created_at: Time,
  until: Nullable(Time),
  warning: Type.Optional(
    Type.String({ description: 'Only when it was just set: nothing known has the name that it stops.' }),
  ),
});

/** `…/pauses`: set, list, lift. */
export function addPauseRoutes(app: ApiApp, ports: ApiPorts): void {
  addSetRoute(app, ports);
  addListAndLiftRoutes(app, ports);
}

function addSetRoute(app: ApiApp, ports: ApiPorts): void {
  const { store } = ports;
  const setPause = guarded('pauses.write', {
    operationId: 'setPause',
    summary: 'Stop calls',
    description: `With ${MOST_PAUSES} pauses in force, one more is a 409 \`conflict\`, except from an administrative key, or where it is the first of the whole workspace.`,
    params: InWorkspace,
    body: closed({
      scope: Scope,
      reason: Type.String({ minLength: 1, maxLength: 500 }),
      until: Type.Optional(Time),
    }),
    response: answers({ 201: Pause }),
  });
  app.post(PAUSES, setPause, async (request, reply) => {
    const { scope, reason, until } = request.body;
    const { principal } = callerOf(request);
    const pattern = scope.tool === undefined ? null : compilePattern('glob', scope.tool);
    if (pattern !== null && !pattern.ok)
      throw refuseFaults([{ path: '/scope/tool', message: `is no glob: ${pattern.message}` }]);
    const end = until === undefined ? null : timeFromWire(until);
    if (until !== undefined && (end === null || end <= store.now()))
      throw refuseFaults([{ path: '/until', message: 'must be a time that is still to come' }]);
    const pause = await store.setPause({
      id: ports.newId('pau'),
      workspace: request.params.ws,
      scope: scopeOf(scope),
      reason,
      until: end,
      by: { keyId: principal.keyId, keyKind: principal.kind, user: principal.user },
      actor: ledgerActor(principal),
    });
    if (pause === null)
      throw refuse(
        'conflict',
        `${MOST_PAUSES} pauses of this workspace are in force, as many as may be. Lift some, or set one with a wider scope in their place; administrative keys may set more.`,
      );
    const warning = await warningOf(ports, request.params.ws, scope, pattern);
    return reply.code(201).send({ ...pauseToWire(pause), ...(warning === null ? {} : { warning }) });
  });
}

function addListAndLiftRoutes(app: ApiApp, { store }: ApiPorts): void {
  const listPauses = guarded('pauses.read', {
    operationId: 'listPauses',
    summary: 'List pauses in force',
    params: InWorkspace,
    response: answers({ 200: Type.Object({ pauses: List(Pause) }) }),
  });
  app.get(PAUSES, listPauses, async (request) => {
    const { view, principal } = callerOf(request);
    const { pauses } = await store.pauses(request.params.ws);
    // An agent sees only the pauses that stop it.
    const visible = pauses.filter(({ scope }) => {
      if (view.kind !== 'own') return true;
      if (scope.kind === 'agent') return scope.id === view.agentId;
      return scope.kind !== 'key' || scope.id === principal.keyId;
    });
    return { pauses: visible.map(pauseToWire) };
  });

  const liftPause = guarded('pauses.write', {
    operationId: 'liftPause',
    summary: 'Lift a pause',
    description: 'One that an administrative key has set is lifted by such a key only.',
    params: WithId,
    response: answers({ 200: Pause }),
  });
  app.delete(`${PAUSES}/:id`, liftPause, async (request) => {
    const { principal } = callerOf(request);
    const { ws, id } = request.params;
    const lift = await store.liftPause(ws, id, principal.kind, ledgerActor(principal));
    switch (lift.kind) {
      case 'lifted':
        return pauseToWire(lift.pause);
      case 'administrative_only':
        throw refuse('wrong_key_kind', 'An administrative key has set this pause; only one can lift it.');
      case 'absent':
        throw refuse('not_found', 'There is no such pause here, or it is lifted.');
    }
  });
}

function scopeOf(scope: Static<typeof Scope>): PauseScope {
  if (scope.tool !== undefined) return { kind: 'tool', glob: scope.tool };
  if (scope.agent !== undefined) return { kind: 'agent', id: scope.agent };
  if (scope.upstream !== undefined) return { kind: 'upstream', id: scope.upstream };
  if (scope.key !== undefined) return { kind: 'key', id: scope.key };
  return { kind: 'workspace' };
}

/**
 * A warning if nothing known has this name, else `null`. The pause is set anyway, and also stops what gets the name
 * later.
 */
async function warningOf(
  ports: ApiPorts,
  workspace: string,
  scope: Static<typeof Scope>,
  glob: CompiledPattern | null,
): Promise<string | null> {
  const stops = (what: string): string => `${what} is known, so this stops nothing now. Look for a misspelt name.`;
  const tools = ports.catalog().tools();
  if (glob?.ok === true) {
    // Reads that no tool declares are paused by a pattern with their upstream.
    const upstreams = new Set(tools.map((tool) => tool.upstream));
    const names = [...tools.map(({ name }) => name), ...[...upstreams].map((id) => undeclaredRead(id).name)];
    return names.some((name) => glob.test(name)) ? null : stops(`No tool that fits '${scope.tool}'`);
  }
  if (scope.agent !== undefined && ports.directory.agent(workspace, scope.agent) === null)
    return stops(`No agent '${scope.agent}' of this workspace`);
  if (scope.upstream !== undefined && !tools.some(({ upstream }) => upstream === scope.upstream))
    return stops(`No tool of an upstream '${scope.upstream}'`);
  if (scope.key !== undefined) {
    const key = await ports.store.key(scope.key.slice('key_'.length));
    if (key === null || key.workspace !== workspace) return stops(`No key '${scope.key}' of this workspace`);
  }
  return null;
}

function scopeToWire(scope: PauseScope) {
  switch (scope.kind) {
    case 'workspace':
      return { workspace: true as const };
    case 'tool':
      return { tool: scope.glob };
    case 'agent':
      return { agent: scope.id };
    case 'upstream':
      return { upstream: scope.id };
    case 'key':
      return { key: scope.id };
  }
}

function pauseToWire(pause: PauseRecord) {
  return {
    id: pause.id,
    workspace: pause.workspace,
    scope: scopeToWire(pause.scope),
    reason: pause.reason,
    by: { key_id: pause.by.keyId, key_kind: pause.by.keyKind, user: pause.by.user },
    created_at: timeToWire(pause.createdAt),
    until: optionalTimeToWire(pause.until),
  };
}
