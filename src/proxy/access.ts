import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AccessLine } from '../telemetry/access-log.ts';
import type { Arrived } from './arrival.ts';

/** Bytes of a connection that lines have told of already: requests follow one another on it. */
const told = new WeakMap<object, { read: number; written: number }>();

/** Tells of a request when its connection has taken the answer, or its caller has gone. */
export function tellOf(
  request: FastifyRequest,
  reply: FastifyReply,
  arrivedOf: (request: FastifyRequest) => Arrived | null,
  tell: (line: AccessLine) => void,
): void {
  reply.raw.once('close', () => {
    const { raw } = request;
    const before = told.get(raw.socket) ?? { read: 0, written: 0 };
    const now = { read: raw.socket.bytesRead, written: raw.socket.bytesWritten };
    told.set(raw.socket, now);
    const arrived = arrivedOf(request);
    const match = arrived?.match;
    tell({
      requestId: request.id,
      method: request.method,
      workspace: arrived?.workspace ?? '',
      agentId: arrived === null ? null : agentOf(arrived),
      tool: match?.kind === 'rule' ? match.tool.name : null,
      upstream: match === undefined || match.kind === 'none' ? null : match.route.upstream,
      decision: textOf(reply.getHeader('svc-decision')),
      status: reply.raw.headersSent ? reply.statusCode : 499,
      bytesIn: now.read - before.read,
      bytesOut: now.written - before.written,
      durationMs: reply.elapsedTime,
      authenticatedInMs: arrived?.authenticatedInMs ?? null,
      effectId: textOf(reply.getHeader('svc-effect-id')),
      traceId: traceOf(raw.headers['traceparent']),
      cut: !reply.raw.writableFinished,
    });
  });
}

/** What is told of an upgrade besides what its connection says. */
export interface UpgradeAccess {
  readonly requestId: string;
  arrived: Arrived | null;
  decision: string | null;
  /** 101 where it became a tunnel; `null` while nothing was answered. */
  status: number | null;
  effectId: string | null;
}

/** Tells of an upgrade, a tunnel or a refused one, when its connection is over: one line, with all bytes of it. */
export function tellOfUpgrade(
  request: IncomingMessage,
  requestId: string,
  tell: (line: AccessLine) => void,
): UpgradeAccess {
  const { socket, method = 'GET', headers } = request;
  const began = performance.now();
  const before = told.get(socket) ?? { read: 0, written: 0 };
  const access: UpgradeAccess = { requestId, arrived: null, decision: null, status: null, effectId: null };
  // Headers are replaced by those that go on.
  const traceId = traceOf(headers['traceparent']);
  socket.once('close', () => {
    const { arrived } = access;
    const match = arrived?.match;
    tell({
      requestId,
      method,
      workspace: arrived?.workspace ?? '',
      agentId: arrived === null ? null : agentOf(arrived),
      tool: match?.kind === 'rule' ? match.tool.name : null,
      upstream: match === undefined || match.kind === 'none' ? null : match.route.upstream,
      decision: access.decision,
      status: access.status ?? 499,
      bytesIn: socket.bytesRead - before.read,
      bytesOut: socket.bytesWritten - before.written,
      durationMs: performance.now() - began,
      authenticatedInMs: arrived?.authenticatedInMs ?? null,
      effectId: access.effectId,
      traceId,
      cut: access.status === null,
    });
  });
  return access;
}

/** Who acts: whom the key belongs to, else whom the request names. */
function agentOf({ principal, agentId }: Arrived): string | null {
  if (principal.kind === 'agent') return principal.agentId;
  return (principal.kind === 'profile' ? principal.agentId : null) ?? agentId;
}

/** A word of ours; an upstream may have sent anything under the name. */
function textOf(header: number | string | readonly string[] | undefined): string | null {
  return typeof header === 'string' && /^\w{1,64}$/.test(header) ? header : null;
}

const TRACE_PARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/;

function traceOf(parent: string | readonly string[] | undefined): string | null {
  return typeof parent === 'string' ? (TRACE_PARENT.exec(parent)?.[1] ?? null) : null;
}
