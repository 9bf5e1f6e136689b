import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CODES } from '../../src/effects/model/codes.ts';
import { DECISIONS } from '../../src/effects/model/decision.ts';
import { MAX_ATTEMPTS } from '../../src/effects/steps/lifecycle.ts';
import { MAX_BUDGET_ROWS } from '../../src/effects/steps/obligations.ts';

const STORES = join(import.meta.dirname, '..', '..', 'src', 'stores');

/** What a store says of itself, and of a batch of its own. */
const OWN_CODES = ['store_unavailable', 'failed'];

/** What rules are about. A store has rows, lists, figures and a ledger. */
const NOUNS =
  /effect|admi(?:t|ssion)|settle|budget|rate_limit|claim|reserv|pool|approv|vote|quorum|pause|polic|receipt|attempt|lease|idempoten|fingerprint|agent|denied|tool/i;

interface Source {
  readonly file: string;
  readonly text: string;
  /** Without comments. */
  readonly code: string;
}

const sources: readonly Source[] = readdirSync(STORES, { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.(?:ts|lua)$/.test(file))
  .map((file) => {
    const text = readFileSync(join(STORES, file), 'utf8');
    return { file, text, code: withoutComments(file, text) };
  });
const scripts = sources.filter(({ file }) => file.endsWith('.lua'));

function withoutComments(file: string, text: string): string {
  if (file.endsWith('.lua')) return text.replaceAll(/--.*$/gm, '');
  return text.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/(^|\s)\/\/.*$/gm, '');
}

/** Texts in quotes. */
function literals(code: string): readonly string[] {
  return [...code.matchAll(/'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)].map(
    ([, one = '', other = '', template = '']) => one + other + template,
  );
}

const isSql = (text: string): boolean => /\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA)\b/.test(text);

describe('a store knows no rule', () => {
  it('the test sees scripts and SQL', () => {
    expect(scripts.length).toBeGreaterThan(10);
    expect(sources.flatMap(({ code }) => literals(code).filter(isSql)).length).toBeGreaterThan(20);
    expect(literals('a(\'admitted\', "pool_full", `x`)')).toEqual(['admitted', 'pool_full', 'x']);
  });

  it('none names a decision or a reason', () => {
    const words = [...Object.keys(CODES), ...DECISIONS].filter((word) => !OWN_CODES.includes(word));
    const named = sources.flatMap(({ file, code }) =>
      literals(code)
        .filter((text) => words.some((word) => new RegExp(`(?<![\\w-])${word}(?![\\w-])`).test(text)))
        .filter((text) => !/ /.test(text) || isSql(text))
        .map((text) => `${file}: ${text}`),
    );
    expect(named).toEqual([]);
  });

  it('no script and no SQL names what rules are about', () => {
    const named = [
      ...scripts.flatMap(({ file, code }) => code.split('\n').map((line) => [file, line] as const)),
      ...sources.flatMap(({ file, code }) =>
        literals(code)
          .filter(isSql)
          .map((text) => [file, text] as const),
      ),
    ].filter(([, text]) => NOUNS.test(text));
    expect(named).toEqual([]);
  });

  it('no script and no SQL has a limit of the rules, and no store takes one from them', () => {
    const limits = new RegExp(`(?<![\\d.])(?:${MAX_BUDGET_ROWS}|10_000|${MAX_ATTEMPTS} attempts)(?![\\d.])`);
    const has = [
      ...scripts.map(({ file, code }) => [file, code] as const),
      ...sources.flatMap(({ file, code }) =>
        literals(code)
          .filter(isSql)
          .map((text) => [file, text] as const),
      ),
    ].filter(([, text]) => limits.test(text));
    expect(has.map(([file]) => file)).toEqual([]);
    const taken = sources.flatMap(({ file, code }) =>
      [...code.matchAll(/import (?!type)[^;]*'((?:\.\.\/)+effects\/[^']+)'/g)]
        .filter(([, from = '']) => !from.endsWith('effects/store.ts'))
        .map(([line]) => `${file}: ${line}`),
    );
    expect(taken).toEqual([]);
  });

  it('the scripts are at most 700 lines, with what is said about them, and no line is long', () => {
    const lines = scripts.flatMap(({ text }) => text.trimEnd().split('\n'));
    expect(lines.length).toBeLessThanOrEqual(700);
    // Fewer lines by longer ones would be no gain.
    expect(lines.filter(({ length }) => length > 120).length).toBeLessThanOrEqual(13);
    expect(lines.filter(({ length }) => length > 160)).toEqual([]);
  });
});
