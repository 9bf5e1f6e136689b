import { createHash } from 'node:crypto';
import { Idempotency } from '@node-idempotency/core';
import { RedisStorageAdapter } from '@node-idempotency/storage-adapter-redis';
import Fastify from 'fastify';
import { Redis } from 'ioredis';
import { Engine } from 'json-rules-engine';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import { Pool } from 'undici';
import { engineRulesOf } from './rules.ts';

/**
 * The peer: what a team would assemble for the same duty, each part the library that is used for it, with its defaults.
 * The API key is looked up in Redis by its hash, the body has a schema, the same rules as the gateway's decide, a
 * limiter in Redis counts the amount for the agent, an idempotency library keeps the key and the answer in Redis, the
 * call goes on to the upstream, and a stream in Redis has a record of each call. It promises less: no receipt, no
 * lease, nothing is atomic, and what a crash leaves open nobody knows.
 * `peer-assembled UPSTREAM REDIS one|ten`. Prints its address. Keys stand in Redis as `apikey:<sha256>` = agent as JSON.
 */
const [upstream, redisUrl, set] = process.argv.slice(2);
if (upstream === undefined || redisUrl === undefined || (set !== 'one' && set !== 'ten'))
  throw new Error('usage: peer-assembled UPSTREAM REDIS one|ten');

interface Agent {
  readonly agent: string;
  readonly team: string;
}

const redis = new Redis(redisUrl);
const engine = new Engine(engineRulesOf(set), { allowUndefinedFacts: true });
const budget = new RateLimiterRedis({
  storeClient: redis,
  keyPrefix: 'budget',
  points: Number.MAX_SAFE_INTEGER,
  duration: 86_400,
});
const storage = new RedisStorageAdapter({ url: redisUrl });
await storage.connect();
const idempotency = new Idempotency(storage, { cacheTTLMS: 86_400_000 });
const pool = new Pool(upstream, { connections: 128 });

async function agentOf(key: unknown): Promise<Agent | null> {
  if (typeof key !== 'string') return null;
  const row = await redis.get(`apikey:${createHash('sha256').update(key).digest('hex')}`);
  // The benchmark wrote it.
  return row === null ? null : (JSON.parse(row) as Agent);
}

const app = Fastify({ logger: false });
app.post<{
  Params: { id: string };
  Body: { amount: number; currency: string; reason: string };
  Headers: { 'idempotency-key': string };
}>(
  '/payments/v1/payments/:id/refunds',
  {
    schema: {
      headers: {
        type: 'object',
        required: ['idempotency-key'],
        properties: { 'idempotency-key': { type: 'string', minLength: 1 } },
      },
      body: {
        type: 'object',
        required: ['amount', 'currency'],
        properties: {
          amount: { type: 'integer', minimum: 1 },
          currency: { type: 'string' },
          reason: { type: 'string' },
        },
        additionalProperties: false,
      },
    },
  },
  async (request, reply) => {
    const who = await agentOf(request.headers['x-api-key']);
    if (who === null) return reply.code(401).send({ error: 'no such key' });
    const { amount } = request.body;
    const key = request.headers['idempotency-key'];
    const audit = (decision: string, status: number): Promise<unknown> =>
      redis.xadd(
        'audit',
        '*',
        'agent',
        who.agent,
        'tool',
        'payments.refund',
        'target',
        `payment:${request.params.id}`,
        'amount',
        amount,
        'key',
        key,
        'decision',
        decision,
        'status',
        status,
      );
    const { events } = await engine.run({ tool: 'payments.refund', team: who.team, ...request.body });
    if (!events.some(({ type }) => type === 'allow') || events.some(({ type }) => type === 'deny')) {
      await audit('denied', 403);
      return reply.code(403).send({ error: 'not allowed' });
    }
    const call = { method: 'POST', path: request.url, headers: { 'idempotency-key': key }, body: request.body };
    const known = await idempotency.onRequest<string, string>(call);
    if (known !== undefined) return reply.code(200).send(known.body);
    await budget.consume(who.agent, amount);
    const answer = await pool.request({
      method: 'POST',
      path: `/v1/payments/${request.params.id}/refunds`,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(request.body),
    });
    const body = await answer.body.text();
    await Promise.all([
      idempotency.onResponse(call, { body, additional: { statusCode: answer.statusCode } }),
      audit('allowed', answer.statusCode),
    ]);
    return reply.code(answer.statusCode).type('application/json').send(body);
  },
);
console.log(JSON.stringify({ event: 'ready', url: await app.listen({ host: '127.0.0.1', port: 0 }) }));
