import { addHealth } from '../api/control-plane.ts';
import { createListeningServer, createServer } from '../api/server.ts';
import { CommandFailure } from '../cli/ports.ts';
import type { Drain } from './drain.ts';
import type { ExitStack } from './exit-stack.ts';
import type { Ground } from './ground.ts';
import type { Health } from './health.ts';
import type { OwnSettings } from './in-force.ts';
import type { Signals } from './signals.ts';
import { readFileSync } from 'node:fs';

/** The most connections of the admin port at the same time, for scrapes and probes. */
const ADMIN_CONNECTIONS = 16;

export function openServer(
  { configuration, logger }: Ground,
  { metrics }: Signals,
  own: OwnSettings,
  drain: Drain,
): ReturnType<typeof createListeningServer> {
  const { limits, server } = configuration;
  return createListeningServer({
    logger,
    settings: own.read,
    bodyLimit: limits.bodyBytes,
    tls: server.tls,
    routes: own.routes,
    connections: connectionsOf(limits.connections, openFilesLimit()),
    arrived: drain.arrived,
    isStopping: drain.isDraining,
    answered: metrics.answered,
  });
}

/** Health and metrics at their own port, where the configuration names one. @throws CommandFailure */
export async function listenForProbes(
  { configuration, logger }: Ground,
  own: OwnSettings,
  health: Health,
  opened: ExitStack,
): Promise<void> {
  const { host, adminPort } = configuration.server;
  if (adminPort === null) return;
  const admin = createServer({
    logger,
    settings: own.read,
    bodyLimit: configuration.limits.bodyBytes,
    connections: ADMIN_CONNECTIONS,
  });
  opened.push(() => admin.close());
  await addHealth(admin, health);
  await listen(admin, host, adminPort);
}

/**
 * The listeners of routes, and then the main one.
 * @param port overrides the configured one
 * @throws CommandFailure
 */
export async function listenForCalls(
  { app, listeners }: ReturnType<typeof createListeningServer>,
  { server, listeners: ofRoutes }: Pick<Ground['configuration'], 'server' | 'listeners'>,
  port: number | null,
): Promise<{ readonly url: string; readonly listeners: Readonly<Record<string, string>> }> {
  const urls: Record<string, string> = {};
  for (const settings of ofRoutes)
    urls[settings.at] = await orTaken(listeners.open(settings), settings.host, settings.port);
  const bound = await listen(app, server.host, port ?? server.port);
  return { url: server.tls === null ? bound : bound.replace(/^http:/, 'https:'), listeners: urls };
}

function listen(
  server: { listen(at: { host: string; port: number }): Promise<string> },
  host: string,
  port: number,
): Promise<string> {
  // Node would open a second server for the other address of `localhost`, without the limits of the first.
  const address = host === 'localhost' ? '127.0.0.1' : host;
  return orTaken(server.listen({ host: address, port }), host, port);
}

async function orTaken(listening: Promise<string>, host: string, port: number): Promise<string> {
  try {
    return await listening;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : null;
    if (code === 'EADDRINUSE')
      throw new CommandFailure(
        `Port ${port} on ${host} is taken. Stop what uses it, or start with --port N (0 lets the system choose).`,
      );
    if (code === 'EACCES' || code === 'EADDRNOTAVAIL')
      throw new CommandFailure(`The gateway may not listen on ${host}:${port}.`);
    throw error;
  }
}

/** Files that the gateway itself has open: the store with its journals, logs, threads, the admin port. */
const OWN_FILES = 64;

/**
 * How many connections of callers the gateway may hold: the configured number, but no more than the process has files
 * for. Each connection may need a second one to an upstream, and the gateway needs files itself.
 * @param files how many files the process may have open; `null` if that is not known
 */
export function connectionsOf(set: number, files: number | null): number {
  if (files === null) return set;
  return Math.max(1, Math.min(set, Math.floor((files - OWN_FILES) / 2)));
}

/** How many files the process may have open (`ulimit -n`), if the system tells (Linux). */
export function openFilesLimit(): number | null {
  try {
    const soft = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return soft === undefined ? null : Number(soft);
  } catch {
    return null;
  }
}
