import { Idempotency } from '@node-idempotency/core';
import { RedisStorageAdapter } from '@node-idempotency/storage-adapter-redis';
import Fastify from 'fastify';
import { Redis } from 'ioredis';
import { Engine } from 'json-rules-engine';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import { Pool } from 'undici';

/**
 * The peer: what a team would assemble for the same write. Rules decide, a limiter in Redis counts the amount, an
 * idempotency library keeps the key in Redis, and the call goes on to the upstream. Prints its address.
 */
const [upstream, redisUrl] = process.argv.slice(2);
if (upstream === undefined || redisUrl === undefined) throw new Error('usage: peer-assembled UPSTREAM REDIS');

const engine = new Engine([
  {
    conditions: {
      all: [
        { fact: 'team', operator: 'equal', value: 'support' },
        { fact: 'amount', operator: 'greaterThanInclusive', value: 1 },
        { fact: 'amount', operator: 'lessThanInclusive', value: 50_000 },
        { fact: 'currency', operator: 'in', value: ['EUR', 'USD'] },
      ],
    },
    event: { type: 'allow' },
  },
]);
const budget = new RateLimiterRedis({
  storeClient: new Redis(redisUrl),
  keyPrefix: 'budget',
  points: Number.MAX_SAFE_INTEGER,
  duration: 86_400,
});
const storage = new RedisStorageAdapter({ url: redisUrl });
await storage.connect();
const idempotency = new Idempotency(storage, { cacheTTLMS: 86_400_000 });
const pool = new Pool(upstream, { connections: 128 });

const app = Fastify({ logger: false });
app.post<{
  Params: { id: string };
  Body: { amount: number; currency: string; reason: string };
  Headers: { 'idempotency-key': string };
}>(
  '/payments/v1/payments/:id/refunds',
  {
    schema: {
      body: {
        type: 'object',
        required: ['amount', 'currency'],
        properties: { amount: { type: 'integer' }, currency: { type: 'string' }, reason: { type: 'string' } },
      },
    },
  },
  async (request, reply) => {
    const { amount, currency } = request.body;
    const { events } = await engine.run({ team: 'support', amount, currency });
    if (events.length === 0) return reply.code(403).send({ error: 'not allowed' });
    const call = {
      method: 'POST',
      path: request.url,
      headers: { 'idempotency-key': request.headers['idempotency-key'] },
      body: request.body,
    };
    const known = await idempotency.onRequest<string, string>(call);
    if (known !== undefined) return reply.code(200).send(known.body);
    await budget.consume('bot', amount);
    const answer = await pool.request({
      method: 'POST',
      path: `/v1/payments/${request.params.id}/refunds`,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(request.body),
    });
    const body = await answer.body.text();
    await idempotency.onResponse(call, { body, additional: { statusCode: answer.statusCode } });
    return reply.code(answer.statusCode).type('application/json').send(body);
  },
);
console.log(JSON.stringify({ event: 'ready', url: await app.listen({ host: '127.0.0.1', port: 0 }) }));
