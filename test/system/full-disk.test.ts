import { execFile } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { until } from '../redis/servers.ts';
import { makeDisk } from '../torture/disk.ts';
import { svc } from './command-line.ts';
import { refund, startWorld, worldFiles } from './world.ts';

/** What `svc doctor` finds, by name. */
function doctor(file: string): Promise<Readonly<Record<string, string>>> {
  return new Promise((done) => {
    execFile(process.execPath, ['bin/svc.mjs', 'doctor', file, '--json'], (_, out) => {
      const { checks } = JSON.parse(out);
      done(
        Object.fromEntries(
          checks.map(({ name, status, detail }: Record<string, string>) => [name, `${status}: ${detail}`]),
        ),
      );
    });
  });
}

/** What `svc status` prints. */
function status(url: string, key: string): Promise<string> {
  const env = { ...process.env, SVC_API_KEY: key, SVC_BASE_URL: url, SVC_WORKSPACE: 'demo' };
  return new Promise((done) => {
    execFile(process.execPath, ['bin/svc.mjs', 'status'], { env }, (_, out) => done(out));
  });
}

it.skipIf(process.getuid?.() !== 0)(
  'a full disk under a gateway that runs is seen by doctor, and its end, too',
  async (context) => {
    const disk = await makeDisk();
    const { fill } = disk;
    if (fill === null) return context.skip('nobody may make a file system here');
    const files = (url: string) => {
      const { config, policies } = worldFiles(url);
      return { config: config.replace('${SVC_TEST_DATA}', join(disk.folder, 'data')), policies };
    };
    const world = await startWorld({ files, lost: true });
    try {
      const { gateway } = world;
      // Where it listens is chosen by the system; the configuration of an operator says it.
      const file = join(gateway.folder, 'doctor.yaml');
      const config = await readFile(gateway.configFile, 'utf8');
      const { port } = new URL(gateway.url);
      await writeFile(
        file,
        config.replace('port: 0', `port: ${port}`).replace('${SVC_TEST_POLICIES}', gateway.policyFolder),
      );
      expect((await world.run(refund())).body.decision).toBe('committed');
      expect(await doctor(file)).toMatchObject({ gateway: 'ok: takes calls', disk: expect.stringMatching(/^ok: /) });
      const backUp = () => svc(gateway.folder, {}, 'backup', join(disk.folder, 'backup'));
      fill(64 * 1024);
      expect(await backUp()).toMatchObject({ code: 2, err: expect.stringContaining('Make room, or name a folder') });
      expect(readdirSync(join(disk.folder, 'backup'))).toEqual([]);
      fill(0);
      await until(async () => (await world.run(refund())).status === 503);
      expect(await doctor(file)).toMatchObject({
        gateway: expect.stringMatching(/^failed: takes no calls: The disk under the store .* is full/),
        disk: expect.stringMatching(/^failed: 0\.0 GiB free/),
      });
      // One cause, one sentence, and what can be told all the same.
      const told = await status(gateway.url, world.keys.account);
      expect(told.match(/cannot be told/g)).toHaveLength(1);
      expect(told).toMatch(/^gateway +takes no calls\n.*\n +The disk under the store .* is full/m);
      expect(told).toMatch(
        /^store +cannot be told of unknown, .*refused: The store cannot be reached.*\n  svc doctor gateway\.yaml/m,
      );
      disk.empty();
      await until(async () => (await doctor(file))['gateway'] === 'ok: takes calls');
      expect(await backUp()).toMatchObject({ code: 0 });
      await gateway.stop();
      const restore = () => svc(gateway.folder, {}, 'restore', join(disk.folder, 'backup'), '--replace');
      fill(64 * 1024);
      expect(await restore()).toMatchObject({ code: 2, err: expect.stringContaining('no room') });
      expect(existsSync(join(disk.folder, 'data', 'restoring'))).toBe(false);
      disk.empty();
      expect(await restore()).toMatchObject({ code: 0 });
    } finally {
      await world.close();
      await disk.remove();
    }
  },
);
