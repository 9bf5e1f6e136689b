import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Json } from '../../src/json/value.ts';

/** A request as it arrived at the upstream. */
export interface ArrivedRequest {
  readonly event: 'request' | 'upgrade';
  readonly n: number;
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** As it stood in the request line. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly raw_headers: readonly string[];
  readonly body: Json;
  readonly text: string;
  readonly key: string | null;
  /** Place of the request on its connection, from 1. */
  readonly nth: number;
}

/** An effect that happened at the upstream. */
export interface LedgerEffect {
  readonly n: number;
  readonly request: number;
  readonly method: string;
  readonly path: string;
  readonly body: Json;
  readonly key: string | null;
  /** From when the request may have arrived, at the earliest, until it happened, ms. */
  readonly waited_ms: number;
}

export interface LedgerUpstream {
  readonly url: string;
  readonly pid: number;
  /** What arrived and what happened: the truth. */
  ledger(): Promise<{ readonly requests: readonly ArrivedRequest[]; readonly effects: readonly LedgerEffect[] }>;
  counts(): Promise<{ readonly requests: number; readonly effects: number }>;
  /** What happened more than once, path and body, where calls differ in these. */
  twice(): Promise<readonly string[]>;
  /** How the next `times` requests (to `path`) are answered; see the modes in `ledger-upstream.mjs`. */
  mode(mode: {
    readonly mode?: string;
    readonly times?: number;
    readonly path?: string;
    readonly late_ms?: number;
    readonly latency_ms?: number;
  }): Promise<void>;
  /** Lets the answers go that the mode `held` keeps back: what happened is answered now. */
  release(): Promise<void>;
  /** What `GET path` answers from now on. */
  state(path: string, value: Json): Promise<void>;
  stop(): Promise<void>;
}

export interface LedgerUpstreamOptions {
  /** Ledger file; without it the ledger is in memory only. */
  readonly ledger?: string;
  readonly port?: number;
  readonly seed?: number;
  /** Chance of each mode for requests that ask for none. */
  readonly faults?: Readonly<Record<string, number>>;
  readonly lateMs?: number;
  readonly latencyMs?: number;
  /** Header by which repeated requests are recognised. */
  readonly dedupe?: string;
}

/** Starts the upstream as a process of its own on 127.0.0.1; resolves when it listens. */
export async function startLedgerUpstream(options: LedgerUpstreamOptions = {}): Promise<LedgerUpstream> {
  const args = [fileURLToPath(new URL('ledger-upstream.mjs', import.meta.url))];
  const add = (name: string, value: string | number | undefined): void => {
    if (value !== undefined) args.push(`--${name}`, String(value));
  };
  add('ledger', options.ledger);
  add('port', options.port);
  add('seed', options.seed);
  add('faults', options.faults === undefined ? undefined : JSON.stringify(options.faults));
  add('late-ms', options.lateMs);
  add('latency-ms', options.latencyMs);
  add('dedupe', options.dedupe);
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout });
  const [line] = (await Promise.race([
    once(lines, 'line'),
    once(child, 'exit').then(() => Promise.reject(new Error('the upstream did not start'))),
  ])) as [string];
  const { url } = JSON.parse(line) as { url: string };
  const { pid } = child;
  if (pid === undefined) throw new Error('the upstream has no process id');

  const post = async (path: string, body: unknown): Promise<void> => {
    const answer = await fetch(`${url}${path}`, { method: 'POST', body: JSON.stringify(body) });
    await answer.arrayBuffer();
    if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  };
  return {
    url,
    pid,
    ledger: async () =>
      (await (await fetch(`${url}/__ledger`)).json()) as Awaited<ReturnType<LedgerUpstream['ledger']>>,
    counts: async () =>
      (await (await fetch(`${url}/__ledger?counts`)).json()) as Awaited<ReturnType<LedgerUpstream['counts']>>,
    twice: async () => (await (await fetch(`${url}/__ledger?twice`)).json()) as readonly string[],
    mode: (mode) => post('/__mode', mode),
    release: () => post('/__release', {}),
    state: (path, value) => post('/__state', { path, value }),
    stop: async () => {
      lines.close();
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      await exited;
    },
  };
}
