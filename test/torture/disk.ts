import { spawnSync } from 'node:child_process';
import { statfsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A folder on a file system of its own. */
export interface Disk {
  readonly folder: string;
  /** Leaves room for so many bytes; `null` where nobody may make a file system (only root can), and none gets full. */
  readonly fill: ((spareBytes: number) => void) | null;
  /** There is room again. */
  empty(): void;
  remove(): Promise<void>;
}

const ROOM = '2g';

/** Disks of a run that is broken off go with its process. */
const mounted = new Set<string>();
process.once('exit', () => {
  for (const folder of mounted) unmount(folder);
});

function unmount(folder: string): void {
  // Lazily: a process that is just ending may still hold files.
  spawnSync('/bin/umount', ['-l', folder], { stdio: 'ignore' });
  mounted.delete(folder);
}

/** Makes a disk in memory that can be filled; where that is not allowed, a plain folder. */
export async function makeDisk(): Promise<Disk> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-disk-'));
  const mount = (options: string, ...rest: readonly string[]): boolean =>
    spawnSync('/bin/mount', ['-o', options, ...rest, folder], { stdio: 'ignore' }).status === 0;
  const isOwn = process.getuid?.() === 0 && mount(`size=${ROOM}`, '-t', 'tmpfs', 'tmpfs');
  if (isOwn) mounted.add(folder);
  return {
    folder,
    fill: isOwn
      ? (spareBytes) => {
          // Somebody writes meanwhile: what is in use grows until the limit is below it no more.
          for (let tries = 0; tries < 50; tries += 1) {
            const { blocks, bfree, bsize } = statfsSync(folder);
            if (mount(`remount,size=${(blocks - bfree) * bsize + spareBytes}`)) return;
          }
          throw new Error(`the disk at ${folder} cannot be made smaller`);
        }
      : null,
    empty() {
      if (isOwn && !mount(`remount,size=${ROOM}`)) throw new Error(`the disk at ${folder} stays full`);
    },
    async remove() {
      if (isOwn) unmount(folder);
      await rm(folder, { recursive: true, force: true });
    },
  };
}
