import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type CallRecord, type Line, lineOf, PARTS, textOf } from './record.ts';

/** A line for each call: number, outcome, digest, and short digests of its parts. */
const LINES = 'calls.txt';
/** The whole text of some. */
const TEXTS = 'texts.txt';

/** Of so many calls the text is kept, and so many characters of all of them: the first of each title and outcome. */
const TEXTS_KEPT = 420;
const CHARACTERS_KEPT = 1_100_000;

export const DECISIONS = [
  'committed',
  'duplicate_blocked',
  'pending_approval',
  'in_progress',
  'denied_permission',
  'denied_policy',
  'denied_identity',
  'denied_budget',
  'denied_claim',
  'idempotency_conflict',
  'denied_reservation',
  'denied_paused',
  'failed',
  'unknown_effect',
] as const;

export interface Recording {
  readonly lines: ReadonlyMap<number, Line>;
  readonly texts: ReadonlyMap<number, string>;
}

/** A call that is not as it was recorded. */
export interface Difference {
  readonly number: number;
  readonly title: string;
  readonly was: string;
  readonly is: string;
  /** Which of its parts differ. */
  readonly parts: readonly string[];
  readonly text: string;
}

export function readRecording(folder: string): Recording {
  const lines = readFileSync(join(folder, LINES), 'utf8').trimEnd().split('\n').map(parseLine);
  const texts = readFileSync(join(folder, TEXTS), 'utf8').split(/^(?=== call \d+: )/m);
  return {
    lines: new Map(lines.map((line) => [line.number, line])),
    texts: new Map(texts.map((text) => [Number(/^== call (\d+)/.exec(text)?.[1]), text])),
  };
}

export function writeRecording(folder: string, records: readonly CallRecord[]): void {
  const sorted = records.toSorted((a, b) => a.number - b.number);
  writeFileSync(join(folder, LINES), sorted.map((record) => `${lineText(lineOf(record))}\n`).join(''));
  writeFileSync(join(folder, TEXTS), kept(sorted).map(textOf).join(''));
}

function kept(records: readonly CallRecord[]): readonly CallRecord[] {
  const seen = new Set<string>();
  let characters = 0;
  return records.filter((record) => {
    const kind = `${record.title} ${record.outcome}`;
    const { length } = textOf(record);
    if (seen.has(kind) || seen.size >= TEXTS_KEPT || characters + length > CHARACTERS_KEPT) return false;
    seen.add(kind);
    characters += length;
    return true;
  });
}

function lineText({ number, outcome, digest, partDigests }: Line): string {
  return `${String(number).padStart(5, '0')} ${outcome.replace(' ', '/')} ${digest} ${partDigests.join(' ')}`;
}

function parseLine(text: string): Line {
  const [number, outcome = '', digest = '', ...partDigests] = text.split(' ');
  return { number: Number(number), outcome: outcome.replace('/', ' '), digest, partDigests };
}

/** @returns `null` where the call is as it was recorded */
export function compare(recording: Recording, record: CallRecord): Difference | null {
  const was = recording.lines.get(record.number);
  const is = lineOf(record);
  if (was?.digest === is.digest) return null;
  const parts = PARTS.filter((_, index) => was?.partDigests[index] !== is.partDigests[index]);
  const { number, title } = record;
  return { number, title, was: was?.outcome ?? 'not recorded', is: is.outcome, parts, text: textOf(record) };
}
