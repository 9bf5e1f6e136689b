import { afterAll, beforeAll, expect, it } from 'vitest';
import { type RedisServer, startRedis } from '../redis/servers.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { startWebhookReceiver, type WebhookReceiver } from './webhook-receiver.ts';
import { worldFiles } from './world.ts';

const SECRET = `whsec_${Buffer.from('a secret of the tests, 32 bytes!').toString('base64')}`;
/** One that is silent is believed to be there for 20 s. */
const PATIENT = { timeout: 120_000, interval: 100 } as const;

let redis: RedisServer;
let receiver: WebhookReceiver;
let fleet: Fleet;
beforeAll(async () => {
  redis = await startRedis();
  let random = 4711;
  receiver = await startWebhookReceiver(SECRET, () => {
    random = (random * 75 + 74) % 65_537;
    return random / 65_537 < 0.3;
  });
  fleet = await startFleet({
    gateways: 2,
    store: `url: "${redis.url}", max_freeze: 1s`,
    env: () => ({ SVC_TEST_HOOK_SECRET: SECRET }),
    files: (url) => {
      const files = worldFiles(url);
      const webhook = `webhooks: [ { url: "${receiver.url}", secret: "\${SVC_TEST_HOOK_SECRET}", retry_first: 50ms } ]`;
      return { ...files, config: `${files.config}\n${webhook}\n` };
    },
  });
});
afterAll(async () => {
  await fleet?.close();
  await receiver.close();
  await redis.stop();
});

it('of two gateways one sends each notification, and another goes on when that one is killed', async () => {
  const expected: string[] = [];
  const names = (): readonly string[] => receiver.taken.map(({ type, data }) => `${type} ${data.pause_id}`);
  /** Through both gateways, while it is sent. */
  async function pauses(count: number, ...through: readonly number[]): Promise<void> {
    for (let n = 0; n < count; n += 1) {
      const gateway = through[n % through.length] ?? 0;
      const set = await fleet.ask(gateway, 'POST', '/v1/workspaces/demo/pauses', {
        scope: { agent: 'other-bot' },
        reason: 'test',
      });
      expect(set.status).toBe(201);
      await fleet.ask(gateway, 'DELETE', `/v1/workspaces/demo/pauses/${set.body.id}`);
      expected.push(`pause.set ${set.body.id}`, `pause.lifted ${set.body.id}`);
    }
  }
  const arrived = () => expect.poll(() => expected.filter((name) => !names().includes(name)), PATIENT).toEqual([]);

  await pauses(20, 0, 1);
  await arrived();
  expect(names()).toHaveLength(expected.length);
  let kills = 0;
  // Whichever of them sends, it is killed once.
  for (const killed of [0, 1]) {
    await pauses(10, 0, 1);
    fleet.gateways[killed]?.kill('SIGKILL');
    kills += 1;
    await pauses(10, 1 - killed);
    await arrived();
    await fleet.restart(killed);
  }
  expect(receiver.unsigned).toEqual([]);
  expect(new Set(receiver.taken.map(({ id }) => id)).size).toBe(new Set(names()).size);
  expect(names().length - new Set(names()).size).toBeLessThanOrEqual(kills);
}, 300_000);
