import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';

/** The variable by which a keeper knows the processes of its gateway. They and all that they start inherit it. */
export const OWNER_VARIABLE = 'SVC_STDIO_OWNER';

/** After this long another keeper is tried, where the system did not start one, ms. */
const AGAIN_MS = 1_000;

/**
 * Sees to it that no child outlives this process, not even when it is killed with SIGKILL: another process waits for the
 * end of a pipe that only this one holds, and then kills the children's process groups and, on Linux, whatever else
 * carries their owner's mark. A child is known by its mark from its first moment on.
 */
export class Keeper {
  /** What children have in {@link OWNER_VARIABLE}. */
  readonly owner = randomUUID();
  readonly #groups = new Set<number>();
  #process: ChildProcess | null = null;
  #isClosed = false;

  /** Starts the keeper's process if there is none. @throws Error when the system does not start one */
  ready(): void {
    if (this.#isClosed) throw new Error('the gateway is ending');
    if (this.#process !== null) return;
    // A group of its own: what a terminal sends to the gateway's group must not end the keeper first.
    const child = spawn(
      process.execPath,
      ['-e', `(${keep.toString()})(${JSON.stringify(OWNER_VARIABLE)})`, this.owner],
      {
        stdio: ['pipe', 'ignore', 'ignore'],
        env: {},
        detached: true,
      },
    );
    if (child.pid === undefined) {
      child.on('error', () => {});
      throw new Error('the process that ends children with the gateway cannot be started');
    }
    this.#process = child;
    child.stdin?.on('error', () => {});
    child.on('error', () => {});
    child.on('exit', () => {
      if (this.#process !== child) return;
      this.#process = null;
      this.#replace();
    });
    // Neither keeps the gateway from ending.
    child.unref();
    if (child.stdin !== null && 'unref' in child.stdin && typeof child.stdin.unref === 'function') child.stdin.unref();
    for (const group of this.#groups) this.#notify('+', group);
  }

  /** Starts another for the children that there are; again and again where the system has no process for it now. */
  #replace(): void {
    if (this.#isClosed || this.#groups.size === 0) return;
    try {
      this.ready();
    } catch {
      setTimeout(() => this.#replace(), AGAIN_MS).unref();
    }
  }

  add(group: number): void {
    this.#groups.add(group);
    this.#notify('+', group);
  }

  remove(group: number): void {
    if (this.#groups.delete(group)) this.#notify('-', group);
  }

  /** The gateway's id of the keeper's process, for tests. */
  get pid(): number | null {
    return this.#process?.pid ?? null;
  }

  /** Ends the keeper's process; children that are left end with it. */
  close(): void {
    this.#isClosed = true;
    this.#process?.stdin?.end();
    this.#process = null;
  }

  #notify(what: '+' | '-', group: number): void {
    this.#process?.stdin?.write(`${what}${group}\n`);
  }
}

/** Runs in the keeper's process, from its text: it uses nothing that stands outside of it. */
function keep(variable: string): void {
  const fs = process.getBuiltinModule('node:fs');
  const groups = new Set<string>();
  const mark = Buffer.from(`${variable}=${process.argv[1] ?? ''}\0`);
  for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM'] as const) process.on(signal, () => {});
  function kill(pid: number): boolean {
    try {
      process.kill(pid, 'SIGKILL');
      return true;
    } catch {
      return false;
    }
  }
  function killMarked(): boolean {
    let found = false;
    let names: string[] = [];
    try {
      names = fs.readdirSync('/proc');
    } catch {}
    for (const name of names) {
      if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
      try {
        if (fs.readFileSync(`/proc/${name}/environ`).includes(mark)) found = kill(Number(name)) || found;
      } catch {}
    }
    return found;
  }
  let rest = '';
  process.stdin.setEncoding('utf8');
  process.stdin.on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines)
      if (line.startsWith('+')) groups.add(line.slice(1));
      else groups.delete(line.slice(1));
  });
  process.stdin.on('close', () => {
    for (const group of groups) kill(-Number(group));
    // Again, while there are some: one that was just starting another may have been quicker.
    for (let round = 0; round < 20 && killMarked(); round += 1);
  });
}
