import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { runBridge } from '../../packages/bridge/src/bridge.ts';

/** What came to the server. */
export interface Came {
  readonly method: string;
  readonly rpc: string | null;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

type Handle = (came: Came, response: ServerResponse, request: IncomingMessage) => void;

export interface Line {
  readonly id?: unknown;
  readonly method?: string;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> };
}

/** A bridge in this process, and a server of the test's behind it. */
export interface Bridged {
  readonly came: readonly Came[];
  /** All lines that the bridge has written. */
  readonly lines: readonly Line[];
  readonly said: readonly string[];
  readonly input: PassThrough;
  readonly output: PassThrough;
  readonly ended: Promise<void>;
  /** The key that its file holds now. */
  key: string;
  write(...messages: unknown[]): void;
  /** As a signal does. */
  stop(): void;
  /** Whether the server listens. It does at the beginning. */
  listens(isThere: boolean): Promise<void>;
  close(): Promise<void>;
}

export async function bridged(handle: Handle): Promise<Bridged> {
  const came: Came[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString('utf8');
      const rpc = /"method":"([^"]*)"/.exec(body)?.[1] ?? null;
      const one = { method: request.method ?? '', rpc, headers: request.headers, body };
      came.push(one);
      handle(one, response, request);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const input = new PassThrough();
  const output = new PassThrough();
  const lines: Line[] = [];
  const said: string[] = [];
  createInterface({ input: output }).on('line', (line) => lines.push(JSON.parse(line) as Line));
  let stop = (): void => {};
  const stopped = new Promise<void>((resolve) => {
    stop = resolve;
  });
  const made: { key: string } = { key: 'svc_agent_first' };
  const ended = runBridge({
    url: new URL(`http://127.0.0.1:${port}/mcp`),
    readKey: async () => made.key,
    keyHint: 'Another key.',
    input,
    output,
    log: (line) => said.push(line),
    stopped,
  });
  return Object.assign(made, {
    came,
    lines,
    said,
    input,
    output,
    ended,
    write: (...messages: unknown[]) => {
      for (const message of messages)
        input.write(
          `${typeof message === 'string' ? message : JSON.stringify({ jsonrpc: '2.0', ...(message as object) })}\n`,
        );
    },
    stop,
    listens: async (isThere: boolean) => {
      if (isThere) {
        server.listen(port, '127.0.0.1');
        await once(server, 'listening');
      } else {
        const closed = once(server, 'close');
        server.close();
        server.closeAllConnections();
        await closed;
      }
    },
    close: async () => {
      stop();
      server.closeAllConnections();
      server.close();
      await ended;
    },
  });
}

/** Answers with server-sent events; the stream stays open. */
export function stream(response: ServerResponse, ...messages: unknown[]): void {
  if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const message of messages)
    response.write(
      typeof message === 'string' ? message : `data: ${JSON.stringify({ jsonrpc: '2.0', ...(message as object) })}\n\n`,
    );
}

export function json(response: ServerResponse, message: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(200, { 'content-type': 'application/json', ...headers });
  response.end(JSON.stringify(message));
}
