import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import { type EventStore, StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CompleteRequestSchema,
  CreateMessageResultSchema,
  ElicitResultSchema,
  type JSONRPCMessage,
  SetLevelRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

/*
 * A server with what the official conformance suite asks for, on the official SDK. Whether it passes everything is not
 * the question: what it passes directly it has to pass through the gateway.
 */

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const SILENCE = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=';

const text = (said: string) => ({ content: [{ type: 'text' as const, text: said }] });

function makeServer(): McpServer {
  const server = new McpServer(
    { name: 'everything', version: '1.0.0' },
    { capabilities: { logging: {}, completions: {}, resources: { subscribe: true }, tools: { listChanged: true } } },
  );
  const image = { type: 'image' as const, data: PIXEL, mimeType: 'image/png' };
  const resource = {
    type: 'resource' as const,
    resource: { uri: 'test://embedded', mimeType: 'text/plain', text: 'This is an embedded resource content.' },
  };
  server.registerTool('test_simple_text', { description: 'Text' }, () =>
    text('This is a simple text response for testing.'),
  );
  server.registerTool('test_image_content', { description: 'An image' }, () => ({ content: [image] }));
  server.registerTool('test_audio_content', { description: 'A sound' }, () => ({
    content: [{ type: 'audio', data: SILENCE, mimeType: 'audio/wav' }],
  }));
  server.registerTool('test_embedded_resource', { description: 'A resource' }, () => ({ content: [resource] }));
  server.registerTool('test_multiple_content_types', { description: 'All of it' }, () => ({
    content: [{ type: 'text', text: 'Multiple content types test:' }, image, resource],
  }));
  server.registerTool('test_error_handling', { description: 'Throws' }, () => {
    throw new Error('This tool intentionally returns an error for testing');
  });
  server.registerTool('test_tool_with_logging', { description: 'Logs', inputSchema: {} }, async (_given, extra) => {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed'])
      await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
    return text('Logged');
  });
  server.registerTool(
    'test_tool_with_progress',
    { description: 'Progress', inputSchema: {} },
    async (_given, extra) => {
      const progressToken = extra._meta?.progressToken ?? 0;
      for (const progress of [0, 50, 100])
        await extra.sendNotification({
          method: 'notifications/progress',
          params: { progressToken, progress, total: 100 },
        });
      return text('Done');
    },
  );
  server.registerTool(
    'test_sampling',
    { description: 'Samples', inputSchema: { prompt: z.string() } },
    async ({ prompt }, extra) => {
      const messages = [{ role: 'user' as const, content: { type: 'text' as const, text: prompt } }];
      const { content } = await extra.sendRequest(
        { method: 'sampling/createMessage', params: { messages, maxTokens: 100 } },
        CreateMessageResultSchema,
      );
      return text(`LLM response: ${JSON.stringify(content)}`);
    },
  );
  const elicits = (name: string, properties: Record<string, object>, required: string[]): void => {
    server.registerTool(
      name,
      { description: 'Asks', inputSchema: { message: z.string().optional() } },
      async ({ message = 'Say' }, extra) => {
        const params = { message, requestedSchema: { type: 'object', properties, required } };
        const answer = await extra.sendRequest({ method: 'elicitation/create', params } as never, ElicitResultSchema);
        return text(`Elicitation completed: action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`);
      },
    );
  };
  elicits('test_elicitation', { username: { type: 'string' }, email: { type: 'string' } }, ['username', 'email']);
  elicits(
    'test_elicitation_sep1034_defaults',
    {
      name: { type: 'string', default: 'John Doe' },
      age: { type: 'integer', default: 30 },
      score: { type: 'number', default: 95.5 },
      status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
      verified: { type: 'boolean', default: true },
    },
    [],
  );
  const titled = ['1', '2', '3'].map((n) => ({ const: `value${n}`, title: `Option ${n}` }));
  const plain = ['option1', 'option2', 'option3'];
  elicits(
    'test_elicitation_sep1330_enums',
    {
      untitledSingle: { type: 'string', enum: plain },
      titledSingle: { type: 'string', oneOf: titled },
      legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['One', 'Two', 'Three'] },
      untitledMulti: { type: 'array', items: { type: 'string', enum: plain } },
      titledMulti: { type: 'array', items: { anyOf: titled } },
    },
    [],
  );
  server.registerTool('test_reconnection', { description: 'Ends its stream early' }, async (extra) => {
    extra.closeSSEStream?.();
    await new Promise((resolve) => setTimeout(resolve, 100));
    return text('Reconnection test completed successfully.');
  });
  server.registerTool(
    'json_schema_2020_12_tool',
    { description: 'A schema', inputSchema: { name: z.string().optional() } },
    () => text('ok'),
  );
  const contents = (uri: string, said: string) => ({ contents: [{ uri, mimeType: 'text/plain', text: said }] });
  server.registerResource('static-text', 'test://static-text', { mimeType: 'text/plain' }, () =>
    contents('test://static-text', 'This is the content of the static text resource.'),
  );
  server.registerResource('static-binary', 'test://static-binary', { mimeType: 'image/png' }, () => ({
    contents: [{ uri: 'test://static-binary', mimeType: 'image/png', blob: PIXEL }],
  }));
  server.registerResource('watched', 'test://watched-resource', { mimeType: 'text/plain' }, () =>
    contents('test://watched-resource', 'Watched'),
  );
  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
  server.registerResource('template', template, { mimeType: 'application/json' }, (uri, { id }) => ({
    contents: [
      {
        uri: uri.href,
        mimeType: 'application/json',
        text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${String(id)}` }),
      },
    ],
  }));
  const user = (content: { readonly type: 'text'; readonly text: string } | typeof image | typeof resource) => ({
    messages: [{ role: 'user' as const, content: { ...content } }],
  });
  server.registerPrompt('test_simple_prompt', { description: 'Simple' }, () =>
    user({ type: 'text', text: 'This is a simple prompt for testing.' }),
  );
  server.registerPrompt(
    'test_prompt_with_arguments',
    { description: 'Arguments', argsSchema: { arg1: z.string(), arg2: z.string() } },
    ({ arg1, arg2 }) => user({ type: 'text', text: `Prompt with arguments: arg1='${arg1}', arg2='${arg2}'` }),
  );
  server.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'Resource', argsSchema: { resourceUri: z.string() } },
    ({ resourceUri }) => user({ ...resource, resource: { ...resource.resource, uri: resourceUri } }),
  );
  server.registerPrompt('test_prompt_with_image', { description: 'Image' }, () => user(image));
  server.server.setRequestHandler(SetLevelRequestSchema, () => ({}));
  server.server.setRequestHandler(SubscribeRequestSchema, () => ({}));
  server.server.setRequestHandler(UnsubscribeRequestSchema, () => ({}));
  server.server.setRequestHandler(CompleteRequestSchema, () => ({
    completion: { values: ['paris'], total: 1, hasMore: false },
  }));
  return server;
}

/** Events by stream, so that a stream that was ended can be taken up again. */
function eventStore(): EventStore {
  const events: { readonly id: string; readonly stream: string; readonly message: JSONRPCMessage }[] = [];
  return {
    storeEvent: async (stream, message) => {
      const id = `${stream}_${events.length}`;
      events.push({ id, stream, message });
      return id;
    },
    replayEventsAfter: async (last, { send }) => {
      const at = events.findIndex(({ id }) => id === last);
      const stream = events[at]?.stream ?? '';
      for (const event of events.slice(at + 1))
        if (event.stream === stream && Object.keys(event.message).length > 0) await send(event.id, event.message);
      return stream;
    },
  };
}

export async function startEverythingServer(): Promise<{ readonly url: string; close(): void }> {
  const sessions = new Map<string, StreamableHTTPServerTransport>();
  const http = createServer((request, response) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of request as AsyncIterable<Buffer>) pieces.push(piece);
      const body = Buffer.concat(pieces).toString();
      const id = request.headers['mcp-session-id'];
      let transport = typeof id === 'string' ? sessions.get(id) : undefined;
      if (transport === undefined && id !== undefined) {
        response.writeHead(404, { 'content-type': 'application/json' });
        response.end('{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}');
        return;
      }
      if (transport === undefined) {
        const made = new StreamableHTTPServerTransport({
          sessionIdGenerator: () => randomUUID(),
          eventStore: eventStore(),
          retryInterval: 200,
          enableDnsRebindingProtection: true,
          allowedHosts: [`127.0.0.1:${port}`, `localhost:${port}`],
          onsessioninitialized: (session) => void sessions.set(session, made),
          onsessionclosed: (session) => void sessions.delete(session),
        });
        const server = makeServer();
        await server.connect(made as Parameters<typeof server.connect>[0]);
        transport = made;
      }
      await transport.handleRequest(request, response, body === '' ? undefined : JSON.parse(body));
    })().catch(() => response.destroy());
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const { port } = http.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    close: () => {
      http.closeAllConnections();
      http.close();
    },
  };
}
