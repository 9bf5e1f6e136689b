import { readFileSync } from 'node:fs';

/** What the gateway has open for itself: the store with its journals, logs, threads, the admin port. */
const OWN_FILES = 64;

/**
 * How many connections of callers the gateway may hold: as many as are set, and never so many that the process could not
 * open what each of them may need, which is one connection to an upstream, beside what the gateway has open itself.
 * @param files how many files the process may have open; `null` where that cannot be told
 */
export function connectionsOf(set: number, files: number | null): number {
  if (files === null) return set;
  return Math.max(1, Math.min(set, Math.floor((files - OWN_FILES) / 2)));
}

/** How many files the process may have open (`ulimit -n`), where the system says so (Linux). */
export function openFilesLimit(): number | null {
  try {
    const soft = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return soft === undefined ? null : Number(soft);
  } catch {
    return null;
  }
}
