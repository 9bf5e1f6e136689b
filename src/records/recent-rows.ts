import type { Change, Found, Row } from '../stores/port.ts';

/** Rows and characters of texts that are remembered at most. */
const MOST_ROWS = 20_000;
const MOST_CHARACTERS = 32 * 1024 * 1024;

/**
 * Rows as they were last seen, and as changes that are under way will leave them. What is remembered may be out of date:
 * steps guard what they looked at, so a wrong memory costs a second round and nothing else.
 */
export interface RecentRows {
  get(workspace: string, kind: string, id: string): Row | undefined;
  /** Time by the order of what is asked and learned. */
  tick(): number;
  /** What a read or a refused change brought that was asked at `asked`. What was learned since then is newer. */
  learn(workspace: string, found: readonly Found[], asked: number): void;
  /** The change is under way: later steps see what it writes. */
  begin(change: Change, written: readonly Found[]): void;
  done(change: Change): void;
  /** It was refused, or nobody knows what became of it. */
  drop(change: Change): void;
}

interface Entry {
  /** `null`: a change under way removes it. */
  readonly row: Row | null;
  underWay: boolean;
  since: number;
}

export function createRecentRows(): RecentRows {
  const entries = new Map<string, Entry>();
  let characters = 0;
  let ticks = 0;
  const tick = (): number => {
    ticks += 1;
    return ticks;
  };

  const nameOf = (workspace: string, kind: string, id: string): string => `${kind}\n${workspace}\n${id}`;
  const sizeOf = ({ row }: Entry): number => row?.text.length ?? 0;

  function remove(name: string): void {
    const entry = entries.get(name);
    if (entry === undefined) return;
    entries.delete(name);
    characters -= sizeOf(entry);
  }

  function set(name: string, entry: Entry): void {
    remove(name);
    entries.set(name, entry);
    characters += sizeOf(entry);
  }

  /** The oldest go first, but for what is under way. */
  function shrink(): void {
    if (entries.size <= MOST_ROWS && characters <= MOST_CHARACTERS) return;
    for (const [name, { underWay }] of entries) {
      if (!underWay) remove(name);
      if (entries.size <= MOST_ROWS * 0.9 && characters <= MOST_CHARACTERS * 0.9) return;
    }
  }

  function end(change: Change, known: boolean): void {
    for (const { kind, id } of change.puts) {
      const name = nameOf(change.workspace, kind, id);
      const entry = entries.get(name);
      if (entry === undefined || !entry.underWay) continue;
      // A later change of the same row may be under way by now; it goes by its own answer.
      if (entry.row !== null && entry.row.version !== change.id) continue;
      if (known && entry.row !== null) {
        entry.underWay = false;
        entry.since = tick();
      } else remove(name);
    }
    shrink();
  }

  return {
    get(workspace, kind, id) {
      return entries.get(nameOf(workspace, kind, id))?.row ?? undefined;
    },
    tick,
    learn(workspace, found, asked) {
      for (const { kind, id, row } of found) {
        const name = nameOf(workspace, kind, id);
        const there = entries.get(name);
        if (there !== undefined && (there.underWay || there.since > asked)) continue;
        if (row === null) remove(name);
        else set(name, { row, underWay: false, since: tick() });
      }
      shrink();
    },
    begin(change, written) {
      for (const { kind, id, row } of written)
        set(nameOf(change.workspace, kind, id), { row, underWay: true, since: tick() });
    },
    done: (change) => end(change, true),
    drop: (change) => end(change, false),
  };
}
