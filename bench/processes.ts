import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { createInterface } from 'node:readline';

/** A process that has said where it listens. */
export interface Server {
  readonly url: string;
  readonly child: ChildProcess;
  stop(): Promise<void>;
}

let taskset: boolean | null = null;

/** Whether a process can be kept on one core here: util-linux has the command for it. */
export function canPin(): boolean {
  taskset ??= spawnSync('taskset', ['--version'], { stdio: 'ignore' }).status === 0;
  return taskset;
}

/**
 * Starts a Node process on the same Node and waits for its `ready` line.
 * @param options.pinned keeps it on the first core, where that can be done
 */
export async function startServer(
  args: readonly string[],
  options: { readonly cwd?: string; readonly env?: Record<string, string>; readonly pinned?: boolean } = {},
): Promise<Server> {
  const command = [process.execPath, ...args];
  const [file = '', ...words] = options.pinned === true && canPin() ? ['taskset', '-c', '0', ...command] : command;
  const child = spawn(file, words, {
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-4000);
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const url = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const event: unknown = JSON.parse(line);
      if (typeof event === 'object' && event !== null && 'url' in event && typeof event.url === 'string')
        resolve(event.url);
    });
    child.once('exit', (code) => reject(new Error(`${args.join(' ')} ended with ${code}: ${errors}`)));
  });
  return {
    url,
    child,
    stop() {
      child.kill('SIGTERM');
      return ended;
    },
  };
}
