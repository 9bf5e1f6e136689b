import type { FastifyInstance, FastifyRequest } from 'fastify';
import { actingAgent } from '../../effects/model/principal.ts';
import { type KnownOfRequest, recordRequest } from '../../telemetry/access.ts';
import type { AccessLine } from '../../telemetry/access-log.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** What the line of a request to an MCP server says, as far as it is known. */
    mcpNoted: Noted | null;
  }
}

/** What the doors find out about a request while they work on it. Nothing of it is free text of the caller's. */
type Noted = {
  -readonly [Name in 'upstream' | 'tool' | 'rpc' | 'decision' | 'effectId' | 'lasts']: AccessLine[Name];
};

/** Has each request of a door told of when it is over. Hooks that find out who sends it come after this one. */
export function recordMessages(app: FastifyInstance, record: ((line: AccessLine) => void) | null): void {
  app.decorateRequest('mcpNoted', null);
  if (record === null) return;
  app.addHook('onRequest', async (request, reply) => {
    request.mcpNoted = { upstream: null, tool: null, rpc: null, decision: null, effectId: null, lasts: false };
    recordRequest(request, reply, () => knownOf(request), record);
  });
}

export function note({ mcpNoted }: FastifyRequest, found: Partial<Noted>): void {
  if (mcpNoted !== null) Object.assign(mcpNoted, found);
}

function knownOf({ mcpNoted, mcpSender, headers }: FastifyRequest): KnownOfRequest {
  const principal = mcpSender?.principal ?? null;
  const named = headers['svc-agent-id'];
  return {
    workspace: principal === null || principal.kind === 'administrative' ? '' : (principal.workspace ?? ''),
    agentId:
      principal === null ? null : actingAgent(principal, typeof named === 'string' && named !== '' ? named : null),
    upstream: mcpNoted?.upstream ?? null,
    tool: mcpNoted?.tool ?? null,
    rpc: mcpNoted?.rpc ?? null,
    decision: mcpNoted?.decision ?? null,
    effectId: mcpNoted?.effectId ?? null,
    authenticatedInMs: mcpSender?.tookMs ?? null,
    lasts: mcpNoted?.lasts ?? false,
  };
}
