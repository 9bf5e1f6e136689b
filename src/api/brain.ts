import { ledgerActor } from '../effects/model/principal.ts';
import { type Static, Type } from 'typebox';
import { checkEntity, isEntityId, isEntityType, MAX_TYPE, MOST_FAULTS } from '../brain/check-entity.ts';
import { BadQuestion, type BrainAnswer, BrainNotReady, DEFAULT_HITS, MOST_HITS } from '../brain/port.ts';
import { MAX_QUERY, shownEntity } from '../brain/brain.ts';
import { answerToWire, entityToWire, originToWire } from '../brain/wire.ts';
import { type Incoming, MOST_AT_ONCE } from '../brain/writer.ts';
import { entityName, type EntityOrigin, type EntityRecord } from '../effects/model/entity.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import { pointerTo, type JsonObject } from '../json/value.ts';
import { type ApiApp, type Caller, guarded } from './app.ts';
import { callerOf, refuseAgents } from './caller.ts';
import { type Lists, PAGE_QUERY, pageOf } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, refuseFaults } from './problem.ts';
import { Actor } from './effect-answers.ts';
import { answers, AnyObject, AnyValue, closed, InWorkspace, List, OneOf, paged, record, Time } from './schema.ts';

const BRAIN = '/v1/workspaces/:ws/brain';
/** The tool over MCP that returns the same. Keys that are limited to some tools need it here too. */
const QUERY_TOOL = 'svc.company_brain.query';

const EntityType = Type.String({
  minLength: 1,
  maxLength: MAX_TYPE,
  description: 'Type of entities.',
  examples: ['customer'],
});
const OfEntity = Type.Object({
  ws: Type.String({ description: 'Id of the workspace.' }),
  type: Type.String({ description: 'Type of the entity.' }),
  id: Type.String({ description: 'Id of the entity.' }),
});
const Search = closed({
  query: Type.String({
    minLength: 1,
    maxLength: MAX_QUERY,
    description: 'Words, which may have a typing error, or an id.',
    examples: ['acme'],
  }),
  entity_type: EntityType,
  join_to: Type.Optional({ ...EntityType, description: 'Type of linked entities that are wanted with each hit.' }),
  limit: Type.Optional(
    Type.String({ pattern: '^[0-9]{1,2}$', description: `1 to ${MOST_HITS}; ${DEFAULT_HITS} if absent.` }),
  ),
});

const REF = { type: Type.String(), id: Type.String() };
const ENTITY = {
  ...REF,
  name: Type.String(),
  attributes: AnyObject('Facts, which policies may read.'),
  links: List(Type.Object({ rel: Type.String(), ...REF })),
  version: Type.Integer({ minimum: 1, description: 'Of the brain that wrote it: it only grows.' }),
  updated_at: Time,
};
const FromApi = { kind: Type.Literal('api'), by: Actor };
const FromFile = { kind: Type.Literal('file'), file: Type.String(), line: Type.Integer({ minimum: 1 }) };
const Entity = record(
  'Entity',
  'Something of the organisation that agents and policies may consult, and where it comes from.',
  { ...ENTITY, source: OneOf([Type.Object(FromApi), Type.Object(FromFile)]) },
);
const Entities = paged({ entities: List(Entity) });
const Count = Type.Integer({ minimum: 0 });
const Put = Type.Object({ version: Count, created: Count, changed: Count, unchanged: Count });
const Linked = Type.Object({ ...ENTITY, rel: Type.String(), direction: Type.Enum(['outgoing', 'incoming']) });
const Found = record('Found', null, {
  entities: List(Type.Object({ ...ENTITY, score: Type.Number() }), 'Best first.'),
  joined: List(Type.Object({ of: Type.Object(REF), entities: List(Linked) })),
  sources: List(OneOf([Type.Object({ ...REF, ...FromApi }), Type.Object({ ...REF, ...FromFile })])),
  truncated: Type.Boolean({ description: 'There are more.' }),
});

/** `…/brain`: entities of the organisation, put, listed, searched and deleted. */
export function addBrainRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  addPutRoute(app, ports);
  addListRoute(app, ports, lists);
  addEntityRoute(app, ports);
  addDeleteRoute(app, ports);
  addSearchRoute(app, ports, lists);
}

function addPutRoute(app: ApiApp, { brain, brainWriter }: ApiPorts): void {
  const putEntities = guarded('brain.write', {
    operationId: 'putEntities',
    summary: 'Put entities of the company brain',
    description: `All of them or none. An entity of the same type and id is replaced. One that a file of the configuration names is a 409 \`conflict\`: the file has the last word. At most ${MOST_AT_ONCE} at once.`,
    params: InWorkspace,
    body: closed({
      entities: Type.Array(
        AnyValue(
          'An entity: `type`, `id`, `name`, and where there are any `attributes` (an object) and `links` (a list of `{ rel, type, id }`).',
        ),
        { minItems: 1, maxItems: MOST_AT_ONCE },
      ),
    }),
    response: answers({ 200: Put }),
  });
  app.put(`${BRAIN}/entities`, putEntities, async (request) => {
    const caller = callerOf(request);
    // Calls of an agent are judged by these facts, so the agent does not write them.
    refuseAgents(caller, 'change what policies read');
    const actor = ledgerActor(caller.principal);
    const entities = checkedEntities(request.body.entities, { kind: 'api', by: actor });
    const put = await brainWriter.put(request.params.ws, entities, actor);
    switch (put.kind) {
      case 'put': {
        await brain.written(request.params.ws);
        const { version, created, changed, unchanged } = put;
        return { version, created, changed, unchanged };
      }
      case 'in_file':
        throw refuse(
          'conflict',
          `Nothing was put. ${put.entities
            .slice(0, 5)
            .map(({ index, file }) => `/entities/${index} is in the file ${file}`)
            .join('; ')}. Change it there: what a file names belongs to the file.`,
        );
      case 'too_much':
        throw refuse(
          'conflict',
          `Nothing was put. The workspace would have more than ${put.limit} ${put.of === 'entities' ? 'entities' : 'characters of entities'}. Delete some, or raise limits.${put.of === 'entities' ? 'brain_entities' : 'brain_size'}.`,
        );
    }
  });
}

function addListRoute(app: ApiApp, { store }: ApiPorts, lists: Lists): void {
  const listEntities = guarded('brain.read', {
    operationId: 'listEntities',
    summary: 'List entities, those that changed last first',
    params: InWorkspace,
    querystring: closed({ type: Type.Optional(EntityType), ...PAGE_QUERY }),
    response: answers({ 200: Entities }),
  });
  app.get(`${BRAIN}/entities`, listEntities, async (request, reply) => {
    const caller = callerOf(request);
    refuseLimited(caller);
    const page = pageOf(request.query);
    return lists.make(caller, async () => {
      const { items, next } = await store.entityPage(request.params.ws, {
        type: request.query.type ?? null,
        ...page,
      });
      return lists.send(reply, Entities, 'entities', items, recordToWire, { next_cursor: next });
    });
  });
}

function addEntityRoute(app: ApiApp, { store }: ApiPorts): void {
  const getEntity = guarded('brain.read', {
    operationId: 'getEntity',
    summary: 'One entity',
    params: OfEntity,
    response: answers({ 200: Entity }),
  });
  app.get(`${BRAIN}/entities/:type/:id`, getEntity, async (request) => {
    refuseLimited(callerOf(request));
    const { ws, type, id } = request.params;
    const [record = null] = isEntityType(type) && isEntityId(id) ? await store.entities(ws, [{ type, id }]) : [];
    if (record === null) throw notFound();
    return recordToWire(record);
  });
}

function addDeleteRoute(app: ApiApp, { store, brain }: ApiPorts): void {
  const deleteEntity = guarded('brain.write', {
    operationId: 'deleteEntity',
    summary: 'Delete an entity',
    description: 'One that a file of the configuration names is a 409 `conflict`: take it out of the file.',
    params: OfEntity,
    response: answers({ 200: Type.Object(REF) }),
  });
  app.delete(`${BRAIN}/entities/:type/:id`, deleteEntity, async (request) => {
    const caller = callerOf(request);
    refuseAgents(caller, 'change what policies read');
    const { ws, type, id } = request.params;
    if (!isEntityType(type) || !isEntityId(id)) throw notFound();
    const actor = ledgerActor(caller.principal);
    const removed = await store.removeEntities({ workspace: ws, entities: [{ type, id }], origin: 'api', actor });
    if (removed.kind === 'in_file')
      throw refuse('conflict', `It is in the file ${removed.file}, and would come back. Take it out of the file.`);
    if (removed.count === 0) throw notFound();
    await brain.written(ws);
    return { type, id };
  });
}

function addSearchRoute(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const searchEntities = guarded('brain.read', {
    operationId: 'searchEntities',
    summary: 'Search entities of a type, with those that they are linked with',
    params: InWorkspace,
    querystring: Search,
    response: answers({ 200: Found }),
  });
  app.get(`${BRAIN}/search`, searchEntities, async (request) => {
    const caller = callerOf(request);
    refuseLimited(caller);
    return lists.make(caller, async () => answerToWire(await asked(ports, request.params.ws, request.query)));
  });
}

async function asked(ports: ApiPorts, workspace: string, query: Static<typeof Search>): Promise<BrainAnswer> {
  try {
    return await ports.brain.query(workspace, {
      query: query.query,
      entityType: query.entity_type,
      joinTo: query.join_to ?? null,
      limit: query.limit === undefined ? DEFAULT_HITS : Number(query.limit),
    });
  } catch (error) {
    if (error instanceof BadQuestion) throw refuse('invalid_request', error.message);
    if (error instanceof BrainNotReady) throw refuse('not_ready', error.message, { retryAfterMs: 2000 });
    throw error;
  }
}

/** Entities are business data: a key that is limited to some tools sees them where the tool is one of those. */
function refuseLimited({ principal }: Caller): void {
  const { allowedTools } = principal;
  if (allowedTools !== null && !allowedTools.includes(QUERY_TOOL))
    throw refuse('insufficient_scope', `The key is limited to some tools, and ${QUERY_TOOL} is not among them.`);
}

function notFound(): ReturnType<typeof refuse> {
  return refuse('not_found', 'There is no such entity here.');
}

function checkedEntities(given: readonly unknown[], origin: EntityOrigin): readonly Incoming[] {
  const faults: RequestFault[] = [];
  const first = new Map<string, number>();
  const entities: Incoming[] = [];
  for (const [index, value] of given.entries()) {
    if (faults.length >= MOST_FAULTS) break;
    // The body was parsed as JSON.
    const checked = checkEntity(value as JsonObject);
    if (!checked.ok) {
      for (const { path, message } of checked.faults)
        faults.push({ path: pointerTo(['entities', index, ...path]), message });
      continue;
    }
    const name = entityName(checked.entity);
    const before = first.get(name);
    if (before === undefined) first.set(name, index);
    else faults.push({ path: `/entities/${index}`, message: `has the type and id of /entities/${before}` });
    entities.push({ entity: checked.entity, origin });
  }
  if (faults.length > 0) throw refuseFaults(faults);
  return entities;
}

function recordToWire(record: EntityRecord) {
  return { ...entityToWire(shownEntity(record)), source: originToWire(record.origin) };
}
