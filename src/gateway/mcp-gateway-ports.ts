import type { EffectPorts } from '../effects/ports.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import type { RunRequest } from '../effects/model/run-request.ts';
import type { FaultPorts } from '../mcp/http.ts';
import type { GatewayPorts } from '../mcp/gateway/ports.ts';
import type { ProxyPorts } from '../proxy/ports.ts';
import type { Upstreams } from '../upstreams/upstreams.ts';
import type { InForce } from './in-force.ts';

/** Connects the rooms to what the door to MCP servers needs. */
export function mcpGatewayPorts(parts: {
  readonly core: EffectPorts;
  readonly proxy: ProxyPorts;
  readonly current: () => InForce;
  readonly upstreams: Upstreams;
  readonly run: (request: RunRequest) => Promise<RunResult>;
  readonly problemOf: FaultPorts['problemOf'];
}): GatewayPorts {
  const { core, proxy, current, upstreams } = parts;
  return {
    identify: proxy.identify,
    settings: proxy.settings,
    renderProblem: proxy.renderProblem,
    problemOf: parts.problemOf,
    server: upstreams.server,
    catalog: () => current().catalog,
    run: parts.run,
    authorize: core.authorize,
    judge: ({ principal, workspace, agentId, tool, params, requestIp }) => {
      const { upstream } = tool;
      const call = { principal, workspace, agentId, tool, upstream, target: tool.name, params, headers: {}, requestIp };
      const verdict = proxy.evaluateRead(call);
      switch (verdict.kind) {
        case 'stream':
          if (verdict.observed !== null) proxy.observed(verdict.observed.would);
          if (verdict.shadow.length > 0) proxy.shadowed(verdict.shadow);
          return null;
        case 'govern':
          return verdict.denied === null ? TOO_MUCH : { kind: 'denied', ...verdict.denied };
        case 'problem':
          return verdict;
      }
    },
    workspaceKey: (workspace) => core.secrets.fingerprintKey(workspace),
    effect: (workspace, id) => core.store.effect(workspace, id),
    approval: (workspace, id) => core.store.approval(workspace, id),
    effectsKeptMs: () => {
      const { effectsMs, denialsMs } = current().configuration.retention;
      return Math.min(effectsMs, denialsMs);
    },
    policyVersion: core.policyVersion,
    jsonLimits: () => proxy.settings().jsonLimits,
    access: proxy.access,
    now: () => core.store.now(),
  };
}

const TOO_MUCH = {
  kind: 'denied',
  decision: 'denied_policy',
  reason: { code: 'rule_denied', message: 'A rule asks for more than this can be held to: only calls of tools can.' },
} as const;
