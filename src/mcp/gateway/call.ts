import type { FastifyReply, FastifyRequest } from 'fastify';
import type { HttpAnswer } from '../../effects/model/answer.ts';
import { NO_HEADERS } from '../../effects/model/action-call.ts';
import { NO_FILES } from '../../effects/model/files.ts';
import { readIdempotencyKey } from '../../effects/run/fingerprint.ts';
import { randomPooled } from '../../effects/run/ids.ts';
import type { GivenKey, Problem } from '../../effects/model/run-request.ts';
import { type McpCall, pinnedCall, type Tool } from '../../effects/model/tool.ts';
import type { MessageListener } from '../../effects/upstream.ts';
import { followSteps, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { jsonInSlices } from '../../json/write.ts';
import { declaredMeta, protocolMeta } from '../../mcp-protocol/call-params.ts';
import { paramHeadersIn, paramHeadersOf, paramMismatch } from '../../mcp-protocol/param-headers.ts';
import { paramsWithoutTasks, takesTasks } from '../../mcp-protocol/tasks.ts';
import { eventOf } from '../../upstreams/mcp/server-events.ts';
import { problem, RpcRefused, sendMessage, sendProblem, sendWritten } from '../http.ts';
import { errorMessage, refused, RPC, type RpcId, resultMessage, type RpcRequest } from '../jsonrpc.ts';
import { type Era, mismatch } from '../protocol.ts';
import { note } from './access.ts';
import type { EventIdMarks } from './event-ids.ts';
import { META_PREFIX, resultOf, type AnswerContext } from './answer.ts';
import { urlRequest, withoutAnswerToUs } from './approval-url.ts';
import { answeredEarly, asksForMore, openedRound, sealedRound } from './input-rounds.ts';
import type { LiveConnection } from '../../identity/live.ts';
import type { createLiveCalls } from './live-calls.ts';
import type { GatewayPorts } from './ports.ts';
import { type AnswerHeaders, sealHeaders } from './sessions.ts';
import type { Sender } from './arrival.ts';

/** A call of a tool, as it came in. */
export interface ArrivedCall extends Omit<Sender, 'session'> {
  readonly upstream: string;
  readonly message: RpcRequest;
  readonly headers: Readonly<Record<string, string>>;
  /** What the call is one of: calls of other sessions are not cancelled with it. */
  readonly session: string;
  /** Through the door to all servers. `null`: in a session of the client with the one server. */
  readonly federated: {
    /** Whose session with the server it is sent in. */
    readonly sessionOf: string;
    /** The result in the form of the client's era. */
    shape(result: JsonObject): JsonObject;
  } | null;
  /** A server's id of a session as this agent gets it. */
  readonly seal: (id: string) => string | null;
  /** Makes ids of events what this agent gets; `null` where the events are the gateway's own, and have none. */
  readonly events: EventIdMarks | null;
  readonly era: Era;
}

/** Runs a call of a tool as an effect, and answers it: always with a status of 200 where a decision was made. */
export async function runCall(
  ports: GatewayPorts,
  live: ReturnType<typeof createLiveCalls>,
  arrived: ArrivedCall,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { message, principal, workspace, agentId, upstream, federated, era } = arrived;
  // Without sessions headers repeat arguments, and results say that they are complete.
  const isStateless = era.kind === 'stateless';
  const params = withoutAnswerToUs(paramsWithoutTasks(message.params));
  const { name, arguments: given = {}, task, _meta: meta } = params;
  const wrong = (text: string): RpcRefused => new RpcRefused(refused(200, message.id, RPC.invalidParams, text));
  if (typeof name !== 'string' || name === '') throw wrong('params.name must be the name of a tool.');
  if (!isJsonObject(given)) throw wrong('params.arguments must be an object.');
  // A client of that form would not understand the result. In the stateless era the member means nothing.
  if (task !== undefined && !isStateless)
    throw wrong('Calls as tasks are not taken in the revisions with sessions: leave out params.task.');
  const tool = ports.catalog().tool(`${upstream}.${name}`);
  const pinned = tool === null ? null : pinnedCall(tool);
  const call = pinned?.name === name ? pinned : null;
  if (call !== null) note(request, { tool: `${upstream}.${name}` });
  const paramHeaders = isStateless && call !== null ? repeatedIn(call, given, message.id, request) : {};
  const key = keyOf(tool, call, given, meta, request);
  const asked = { owner: arrived.owner, tool: `${upstream}.${name}`, given };
  const round = isStateless ? openedRound(ports.workspaceKey(workspace), asked, params) : {};
  if (round === null) throw wrong('params.requestState is none that this call was given. Send the call without it.');
  const needed = declaredMeta(meta, call?.meta ?? []);
  if (call?.meta !== undefined && given['_meta'] !== undefined)
    throw wrong('_meta is no argument: it stands in params.');
  const protocol = protocolMeta(meta);
  // Servers find the stream of an answer by the id alone (the official SDK does): under an id that the client chose, the
  // answer to another request of its session could come for that to this call. The next id of an effect could be guessed.
  const sentAs = randomPooled(6).readUIntBE(0, 6);
  const answer = beginAnswer(request, reply, arrived, sentAs);
  const keepOpen = (): void => {
    const of = { workspace, agentId, params: given, requestIp: request.ip };
    const mayStay: LiveConnection['mayStay'] = (now) => tool !== null && ports.mayHear({ ...of, tool, principal: now });
    const open = liveOf(reply, { mayStay, isAdmitted: true, stands: () => false });
    reply.raw.once('close', () => ports.live.remove(open));
    ports.live.add(open);
  };
  const breakOff = new AbortController();
  if (call?.onClientClose === 'abort') answer.onGone(() => breakOff.abort());
  const leave = live.enter(arrived.session, message.id, {
    sentAs,
    onClientClose: call?.onClientClose ?? 'finish',
    abort: () => breakOff.abort(),
  });
  try {
    const run = (ofRound: JsonObject): ReturnType<GatewayPorts['run']> =>
      ports.run({
        principal,
        via: 'mcp',
        workspace,
        agentId,
        actionType: null,
        tool: `${upstream}.${name}`,
        target: null,
        params: Object.keys(needed).length === 0 ? given : { ...given, _meta: needed },
        files: NO_FILES,
        headers: NO_HEADERS,
        idempotencyKey: key,
        stateCheck: null,
        claimId: null,
        reservationId: null,
        metadata: null,
        proxied: {
          kind: 'message',
          id: sentAs,
          rest: { ...ofRound, ...(Object.keys(protocol).length > 0 && { _meta: protocol }) },
          headers: { ...arrived.headers, ...paramHeaders },
          sessionOf: federated?.sessionOf ?? null,
          signal: breakOff.signal,
          hears: {
            ...answer.listener,
            began(head) {
              answer.listener.began(head);
              if (!reply.raw.destroyed) keepOpen();
            },
          },
        },
        requestIp: request.ip,
        stages: [
          {
            stage: 'authenticate',
            status: 'passed',
            startedAt: arrived.authenticatedAt,
            durationMs: null,
            detail: null,
          },
        ],
      });
    let result = await run(round);
    const early = isStateless && federated === null ? answeredEarly(params, answer.sent().last) : null;
    if (early !== null) {
      answer.forget();
      result = await run(early);
    }
    if (result.kind === 'problem') {
      if (!answer.hasBegun()) {
        if (result.problem.code === 'invalid_request') {
          const misfit = inForm(misfitResult(result.problem), isStateless);
          return sendMessage(reply, resultMessage(message.id, federated?.shape(misfit) ?? misfit));
        }
        return sendProblem(ports, request, reply, result.problem);
      }
      return answer.end(errorMessage(message.id, { code: RPC.internalError, message: result.problem.detail }));
    }
    const { outcome } = result;
    if (outcome.decision === 'committed' || outcome.decision === 'duplicate_blocked')
      answer.onGiven(() => live.gave(outcome.effectId));
    note(request, { decision: outcome.decision, effectId: outcome.effectId });
    const { status, last: sent } = answer.sent();
    // Nobody answers questions through that door: a client that tried would ask in vain.
    const last = federated !== null && asksForMore(sent?.message) ? null : sent;
    // What the server refused as such goes on as it came: clients act on the status (404: begin a new session).
    if (outcome.decision === 'failed' && status !== null && federated === null) return answer.pass(status);
    if (outcome.decision === 'failed' && last !== null && isJsonObject(last.message['error']))
      return answer.end(last.message);
    const made = resultOf(outcome, last, {
      publicUrl: ports.settings().publicUrl,
      policyVersion: ports.policyVersion(),
      hasOutputSchema: call !== null && call.pinned['outputSchema'] !== undefined,
      hasResult: typeof key === 'object' && live.hasGiven(outcome.effectId),
      sameForMs: call?.repeatMs ?? 0,
      isStateless,
      hasProbe: tool?.probe !== undefined,
      waits: waitingForm(ports, arrived),
    });
    const headers = { 'svc-decision': outcome.decision, 'svc-effect-id': outcome.effectId };
    if (outcome.decision === 'pending_approval' && !outcome.repeat && asksOnTheWay(arrived, request))
      answer.ask(urlRequest(outcome, ports.settings().publicUrl), headers);
    const shown =
      isStateless && last !== null && asksForMore({ result: made })
        ? sealedRound(ports.workspaceKey(workspace), asked, made)
        : made;
    return answer.end(resultMessage(message.id, federated?.shape(shown) ?? shown), headers);
  } finally {
    leave();
  }
}

function waitingForm(ports: GatewayPorts, { era, takesUrls }: ArrivedCall): AnswerContext['waits'] {
  if (era.kind === 'handshake') return { kind: 'text' };
  if (takesTasks(era.clientCapabilities)) return { kind: 'task', keptMs: ports.effectsKeptMs() };
  return { kind: takesUrls ? 'url' : 'text' };
}

/** Whether a client of the era of sessions can be asked before its call is answered. */
function asksOnTheWay({ era, takesUrls }: ArrivedCall, { headers }: FastifyRequest): boolean {
  return era.kind === 'handshake' && takesUrls && /\btext\/event-stream\b/i.test(headers.accept ?? '');
}

/**
 * The headers that repeat arguments, as the pinned tool declares them: written anew, like the body.
 * @throws RpcRefused where one that came says something else
 */
function repeatedIn(call: McpCall, given: JsonObject, id: RpcId, { headers }: FastifyRequest): Record<string, string> {
  const declared = paramHeadersIn(call.pinned['inputSchema']);
  const fault = paramMismatch(declared, given, headers);
  if (fault !== null) throw new RpcRefused(mismatch(id, fault.name, fault.actual, 'the arguments say something else'));
  return paramHeadersOf(declared, given);
}

/** Arguments that do not fit are for the model to mend. */
function misfitResult(problem: Problem): JsonObject {
  const text = `Not done: the arguments do not fit. Mend them, and call again.\n${faultText(problem)}`;
  return { content: [{ type: 'text', text }], isError: true };
}

function inForm(result: JsonObject, isStateless: boolean): JsonObject {
  return isStateless ? { resultType: 'complete', ...result } : result;
}

function faultText({ detail, errors }: Problem): string {
  return [
    detail,
    ...errors.slice(0, 20).map(({ path, message }) => `${path.replace(/^\/params/, '/arguments')} ${message}`),
  ].join('\n');
}

/** The idempotency key: of `_meta`, of the header, of the argument that the tool names, or derived. */
function keyOf(
  tool: Tool | null,
  call: McpCall | null,
  given: JsonObject,
  meta: Json | undefined,
  request: FastifyRequest,
): GivenKey {
  const inMeta = isJsonObject(meta) ? meta[`${META_PREFIX}idempotency-key`] : undefined;
  if (inMeta !== undefined) {
    const read = typeof inMeta === 'string' ? readIdempotencyKey(inMeta) : null;
    if (read?.kind !== 'key')
      throw problem(
        'invalid_request',
        `${META_PREFIX}idempotency-key in _meta must be 1 to 255 visible ASCII characters.`,
      );
    return read.key;
  }
  const header = readIdempotencyKey(request.headers['idempotency-key']);
  if (header.kind === 'invalid') throw problem('invalid_request', `The header Idempotency-Key ${header.message}.`);
  if (header.kind === 'key') return header.key;
  const { keyFrom, repeatMs = 0 } = call ?? {};
  const argument = keyFrom === undefined ? undefined : followSteps(given, keyFrom);
  if (tool !== null && (typeof argument === 'string' || isWhole(argument))) {
    const key = `${tool.name}:${encodeURIComponent(argument)}`;
    if (key.length <= 255) return key;
  }
  return { generationMs: repeatMs };
}

function isWhole(value: Json | undefined): value is number {
  return Number.isSafeInteger(value);
}

interface BegunAnswer {
  readonly listener: MessageListener;
  hasBegun(): boolean;
  sent(): { readonly status: HttpAnswer | null; readonly last: { readonly message: JsonObject } | null };
  /** Another round begins: what the server said last is no answer. */
  forget(): void;
  /** Asks the client something, where nothing has been sent yet. Nobody waits for what it says. */
  ask(message: JsonObject, headers: Readonly<Record<string, string>>): void;
  end(message: JsonObject, headers?: Readonly<Record<string, string>>): Promise<FastifyReply>;
  /** Sends an answer of the server that is no message to the call. */
  pass(answer: HttpAnswer): FastifyReply;
  onGone(listen: () => void): void;
  /** Called when all of it is written, while the caller is there. */
  onGiven(listen: () => void): void;
}

/**
 * The answer to a call: events are passed on as they come, and the last message waits until the effect is settled.
 * @param sentAs the id under which the server knows the call, which its client does not
 */
function beginAnswer(
  request: FastifyRequest,
  reply: FastifyReply,
  { seal, events, message: { id } }: Pick<ArrivedCall, 'seal' | 'events' | 'message'>,
  sentAs: number,
): BegunAnswer {
  const { raw } = reply;
  let refusedWith: HttpAnswer | null = null;
  let last: { readonly message: JsonObject; readonly rest: string } | null = null;
  let hasBegun = false;
  return {
    hasBegun: () => hasBegun,
    sent: () => ({ status: refusedWith, last }),
    forget() {
      last = null;
    },
    listener: {
      began({ headers }) {
        if (hasBegun || raw.destroyed) return;
        hasBegun = true;
        reply.hijack();
        const { 'content-length': _length, ...others } = headers;
        // Whatever it says of the session, the call is under way.
        writeHead(reply, 200, sealHeaders(others, seal).headers);
      },
      passed(event) {
        // A caller that has gone takes everything at once: the call goes on.
        if (raw.destroyed || raw.write(events?.write(event) ?? event)) return undefined;
        return drained(raw);
      },
      ended: (message, rest) => {
        last = { message: { ...message, id }, rest: events?.write(Buffer.from(rest)).toString() ?? rest };
      },
      refused: (answer) => {
        refusedWith = answer;
      },
    },
    ask(message, headers) {
      if (hasBegun || raw.destroyed) return;
      hasBegun = true;
      reply.hijack();
      writeHead(reply, 200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache', ...headers });
      raw.write(`data: ${JSON.stringify(message)}\n\n`);
    },
    async end(message, headers = {}) {
      const written = await jsonInSlices(message);
      if (!hasBegun) return sendWritten(reply.headers(headers), written);
      raw.end(eventOf({ rest: last?.rest ?? '' }, written));
      return reply;
    },
    pass({ status, headers, body }) {
      const { 'content-length': _length, ...others } = headers;
      return reply
        .code(status)
        .headers(mutable(sealHeaders(others, seal).headers))
        .send(renamed(body, sentAs, id));
    },
    onGiven(listen) {
      raw.once('finish', listen);
    },
    onGone(listen) {
      raw.once('close', () => {
        if (!raw.writableFinished) listen();
      });
      if (request.raw.destroyed && raw.destroyed) listen();
    },
  };
}

/** What a server says of a call, under the id that its client knows. */
function renamed(body: Buffer, sentAs: number, id: RpcId): Buffer {
  const name = String(sentAs);
  const at = body.indexOf(name);
  if (at === -1) return body;
  return Buffer.concat([body.subarray(0, at), Buffer.from(JSON.stringify(id)), body.subarray(at + name.length)]);
}

/** What is open on behalf of the key of a request. */
export function liveOf(
  { request, raw }: FastifyReply,
  stays: Pick<LiveConnection, 'mayStay' | 'isAdmitted' | 'stands'>,
): LiveConnection {
  // Without a sender it has no key, and is cut.
  return { ...stays, key: request.mcpSender?.key ?? '', address: request.ip, cut: () => void raw.destroy() };
}

/** Resolves when more can be written, or nobody reads any more. */
function drained(raw: FastifyReply['raw']): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      raw.off('drain', done).off('close', done);
      resolve();
    };
    raw.on('drain', done).on('close', done);
  });
}

/** Writes the head of an answer that flows, at once: its caller may wait for it before anything else comes. */
export function writeHead(reply: FastifyReply, status: number, headers: AnswerHeaders): void {
  const { raw } = reply;
  reply.headers(mutable(headers)).contained();
  for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) raw.setHeader(name, value);
  raw.writeHead(status);
  raw.flushHeaders();
}

/** Node's types want lists that could be changed. */
function mutable(headers: AnswerHeaders): Record<string, string | string[]> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, typeof value === 'string' ? value : [...value]]),
  );
}
