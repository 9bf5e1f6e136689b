import { runCli } from '../../src/cli/main.ts';
import type { CliPorts } from '../../src/cli/ports.ts';
import { inspectStore } from '../../src/gateway/offline.ts';
import { createKey, listKeys, revokeKey, rotateKey } from '../../src/gateway/offline-keys.ts';
import { backUpStore, restoreStore } from '../../src/gateway/backups.ts';
import { acceptClock, acceptLoss, checkStore, recoverLost } from '../../src/gateway/operate-store.ts';
import { checkFormat } from '../../src/gateway/store-format.ts';
import { startGateway } from '../../src/gateway/start.ts';
import { probeUpstream } from '../../src/upstreams/http/probe.ts';
import { readServerOnce } from '../../src/upstreams/mcp/read-once.ts';

/** What a command printed, and how it ended. */
export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** The product's own ports: nothing is made up. */
const PORTS: CliPorts = {
  startGateway: (options) => startGateway({ ...options, log: 'none' }),
  createKey,
  listKeys,
  revokeKey,
  rotateKey,
  inspectStore,
  probeUpstream,
  readMcpServer: readServerOnce,
  acceptLoss,
  acceptClock,
  recoverLost,
  checkStore,
  backUpStore,
  restoreStore,
  checkFormat,
};

/** Runs a command to its end. */
export async function svc(...argv: readonly string[]): Promise<Ran> {
  const running = begin(...argv);
  return running.ended;
}

/** A command that goes on until it is stopped. */
export interface Running {
  readonly ended: Promise<Ran>;
  /** Resolves with the first line of standard output that fits, or rejects when the command ends before. */
  line(pattern: RegExp): Promise<string>;
  stop(): void;
}

/** Runs a command where some of what it meets is as a test says. */
export function svcWith(ports: Partial<CliPorts>, ...argv: readonly string[]): Promise<Ran> {
  return beginAs({ interactive: false }, argv, { ...PORTS, ...ports }).ended;
}

/** Runs a command as a person at a terminal does, who is asked. */
export function svcAtTerminal(...argv: readonly string[]): Promise<Ran> {
  return beginAs({ interactive: true }, argv).ended;
}

/** The same, and what the person answers; `null`: nothing. */
export function svcAnswered(answer: string | null, ...argv: readonly string[]): Promise<Ran> {
  return beginAs({ interactive: true, answer }, argv).ended;
}

/** The same, where some of what the command meets is as a test says. */
export function svcAnsweredWith(
  ports: Partial<CliPorts>,
  answer: string | null,
  ...argv: readonly string[]
): Promise<Ran> {
  return beginAs({ interactive: true, answer }, argv, { ...PORTS, ...ports }).ended;
}

/** Begins a command; `stop` is what a signal does. */
export function begin(...argv: readonly string[]): Running {
  return beginAs({ interactive: false }, argv);
}

function beginAs(
  { interactive, answer = null }: { readonly interactive: boolean; readonly answer?: string | null },
  argv: readonly string[],
  ports: CliPorts = PORTS,
): Running {
  const out: string[] = [];
  const err: string[] = [];
  const waiting: { readonly pattern: RegExp; readonly found: (line: string) => void }[] = [];
  const stopped = withResolvers();
  const ended = runCli(argv, '0.0.0-test', ports, {
    out: (line) => {
      out.push(line);
      for (const { pattern, found } of waiting) if (pattern.test(line)) found(line);
    },
    err: (line) => void err.push(line),
    color: false,
    interactive,
    ask: (question) => {
      err.push(question);
      return Promise.resolve(answer);
    },
    stopped: () => stopped.promise,
    unread: () => new Promise(() => undefined),
  }).then((code) => ({ code, out: out.join('\n'), err: err.join('\n') }));
  return {
    ended,
    stop: () => stopped.resolve(),
    line: (pattern) =>
      new Promise((resolve, reject) => {
        const known = out.find((line) => pattern.test(line));
        if (known !== undefined) return resolve(known);
        waiting.push({ pattern, found: resolve });
        void ended.then((ran) => reject(new Error(`it ended with ${ran.code}: ${ran.err}`)));
      }),
  };
}

/** `Promise.withResolvers`, which Node 20 does not have. */
function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
