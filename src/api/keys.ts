import { Type } from 'typebox';
import type { KeyRecord } from '../effects/controls.ts';
import type { JsonObject } from '../effects/json.ts';
import { KEY_KINDS, SCOPES } from '../effects/principal.ts';
import { keyToWire } from '../identity/key-record.ts';
import type { ApiApp } from './app.ts';
import { callerOf, ledgerActor } from './caller.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, refuseFaults } from './problem.ts';
import { AgentId, AnyObject, NoQuery, Tool, USER_ID, WorkspaceId, answers } from './schema.ts';

const KEYS = '/v1/beta/users/:user_id/keys';
const DEFAULT_OVERLAP_S = 3600;
const MAX_OVERLAP_S = 30 * 86_400;

const OfUser = Type.Object({ user_id: Type.String({ description: 'Whom the key belongs to.' }) });
const OneKey = Type.Object({ user_id: Type.String(), key_id: Type.String() });

const CreateBody = Type.Object(
  {
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
  },
  { additionalProperties: false },
);

const Record = AnyObject('The record of the key.');
const WithKey = AnyObject('The record, and `key`: shown this once.');

/** `/v1/beta/users/{user_id}/keys`: make, list, revoke, rotate. */
export function addKeyRoutes(app: ApiApp, ports: ApiPorts): void {
  const { store } = ports;

  app.post(
    KEYS,
    {
      config: { endpoint: 'keys.manage' },
      schema: {
        operationId: 'createKey',
        summary: 'Make a key',
        tags: ['keys'],
        params: OfUser,
        querystring: NoQuery,
        body: CreateBody,
        response: answers({ 201: WithKey }),
      },
    },
    async (request, reply) => {
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
      await store.putKey(made.record, ledgerActor(principal));
      return reply.code(201).header('cache-control', 'no-store').send(shownOnce(made));
    },
  );

  app.get(
    KEYS,
    {
      config: { endpoint: 'keys.manage' },
      schema: {
        operationId: 'listKeys',
        summary: 'List the keys of a user, without secrets',
        tags: ['keys'],
        params: OfUser,
        querystring: NoQuery,
        response: answers({ 200: AnyObject('`keys`.') }),
      },
    },
    async (request) => {
      const keys = await store.keys(userOf(request.params.user_id));
      return { keys: keys.map(keyToWire) };
    },
  );

  app.delete(
    `${KEYS}/:key_id`,
    {
      config: { endpoint: 'keys.manage' },
      schema: {
        operationId: 'revokeKey',
        summary: 'Revoke a key; it is in force within a second',
        tags: ['keys'],
        params: OneKey,
        querystring: NoQuery,
        response: answers({ 200: Record }),
      },
    },
    async (request) => {
      const record = await keyOf(ports, request.params);
      if (record.revokedAt !== null) return keyToWire(record);
      const ended = await store.endKey(record.id, { kind: 'revoked' }, ledgerActor(callerOf(request).principal));
      return keyToWire(ended ?? record);
    },
  );

  app.post(
    `${KEYS}/:key_id/rotate`,
    {
      config: { endpoint: 'keys.manage' },
      schema: {
        operationId: 'rotateKey',
        summary: 'Make a successor with the same rights',
        tags: ['keys'],
        params: OneKey,
        querystring: NoQuery,
        body: Type.Object(
          {
            overlap: Type.Optional(
              Type.Integer({
                minimum: 0,
                maximum: MAX_OVERLAP_S,
                description: `Seconds for which the old key stays valid; ${DEFAULT_OVERLAP_S} if absent.`,
              }),
            ),
          },
          { additionalProperties: false },
        ),
        response: answers({ 201: WithKey }),
      },
    },
    async (request, reply) => {
      const actor = ledgerActor(callerOf(request).principal);
      const record = await keyOf(ports, request.params);
      if (record.revokedAt !== null || record.replacedBy !== null) throw ended();
      const made = ports.keys.successor(record);
      // The successor first: a failure in between leaves two valid keys, never none.
      await store.putKey(made.record, actor);
      const overlapMs = (request.body.overlap ?? DEFAULT_OVERLAP_S) * 1000;
      const old = await store.endKey(record.id, { kind: 'replaced', by: made.record.id, overlapMs }, actor);
      if (old?.replacedBy !== made.record.id) {
        // Somebody else was first: a key has one successor, and a revoked one has none.
        await store.endKey(made.record.id, { kind: 'revoked' }, actor);
        throw ended();
      }
      return reply
        .code(201)
        .header('cache-control', 'no-store')
        .send({ ...shownOnce(made), replaces: record.id });
    },
  );
}

async function keyOf(
  ports: ApiPorts,
  params: { readonly user_id: string; readonly key_id: string },
): Promise<KeyRecord> {
  const keys = await ports.store.keys(userOf(params.user_id));
  const record = keys.find(({ id }) => id === params.key_id);
  if (record === undefined) throw refuse('not_found', 'This user has no such key.');
  return record;
}

function ended() {
  return refuse('conflict', 'The key is revoked or was rotated before. Make a new one.');
}

function shownOnce(made: { readonly record: KeyRecord; readonly key: string }): JsonObject {
  return { ...keyToWire(made.record), key: made.key };
}

const USER = new RegExp(USER_ID);

function userOf(id: string): string {
  if (!USER.test(id)) throw refuseFaults([{ path: '/params/user_id', message: `must match ${USER.source}` }]);
  return id;
}
