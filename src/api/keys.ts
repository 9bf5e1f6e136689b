import { Type } from 'typebox';
import type { KeyRecord } from '../effects/model/key.ts';
import { KEY_KINDS, ledgerActor, type Principal, SCOPES } from '../effects/model/principal.ts';
import { OVERLAP_S } from '../effects/steps/key-events.ts';
import { keyToWire, rotateKey } from '../identity/key-record.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf } from './caller.ts';
import type { Lists } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, refuseFaults } from './problem.ts';
import {
  AgentId,
  answers,
  closed,
  component,
  List,
  Nullable,
  record,
  Time,
  Tool,
  USER_ID,
  UserId,
  WorkspaceId,
} from './schema.ts';

const KEYS = '/v1/beta/users/:user_id/keys';
const ALL_KEYS = '/v1/beta/keys';

const OfUser = Type.Object({ user_id: Type.String({ description: 'Whom the key belongs to.' }) });
const OneOfUser = Type.Object({ user_id: Type.String(), key_id: Type.String() });
const OneKey = Type.Object({ key_id: Type.String() });

/** Filters for the list of keys. A key must fit all that are given. */
const WhichKeys = closed({
  kind: Type.Optional(Type.Enum([...KEY_KINDS])),
  workspace: Type.Optional(WorkspaceId),
  agent_id: Type.Optional(AgentId),
  user_id: Type.Optional(UserId),
});

const RotateBody = closed({
  overlap: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: OVERLAP_S.most,
      description: `Seconds for which the old key stays valid; ${OVERLAP_S.usual} if absent.`,
    }),
  ),
});

const CreateBody = closed({
  name: Type.String({ minLength: 1, maxLength: 200, description: 'Human label of the key.' }),
  profile: Type.Optional(Type.String({ minLength: 1, maxLength: 100, examples: ['mcp_readonly'] })),
  kind: Type.Optional(Type.Enum([...KEY_KINDS], { description: '`profile` where a profile is named.' })),
  workspace: Type.Optional(WorkspaceId),
  agent_id: Type.Optional(AgentId),
  scopes: Type.Optional(Type.Array(Type.Enum([...SCOPES]), { maxItems: SCOPES.length })),
  allowed_tools: Type.Optional(Type.Array(Tool, { maxItems: 1000 })),
  expires_in: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 315_360_000, description: 'Seconds; the default of the kind if absent.' }),
  ),
});

const RECORD = {
  id: Type.String({ examples: ['key_9fKq2LmXw3Za'] }),
  name: Type.String(),
  kind: Type.Enum([...KEY_KINDS]),
  profile: Nullable(Type.String()),
  workspace: Nullable(Type.String()),
  agent_id: Nullable(Type.String()),
  user_id: Nullable(Type.String()),
  scopes: List(Type.Enum([...SCOPES])),
  allowed_tools: Nullable(List(Type.String()), '`null` is no limit.'),
  read_only: Type.Boolean(),
  made_by: Nullable(Type.String()),
  created_at: Time,
  expires_at: Nullable(Time),
  last_used_at: Nullable(Time),
  revoked_at: Nullable(Time),
  replaced_by: Nullable(Type.String()),
};
const ApiKey = component('ApiKey', Type.Object(RECORD, { description: 'An API key without its secret.' }));
const ApiKeys = Type.Object({ keys: List(ApiKey) });
const MadeKey = record('MadeKey', null, {
  ...RECORD,
  key: Type.String({ description: 'The key itself: shown this once.' }),
  replaces: Type.Optional(Type.String({ description: 'The key that this one succeeds.' })),
});

/**
 * `/v1/beta/users/{user_id}/keys`: create, list, revoke, rotate. `/v1/beta/keys`: the same without create, for all
 * keys.
 */
export function addKeyRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  addCreateRoute(app, ports);
  addListRoutes(app, ports, lists);
  for (const of of ENDED_AT) addEndRoutes(app, ports, of);
}

function addCreateRoute(app: ApiApp, ports: ApiPorts): void {
  const createKey = guarded('keys.manage', {
    operationId: 'createKey',
    summary: 'Make a key',
    params: OfUser,
    body: CreateBody,
    response: answers({ 201: MadeKey }),
  });
  app.post(KEYS, createKey, async (request, reply) => {
    const { principal } = callerOf(request);
    const { body } = request;
    const made = ports.keys.create({
      user: userOf(request.params.user_id),
      madeBy: principal.user,
      name: body.name,
      kind: body.kind ?? null,
      profile: body.profile ?? null,
      workspace: body.workspace ?? null,
      agentId: body.agent_id ?? null,
      scopes: body.scopes ?? null,
      allowedTools: body.allowed_tools ?? null,
      expiresInMs: body.expires_in === undefined ? null : body.expires_in * 1000,
    });
    if (made.kind === 'refused') throw refuseFaults(made.faults);
    await ports.store.putKey(made.record, ledgerActor(principal));
    return reply.code(201).header('cache-control', 'no-store').send(shownOnce(made));
  });
}

function addListRoutes(app: ApiApp, { store }: ApiPorts, lists: Lists): void {
  const listKeys = guarded('keys.manage', {
    operationId: 'listKeys',
    summary: 'List the keys of a user, without secrets',
    params: OfUser,
    response: answers({ 200: ApiKeys }),
  });
  app.get(KEYS, listKeys, async (request, reply) => {
    const user = userOf(request.params.user_id);
    return lists.make(callerOf(request), async () =>
      lists.send(reply, ApiKeys, 'keys', await store.keys(user), keyToWire, {}),
    );
  });

  const listAllKeys = guarded('keys.manage', {
    operationId: 'listAllKeys',
    summary: 'List keys of agents, users and administrators, without secrets',
    querystring: WhichKeys,
    response: answers({ 200: ApiKeys }),
  });
  app.get(ALL_KEYS, listAllKeys, async (request, reply) => {
    const { kind, workspace, agent_id, user_id } = request.query;
    return lists.make(callerOf(request), async () => {
      const keys = (await store.keys(user_id ?? null)).filter(
        (key) =>
          (kind === undefined || key.kind === kind) &&
          (workspace === undefined || key.workspace === workspace) &&
          (agent_id === undefined || key.agentId === agent_id),
      );
      return lists.send(reply, ApiKeys, 'keys', keys, keyToWire, {});
    });
  });
}

/** Keys are revoked and rotated as those of a user, and as any. */
const ENDED_AT = [
  { at: KEYS, params: OneOfUser, ids: ['revokeKey', 'rotateKey'], which: 'a key of a user' },
  { at: ALL_KEYS, params: OneKey, ids: ['revokeAnyKey', 'rotateAnyKey'], which: 'any key' },
] as const;

function addEndRoutes(app: ApiApp, ports: ApiPorts, { at, params, ids, which }: (typeof ENDED_AT)[number]): void {
  app.delete(
    `${at}/:key_id`,
    guarded('keys.manage', {
      operationId: ids[0],
      summary: `Revoke ${which}; it is in force within a second`,
      params,
      response: answers({ 200: ApiKey }),
    }),
    async (request) => {
      const record = await keyOf(ports, request.params);
      const actor = ledgerActor(callerOf(request).principal);
      return keyToWire((await ports.store.endKey(record.id, { kind: 'revoked' }, actor)) ?? record);
    },
  );

  app.post(
    `${at}/:key_id/rotate`,
    guarded('keys.manage', {
      operationId: ids[1],
      summary: `Make a successor of ${which}, with the same rights`,
      params,
      body: RotateBody,
      response: answers({ 201: MadeKey }),
    }),
    async (request, reply) => {
      const record = await keyOf(ports, request.params);
      const rotated = await rotate(ports, record, request.body, callerOf(request).principal);
      return reply.code(201).header('cache-control', 'no-store').send(rotated);
    },
  );
}

/** The id of a key has its handle. */
async function keyOf(
  { store }: ApiPorts,
  { user_id: of, key_id: id }: { readonly user_id?: string; readonly key_id: string },
): Promise<KeyRecord> {
  const user = of === undefined ? null : userOf(of);
  const record = KEY_ID.test(id) ? await store.key(id.slice('key_'.length)) : null;
  if (record === null || (user !== null && record.user !== user))
    throw refuse('not_found', user === null ? 'There is no such key.' : 'This user has no such key.');
  return record;
}

async function rotate(ports: ApiPorts, record: KeyRecord, body: { readonly overlap?: number }, by: Principal) {
  const made = ports.keys.successor(record, by.user);
  const overlapMs = (body.overlap ?? OVERLAP_S.usual) * 1000;
  if (!(await rotateKey(ports.store, record, made.record, overlapMs, ledgerActor(by))))
    throw refuse('conflict', 'The key is revoked or was rotated before. Make a new one.');
  return { ...shownOnce(made), replaces: record.id };
}

function shownOnce(made: { readonly record: KeyRecord; readonly key: string }) {
  return { ...keyToWire(made.record), key: made.key };
}

const USER = new RegExp(USER_ID);
/** `key_` and the 12 characters of the key in the clear. */
const KEY_ID = /^key_[0-9A-Za-z]{12}$/;

function userOf(id: string): string {
  if (!USER.test(id)) throw refuseFaults([{ path: '/params/user_id', message: `must match ${USER.source}` }]);
  return id;
}

const Profiles = Type.Object({
  profiles: List(
    Type.Object({
      name: Type.String(),
      description: Type.String(),
      scopes: List(Type.Enum([...SCOPES])),
      allowed_tools: Nullable(List(Type.String()), '`null` is no limit.'),
      read_only: Type.Boolean(),
    }),
  ),
});

/** `GET /v1/mcp/key-profiles`. */
export function addKeyProfileRoutes(app: ApiApp, ports: ApiPorts): void {
  const listKeyProfiles = guarded('key_profiles.read', {
    operationId: 'listKeyProfiles',
    summary: 'The profiles that a key can be made with',
    response: answers({ 200: Profiles }),
  });
  app.get('/v1/mcp/key-profiles', listKeyProfiles, async () => ({
    profiles: ports.profiles().map(({ name, description, scopes, allowedTools, readOnly }) => ({
      name,
      description,
      scopes,
      allowed_tools: allowedTools,
      read_only: readOnly,
    })),
  }));
}
