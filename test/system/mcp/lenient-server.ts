import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createHash, randomUUID } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { canonicalJson } from '../../../src/json/text.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../../src/json/value.ts';
import { INSPECTOR } from '../../../src/upstreams/mcp/inspect-server.ts';
import { looseMessages } from './loose-reading.ts';

/** One request as it came in. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

interface SaidAs {
  readonly status: number;
  readonly type: string;
  readonly text: string;
  readonly packed?: true;
}

/** An MCP server that takes whatever comes, and notes what it has done: the judge of what ran. */
export interface LenientServer {
  readonly url: string;
  readonly seen: Seen[];
  /** Names and arguments of the tools that ran. */
  readonly ran: { readonly name: string; readonly arguments: Json }[];
  /** What `tools/list` gives. */
  tools: JsonObject[];
  /** The next call of `says` is answered with this, whatever its arguments say; `null`: with what they say. */
  answerNext(answer: JsonObject | null): void;
  /** What `initialize` and `server/discover` say beside what they always say. */
  words: JsonObject;
  /** The id of the event with which `initialize` is answered; `null`: the answer is no event. */
  beginsWith: string | null;
  /** Whether the gateway's own looks at the tools are answered. */
  isSeen: boolean;
  /** How often the gateway has looked at the tools. These requests are not among `seen`. */
  looks: number;
  /** Is told of a call just before its connection is broken off. */
  onCut: (given: Json) => void;
  /** Says on all open streams that the tools have changed. */
  announce(): void;
  /** Sends an event on all open streams. */
  tell(data: string): void;
  /** How `resources/read` is answered, in place of what it says; `null`: as ever. */
  readAs: SaidAs | null;
  /** The same for `tools/list`; the gateway's own looks are answered as ever. */
  listAs: SaidAs | null;
  /** What it says instead to whoever calls a tool. */
  callAs: SaidAs | null;
  /** Forgets what it has seen and run, and what it was told to say. */
  forget(): void;
  close(): Promise<void>;
}

const ANY = { type: 'object', additionalProperties: true } as const;

/** The tools, which do what their names say. */
export const TOOLS: readonly JsonObject[] = [
  { name: 'echo', description: 'Says it again', inputSchema: ANY },
  { name: 'forbidden', description: 'No rule allows it', inputSchema: ANY },
  { name: 'ask', description: 'A person approves it', inputSchema: ANY },
  { name: 'look', description: 'Reads', inputSchema: ANY, annotations: { readOnlyHint: true } },
  {
    name: 'typed',
    description: 'Has an output schema',
    inputSchema: ANY,
    outputSchema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
  },
  { name: 'fail', description: 'Answers with isError', inputSchema: ANY },
  { name: 'events', description: 'Says two things before the answer', inputSchema: ANY },
  { name: 'asks', description: 'Samples, elicits, and says what the client answered', inputSchema: ANY },
  { name: 'cut', description: 'Breaks off in the middle', inputSchema: ANY },
  { name: 'sends', description: 'Sends events as its arguments have them, and then an answer', inputSchema: ANY },
  { name: 'drop', description: 'Breaks off before the head', inputSchema: ANY },
  { name: 'slow', description: 'Waits to be released', inputSchema: ANY },
  { name: 'says', description: 'Answers with what it is told to answer', inputSchema: ANY },
  {
    name: 'routed',
    description: 'A header repeats one of its arguments',
    inputSchema: {
      type: 'object',
      properties: { to: { type: 'object', properties: { region: { 'x-mcp-header': 'Region' } } } },
    },
  },
  {
    name: 'strict',
    description: 'Takes a number n',
    inputSchema: {
      $schema: 'http://json-schema.org/draft-07/schema#',
      type: 'object',
      properties: { n: { type: 'integer' } },
      required: ['n'],
      additionalProperties: false,
    },
  },
];

export function lockOf(upstream: string, tools: readonly JsonObject[], words: JsonObject = {}): string {
  const pins = tools.map((tool) => ({
    name: tool['name'],
    sha256: createHash('sha256').update(canonicalJson(tool)).digest('hex'),
    tool,
  }));
  return JSON.stringify({ version: 1, upstream, ...words, tools: pins });
}

export function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}

export async function startLenientServer(): Promise<LenientServer & { release(): void }> {
  const seen: Seen[] = [];
  const ran: LenientServer['ran'] = [];
  const waiting: (() => void)[] = [];
  const streams = new Set<ServerResponse>();
  /** Who waits for the client's answer to a question: by session and the question's id. */
  const asking = new Map<string, (answer: JsonObject) => void>();
  let nextAnswer: JsonObject | null = null;
  const server: LenientServer & { release(): void } = {
    url: '',
    seen,
    ran,
    tools: [...TOOLS],
    answerNext: (answer) => {
      nextAnswer = answer;
    },
    words: {},
    beginsWith: null,
    isSeen: true,
    looks: 0,
    onCut: () => {},
    announce: () => server.tell('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'),
    tell: (data) => {
      for (const stream of streams) stream.write(`data: ${data}\n\n`);
    },
    readAs: null,
    listAs: null,
    callAs: null,
    forget: () => {
      seen.length = 0;
      ran.length = 0;
      nextAnswer = null;
      server.readAs = null;
      server.listAs = null;
      server.callAs = null;
      server.words = {};
      server.beginsWith = null;
    },
    release: () => {
      for (const go of waiting.splice(0)) go();
    },
    close: async () => {
      http.closeAllConnections();
      http.close();
    },
  };

  async function call(id: Json, params: JsonObject, session: string, response: ServerResponse): Promise<void> {
    const name = textOf(params['name']);
    ran.push({ name, arguments: params['arguments'] ?? null });
    const message = (more: JsonObject): JsonObject => ({ jsonrpc: '2.0', id, ...more });
    const text = (said: string, more: JsonObject = {}): JsonObject =>
      message({ result: { content: [{ type: 'text', text: said }], ...more } });
    const stream = (): void => {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' }).flushHeaders();
    };
    const ask = (question: string, method: string, asked: JsonObject): Promise<JsonObject> =>
      new Promise((resolve) => {
        asking.set(`${session} ${question}`, resolve);
        send({ jsonrpc: '2.0', id: question, method, params: asked });
      });
    const send = (one: JsonObject, beside = ''): void =>
      void response.write(`${beside}data: ${JSON.stringify(one)}\n\n`);
    const note = { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'half way' } };
    const cut = (): void => {
      server.onCut(params['arguments'] ?? null);
      response.socket?.destroy();
    };
    switch (name) {
      case 'drop':
        cut();
        return;
      case 'cut':
        stream();
        send(note);
        setTimeout(cut, 20);
        return;
      case 'events':
        stream();
        response.write(': a comment\n\n');
        send(note, 'id: e1\nretry: 500\n');
        send({
          jsonrpc: '2.0',
          id: 'q1',
          method: 'elicitation/create',
          params: { message: 'Sure?', requestedSchema: ANY },
        });
        await new Promise<void>((resolve) => waiting.push(resolve));
        send(text('done', { extra: { kept: true } }), 'id: e2\n');
        response.end();
        return;
      case 'asks': {
        stream();
        const content = { type: 'text', text: 'What is it?' };
        const sampled = await ask('s1', 'sampling/createMessage', {
          messages: [{ role: 'user', content }],
          maxTokens: 9,
        });
        const elicited = await ask('e1', 'elicitation/create', {
          message: 'Sure?',
          requestedSchema: { type: 'object', properties: { sure: { type: 'boolean' } } },
        });
        send(text(JSON.stringify({ sampled, elicited })));
        response.end();
        return;
      }
      case 'says': {
        const { arguments: given } = params;
        const answer = nextAnswer ?? (isJsonObject(given) ? given['answer'] : null);
        nextAnswer = null;
        json(response, message(isJsonObject(answer) ? answer : {}));
        return;
      }
      case 'sends': {
        stream();
        const { arguments: given } = params;
        const events = isJsonObject(given) && isJsonArray(given['events']) ? given['events'] : [];
        for (const event of events) response.write(`data: ${textOf(event)}\n\n`);
        send(text('done'));
        response.end();
        return;
      }
      case 'slow':
        await new Promise<void>((resolve) => waiting.push(resolve));
        break;
      case 'typed':
        json(response, text('1', { structuredContent: { n: 1 } }));
        return;
      case 'fail':
        json(response, text('it broke', { isError: true }));
        return;
    }
    json(response, text(JSON.stringify(params['arguments'] ?? null), { _meta: { 'server.example/own': 1 } }));
  }

  function begin(id: Json, response: ServerResponse): void {
    const result = {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {} },
      serverInfo: { name: 'lenient', version: '1' },
      ...server.words,
    };
    const message = { jsonrpc: '2.0', id, result };
    if (server.beginsWith === null) return json(response, message);
    response.setHeader('content-type', 'text/event-stream');
    response.end(`id: ${server.beginsWith}\ndata: ${JSON.stringify(message)}\n\n`);
  }

  const http = createServer((request, response) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece);
      const bytes = Buffer.concat(pieces);
      const body = bytes.toString();
      const { method = '', url = '', headers } = request;
      if (headers['user-agent'] !== INSPECTOR) seen.push({ method, url, headers, body });
      else if (!server.isSeen) return void response.writeHead(500).end();
      else if (body.includes('"tools/list"')) server.looks += 1;
      const messages = looseMessages({ url, headers, body: bytes });
      if (method === 'GET' && messages.length === 0) {
        response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
        const { 'last-event-id': last } = headers;
        if (last !== undefined) {
          // To whoever asks, as the official SDK does.
          const params = { level: 'info', data: `replayed after ${String(last)}` };
          const note = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params });
          response.end(`id: ${String(last)}-next\ndata: ${note}\n\n`);
          return;
        }
        streams.add(response);
        response.once('close', () => streams.delete(response));
        return;
      }
      if (method === 'DELETE' && messages.length === 0) {
        response.writeHead(200).end();
        return;
      }
      for (const message of messages) {
        const { id = null, method: name, params, result: answered } = message;
        const session = String(headers['mcp-session-id'] ?? '');
        // As the official SDK does: every answer names its session.
        if (session !== '') response.setHeader('mcp-session-id', session);
        const given = isJsonObject(params) ? params : {};
        const result = (value: JsonObject): void => json(response, { jsonrpc: '2.0', id, result: value });
        const say = ({ status, type, text, packed }: SaidAs): void => {
          if (packed) response.setHeader('content-encoding', 'gzip');
          response.writeHead(status, { 'content-type': type });
          response.end(packed ? gzipSync(text) : text);
        };
        switch (textOf(name)) {
          case 'tools/call':
            if (server.callAs === null) await call(id, given, session, response);
            else say(server.callAs);
            break;
          case 'resources/read':
            if (server.readAs !== null) {
              say(server.readAs);
              break;
            }
            if (given['uri'] === 'file:///secret') ran.push({ name: 'secret', arguments: null });
            result({ said: 'resources/read' });
            break;
          case 'tools/list':
            if (server.listAs === null || headers['user-agent'] === INSPECTOR) result({ tools: server.tools });
            else say(server.listAs);
            break;
          case 'initialize':
            response.setHeader('mcp-session-id', randomUUID());
            begin(id, response);
            break;
          default:
            if (isJsonObject(answered)) asking.get(`${session} ${textOf(id)}`)?.(answered);
            if (id === null || name === undefined) response.writeHead(202).end();
            else result({ said: textOf(name), ...(name === 'server/discover' ? server.words : {}) });
        }
      }
    })().catch(() => response.destroy());
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const { port } = http.address() as AddressInfo;
  return Object.assign(server, { url: `http://127.0.0.1:${port}/mcp` });
}

function json(response: ServerResponse, message: JsonObject): void {
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(message));
}
