import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freshKey, refund, startWorld, type World } from '../system/world.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world.close());

/** The secret part of a key, which nothing but its owner may ever show. */
function secretOf(key: string): string {
  return key.slice(-38);
}

async function everyByteUnder(folder: string): Promise<string> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return (await Promise.all(files.map((entry) => readFile(join(entry.parentPath, entry.name), 'latin1')))).join('\n');
}

it('a secret canary in header, query, cookie and bearer form is nowhere', async () => {
  const { url } = world.gateway;
  const { bot, account } = world.keys;
  const answers: string[] = [];
  const collect = async (path: string, init: RequestInit): Promise<void> => {
    const response = await fetch(`${url}${path}`, init);
    answers.push(JSON.stringify([...response.headers]), await response.text());
  };
  const forms: ((headers: Record<string, string>) => { headers: Record<string, string>; query: string })[] = [
    (headers) => ({ headers: { ...headers, 'x-api-key': bot }, query: '' }),
    (headers) => ({ headers, query: `?api_key=${bot}` }),
    (headers) => ({ headers: { ...headers, authorization: `Bearer ${bot}` }, query: '' }),
    (headers) => ({
      headers: { ...headers, 'x-api-key': bot, cookie: `session=${bot}`, 'x-forwarded-for': bot, 'x-custom': bot },
      query: '',
    }),
  ];
  for (const form of forms) {
    for (const path of ['/v1/workspaces/demo/effects', '/v1/workspaces/demo/effects/preview', '/v1/nowhere']) {
      const { headers, query } = form({ 'content-type': 'application/json' });
      await collect(`${path}${query}`, { method: 'POST', headers, body: JSON.stringify(refund({}, freshKey())) });
      await collect(`${path}${query}`, { method: 'POST', headers, body: '{"broken' });
    }
    const { headers, query } = form({ 'content-type': 'application/json', 'idempotency-key': freshKey() });
    await collect(`/payments/v1/payments/pay_9/refunds${query}`, {
      method: 'POST',
      headers,
      body: '{"amount":3,"currency":"EUR"}',
    });
    await collect(`/payments/v1/payments/pay_9${query}`, { headers });
    await collect(`/payments/v1/undeclared${query}`, { headers });
    // A key that is wrong in its last character is as secret as the right one.
    await collect(`/v1/workspaces/demo/effects`, {
      headers: { 'x-api-key': `${bot.slice(0, -1)}${bot.endsWith('0') ? '1' : '0'}` },
    });
  }
  const list = await world.get('/effects', account);
  const upstream = JSON.stringify(await world.upstream.ledger());
  await world.gateway.stop();
  const places = {
    answers: answers.join('\n'),
    effects: JSON.stringify(list.body),
    upstream,
    log: world.gateway.log(),
    files: await everyByteUnder(world.gateway.dataFolder),
  };
  for (const [place, text] of Object.entries(places)) {
    expect(text.length, `${place} was looked at`).toBeGreaterThan(10);
    for (const key of [bot, account, world.gateway.administrativeKey])
      expect(text.includes(secretOf(key)), `a key is in ${place}`).toBe(false);
  }
});
