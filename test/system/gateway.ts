import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { makeKey } from '../../src/identity/key-format.ts';
import { askAgain } from '../ask-again.ts';
import { documented } from '../documented.ts';

/** Tests run from the root of the repository. */
const launcher = join(process.cwd(), 'bin', 'svc.mjs');

export interface TestFiles {
  /** Text of `gateway.yaml`; `store.path` must be `${SVC_TEST_DATA}`. */
  readonly config: string;
  /** Files below `policies` by name; folders are made. */
  readonly policies: Readonly<Record<string, string>>;
}

export interface TestGateway {
  readonly url: string;
  readonly folder: string;
  readonly dataFolder: string;
  readonly configFile: string;
  readonly policyFolder: string;
  readonly administrativeKey: string;
  readonly pid: number;
  /** Everything the gateway wrote to standard error so far. */
  log(): string;
  /** Resolves with its exit code when it has ended; `null`: by a signal. */
  readonly ended: Promise<number | null>;
  /** SIGTERM, then waits for the end. */
  stop(): Promise<void>;
  kill(signal: NodeJS.Signals): void;
  /** Starts a gateway again on the same folder, at the same address. */
  restart(): Promise<TestGateway>;
  /** Stops it and what was started after it, and removes the folder, after a look at it. */
  dispose(look?: () => Promise<void>): Promise<void>;
}

interface BootOptions {
  readonly env?: Record<string, string>;
  readonly entry?: string;
  /** How many files the process may have open (`ulimit -n`). */
  readonly openFiles?: number;
  /** More files in its folder, by name. */
  readonly beside?: Readonly<Record<string, string>>;
}

/** Starts the real gateway from `dist/` as a process of its own, on a free port, with a folder of its own. */
export async function startGateway(files: TestFiles, options: BootOptions = {}): Promise<TestGateway> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-gw-'));
  await mkdir(join(folder, 'policies'));
  await writeFile(join(folder, 'gateway.yaml'), files.config);
  for (const [name, text] of Object.entries(files.policies)) {
    const file = join(folder, 'policies', name);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text);
  }
  for (const [name, text] of Object.entries(options.beside ?? {})) await writeFile(join(folder, name), text);
  const { key } = makeKey('administrative');
  await writeFile(join(folder, 'admin.key'), key, { mode: 0o600 });
  return boot(folder, key, '0', options);
}

async function boot(
  folder: string,
  administrativeKey: string,
  port: string,
  options: BootOptions,
): Promise<TestGateway> {
  const configFile = join(folder, 'gateway.yaml');
  const dataFolder = join(folder, 'data');
  const policyFolder = join(folder, 'policies');
  const { openFiles = null } = options;
  const command = [process.execPath, options.entry ?? launcher, 'start', '--config', configFile, '--port', port];
  const limited = openFiles === null ? [] : ['sh', '-c', `ulimit -n ${openFiles}; exec "$@"`, 'sh'];
  const [program = '', ...words] = [...limited, ...command];
  const child = spawn(program, words, {
    cwd: folder,
    env: {
      ...process.env,
      ...options.env,
      SVC_TEST_DATA: dataFolder,
      SVC_TEST_POLICIES: policyFolder,
      SVC_BOOTSTRAP_ADMIN_KEY_FILE: join(folder, 'admin.key'),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  const url = await readyUrl(child, () => log);
  const { pid } = child;
  if (pid === undefined) throw new Error('the gateway has no process id');
  const ended = once(child, 'exit').then(([code]): number | null => code);
  let successor: TestGateway | null = null;

  async function stop(): Promise<void> {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGCONT');
      child.kill('SIGTERM');
    }
    await ended;
  }

  return {
    url,
    folder,
    dataFolder,
    configFile,
    policyFolder,
    administrativeKey,
    pid,
    log: () => log,
    ended,
    stop,
    kill: (signal) => void child.kill(signal),
    async restart() {
      if (child.exitCode === null && child.signalCode === null) await ended;
      successor = await boot(folder, administrativeKey, new URL(url).port, options);
      return successor;
    },
    async dispose(look) {
      await stop();
      const expectFewListeners = (): void => {
        if (log.includes('MaxListenersExceededWarning')) throw new Error(`it listens too often:\n${log}`);
      };
      if (successor !== null) return successor.dispose(look).then(expectFewListeners);
      try {
        await look?.();
        expectFewListeners();
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
  };
}

async function readyUrl(child: ChildProcess, log: () => string): Promise<string> {
  if (child.stdout === null) throw new Error('no standard output');
  const lines = createInterface({ input: child.stdout });
  return new Promise((resolve, reject) => {
    lines.on('line', (line) => {
      const event: unknown = JSON.parse(line);
      if (typeof event === 'object' && event !== null && 'url' in event && typeof event.url === 'string')
        resolve(event.url);
    });
    // Not before all has been read that it wrote.
    child.on('close', (code, signal) =>
      reject(new Error(`the gateway ended (${code ?? signal}) before it was ready:\n${log()}`)),
    );
  });
}

/**
 * Where a gateway listens that was told port 0 for a listener, from its log.
 * @param at as the configuration has it
 */
export async function listenerOf(gateway: TestGateway, at: string): Promise<URL> {
  const said = new RegExp(`"${at.replaceAll('.', String.raw`\.`)}":"(https?:[^"]+)"`);
  // The log may come after the line on standard output that says that it is ready.
  for (let looks = 0; looks < 3_000; looks += 1) {
    const url = said.exec(gateway.log())?.[1];
    if (url !== undefined) return new URL(url);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`no listener at ${at}:\n${gateway.log()}`);
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // Tests look into bodies of every shape; each asserts what it reads.
  // oxlint-disable-next-line no-explicit-any
  readonly body: any;
}

/** One request with a key; the body is sent as JSON. A gateway that is overloaded is asked again. */
export async function send(
  url: string,
  key: string,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const answer = await askAgain(
    async () => {
      const response = await fetch(`${url}${path}`, {
        method,
        headers: {
          'x-api-key': key,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { status: response.status, headers: response.headers, text: await response.text() };
    },
    ({ text }) => text,
  );
  const { text } = answer;
  documented.check({ method, path, status: answer.status, contentType: answer.headers.get('content-type'), text });
  return { status: answer.status, headers: answer.headers, body: text === '' ? null : JSON.parse(text) };
}

/**
 * Sends a call again under its key, as clients do, when its turn came too late or there was no place for it, and nothing
 * was sent: on a busy machine both may be.
 */
export async function untilSent(run: () => Promise<Answer>): Promise<Answer> {
  let answer = await run();
  for (let tries = 0; isUnsent(answer) && tries < 8; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, answer.body.retry_after_ms ?? 0));
    answer = await run();
  }
  return answer;
}

function isUnsent({ body }: Answer): boolean {
  return body.reason?.code === 'not_dispatched' || body.code === 'busy';
}

/** Makes a key through the API with the administrative key. */
export async function makeApiKey(gateway: TestGateway, user: string, body: Record<string, unknown>): Promise<string> {
  const ask = (): Promise<Answer> =>
    send(gateway.url, gateway.administrativeKey, 'POST', `/v1/beta/users/${user}/keys`, { name: 'test', ...body });
  let answer = await ask();
  // On a busy machine the store may not have answered in time.
  for (let tries = 0; answer.status === 503 && tries < 40; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, 250));
    answer = await ask();
  }
  if (answer.status !== 201) throw new Error(`no key: ${JSON.stringify(answer.body)}`);
  return answer.body.key;
}
