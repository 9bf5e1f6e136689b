import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

/** What becomes of a call: done and answered, done and not answered, never done, done only after the answer was lost. */
const FATES = ['answered', 'lost_after', 'lost_before', 'late'] as const;
type Fate = (typeof FATES)[number];

/** How late what is done is to be seen, and how late it is done, ms. */
const SHOWN_AFTER_MS = 1_500;
const LATE_MS = 400;
/** How long a read takes, ms. */
const READ_MS = 5;

/** A shop over HTTP and MCP that loses answers, and shows late, and not each time, what it has done. */
export interface LossyShop {
  readonly url: string;
  /** What was done, by the id of the order: how often. The truth. */
  readonly done: ReadonlyMap<string, number>;
  /** How many reads there were. */
  reads(): number;
  /** Whether all reads are answered 503 from now on. */
  break(isBroken: boolean): void;
  /** The most reads that were under way at the same time. */
  mostAtOnce(): number;
  close(): Promise<void>;
}

/** The fate of an order stands in its id: `lost_after-3`. */
function fateOf(order: string): Fate {
  return FATES.find((fate) => order.startsWith(fate)) ?? 'answered';
}

export async function startLossyShop(): Promise<LossyShop> {
  const done = new Map<string, number>();
  const shownFrom = new Map<string, number>();
  const byKey = new Map<string, string>();
  const looks = new Map<string, number>();
  let reads = 0;
  let isBroken = false;
  let underWay = 0;
  let most = 0;

  const happen = (order: string): void => {
    done.set(order, (done.get(order) ?? 0) + 1);
    shownFrom.set(order, performance.now() + SHOWN_AFTER_MS);
  };
  /** Whether an order is seen. Of some, every other look is at a replica that does not have them yet. */
  const isSeen = (order: string): boolean => {
    const nth = (looks.get(order) ?? 0) + 1;
    looks.set(order, nth);
    return (shownFrom.get(order) ?? Infinity) <= performance.now() && !(order.endsWith('3') && nth % 2 === 1);
  };
  /** @returns whether there is an answer */
  const place = (order: string): boolean => {
    const fate = fateOf(order);
    if (fate === 'late') setTimeout(() => happen(order), LATE_MS);
    else if (fate !== 'lost_before') happen(order);
    return fate === 'answered';
  };
  /** Reads fail now and then, in a way that says nothing. */
  const isBusy = (): boolean => {
    reads += 1;
    return reads % 5 === 0;
  };

  function http(request: IncomingMessage, response: ServerResponse, body: string): void {
    const say = (status: number, value: object): void => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    };
    if (request.method === 'POST') {
      const { order }: { readonly order: string } = JSON.parse(body);
      byKey.set(String(request.headers['idempotency-key']), order);
      return place(order) ? say(201, { state: 'done' }) : void response.destroy();
    }
    if (isBroken) {
      reads += 1;
      return say(503, {});
    }
    if (isBusy()) return reads % 2 === 0 ? say(503, { state: 'done' }) : say(200, { state: 'pending' });
    const order = byKey.get(decodeURIComponent(request.url?.split('/').at(-1) ?? '')) ?? '';
    return isSeen(order) ? say(200, { state: 'done' }) : say(404, { state: 'done', message: 'No such order' });
  }

  async function mcp(request: IncomingMessage, response: ServerResponse, body: string): Promise<void> {
    const server = new McpServer({ name: 'shop', version: '1.0.0' });
    const fail = (text: string) => ({ content: [{ type: 'text' as const, text }], isError: true });
    server.registerTool('place', { inputSchema: { order: z.string(), item: z.string() } }, ({ order }) => {
      if (place(order)) return { content: [{ type: 'text', text: 'placed' }] };
      // Servers make such a result of any exception, also of one after the write.
      if (order.endsWith('1')) return fail('Something went wrong');
      response.destroy();
      return fail('nobody hears it');
    });
    server.registerTool(
      'find',
      { inputSchema: { order: z.string() }, annotations: { readOnlyHint: true } },
      ({ order }) => {
        if (isBusy()) return fail(JSON.stringify({ found: false }));
        return { content: [{ type: 'text', text: JSON.stringify({ found: isSeen(order), item: 'book' }) }] };
      },
    );
    const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
    await server.connect(transport as Parameters<typeof server.connect>[0]);
    await transport.handleRequest(request, response, body === '' ? undefined : JSON.parse(body));
  }

  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = '';
    for await (const piece of request) body += piece;
    if (request.method === 'GET') {
      underWay += 1;
      most = Math.max(most, underWay);
      await delay(READ_MS);
      underWay -= 1;
    }
    if (request.url === '/mcp') await mcp(request, response, body);
    else http(request, response, body);
  }

  const server = createServer((request, response) => {
    void take(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    done,
    reads: () => reads,
    break(yes) {
      isBroken = yes;
    },
    mostAtOnce: () => most,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
