import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { bytesSince, recordRequest, traceOf } from '../telemetry/access.ts';
import type { AccessLine } from '../telemetry/access-log.ts';
import { type Arrived, knownOf } from './arrival.ts';

/** Tells of a request through the proxy when it is over. */
export function recordProxied(
  request: FastifyRequest,
  reply: FastifyReply,
  arrivedOf: (request: FastifyRequest) => Arrived | null,
  record: (line: AccessLine) => void,
): void {
  recordRequest(request, reply, () => knownOf(arrivedOf(request), reply.getHeaders()), record);
}

export interface UpgradeAccess {
  readonly requestId: string;
  arrived: Arrived | null;
  decision: string | null;
  /** 101 where it became a tunnel; `null` while nothing was answered. */
  status: number | null;
  effectId: string | null;
}

/** Tells of an upgrade, a tunnel or a refused one, when its connection is over: one line, with all bytes of it. */
export function recordUpgrade(
  request: IncomingMessage,
  requestId: string,
  record: (line: AccessLine) => void,
): UpgradeAccess {
  const { socket, method = 'GET', headers } = request;
  const began = performance.now();
  const access: UpgradeAccess = { requestId, arrived: null, decision: null, status: null, effectId: null };
  // Headers are replaced by those that go on.
  const traceId = traceOf(headers['traceparent']);
  socket.once('close', () =>
    record({
      ...knownOf(access.arrived, {}),
      requestId,
      method,
      decision: access.decision,
      status: access.status ?? 499,
      ...bytesSince(socket),
      durationMs: performance.now() - began,
      effectId: access.effectId,
      traceId,
      lasts: access.status === 101,
      cut: access.status === null,
    }),
  );
  return access;
}
