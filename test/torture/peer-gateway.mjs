// A gateway as a team would build it around an idempotency library, for the same harness: same request, same upstream.
// `peer-gateway.mjs --library node-idempotency|powertools --upstream URL --redis URL --port N`
import { parseArgs } from 'node:util';
import { makeIdempotent, IdempotencyConfig } from '@aws-lambda-powertools/idempotency';
import { CachePersistenceLayer } from '@aws-lambda-powertools/idempotency/cache';
import { Idempotency } from '@node-idempotency/core';
import { RedisStorageAdapter } from '@node-idempotency/storage-adapter-redis';
import { createClient } from '@redis/client';
import Fastify from 'fastify';
import { Agent, request } from 'undici';

const { values } = parseArgs({
  options: {
    library: { type: 'string' },
    upstream: { type: 'string' },
    redis: { type: 'string' },
    port: { type: 'string', default: '0' },
  },
});
const agent = new Agent({ connections: 64, headersTimeout: 300, bodyTimeout: 300 });

/** The action itself: throws unless the upstream says that it happened. */
async function act(call) {
  const { op, amount } = call.params;
  const answer = await request(`${values.upstream}/v1/bookings/${op}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ amount }),
    dispatcher: agent,
  });
  const body = await answer.body.json();
  if (answer.statusCode >= 300) throw new Error(`upstream answered ${answer.statusCode}`);
  return { decision: 'committed', effect_id: call.idempotency_key, result: body };
}

const LIBRARIES = { 'node-idempotency': withNodeIdempotency, powertools: withPowertools };

/** The library's documented use: onRequest before, onResponse after, errors stored as responses. */
async function withNodeIdempotency() {
  const storage = new RedisStorageAdapter({ url: values.redis });
  await storage.connect();
  const idempotency = new Idempotency(storage, { cacheTTLMS: 3_600_000 });
  return async (call) => {
    const incoming = {
      method: 'POST',
      path: '/effects',
      headers: { 'idempotency-key': call.idempotency_key },
      body: call,
    };
    let stored;
    try {
      stored = await idempotency.onRequest(incoming);
    } catch (error) {
      // The library's own errors: in progress, or another body under the key.
      return {
        status: 409,
        body: { decision: 'in_progress', effect_id: call.idempotency_key, message: String(error.message) },
      };
    }
    if (stored !== undefined) {
      if (stored.error !== undefined && stored.error !== null)
        return { status: 502, body: { decision: 'failed', effect_id: call.idempotency_key } };
      return { status: 200, body: stored.body };
    }
    try {
      const body = await act(call);
      await idempotency.onResponse(incoming, { body, additional: { statusCode: 200 } });
      return { status: 200, body };
    } catch (error) {
      await idempotency.onResponse(incoming, { error: String(error.message), additional: { statusCode: 502 } });
      return { status: 502, body: { decision: 'failed', effect_id: call.idempotency_key } };
    }
  };
}

/** The library's documented use: makeIdempotent around the function, with the context of a Lambda that has 1 s left. */
async function withPowertools() {
  const client = await createClient({ url: values.redis }).connect();
  const persistenceStore = new CachePersistenceLayer({ client });
  const config = new IdempotencyConfig({ eventKeyJmesPath: 'idempotency_key', expiresAfterSeconds: 3600 });
  config.registerLambdaContext({ getRemainingTimeInMillis: () => 1000 });
  const idempotentAct = makeIdempotent(act, { persistenceStore, config });
  return async (call) => {
    try {
      return { status: 200, body: await idempotentAct(call) };
    } catch (error) {
      const decision = error.name === 'IdempotencyAlreadyInProgressError' ? 'in_progress' : 'failed';
      return {
        status: decision === 'failed' ? 502 : 409,
        body: { decision, effect_id: call.idempotency_key, message: String(error.message) },
      };
    }
  };
}

const handle = await LIBRARIES[values.library]();
const app = Fastify({ logger: false });
app.post('/v1/workspaces/demo/effects', async (incoming, reply) => {
  const { status, body } = await handle(incoming.body);
  return reply.code(status).send(body);
});
const url = await app.listen({ host: '127.0.0.1', port: Number(values.port) });
process.stdout.write(`${JSON.stringify({ event: 'ready', url })}\n`);
