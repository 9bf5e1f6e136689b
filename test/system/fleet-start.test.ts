import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { startGateway as startGatewayHere } from '../../src/gateway/start.ts';
import { routeTo, startRedis } from '../redis/servers.ts';
import { onRedis } from './fleet.ts';
import { makeApiKey, send, startGateway } from './gateway.ts';
import { refund, worldFiles } from './world.ts';
import { startLedgerUpstream } from '../upstream/start.ts';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

describe('several gateways that start at once on an empty Redis', () => {
  it('share one installation, one master secret and one first administrative key', async () => {
    const redis = await startRedis();
    closers.push(() => redis.stop());
    const shared = await mkdtemp(join(tmpdir(), 'svc-start-'));
    closers.push(() => rm(shared, { recursive: true, force: true }));
    const upstream = await startLedgerUpstream({ ledger: join(shared, 'ledger.jsonl') });
    closers.push(() => upstream.stop());
    const files = onRedis(worldFiles(upstream.url), `url: "${redis.url}", max_freeze: 1s`);
    // Each is given a first key of its own.
    const gateways = await Promise.all([1, 2, 3].map(() => startGateway(files, { env: { SVC_TEST_SHARED: shared } })));
    closers.push(() => Promise.all(gateways.map((gateway) => gateway.dispose())));

    expect(await redis.client.zcard('svc:{_}:z:keys')).toBe(1);
    const works = await Promise.all(
      gateways.map(async ({ url, administrativeKey }) => {
        const answer = await send(url, administrativeKey, 'GET', '/v1/beta/users/olga/keys');
        expect([200, 401], JSON.stringify(answer.body)).toContain(answer.status);
        return answer.status === 200;
      }),
    );
    expect(works.filter(Boolean)).toHaveLength(1);

    const [first] = gateways.filter((_, index) => works[index]);
    const key = await makeApiKey(first!, 'olga', { kind: 'agent', agent_id: 'bot', workspace: 'demo' });
    for (const { url } of gateways) {
      const answer = await send(url, key, 'POST', '/v1/workspaces/demo/effects', refund());
      expect(answer.body.decision).toBe('committed');
    }
  });
});

it('the first administrative key is left in a file where the store comes so late that nobody is shown it any more', async () => {
  const redis = await startRedis();
  closers.push(() => redis.stop());
  const route = await routeTo(redis);
  closers.push(() => route.stop());
  route.cut();
  const folder = await mkdtemp(join(tmpdir(), 'svc-late-'));
  closers.push(() => rm(folder, { recursive: true, force: true }));
  const configFile = join(folder, 'gateway.yaml');
  await writeFile(
    configFile,
    `
store: { kind: redis, url: "${route.url}", journal: "${folder}/journal" }
secrets: { master: { file: "${folder}/master" } }
receipts: { keys: "${folder}/keys" }
workspaces: [ { id: demo } ]
`,
  );
  // Made by hand: no gateway makes one while it cannot ask whether the store has seen one.
  await writeFile(join(folder, 'master'), randomBytes(32).toString('base64'), { mode: 0o600 });
  const gateway = await startGatewayHere({ configFile, environment: {}, port: 0, log: 'none', firstKey: 'shown' });
  closers.push(() => gateway.close());
  expect(gateway.administrativeKey).toBeNull();
  route.heal();
  await expect.poll(() => gateway.administrativeKey).not.toBeNull();
  const left = gateway.administrativeKey;
  expect(left !== null && 'file' in left && (await readFile(left.file, 'utf8'))).toMatch(/^svc_/);
});
