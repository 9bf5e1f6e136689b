import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseSync, Visitor, type VisitorObject } from 'oxc-parser';
import { describe, expect, it } from 'vitest';
import { FAULTS } from './planted-faults.ts';

const ROOT = join(import.meta.dirname, '..');
const FOLDERS = ['src', 'packages', 'client/src', 'console/src'];

/** Of a function, its lines from the first of its signature to its end. */
const LONG_FUNCTION = 70;
/** Of a file. */
const LONG_FILE = 500;

interface Measured {
  readonly file: string;
  readonly lines: number;
  readonly types: number;
  /** Where each function is that is too long, and how many lines it has. */
  readonly long: readonly string[];
}

function measureText(file: string, text: string): Measured {
  const { program, errors } = parseSync(file, text);
  if (errors.length > 0) throw new Error(`${file} cannot be parsed: ${errors[0]?.message}`);
  const starts = lineStarts(text);
  const lineOf = (offset: number): number => starts.findLastIndex((start) => start <= offset) + 1;

  const long: string[] = [];
  const onFunction = ({ start, end }: { readonly start: number; readonly end: number }): void => {
    const [first, last] = [lineOf(start), lineOf(end)];
    if (last - first >= LONG_FUNCTION) long.push(`${file}:${first} (${last - first + 1})`);
  };
  const functions: VisitorObject = {
    FunctionDeclaration: onFunction,
    FunctionExpression: onFunction,
    ArrowFunctionExpression: onFunction,
  };
  // A short file has no long function: most need no walk.
  if (starts.length > LONG_FUNCTION) new Visitor(functions).visit(program);

  const declared = program.body.map((statement) =>
    statement.type === 'ExportNamedDeclaration' ? statement.declaration : statement,
  );
  const types = declared.filter(
    (statement) => statement?.type === 'TSInterfaceDeclaration' || statement?.type === 'TSTypeAliasDeclaration',
  ).length;
  return { file, lines: starts.length - 1, types, long };
}

/** Offsets at which lines begin; the last is the end of a text that ends with one. */
function lineStarts(text: string): readonly number[] {
  const starts = [0];
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) starts.push(at + 1);
  return starts;
}

function sum(of: readonly number[]): number {
  return of.reduce((total, next) => total + next, 0);
}

/** Made from schemas/openapi.json, and held to it by test/api/openapi.test.ts: nobody writes or reads its lines. */
const MADE = 'wire-records.ts';

const files = FOLDERS.flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.tsx?$/.test(file) && !/(^|\/)(node_modules|dist|test)\//.test(file) && file !== MADE)
    .map((file) => measureText(join(folder, file), readFileSync(join(ROOT, folder, file), 'utf8'))),
);
const isCore = ({ file }: Measured): boolean => /^(src|packages)\//.test(file);
const core = files.filter(isCore);
const outer = files.filter((file) => !isCore(file));
const longFiles = files.filter(({ lines }) => lines > LONG_FILE).map(({ file, lines }) => `${file} (${lines})`);
const longIn = (part: readonly Measured[]): readonly string[] => part.flatMap(({ long }) => long);

/**
 * How much code there is at most. A change that leaves less lowers the ceiling. One that needs more says so here: 243 lines
 * for backups that write only what changed, words of the brain as places in a text, and what people asked for in inbox and
 * status. The goal for `src` and `packages` is 58,000 lines, 30 long functions, 950 types, and no long file anywhere.
 */
const CEILINGS: readonly (readonly [what: string, ceiling: number, measured: number | readonly string[]])[] = [
  ['lines in src and packages', 98_022, sum(core.map(({ lines }) => lines))],
  ['lines in client and console', 6_636, sum(outer.map(({ lines }) => lines))],
  ['functions longer than 70 lines in src and packages', 28, longIn(core)],
  ['functions longer than 70 lines in client and console', 13, longIn(outer)],
  ['interfaces and types at the top of a file in src and packages', 1_226, sum(core.map(({ types }) => types))],
  ['files longer than 500 lines', 0, longFiles],
];

describe('how much code there is', () => {
  it.each(CEILINGS)('%s: at most %i', (what, ceiling, measured) => {
    const [count, where] = typeof measured === 'number' ? [measured, ''] : [measured.length, measured.join('\n')];
    expect(count, `${what}\n${where}`).toBeLessThanOrEqual(ceiling);
  });

  it('is measured: there are files, and what is long is found', () => {
    expect(files.length).toBeGreaterThan(500);
    const lines = Array.from({ length: LONG_FUNCTION - 1 }, () => '  // a line');
    const text = (inner: readonly string[]): string =>
      ['interface One {}', 'const two = () => {', ...inner, '};', ''].join('\n');
    expect(measureText('short.ts', text(lines.slice(1)))).toMatchObject({ lines: 71, types: 1, long: [] });
    expect(measureText('long.ts', text(lines))).toMatchObject({ lines: 72, long: ['long.ts:2 (71)'] });
  });
});

describe('planted faults', () => {
  it('each names a line that is there: a change of the product changes its faults', () => {
    const gone = Object.entries(FAULTS).filter(
      ([, { file, line }]) => !readFileSync(join(ROOT, file), 'utf8').includes(line),
    );
    expect(gone.map(([name]) => name)).toEqual([]);
  });
});
