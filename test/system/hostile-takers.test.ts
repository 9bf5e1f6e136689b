import { readdirSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeApiKey } from './gateway.ts';
import { freshKey, refund, startWorld, type World } from './world.ts';

/* Clients that take exports and streams of events, and do it badly: what they held is given back. */

let world: World;
let keys: { readonly maria: string; readonly tom: string; readonly olga: string };
beforeAll(async () => {
  world = await startWorld();
  const key = (user: string): Promise<string> =>
    makeApiKey(world.gateway, user, { kind: 'account', workspace: 'demo' });
  keys = { maria: await key('maria'), tom: await key('tom'), olga: await key('olga') };
  const reason = 'x'.repeat(8_000);
  for (let made = 0; made < 400; made += 1) await world.run(refund({ amount: 1, reason }, freshKey()));
});
afterAll(() => world.close());

const descriptors = (): number => readdirSync(`/proc/${world.gateway.pid}/fd`).length;

/** Asks, and reads nothing of the answer. */
function take(path: string, key: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const asked = request(`${world.gateway.url}/v1/workspaces/demo${path}`, {
      headers: { 'x-api-key': key },
      agent: false,
    });
    asked.once('response', (response) => {
      response.pause().on('error', () => undefined);
      resolve(response);
    });
    asked.once('error', reject).end();
  });
}

async function givesBack(taken: readonly IncomingMessage[], before: number): Promise<void> {
  for (const response of taken) response.destroy();
  await expect.poll(descriptors).toBeLessThanOrEqual(before);
}

it('of ten exports at once at most two are made, one of each user; who reads nothing and goes gives the place back', async () => {
  const before = descriptors();
  for (let round = 0; round < 5; round += 1) {
    const taken: IncomingMessage[] = [];
    const takeOne = async (): Promise<number | undefined> => {
      const one = await take('/export?format=bundle', keys.maria);
      taken.push(one);
      return one.statusCode;
    };
    // The places of the round before are given back.
    await expect.poll(takeOne).toBe(200);
    const asked = Array.from({ length: 9 }, (_, n) => [keys.maria, keys.tom, keys.olga][n % 3]!);
    const others = await Promise.all(asked.map((key) => take('/export?format=bundle', key)));
    taken.push(...others);
    expect(others.filter(({ statusCode }) => statusCode === 200).length).toBeLessThanOrEqual(1);
    expect((await world.run(refund({ amount: 1 }, freshKey()))).body.decision).toBe('committed');
    await givesBack(taken, before);
  }
  const headers = { 'x-api-key': keys.olga };
  const whole = async (): Promise<string> => {
    const answer = await fetch(`${world.gateway.url}/v1/workspaces/demo/export?format=bundle`, { headers });
    return (await answer.text()).trimEnd().split('\n').at(-1) ?? '';
  };
  await expect.poll(whole).toContain('seal');
});

it('one key has 20 streams of events at most, which leaves others theirs, and gives them back', async () => {
  const before = descriptors();
  for (let round = 0; round < 3; round += 1) {
    const taken = await Promise.all(Array.from({ length: 40 }, () => take('/effects/stream', keys.tom)));
    expect(taken.filter(({ statusCode }) => statusCode === 200)).toHaveLength(20);
    const other = await take('/effects/stream', keys.maria);
    expect(other.statusCode).toBe(200);
    expect((await world.run(refund({ amount: 1 }, freshKey()))).body.decision).toBe('committed');
    await givesBack([...taken, other], before);
  }
});
