import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { svc } from './command-line.ts';
import { freshKey, refund, startWorld, type World } from './world.ts';

/* Which folders svc backup and svc restore take, by real processes. */

let world: World;
beforeAll(async () => {
  world = await startWorld();
  for (let made = 0; made < 20; made += 1) await world.run(refund({ amount: 1 }, freshKey()));
});
afterAll(() => world.close());

const command = (...words: readonly string[]): ReturnType<typeof svc> => svc(world.gateway.folder, {}, ...words);
const named = (name: string): string => join(world.gateway.folder, name);

it('of backups that begin at once in one folder, one is made and whole, and the others say so and remove nothing', async () => {
  for (let round = 0; round < 5; round += 1) {
    const folder = named(`at-once-${round}`);
    mkdirSync(folder);
    const ended = await Promise.all([1, 2, 3].map(() => command('backup', folder)));
    expect(
      ended.filter(({ code }) => code === 0),
      JSON.stringify(ended),
    ).toHaveLength(1);
    expect(ended.filter(({ code }) => code === 2)).toHaveLength(2);
    for (const { code, err } of ended)
      if (code !== 0) expect(err).toMatch(/is not empty|is being written or was interrupted/);
    const { files } = JSON.parse(readFileSync(join(folder, 'backup.json'), 'utf8')) as {
      files: Record<string, string>;
    };
    expect(readdirSync(folder).toSorted()).toEqual([...Object.keys(files), 'backup.json'].toSorted());
  }
});

it('a restore takes over no file that the backup does not list, and names it', async () => {
  const folder = named('listed');
  expect(await command('backup', folder)).toMatchObject({ code: 0 });
  mkdirSync(join(folder, 'spill'));
  writeFileSync(join(folder, 'spill', 'eff_x.1.committed.settlement.json'), '{}');
  const elsewhere = { SVC_TEST_DATA: named('another-store') };
  const restored = await svc(world.gateway.folder, elsewhere, 'restore', folder);
  expect(restored).toMatchObject({ code: 2, err: expect.stringContaining('spill/eff_x.1.committed.settlement.json') });
  expect(existsSync(join(elsewhere.SVC_TEST_DATA, 'store.db'))).toBe(false);
  rmSync(join(folder, 'spill'), { recursive: true });
  expect(await svc(world.gateway.folder, elsewhere, 'restore', folder)).toMatchObject({ code: 0 });
});

it('folders may be links; a backup is not lost that stands where a restore is made', async () => {
  const [folder, link] = [named('linked'), named('link')];
  mkdirSync(folder);
  symlinkSync(folder, link);
  expect(await command('backup', link)).toMatchObject({ code: 0 });
  const elsewhere = { SVC_TEST_DATA: named('a-third-store') };
  const work = join(elsewhere.SVC_TEST_DATA, 'restoring');
  for (const place of [work, join(work, 'deeper')]) {
    cpSync(folder, place, { recursive: true });
    const within = named(`within-${place.length}`);
    symlinkSync(place, within);
    for (const from of [place, within]) {
      const refused = await svc(world.gateway.folder, elsewhere, 'restore', from);
      expect(refused, from).toMatchObject({ code: 2, err: expect.stringContaining('svc restore makes a store') });
      expect(existsSync(join(place, 'backup.json'))).toBe(true);
    }
    rmSync(work, { recursive: true });
  }
  const own = join(world.gateway.dataFolder, 'restoring', 'mine');
  expect(await command('backup', own)).toMatchObject({
    code: 2,
    err: expect.stringContaining('svc restore makes a store'),
  });
  const { out } = await svc(world.gateway.folder, elsewhere, 'restore', link);
  expect(out).toContain('is in place');
});
