// A model API for tests: a process of its own, whose ledger file says what arrived and what was over. Each request says
// in its body how far its stream goes before it waits: `{events, torn, end}`. Without `events` not even the head is
// sent; `torn` adds the half of an event; `end` sends the end at once.
//   POST /__finish [keys]: those that wait are sent to their end
//   POST /__break [keys]:  their connections are reset
import { fsyncSync, openSync, writeSync } from 'node:fs';
import { createServer } from 'node:http';

const [file, port = '0'] = process.argv.slice(2);
const ledger = openSync(file, 'a');
const record = (entry) => {
  writeSync(ledger, `${JSON.stringify(entry)}\n`);
  fsyncSync(ledger);
};
const EVENT = 'data: {"usage":{"total_tokens":42}}\n\n';
const HALF = EVENT.slice(0, 12);
const waiting = new Map();

const server = createServer((request, response) => {
  response.on('error', () => {});
  let text = '';
  request.on('data', (piece) => (text += piece)).on('end', () => answer(request, response, text));
});

function answer(request, response, text) {
  if (request.url.startsWith('/__')) {
    for (const key of JSON.parse(text)) {
      const { finish, reset } = waiting.get(key);
      waiting.delete(key);
      (request.url === '/__finish' ? finish : reset)();
    }
    response.end();
    return;
  }
  const { events, torn = false, end = false } = request.method === 'GET' ? { events: 1 } : JSON.parse(text);
  const key = request.headers['x-call'];
  record({ event: 'asked', key });
  let left = '';
  const head = () => response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
  const finish = () => {
    if (!response.headersSent) head();
    response.write(left);
    record({ event: 'over', key });
    response.end(EVENT);
  };
  if (events !== undefined) {
    head();
    response.write(EVENT.repeat(events));
    if (torn) response.write(HALF);
    if (torn) left = EVENT.slice(HALF.length);
    if (end) return finish();
  }
  waiting.set(key, { finish, reset: () => request.socket.resetAndDestroy() });
}
server.listen(Number(port), '127.0.0.1', () => process.stdout.write(`${server.address().port}\n`));
// Ends with the process that started it.
process.stdin.on('end', () => process.exit(0)).resume();
