import { readFileSync } from 'node:fs';

/** Files that the gateway itself has open: the store with its journals, logs, threads, the admin port. */
const OWN_FILES = 64;

/**
 * How many connections of callers the gateway may hold: the configured number, but no more than the process has files
 * for. Each connection may need a second one to an upstream, and the gateway needs files itself.
 * @param files how many files the process may have open; `null` if that is not known
 */
export function connectionsOf(set: number, files: number | null): number {
  if (files === null) return set;
  return Math.max(1, Math.min(set, Math.floor((files - OWN_FILES) / 2)));
}

/** How many files the process may have open (`ulimit -n`), if the system tells (Linux). */
export function openFilesLimit(): number | null {
  try {
    const soft = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return soft === undefined ? null : Number(soft);
  } catch {
    return null;
  }
}
