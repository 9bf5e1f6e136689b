import { createInterface } from 'node:readline/promises';
import { printable } from '../diagnostics/render.ts';

/** Where a command writes, and how it is stopped. */
export interface Terminal {
  /** Result of the command: standard output, one line. */
  out(line: string): void;
  /** A message about the command itself: standard error, one line. */
  err(line: string): void;
  /** Whether standard output shows colours. `NO_COLOR`, `FORCE_COLOR` and `TERM` are respected. */
  readonly color: boolean;
  /** Whether input and output are both a terminal, so that a person can be asked. */
  readonly interactive: boolean;
  /** Asks the person at the terminal for a line; `null`: it was left without one. */
  ask(question: string): Promise<string | null>;
  /** Resolves on SIGINT or SIGTERM. A second signal ends the process at once. */
  stopped(): Promise<void>;
  /** Resolves once whoever read standard output has gone, as `head` does: what goes on by itself ends then. */
  unread(): Promise<void>;
}

export function processTerminal(): Terminal {
  const { stdout, stderr, stdin } = process;
  const unread = new Promise<void>((resolve) => {
    stdout.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') return resolve();
      stderr.write(`svc: standard output cannot be written: ${error.message}\n`);
      // Not at once: a gateway that runs here has calls under way.
      process.once('exit', () => (process.exitCode = 2));
    });
  });
  stderr.on('error', () => {});
  return {
    out: (line) => void stdout.write(`${line}\n`),
    err: (line) => void stderr.write(`${line}\n`),
    // Node interprets NO_COLOR, FORCE_COLOR and TERM.
    color: stdout.isTTY && stdout.hasColors(),
    interactive: stdout.isTTY && stdin.isTTY,
    async ask(question) {
      const lines = createInterface({ input: stdin, output: stderr });
      const stop = new AbortController();
      lines.once('SIGINT', () => stop.abort()).once('close', () => stop.abort());
      const answer = await lines.question(`${question} `, { signal: stop.signal }).catch(() => null);
      lines.close();
      return answer === null ? null : answer.trim();
    },
    stopped: () =>
      new Promise((resolve) => {
        const stop = (): void => {
          for (const signal of ['SIGINT', 'SIGTERM'] as const) {
            process.off(signal, stop);
            process.once(signal, () => process.exit(130));
          }
          resolve();
        };
        for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, stop);
      }),
    unread: () => unread,
  };
}

type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow';

const CODES: Readonly<Record<Style, readonly [number, number]>> = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
};

/** Text in a style, if the terminal shows colours. The text itself is made safe to show. */
export function styled(terminal: Terminal, style: Style, text: string): string {
  const [on, off] = CODES[style];
  return terminal.color ? `\u001b[${on}m${printable(text)}\u001b[${off}m` : printable(text);
}

/** Rows as aligned columns. Cells are untrusted text: control characters are escaped. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [head, ...rows].map((row) => row.map(printable));
  const widths = head.map((_, column) => Math.max(...cells.map((row) => (row[column] ?? '').length)));
  return cells
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** A page of a list, and how to go on: a page may be empty though others follow. */
export function showPage(
  terminal: Terminal,
  nextCursor: string | null,
  of: string,
  head: readonly string[],
  rows: readonly (readonly string[])[],
): void {
  terminal.out(rows.length > 0 ? table(head, rows) : `No ${of}${nextCursor === null ? '' : ' here'}.`);
  if (nextCursor !== null) terminal.out(`More: --cursor ${nextCursor}`);
}

/** Params on one line, or why there are none. */
export function paramsText(params: unknown, omitted: unknown): string {
  if (params !== undefined) return JSON.stringify(params);
  return typeof omitted === 'string' ? `(${omitted})` : '';
}

/** A text for a cell of a table that people read. */
export function inShort(text: string): string {
  return text.length <= MAX_CELL ? text : `${text.slice(0, MAX_CELL - 1)}…`;
}

const MAX_CELL = 120;

/** Members whose contents belong to the caller, the upstream or a signature. Their names are not converted. */
const OF_CALLS = ['params', 'askedParams', 'editable', 'varies', 'metadata'] as const;
const FOREIGN = new Set<string>([...OF_CALLS, 'result', 'receipt', 'data', 'assumed', 'current', 'links']);

/** Converts the client's camelCase names back to the snake_case names of the HTTP interface, which scripts expect. */
export function wire(value: unknown, of = ''): unknown {
  if (Array.isArray(value)) return value.map((item) => wire(item, of));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [
      name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      // What somebody settled an outcome by is theirs; the evidence of an effect is the gateway's.
      FOREIGN.has(name) || (name === 'evidence' && of === 'settledBy') ? item : wire(item, name),
    ]),
  );
}

/** JSON for people and programs. Characters that could control a terminal or mislead a reader are escaped. */
export function json(value: unknown, indent = 2): string {
  return JSON.stringify(value, null, indent).replace(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (found) =>
    found.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  );
}
