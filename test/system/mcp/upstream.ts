import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { McpServer as OldServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

export const GOOD_KEY = 'svc_agent_the-key-of-the-bridge';

/** A request as it came. */
export interface Seen {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly rpc: string | null;
}

/** An MCP server of each era on the official SDKs, over streamable HTTP, and paths that answer in their own way. */
export interface McpUpstream {
  readonly url: string;
  readonly seen: Seen[];
  /** Sessions of the older era that are open. */
  readonly sessions: ReadonlyMap<string, StreamableHTTPServerTransport>;
  /** The next requests to `/raw` are answered by it. */
  raw: (request: IncomingMessage, response: ServerResponse, body: string) => void;
  key: string;
  /** Tells all clients that the list of tools changed. */
  announce(): Promise<void>;
  /** Forgets all sessions, as a restart does. */
  forget(): void;
  stop(): Promise<void>;
  start(): Promise<void>;
}

export async function startMcpUpstream(): Promise<McpUpstream> {
  const seen: Seen[] = [];
  const sessions = new Map<string, StreamableHTTPServerTransport>();
  const oldServers = new Map<string, OldServer>();
  const modern = createMcpHandler(modernServer);
  const handleModern = toNodeHandler(modern);

  async function takeOld(request: IncomingMessage, response: ServerResponse, body: string): Promise<void> {
    const id = request.headers['mcp-session-id'];
    const parsed: unknown = body === '' ? undefined : JSON.parse(body);
    let transport = typeof id === 'string' ? sessions.get(id) : undefined;
    if (transport === undefined && id === undefined) {
      const made = oldServer();
      const fresh = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => crypto.randomUUID(),
        onsessioninitialized: (session) => {
          sessions.set(session, fresh);
          oldServers.set(session, made);
        },
        onsessionclosed: (session) => {
          sessions.delete(session);
          oldServers.delete(session);
        },
      });
      await made.connect(fresh as Parameters<typeof made.connect>[0]);
      transport = fresh;
    }
    if (transport === undefined) {
      const error = { code: -32_001, message: 'Session not found' };
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error }));
      return;
    }
    await transport.handleRequest(request, response, parsed);
  }

  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString('utf8');
    const path = request.url ?? '';
    const rpc = body === '' ? null : ((JSON.parse(body) as { method?: string }).method ?? null);
    seen.push({ method: request.method ?? '', path, headers: request.headers, rpc });
    if (path === '/raw') return upstream.raw(request, response, body);
    const key = request.headers.authorization;
    if (key !== `Bearer ${upstream.key}`) {
      const status = key === 'Bearer svc_agent_of-another' ? 403 : 401;
      response.writeHead(status, { 'content-type': 'application/problem+json' });
      response.end(JSON.stringify({ code: 'unknown_key', title: 'Unknown key', detail: 'No such key.' }));
      return;
    }
    if (path === '/old') return takeOld(request, response, body);
    return handleModern(
      Object.assign(request, { method: request.method ?? '', url: path }),
      response,
      body === '' ? undefined : JSON.parse(body),
    );
  }

  let server: Server;
  let port = 0;
  async function start(): Promise<void> {
    server = createServer((request, response) => {
      void take(request, response).catch(() => response.destroy());
    });
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
  }
  await start();
  const upstream: McpUpstream = {
    url: `http://127.0.0.1:${port}`,
    seen,
    sessions,
    raw: (_request, response) => response.writeHead(500).end(),
    key: GOOD_KEY,
    announce: async () => {
      for (const one of oldServers.values()) one.sendToolListChanged();
      modern.notify.toolsChanged();
    },
    forget: () => {
      for (const transport of sessions.values()) void transport.close();
      sessions.clear();
      oldServers.clear();
    },
    stop: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
    start,
  };
  return upstream;
}

function oldServer(): OldServer {
  const server = new OldServer({ name: 'old', version: '1.0.0' }, { capabilities: { tools: { listChanged: true } } });
  server.registerTool('add', { inputSchema: { a: z.number(), b: z.number() } }, ({ a, b }) => ({
    content: [{ type: 'text', text: String(a + b) }],
  }));
  server.registerTool('count', { inputSchema: {} }, async (_args, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (let progress = 1; progressToken !== undefined && progress <= 3; progress += 1)
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: 3 } });
    return { content: [{ type: 'text', text: 'counted' }] };
  });
  server.registerTool('ask', { inputSchema: {} }, async () => {
    const { action, content } = await server.server.elicitInput({
      message: 'Which name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    });
    return { content: [{ type: 'text', text: `${action} ${String(content?.['name'])}` }] };
  });
  return server;
}

function modernServer(): McpServer {
  const server = new McpServer(
    { name: 'modern', version: '1.0.0' },
    { capabilities: { tools: { listChanged: true } } },
  );
  server.registerTool('add', { inputSchema: z.object({ a: z.number(), b: z.number() }) }, ({ a, b }) => ({
    content: [{ type: 'text', text: String(a + b) }],
  }));
  const routed = z.object({ region: z.string().meta({ 'x-mcp-header': 'Region' }) });
  server.registerTool('routed', { inputSchema: routed }, ({ region }) => ({
    content: [{ type: 'text', text: `in ${region}` }],
  }));
  return server;
}

/** Answers each request with the result that is made of it, and takes notifications. */
export function resultsOf(made: (method: string, params: Record<string, unknown>) => unknown): McpUpstream['raw'] {
  return (_request, response, body) => {
    const {
      id,
      method,
      params = {},
    } = JSON.parse(body) as {
      id?: number;
      method: string;
      params?: Record<string, unknown>;
    };
    if (id === undefined) response.writeHead(202).end();
    else
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id, result: made(method, params) }));
  };
}
