import { afterEach, expect, it } from 'vitest';
import { DEEP } from '../deep.ts';
import { startWebhookReceiver, type WebhookReceiver } from './webhook-receiver.ts';
import { type Answer, makeApiKey, send, startGateway, type TestGateway } from './gateway.ts';
import { worldFiles } from './world.ts';

/** In full with `npm run test:deep`. */
const [NOTIFICATIONS, KILLS] = DEEP ? [1_000, 5] : [120, 2];
const SECRET = `whsec_${Buffer.from('a secret of the tests, 32 bytes!').toString('base64')}`;
const PATIENT = { timeout: 240_000, interval: 100 } as const;

let receiver: WebhookReceiver | null = null;
let gateway: TestGateway | null = null;
afterEach(async () => {
  await gateway?.dispose();
  await receiver?.close();
});

it(`${NOTIFICATIONS} notifications, of which the receiver takes 70 % at each attempt, and ${KILLS} kills: none is lost, none unsigned, and one a kill comes twice, with the same webhook-id`, async () => {
  // As at random, and the same in each run.
  let state = 4711;
  receiver = await startWebhookReceiver(SECRET, () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31 < 0.3;
  });
  const world = worldFiles('http://127.0.0.1:9');
  const webhook = `webhooks: [ { url: "${receiver.url}", secret: "\${SVC_TEST_HOOK_SECRET}", retry_first: 50ms } ]`;
  const started = await startGateway(
    { ...world, config: `${world.config}\n${webhook}\n` },
    { env: { SVC_TEST_HOOK_SECRET: SECRET } },
  );
  gateway = started;
  const { taken } = receiver;
  let current: TestGateway = started;
  const key = await makeApiKey(started, 'tom', { kind: 'account', workspace: 'demo' });

  /** Asks until there is an answer: the gateway may be killed meanwhile. */
  async function ask(method: string, path: string, body?: unknown): Promise<Answer> {
    for (;;)
      try {
        return await send(current.url, key, method, `/v1/workspaces/demo/pauses${path}`, body);
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
  }

  const expected: string[] = [];
  const producing = (async () => {
    while (expected.length < NOTIFICATIONS) {
      const set = await ask('POST', '', { scope: { agent: 'other-bot' }, reason: 'test' });
      if (set.status !== 201) continue;
      expected.push(`pause.set ${set.body.id}`);
      const lifted = await ask('DELETE', `/${set.body.id}`);
      // 404: it was lifted, and the answer was lost.
      expect([200, 204, 404]).toContain(lifted.status);
      expected.push(`pause.lifted ${set.body.id}`);
    }
  })();

  for (let kill = 1; kill <= KILLS; kill += 1) {
    const after = Math.floor((NOTIFICATIONS * kill) / (KILLS + 2));
    await expect.poll(() => taken.length, PATIENT).toBeGreaterThanOrEqual(after);
    current.kill('SIGKILL');
    current = await current.restart();
  }
  await producing;
  const names = (): Set<string> => new Set(taken.map(({ type, data }) => `${type} ${data.pause_id}`));
  await expect.poll(() => expected.filter((name) => !names().has(name)), PATIENT).toEqual([]);

  expect(receiver.unsigned).toEqual([]);
  const ids = new Set(taken.map(({ id }) => id));
  expect(ids.size).toBe(names().size);
  expect(taken.length - ids.size).toBeLessThanOrEqual(KILLS);
  expect(receiver.asked()).toBeGreaterThan(expected.length * 1.2);
  const waiting = await send(current.url, current.administrativeKey, 'GET', '/v1/beta/notifications?state=dead');
  expect(waiting.body.notifications).toEqual([]);
}, 600_000);
