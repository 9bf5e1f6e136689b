import type { Dispatcher } from 'undici';
import type { UpstreamPort } from '../effects/upstream.ts';
import type { UpstreamLimits, UpstreamSettings } from './http/http-upstream.ts';
import { createHttpUpstreams } from './http/http-upstreams.ts';
import type { UpstreamKind } from './kind.ts';
import type { McpUpstream } from './mcp/mcp-upstream.ts';
import type { NamesGateway } from './mcp/own-addresses.ts';
import type { OnSeen } from './mcp/pin-watch.ts';
import type { McpUpstreamSettings } from './mcp/settings.ts';
import { createMcpUpstreams } from './mcp/mcp-upstreams.ts';

/** The services behind the gateway, as the configuration in force declares them. */
export interface Upstreams extends UpstreamPort {
  /** Settings of an HTTP upstream; `null` if none has this id. */
  settings(id: string): UpstreamSettings | null;
  /** The pool for streamed reads of an HTTP upstream; `null` if none has this id. */
  stream(id: string): Dispatcher | null;
  /** An MCP server; `null` if none has this id. */
  server(id: string): McpUpstream | null;
  /**
   * Takes a place for an agent's work on an upstream (see {@link createPlaces}). There are as many places of each kind
   * as the upstream has connections. `null` if none became free in time.
   */
  place(kind: PlaceKind, id: string, agent: string): Place | Promise<Place | null>;
  /** Switches to another configuration. Running calls finish on their connections. */
  update(configured: readonly Configured[], limits: UpstreamLimits): void;
  /** Lets running requests end, then closes all connections. */
  close(): Promise<void>;
}

/** An upstream of any kind. `mcp` absent, or `null`: an HTTP API. */
export type Configured = UpstreamSettings & { readonly mcp?: McpUpstreamSettings['mcp'] | null };

function isHttp({ mcp = null }: Configured): boolean {
  return mcp === null;
}

function isMcp(configured: Configured): configured is Configured & McpUpstreamSettings {
  return !isHttp(configured);
}

export type PlaceKind = 'calls' | 'reads' | 'tunnels';

type Lanes = Readonly<Record<PlaceKind, ReturnType<typeof createPlaces>>> & { readonly width: number };

/**
 * How long a call or a read may wait for a place, ms. It has to be shorter than `dispatch_by`, and than callers wait
 * for an answer.
 */
const PLACE_WAIT_MS = 1_000;

/** If the upstream is no longer declared, there is nothing to wait for; the next steps report it. */
const NOWHERE: Place = () => undefined;

/**
 * Makes the upstreams of a configuration. Connections are opened as needed.
 * @param now ms since the epoch, for evidence
 * @param onSeen called with the id of an MCP server after something was seen of its tools (see {@link OnSeen})
 * @param namesGateway addresses that MCP servers may not have the users of clients visit
 */
export function createUpstreams(
  configured: readonly Configured[],
  limits: UpstreamLimits,
  now: () => number = Date.now,
  onSeen: (id: string, ...seen: Parameters<OnSeen>) => void = () => undefined,
  namesGateway: NamesGateway = () => false,
): Upstreams {
  const http = createHttpUpstreams(configured.filter(isHttp), limits, now);
  const mcp = createMcpUpstreams(configured.filter(isMcp), limits, now, onSeen, namesGateway);
  const kinds: readonly UpstreamKind[] = [http, mcp];
  let lanes = lanesOf(configured, new Map());

  return {
    send(dispatch) {
      for (const kind of kinds) {
        const sent = kind.send(dispatch);
        if (sent !== null) return sent;
      }
      const message = `the upstream ${dispatch.tool.upstream} is not declared any more`;
      const evidence = { code: 'not_dispatched', message, answered: null, startedAt: null, endedAt: now() };
      return Promise.resolve({ kind: 'failed', evidence, answer: null, result: null });
    },
    readState: async (tool, params) => {
      for (const kind of kinds) {
        const reading = kind.readState(tool, params);
        if (reading !== null) return reading;
      }
      return { kind: 'unreadable', message: 'the upstream is not declared any more' };
    },
    settings: http.settings,
    stream: (id) => http.stream(id),
    place: (kind, id, agent) => lanes.get(id)?.[kind].take(agent) ?? NOWHERE,
    server: (id) => mcp.server(id),
    update: (next, nextLimits) => {
      http.update(next.filter(isHttp), nextLimits);
      mcp.update(next.filter(isMcp), nextLimits);
      lanes = lanesOf(next, lanes);
    },
    close: async () => {
      await Promise.all(kinds.map((kind) => kind.close()));
    },
  };
}

/** The places on each upstream. Those of an upstream that is as wide as before stay, with who waits for them. */
function lanesOf(
  declared: readonly { readonly id: string; readonly connections: number }[],
  before: ReadonlyMap<string, Lanes>,
): ReadonlyMap<string, Lanes> {
  const lanes = new Map<string, Lanes>();
  for (const { id, connections } of declared) {
    const kept = before.get(id);
    if (kept?.width === connections) lanes.set(id, kept);
    else
      lanes.set(id, {
        width: connections,
        calls: createPlaces(connections, PLACE_WAIT_MS),
        reads: createPlaces(connections, PLACE_WAIT_MS),
        tunnels: createPlaces(connections, 0),
      });
  }
  return lanes;
}

/** Gives a place back. A second call does nothing. */
export type Place = () => void;

/** An agent may take a place while it holds fewer than this many times the places that would stay free. */
const SHARE = 3;

interface Waiting {
  readonly give: (place: Place | null) => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * Shares places so that no agent takes the last ones. An agent alone gets three quarters of them, a second one three
 * quarters of the rest, and so on. An agent without a place gets one as long as any is free. Waiting agents take turns.
 * @param waitMs how long a caller may wait for a place
 */
export function createPlaces(total: number, waitMs: number) {
  const held = new Map<string, number>();
  const waiting = new Map<string, Waiting[]>();
  let taken = 0;

  const mayTake = (agent: string): boolean => {
    const free = total - taken;
    const holds = held.get(agent) ?? 0;
    return free > 0 && (holds === 0 || holds < SHARE * (free - 1));
  };
  const take = (agent: string): Place => {
    taken += 1;
    held.set(agent, (held.get(agent) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      taken -= 1;
      const left = (held.get(agent) ?? 1) - 1;
      if (left === 0) held.delete(agent);
      else held.set(agent, left);
      if (waiting.size > 0) serve();
    };
  };
  const serve = (): void => {
    for (const [agent, queue] of waiting) {
      if (!mayTake(agent)) continue;
      const next = queue.shift();
      // Put the agent at the end, so that the others come first.
      waiting.delete(agent);
      if (queue.length > 0) waiting.set(agent, queue);
      if (next === undefined) continue;
      clearTimeout(next.timer);
      next.give(take(agent));
      return serve();
    }
  };
  return {
    /**
     * Takes a place, or waits for one. `null` if none became free in time, because the agent has its share already or all
     * are taken.
     * @param agent who takes it, with its workspace
     */
    take: (agent: string): Place | Promise<Place | null> => {
      // Whoever waits was served, if it could be, when the last place was given back: nobody is overtaken here.
      if (mayTake(agent)) return take(agent);
      if (waitMs === 0) return Promise.resolve(null);
      return new Promise((give) => {
        const queue = waiting.get(agent) ?? [];
        waiting.set(agent, queue);
        const one: Waiting = {
          give,
          timer: setTimeout(() => {
            queue.splice(queue.indexOf(one), 1);
            if (queue.length === 0 && waiting.get(agent) === queue) waiting.delete(agent);
            give(null);
          }, waitMs),
        };
        queue.push(one);
      });
    },
  };
}
