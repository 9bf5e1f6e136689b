import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  watch as noticesOf,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { loadConfiguration } from '../../src/config/load.ts';
import { stampOf, watchFiles, type FileWatch } from '../../src/gateway/watch-files.ts';

let folder = '';
let watching: FileWatch | null = null;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-watch-'));
});
afterEach(async () => {
  await watching?.close();
  rmSync(folder, { recursive: true });
});

/** Watches and counts; `next` waits until a change more was told than at the call before. */
function watch(paths: () => readonly string[]): { told: () => number; next: () => Promise<void> } {
  let told = 0;
  let seen = 0;
  watching = watchFiles(paths, () => {
    told++;
  });
  return {
    told: () => told,
    next: async () => {
      await vi.waitFor(() => expect(told).toBeGreaterThan(seen), { timeout: 40_000, interval: 10 });
      seen = told;
    },
  };
}

it('another state that is adopted while a change is told is compared with the files once more', async () => {
  const file = join(folder, 'a.yaml');
  writeFileSync(file, 'a: 1\n');
  let told = 0;
  const own = watchFiles(
    () => [file],
    () => {
      told += 1;
      if (told === 1) own.adopted('what was read meanwhile');
    },
  );
  watching = own;
  writeFileSync(file, 'a: 22\n');
  await vi.waitFor(() => expect(told).toBe(2), { timeout: 3_000, interval: 10 });
});

it('what is written into a new folder before it is watched is told at once', async () => {
  const sub = join(folder, 'new');
  const file = join(sub, 'a.yaml');
  let asked = -1;
  const changes = watch(() => {
    // What changed is read first, and then it is seen what to watch from now on: in between there is time to write.
    if (asked >= 0) asked += 1;
    if (asked === 2) writeFileSync(file, 'a: 22\n');
    return [file];
  });
  asked = 0;
  mkdirSync(sub);
  writeFileSync(file, 'a: 1\n');
  await changes.next();
  await vi.waitFor(() => expect(changes.told()).toBe(2), { timeout: 3_000, interval: 10 });
});

describe('changes that are told', () => {
  it('of a file that is written anew with the same size, and the time that it had', () => {
    const file = join(folder, 'gateway.yaml');
    writeFileSync(file, 'a: 1\n');
    const written = new Date('2026-01-01');
    utimesSync(file, written, written);
    const before = stampOf([file]);
    expect(stampOf([file])).toBe(before);
    writeFileSync(file, 'a: 2\n');
    utimesSync(file, written, written);
    expect(stampOf([file])).not.toBe(before);
  });

  it('writing, appending, renaming over, removing and making anew', async () => {
    const file = join(folder, 'gateway.yaml');
    writeFileSync(file, 'a: 1\n');
    const changes = watch(() => [file]);
    writeFileSync(file, 'a: 2\n');
    await changes.next();
    appendFileSync(file, 'b: 1\n');
    await changes.next();
    writeFileSync(`${file}.new`, 'a: 3\n');
    renameSync(`${file}.new`, file);
    await changes.next();
    unlinkSync(file);
    await changes.next();
    writeFileSync(file, 'a: 4\n');
    await changes.next();
  });

  it('a ConfigMap: the link above the files is swapped', async () => {
    for (const version of ['1', '2']) {
      mkdirSync(join(folder, `..${version}`));
      writeFileSync(join(folder, `..${version}`, 'gateway.yaml'), `a: ${version}\n`);
    }
    symlinkSync('..1', join(folder, '..data'));
    symlinkSync(join('..data', 'gateway.yaml'), join(folder, 'gateway.yaml'));
    const changes = watch(() => [join(folder, 'gateway.yaml')]);
    symlinkSync('..2', join(folder, '..data_tmp'));
    renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
    rmSync(join(folder, '..1'), { recursive: true });
    await changes.next();
  });

  it('the target of a link that stands elsewhere', async () => {
    mkdirSync(join(folder, 'real'));
    mkdirSync(join(folder, 'linked'));
    writeFileSync(join(folder, 'real', 'g.yaml'), 'a: 1\n');
    symlinkSync(join(folder, 'real', 'g.yaml'), join(folder, 'linked', 'g.yaml'));
    const changes = watch(() => [join(folder, 'linked', 'g.yaml')]);
    writeFileSync(join(folder, 'real', 'g.yaml'), 'a: 2\n');
    await changes.next();
  });

  it('files that come and go in a watched folder, below it too', async () => {
    const policies = join(folder, 'policies');
    mkdirSync(join(policies, 'team'), { recursive: true });
    const changes = watch(() => [policies]);
    writeFileSync(join(policies, 'a.yaml'), 'a: 1\n');
    await changes.next();
    writeFileSync(join(policies, 'team', 'b.yaml'), 'b: 1\n');
    await changes.next();
    mkdirSync(join(policies, 'new'));
    await changes.next();
    writeFileSync(join(policies, 'new', 'c.yaml'), 'c: 1\n');
    await changes.next();
    unlinkSync(join(policies, 'a.yaml'));
    await changes.next();
  });

  it('a file in a folder that never rests', async () => {
    const file = join(folder, 'gateway.yaml');
    writeFileSync(file, 'a: 1\n');
    const changes = watch(() => [file]);
    let noise = 0;
    const busy = setInterval(() => writeFileSync(join(folder, 'noise'), String(noise++)), 10);
    try {
      writeFileSync(file, 'a: 2\n');
      await changes.next();
    } finally {
      clearInterval(busy);
    }
    expect(changes.told()).toBe(1);
  });

  it('a folder that is removed and made anew', async () => {
    const policies = join(folder, 'policies');
    mkdirSync(policies);
    writeFileSync(join(policies, 'a.yaml'), 'a: 1\n');
    const changes = watch(() => [policies]);
    for (const round of ['2', '3']) {
      rmSync(policies, { recursive: true });
      await changes.next();
      mkdirSync(policies);
      await changes.next();
      writeFileSync(join(policies, 'a.yaml'), `a: ${round}\n`);
      await changes.next();
    }
  });

  it('files that a change has brought in', async () => {
    const [one, two] = [join(folder, 'one.yaml'), join(folder, 'sub', 'two.yaml')];
    mkdirSync(join(folder, 'sub'));
    writeFileSync(one, '1');
    writeFileSync(two, '2');
    const paths = [one];
    const changes = watch(() => paths);
    paths.push(two);
    writeFileSync(one, '11');
    await changes.next();
    writeFileSync(two, '22');
    await changes.next();
  });
});

describe('changes that are none', () => {
  it('new times, the same content again, other files in the folder', async () => {
    const file = join(folder, 'gateway.yaml');
    writeFileSync(file, 'a: 1\n');
    const changes = watch(() => [file]);
    utimesSync(file, new Date(), new Date());
    writeFileSync(file, 'a: 1\n');
    writeFileSync(join(folder, 'other.yaml'), 'x: 1\n');
    // What is told next is this change, and only this one.
    writeFileSync(file, 'a: 2\n');
    await changes.next();
    expect(changes.told()).toBe(1);
  });

  it('many writes in a row are one', async () => {
    const file = join(folder, 'gateway.yaml');
    writeFileSync(file, 'a: 0\n');
    const changes = watch(() => [file]);
    for (let part = 0; part < 50; part++) appendFileSync(file, `k${part}: 1\n`);
    await changes.next();
    expect(changes.told()).toBe(1);
  });

  it('nothing is told before 100 ms have passed in which nothing moved', async () => {
    const file = join(folder, 'gateway.yaml');
    writeFileSync(file, 'a: 1\n');
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
    try {
      let told = 0;
      watching = watchFiles(
        () => [file],
        () => (told += 1),
      );
      const atRest = vi.getTimerCount();
      writeFileSync(file, 'a: 2\n');
      // The notice of the system is no timer.
      while (vi.getTimerCount() === atRest) await turn();
      vi.advanceTimersByTime(99);
      for (let turns = 0; turns < 20; turns += 1) await turn();
      expect(told).toBe(0);
      vi.advanceTimersByTime(1_000);
      while (told === 0) await turn();
    } finally {
      vi.useRealTimers();
    }
  });

  it('a change while another settles begins the 100 ms anew, for a second at most', async () => {
    const file = join(folder, 'gateway.yaml');
    writeFileSync(file, 'a: 1\n');
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
    let notices = 0;
    let told = 0;
    const own = watchFiles(
      () => [file],
      () => (told += 1),
    );
    watching = own;
    // Made later, so it hears of a change after the watch that is looked at.
    const also = noticesOf(folder, { persistent: false }, () => (notices += 1));
    try {
      const change = async (to: number): Promise<void> => {
        const before = notices;
        writeFileSync(file, `a: ${to}\n`);
        while (notices === before) await turn();
        for (let turns = 0; turns < 20; turns += 1) await turn();
      };
      for (let at = 0; at < 12; at += 1) {
        await change(10 + at);
        expect(told).toBe(0);
        vi.advanceTimersByTime(80);
      }
      await change(99);
      expect(told).toBe(0);
      vi.advanceTimersByTime(40);
      while (told === 0) await turn();
    } finally {
      also.close();
      vi.useRealTimers();
    }
  });

  it('nothing is told after the watch is closed', async () => {
    const [file, other] = [join(folder, 'one.yaml'), join(folder, 'two.yaml')];
    writeFileSync(file, '1');
    const closed = watch(() => [file]);
    await watching?.close();
    const open = watch(() => [other]);
    writeFileSync(file, '2');
    writeFileSync(other, '2');
    await open.next();
    expect(closed.told()).toBe(0);
  });
});

describe('a reload', () => {
  it('keeps the last good file while one is empty or half written, and takes the whole one', async () => {
    const file = join(folder, 'gateway.yaml');
    const yaml = (port: number) => `server:\n  port: ${port}\nusers: [{ id: maria, roles: [finance] }]\n`;
    writeFileSync(file, yaml(1));
    let good = (await loadConfiguration(file)).configuration;
    const refused: string[] = [];
    const changes = watch(() => [file]);
    const reload = async (): Promise<void> => {
      await changes.next();
      try {
        good = (await loadConfiguration(file)).configuration;
      } catch (error) {
        refused.push(error instanceof Error ? error.name : '');
      }
    };
    writeFileSync(file, '');
    await reload();
    writeFileSync(file, yaml(2).slice(0, -12));
    await reload();
    expect(refused).toEqual(['InvalidFiles', 'InvalidFiles']);
    expect(good.server.port).toBe(1);
    writeFileSync(file, yaml(2));
    await reload();
    expect(good.server.port).toBe(2);
  });
});
