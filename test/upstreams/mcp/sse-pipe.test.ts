import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { Pool } from 'undici';
import { expect, test } from 'vitest';
import { SsePipe } from '../../../src/upstreams/mcp/sse/sse-pipe.ts';

test('nothing of the server comes after the end, also what had come while the pipe was paused', async () => {
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('event: endpoint\ndata: /messages\n\ndata: {"n":1}\n\ndata: {"n":2}\n\n');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const through = new Pool(url);
  const heard: string[] = [];
  const pipe = new SsePipe(
    { url, path: '/', through, messageBytes: 1_000, now: () => performance.now() },
    {},
    {
      line: (bytes) => {
        heard.push(bytes.toString());
        pipe.pause();
      },
      over: (why) => void heard.push(why),
    },
  );
  await expect.poll(() => heard).toEqual(['{"n":1}']);
  pipe.kill('the end');
  for (let turn = 0; turn < 10; turn += 1) await setImmediate();
  expect(heard).toEqual(['{"n":1}', 'the end']);
  await through.destroy();
  server.closeAllConnections();
  server.close();
});
