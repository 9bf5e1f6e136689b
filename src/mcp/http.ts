import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { wholeBody } from '../bytes/gathered.ts';
import type { Code } from '../effects/model/codes.ts';
import type { Problem } from '../effects/model/run-request.ts';
import type { JsonObject } from '../json/value.ts';
import type { JsonLimits } from '../json/strict.ts';
import {
  type RpcError,
  type RpcId,
  type RpcMessage,
  type RpcRefusal,
  RPC,
  errorMessage,
  readMessage,
  refused,
} from './jsonrpc.ts';
import type { RenderedOutcome } from '../effects/run/render.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The id of the request that is answered, as soon as it is known. */
    rpcId: RpcId | null;
  }
}

/** Thrown by an MCP face to answer with a JSON-RPC error; {@link answerFaults} sends it. */
export class RpcRefused extends Error {
  override readonly name = 'RpcRefused';
  readonly refusal: RpcRefusal;
  constructor(refusal: RpcRefusal) {
    super(refusal.error.message);
    this.refusal = refusal;
  }
}

/** Thrown by an MCP face to answer with a problem, in the form of a JSON-RPC error. */
export class RpcProblem extends Error {
  override readonly name = 'RpcProblem';
  readonly problem: Problem;
  constructor(problem: Problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

/**
 * Bodies of an MCP face: `application/json`, UTF-8, strict JSON, one message. `request.body` is then an
 * {@link RpcMessage}. Anything else is refused with a JSON-RPC error.
 */
export function acceptMessages(app: FastifyInstance, limits: () => JsonLimits): void {
  app.removeAllContentTypeParsers();
  app.decorateRequest('rpcId', null);
  app.addContentTypeParser('*', (request, _payload, done) => {
    done(contentFault(request.headers['content-type']));
  });
  app.addContentTypeParser('application/json', async (request: FastifyRequest) => {
    const { 'content-type': type = '', 'content-encoding': encoding } = request.headers;
    const charset = /;\s*charset\s*=\s*"?([^";\s]+)/i.exec(type)?.[1];
    if (charset !== undefined && !/^utf-?8$/i.test(charset)) throw contentFault(type);
    if (encoding !== undefined && encoding.toLowerCase() !== 'identity')
      throw refusal(415, RPC.invalidRequest, 'Compressed bodies are not read. Send the JSON as it is.');
    const bytes = await wholeBody(request.raw, request.routeOptions.bodyLimit, problem);
    // Clients that set the type for all of their requests say it of a DELETE, too, which has no body.
    if (bytes.length === 0 && request.method === 'DELETE') return undefined;
    const message = await readMessage(bytes, limits());
    if (message.kind === 'refused') throw new RpcRefused(message);
    if (message.kind === 'request') request.rpcId = message.id;
    return message;
  });
}

export function problem(code: Code, detail: string, retryAfterMs: number | null = null): RpcProblem {
  return new RpcProblem({ code, detail, errors: [], retryAfterMs });
}

/** The message of a request with a body. @throws RpcRefused where there is none */
export function messageIn(request: FastifyRequest<{ Body: RpcMessage | undefined }>): RpcMessage {
  if (request.body === undefined)
    throw refusal(400, RPC.parseError, 'The body is empty: send one JSON-RPC message as application/json.');
  return request.body;
}

function contentFault(type: string | undefined): RpcRefused {
  const fault = type === undefined ? 'The body has no content type' : `The content type is ${type.slice(0, 100)}`;
  return refusal(415, RPC.invalidRequest, `${fault}: send the message as application/json in UTF-8.`);
}

function refusal(status: number, code: number, message: string): RpcRefused {
  return new RpcRefused(refused(status, null, code, message));
}

export interface FaultPorts {
  /** What anything that was thrown is as a problem; logged where it is the gateway's own fault. */
  readonly problemOf: (error: unknown, request: FastifyRequest) => Problem;
  /** A problem as an HTTP answer (RFC 9457). */
  readonly renderProblem: (
    problem: Problem,
    request: { readonly id: string; readonly method: string; readonly keyed: boolean },
  ) => RenderedOutcome;
}

/**
 * Every fault of an MCP face is answered as a JSON-RPC error, also those of the server's own hooks: official clients
 * read nothing else.
 */
export function answerFaults(app: FastifyInstance, ports: FaultPorts): void {
  app.setErrorHandler((error, request, reply) => {
    if (error instanceof RpcRefused) {
      const { status, id, error: fault } = error.refusal;
      return sendError(reply, status, id ?? request.rpcId, fault);
    }
    return sendProblem(
      ports,
      request,
      reply,
      error instanceof RpcProblem ? error.problem : ports.problemOf(error, request),
    );
  });
}

/** Answers with a problem: its status and headers, and the document in `error.data`. */
export function sendProblem(
  ports: FaultPorts,
  request: FastifyRequest,
  reply: FastifyReply,
  problem: Problem,
): FastifyReply {
  const { status, headers, body } = ports.renderProblem(problem, {
    id: request.id,
    method: request.method,
    keyed: false,
  });
  const code = RPC_CODE[problem.code] ?? (status >= 500 ? RPC.internalError : RPC.refused);
  return sendError(reply.headers(headers), status, request.rpcId, { code, message: problem.detail, data: body });
}

const RPC_CODE: Readonly<Partial<Record<Problem['code'], number>>> = {
  invalid_json: RPC.parseError,
  invalid_request: RPC.invalidRequest,
  too_large: RPC.invalidRequest,
  unsupported_media_type: RPC.invalidRequest,
};

export function sendError(reply: FastifyReply, status: number, id: RpcId | null, error: RpcError): FastifyReply {
  const { id: _none, ...message } = errorMessage(id, error);
  // Before the key is known nothing is read, and official clients take no message with an id of null.
  return sendMessage(reply.code(status), status === 401 && id === null ? message : errorMessage(id, error));
}

export function sendMessage(reply: FastifyReply, message: JsonObject): FastifyReply {
  return sendWritten(reply, JSON.stringify(message));
}

/** The same, of a message that is JSON already. */
export function sendWritten(reply: FastifyReply, message: string | Buffer): FastifyReply {
  return reply
    .headers({ 'content-type': 'application/json; charset=utf-8', 'cache-control': 'no-store' })
    .send(message);
}
