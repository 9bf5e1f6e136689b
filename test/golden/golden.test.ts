import { join } from 'node:path';
import { expect, it } from 'vitest';
import { describe as inWords } from './differences.ts';
import { compare, DECISIONS, readRecording } from './recording.ts';
import { type CallRecord, PARTS } from './record.ts';
import { recordOn, STORES } from './stand.ts';

/*
 * A part of the golden calls; `npm run test:golden` makes all of them (README.md).
 */

const recording = readRecording(join('test', 'golden'));

/** One with a restart, one with reads through the proxy, and others; fewer where the second Node makes them once more. */
const SEGMENTS = process.env['SVC_TEST_RUN'] === 'second' ? [0, 1, 2] : [0, 1, 2, 3, 4, 5];

it.concurrent.each(STORES)('calls of all doors are answered, recorded and sent as ever, on %s', async (store) => {
  const records: CallRecord[] = [];
  await recordOn(store, SEGMENTS, (one) => void records.push(one));
  const differences = records.flatMap((one) => compare(recording, one) ?? []);
  expect(inWords(differences, recording, store)).toBe('');
  expect(records).toHaveLength(SEGMENTS.length * 100);
});

it('every decision is among the recorded calls, often', () => {
  const outcomes = [...recording.lines.values()].map(({ outcome }) => outcome.split(' ').at(-1));
  expect(outcomes).toHaveLength(10_000);
  const rare = DECISIONS.filter((decision) => outcomes.filter((one) => one === decision).length < 5);
  expect(rare).toEqual([]);
});

it.each(PARTS)('a difference in %s is found, and shown with the call', (part) => {
  const [number, text] = [...recording.texts].find(([, one]) => one.includes(`-- ${part}\n`)) ?? [0, ''];
  const parts = partsOf(text);
  const record: CallRecord = { number, title: /: (.*)/.exec(text)?.[1] ?? '', outcome: '', parts };
  expect(compare(recording, record)).toBeNull();
  const difference = compare(recording, { ...record, parts: { ...parts, [part]: altered(parts[part]) } });
  expect(difference).toMatchObject({ number, parts: [part] });
  const words = inWords(difference === null ? [] : [difference], recording, 'embedded');
  expect(words).toMatch(new RegExp(`^call ${number} .* on embedded: .*; differs in ${part}\\n`));
  expect(words).toMatch(/\n\+.*!/);
});

/** JSON stays JSON. */
function altered(text: string): string {
  return text.includes('"') ? text.replace(/"(?=[^"]*$)/, '!"') : `${text}!`;
}

/** The parts of a call, of its text. */
function partsOf(text: string): CallRecord['parts'] {
  const of = (part: string): string =>
    new RegExp(`^-- ${part}\\n([\\s\\S]*?)\\n(?:-- (?:${PARTS.join('|')})\\n|$(?![\\s\\S]))`, 'm').exec(text)?.[1] ??
    '';
  return {
    request: of('request'),
    status: of('status'),
    headers: of('headers'),
    body: of('body'),
    receipt: of('receipt'),
    effect: of('effect'),
    upstream: of('upstream'),
  };
}
