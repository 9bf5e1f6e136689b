import { pipeline } from 'node:stream';
import type { ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import { endWith } from '../bytes/gathered.ts';
import { PIECES_A_TURN } from '../bytes/pieces-a-turn.ts';
import { ANNOUNCED_TOO_OFTEN, MOST_ANNOUNCEMENTS } from '../upstreams/http/announcements.ts';
import type { IncomingHeaders } from '../upstreams/http/answer.ts';
import { isEventStream } from '../upstreams/http/events.ts';
import { type AnsweredRequest, OF_THE_BYTES, ownFields, problemAnswer, type ProxyAnswer } from './answer.ts';
import { errorMembers, shownStatus } from './error-shape.ts';
import { returnedHeaders } from './headers.ts';
import { isJson, linkStream, unreadable } from './json-links.ts';
import type { ProxyPorts } from './ports.ts';
import type { ReadLedger } from './read-ledger.ts';
import { BUSY, failureOf, type StreamedRead } from './streamed-read.ts';
import type { Live, LiveConnection } from '../identity/live.ts';

/** What passes reads on. */
export interface PassingDoor {
  readonly ports: Pick<ProxyPorts, 'place' | 'stream' | 'heard'> & Parameters<typeof problemAnswer>[0];
  readonly reads: Pick<ReadLedger, 'record'>;
  readonly live: Pick<Live, 'add' | 'remove'>;
  readonly warn: (error: Error) => void;
}

/** Whoever gets the answer to a read: through the router, or past it. */
export interface ReadCaller extends Pick<LiveConnection, 'stands'> {
  readonly request: AnsweredRequest;
  readonly response: ServerResponse;
  /** Writes the head of an answer, with what every answer has. @throws where a header cannot be written */
  head(answer: Omit<ProxyAnswer, 'body'>): void;
  send(answer: ProxyAnswer): void;
}

interface Answering {
  /** @returns whether the caller takes more at once; if not, the upstream is to be read on when it does */
  write(piece: Buffer): boolean;
  end(): void;
}

/**
 * Passes on a read that was allowed once there is a place for it. The place is given back when the answer was sent or
 * the caller has gone.
 * @returns `null`: it has begun, or was refused
 */
export function passInPlace(door: PassingDoor, caller: ReadCaller, read: StreamedRead): Promise<void> | null {
  const { ports, live } = door;
  const { response } = caller;
  if (response.destroyed) return null;
  const { key, address, mayStay } = read.live;
  const stands = (): boolean => caller.stands();
  const connection = { key, address, mayStay, isAdmitted: false, stands, cut: () => response.destroy() };
  live.add(connection);
  response.once('close', () => live.remove(connection));
  const pass = (giveBack: (() => void) | null): void => {
    if (giveBack === null) {
      caller.send(problemAnswer(ports, BUSY, caller.request, read.style));
      return;
    }
    if (response.destroyed) {
      giveBack();
      return;
    }
    response.once('close', giveBack);
    passOn(door, caller, read);
  };
  const { upstream, workspace, agentId } = read.passed;
  const taken = ports.place('reads', upstream, workspace, agentId);
  if (taken instanceof Promise) return taken.then(pass);
  pass(taken);
  return null;
}

/**
 * Passes on a read, and its answer while it comes. It is sent once. The head of the answer goes with the first bytes of
 * its body, so that an upstream that fails before them is answered for; a stream of events begins at once.
 *
 * The answer is written by hand, and not as a stream of Fastify's or undici's: most reads are small, and what those
 * do for each costs as much as all the rest ([decision 36](../../docs/decisions/0036-reads-are-written-as-they-come.md)).
 */
function passOn({ ports, reads, warn }: PassingDoor, caller: ReadCaller, read: StreamedRead): void {
  const raw = caller.response;
  let controller: Dispatcher.DispatchController | null = null;
  let answering: Answering | null = null;
  let hasFailed = false;
  let pieces = 0;
  let announcements = 0;

  const fail = (error: Error): void => {
    if (hasFailed || raw.writableEnded) return;
    hasFailed = true;
    warn(error);
    if (answering === null) reads.record(read.passed, null);
    if (raw.headersSent || raw.destroyed) raw.destroy();
    else caller.send(failedRead(ports, read, error));
    controller?.abort(error);
  };
  raw.once('close', () => {
    if (!raw.writableFinished) fail(callerGone());
  });

  const stream = ports.stream(read.upstreamId);
  if (stream === null) {
    fail(new Error('the upstream of this route is not declared any more'));
    return;
  }
  const handler: Dispatcher.DispatchHandler = {
    onRequestStart(started) {
      // It waited for a connection, and its caller did not.
      if (hasFailed) throw callerGone();
      controller = started;
    },
    onResponseStart(started, status, headers) {
      if (hasFailed) return;
      if (status < 200) {
        announcements += 1;
        if (announcements > MOST_ANNOUNCEMENTS) fail(new Error(ANNOUNCED_TOO_OFTEN));
        return;
      }
      if (status > 599) {
        fail(new Error(`the upstream answered with the status ${status}`));
        return;
      }
      ports.heard(read.upstreamId, null);
      reads.record(read.passed, status);
      answering = answer(caller, read, { status, headers }, { resume: () => started.resume(), fail });
      // Such an answer has no body, whatever length it names. undici reports that length as a missing body.
      if (status === 304) answering.end();
    },
    onResponseData(started, piece) {
      if (hasFailed || answering === null) return;
      pieces += 1;
      if (!answering.write(piece)) started.pause();
      else if (pieces % PIECES_A_TURN === 0) {
        started.pause();
        setImmediate(() => started.resume());
      }
    },
    onResponseEnd() {
      if (!hasFailed) answering?.end();
    },
    onResponseError: (_started, error) => {
      // A read that ended for another reason was broken off here.
      if (!hasFailed && answering === null)
        ports.heard(read.upstreamId, 'code' in error ? String(error.code) : 'no_answer');
      fail(error);
    },
  };
  stream.dispatch(
    {
      path: read.pathAndQuery,
      method: caller.request.method,
      headers: read.headers,
      body: read.body,
      ...(read.timeoutMs === null ? {} : { headersTimeout: read.timeoutMs, bodyTimeout: read.timeoutMs }),
    },
    handler,
  );
}

function answer(
  caller: ReadCaller,
  read: StreamedRead,
  { status, headers }: { readonly status: number; readonly headers: IncomingHeaders },
  { resume, fail }: { readonly resume: () => void; readonly fail: (error: Error) => void },
): Answering {
  const raw = caller.response;
  const type = headers['content-type'];
  const isRewritten = read.links.length > 0 && status !== 304 && isJson(type);
  const returned = returnedHeaders(headers, read);
  if (isRewritten) for (const name of OF_THE_BYTES) delete returned[name];
  /** @returns whether the body can follow */
  const begin = (): boolean => {
    if (raw.headersSent) return true;
    returned['svc-decision'] = status < 300 ? 'committed' : 'failed';
    if (read.passed.observed !== null) returned['svc-observed'] = read.passed.observed.would;
    try {
      caller.head({ status, headers: returned });
      return true;
    } catch (error) {
      // A header that cannot be written, so nothing can be said.
      raw.destroy();
      fail(error instanceof Error ? error : new Error(String(error)));
      return false;
    }
  };

  if (isRewritten) return rewriting(raw, read, headers, { begin, resume, fail });
  if (isEventStream(type) && begin()) raw.flushHeaders();
  const length = Number(headers['content-length'] ?? -1);
  let written = 0;
  return {
    write(piece) {
      if (!begin()) return true;
      written += piece.byteLength;
      if (written === length) endWith(raw, piece);
      else if (!raw.write(piece)) {
        raw.once('drain', resume);
        return false;
      }
      return true;
    },
    end() {
      if (begin() && !raw.writableEnded) raw.end();
    },
  };
}

/** Writes an answer in which addresses are rewritten: its body begins only when the first of it can be read. */
function rewriting(
  raw: ServerResponse,
  read: StreamedRead,
  headers: IncomingHeaders,
  on: { readonly begin: () => boolean; readonly resume: () => void; readonly fail: (error: Error) => void },
): Answering {
  const isPlain = /^identity$/i.test(String(headers['content-encoding'] ?? 'identity'));
  const body = isPlain ? linkStream(read.links, ownFields(read)) : unreadable();
  body.once('readable', () => {
    if (!on.begin()) return;
    // It listens seven times, and others five: Node warns of a leak beyond ten.
    raw.setMaxListeners(20);
    pipeline(body, raw, () => {});
  });
  body.once('error', on.fail);
  raw.once('close', () => body.destroy());
  return {
    write(piece) {
      if (body.write(piece)) return true;
      body.once('drain', on.resume);
      return false;
    },
    end: () => void body.end(),
  };
}

/** Why a read ended: one line in the log, and nobody's fault. */
function callerGone(): Error {
  const gone = new Error('the caller left before the answer was over');
  gone.name = 'CallerGone';
  gone.stack = `${gone.name}: ${gone.message}`;
  return gone;
}

/** A read that failed. It changed nothing and is not an effect. */
function failedRead(
  { settings }: PassingDoor['ports'],
  { passed, style, upstreamUrl }: StreamedRead,
  error: Error,
): ProxyAnswer {
  const reason = failureOf(error, upstreamUrl);
  const docs = `${settings().publicUrl}/docs/errors/${reason.code}`;
  const body = {
    decision: 'failed',
    tool: passed.tool,
    agent_id: passed.agentId,
    reason,
    did_it_happen: 'no',
    safe_to_retry: true,
    next: 'retry',
    links: { docs },
    ...errorMembers({ decision: 'failed', status: 502, ...reason, docs }, style.errorFormat),
  };
  return {
    status: shownStatus(502, true, style),
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'svc-decision': 'failed',
      'x-should-retry': 'true',
      'stripe-should-retry': 'true',
      ...(passed.observed === null ? {} : { 'svc-observed': passed.observed.would }),
    },
    body: JSON.stringify(body),
  };
}
