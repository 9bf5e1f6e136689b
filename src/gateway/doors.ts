import { addControlPlane } from '../api/control-plane.ts';
import { PreferredWait } from '../api/preferred-wait.ts';
import type { createListeningServer } from '../api/server.ts';
import { addConsole } from '../console/plugin.ts';
import { mcpControlPlugin } from '../mcp/control/plugin.ts';
import { mcpFederatedPlugin } from '../mcp/gateway/federated.ts';
import { mcpGatewayPlugin } from '../mcp/gateway/plugin.ts';
import { proxyPlugin } from '../proxy/plugin.ts';
import type { ProxyPorts } from '../proxy/ports.ts';
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
import { mcpGatewayPorts } from './mcp-gateway-ports.ts';
import { mcpControlPorts } from './mcp-ports.ts';
import type { OwnSettings } from './own-settings.ts';
import { proxyPorts } from './proxy-ports.ts';
import type { Signals } from './signals.ts';
import type { Views } from './views.ts';

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
