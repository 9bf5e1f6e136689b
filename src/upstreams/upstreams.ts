import type { UpstreamPort } from '../effects/upstream.ts';
import { createConnections } from './connections.ts';
import {
  type HttpUpstream,
  readToolState,
  sendDispatch,
  type UpstreamLimits,
  type UpstreamSettings,
} from './http-upstream.ts';

/** The services behind the gateway, as the configuration in force declares them. */
export interface Upstreams extends UpstreamPort {
  /** Settings of an upstream; `null` where none is declared by that id. */
  settings(id: string): UpstreamSettings | null;
  /** Takes on another configuration. What runs, ends on the connections that it has. */
  update(configured: readonly UpstreamSettings[], limits: UpstreamLimits): void;
  /** Lets running requests end, then closes all connections. */
  close(): Promise<void>;
}

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
  const closing = new Set<Promise<void>>();

  const retire = (upstream: HttpUpstream): void => {
    const closed = upstream.connections.close().finally(() => closing.delete(closed));
    closing.add(closed);
  };
  const update = (next: readonly UpstreamSettings[], nextLimits: UpstreamLimits): void => {
    const made = new Map<string, HttpUpstream>();
    for (const settings of next) {
      const before = current.get(settings.id);
      // Credentials and time-outs change without losing connections.
      const kept = before !== undefined && sameConnections(before.settings, settings);
      const connections = kept ? before.connections : createConnections(settings);
      made.set(settings.id, { settings, connections, limits: nextLimits, now });
    }
    for (const [id, upstream] of current) {
      if (made.get(id)?.connections !== upstream.connections) retire(upstream);
    }
    current = made;
  };
  update(configured, limits);

  return {
    send: async (dispatch) => {
      const upstream = current.get(dispatch.tool.upstream);
      if (upstream !== undefined) return sendDispatch(upstream, dispatch);
      const message = `the upstream ${dispatch.tool.upstream} is not declared any more`;
      return {
        kind: 'not_applied',
        evidence: { code: 'not_dispatched', message, status: null, startedAt: null, endedAt: now() },
        response: null,
      };
    },
    readState: async (tool, params) => {
      const upstream = current.get(tool.upstream);
      if (upstream === undefined) return { kind: 'unreadable', message: 'the upstream is not declared any more' };
      return readToolState(upstream, tool, params);
    },
    settings: (id) => current.get(id)?.settings ?? null,
    update,
    close: async () => {
      for (const upstream of current.values()) retire(upstream);
      current = new Map();
      await Promise.all(closing);
    },
  };
}

function sameConnections(left: UpstreamSettings, right: UpstreamSettings): boolean {
  return left.url === right.url && left.connections === right.connections && left.network === right.network;
}
