import type { Amounts, AnswerHead, HttpAnswer, KeptResult, UpstreamAnswer } from './model/answer.ts';
import type { Evidence } from './model/effect.ts';
import type { CallFiles } from './model/files.ts';
import type { JsonObject } from '../json/value.ts';
import type { Tool } from './model/tool.ts';

/** A body made of bytes and files, in order. The content of the files is not in memory. */
export interface ComposedBody {
  /** `null`: the request has no content type. */
  readonly contentType: string | null;
  /** Bytes of all pieces together. */
  readonly length: number;
  readonly pieces: readonly (Buffer | { readonly sha256: string; readonly bytes: number })[];
}

export type RequestBody = Buffer | ComposedBody | null;

/** An HTTP request as an agent sent it through the proxy. Its bytes are sent on unchanged. */
export interface ProxiedRequest {
  readonly kind: 'http';
  /** Path and query to send, exactly as matched. */
  readonly pathAndQuery: string;
  readonly method: string;
  /** Params that are headers, and the caller's own credentials; lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: RequestBody;
  /** Whether `Set-Cookie` stays in the headers of the answer, as the route can configure. */
  readonly setCookie: boolean;
}

/** A call as an agent sent it to an MCP server through the gateway. Its arguments are the params of the dispatch. */
export interface ProxiedMessage {
  readonly kind: 'message';
  readonly id: string | number;
  /** Members of the message's params beside the name and the arguments, as they go on. */
  readonly rest: JsonObject;
  /** Headers of the transport and the caller's own credentials; lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  /** Whose session of the gateway's own it is sent in; `null`: it is in the caller's, which the headers name. */
  readonly sessionOf: string | null;
  /** Aborts when the call is to be broken off. */
  readonly signal: AbortSignal;
  /** What came from the server, in the form that it came in. */
  readonly hears: MessageListener;
}

/** Hears what a server says to one call. */
export interface MessageListener {
  /** The head of a stream of events. */
  began(head: AnswerHead): void;
  /**
   * An event before the last message, with its empty line, and the message in it, if it has one. The server waits for
   * what is returned.
   */
  passed(event: Buffer, message: JsonObject | null): Promise<void> | undefined;
  /** The last message; `rest`: the lines of its event that are no data. It is not passed on before it is settled. */
  ended(message: JsonObject, rest: string): void;
  /** An answer that is no message to the call: the server refused the request as such. */
  refused(answer: HttpAnswer): void;
}

/**
 * Hears an answer while it comes. A caller that has gone takes everything at once: an attempt that was begun is
 * finished, so that its outcome is true.
 */
export interface AnswerListener {
  /** Called at most once, and only for a head after which the call may still be committed. */
  begin(head: AnswerHead): void;
  /**
   * Takes a piece, in order. The upstream waits for what is returned before it reads on. Nothing is written before
   * `begin`, and nothing after the attempt has ended.
   */
  write(piece: Buffer): Promise<void> | undefined;
}

export interface Dispatch {
  readonly effectId: string;
  /** `<effect id>.<generation>`. It is sent only if the upstream removes duplicates for the tool. */
  readonly upstreamKey: string;
  readonly tool: Tool;
  readonly params: JsonObject;
  /** Other headers to send on, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly proxied: ProxiedRequest | ProxiedMessage | null;
  readonly files: CallFiles;
  /** `null`: the answer is collected. Else it may be passed on while it comes, if the upstream and the tool allow it. */
  readonly listener: AnswerListener | null;
  /**
   * Called just before the first byte is written. `late`: `dispatch_by` has passed; `paused`: there is a pause. Nothing
   * is sent unless the answer is `go`.
   */
  readonly gate: () => 'go' | 'late' | 'paused';
}

/** The result of an attempt, by the kinds of settlement. `answer` is present where one was read. */
export type UpstreamResult =
  | {
      readonly kind: 'committed';
      readonly evidence: Evidence;
      readonly answer: UpstreamAnswer;
      readonly result: KeptResult;
      readonly accepted: boolean;
      readonly responseTruncated: boolean;
      /** Absent where the tool does not say where they stand. */
      readonly amounts?: Amounts;
    }
  | {
      readonly kind: 'failed';
      readonly evidence: Evidence;
      readonly answer: UpstreamAnswer | null;
      readonly result: KeptResult | null;
      /** Only with evidence of code `busy`: when the upstream wants to be asked again, if it says so. */
      readonly retryAfterMs?: number;
    }
  | { readonly kind: 'unknown'; readonly evidence: Evidence }
  /** The gate did not open, so nothing was sent. */
  | { readonly kind: 'held_back'; readonly by: 'late' | 'paused'; readonly evidence: Evidence };

/** The live state, as the `state` request of a tool reads it. */
export type StateReading =
  | { readonly kind: 'read'; readonly state: JsonObject }
  | { readonly kind: 'unreadable'; readonly message: string };

/** The services behind the gateway. No function here repeats a request or follows a redirect. */
export interface UpstreamPort {
  send(dispatch: Dispatch): Promise<UpstreamResult>;
  /** @throws never; a failed reading is `unreadable` */
  readState(tool: Tool, params: JsonObject): Promise<StateReading>;
}

/**
 * What happens to the headers of requests. Names are in lower case. One that ends with `*` means all names that begin
 * so.
 */
export interface HeaderSettings {
  /** Sent on, although the gateway would not do so by default. */
  readonly forward: readonly string[];
  /** Not sent on. */
  readonly drop: readonly string[];
  /** Not part of the fingerprint. */
  readonly volatile: readonly string[];
  /** Set by the gateway, in place of what the caller sends. */
  readonly set: Readonly<Record<string, string>>;
}

/** How an upstream is spoken to over TLS. Its certificate is always verified: no setting turns that off. */
export interface UpstreamTls {
  /** PEM of the CAs that are trusted; `null`: those of Node. */
  readonly ca: string | null;
  /** The gateway's own certificate with its chain, and the key, as PEM; `null`: it shows none. */
  readonly client: { readonly cert: string; readonly key: string } | null;
  /** The name that is asked for, and that the certificate must be for; `null`: the host of the upstream's URL. */
  readonly serverName: string | null;
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
}
