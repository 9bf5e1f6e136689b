import { addControlPlane } from '../api/control-plane.ts';
import { PreferredWait } from '../api/preferred-wait.ts';
import type { createListeningServer } from '../api/server.ts';
import { addConsole } from '../console/plugin.ts';
import { mcpControlPlugin } from '../mcp/control/plugin.ts';
import { mcpFederatedPlugin } from '../mcp/gateway/federated.ts';
import { mcpGatewayPlugin } from '../mcp/gateway/plugin.ts';
import { proxyPlugin } from '../proxy/plugin.ts';
import { createLive } from '../identity/live.ts';
import { mayHear } from '../proxy/judge-read.ts';
import type { ProxyPorts, ReadCall } from '../proxy/ports.ts';
import { countingAccess } from '../telemetry/access.ts';
import { createAccessLog } from '../telemetry/access-log.ts';
import { VERSION } from '../version.ts';
import { controlPlanePorts } from './control-plane-ports.ts';
import type { Core } from './core.ts';
import type { Drain } from './drain.ts';
import type { ExitStack } from './exit-stack.ts';
import type { FilesInForce } from './files-in-force.ts';
import type { Ground } from './ground.ts';
import type { Health } from './health.ts';
import { mcpControlPorts, proxyPorts } from './door-ports.ts';
import type { Signals } from './signals.ts';
import type { Views } from './views.ts';
import type { EffectPorts } from '../effects/ports.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import type { RunRequest } from '../effects/model/run-request.ts';
import type { FaultPorts } from '../mcp/http.ts';
import type { GatewayPorts, Passing } from '../mcp/gateway/ports.ts';
import type { Upstreams } from '../upstreams/upstreams.ts';
import type { InForce, OwnSettings } from './in-force.ts';

/** Opens all doors on one server: the API, the console, MCP and the proxy. */
export async function openDoors(
  { app, front }: ReturnType<typeof createListeningServer>,
  behind: {
    readonly ground: Ground;
    readonly views: Views;
    readonly signals: Signals;
    readonly files: FilesInForce;
    readonly core: Core;
    readonly own: OwnSettings;
    readonly health: Health;
    readonly drain: Drain;
  },
  opened: ExitStack,
): Promise<void> {
  const { ground, views, signals, files, core, own, health, drain } = behind;
  const { held, store, signer, logger } = ground;
  const { sessions, passkeys, authenticate, stillValid, invalidKeys, run } = core;
  const { directory, pauses, upstreams } = views;
  const { adminPort } = ground.configuration.server;
  const settings = own.read;
  const preferredWait = new PreferredWait({ store, stillValid, run });
  const api = controlPlanePorts(ground, views, core, files, own, health, drain, preferredWait);
  await addControlPlane(app, api, VERSION, adminPort !== null);
  await addConsole(app, { sessions, passkeys, store, authenticate, invalidKeys, settings, directory });
  const control = mcpControlPorts({
    ...views,
    ...core,
    core: core.ports,
    opinion: signals.opinion,
    held,
    limiter: invalidKeys,
    signer,
    settings,
    health,
    logger,
  });
  await app.register(mcpControlPlugin, { ports: control });
  const proxy = proxyPorts({
    core: core.ports,
    held,
    authenticate,
    limiter: invalidKeys,
    pauses,
    upstreams,
    spool: ground.spool,
    run,
    preferredWait,
    heard: (upstream, code) => signals.silent.heard(upstream, code),
    shadowed: signals.metrics.shadowed,
    observed: (would) => signals.metrics.observed(would, 'proxy'),
    access: openAccessLog(ground, signals, opened),
    settings,
  });
  await app.register(proxyPlugin, { ports: proxy, front });
  const current = () => held.inForce;
  const { problemOf } = control;
  const mcp = mcpGatewayPorts({ core: core.ports, proxy, current, upstreams, run, problemOf });
  await app.register(mcpGatewayPlugin, { ports: mcp });
  await app.register(mcpFederatedPlugin, { ports: mcp });
}

/** Counts each call, and writes its line where that is wanted. */
function openAccessLog(
  { configuration, sink, logger }: Ground,
  { metrics }: Signals,
  opened: ExitStack,
): ProxyPorts['access'] {
  const log = createAccessLog((lines) => sink.write(lines));
  opened.push(async () => log.flush());
  const isLogged = configuration.telemetry.accessLog && logger.isLevelEnabled('info');
  return countingAccess(metrics.called, isLogged ? log.record : null);
}

/** Connects the rooms to what the door to MCP servers needs. */
function mcpGatewayPorts(parts: {
  readonly core: EffectPorts;
  readonly proxy: ProxyPorts;
  readonly current: () => InForce;
  readonly upstreams: Upstreams;
  readonly run: (request: RunRequest) => Promise<RunResult>;
  readonly problemOf: FaultPorts['problemOf'];
}): GatewayPorts {
  const { core, proxy, current, upstreams } = parts;
  // What the store goes by, which is that of the start.
  const { effectsMs, denialsMs } = current().configuration.retention;
  return {
    identify: proxy.identify,
    settings: proxy.settings,
    renderProblem: proxy.renderProblem,
    problemOf: parts.problemOf,
    server: upstreams.server,
    catalog: () => current().catalog,
    run: parts.run,
    authorize: core.authorize,
    judge: (passing, how = 'anew') => {
      const verdict = proxy.evaluateRead(readCallOf(passing), how !== 'without_rules');
      switch (verdict.kind) {
        case 'stream':
          if (how !== 'anew') return null;
          if (verdict.observed !== null) proxy.observed(verdict.observed.would);
          if (verdict.shadow.length > 0) proxy.shadowed(verdict.shadow);
          return null;
        case 'govern':
          return verdict.denied === null ? TOO_MUCH : { kind: 'denied', ...verdict.denied };
        case 'problem':
          return verdict;
      }
    },
    mayHear: (call) => mayHear(proxy, readCallOf(call)),
    live: createLive(proxy),
    workspaceKey: (workspace) => core.secrets.fingerprintKey(workspace),
    effect: (workspace, id) => core.store.effect(workspace, id),
    approval: (workspace, id) => core.store.approval(workspace, id),
    effectsKeptMs: () => Math.min(effectsMs, denialsMs),
    policyVersion: core.policyVersion,
    jsonLimits: () => proxy.settings().jsonLimits,
    access: proxy.access,
    now: () => core.store.now(),
  };
}

/** As a read that streams, by which it is judged. */
function readCallOf(passing: Passing): ReadCall {
  return { ...passing, upstream: passing.tool.upstream, target: passing.tool.name, headers: {} };
}

const TOO_MUCH = {
  kind: 'denied',
  decision: 'denied_policy',
  reason: { code: 'rule_denied', message: 'A rule asks for more than this can be held to: only calls of tools can.' },
} as const;
