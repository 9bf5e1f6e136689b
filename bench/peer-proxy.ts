import httpProxy from '@fastify/http-proxy';
import Fastify from 'fastify';

/** The peer: a plain, ungoverned @fastify/http-proxy in a process of its own. Prints its address. */
const app = Fastify({ logger: false });
const [upstream, prefix] = process.argv.slice(2);
if (upstream === undefined || prefix === undefined) throw new Error('usage: peer-proxy UPSTREAM PREFIX');
await app.register(httpProxy, { upstream, prefix, undici: { connections: 128 } });
console.log(JSON.stringify({ event: 'ready', url: await app.listen({ host: '127.0.0.1', port: 0 }) }));
