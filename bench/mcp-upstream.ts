import { createServer, type ServerResponse } from 'node:http';
import { MCP_TOOLS } from './mcp-tools.ts';

/** How long a stream lasts behind its first event, ms. */
const STREAM_MS = 5;

const TEXT = '{"content":[{"type":"text","text":"{\\"id\\":\\"re_1\\",\\"status\\":\\"succeeded\\"}"}]}';
const LIST = JSON.stringify({ tools: MCP_TOOLS });
const NOTE = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"begun"}}';

/** An MCP server that answers at once: what is measured is the way there and back. `GET` opens a stream that stays open. */
const server = createServer((request, response) => {
  if (request.method === 'DELETE') return void response.writeHead(200).end();
  if (request.method === 'GET') {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(`data: ${NOTE}\n\n`);
    return;
  }
  let body = '';
  request.setEncoding('utf8').on('data', (text: string) => {
    body += text;
  });
  request.on('end', () => {
    // The benchmark and the gateway sent it.
    const { id, method, params } = JSON.parse(body) as { id?: number; method: string; params?: { name?: string } };
    if (id === undefined) return void response.writeHead(202).end();
    // The gateway looks whether the tools are what was approved.
    const result = method === 'tools/list' ? LIST : TEXT;
    answer(response, `{"jsonrpc":"2.0","id":${id},"result":${result}}`, params?.name === 'stream');
  });
});

function answer(response: ServerResponse, message: string, streams: boolean): void {
  if (!streams) {
    const bytes = Buffer.from(message);
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': bytes.length }).end(bytes);
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(`data: ${NOTE}\n\n`);
  setTimeout(() => response.end(`data: ${message}\n\n`), STREAM_MS);
}

server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no address');
  console.log(JSON.stringify({ event: 'ready', url: `http://127.0.0.1:${address.port}` }));
});
