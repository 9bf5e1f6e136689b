// An upstream that answers at once, always with as many bytes: REST at every path, and an MCP server at `/mcp`.
// `upstream.mjs TOOLS`, with its tools as JSON. Prints its address.
import { createServer } from 'node:http';

const [tools = '[]'] = process.argv.slice(2);
const REFUND = JSON.stringify({ id: 're_1', status: 'succeeded', amount: 1200, currency: 'EUR' });
const RESULT = JSON.stringify({ content: [{ type: 'text', text: REFUND }] });

const server = createServer((request, response) => {
  let body = '';
  request.setEncoding('utf8').on('data', (text) => {
    body += text;
  });
  request.on('end', () => {
    if (request.url !== '/mcp') return answer(response, 201, REFUND);
    if (request.method !== 'POST') return response.writeHead(405).end();
    const { id, method } = JSON.parse(body);
    if (id === undefined) return response.writeHead(202).end();
    const result = method === 'tools/list' ? `{"tools":${tools}}` : RESULT;
    return answer(response, 200, `{"jsonrpc":"2.0","id":${id},"result":${result}}`);
  });
});

function answer(response, status, text) {
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  response.end(text);
}

server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
