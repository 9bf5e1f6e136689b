import { existsSync } from 'node:fs';
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { startRedis, startReplicated, until } from '../redis/servers.ts';
import { onRedis, startFleet } from './fleet.ts';
import { startGateway } from './gateway.ts';
import { refund, worldFiles } from './world.ts';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const newSecret = (): string => `${randomBytes(32).toString('base64url')}\n`;

describe('the master secret of a store on Redis', () => {
  it('is the same for all gateways: one with another does not start, nor does one without', async () => {
    const redis = await startRedis();
    closers.push(() => redis.stop());
    const store = `url: "${redis.url}", max_freeze: 1s`;
    const fleet = await startFleet({ gateways: 1, store });
    closers.push(() => fleet.close());
    const files = onRedis(worldFiles('http://127.0.0.1:9'), store);
    const other = await mkdtemp(join(tmpdir(), 'svc-other-'));
    closers.push(() => rm(other, { recursive: true, force: true }));
    const start = () =>
      startGateway(files, { env: { SVC_TEST_SHARED: other } }).then((gateway) => {
        closers.push(() => gateway.dispose());
      });
    await expect(start()).rejects.toThrow(/master secret .* is missing, and the store is in use/);
    expect(existsSync(join(other, 'master'))).toBe(false);
    await writeFile(join(other, 'master'), newSecret(), { mode: 0o600 });
    await expect(start()).rejects.toThrow(/another master secret/);
    // The secret itself is nowhere in the store.
    const master = (await readFile(join(fleet.shared, 'master'), 'utf8')).trim();
    const mark = await redis.client.get('svc:{_}:r:secret:');
    expect(mark).not.toBeNull();
    expect(mark).not.toContain(master);
    await copyFile(join(fleet.shared, 'master'), join(other, 'master'));
    await start();
  });
});

describe('a primary without a replica, where replicas confirm', () => {
  it('a gateway that is started again listens, answers 503, and works when there is one', async () => {
    const servers = await startReplicated(1);
    const [replica] = servers.replicas;
    if (replica === undefined) throw new Error('no replica');
    closers.push(() => servers.stop());
    const fleet = await startFleet({
      gateways: 1,
      store: `url: "${servers.primary.url}", durability: replica, max_freeze: 1s`,
    });
    closers.push(() => fleet.close());
    expect((await fleet.run(0, refund())).body.decision).toBe('committed');
    await replica.kill();
    await fleet.gateways[0]?.stop();
    await fleet.restart(0);
    expect((await fleet.run(0, refund())).status).toBe(503);
    expect((await fleet.ask(0, 'GET', '/readyz')).status).toBe(503);
    expect((await fleet.ask(0, 'GET', '/livez')).status).toBe(200);
    await replica.start();
    await until(async () => (await fleet.ask(0, 'GET', '/readyz')).status === 200);
    expect((await fleet.run(0, refund())).body.decision).toBe('committed');
  });
});
