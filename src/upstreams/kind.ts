import type { JsonObject } from '../json/value.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { Dispatch, StateReading, UpstreamResult } from '../effects/upstream.ts';

/**
 * The upstreams of one kind: those that are reached over the same protocol. `null` says that none of them has the id
 * that the tool names, so that another kind is asked.
 */
export interface UpstreamKind {
  /** Sends once; never repeats a request. */
  send(dispatch: Dispatch): Promise<UpstreamResult> | null;
  readState(tool: Tool, params: JsonObject): Promise<StateReading> | null;
  /** Lets running requests end, then closes all connections. */
  close(): Promise<void>;
}
