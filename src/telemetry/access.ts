import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AccessLine } from './access-log.ts';

export type KnownOfRequest = Pick<
  AccessLine,
  'workspace' | 'agentId' | 'tool' | 'upstream' | 'rpc' | 'decision' | 'effectId' | 'authenticatedInMs' | 'lasts'
>;

/** Tells of a request when its connection has taken the answer, or its caller has gone. */
export function recordRequest(
  request: FastifyRequest,
  reply: FastifyReply,
  knownOf: () => KnownOfRequest,
  record: (line: AccessLine) => void,
): void {
  reply.raw.once('close', () => {
    const { raw } = request;
    const { workspace, agentId, tool, upstream, rpc, decision, effectId, authenticatedInMs, lasts } = knownOf();
    const { bytesIn, bytesOut } = bytesSince(raw.socket);
    // Every request comes here: spreads, with those of who knows, would cost 10 µs.
    record({
      workspace,
      agentId,
      tool,
      upstream,
      rpc,
      decision,
      effectId,
      authenticatedInMs,
      lasts,
      requestId: request.id,
      method: request.method,
      status: reply.raw.headersSent ? reply.statusCode : 499,
      bytesIn,
      bytesOut,
      durationMs: reply.elapsedTime,
      traceId: traceOf(raw.headers['traceparent']),
      // What lasts until one side leaves is over when one has left.
      cut: !lasts && !reply.raw.writableFinished,
    });
  });
}

/** Counts each line, but for those of connections that last, and records it where that is wanted. */
export function countingAccess(
  count: (upstream: string | null, tool: string | null, decision: string | null, durationMs: number) => void,
  record: ((line: AccessLine) => void) | null,
): (line: AccessLine) => void {
  return (line) => {
    if (!line.lasts) count(line.upstream, line.tool, line.decision, line.durationMs);
    record?.(line);
  };
}

/** Bytes of a connection that were logged already: requests follow one another on it. */
const counted = new WeakMap<object, { read: number; written: number }>();

/** What went over a connection since the line before, and counts as logged from now on. */
export function bytesSince(socket: Socket): Pick<AccessLine, 'bytesIn' | 'bytesOut'> {
  const before = counted.get(socket) ?? { read: 0, written: 0 };
  const now = { read: socket.bytesRead, written: socket.bytesWritten };
  counted.set(socket, now);
  return { bytesIn: now.read - before.read, bytesOut: now.written - before.written };
}

/** A word of ours; an upstream may have sent anything under the name. */
export function wordOf(header: number | string | readonly string[] | undefined): string | null {
  return typeof header === 'string' && /^\w{1,64}$/.test(header) ? header : null;
}

const TRACE_PARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/;

export function traceOf(parent: IncomingMessage['headers'][string]): string | null {
  return typeof parent === 'string' ? (TRACE_PARENT.exec(parent)?.[1] ?? null) : null;
}
