import { createServer } from 'node:https';

/** An upstream behind TLS, in a process of its own. It does what its parent says: see `tls-start.ts`. */

/** What arrived, and whose certificate came with it. */
const seen = [];
const held = [];
const streams = [];
let server = null;

function note(request) {
  const { socket } = request;
  const entry = {
    method: request.method,
    url: request.url,
    client: socket.getPeerCertificate?.()?.subject?.CN ?? null,
    name: socket.servername || null,
    bytes: 0,
    connection: `${socket.remotePort}`,
  };
  seen.push(entry);
  return entry;
}

function serve(request, response) {
  const entry = note(request);
  const answer = () => {
    response.writeHead(request.method === 'POST' ? 201 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ client: entry.client }));
  };
  request.on('data', (chunk) => {
    entry.bytes += chunk.length;
    if (request.url === '/cut') request.socket.destroy();
  });
  request.on('end', () => {
    if (request.url === '/held') held.push(answer);
    else if (request.url === '/stream') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: begun\n\n');
      streams.push(response);
    } else answer();
  });
  request.on('error', () => {});
}

function tunnel(request, socket) {
  const { client } = note(request);
  socket.on('error', () => {});
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
  socket.write(`hello ${client}\n`);
  socket.on('data', (data) => socket.write(data));
}

process.on('message', ({ ask, tls }) => {
  switch (ask) {
    case 'start':
      server = createServer(tls, serve)
        .on('upgrade', tunnel)
        .on('tlsClientError', () => {});
      server.listen(0, '127.0.0.1', () => process.send({ answer: server.address().port }));
      return;
    case 'use':
      server.setSecureContext(tls);
      break;
    case 'release':
      for (const each of held.splice(0)) each();
      break;
    case 'tick':
      for (const each of streams) each.write('data: more\n\n');
      break;
    case 'seen':
      process.send({ answer: seen });
      return;
  }
  process.send({ answer: null });
});
process.on('disconnect', () => process.exit());
