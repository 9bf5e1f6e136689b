import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { printable } from '../../../diagnostics/render.ts';
import { lineSplitter } from '../../../bytes/lines.ts';
import type { Pipe, PipeEvents, PipeHeaders, Sending } from '../pipe/pipe.ts';
import { type Keeper, OWNER_VARIABLE } from './keeper.ts';

/** A program that the configuration names. It comes from nowhere else. */
export interface StdioCommand {
  readonly command: string;
  readonly args: readonly string[];
  /** The whole environment of the child, but for the mark of its owner. Nothing of the gateway's own is added. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | null;
}

export interface ChildLimits {
  /** Bytes of one line, in either direction. */
  readonly lineBytes: number;
  /** How long a child may take to end by itself after the end of its input, and again after SIGTERM, ms. */
  readonly graceMs: number;
}

const NOT_READING = Buffer.from(
  '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"The server does not read its input, or the message is too long for it. This message was not sent."}}',
);
/** After so many lines the rest waits for the next turn of the event loop. */
const LINES_A_TURN = 128;
/** Bytes that wait for a child that does not read. */
const MOST_WAITING = 32 * 1024 * 1024;
/** Bytes of standard error that are read in a second. A child that writes more waits. */
const ERROR_BYTES_PER_SECOND = 256 * 1024;
/** Characters of standard error that are kept, to say why a child ended. */
const KEPT_ERROR = 2_000;
/** How long the pipes of a child that has ended may stay open in hands that escaped its group while nothing comes, ms. */
const PIPES_MS = 1_000;
/** The same while lines come. */
const MOST_PIPES_MS = 5_000;

/**
 * A process that speaks one JSON-RPC message a line. It has a process group of its own, which ends with it, and with the
 * gateway.
 */
export class StdioChild implements Pipe {
  readonly #process: ChildProcess;
  readonly #events: PipeEvents;
  readonly #limits: ChildLimits;
  readonly #timers = new Set<NodeJS.Timeout>();
  #error = '';
  #lines = 0;
  #isOver = false;
  #isEnding = false;
  #isClosed = false;
  /** Set while nobody can take its lines. */
  #paused: { readonly over: Promise<void>; readonly end: () => void } | null = null;
  /** Its process id may be another's from now on. */
  #hasExited = false;
  /** Why the gateway ended it; `null` where it did not. */
  #ended: string | null = null;
  readonly gone: Promise<void>;

  /** @throws Error when the keeper cannot be started; a program that cannot be started is `over` */
  constructor(command: StdioCommand, keeper: Keeper, limits: ChildLimits, events: PipeEvents) {
    this.#events = events;
    this.#limits = limits;
    keeper.ready();
    this.#process = spawn(command.command, [...command.args], {
      cwd: command.cwd ?? undefined,
      env: { ...command.env, [OWNER_VARIABLE]: keeper.owner },
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: true,
      windowsHide: true,
    });
    const { pid, stdin, stdout, stderr } = this.#process;
    if (pid !== undefined) keeper.add(pid);
    stdin?.on('error', () => {});
    const read = stdout === null ? Promise.resolve() : this.#read(stdout);
    stderr?.on('error', () => {});
    stderr?.on('data', (chunk: Buffer) => this.#takeError(chunk));
    this.gone = new Promise((resolve) => {
      this.#process.on('error', (error) => {
        // Where it never began there is no `exit`.
        if (pid !== undefined) return;
        this.#over(`it cannot be started: ${error.message}`);
        resolve();
      });
      this.#process.on('exit', () => {
        // What it started may live on, and hold the pipes.
        this.#signal('SIGKILL');
        this.#hasExited = true;
        if (pid !== undefined) keeper.remove(pid);
        this.#endPipes(MOST_PIPES_MS / PIPES_MS);
      });
      this.#process.on('close', (code, signal) => {
        for (const timer of this.#timers) clearTimeout(timer);
        const how = signal === null ? `with exit code ${String(code)}` : `by ${signal}`;
        // One line of it, whatever it was.
        const errorOutput = printable(this.#error.trim().slice(-500).replaceAll(/\s+/g, ' '));
        // What it wrote at last is not waited for again.
        this.#isClosed = true;
        this.resume();
        void read.then(() => {
          this.#over(this.#ended ?? `it ended ${how}${errorOutput === '' ? '' : `; it said: ${errorOutput}`}`);
          resolve();
        });
      });
    });
  }

  #endPipes(times: number): void {
    const before = this.#lines;
    this.#later(PIPES_MS, () => {
      if (times > 1 && this.#lines > before) this.#endPipes(times - 1);
      else for (const pipe of this.#process.stdio) pipe?.destroy();
    });
  }

  /** Reads its output to the end, also where nobody takes it any more: else it could not end. */
  async #read(stdout: Readable): Promise<void> {
    const { lineBytes } = this.#limits;
    const split = lineSplitter(lineBytes);
    try {
      for await (const chunk of stdout)
        for (const line of split(chunk)) {
          this.#lines += 1;
          if (this.#lines % LINES_A_TURN === 0) await nextTurn();
          while (this.#paused !== null) await this.#paused.over;
          if (this.#isOver || this.#ended !== null) break;
          if (line.kind === 'too_long') this.kill(`it wrote a line of more than ${lineBytes} bytes`);
          else if (line.bytes.length > 0) this.#events.line(line.bytes);
        }
    } catch {
      // Its pipe broke. That it has ended is heard as well.
    }
  }

  get pid(): number | null {
    return this.#process.pid ?? null;
  }

  send(line: Buffer, _headers: PipeHeaders, sending: Sending): void {
    if (!sending.start()) return;
    if (this.#write(line)) sending.taken();
    else sending.refused(503, NOT_READING);
  }

  /** @returns `false` where the child does not read, and the line was not taken */
  #write(line: Buffer): boolean {
    // Without descriptors for them, a process has no pipes at all, whatever its type says.
    const stdin: Writable | null | undefined = this.#process.stdin;
    if (this.#isOver || this.#isEnding || stdin?.writable !== true) return false;
    if (line.length > this.#limits.lineBytes || stdin.writableLength + line.length > MOST_WAITING) return false;
    stdin.write(line);
    stdin.write('\n');
    return true;
  }

  /** Reads no more of its output until {@link resume}. */
  pause(): void {
    if (this.#paused !== null || this.#isClosed) return;
    let end = (): void => undefined;
    const over = new Promise<void>((resolve) => (end = resolve));
    this.#paused = { over, end };
  }

  resume(): void {
    this.#paused?.end();
    this.#paused = null;
  }

  /** Ends it as MCP says: the end of its input, then SIGTERM, then SIGKILL. */
  end(): void {
    if (this.#isEnding || this.#isOver) return;
    this.#isEnding = true;
    this.#ended ??= 'its session was ended';
    this.resume();
    this.#process.stdin?.end();
    this.#later(this.#limits.graceMs, () => this.#signal('SIGTERM'));
    this.#later(2 * this.#limits.graceMs, () => this.#signal('SIGKILL'));
  }

  /** Ends it at once. */
  kill(why: string): void {
    this.#ended ??= why;
    this.#isEnding = true;
    this.#signal('SIGKILL');
    this.resume();
  }

  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#process;
    if (pid === undefined || this.#hasExited) return;
    try {
      process.kill(-pid, signal);
    } catch {
      // Nobody is left in the group.
    }
  }

  #takeError(chunk: Buffer): void {
    this.#error = (this.#error + chunk.subarray(-KEPT_ERROR).toString('utf8')).slice(-KEPT_ERROR);
    const { stderr } = this.#process;
    // One chunk holds 64 KiB at most. The pause is as long as what came is worth.
    stderr?.pause();
    this.#later((chunk.length / ERROR_BYTES_PER_SECOND) * 1_000, () => stderr?.resume());
  }

  #later(ms: number, what: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      what();
    }, ms).unref();
    this.#timers.add(timer);
  }

  #over(why: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#events.over(why);
  }
}
