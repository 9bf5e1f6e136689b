import type { KeyRecord, KeySeals } from '../effects/model/key.ts';
import type { JudgingSeals, SealJudgement } from '../secrets/key-seals.ts';

/** Called with the record of a key that lets nobody in, or with which other row does not count, and why. */
type Unfit = (of: KeyRecord | { readonly row: string }, why: Exclude<SealJudgement, 'sound'>) => void;

/** Seals for a store that is opened before the secrets, because the store says whether a new secret may be made. */
export interface LateKeySeals extends KeySeals {
  /** From now on records of keys can be read and written. */
  use(seals: JudgingSeals): void;
}

/** @param unfit called each time such a record is read */
export function createLateKeySeals(unfit: Unfit): LateKeySeals {
  let inUse: JudgingSeals | null = null;

  function opened(): JudgingSeals {
    if (inUse === null) throw new Error('Keys are read before the master secret.');
    return inUse;
  }

  return {
    use(seals) {
      inUse = seals;
    },
    seal: (key) => opened().seal(key),
    fits(key, seal) {
      const judgement = opened().judge(key, seal);
      if (judgement !== 'sound') unfit(key, judgement);
      return judgement === 'sound';
    },
    sealRow: (row, text) => opened().sealRow(row, text),
    fitsRow(row, text, seal) {
      const judgement = opened().judgeRow(row, text, seal);
      if (judgement !== 'sound') unfit({ row }, judgement);
      return judgement === 'sound';
    },
  };
}

/** For code that only lists keys and lets nobody in by them. */
export const UNJUDGED: JudgingSeals = {
  seal() {
    throw new Error('Nothing is sealed here.');
  },
  judge: () => 'sound',
  fits: () => true,
  sealRow() {
    throw new Error('Nothing is sealed here.');
  },
  judgeRow: () => 'sound',
  fitsRow: () => true,
};

/** A record that is used again and again is reported once in this time, ms. */
const REPORT_EVERY_MS = 60_000;
/** For how many records the time of the last report is remembered. */
const MAX_REPORTED = 1000;

/**
 * Reports such records. Forged ones are counted, and each is logged at most once a minute.
 * @param parts.elapsed monotonic ms
 */
export function createForgeryAlarm(parts: {
  readonly count: () => void;
  readonly report: (of: { readonly key_id: string } | { readonly record: string }, why: Parameters<Unfit>[1]) => void;
  readonly elapsed: () => number;
}): Unfit {
  const reportedAt = new Map<string, number>();
  return (of, why) => {
    const id = 'row' in of ? of.row : of.id;
    if (why === 'forged') parts.count();
    const now = parts.elapsed();
    const last = reportedAt.get(id);
    if (last !== undefined && now - last < REPORT_EVERY_MS) return;
    if (reportedAt.size >= MAX_REPORTED) reportedAt.clear();
    reportedAt.set(id, now);
    parts.report('row' in of ? { record: of.row } : { key_id: of.id }, why);
  };
}
