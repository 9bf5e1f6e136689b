import type { LedgerDraft } from '../effects/model/ledger.ts';

/** How many plans with the same word are written in one second. The rest becomes one counted event. */
const PER_SECOND = 10;

/** Words remembered before those of earlier seconds are dropped. */
const REMEMBERED = 10_000;

interface Word {
  second: number;
  admitted: number;
  counted: number;
  workspace: string;
  sample: LedgerDraft | null;
}

/** Keeps duplicates and denials from costing a write each: a retry storm becomes one event a second. */
export function createThrottle() {
  const words = new Map<string, Word>();
  const counted = new Set<Word>();
  return {
    /** Whether to write a plan with this word; otherwise it is counted. */
    admits(word: string, workspace: string, events: readonly LedgerDraft[], now: number): boolean {
      const second = Math.floor(now / 1000);
      let entry = words.get(word);
      if (entry === undefined || entry.second !== second) {
        if (words.size > REMEMBERED) {
          for (const [old, { second: of }] of words) if (of !== second) words.delete(old);
        }
        entry = { second, admitted: 0, counted: 0, workspace, sample: null };
        words.set(word, entry);
      }
      if (entry.admitted < PER_SECOND) {
        entry.admitted += 1;
        return true;
      }
      entry.counted += 1;
      entry.sample = events.at(-1) ?? null;
      counted.add(entry);
      return false;
    },
    /** Counted events of past seconds; each is returned once. */
    due(now: number): readonly { readonly workspace: string; readonly event: LedgerDraft }[] {
      if (counted.size === 0) return [];
      const second = Math.floor(now / 1000);
      const due: { workspace: string; event: LedgerDraft }[] = [];
      for (const entry of counted) {
        if (entry.second === second) continue;
        counted.delete(entry);
        const { sample, workspace } = entry;
        if (sample === null) continue;
        due.push({ workspace, event: { ...sample, data: { ...sample.data, repeated: entry.counted } } });
      }
      return due;
    },
    /** Whether any counted events have not been returned yet. */
    pending: (): boolean => counted.size > 0,
  };
}
