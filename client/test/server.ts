import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';

/** One request as it arrived. */
export interface Received {
  readonly method: string;
  readonly path: string;
  readonly key: string | undefined;
  readonly body: Record<string, unknown>;
}

/** What the server does with one request: answer with status, body, headers, or drop the connection. */
export type Play =
  | { readonly status: number; readonly body: unknown; readonly headers?: Record<string, string> }
  | { readonly drop: 'before' | 'headers' };

export interface ScriptedServer {
  readonly url: string;
  readonly received: readonly Received[];
  close(): Promise<void>;
}

/** A real HTTP server on loopback that plays a script, one entry for each request, the last one for all that follow. */
export async function scriptedServer(script: readonly Play[]): Promise<ScriptedServer> {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    void read(request).then((text) => {
      received.push({
        method: request.method ?? '',
        path: request.url ?? '',
        key: request.headers['x-api-key']?.toString(),
        body: text === '' ? {} : JSON.parse(text),
      });
      play(response, script[Math.min(received.length, script.length) - 1] ?? { drop: 'before' });
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    url: `http://127.0.0.1:${address.port}`,
    received,
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

async function read(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  return text;
}

function play(response: ServerResponse, step: Play): void {
  if ('drop' in step) {
    if (step.drop === 'headers') {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '1000' });
      response.write('{"decision":');
    }
    response.socket?.resetAndDestroy();
    return;
  }
  response.writeHead(step.status, { 'content-type': 'application/json', ...step.headers });
  response.end(typeof step.body === 'string' ? step.body : JSON.stringify(step.body));
}

/** The body of a run answer, as the gateway sends it. */
export function answer(decision: string, more: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    decision,
    effect_id: 'eff_1',
    tool: 'payments.refund',
    target: 'payment:pay_1',
    agent_id: 'bot',
    idempotency_key: 'k1',
    attempt: 1,
    reason: { code: decision, message: 'why' },
    did_it_happen: 'no',
    safe_to_retry: true,
    next: 'block',
    links: { effect: 'http://x' },
    ...more,
  };
}
