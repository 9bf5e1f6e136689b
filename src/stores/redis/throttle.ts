import { throttledBy } from '../../effects/steps/refusal.ts';
import type { AdmitRequest } from '../../effects/store.ts';

/** Repetitions with one word that are written in one second; what is beyond becomes one counted event. */
const PER_SECOND = 10;

/** Words remembered before those of earlier seconds are dropped. */
const REMEMBERED = 10_000;

interface Word {
  second: number;
  written: number;
  counted: number;
  readonly workspace: string;
  readonly code: string;
  readonly key: string;
  sample: AdmitRequest | null;
  effectId: string;
}

/** A counted event that is due. */
export interface Counted {
  readonly workspace: string;
  readonly code: string;
  readonly sample: AdmitRequest;
  /** Id of the effect that the sample was about. */
  readonly effectId: string;
  readonly repeated: number;
}

/**
 * Keeps duplicates and refusals from costing a write each: beyond ten a second for a key and code the script is told
 * to write nothing, and what was not written becomes one counted event a second.
 */
export interface Throttle {
  /** Codes that are only counted for this key in this second. */
  quiet(workspace: string, key: string, now: number): readonly string[];
  /** A repetition that was written. */
  wrote(workspace: string, key: string, code: string, now: number): void;
  /** A repetition that was not. */
  count(request: AdmitRequest, code: string, effectId: string, now: number): void;
  due(now: number): readonly Counted[];
}

export function createThrottle(): Throttle {
  const words = new Map<string, Map<string, Word>>();
  const counted = new Set<Word>();
  const placeOf = (workspace: string, key: string): string => `${workspace}\n${key}`;

  function wordOf(workspace: string, key: string, code: string, now: number): Word {
    const second = Math.floor(now / 1000);
    const place = placeOf(workspace, key);
    if (words.size > REMEMBERED) {
      for (const [old, codes] of words)
        if ([...codes.values()].every((word) => word.second !== second)) words.delete(old);
    }
    const codes = words.get(place) ?? new Map<string, Word>();
    words.set(place, codes);
    const known = codes.get(code);
    if (known !== undefined && known.second === second) return known;
    const word = { second, written: 0, counted: 0, workspace, code, key, sample: null, effectId: '' };
    codes.set(code, word);
    return word;
  }

  return {
    quiet(workspace, key, now) {
      const codes = words.get(placeOf(workspace, key));
      if (codes === undefined) return [];
      const second = Math.floor(now / 1000);
      return [...codes.values()]
        .filter((word) => word.second === second && word.written >= PER_SECOND)
        .map(({ code }) => code);
    },
    wrote(workspace, key, code, now) {
      wordOf(workspace, key, code, now).written += 1;
    },
    count(request, code, effectId, now) {
      const word = wordOf(request.workspace, throttledBy(request), code, now);
      word.counted += 1;
      word.sample = request;
      word.effectId = effectId;
      counted.add(word);
    },
    due(now) {
      const second = Math.floor(now / 1000);
      const due: Counted[] = [];
      for (const word of counted) {
        if (word.second === second || word.sample === null) continue;
        counted.delete(word);
        const { workspace, code, sample, effectId, counted: repeated } = word;
        due.push({ workspace, code, sample, effectId, repeated });
      }
      return due;
    },
  };
}
