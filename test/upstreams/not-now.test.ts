import { expect, test } from 'vitest';
import { notNow } from '../../src/upstreams/http/http-upstream.ts';

const NOW = Date.parse('2026-11-24T00:00:00Z');
const said = (headers: Record<string, string>) =>
  notNow({ kind: 'answer', status: 429, headers, body: Buffer.alloc(0), whole: true, startedAt: NOW }, NOW);

test.each([
  [{}, {}],
  [{ 'retry-after': '3' }, { retryAfterMs: 3000 }],
  [{ 'retry-after': '3', 'retry-after-ms': '2500' }, { retryAfterMs: 2500 }],
  [{ 'retry-after-ms': '999999999999' }, { retryAfterMs: 86_400_000 }],
  [{ 'retry-after': 'Tue, 24 Nov 2026 00:00:07 GMT' }, { retryAfterMs: 7000 }],
  [{ 'retry-after': 'Mon, 23 Nov 2026 00:00:07 GMT' }, { retryAfterMs: 0 }],
  [{ 'retry-after': 'Wed, 24 Nov 2027 00:00:00 GMT' }, { retryAfterMs: 86_400_000 }],
  [{ 'retry-after': 'soon' }, {}],
  // Dates, but none of HTTP.
  [{ 'retry-after': '2026-11-24T00:00:07Z' }, {}],
  [{ 'retry-after': 'in 2027' }, {}],
  [{ 'retry-after-ms': 'soon', 'retry-after': '2' }, { retryAfterMs: 2000 }],
  [{ 'retry-after': '-1' }, {}],
  [{ 'retry-after': '99999999999999999999' }, { retryAfterMs: 86_400_000 }],
  [{ 'retry-after': '1', 'x-should-retry': 'false' }, null],
  [{ 'stripe-should-retry': 'false' }, null],
  [{ 'x-should-retry': 'true' }, {}],
])('%j', (headers, expected) => {
  expect(said(headers)).toEqual(expected);
});
