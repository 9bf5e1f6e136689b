import type { Found, ReadRow } from '../stores/port.ts';

/** The most rows, and the most characters of texts, that are remembered. */
const MOST_ROWS = 20_000;
const MOST_CHARACTERS = 32 * 1024 * 1024;

/**
 * Rows as they were last seen, and as running changes will leave them. A remembered row may be out of date. Steps guard
 * what they looked at, so a wrong memory only costs a second run.
 */
export interface RecentRows {
  get(workspace: string, kind: string, id: string): ReadRow | undefined;
  /** A clock that counts questions and answers. */
  tick(): number;
  /** Learns what a read or a refused change returned. What was learned after `asked` is newer and stays. */
  learn(workspace: string, found: readonly Found[], asked: number): void;
  /** A change starts: later steps see what it writes. */
  begin(workspace: string, written: readonly Found[]): UnderWay;
  done(change: UnderWay): void;
  /** The change was refused, or nobody knows its outcome. */
  drop(change: UnderWay): void;
}

interface Entry {
  /** Kind, workspace and id. */
  readonly name: string;
  /** `null`: a running change removes it. */
  readonly row: ReadRow | null;
  underWay: boolean;
  since: number;
}

export type UnderWay = readonly Entry[];

const nameOf = (workspace: string, kind: string, id: string): string => `${kind}\n${workspace}\n${id}`;
const sizeOf = ({ row }: Entry): number => row?.text.length ?? 0;

export function createRecentRows(): RecentRows {
  const entries = new Map<string, Entry>();
  let characters = 0;
  let ticks = 0;
  const tick = (): number => {
    ticks += 1;
    return ticks;
  };

  function remove(entry: Entry): void {
    entries.delete(entry.name);
    characters -= sizeOf(entry);
  }

  /** Delete first, so that the new entry is the last of the map. */
  function set(entry: Entry): void {
    const there = entries.get(entry.name);
    if (there !== undefined) remove(there);
    entries.set(entry.name, entry);
    characters += sizeOf(entry);
  }

  /** Removes the oldest entries, except those of running changes. */
  function shrink(): void {
    if (entries.size <= MOST_ROWS && characters <= MOST_CHARACTERS) return;
    for (const entry of entries.values()) {
      if (!entry.underWay) remove(entry);
      if (entries.size <= MOST_ROWS * 0.9 && characters <= MOST_CHARACTERS * 0.9) return;
    }
  }

  function end(change: UnderWay, known: boolean): void {
    for (const entry of change) {
      // By now a later change of the same row may be running; its own answer decides.
      if (entries.get(entry.name) !== entry) continue;
      if (known && entry.row !== null && entry.row.isOver !== true) {
        entry.underWay = false;
        entry.since = tick();
      } else remove(entry);
    }
    shrink();
  }

  return {
    get: (workspace, kind, id) => entries.get(nameOf(workspace, kind, id))?.row ?? undefined,
    tick,
    learn(workspace, found, asked) {
      for (const { kind, id, row } of found) {
        const name = nameOf(workspace, kind, id);
        const there = entries.get(name);
        if (there !== undefined && (there.underWay || there.since > asked)) continue;
        if (row !== null) set({ name, row, underWay: false, since: tick() });
        else if (there !== undefined) remove(there);
      }
      shrink();
    },
    begin(workspace, written) {
      const change = written.map(({ kind, id, row }) => ({
        name: nameOf(workspace, kind, id),
        row,
        underWay: true,
        since: tick(),
      }));
      for (const entry of change) set(entry);
      return change;
    },
    done: (change) => end(change, true),
    drop: (change) => end(change, false),
  };
}
