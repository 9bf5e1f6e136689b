import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** What the upstream is to `tls.createServer`. */
export interface TlsUpstreamOptions {
  readonly cert: string;
  readonly key: string;
  /** The CA of the certificates that callers have to show. */
  readonly ca?: string;
  readonly requestCert?: boolean;
  readonly rejectUnauthorized?: boolean;
  readonly minVersion?: 'TLSv1.2' | 'TLSv1.3';
  readonly maxVersion?: 'TLSv1.2' | 'TLSv1.3';
}

export interface Seen {
  readonly method: string;
  readonly url: string;
  /** Name in the certificate that the gateway showed; `null`: it showed none. */
  readonly client: string | null;
  /** The name that was asked for (SNI). */
  readonly name: string | null;
  /** Of the body. */
  readonly bytes: number;
  /** Two requests on one connection have the same. */
  readonly connection: string;
}

export interface TlsUpstream {
  readonly port: number;
  /** `https://localhost:port`. */
  readonly url: string;
  /** The requests that arrived so far. */
  seen(): Promise<readonly Seen[]>;
  /** New connections get another certificate. */
  use(tls: TlsUpstreamOptions): Promise<void>;
  /** Answers what waits at `/held`. */
  release(): Promise<void>;
  /** Another event on each open `/stream`. */
  tick(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts an upstream behind TLS as a process of its own; resolves when it listens. */
export async function startTlsUpstream(options: TlsUpstreamOptions): Promise<TlsUpstream> {
  const child = fork(fileURLToPath(new URL('tls-upstream.mjs', import.meta.url)), { execArgv: [] });
  let last: Promise<unknown> = Promise.resolve();
  /** One question after the other, so that each answer is that of its question. */
  const ask = (question: object): Promise<unknown> => {
    last = last.then(async () => {
      const answered = once(child, 'message');
      child.send(question);
      const [{ answer }] = (await answered) as [{ readonly answer: unknown }];
      return answer;
    });
    return last;
  };
  const port = Number(await ask({ ask: 'start', tls: options }));
  return {
    port,
    url: `https://localhost:${port}`,
    seen: async () => (await ask({ ask: 'seen' })) as readonly Seen[],
    use: async (tls) => void (await ask({ ask: 'use', tls })),
    release: async () => void (await ask({ ask: 'release' })),
    tick: async () => void (await ask({ ask: 'tick' })),
    async stop() {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    },
  };
}
