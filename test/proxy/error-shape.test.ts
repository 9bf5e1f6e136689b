import { describe, expect, test } from 'vitest';
import { errorMembers, ownHeaders, shownStatus, successMembers, withRetryHints } from '../../src/proxy/error-shape.ts';

const SHOWN = { decision: 'denied_policy', status: 403, code: 'rule_denied', message: 'No.', docs: 'http://g/docs' };
const PLAIN = ['problem', 'stripe', 'openai', 'anthropic', 'github', 'kubernetes'] as const;

describe('the status that the libraries of a route see', () => {
  test.each(PLAIN)('%s: the final status takes the place of what they would repeat by themselves', (errorFormat) => {
    const shown = (status: number, again = false, finalStatus: 422 | null = 422): number =>
      shownStatus(status, again, { errorFormat, finalStatus });
    for (const status of [402, 408, 409, 423, 429, 500, 502, 503, 504]) {
      expect(shown(status)).toBe(422);
      // What may be repeated is to be repeated.
      expect(shown(status, true)).toBe(status);
      expect(shown(status, false, null)).toBe(status);
    }
    for (const status of [200, 202, 399, 400, 401, 403, 404]) expect(shown(status)).toBe(status);
  });

  test('slack and graphql say no with 200, but for what their libraries have to wait for', () => {
    const shown = (errorFormat: 'slack' | 'graphql') =>
      [200, 202, 400, 401, 402, 403, 409, 423, 429, 500, 502, 503, 504].filter(
        (status) => shownStatus(status, false, { errorFormat, finalStatus: 422 }) === status,
      );
    expect(shown('slack')).toEqual([200, 429, 503]);
    expect(shown('graphql')).toEqual([200, 401, 429, 503]);
  });
});

test.each([
  ['duplicate_blocked', 409, 'idempotency_error'],
  ['idempotency_conflict', 409, 'idempotency_error'],
  ['problem', 401, 'authentication_error'],
  ['problem', 429, 'rate_limit_error'],
  ['problem', 500, 'api_error'],
  ['in_progress', 409, 'api_error'],
  ['unknown_effect', 504, 'api_error'],
  ['unknown_effect', 409, 'api_error'],
  ['denied_policy', 403, 'invalid_request_error'],
  ['problem', 400, 'invalid_request_error'],
])('stripe has an error class for %s with %d: %s', (decision, status, type) => {
  expect(errorMembers({ ...SHOWN, decision, status }, 'stripe')).toEqual({
    error: { type, code: 'rule_denied', message: 'No.', doc_url: 'http://g/docs' },
    message: 'No.',
  });
});

test.each([
  ['duplicate_blocked', 409, 'AlreadyExists'],
  ['problem', 400, 'BadRequest'],
  ['problem', 401, 'Unauthorized'],
  ['denied_policy', 403, 'Forbidden'],
  // Some clients repeat a `Conflict` by themselves.
  ['in_progress', 409, 'Forbidden'],
  ['problem', 413, 'RequestEntityTooLarge'],
  ['problem', 415, 'UnsupportedMediaType'],
  ['problem', 422, 'Invalid'],
  ['problem', 429, 'TooManyRequests'],
  ['problem', 500, 'InternalError'],
  ['failed', 502, 'InternalError'],
  ['problem', 503, 'ServiceUnavailable'],
  ['unknown_effect', 504, 'Timeout'],
])('kubernetes has a reason for %s with %d: %s', (decision, status, reason) => {
  expect(errorMembers({ ...SHOWN, decision, status }, 'kubernetes')).toMatchObject({ reason, code: status });
});

test('each library finds code and message where it looks for them', () => {
  const { decision, code, message, docs } = SHOWN;
  expect(errorMembers(SHOWN, 'problem')).toEqual({ error: { type: decision, code, message }, message });
  expect(errorMembers(SHOWN, 'openai')).toEqual({ error: { message, type: decision, param: null, code }, message });
  expect(errorMembers(SHOWN, 'anthropic')).toMatchObject({
    type: 'error',
    error: { type: decision, message, details: { error_code: code } },
  });
  expect(errorMembers(SHOWN, 'github')).toMatchObject({ message, documentation_url: docs });
  expect(errorMembers(SHOWN, 'slack')).toMatchObject({
    ok: false,
    error: code,
    message,
    response_metadata: { messages: [expect.stringContaining(message) as unknown] },
  });
  expect(errorMembers(SHOWN, 'kubernetes')).toMatchObject({
    kind: 'Status',
    message,
    details: { causes: [{ reason: code }] },
  });
  expect(errorMembers(SHOWN, 'graphql')).toMatchObject({
    data: null,
    errors: [{ message, extensions: { code, decision, docs } }],
  });
  expect([successMembers('slack'), successMembers('stripe')]).toEqual([{ ok: true }, {}]);
});

test('headers say in the words of each library whether to repeat, and which request it was', () => {
  const headers = { 'content-type': 'application/problem+json; charset=utf-8', 'x-should-retry': 'false' };
  const hints = { 'x-should-retry': 'false', 'stripe-should-retry': 'false' };
  expect(ownHeaders(headers, 'problem', 'req_1')).toEqual({ ...headers, ...hints });
  const json = { 'content-type': 'application/json; charset=utf-8', ...hints };
  for (const format of ['openai', 'github', 'slack', 'graphql', 'kubernetes'] as const)
    expect(ownHeaders(headers, format, 'req_1')).toEqual(json);
  for (const format of ['stripe', 'anthropic'] as const)
    expect(ownHeaders(headers, format, 'req_1')).toEqual({ ...json, 'request-id': 'req_1' });
  expect(withRetryHints({ a: '1' })).toEqual({ a: '1' });
});
