import { readFileSync } from 'node:fs';
import { uptime } from 'node:os';

/** The store's time at a moment that can be found again from the machine's uptime, as long as the machine stays up. */
export interface TimeSeen {
  /** Identifies the start of the machine. */
  readonly boot: string;
  /** How long it had been up, ms, including the time that it slept. */
  readonly upMs: number;
  readonly time: number;
}

/** Records the store's time with the machine's uptime; `null` if the system does not identify its start. */
export function noteTime(time: number): TimeSeen | null {
  const boot = bootOfMachine();
  return boot === null ? null : { boot, upMs: Math.round(uptime() * 1000), time };
}

/** What the time is now, from the uptime since it was recorded; `null` if the machine was off since. */
export function countFrom(seen: TimeSeen | null): number | null {
  if (seen === null || seen.boot !== bootOfMachine()) return null;
  const elapsed = uptime() * 1000 - seen.upMs;
  // Less than before: the machine was restored from an earlier snapshot.
  return elapsed < 0 ? null : seen.time + elapsed;
}

function bootOfMachine(): string | null {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return null;
  }
}
