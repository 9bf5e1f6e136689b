import type { Dispatcher, Pool } from 'undici';
import type { UpstreamPort } from '../effects/upstream.ts';
import { createConnections } from './http/connections.ts';
import { createPlaces, type Place, type Places } from './places.ts';
import {
  type HttpUpstream,
  readToolState,
  sendDispatch,
  type UpstreamLimits,
  type UpstreamSettings,
} from './http/http-upstream.ts';
import { createStream } from './http/streams.ts';

/** The services behind the gateway, as the configuration in force declares them. */
export interface Upstreams extends UpstreamPort {
  /** Settings of an upstream; `null` if no upstream has this id. */
  settings(id: string): UpstreamSettings | null;
  /** The pool for streamed reads of an upstream; `null` if no upstream has this id. */
  stream(id: string): Dispatcher | null;
  /**
   * Takes a place for an agent's work on an upstream (see {@link createPlaces}). There are as many places of each kind
   * as the upstream has connections. `null` if none became free in time.
   */
  place(kind: PlaceKind, id: string, agent: string): Place | Promise<Place | null>;
  /** Switches to another configuration. Running calls finish on their connections. */
  update(configured: readonly UpstreamSettings[], limits: UpstreamLimits): void;
  /** Lets running requests end, then closes all connections. */
  close(): Promise<void>;
}

export type PlaceKind = 'calls' | 'reads' | 'tunnels';

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
 */
export function createUpstreams(
  configured: readonly UpstreamSettings[],
  limits: UpstreamLimits,
  now: () => number = Date.now,
): Upstreams {
  let current = new Map<string, HttpUpstream>();
  let streams = new Map<string, Pool>();
  let places = new Map<string, Readonly<Record<PlaceKind, Places>>>();
  const closing = new Set<Promise<void>>();

  const retire = (closed: Promise<void>): void => {
    const done = closed.finally(() => closing.delete(done));
    closing.add(done);
  };
  const update = (next: readonly UpstreamSettings[], nextLimits: UpstreamLimits): void => {
    const made = new Map<string, HttpUpstream>();
    for (const settings of next) {
      const before = current.get(settings.id);
      // Credentials and time-outs can change without new connections.
      const kept = before !== undefined && sameConnections(before.settings, settings);
      const connections = kept ? before.connections : createConnections(settings);
      made.set(settings.id, { settings, connections, limits: nextLimits, now });
    }
    for (const [id, upstream] of current) {
      if (made.get(id)?.connections !== upstream.connections) retire(upstream.connections.close());
    }
    const nextPlaces: typeof places = new Map();
    for (const { id, connections } of next) {
      const before = current.get(id)?.settings.connections === connections ? places.get(id) : undefined;
      nextPlaces.set(
        id,
        before ?? {
          calls: createPlaces(connections, PLACE_WAIT_MS),
          reads: createPlaces(connections, PLACE_WAIT_MS),
          tunnels: createPlaces(connections, 0),
        },
      );
    }
    places = nextPlaces;
    const keptStreams = new Map<string, Pool>();
    for (const [id, stream] of streams) {
      const before = current.get(id)?.settings;
      const after = made.get(id)?.settings;
      const same = before !== undefined && after !== undefined && sameConnections(before, after);
      if (same && before.timeoutMs === after.timeoutMs) keptStreams.set(id, stream);
      else retire(stream.close());
    }
    streams = keptStreams;
    current = made;
  };
  update(configured, limits);

  return {
    send: async (dispatch) => {
      const upstream = current.get(dispatch.tool.upstream);
      if (upstream !== undefined) return sendDispatch(upstream, dispatch);
      const message = `the upstream ${dispatch.tool.upstream} is not declared any more`;
      return {
        kind: 'failed',
        evidence: { code: 'not_dispatched', message, status: null, startedAt: null, endedAt: now() },
        answer: null,
        result: null,
      };
    },
    readState: async (tool, params) => {
      const upstream = current.get(tool.upstream);
      if (upstream === undefined) return { kind: 'unreadable', message: 'the upstream is not declared any more' };
      return readToolState(upstream, tool, params);
    },
    settings: (id) => current.get(id)?.settings ?? null,
    stream: (id) => {
      const open = streams.get(id);
      if (open !== undefined) return open;
      const settings = current.get(id)?.settings;
      if (settings === undefined) return null;
      const stream = createStream(settings);
      streams.set(id, stream);
      return stream;
    },
    place: (kind, id, agent) => places.get(id)?.[kind].take(agent) ?? NOWHERE,
    update,
    close: async () => {
      for (const upstream of current.values()) retire(upstream.connections.close());
      for (const stream of streams.values()) retire(stream.close());
      current = new Map();
      streams = new Map();
      await Promise.all(closing);
    },
  };
}

function sameConnections(left: UpstreamSettings, right: UpstreamSettings): boolean {
  return left.url === right.url && left.connections === right.connections && left.network === right.network;
}
