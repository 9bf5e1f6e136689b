import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { readBody } from '../../../src/bytes/gathered.ts';
import { percentDecoded } from '../../../src/bytes/percent-decoded.ts';
import { parseStrictJson } from '../../../src/json/strict.ts';
import { isJsonObject, type Json, type JsonObject } from '../../../src/json/value.ts';

export type PaymentsUpstream = Awaited<ReturnType<typeof startPaymentsUpstream>>;

interface Payment {
  readonly id: string;
  readonly amount: number;
  readonly currency: string;
  readonly customer: string;
  refunded: number;
}

interface Answer {
  readonly status: number;
  readonly body: JsonObject;
}

/** The most bytes of a request body. */
const BODY_LIMIT = 64 * 1024;
/** Payments that exist from the start: pay_1 to pay_9, 2,500.00 EUR each. */
const SEEDED = 9;
const SEEDED_AMOUNT = 250_000;
/** A write with this reason happens, and its answer is lost: to see by hand what an agent sees on a bad day. */
const LOSE = 'lose the answer';

/**
 * Starts a small API on 127.0.0.1 that behaves like a real one: payments, refunds (never more than was paid), mails,
 * deployments. It has GET by id, and a repeated write with the same `Idempotency-Key` gets the first answer again. At
 * `/mcp` it is an MCP server, a support desk.
 * Everything is in memory.
 * @param options.port another is taken where this one is not free
 */
export async function startPaymentsUpstream(options: { readonly port: number }) {
  const payments = new Payments();
  const desk = createDesk();
  let loseNext = false;
  const server = createServer((request, response) => {
    void readJson(request).then((body) => {
      if (request.url === '/mcp') {
        const reply = request.method === 'POST' ? desk(body) : refused(405, 'use POST').body;
        if (reply === null) response.writeHead(202).end();
        else send(response, request.method === 'POST' ? 200 : 405, reply);
        return;
      }
      const { status, body: members } = payments.answer(request, body);
      const changes = request.method !== 'GET' && request.method !== 'HEAD';
      const isLost = loseNext || (isJsonObject(body) && body['reason'] === LOSE);
      if (isLost && changes && status < 300) {
        loseNext = false;
        response.socket?.destroy();
        return;
      }
      send(response, status, members);
    });
  });
  await listenOn(server, options.port).catch(async (error: unknown) => {
    if (!(error instanceof Error && 'code' in error && error.code === 'EADDRINUSE')) throw error;
    await listenOn(server, 0);
  });
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('the demo API has no address');
  return {
    /** Origin, no trailing slash. */
    url: `http://127.0.0.1:${address.port}`,
    /** The next write happens, but its answer is lost: what an agent sees on a bad day. */
    loseNextAnswer: (): void => {
      loseNext = true;
    },
    close: async (): Promise<void> => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function listenOn(server: Server, port: number): Promise<void> {
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
}

class Payments {
  readonly #payments = new Map<string, Payment>();
  readonly #things = new Map<string, JsonObject>();
  readonly #answered = new Map<string, Answer>();
  #counter = SEEDED;

  constructor() {
    for (let n = 1; n <= SEEDED; n += 1) {
      const id = `pay_${n}`;
      this.#payments.set(id, { id, amount: SEEDED_AMOUNT, currency: 'EUR', customer: `cus_${n}`, refunded: 0 });
    }
  }

  answer(request: IncomingMessage, body: Json | undefined): Answer {
    const path = (request.url ?? '/').split('?')[0] ?? '/';
    if (request.method === 'GET' || request.method === 'HEAD') return this.#read(path);
    if (request.method !== 'POST') return refused(405, 'use GET or POST');
    const key = request.headers['idempotency-key'];
    const before = typeof key === 'string' ? this.#answered.get(key) : undefined;
    if (before !== undefined) return before;
    if (!isJsonObject(body)) return refused(400, 'send a JSON object');
    const result = this.#write(path, body);
    if (typeof key === 'string' && result.status < 300) this.#answered.set(key, result);
    return result;
  }

  #nextId(prefix: string): string {
    this.#counter += 1;
    return `${prefix}_${this.#counter}`;
  }

  #keep(path: string, body: JsonObject, status: number): Answer {
    this.#things.set(path, body);
    return { status, body };
  }

  #refund(payment: Payment, body: JsonObject): Answer {
    const { amount, currency } = body;
    if (!isAmount(amount)) return refused(400, 'amount must be a positive integer, in cents');
    if (currency !== payment.currency) return refused(422, `the payment is in ${payment.currency}`);
    if (payment.refunded + amount > payment.amount) {
      return refused(422, `only ${payment.amount - payment.refunded} of ${payment.amount} are left to refund`);
    }
    payment.refunded += amount;
    const id = this.#nextId('re');
    const reason = typeof body['reason'] === 'string' ? { reason: body['reason'] } : {};
    return this.#keep(
      `/v1/refunds/${id}`,
      { id, payment_id: payment.id, amount, currency, ...reason, status: 'succeeded' },
      201,
    );
  }

  #write(path: string, body: JsonObject): Answer {
    const ofPayment = /^\/v1\/payments\/([^/]+)\/refunds$/.exec(path)?.[1];
    if (ofPayment !== undefined) {
      const payment = this.#payments.get(percentDecoded(ofPayment) ?? '');
      return payment === undefined ? refused(404, 'there is no such payment') : this.#refund(payment, body);
    }
    switch (path) {
      case '/v1/payments': {
        const { amount, currency, customer } = body;
        if (!isAmount(amount)) return refused(400, 'amount must be a positive integer, in cents');
        if (typeof currency !== 'string' || typeof customer !== 'string') {
          return refused(400, 'currency and customer must be strings');
        }
        const payment: Payment = { id: this.#nextId('pay'), amount, currency, customer, refunded: 0 };
        this.#payments.set(payment.id, payment);
        return { status: 201, body: paymentBody(payment) };
      }
      case '/v1/mails': {
        const { to, subject } = body;
        if (typeof to !== 'string' || typeof subject !== 'string')
          return refused(400, 'to and subject must be strings');
        const id = this.#nextId('mail');
        return this.#keep(`/v1/mails/${id}`, { id, to, subject, status: 'queued' }, 202);
      }
      case '/v1/deployments': {
        const { service, version } = body;
        if (typeof service !== 'string' || typeof version !== 'string') {
          return refused(400, 'service and version must be strings');
        }
        const id = this.#nextId('dep');
        return this.#keep(`/v1/deployments/${id}`, { id, service, version, status: 'succeeded' }, 201);
      }
      default:
        return refused(404, 'there is nothing at this path');
    }
  }

  #read(path: string): Answer {
    const ofPayment = /^\/v1\/payments\/([^/]+)$/.exec(path)?.[1];
    const payment = ofPayment === undefined ? undefined : this.#payments.get(percentDecoded(ofPayment) ?? '');
    if (payment !== undefined) return { status: 200, body: paymentBody(payment) };
    const byKey = /^\/v1\/refunds\/by-key\/([^/]+)$/.exec(path)?.[1];
    const earlier = byKey === undefined ? undefined : this.#answered.get(percentDecoded(byKey) ?? '');
    if (earlier !== undefined) return { status: 200, body: earlier.body };
    const thing = this.#things.get(path);
    return thing === undefined ? refused(404, 'there is nothing at this path') : { status: 200, body: thing };
  }
}

function paymentBody(payment: Payment): JsonObject {
  const status =
    payment.refunded === 0 ? 'captured' : payment.refunded < payment.amount ? 'partly_refunded' : 'refunded';
  return { ...payment, status };
}

function isAmount(value: Json | undefined): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0;
}

function refused(status: number, message: string): Answer {
  return { status, body: { error: message } };
}

/** The body as JSON; `undefined` if there is none, it is too long, or it is not JSON. */
async function readJson(request: IncomingMessage): Promise<Json | undefined> {
  const read = await readBody(request, BODY_LIMIT);
  if (read.kind !== 'body' || read.bytes.byteLength === 0) return undefined;
  const parsed = parseStrictJson(read.bytes, { depth: 16, values: 1_000 });
  return parsed.ok ? parsed.value : undefined;
}

function send(response: ServerResponse, status: number, body: JsonObject): void {
  const text = JSON.stringify(body);
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  response.end(text);
}

const TICKET = { ticket_id: { type: 'string', minLength: 1, maxLength: 64 } };
const inputSchema = { type: 'object', properties: TICKET, required: ['ticket_id'], additionalProperties: false };

/** As MCP lists them. `config/desk.lock.json` pins them. */
const TOOLS: readonly JsonObject[] = [
  ['find_ticket', 'Tells how a ticket stands.', { readOnlyHint: true }] as const,
  ['close_ticket', 'Closes a ticket and mails its customer.', { destructiveHint: false }] as const,
  ['delete_ticket', 'Deletes a ticket for ever.', { destructiveHint: true }] as const,
].map(([name, description, annotations]) => ({ name, description, inputSchema, annotations }));

/** A support desk that speaks MCP over streamable HTTP, in the revisions with sessions, and keeps none. */
function createDesk(): (message: Json | undefined) => JsonObject | null {
  const closed = new Map<string, number>();
  const call = (name: Json | undefined, args: JsonObject): JsonObject => {
    const { ticket_id: ticket } = args;
    if (typeof ticket !== 'string') return textResult('ticket_id is missing', true);
    switch (textOf(name)) {
      case 'find_ticket':
        return textResult(
          `${ticket} is ${closed.has(ticket) ? 'closed' : 'open'}; mails sent: ${closed.get(ticket) ?? 0}`,
        );
      case 'close_ticket':
        closed.set(ticket, (closed.get(ticket) ?? 0) + 1);
        return textResult(`${ticket} is closed, and its customer has a mail`);
      case 'delete_ticket':
        closed.delete(ticket);
        return textResult(`${ticket} is gone`);
      default:
        return textResult('There is no such tool', true);
    }
  };
  return (message) => {
    if (!isJsonObject(message)) return failed(null, -32_600, 'Send one JSON-RPC message');
    const { id, method } = message;
    if (id === undefined) return null;
    const params = isJsonObject(message['params']) ? message['params'] : {};
    const result = (value: JsonObject): JsonObject => ({ jsonrpc: '2.0', id, result: value });
    switch (textOf(method)) {
      case 'initialize':
        return result({
          protocolVersion: '2025-11-25',
          capabilities: { tools: {} },
          serverInfo: { name: 'desk', version: '1.0.0' },
        });
      case 'ping':
        return result({});
      case 'tools/list':
        return result({ tools: TOOLS });
      case 'tools/call':
        return result(call(params['name'], isJsonObject(params['arguments']) ? params['arguments'] : {}));
      default:
        return failed(id, -32_601, 'Method not found');
    }
  };
}

/** A name that is no text is no name that anything here has. */
function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}

function textResult(text: string, isError = false): JsonObject {
  return { content: [{ type: 'text', text }], ...(isError && { isError }) };
}

function failed(id: Json, code: number, message: string): JsonObject {
  return { jsonrpc: '2.0', id, error: { code, message } };
}
