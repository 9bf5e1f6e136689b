import { quoteOr } from '../json/text.ts';
import { redactSecrets } from './logger.ts';

/** What the log says of one request through the proxy, or to an MCP server. Nothing of it is free text of the caller's. */
export interface AccessLine {
  readonly requestId: string;
  readonly method: string;
  /** Empty where the key has none, or nobody is known. */
  readonly workspace: string;
  readonly agentId: string | null;
  /** `null` where no rule names one. */
  readonly tool: string | null;
  /** `null` where no route leads to one. */
  readonly upstream: string | null;
  /** The method of an MCP message, where the gateway knows it; `null` for all other requests. */
  readonly rpc: string | null;
  /** `null` where nothing was decided: the request was refused before, or passed without being judged. */
  readonly decision: string | null;
  readonly status: number;
  /** On the connection, headers included. */
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly durationMs: number;
  /** Part of it: until the key was known. `null` where there was none. */
  readonly authenticatedInMs: number | null;
  readonly effectId: string | null;
  /** Of a W3C `traceparent`. */
  readonly traceId: string | null;
  /** It lasts as long as its ends like, as a tunnel does: its duration is that of no call. */
  readonly lasts: boolean;
  /** The caller left before the answer was over. */
  readonly cut: boolean;
}

/** Lines wait so long for others, ms: one write for many costs a call less than one for each. */
const GATHERED_MS = 100;
/** And never more than so many. */
const GATHERED = 256;
/** Longest name of an agent that is written: no configured one is longer. */
const LONGEST = 128;

/**
 * Writes one JSON line for each request, in the log's own form. Lines are put together by hand: the
 * logger's way takes several times as long, and looks for secrets in texts that cannot hold any. Only the agent's name
 * may come from a caller, and is searched.
 * @param write takes whole lines, and does not wait
 * @param now ms since the epoch
 */
export function createAccessLog(write: (lines: string) => void, now: () => number = Date.now) {
  let lines: string[] = [];
  let timer: NodeJS.Timeout | null = null;
  const flush = (): void => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    if (lines.length === 0) return;
    const text = lines.join('');
    lines = [];
    write(text);
  };
  return {
    flush,
    /** Never waits, never throws. */
    record(line: AccessLine): void {
      lines.push(textOf(line, now()));
      if (lines.length >= GATHERED) flush();
      else timer ??= setTimeout(flush, GATHERED_MS).unref();
    },
  };
}

function textOf(line: AccessLine, at: number): string {
  const { agentId } = line;
  const agent = agentId === null || PLAIN.test(agentId) ? quoteOr(agentId) : careful(agentId);
  return (
    `{"level":"info","time":"${new Date(at).toISOString()}","msg":"call","request_id":${quoteOr(line.requestId)}` +
    `,"method":${quoteOr(line.method)},"workspace":${quoteOr(line.workspace)},"agent":${agent}` +
    `,"tool":${quoteOr(line.tool)},"upstream":${quoteOr(line.upstream)},"decision":${quoteOr(line.decision)}` +
    `,"status":${line.status},"bytes_in":${line.bytesIn},"bytes_out":${line.bytesOut}` +
    `,"duration_ms":${rounded(line.durationMs)},"auth_ms":${line.authenticatedInMs === null ? 'null' : rounded(line.authenticatedInMs)}` +
    `,"effect_id":${quoteOr(line.effectId)},"trace_id":${quoteOr(line.traceId)}` +
    `${line.rpc === null ? '' : `,"rpc":${quoteOr(line.rpc)}`}${line.cut ? ',"cut":true' : ''}}\n`
  );
}

/** Names that need no second look: those that agents usually have. A key has an underscore. */
const PLAIN = /^[A-Za-z0-9.@:-]{1,128}$/;

function careful(name: string): string {
  return redactSecrets(JSON.stringify(name.slice(0, LONGEST)));
}

function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
