import { createServer } from 'node:http';

/** An upstream that answers at once: what is measured is the way there and back. */
const refund = Buffer.from(JSON.stringify({ id: 're_1', status: 'succeeded', amount: 1200, currency: 'EUR' }));
const server = createServer((request, response) => {
  request.resume();
  request.on('end', () => {
    response.writeHead(request.method === 'POST' ? 201 : 200, {
      'content-type': 'application/json',
      'content-length': refund.length,
    });
    response.end(refund);
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no address');
  console.log(JSON.stringify({ event: 'ready', url: `http://127.0.0.1:${address.port}` }));
});
