import { ledgerActor } from '../effects/model/principal.ts';
import { Type } from 'typebox';
import { didYouMean } from '../diagnostics/nearest.ts';
import type { ReservationRecord } from '../effects/model/claim.ts';
import { couldUsePool } from '../policy/could-permit.ts';
import { type ApiApp, guarded } from './app.ts';
import { actingAgent, callerOf, mayBeSeen } from './caller.ts';
import { Ttl, whoCalls } from './claims.ts';
import type { Lists } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, refuseFaults } from './problem.ts';
import { timeToWire } from '../effects/wire/time.ts';
import { AgentId, answers, closed, InWorkspace, List, record, Time, WithId } from './schema.ts';

const RESERVATIONS = '/v1/workspaces/:ws/reservations';
const Reservation = record('Reservation', 'Units of a pool that are set aside for an agent, for a limited time.', {
  id: Type.String(),
  workspace: Type.String(),
  pool: Type.String(),
  units: Type.Integer({ minimum: 1 }),
  agent_id: Type.String(),
  created_at: Time,
  expires_at: Time,
});
const Reservations = Type.Object({ reservations: List(Reservation) });

/** `…/reservations`: make, list, release. */
export function addReservationRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  addMakeRoute(app, ports);
  addListRoute(app, ports, lists);
  addReleaseRoute(app, ports);
}

function addMakeRoute(app: ApiApp, ports: ApiPorts): void {
  const { store } = ports;
  const makeReservation = guarded('reservations.write', {
    operationId: 'makeReservation',
    summary: 'Set units of a pool aside, for a time',
    description:
      'Only of pools that a call which the agent may make uses. A pool without enough free units is a 423 `pool_full`, one reservation more than a key may hold a 409 `too_many_reservations`.',
    params: InWorkspace,
    body: closed({
      pool: Type.String({ minLength: 1, maxLength: 200 }),
      units: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
      agent_id: Type.Optional(AgentId),
      ttl_s: Ttl,
    }),
    response: answers({ 201: Reservation }),
  });
  app.post(RESERVATIONS, makeReservation, async (request, reply) => {
    const { ws } = request.params;
    const { pool, units, agent_id, ttl_s } = request.body;
    const caller = callerOf(request);
    const agentId = actingAgent(caller, agent_id, ws, ports.directory);
    const capacity = ports.pools().get(pool);
    if (capacity === undefined) {
      const hint = didYouMean(pool, ports.pools().keys());
      throw refuseFaults([{ path: '/pool', message: `is no declared pool${hint === null ? '' : `; ${hint}`}` }]);
    }
    const { allowedTools } = caller.principal;
    const who = whoCalls(caller, agentId, ws, null, ports);
    const { set } = ports.policies();
    const uses = ports
      .catalog()
      .tools()
      .some(
        (tool) => (allowedTools === null || allowedTools.includes(tool.name)) && couldUsePool(set, tool, who, pool),
      );
    if (!uses) throw refuseFaults([{ path: '/pool', message: 'is used by no call that the agent may make' }]);
    const result = await store.makeReservation({
      id: ports.newId('rsv'),
      workspace: ws,
      pool,
      capacity,
      units,
      agentId,
      keyId: caller.principal.keyId,
      ttlMs: ttl_s * 1000,
      actor: ledgerActor(caller.principal),
    });
    if (result.kind === 'made') return reply.code(201).send(reservationToWire(result.reservation));
    if (result.kind === 'too_many')
      throw refuse(
        'too_many_reservations',
        `One key holds at most ${result.limit} reservations at a time. Release one, or wait until one is over.`,
        { members: { of: 'key', limit: result.limit } },
      );
    throw refuse('pool_full', `The pool ${pool} has ${result.free} free of ${capacity}; ${units} were asked for.`, {
      retryAfterMs: 1000,
      members: { pool, free: result.free, capacity },
    });
  });
}

function addListRoute(app: ApiApp, { store }: ApiPorts, lists: Lists): void {
  const listReservations = guarded('reservations.read', {
    operationId: 'listReservations',
    summary: 'List reservations in force',
    params: InWorkspace,
    response: answers({ 200: Reservations }),
  });
  app.get(RESERVATIONS, listReservations, async (request, reply) => {
    const caller = callerOf(request);
    return lists.make(caller, async () => {
      const reservations = await store.reservations(request.params.ws);
      const seen = reservations.filter(({ agentId }) => mayBeSeen(caller, agentId));
      return lists.send(reply, Reservations, 'reservations', seen, reservationToWire, {});
    });
  });
}

function addReleaseRoute(app: ApiApp, { store }: ApiPorts): void {
  const releaseReservation = guarded('reservations.write', {
    operationId: 'releaseReservation',
    summary: 'Release a reservation',
    params: WithId,
    response: answers({ 200: Reservation }),
  });
  app.delete(`${RESERVATIONS}/:id`, releaseReservation, async (request) => {
    const { ws, id } = request.params;
    const caller = callerOf(request);
    const found = await store.reservation(ws, id);
    const released =
      found === null || !mayBeSeen(caller, found.agentId)
        ? null
        : await store.releaseReservation(ws, id, ledgerActor(caller.principal));
    if (released === null) throw refuse('not_found', 'There is no such reservation here, or its time is over.');
    return reservationToWire(released);
  });
}

function reservationToWire(reservation: ReservationRecord) {
  return {
    id: reservation.id,
    workspace: reservation.workspace,
    pool: reservation.pool,
    units: reservation.units,
    agent_id: reservation.agentId,
    created_at: timeToWire(reservation.createdAt),
    expires_at: timeToWire(reservation.expiresAt),
  };
}
