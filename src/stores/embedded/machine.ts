import { readFileSync } from 'node:fs';
import { uptime } from 'node:os';

/** The store's time at a moment that the machine can find again for as long as it is up. */
export interface TimeSeen {
  /** Of the machine's start. */
  readonly boot: string;
  /** How long it had been up, ms, the time that it slept included. */
  readonly upMs: number;
  readonly time: number;
}

/** Notes the store's time by the machine's own count; `null` where the system does not name its start. */
export function noteTime(time: number): TimeSeen | null {
  const boot = bootOfMachine();
  return boot === null ? null : { boot, upMs: Math.round(uptime() * 1000), time };
}

/** What the time is by the machine's own count since it was noted; `null` where it has been off since. */
export function countFrom(seen: TimeSeen | null): number | null {
  if (seen === null || seen.boot !== bootOfMachine()) return null;
  const elapsed = uptime() * 1000 - seen.upMs;
  // Less than before: the machine was set back to an earlier state of its own.
  return elapsed < 0 ? null : seen.time + elapsed;
}

function bootOfMachine(): string | null {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return null;
  }
}
