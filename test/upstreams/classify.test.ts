import { describe, expect, test } from 'vitest';
import type { OutcomeMap } from '../../src/effects/model/tool.ts';
import { classify, type Outcome, readAnswer, type Seen } from '../../src/upstreams/http/answer.ts';

const NONE: OutcomeMap = { committed: [], failed: [], unknown: [], body: [] };

function answer(status: number, changes: Partial<Extract<Seen, { kind: 'answer' }>> = {}): Seen {
  return { kind: 'answer', status, body: 'whole', json: undefined, ...changes };
}

function outcomes(seen: Seen, map: OutcomeMap = NONE): [Outcome, Outcome] {
  return [classify('read', map, seen).outcome, classify('write', map, seen).outcome];
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, index) => from + index);
}

describe('the one table', () => {
  test('no byte was written: failed', () => {
    const seen: Seen = { kind: 'nothing_sent', code: 'connect_failed', message: 'refused' };
    expect(outcomes(seen)).toEqual(['failed', 'failed']);
    expect(classify('write', NONE, seen).code).toBe('connect_failed');
  });

  test('a byte was written and no answer came: a write is unknown', () => {
    for (const code of ['timeout', 'reset', 'malformed'] as const) {
      expect(outcomes({ kind: 'lost', code, message: '' })).toEqual(['failed', 'unknown']);
      expect(classify('write', NONE, { kind: 'lost', code, message: '' }).code).toBe(code);
    }
  });

  test('an answer that streams and breaks off: a write is unknown, whatever its status said', () => {
    for (const status of [200, 422, 500]) {
      const seen: Seen = { kind: 'broken', status, code: 'reset', message: 'the connection broke' };
      expect(outcomes(seen), String(status)).toEqual(['failed', 'unknown']);
      expect(outcomes(seen, { ...NONE, committed: [status] }), String(status)).toEqual(['failed', 'unknown']);
      expect(classify('write', NONE, seen)).toMatchObject({ code: 'reset', busy: false });
    }
  });

  const rows: [string, number[], [Outcome, Outcome]][] = [
    ['2xx', [...range(200, 206), ...range(208, 299)], ['committed', 'committed']],
    ['207 without a map', [207], ['committed', 'unknown']],
    ['301, 302, 303', [301, 302, 303], ['failed', 'unknown']],
    ['other 3xx', [300, ...range(304, 399)], ['failed', 'failed']],
    ['refusals', [...range(400, 407), ...range(409, 424), 426, 428, 429, 431, 451], ['failed', 'failed']],
    ['any other 4xx', [408, 425, 427, 430, ...range(432, 450), ...range(452, 499)], ['failed', 'unknown']],
    ['5xx', range(500, 599), ['failed', 'unknown']],
    ['beyond', [600, 700, 999], ['failed', 'unknown']],
  ];
  test.each(rows)('%s', (_name, statuses, expected) => {
    for (const status of statuses) expect(outcomes(answer(status)), String(status)).toEqual(expected);
  });

  test('the rows name every status from 200 on once', () => {
    const named = rows.flatMap(([, statuses]) => statuses).filter((status) => status < 600);
    expect([...named].sort((left, right) => left - right)).toEqual(range(200, 599));
  });

  test('busy is 429, and 503 and 529 where the tool says that nothing was done then', () => {
    const map: OutcomeMap = { ...NONE, failed: [500, 503, 529] };
    const busy = (status: number, outcomes: OutcomeMap) => classify('write', outcomes, answer(status)).busy;
    expect(range(200, 599).filter((status) => busy(status, NONE))).toEqual([429]);
    expect(range(200, 599).filter((status) => busy(status, map))).toEqual([429, 503, 529]);
    expect(busy(429, { ...NONE, unknown: [429] })).toBe(false);
    expect(range(200, 599).filter((status) => classify('read', NONE, answer(status)).busy)).toEqual([429, 503, 529]);
  });

  test('202 is accepted, also where the tool says that it is committed, by the status or by the body', () => {
    const body = [{ path: 'state', equals: 'queued', outcome: 'committed' }] as const;
    for (const map of [NONE, { ...NONE, committed: [202] }, { ...NONE, body }])
      expect(classify('write', map, answer(202, { json: { state: 'queued' } }))).toMatchObject({
        outcome: 'committed',
        accepted: true,
      });
    expect(classify('write', NONE, answer(200))).toMatchObject({ outcome: 'committed', accepted: false });
  });

  test('a body that was cut decides nothing, even where what is left of it is JSON', () => {
    const map: OutcomeMap = { ...NONE, body: [{ path: 'ok', equals: false, outcome: 'failed' }] };
    const left = { body: 'cut', json: { ok: false } } as const;
    expect(classify('write', map, answer(200, left))).toMatchObject({ outcome: 'unknown', code: 'http_status' });
  });

  test('2xx with its body cut: a write is committed and truncated, a read failed', () => {
    const cut = answer(200, { body: 'cut' });
    expect(outcomes(cut)).toEqual(['failed', 'committed']);
    expect(classify('write', NONE, cut).responseTruncated).toBe(true);
    // The body would decide, and it is not there.
    const map: OutcomeMap = { ...NONE, body: [{ path: 'ok', equals: true, outcome: 'committed' }] };
    expect(classify('write', map, cut).outcome).toBe('unknown');
    expect(classify('write', NONE, answer(207, { body: 'cut' })).outcome).toBe('unknown');
    expect(classify('write', NONE, answer(503, { body: 'cut' })).outcome).toBe('unknown');
    expect(classify('write', NONE, answer(422, { body: 'cut' })).outcome).toBe('failed');
  });

  test('a read whose body was cut is failed, whatever its status is declared to mean; a write is what it says', () => {
    const map: OutcomeMap = { ...NONE, committed: [200, 404], unknown: [500] };
    for (const status of [200, 404, 500]) {
      expect(classify('read', map, answer(status, { body: 'cut' })).outcome, String(status)).toBe('failed');
    }
    expect(classify('read', map, answer(404)).outcome).toBe('committed');
    expect(classify('write', map, answer(404, { body: 'cut' }))).toMatchObject({
      outcome: 'committed',
      responseTruncated: true,
    });
  });

  test('a body that decides and cannot be read: the status alone does not', () => {
    const fails: OutcomeMap = { ...NONE, body: [{ path: 'ok', equals: false, outcome: 'failed' }] };
    const happens: OutcomeMap = { ...NONE, body: [{ path: 'code', equals: 'duplicate', outcome: 'committed' }] };
    for (const body of ['cut', 'unreadable'] as const) {
      expect(classify('write', fails, answer(200, { body })).outcome).toBe('unknown');
      expect(classify('write', fails, answer(409, { body })).outcome).toBe('failed');
      expect(classify('write', happens, answer(409, { body })).outcome).toBe('unknown');
      expect(classify('write', { ...happens, failed: [409] }, answer(409, { body })).outcome).toBe('failed');
      expect(classify('write', NONE, answer(409, { body })).outcome).toBe('failed');
    }
    expect(outcomes(answer(200, { body: 'unreadable' }))).toEqual(['committed', 'committed']);
    expect(classify('write', NONE, answer(200, { body: 'unreadable' })).responseTruncated).toBe(false);
    // An answer without a body has been read.
    expect(classify('write', fails, answer(204)).outcome).toBe('committed');
  });

  test('declared statuses', () => {
    const map: OutcomeMap = { ...NONE, failed: [503], unknown: [404], committed: [409, 303] };
    expect(outcomes(answer(503), map)).toEqual(['failed', 'failed']);
    expect(outcomes(answer(404), map)).toEqual(['unknown', 'unknown']);
    expect(outcomes(answer(409), map)).toEqual(['committed', 'committed']);
    expect(outcomes(answer(303), map)).toEqual(['committed', 'committed']);
    expect(outcomes(answer(500), map)).toEqual(['failed', 'unknown']);
    expect(classify('write', map, answer(503)).code).toBe('declared');
    // Entries that contradict each other: the cautious one.
    expect(classify('write', { ...NONE, failed: [500], unknown: [500] }, answer(500)).outcome).toBe('unknown');
    expect(classify('write', { ...NONE, failed: [200], committed: [200] }, answer(200)).outcome).toBe('failed');
    expect(classify('write', { ...NONE, unknown: [200], committed: [200] }, answer(200)).outcome).toBe('unknown');
  });

  test('the evidence says which status came, whether its body was cut, and what else decided', () => {
    const body = [{ path: 'ok', equals: false, outcome: 'failed' }] as const;
    const said = (seen: Seen, changes: Partial<OutcomeMap> = {}) =>
      classify('write', { ...NONE, ...changes }, seen).message.replace('the upstream answered ', '');
    expect(said(answer(200))).toBe('200');
    expect(said(answer(200, { body: 'cut' }))).toBe('200, and its body was cut');
    expect(said(answer(207))).toBe('207, which says nothing of the whole');
    expect(said(answer(200, { body: 'unreadable' }), { body })).toBe('200, and its body cannot be asked');
    expect(said(answer(200, { json: { ok: false } }), { body })).toBe("200 with a body that the tool's outcomes map");
    expect(said(answer(409), { committed: [409] })).toBe("409, which the tool's outcomes map");
  });

  test('a status that is declared failed or unknown is not called cut for its body', () => {
    const map: OutcomeMap = { ...NONE, failed: [409], unknown: [410] };
    for (const status of [409, 410])
      expect(classify('write', map, answer(status, { body: 'cut' })).responseTruncated, String(status)).toBe(false);
  });

  test('an answer that broke off says with which status it began, and how it ended', () => {
    const seen: Seen = { kind: 'broken', status: 206, code: 'reset', message: 'its answer broke off' };
    const message = 'the upstream answered 206, and its answer broke off';
    expect(classify('write', NONE, seen)).toMatchObject({ outcome: 'unknown', code: 'reset', message });
    expect(classify('read', NONE, seen)).toMatchObject({ outcome: 'failed', code: 'reset', message });
  });

  test('declared bodies, in order, own members only', () => {
    const map: OutcomeMap = {
      ...NONE,
      body: [
        { path: 'error.code', equals: 'duplicate', outcome: 'committed' },
        { path: 'ok', equals: false, outcome: 'failed' },
        { path: 'items.0.state', equals: { done: 1 }, outcome: 'unknown' },
        { path: 'constructor.name', equals: 'Object', outcome: 'failed' },
        { path: '__proto__', equals: {}, outcome: 'failed' },
      ],
    };
    const write = (status: number, json: Extract<Seen, { kind: 'answer' }>['json']): Outcome =>
      classify('write', map, answer(status, { json })).outcome;
    expect(write(200, { ok: false })).toBe('failed');
    expect(write(200, { ok: true })).toBe('committed');
    expect(write(409, { error: { code: 'duplicate' }, ok: false })).toBe('committed');
    expect(write(207, { items: [{ state: { done: 1.0 } }] })).toBe('unknown');
    expect(write(207, { ok: false })).toBe('failed');
    expect(write(207, {})).toBe('unknown');
    expect(write(500, { ok: false })).toBe('failed');
    expect(write(200, {})).toBe('committed');
    expect(write(200, [1])).toBe('committed');
    expect(classify('read', map, answer(200, { json: { ok: false } })).outcome).toBe('failed');
    expect(classify('read', map, answer(200, { json: {} })).outcome).toBe('committed');
  });
});

describe('of an answer is kept', () => {
  const kept = (headers: Record<string, string>, body: string, responseKeptBytes = 100) =>
    readAnswer(
      { status: 201, headers, body: Buffer.from(body), whole: true },
      { responseKeptBytes, setCookie: true, wantsJson: false },
    ).result;

  test('what says how to read it, and names what was made; no cookie, and nothing of the connection', () => {
    const own = { 'content-type': 'text/plain', 'content-language': 'de', etag: '"1"', location: '/orders/1' };
    const others = { 'last-modified': 'Sun, 29 Nov 2026 00:00:00 GMT', 'content-encoding': 'br' };
    const { headers } = kept({ ...own, ...others, 'set-cookie': 'a=1', connection: 'close', server: 'x' }, '');
    expect(headers).toEqual({ ...own, ...others });
  });

  test('its beginning, which is a text to its last whole character', () => {
    const of = (bytes: number) => kept({ 'content-type': 'text/plain' }, 'a€b', bytes);
    expect(of(5)).toMatchObject({ body: { kind: 'text', value: 'a€b' }, truncated: false });
    for (const [bytes, value] of [
      [4, 'a€'],
      [3, 'a'],
      [2, 'a'],
    ] as const)
      expect(of(bytes)).toMatchObject({ body: { kind: 'text', value }, truncated: true });
  });
});
