import { once } from 'node:events';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A door in front of gateways, for clients that send no key of ours: it adds one, and gives each request in turn. */
export interface KeyedDoor {
  readonly url: string;
  close(): void;
}

/**
 * Requests and answers pass as they come, but for the key. No gateway gets two requests of a session one after another,
 * where there are several.
 * @param targets origins of the gateways
 * @param before  runs before a request is passed on
 */
export async function openKeyedDoor(
  targets: readonly string[],
  key: string,
  before: (body: string) => Promise<void> | void = () => undefined,
): Promise<KeyedDoor> {
  const agent = new Agent({ keepAlive: true });
  let turn = 0;
  const server = createServer((arriving, answering) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of arriving as AsyncIterable<Buffer>) pieces.push(piece);
      const body = Buffer.concat(pieces);
      await before(body.toString());
      const { hostname, port } = new URL(targets[turn % targets.length] ?? '');
      turn += 1;
      const { method, url, headers } = arriving;
      const passed = request(
        { agent, hostname, port, method, path: url, headers: { ...headers, 'x-api-key': key } },
        (answer) => {
          answering.writeHead(answer.statusCode ?? 0, answer.rawHeaders);
          answering.flushHeaders();
          answer.pipe(answering);
          answer.on('error', () => answering.destroy());
        },
      );
      answering.on('close', () => passed.destroy());
      passed.on('error', () => answering.destroy());
      passed.end(body);
    })().catch(() => answering.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      server.closeAllConnections();
      server.close();
      agent.destroy();
    },
  };
}
