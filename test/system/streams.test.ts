import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import type { TestGateway } from './gateway.ts';
import { openStoreOf } from './in-flight.ts';
import { startWorld, type World, worldFiles } from './world.ts';

/*
 * Streams of governed writes, each at another point, when their gateway is killed.
 */

const STREAMS = 20;
const EVENT = 'data: {"usage":{"total_tokens":42}}\n\n';

let world: World;
let restarted: TestGateway | null = null;
const asked: ServerResponse[] = [];
const model = createServer((incoming, response) => {
  incoming.resume();
  response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
  asked.push(response);
});

beforeAll(async () => {
  model.listen(0, '127.0.0.1');
  await once(model, 'listening');
  const address = model.address();
  const url = `http://127.0.0.1:${address !== null && typeof address === 'object' ? address.port : 0}`;
  world = await startWorld({
    files(upstream) {
      const { config, policies } = worldFiles(upstream);
      const tool = `
  - name: model.chat
    upstream: model
    kind: write
    request: { method: POST, path: /chat, body: "*" }
    response: stream
    actual: { token: usage.total_tokens }`;
      const route = `
  - { upstream: model, prefix: /model, rules: [ { match: "POST /chat", tool: model.chat } ] }`;
      return {
        config: config
          .replace('timeout: 10s } ]', `timeout: 10s }, { id: model, url: "${url}" } ]`)
          .replace('\ntools:', `\ntools:${tool}`)
          .replace('\nroutes:', `\nroutes:${route}`),
        policies: {
          ...policies,
          'model.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: model
owner: test
budgets: { tokens: { unit: token, by: [agent.id], per: day, limit: 1000000 } }
rules:
  - { id: chat, effect: allow, match: { tools: [model.chat] }, obligations: [ { budget: { use: tokens, amount: 1000 } } ] }
`,
        },
      };
    },
  });
});
afterAll(async () => {
  model.closeAllConnections();
  model.close();
  await restarted?.stop();
  await world.close();
});

/** Calls, and resolves with the status and, at its end, whether the answer was whole. */
async function chat(gateway: TestGateway, key: string) {
  const sent = request(`${gateway.url}/model/chat`, {
    method: 'POST',
    headers: { 'x-api-key': world.keys.bot, 'idempotency-key': key, 'content-type': 'application/json' },
  });
  sent.on('error', () => undefined);
  sent.end('{}');
  const response = await new Promise<IncomingMessage>((resolve) => {
    sent.once('response', resolve);
  });
  let text = '';
  response.on('data', (piece) => {
    text += String(piece);
  });
  response.on('error', () => undefined);
  const whole = new Promise<boolean>((resolve) => {
    response.on('close', () => resolve(response.complete));
  });
  return { response, whole, text: () => text };
}

test('a gateway that is killed: those that had ended are committed, the others unknown at once; nothing is sent again', async () => {
  const calls = [];
  for (let n = 0; n < STREAMS; n += 1) {
    const call = await chat(world.gateway, `stream-${n}`);
    calls.push(call);
    // From none of its events to all of them, some over.
    const upstream = asked[n];
    for (let event = 0; event < n; event += 1) upstream?.write(EVENT);
    if (n % 4 === 3) {
      upstream?.end();
      expect(await call.whole).toBe(true);
    }
  }
  world.gateway.kill('SIGKILL');
  for (const [n, { whole }] of calls.entries()) expect(await whole, String(n)).toBe(n % 4 === 3);
  restarted = await world.gateway.restart();
  for (let n = 0; n < STREAMS; n += 1) {
    const again = await chat(restarted, `stream-${n}`);
    await again.whole;
    const { decision, receipt } = JSON.parse(again.text());
    expect(decision, String(n)).toBe(n % 4 === 3 ? 'duplicate_blocked' : 'unknown_effect');
    if (n % 4 === 3) expect(receipt.budget).toMatchObject([{ posted: 42 }]);
  }
  expect(asked).toHaveLength(STREAMS);
  await restarted.stop();
  const { store } = await openStoreOf(world.gateway, {});
  const rows = await store.budgets('demo');
  expect(rows.find(({ budget }) => budget === 'model/tokens')).toMatchObject({ spent: 5 * 42, held: 15 * 1000 });
  expect(await checkWorkspace(store, 'demo')).toEqual([]);
  await store.close();
});
