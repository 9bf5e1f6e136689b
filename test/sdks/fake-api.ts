import { createServer, type IncomingHttpHeaders } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';

/** A request as it arrived at the fake. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface FakeApi {
  readonly url: string;
  readonly seen: Seen[];
  close(): Promise<void>;
}

/** What a fake answers. */
export interface Said {
  readonly status?: number;
  readonly headers?: Record<string, string>;
  readonly json: unknown;
}

/** An API that answers as the real one does, by what a function says; it keeps every request. */
export async function startFakeApi(answer: (seen: Seen) => Said | Promise<Said>): Promise<FakeApi> {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const one: Seen = {
        method: request.method ?? '',
        url: request.url ?? '',
        headers: request.headers,
        body: Buffer.concat(chunks),
      };
      seen.push(one);
      void Promise.resolve(answer(one)).then(({ status = 200, headers = {}, json }) => {
        response.writeHead(status, { 'content-type': 'application/json', ...headers });
        response.end(JSON.stringify(json));
      });
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    seen,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
