import { type Dispatcher, Pool } from 'undici';
import { isHttpTool } from '../../effects/model/tool.ts';
import type { UpstreamKind } from '../kind.ts';
import { createConnections, CONNECT_TIMEOUT_MS, type ConnectionSettings } from './connections.ts';
import {
  type HttpUpstream,
  readToolState,
  sendDispatch,
  type UpstreamLimits,
  type UpstreamSettings,
} from './http-upstream.ts';
import { sameTls } from './upstream-tls.ts';
import { guardedConnector } from './connect.ts';

interface HttpUpstreams extends UpstreamKind {
  /** Settings of an upstream; `null` if no upstream of this kind has this id. */
  readonly settings: (id: string) => UpstreamSettings | null;
  /** The pool for streamed reads of an upstream; `null` if no upstream of this kind has this id. */
  stream(id: string): Dispatcher | null;
  /** Switches to another configuration. Running calls finish on their connections. */
  update(configured: readonly UpstreamSettings[], limits: UpstreamLimits): void;
}

/**
 * Makes the HTTP upstreams of a configuration. Connections are opened as needed.
 * @param now ms since the epoch, for evidence
 */
export function createHttpUpstreams(
  configured: readonly UpstreamSettings[],
  limits: UpstreamLimits,
  now: () => number,
): HttpUpstreams {
  let current = new Map<string, HttpUpstream>();
  let streams = new Map<string, Pool>();
  const closing = new Set<Promise<void>>();

  const retire = (closed: Promise<void>): void => {
    const done = closed.finally(() => closing.delete(done));
    closing.add(done);
  };
  const update = (next: readonly UpstreamSettings[], nextLimits: UpstreamLimits): void => {
    const made = new Map<string, HttpUpstream>();
    for (const given of next) {
      made.set(given.id, { ...following(current.get(given.id), given), limits: nextLimits, now });
    }
    for (const [id, upstream] of current) {
      if (made.get(id)?.connections !== upstream.connections) retire(upstream.connections.close());
    }
    const keptStreams = new Map<string, Pool>();
    for (const [id, stream] of streams) {
      const before = current.get(id)?.settings;
      const after = made.get(id)?.settings;
      const same = before !== undefined && after !== undefined && sameConnections(before, after);
      const isKept = same && before.timeoutMs === after.timeoutMs && sameTls(before.tls ?? null, after.tls ?? null);
      if (isKept) keptStreams.set(id, stream);
      else retire(stream.close());
    }
    streams = keptStreams;
    current = made;
  };
  update(configured, limits);

  return {
    send(dispatch) {
      const { tool } = dispatch;
      const upstream = current.get(tool.upstream);
      return upstream === undefined || !isHttpTool(tool) ? null : sendDispatch(upstream, dispatch, tool);
    },
    readState(tool, params) {
      const upstream = current.get(tool.upstream);
      return upstream === undefined || !isHttpTool(tool) ? null : readToolState(upstream, tool, params);
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

/** An upstream with other settings keeps its connections if they still lead where they should. */
function following(
  before: HttpUpstream | undefined,
  given: UpstreamSettings,
): Pick<HttpUpstream, 'settings' | 'connections'> {
  const { tls: tlsBefore = null } = before?.settings ?? {};
  const isSameTls = sameTls(tlsBefore, given.tls ?? null);
  // Certificates that are the same are not parsed again.
  const settings = isSameTls ? { ...given, tls: tlsBefore } : given;
  // Credentials and time-outs can change without new connections.
  const kept = before !== undefined && sameConnections(before.settings, settings);
  const connections = kept ? before.connections : createConnections(settings);
  if (kept && !isSameTls) connections.secure(settings.tls ?? null);
  return { settings, connections };
}

function sameConnections(left: UpstreamSettings, right: UpstreamSettings): boolean {
  return left.url === right.url && left.connections === right.connections && left.network === right.network;
}

/**
 * A pool for reads whose answers are streamed. It repeats nothing, follows no redirect, and connects only to addresses
 * where an upstream may be. Governed calls use other connections, because a stream could keep them waiting.
 */
export function createStream(settings: ConnectionSettings & { readonly timeoutMs: number }): Pool {
  return new Pool(settings.url, {
    connect: guardedConnector(
      { network: settings.network, timeoutMs: CONNECT_TIMEOUT_MS, tls: settings.tls ?? null },
      () => {},
    ),
    connections: settings.connections,
    pipelining: 1,
    allowH2: false,
    // The limit also holds between later bytes: a stream may take long, but must not hang.
    headersTimeout: settings.timeoutMs,
    bodyTimeout: settings.timeoutMs,
  });
}
