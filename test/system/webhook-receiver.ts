import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';

/** What a receiver took: it answered 204. */
export interface Taken {
  readonly id: string;
  readonly type: string;
  // Tests look into data of every shape; each asserts what it reads.
  // oxlint-disable-next-line no-explicit-any
  readonly data: any;
}

/** A receiver of Standard Webhooks, which checks each signature with the library of that standard. */
export interface WebhookReceiver {
  readonly url: string;
  readonly taken: readonly Taken[];
  /** Requests whose signature did not hold. */
  readonly unsigned: readonly string[];
  readonly asked: () => number;
  close(): Promise<void>;
}

/**
 * @param secret `whsec_…`
 * @param fails whether it does not take a request, by its number: then it answers 500 or cuts the connection, in turn
 */
export async function startWebhookReceiver(secret: string, fails: (n: number) => boolean): Promise<WebhookReceiver> {
  const webhook = new Webhook(secret);
  const taken: Taken[] = [];
  const unsigned: string[] = [];
  let asked = 0;
  const server = createServer((request, response) => {
    void (async () => {
      const body = await text(request);
      asked += 1;
      const id = headerOf(request, 'webhook-id');
      try {
        webhook.verify(body, {
          'webhook-id': id,
          'webhook-timestamp': headerOf(request, 'webhook-timestamp'),
          'webhook-signature': headerOf(request, 'webhook-signature'),
        });
      } catch {
        unsigned.push(id);
      }
      if (fails(asked)) {
        if (asked % 2 === 0) request.socket.destroy();
        else response.writeHead(500).end('no');
        return;
      }
      const { type, data } = JSON.parse(body);
      taken.push({ id, type, data });
      response.writeHead(204).end();
    })();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/hooks`,
    taken,
    unsigned,
    asked: () => asked,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function headerOf(request: IncomingMessage, name: string): string {
  const value = request.headers[name];
  return typeof value === 'string' ? value : '';
}
