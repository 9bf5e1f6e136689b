import { Redis } from 'ioredis';
import { StoreUnavailable } from '../../effects/store.ts';
import { metaKey } from './names.ts';
import { script, type ScriptName } from './scripts.ts';

/**
 * A connection without an answer for this long counts as broken, ms. A frozen server costs each caller at most this,
 * once.
 */
const ANSWER_MS = 1000;

/** The longest pause between two attempts to connect, ms. */
const RETRY_MS = 250;

/** Where a server is, and how to log in. */
export interface RedisAddress {
  readonly host: string;
  readonly port: number;
}

export interface RedisAccess {
  readonly username: string | null;
  readonly password: string | null;
  readonly database: number;
  readonly tls: boolean;
}

export type RedisTarget =
  | { readonly kind: 'address'; readonly address: RedisAddress }
  | { readonly kind: 'sentinel'; readonly sentinels: readonly RedisAddress[]; readonly name: string };

/**
 * One connection to one primary. Nothing is queued while it is down, and nothing is ever sent twice: what was running
 * when it broke is rejected.
 */
export type RedisConnection = ReturnType<typeof openConnection>;

/** Opens a connection and keeps trying until it is closed. */
export function openConnection(
  target: RedisTarget,
  access: RedisAccess,
  options: { readonly answerMs?: number; readonly name: string },
) {
  const answerMs = options.answerMs ?? ANSWER_MS;
  const common = {
    protocol: 2 as const,
    db: access.database,
    connectionName: options.name,
    connectTimeout: answerMs,
    commandTimeout: answerMs,
    socketTimeout: answerMs,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    maxLoadingRetryTime: 500,
    retryStrategy: (times: number) => Math.min(20 * times, RETRY_MS),
    // Leave a demoted primary instead of asking it again.
    reconnectOnError: (error: Error) => (error.message.startsWith('READONLY') ? (1 as const) : false),
    ...(access.username === null ? {} : { username: access.username }),
    ...(access.password === null ? {} : { password: access.password }),
    ...(access.tls ? { tls: {} } : {}),
  };
  const client =
    target.kind === 'address'
      ? new Redis({ ...common, host: target.address.host, port: target.address.port })
      : new Redis({
          ...common,
          sentinels: target.sentinels.map(({ host, port }) => ({ host, port })),
          name: target.name,
          role: 'master',
          sentinelRetryStrategy: (times: number) => Math.min(50 * times, RETRY_MS),
          // A frozen sentinel accepts connections but does not answer: ask another one.
          sentinelCommandTimeout: answerMs,
          failoverDetector: true,
        });
  let lastError = '';
  client.on('error', (error: Error) => {
    lastError = withoutAddress(error.message);
  });
  let closed = false;
  // The client ends if it has to leave its primary while it is asking the sentinels for one. It would never come back
  // by itself.
  client.on('end', () => {
    setTimeout(() => {
      if (!closed && client.status === 'end') client.connect().catch(() => undefined);
    }, RETRY_MS).unref();
  });

  function down(error: unknown): StoreUnavailable {
    const reason = withoutAddress(error instanceof Error ? error.message : String(error));
    const more = reason.includes('writeable') && lastError !== '' ? ` (${lastError})` : '';
    return new StoreUnavailable(`Redis: ${reason}${more}`, { cause: error });
  }

  /** @throws StoreUnavailable */
  async function command(name: string, ...args: readonly (string | number)[]): Promise<unknown> {
    try {
      return await client.call(name, ...args);
    } catch (error) {
      throw down(error);
    }
  }

  let corked: typeof client.stream | null = null;

  /** Everything asked in one turn of the event loop is sent in one write, because each write is a system call. */
  function cork(): void {
    const stream = client.stream;
    if (corked === stream || client.status !== 'ready') return;
    corked = stream;
    stream.cork();
    setImmediate(() => {
      if (corked === stream) corked = null;
      stream.uncork();
    });
  }

  /** Like {@link run}, for a script whose reply contains more than texts. @throws StoreUnavailable */
  function evaluate(
    name: ScriptName,
    workspace: string,
    args: readonly (string | Buffer)[],
  ): Promise<readonly unknown[]> {
    const { sha, source } = script(name);
    const key = metaKey(workspace);
    const fail = (error: unknown): never => {
      throw down(error);
    };
    cork();
    return client.evalsha(sha, 1, key, ...args).then(listOf, (error: unknown) => {
      if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) return fail(error);
      // The server does not have the script, so nothing ran: sending its text does not repeat anything.
      return client.eval(source, 1, key, ...args).then(listOf, fail);
    });
  }

  return {
    client,
    /** Waits until commands can be sent, by default three times as long as for an answer. @throws StoreUnavailable */
    async ready(withinMs: number = answerMs * 3): Promise<void> {
      const deadline = performance.now() + withinMs;
      while (client.status !== 'ready') {
        const left = deadline - performance.now();
        if (left <= 0 || closed) {
          throw new StoreUnavailable(`Redis cannot be reached${lastError === '' ? '' : `: ${lastError}`}`);
        }
        await new Promise<void>((resolve) => {
          const done = (): void => {
            clearTimeout(timer);
            client.off('ready', done);
            resolve();
          };
          const timer = setTimeout(done, Math.min(left, 100));
          client.on('ready', done);
        });
      }
    },
    command,
    /** Several commands in one round trip. @throws StoreUnavailable when any fails */
    async pipeline(commands: readonly (readonly [string, ...(string | number)[]])[]): Promise<readonly unknown[]> {
      const pipeline = client.pipeline();
      for (const [name, ...args] of commands) pipeline.call(name, ...args);
      let results: [Error | null, unknown][] | null;
      try {
        results = await pipeline.exec();
      } catch (error) {
        throw down(error);
      }
      return (results ?? []).map(([error, value]) => {
        if (error !== null) throw down(error);
        return value;
      });
    },
    /** Runs a script on a workspace's meta hash. @throws StoreUnavailable */
    run: (name: ScriptName, workspace: string, args: readonly (string | Buffer)[]): Promise<readonly string[]> =>
      evaluate(name, workspace, args).then(textsOf),
    evaluate,
    /** Breaks the connection; a new one is opened. */
    reset: (): void => client.disconnect(true),
    close(): void {
      closed = true;
      client.disconnect();
    },
  };
}

function listOf(reply: unknown): readonly unknown[] {
  if (!Array.isArray(reply)) throw new TypeError('a reply of Redis is not a list');
  return reply;
}

/** The message is shown to people who should not see where the store is. */
function withoutAddress(message: string): string {
  return message.replace(/ (?:[\w.-]+|\[[0-9a-f:]+\]|[0-9a-f:]+):\d+\b/gi, '');
}

export function textsOf(reply: unknown): readonly string[] {
  if (!Array.isArray(reply)) throw new TypeError('a reply of Redis is not a list');
  return reply.map((item: unknown) => {
    if (typeof item === 'string') return item;
    if (typeof item === 'number') return String(item);
    throw new TypeError('a reply of Redis holds something else than text');
  });
}

export function fieldsOf(reply: readonly string[]): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  for (let i = 0; i + 1 < reply.length; i += 2) fields.set(reply[i] ?? '', reply[i + 1] ?? '');
  return fields;
}
