import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isJsonObject, type Json } from '../../json/value.ts';
import { parseObject } from '../../json/text.ts';
import type { TimeSeen } from './clock.ts';
import { syncPath } from '../private-folder.ts';

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
  const { install_id: installId, epoch, commits, lost, seen } = parseObject(content) ?? {};
  if (typeof installId !== 'string' || typeof epoch !== 'number' || typeof commits !== 'number') return null;
  return { installId, epoch, commits, lost: typeof lost === 'number' ? lost : 0, seen: parseSeen(seen) };
}

function parseSeen(value: Json | undefined): TimeSeen | null {
  if (!isJsonObject(value)) return null;
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
  syncPath(dirname(file));
}
