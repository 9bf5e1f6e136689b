import { describe, expect, it } from 'vitest';
import { faultSummary, plainProblem, renderProblem, retryAfter, shouldRetry } from '../../src/api/problem.ts';
import type { Code } from '../../src/effects/model/codes.ts';
import type { JsonObject } from '../../src/json/value.ts';

const READ = { publicUrl: 'https://gateway.example', requestId: 'req_1', run: false, changes: false };
const CHANGE = { ...READ, changes: true };
const RUN = { ...CHANGE, run: true };

const render = (code: Code, context = READ, more: { retryAfterMs?: number; members?: JsonObject } = {}) =>
  renderProblem(
    { ...plainProblem(code, 'So it is.'), retryAfterMs: more.retryAfterMs ?? null },
    more.members ?? {},
    context,
  );

/** What it says of the action: whether it happened, and whether to send it again. */
const said = (code: Code, context: typeof READ) => {
  const { body } = render(code, context);
  return [body['did_it_happen'], body['safe_to_retry']];
};

it.each([
  [0, '1'],
  [1, '1'],
  [1_000, '1'],
  [1_001, '2'],
  [59_999, '60'],
])('whoever has to wait %i ms is told so in whole seconds, never too few: %s', (ms, seconds) => {
  expect(retryAfter({ retryAfterMs: ms })).toEqual({ 'retry-after': seconds });
  const { headers, body } = render('too_many_requests', READ, { retryAfterMs: ms });
  expect([headers['retry-after'], body['retry_after_ms']]).toEqual([seconds, ms]);
});

it('whoever need not wait is not told to', () => {
  const { headers, body } = render('not_found');
  expect(headers).not.toHaveProperty('retry-after');
  expect(body).not.toHaveProperty('retry_after_ms');
});

it('libraries may ask again after too many requests and after what is not ready, and after nothing else', () => {
  const statuses = [400, 401, 403, 404, 405, 408, 409, 413, 422, 423, 429, 500, 501, 502, 503, 504];
  expect(statuses.filter(shouldRetry)).toEqual([429, 503]);
  expect(render('store_unavailable').headers['x-should-retry']).toBe('true');
  expect(render('internal').headers['x-should-retry']).toBe('false');
});

describe('whether it happened', () => {
  it.each<[Code, readonly unknown[], readonly unknown[], readonly unknown[]]>([
    // A read, a change, a run. An earlier run with the same key may have happened where this one was not looked at.
    ['invalid_request', ['no', true], ['no', true], ['no', true]],
    ['invalid_key', ['no', true], ['no', true], ['maybe', true]],
    ['wrong_workspace', ['no', true], ['no', true], ['no', true]],
    ['too_many_requests', ['no', true], ['no', true], ['maybe', true]],
    ['internal', ['no', true], ['maybe', false], ['maybe', true]],
    ['store_unavailable', ['no', true], ['maybe', false], ['maybe', true]],
    ['not_ready', ['no', true], ['no', true], ['maybe', true]],
    // About an effect that may have happened, whatever became of this request.
    ['too_early', ['maybe', true], ['maybe', false], ['maybe', true]],
    ['no_probe', ['maybe', true], ['maybe', false], ['maybe', true]],
    ['not_unknown', ['maybe', true], ['maybe', false], ['maybe', true]],
    ['already_resolved', ['maybe', true], ['maybe', false], ['maybe', true]],
  ])('%s', (code, read, change, run) => {
    expect([said(code, READ), said(code, CHANGE), said(code, RUN)]).toEqual([read, change, run]);
  });

  it('of an earlier run is said in words where this one was turned away, unless it is known', () => {
    const earlier = 'So it is. An earlier request for the same action may have run.';
    expect(render('too_many_requests', RUN).body['detail']).toBe(earlier);
    expect(render('store_unavailable', RUN).body['detail']).toBe(earlier);
    for (const { body } of [
      render('too_many_requests', CHANGE),
      render('invalid_key', RUN),
      render('internal', RUN),
      render('store_unavailable', RUN, { members: { did_it_happen: 'no' } }),
    ])
      expect(body['detail']).toBe('So it is.');
    // What is known of the action counts for more than what the status says of it.
    const known = { did_it_happen: 'no', safe_to_retry: false } as const;
    expect(render('store_unavailable', RUN, { members: known }).body).toMatchObject(known);
  });
});

it.each<[Code, string]>([
  ['claim_held', 'wait'],
  ['pool_full', 'wait'],
  ['too_many_claims', 'wait'],
  ['too_many_reservations', 'wait'],
  ['busy', 'retry'],
  ['too_early', 'wait'],
  ['too_many_requests', 'retry'],
  ['store_unavailable', 'retry'],
  ['not_ready', 'retry'],
  ['no_probe', 'resolve'],
  ['not_unknown', 'proceed'],
  ['invalid_request', 'replan'],
  ['not_found', 'replan'],
  ['conflict', 'replan'],
  ['method_not_allowed', 'replan'],
  ['too_large', 'replan'],
  ['unsupported_media_type', 'replan'],
  ['invalid_key', 'block'],
  ['wrong_key_kind', 'block'],
  ['internal', 'block'],
])('after %s an agent should %s', (code, next) => {
  expect(render(code).body['next']).toBe(next);
});

it('is kept by no cache, says what is wrong by an address, and how to show who one is', () => {
  const { status, headers, body } = render('invalid_key');
  expect(status).toBe(401);
  expect(headers).toMatchObject({
    'content-type': 'application/problem+json; charset=utf-8',
    'cache-control': 'no-store',
    'www-authenticate': 'Bearer realm="svc-gateway"',
  });
  expect(body).toMatchObject({
    type: 'https://gateway.example/docs/errors/invalid_key',
    status: 401,
    code: 'invalid_key',
    request_id: 'req_1',
  });
  expect(render('wrong_key_kind').headers).not.toHaveProperty('www-authenticate');
});

describe('faults of a request', () => {
  const faults = (count: number) => Array.from({ length: count }, (_, n) => ({ path: `/p/${n}`, message: 'is wrong' }));
  const listed = (count: number) =>
    renderProblem({ ...plainProblem('invalid_request', ''), errors: faults(count) }, {}, READ).body;

  it('are listed up to a number, and how many more there are is said', () => {
    expect(listed(0)).not.toHaveProperty('errors');
    expect(listed(100)['errors']).toHaveLength(100);
    expect(listed(100)).not.toHaveProperty('errors_left_out');
    expect(listed(103)).toMatchObject({ errors_left_out: 3 });
    expect(listed(103)['errors']).toHaveLength(100);
  });

  it('are summed up by the first of them', () => {
    expect(faultSummary(faults(1))).toBe('/p/0: is wrong.');
    expect(faultSummary(faults(2))).toBe('2 faults; the first: /p/0: is wrong.');
    expect(faultSummary(faults(99))).toMatch(/^99 faults; /);
    expect(faultSummary(faults(100))).toMatch(/^100 faults or more; /);
    expect(faultSummary([{ path: '', message: 'is no object' }])).toBe('the body: is no object.');
    expect(faultSummary([])).toMatch(/expected shape/);
  });

  it('are quoted by their beginning, and no character is torn', () => {
    const long = { path: `/${'x'.repeat(500)}`, message: `${'x'.repeat(399)}\u{1f600}` };
    const { errors } = renderProblem({ ...plainProblem('invalid_request', ''), errors: [long] }, {}, READ).body;
    expect(errors).toEqual([{ path: `/${'x'.repeat(399)}…`, message: `${'x'.repeat(399)}…` }]);
    expect(faultSummary([long])).toBe(`/${'x'.repeat(399)}…: ${'x'.repeat(399)}….`);
    expect(faultSummary([{ path: '', message: 'y'.repeat(400) }])).toBe(`the body: ${'y'.repeat(400)}.`);
    expect(faultSummary([{ path: '', message: 'y'.repeat(401) }])).toBe(`the body: ${'y'.repeat(400)}….`);
  });
});
