import { expect, test } from 'vitest';
import { inShort, json, showPage, styled, table, type Terminal, wire } from '../../src/cli/terminal.ts';
import { svc } from './run.ts';

const HOSTILE = '\u{e0041}\u00ad\u{1f600}a\u001b[2Jb\u0007c\u202Ed\u200be\u009bf\r\ng';
/** Anything that a terminal or a reader could be fooled by, but for the line ends that we print ourselves. */
const ACTIVE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

const terminal = (color: boolean): Terminal => ({
  out: () => undefined,
  err: () => undefined,
  color,
  interactive: false,
  ask: async () => null,
  stopped: () => Promise.resolve(),
  unread: () => Promise.resolve(),
});

test('cells of a table cannot act on the terminal, nor break its lines', () => {
  const text = table(['head', 'more'], [[HOSTILE, 'x']]);
  expect(text).not.toMatch(ACTIVE);
  expect(text.split('\n')).toHaveLength(2);
});

test('columns are as wide as their widest cell', () => {
  expect(
    table(
      ['a', 'b'],
      [
        ['long', 'x'],
        ['y', 'z'],
      ],
    ),
  ).toBe('a     b\nlong  x\ny     z');
});

test('a page without rows says whether others follow, and with which cursor', () => {
  const shown = (cursor: string | null, ...rows: readonly (readonly string[])[]): readonly string[] => {
    const lines: string[] = [];
    showPage({ ...terminal(false), out: (line) => void lines.push(line) }, cursor, 'calls', ['id'], rows);
    return lines;
  };
  expect(shown(null)).toEqual(['No calls.']);
  expect(shown('c1')).toEqual(['No calls here.', 'More: --cursor c1']);
  expect(shown('c1', ['eff_1'])).toEqual(['id\neff_1', 'More: --cursor c1']);
  expect(shown(null, ['eff_1'])).toEqual(['id\neff_1']);
});

test('styled text is escaped with colours and without', () => {
  expect(styled(terminal(false), 'red', HOSTILE)).not.toMatch(ACTIVE);
  const painted = styled(terminal(true), 'red', HOSTILE);
  expect(painted.startsWith('\u001b[31m')).toBe(true);
  expect(painted.slice(5, -5)).not.toMatch(ACTIVE);
});

test('JSON is escaped, and the same value when it is read again', () => {
  const text = json({ value: HOSTILE });
  expect(text).not.toMatch(ACTIVE);
  expect(JSON.parse(text)).toEqual({ value: HOSTILE });
});

test('an error is escaped as well, for people and as JSON', async () => {
  const file = 'no\u009b2J\u202e.json';
  const [said, asJson] = [await svc('init', file), await svc('init', file, '--json')];
  expect([said.code, asJson.code]).toEqual([2, 2]);
  for (const { err } of [said, asJson]) expect(err).not.toMatch(ACTIVE);
  expect(JSON.parse(asJson.err)).toMatchObject({ error: { message: expect.stringContaining(file) } });
});

test('names are those of the wire again, but for what is foreign', () => {
  const result = { fieldName: 1, field_name: 2 };
  expect(wire({ effectId: 'e', items: [{ createdAt: 'x' }], result, params: result })).toEqual({
    effect_id: 'e',
    items: [{ created_at: 'x' }],
    result,
    params: result,
  });
  // What somebody settled an outcome by is theirs; the evidence of an effect is the gateway's.
  expect(wire({ evidence: { startedAt: 't' }, settledBy: { evidence: { startedAt: 't' } } })).toEqual({
    evidence: { started_at: 't' },
    settled_by: { evidence: { startedAt: 't' } },
  });
});

test('a cell of a table has at most 120 characters, and says where it is cut', () => {
  expect([inShort('x'.repeat(120)), inShort('x'.repeat(121))]).toEqual(['x'.repeat(120), `${'x'.repeat(119)}…`]);
});
