import { expect, test } from 'vitest';
import { readAnswer } from '../../src/upstreams/http/answer.ts';

const answer = (text: string) => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: Buffer.from(text),
  whole: true,
});
const listOf = (count: number): string => JSON.stringify(Array.from({ length: count }, () => 0));

test('an answer that is not kept whole is read as JSON only where somebody looks into it', () => {
  const raw = answer(`{"text":"${'x'.repeat(100)}"}`);
  expect(readAnswer(raw, { responseKeptBytes: 50, setCookie: false, wantsJson: false }).json).toBeUndefined();
  expect(readAnswer(raw, { responseKeptBytes: 50, setCookie: false, wantsJson: true }).json).toBeDefined();
  expect(readAnswer(raw, { responseKeptBytes: 500, setCookie: false, wantsJson: false }).json).toBeDefined();
});

test('an answer of up to 20,000 values is read as JSON, and kept as a text beyond that', () => {
  const options = { responseKeptBytes: 1_000_000, setCookie: false, wantsJson: true };
  expect(readAnswer(answer(listOf(19_999)), options).result.body.kind).toBe('json');
  const long = readAnswer(answer(listOf(20_000)), options);
  expect([long.json, long.result.body.kind, long.result.truncated]).toEqual([undefined, 'text', false]);
});
