import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { TimeSeen } from './clock.ts';
import { syncFolder } from '../private-folder.ts';

/** What is remembered outside the store's file, so that it is noticed when the store was emptied or set back. */
export interface InstallMark {
  readonly installId: string;
  readonly epoch: number;
  /** How many transactions the store had written when the mark was made; never more than it really has. */
  readonly commits: number;
  /** How many more there were that it does not have, because it was restored, or its loss was accepted. */
  readonly lost: number;
  /** The store's time when the mark was made; `null`: not recorded. */
  readonly seen: TimeSeen | null;
}

/** Reads the mark beside the store, as {@link readMark} does. */
export function readInstallMark(path: string): InstallMark | null {
  return readMark(join(path, 'install.json'));
}

/**
 * Reads a mark.
 * @returns `null` if there is none
 * @throws Error if it exists but cannot be read, because then nobody can tell whether the store is complete
 */
export function readMark(file: string): InstallMark | null {
  let content: string;
  try {
    content = readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
  const mark = parseMark(content);
  if (mark === null) {
    throw new Error(
      `${file} is damaged, so it cannot be told whether the store is complete. Stop the gateway, and continue in a new epoch with svc store accept-loss.`,
    );
  }
  return mark;
}

function parseMark(content: string): InstallMark | null {
  let value: unknown;
  try {
    value = JSON.parse(content);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  if (!('install_id' in value && 'epoch' in value && 'commits' in value)) return null;
  const { install_id: installId, epoch, commits } = value;
  if (typeof installId !== 'string' || typeof epoch !== 'number' || typeof commits !== 'number') return null;
  const lost = 'lost' in value && typeof value.lost === 'number' ? value.lost : 0;
  return { installId, epoch, commits, lost, seen: 'seen' in value ? parseSeen(value.seen) : null };
}

function parseSeen(value: unknown): TimeSeen | null {
  if (typeof value !== 'object' || value === null) return null;
  if (!('boot' in value && 'up_ms' in value && 'time' in value)) return null;
  const { boot, up_ms: upMs, time } = value;
  if (typeof boot !== 'string' || typeof upMs !== 'number' || typeof time !== 'number') return null;
  return { boot, upMs, time };
}

/** Writes the mark beside the store, as {@link writeMark} does. */
export function writeInstallMark(path: string, mark: InstallMark): void {
  writeMark(join(path, 'install.json'), mark);
}

/** Writes a mark completely or not at all, even if the power fails. */
export function writeMark(file: string, { installId, epoch, commits, lost, seen }: InstallMark): void {
  const draft = `${file}.new`;
  const descriptor = openSync(draft, 'w', 0o600);
  try {
    writeSync(
      descriptor,
      `${JSON.stringify({ install_id: installId, epoch, commits, ...(lost === 0 ? {} : { lost }), ...(seen === null ? {} : { seen: { boot: seen.boot, up_ms: seen.upMs, time: seen.time } }) })}\n`,
    );
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  renameSync(draft, file);
  syncFolder(dirname(file));
}
