/**
 * Sends many calls at once, each on a connection of its own: `node many-at-once.mjs URL CALLS KEY…`. Prints one line a
 * call, when it is over: `[index, ms since the start, status or 0, retry-after, body]`.
 */
import { request } from 'node:http';

const [url = '', calls = '', ...keys] = process.argv.slice(2);
const { hostname, port } = new URL(url);
const begun = performance.now();

/** @param {number} index @param {number} status @param {string | undefined} retryAfter @param {string} text */
function print(index, status, retryAfter, text) {
  process.stdout.write(`${JSON.stringify([index, performance.now() - begun, status, retryAfter ?? null, text])}\n`);
}

for (let index = 0; index < Number(calls); index += 1) {
  const body = JSON.stringify({
    tool: 'notes.add',
    params: { text: String(index) },
    idempotency_key: `many-${index}`,
  });
  const headers = {
    'content-type': 'application/json',
    'content-length': body.length,
    'x-api-key': keys[index % keys.length],
  };
  const path = '/v1/workspaces/demo/effects';
  const outgoing = request({ hostname, port, method: 'POST', path, agent: false, headers }, (incoming) => {
    let text = '';
    incoming.setEncoding('utf8').on('data', (chunk) => (text += chunk));
    incoming.on('end', () => print(index, incoming.statusCode ?? 0, incoming.headers['retry-after'], text));
    incoming.on('error', (error) => print(index, 0, undefined, error.message));
  });
  outgoing.on('error', (error) => print(index, 0, undefined, error.message));
  outgoing.end(body);
}
