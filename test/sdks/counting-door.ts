import { createServer, request } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';

/** A door in front of a gateway that counts who comes through. Some libraries offer no other place to count at. */
export interface CountingDoor {
  readonly url: string;
  count(): number;
  close(): Promise<void>;
}

/** @param target origin of the gateway's listener; requests and answers pass unchanged */
export async function openCountingDoor(target: string): Promise<CountingDoor> {
  const { hostname, port } = new URL(target);
  let count = 0;
  // A connection that ends while a client sends on it would be a lost answer: none ends before its test.
  const server = createServer({ keepAliveTimeout: 600_000 }, (arriving, answering) => {
    count += 1;
    const { method, url, headers } = arriving;
    const passed = request({ hostname, port, method, path: url, headers }, (answer) => {
      answering.writeHead(answer.statusCode ?? 0, answer.rawHeaders);
      answer.pipe(answering);
    });
    passed.on('error', () => answering.destroy());
    arriving.pipe(passed);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    count: () => count,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
