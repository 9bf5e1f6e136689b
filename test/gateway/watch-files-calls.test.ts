import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { stampOf, watchFiles } from '../../src/gateway/watch-files.ts';

/** Calls of the file system that hold the thread which makes them. */
const calls = vi.hoisted(() => ({ made: 0 }));

vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>();
  const counted = <Call extends (...given: never[]) => unknown>(call: Call): Call =>
    new Proxy(call, {
      apply(target, self, given) {
        calls.made += 1;
        return Reflect.apply(target, self, given);
      },
    });
  return {
    ...real,
    lstatSync: counted(real.lstatSync),
    readdirSync: counted(real.readdirSync),
    realpathSync: counted(real.realpathSync),
    statSync: counted(real.statSync),
  };
});

const FILES = 300;
let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-watch-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

it('looks at each of many files once for its stamp, and once for the folder that it leads to', async () => {
  const files = Array.from({ length: FILES }, (_, at) => join(folder, `${at}.yaml`));
  for (const file of files) writeFileSync(file, '');
  calls.made = 0;
  const stamp = stampOf([folder, ...files]);
  expect(calls.made).toBeLessThan(FILES + 10);
  expect(stamp.split('\n')).toHaveLength(FILES + 1);
  calls.made = 0;
  const watching = watchFiles(
    () => [folder, ...files],
    () => {},
    stamp,
  );
  await watching.close();
  expect(calls.made).toBeLessThan(FILES + 20);
});

it('looks at thousands of files in many turns, so that calls are answered in between', async () => {
  const files = Array.from({ length: FILES }, (_, at) => join(folder, `${at}.yaml`));
  for (const file of files) writeFileSync(file, '');
  // The clock of this test goes on by the calls alone: each takes a tenth of what one turn may.
  vi.spyOn(performance, 'now').mockImplementation(() => calls.made / 10);
  const watching = watchFiles(
    () => [folder, ...files],
    () => {},
  );
  appendFileSync(join(folder, '7.yaml'), 'name: x');
  // Each once for the stamp, and once for the folder that it leads to.
  const all = calls.made + 2 * FILES;
  let most = 0;
  while (calls.made < all) {
    const before = calls.made;
    await new Promise((resolve) => setImmediate(resolve));
    most = Math.max(most, calls.made - before);
  }
  await watching.close();
  vi.restoreAllMocks();
  expect(most).toBeLessThan(FILES / 4);
});

it('has a file that only counts because it is named, though it stands in a folder that is named before it', () => {
  const list = join(folder, 'names.txt');
  writeFileSync(list, 'Ada');
  const before = stampOf([folder, list]);
  writeFileSync(list, 'Ada, Tom');
  expect(stampOf([folder, list])).not.toBe(before);
});
