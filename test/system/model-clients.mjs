// Clients of streams, all in one process, so that a test can kill them all: `model-clients.mjs URL KEY`, with the calls
// as JSON on the first line of standard input. Writes a line for each piece that came: the key of its call.
import { request } from 'node:http';
import { createInterface } from 'node:readline';

const [url, apiKey] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin });
lines.once('line', (line) => {
  for (const { key, body } of JSON.parse(line)) {
    const sent = request(url, {
      method: 'POST',
      agent: false,
      headers: { 'x-api-key': apiKey, 'idempotency-key': key, 'x-call': key, 'content-type': 'application/json' },
    });
    sent.on('error', () => {});
    sent.on('response', (response) => {
      response.on('error', () => {});
      process.stdout.write(`${key} head\n`);
      response.on('data', (piece) => process.stdout.write(`${key} ${piece.length}\n`));
    });
    sent.end(JSON.stringify(body));
  }
});
// Ends with the process that started it.
lines.once('close', () => process.exit(0));
