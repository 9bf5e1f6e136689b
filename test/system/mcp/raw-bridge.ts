import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export const SVC = join(import.meta.dirname, '..', '..', '..', 'bin', 'svc.mjs');

export interface RpcLine {
  readonly id?: string | number | null;
  readonly method?: string;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> };
}

/** A bridge whose lines the test writes and reads itself. */
export interface RawBridge {
  readonly child: ChildProcessWithoutNullStreams;
  write(message: unknown): void;
  /** The next line, as JSON. Rejects on a line that is none. */
  next(): Promise<RpcLine>;
  /** The answer to a request that this sends. Lines before it are dropped. */
  ask(id: number, method: string, params?: unknown): Promise<RpcLine>;
  said(): string;
  /** Ends the input. @returns the exit code and the lines that were left */
  end(): Promise<{ readonly code: number | null; readonly left: readonly string[] }>;
}

export function rawBridge(args: readonly string[], env: Readonly<Record<string, string>>): RawBridge {
  const child = spawn(process.execPath, [SVC, 'mcp-bridge', ...args], { env: { PATH: process.env['PATH'], ...env } });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const exited = once(child, 'close');
  const lines: string[] = [];
  const waiting: ((line: string) => void)[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => {
    const first = waiting.shift();
    if (first === undefined) lines.push(line);
    else first(line);
  });
  const bridge: RawBridge = {
    child,
    write: (message) => {
      child.stdin.write(`${typeof message === 'string' ? message : JSON.stringify(message)}\n`);
    },
    next: async () => {
      const line = lines.shift() ?? (await new Promise<string>((resolve) => waiting.push(resolve)));
      return JSON.parse(line) as RpcLine;
    },
    ask: async (id, method, params = {}) => {
      bridge.write({ jsonrpc: '2.0', id, method, params });
      for (;;) {
        const line = await bridge.next();
        if (line.id === id && line.method === undefined) return line;
      }
    },
    said: () => said,
    end: async () => {
      child.stdin.end();
      const [code] = (await exited) as [number | null];
      return { code, left: lines };
    },
  };
  return bridge;
}
