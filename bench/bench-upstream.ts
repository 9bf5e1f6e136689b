import { createServer, type ServerResponse } from 'node:http';

/** Between the first event of a short stream and its end, ms. */
const SHORT_MS = 5;
/** Between the events of an open stream, ms. */
const EVENT_MS = 1_000;
const EVENT = `data: ${JSON.stringify({ choices: [{ delta: { content: 'x'.repeat(150) } }] })}\n\n`;
/** Streams that last until `POST /release`. */
const open = new Set<ServerResponse>();

/**
 * An upstream that answers at once: what is measured is the way there and back. `/v1/streams` answers with a stream of
 * two events, `/v1/streams/open` with one that goes on.
 */
const refund = Buffer.from(JSON.stringify({ id: 're_1', status: 'succeeded', amount: 1200, currency: 'EUR' }));
const server = createServer((request, response) => {
  request.resume();
  request.on('end', () => {
    if (request.url === '/release') {
      for (const stream of open) stream.end(EVENT);
      open.clear();
      response.end();
      return;
    }
    if (request.url?.startsWith('/v1/streams') === true) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(EVENT);
      if (request.url.endsWith('/open')) open.add(response.on('close', () => open.delete(response)));
      else setTimeout(() => response.end(EVENT), SHORT_MS);
      return;
    }
    response.writeHead(request.method === 'POST' ? 201 : 200, {
      'content-type': 'application/json',
      'content-length': refund.length,
    });
    response.end(refund);
  });
});
setInterval(() => {
  for (const stream of open) stream.write(EVENT);
}, EVENT_MS);
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no address');
  console.log(JSON.stringify({ event: 'ready', url: `http://127.0.0.1:${address.port}` }));
});
