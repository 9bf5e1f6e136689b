import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test, vi } from 'vitest';
import { noteUpkeep, readUpkeep, upkeepNotes, watchUpkeep } from '../../src/gateway/upkeep.ts';

const folder = mkdtempSync(join(tmpdir(), 'svc-upkeep-'));
afterAll(() => rmSync(folder, { recursive: true }));

const HOUR = 3_600_000;
const AT = 1_760_000_000_000;
const NONE = { backup: null, fsck: null, restore: null };

test('a backup is wanting when it is older than asked, or there is none; without the setting nobody asks', () => {
  const made = { ...NONE, backup: { at: AT, clean: true } };
  expect(upkeepNotes(made, HOUR, AT + HOUR)).toEqual([]);
  expect(upkeepNotes(made, HOUR, AT + HOUR + 1)).toMatchObject([{ part: 'backup' }]);
  expect(upkeepNotes(NONE, HOUR, AT)).toMatchObject([{ part: 'backup' }]);
  expect(upkeepNotes(NONE, null, AT)).toEqual([]);
});

test('a check that found something is told of until one is clean', () => {
  expect(upkeepNotes({ ...NONE, fsck: { at: AT, clean: false } }, null, AT)).toMatchObject([
    { part: 'fsck', since: AT },
  ]);
  expect(upkeepNotes({ ...NONE, fsck: { at: AT, clean: true } }, null, AT)).toEqual([]);
});

test('a restore that could not bring everything over is told of, since when, until somebody acknowledges it', () => {
  const told = upkeepNotes({ ...NONE, restore: { at: AT, clean: false } }, null, AT + HOUR);
  expect(told).toMatchObject([
    { part: 'restore', since: AT, message: expect.stringContaining('svc store accept-loss') },
  ]);
  expect(upkeepNotes({ ...NONE, restore: { at: AT, clean: true } }, null, AT)).toEqual([]);
});

test('what commands note is seen, and told once', async () => {
  expect(await readUpkeep(folder)).toEqual(NONE);
  await noteUpkeep(folder, 'backup', { at: AT, clean: true });
  const told: string[] = [];
  const watch = watchUpkeep(
    folder,
    () => HOUR,
    (what) => told.push(what),
  );
  await watch.begun;
  watch.stop();
  expect(watch.figures()).toEqual({ backup: AT, cleanFsck: null });
  expect(watch.notes()).toMatchObject([{ part: 'backup' }]);
  expect(told).toEqual(['backup_overdue']);
  // Where the store of before is stays known: what it holds may be wanted.
  const restored = { at: AT, clean: false, folder: '/srv/before' };
  await noteUpkeep(folder, 'restore', restored);
  expect((await readUpkeep(folder)).restore).toEqual(restored);
  const lost: string[] = [];
  const second = watchUpkeep(
    folder,
    () => null,
    (what) => lost.push(what),
  );
  await second.begun;
  second.stop();
  expect(lost).toEqual(['restore_lost_calls']);
  rmSync(join(folder, 'last-restore.json'));
  writeFileSync(join(folder, 'last-backup.json'), '{"at":');
  expect(await readUpkeep(folder)).toEqual(NONE);
});

test.each(['null', '7', '{"at":1}', '{"clean":true}', '{"at":"1","clean":true}', '{"at":1,"clean":1}'])(
  'what stands there as %s is on record as nothing',
  async (text) => {
    writeFileSync(join(folder, 'last-backup.json'), text);
    expect(await readUpkeep(folder)).toEqual(NONE);
  },
);

test('a backup whose folder is not known is one all the same, and where there is none is no figure', async () => {
  writeFileSync(join(folder, 'last-backup.json'), '{"at":1,"clean":true,"folder":7}');
  expect((await readUpkeep(folder)).backup).toEqual({ at: 1, clean: true });
  rmSync(join(folder, 'last-backup.json'));
  const watch = watchUpkeep(
    folder,
    () => null,
    () => undefined,
  );
  await watch.begun;
  expect(watch.figures()).toEqual({ backup: null, cleanFsck: null });
  watch.stop();
});

test('a check that found something is an alert, once; a clean one is a figure, and what is found later is told again', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const told: string[] = [];
  const note = (at: number, clean: boolean) => noteUpkeep(folder, 'fsck', { at, clean });
  await note(AT, false);
  const watch = watchUpkeep(
    folder,
    () => null,
    (what) => told.push(what),
  );
  await watch.begun;
  expect([watch.figures().cleanFsck, told]).toEqual([null, ['store_differs']]);
  const day = () => /\d{4}-\d\d-\d\d/.exec(watch.notes()[0]?.message ?? '')?.[0];
  await note(AT + 24 * HOUR, false);
  vi.advanceTimersByTime(10_000);
  await expect.poll(day).toBe('2025-10-10');
  expect(told).toEqual(['store_differs']);
  await note(AT + 48 * HOUR, true);
  vi.advanceTimersByTime(10_000);
  await expect.poll(() => watch.figures().cleanFsck).toBe(AT + 48 * HOUR);
  expect([told, watch.notes()]).toEqual([['store_differs'], []]);
  await note(AT + 72 * HOUR, false);
  vi.advanceTimersByTime(10_000);
  await expect.poll(day).toBe('2025-10-12');
  expect(told).toEqual(['store_differs', 'store_differs']);
  watch.stop();
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});
