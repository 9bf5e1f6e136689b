import type { Evidence, KeptResult } from './model/effect.ts';
import type { CallFiles } from './model/files.ts';
import type { JsonObject } from '../json/value.ts';
import type { Tool } from './model/tool.ts';

/** A body that is made of bytes and of files, in order; nothing of the files is in memory. */
export interface ComposedBody {
  /** `null`: none is sent. */
  readonly contentType: string | null;
  /** Bytes of all pieces. */
  readonly length: number;
  readonly pieces: readonly (Buffer | { readonly sha256: string; readonly bytes: number })[];
}

export type RequestBody = Buffer | ComposedBody | null;

/** The request as an agent sent it through the proxy, where the bytes themselves go on. */
export interface ProxiedRequest {
  /** Path and query to send, exactly as matched. */
  readonly pathAndQuery: string;
  readonly method: string;
  /** Params that are headers, and credentials of the caller's own; lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: RequestBody;
  /** Whether `Set-Cookie` of the answer is kept in its headers, because the route says so. */
  readonly setCookie: boolean;
}

export interface Dispatch {
  readonly effectId: string;
  /** `<effect id>.<generation>`; sent only where the tool is idempotent upstream. */
  readonly upstreamKey: string;
  readonly tool: Tool;
  readonly params: JsonObject;
  /** What else goes on as headers, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly proxied: ProxiedRequest | null;
  readonly files: CallFiles;
  /**
   * Asked immediately before the first byte is written. `late`: `dispatch_by` is over; `paused`: a pause was heard.
   * Anything but `go`: nothing is sent.
   */
  readonly gate: () => 'go' | 'late' | 'paused';
}

/** What became of an attempt, in the words in which it is settled. `answer` is there where one was read. */
export type UpstreamResult =
  | {
      readonly kind: 'committed';
      readonly evidence: Evidence;
      readonly answer: UpstreamAnswer;
      readonly result: KeptResult;
      readonly accepted: boolean;
      readonly responseTruncated: boolean;
    }
  | {
      readonly kind: 'failed';
      readonly evidence: Evidence;
      readonly answer: UpstreamAnswer | null;
      readonly result: KeptResult | null;
    }
  | { readonly kind: 'unknown'; readonly evidence: Evidence }
  /** The gate was shut: nothing was sent. */
  | { readonly kind: 'held_back'; readonly by: 'late' | 'paused'; readonly evidence: Evidence };

/** An answer as it goes on to the caller, by the kind of the upstream that gave it. The core hands it on and reads nothing of it. */
export type UpstreamAnswer = HttpAnswer;

/** An answer by HTTP, read whole (up to the limit for answers). */
export interface HttpAnswer {
  readonly kind: 'http';
  readonly status: number;
  /** Lower-case names; hop-by-hop, `svc-*`, `x-should-retry` and (unless the route says otherwise) `set-cookie` are removed. */
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: Buffer;
}

/** The live state that a tool's `state` request reads. */
export type StateReading =
  | { readonly kind: 'read'; readonly state: JsonObject }
  | { readonly kind: 'unreadable'; readonly message: string };

/** The services behind the gateway. Nothing here ever repeats a request or follows a redirect. */
export interface UpstreamPort {
  send(dispatch: Dispatch): Promise<UpstreamResult>;
  /** @throws never: a reading that fails is `unreadable`. */
  readState(tool: Tool, params: JsonObject): Promise<StateReading>;
}
