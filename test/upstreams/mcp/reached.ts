import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Client } from 'undici';
import { AgentSessions } from '../../../src/upstreams/mcp/mcp-upstream.ts';
import { OwnSession } from '../../../src/upstreams/mcp/own-session.ts';
import { PinWatch } from '../../../src/upstreams/mcp/pin-watch.ts';

/** A server on this machine as the gateway reaches it. */
export function reached(server: Server) {
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const mcp = { path: '/mcp', allow: [] };
  return {
    settings: { id: 'crm', url, timeoutMs: 1_000, network: 'any', credentials: null, mcp } as const,
    through: new Client(url),
    session: new OwnSession(),
    agentSessions: new AgentSessions(() => 0),
    pins: new PinWatch(
      () => 0,
      () => undefined,
    ),
    limits: { responseBytes: 10_000, responseKeptBytes: 1_000 },
    namesGateway: () => false,
    now: () => 0,
  };
}
