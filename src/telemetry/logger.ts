import { setTimeout as delay } from 'node:timers/promises';
import { type DestinationStream, type Logger, destination, pino, stdTimeFunctions } from 'pino';

/** Matches each letter of a key, plain or percent-encoded, also when it was encoded several times. */
const letter = (found: string): string =>
  `(?:${found}|%(?:25){0,3}${found.charCodeAt(0).toString(16).replace('f', '[fF]')})`;
const word = (letters: string): string => Array.from(letters, letter).join('');
const ANY = '(?:[0-9A-Za-z]|%(?:25){0,3}[3-7][0-9A-Fa-f])';
const KINDS = ['acct', 'agent', 'admin', 'mcp'].map(word).join('|');
const KEY = new RegExp(`(${word('svc_')}(?:${KINDS})${letter('_')}${ANY}{12})${ANY}{1,38}`, 'g');
const QUERY_KEY = /([?&]api_key=)[^&\s"'\\]+/gi;
const BEARER = /\b(bearer\s+)[0-9A-Za-z._~+/=-]{8,}/gi;
const JWT = /\beyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]*/g;
const PEM = /-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/gs;

/** Names of members whose value is never written, at any depth. */
const SECRET_MEMBERS =
  /("(?:x-api-key|api_key|apikey|authorization|proxy-authorization|cookie|set-cookie|password|secret|token)"\s*:\s*)(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\])/gi;

/**
 * Removes from a text what must not be in logs. Gateway keys keep the handle that says which key it was. Keys in
 * queries, bearer tokens, JWTs and private keys are removed.
 */
export function redactSecrets(text: string): string {
  return text
    .replace(KEY, '$1[redacted]')
    .replace(QUERY_KEY, '$1[redacted]')
    .replace(SECRET_MEMBERS, '$1"[redacted]"')
    .replace(BEARER, '$1[redacted]')
    .replace(JWT, '[redacted]')
    .replace(PEM, '[redacted]');
}

export interface LoggerOptions {
  readonly level: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent';
  /** Where lines go; standard error if absent. */
  readonly sink?: DestinationStream;
  /** Writes text for people, where lines of JSON are for machines. */
  readonly isText?: boolean;
}

/**
 * A logger of JSON lines. Every line goes through {@link redactSecrets} just before it is written, so that no call and
 * no serialiser can forget it.
 */
export function createLogger({ level, sink, isText = false }: LoggerOptions): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      hooks: { streamWrite: isText ? (line) => asText(redactSecrets(line)) : redactSecrets },
    },
    sink ?? logSink(),
  );
}

/** A line of the log for people: what happened, and below it what is known of it, with the line breaks that it has. */
function asText(line: string): string {
  let members: Readonly<Record<string, unknown>>;
  try {
    members = JSON.parse(line);
  } catch {
    return line;
  }
  const { level, time: _time, msg, detail, ...rest } = members;
  const known = Object.entries(rest).map(
    ([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  const below = [...(typeof detail === 'string' ? [detail.trimEnd()] : []), ...known];
  const text = [`svc: ${String(level)}: ${String(msg)}`, ...below.map((one) => one.replaceAll(/^/gm, '  '))].join('\n');
  // What somebody sent may steer a terminal.
  return `${text.replaceAll(/[^\n\P{Cc}]/gu, '\ufffd')}\n`;
}

/** Bytes that wait for whoever reads standard error; what comes beyond is lost. */
const WAITING_BYTES = 16 * 1024 * 1024;

/** Standard error, written without waiting. */
export interface LogSink extends DestinationStream {
  /** Whether nothing waits to be written. */
  isWritten(): boolean;
  /** Resolves once nothing waits, or after a second: nobody may be reading. */
  written(): Promise<void>;
}

const MOST_WAIT_MS = 1_000;
const CHECK_MS = 10;

let standardError: LogSink | null = null;

/** There is one for all that writes lines: two could mix theirs. */
export function logSink(): LogSink {
  return (standardError ??= openStandardError());
}

function openStandardError(): LogSink {
  const stream = destination({ dest: 2, sync: false, maxLength: WAITING_BYTES });
  let isWritten = true;
  let isClosed = false;
  stream.on('drain', () => {
    isWritten = true;
  });
  // A full disk, or a reader that has gone. The lines are lost, and the gateway goes on.
  stream.on('error', (error: NodeJS.ErrnoException) => {
    isWritten = true;
    isClosed ||= error.code === 'EPIPE';
  });
  // When the process ends, pino would write the rest in a loop that ends only when all is written: never, if standard
  // error takes nothing more.
  stream.flushSync = () => {};
  return {
    write(line) {
      if (isClosed) return;
      isWritten = false;
      stream.write(line);
    },
    isWritten: () => isWritten,
    async written() {
      const until = performance.now() + MOST_WAIT_MS;
      while (!isWritten && performance.now() < until) await delay(CHECK_MS);
    },
  };
}
