import { describe, expect, it } from 'vitest';
import { inReadingOrder, type Finding } from '../../src/diagnostics/finding.ts';
import { InvalidFiles, count, renderFindings } from '../../src/diagnostics/render.ts';
import { didYouMean, nearest } from '../../src/diagnostics/nearest.ts';
import { readYamlSource } from '../../src/diagnostics/yaml-source.ts';

function finding(line: number, column: number, changes: Partial<Finding> = {}): Finding {
  return { code: 'c', severity: 'error', message: 'm', hint: null, at: { file: 'f', line, column }, ...changes };
}

function render(text: string, found: Finding): string {
  return renderFindings([found], new Map([['f', text]]), { color: false });
}

describe('rendering', () => {
  it('shows place, message, line, a caret under the word, and the hint', () => {
    const text = render('server:\n  prot: 80\n', finding(2, 3, { message: "'prot' is odd", hint: 'port?' }));
    expect(text).toBe(
      "f:2:3 error 'prot' is odd [c]\n    2 |   prot: 80\n      |   ^^^^\n    hint: port?\n\n1 error\n",
    );
  });

  it('keeps the caret below its word in long lines, after tabs, and at the end of a line', () => {
    for (const [line, column] of [
      [`${'x '.repeat(300)}HERE ${'y '.repeat(300)}`, 601],
      ['\t\tHERE', 3],
      ['HERE', 1],
    ] as const) {
      const [, shown = '', carets = ''] = render(line, finding(1, column)).split('\n');
      expect(shown.slice(carets.indexOf('^'), carets.lastIndexOf('^') + 1)).toBe('HERE');
      expect(shown.length).toBeLessThan(170);
    }
    expect(render('abc', finding(1, 4))).toContain('\n      |    ^\n');
    // What is left out of the line is marked, on either side.
    const marked = (column: number) => (render('x '.repeat(300), finding(1, column)).split('\n')[1] ?? '').match(/…/g);
    expect([1, 301, 599].map((column) => marked(column)?.length)).toEqual([1, 2, 1]);
  });

  it('never passes control or bidirectional characters on to a terminal', () => {
    const text = render('a\u001b[31m\u202e: 1', finding(1, 1, { message: 'x\u001b]0;title\u0007', hint: '\u2066h' }));
    expect(text).toMatch(/^[\n\u0020-\u007e]*$/);
    expect(text).toContain('\\u{1b}[31m\\u{202e}');
  });

  it('colours only where asked', () => {
    const all = [finding(1, 1), finding(1, 1, { severity: 'warning' })];
    expect(renderFindings(all, new Map([['f', 'x']]), { color: true })).toContain('\u001b[31m');
    expect(renderFindings(all, new Map([['f', 'x']]), { color: false })).not.toContain('\u001b');
    expect(count(all)).toBe('1 error, 1 warning');
    expect(count([])).toBe('0 errors');
  });

  it('does without a place and without the text', () => {
    expect(render('x', finding(1, 1, { at: null }))).toBe('error m [c]\n\n1 error\n');
    expect(renderFindings([finding(7, 2)], new Map(), { color: false })).toBe('f:7:2 error m [c]\n\n1 error\n');
  });

  it('orders by file, line and column; those without a place come first', () => {
    const other: Finding = { ...finding(1, 1), at: { file: 'g', line: 1, column: 1 } };
    const places = inReadingOrder([finding(9, 1), other, finding(2, 5), finding(2, 3), finding(0, 0, { at: null })]);
    expect(places.map(({ at }) => (at === null ? '-' : `${at.file}${at.line}:${at.column}`))).toEqual([
      '-',
      'f2:3',
      'f2:5',
      'f9:1',
      'g1:1',
    ]);
  });

  it('is the message of InvalidFiles', () => {
    const error = new InvalidFiles([finding(1, 1)], new Map([['f', 'word']]));
    expect(error.message).toContain('f:1:1 error m [c]\n    1 | word\n      | ^^^^');
    expect(error).toBeInstanceOf(Error);
  });
});

describe('did you mean', () => {
  it.each([
    ['prot', 'port'],
    ['upstreem', 'upstreams'],
    ['publicUrl', 'public_url'],
    ['lockwait', 'lock_wait'],
    ['PORT', 'port'],
    ['portt', 'port'],
    ['x_tenent', 'X-TENANT'],
  ])('%s is near to %s', (word, meant) => {
    expect(nearest(word, ['port', 'host', 'upstreams', 'public_url', 'lock_wait', 'X-TENANT'])).toBe(meant);
  });

  it('suggests nothing that is not near', () => {
    for (const word of ['xyzzy', '', 'a', 'q'.repeat(500)])
      expect(didYouMean(word, ['port', 'host', 'id', 'x'])).toBeNull();
  });
});

describe('YAML with positions', () => {
  const text = 'a:\n  - b: 1\n    "c":\n  - { d: [x, "y"], "e.f": 2 }\n';
  const source = readYamlSource('f.yaml', text);
  const at = (path: (string | number)[], part?: 'key' | 'value') => {
    const { file, line, column } = source.at(path, part);
    return `${file}:${line}:${column}`;
  };

  it('reads plain data', () => {
    expect(source.findings).toEqual([]);
    expect(source.value).toEqual({
      a: [
        { b: 1, c: null },
        { d: ['x', 'y'], 'e.f': 2 },
      ],
    });
  });

  it('knows where values and keys stand', () => {
    expect(at(['a', 0, 'b'])).toBe('f.yaml:2:8');
    expect(at(['a', 0, 'b'], 'key')).toBe('f.yaml:2:5');
    expect(at(['a', 1, 'd', 1])).toBe('f.yaml:4:14');
    expect(at(['a', 1, 'e.f'])).toBe('f.yaml:4:27');
    expect(at([])).toBe('f.yaml:1:1');
  });

  it('an empty value stands where its key does', () => {
    expect(at(['a', 0, 'c'])).toBe('f.yaml:3:5');
  });

  it('what is not there stands where its parent does', () => {
    expect(at(['a', 0, 'zz'])).toBe('f.yaml:2:5');
    expect(at(['a', 1, 'd', 7])).toBe('f.yaml:4:7');
    expect(at(['zz', 'zz'])).toBe('f.yaml:1:1');
    expect(at(['a', 9])).toBe('f.yaml:1:1');
  });

  it('gives own, ordinary keys only, and none that reaches a prototype', () => {
    const { value, findings } = readYamlSource('f', '__proto__: { polluted: 1 }\ntoString: 2\nhasOwnProperty: 3\n');
    expect(findings.map(({ code }) => code)).toEqual(['reserved_key']);
    expect(Object.keys(Object(value))).toEqual(['toString', 'hasOwnProperty']);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(Object.hasOwn({}, 'polluted')).toBe(false);
    expect(Object('x').polluted).toBeUndefined();
  });

  it('reads CRLF, a byte order mark and wide characters at the right places', () => {
    const wide = readYamlSource('f', '\uFEFFa: 1\r\nb: "é😀" # x\r\nc: *x\r\n');
    expect(wide.findings.map(({ at: place }) => place)).toEqual([{ file: 'f', line: 3, column: 4 }]);
    expect(wide.value).toEqual({ a: 1, b: 'é😀', c: '*x' });
  });

  it('tells faults that stand apart, and the echo of none', () => {
    const apart = readYamlSource('f', 'a:\n\tb: 1\nc: 1\nd: 2\ne:\n\tf: 1\n');
    expect(apart.findings.map(({ at: place }) => place?.line)).toEqual([2, 6]);
    const echo = readYamlSource('f', `a: {b: \${C} }\n${'k: 1\n'.repeat(20)}`);
    expect(echo.findings.length).toBe(1);
  });

  it('refuses what nests too deep, without ending the process', () => {
    for (const deep of ['['.repeat(100_000), `${'['.repeat(100)}1${']'.repeat(100)}`, '{a: '.repeat(5_000)]) {
      const { findings } = readYamlSource('f', deep);
      expect(findings.length).toBeGreaterThan(0);
    }
    const level = (depth: number) => readYamlSource('f', `${'['.repeat(depth)}1${']'.repeat(depth)}`).findings.length;
    expect(level(64)).toBe(0);
    expect(level(66)).toBeGreaterThan(0);
  });

  it('refuses text that is too long before it parses it', () => {
    const codesOf = (length: number) => readYamlSource('f', '#'.repeat(length)).findings.map(({ code }) => code);
    expect(codesOf(16_777_217)).toEqual(['file_too_large']);
    expect(codesOf(16_777_216)).not.toContain('file_too_large');
  });
});
