import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseStrictJsonInSlices } from '../../src/json/strict-in-slices.ts';
import { LARGE_TEXT, parseStrictJson } from '../../src/json/strict.ts';
import { shortest } from '../shortest.ts';

const LIMITS = { depth: 64, values: 5_000 };
const space = fc.array(fc.constantFrom(' ', '\n', '\t'), { maxLength: 3 }).map((all) => all.join(''));
const string = fc
  .oneof(fc.string({ unit: 'grapheme', maxLength: 8 }), fc.constantFrom('x'.repeat(50), '"', '\\', '\u0001', '😀'))
  .chain((text) => fc.constantFrom(JSON.stringify(text), JSON.stringify(text).replaceAll('x', String.raw`\u0078`)));
const { value: json } = fc.letrec<{ value: string; list: string; object: string }>((of) => ({
  value: fc.oneof({ maxDepth: 6 }, fc.constantFrom('0', '-1.5e3', 'true', 'null'), string, of('list'), of('object')),
  list: fc
    .tuple(fc.array(of('value'), { maxLength: 6 }), space, space)
    .map(([all, before, after]) => `[${before}${all.join(`${after},${before}`)}${after}]`),
  object: fc
    .tuple(fc.array(fc.tuple(string, of('value'), fc.nat(4)), { maxLength: 6 }), space, space)
    .map(([all, before, after]) => {
      const members = all.map(
        ([name, value, count], index) => `${name.slice(0, -1)}${count === 0 ? '' : index}"${before}:${after}${value}`,
      );
      return `{${before}${members.join(`${after},${before}`)}${after}}`;
    }),
}));
/** JSON, mostly; in some of it a piece is missing or too much. */
const brokenJson = fc
  .tuple(json, space, fc.nat(), fc.nat(12), fc.constantFrom(',', '"', '}', ']', '{', '\\', ':', '__proto__'))
  .map(([value, after, at, how, more]) => {
    const text = value + after;
    const place = at % (text.length + 1);
    if (how > 3) return Buffer.from(text);
    return Buffer.from(
      how > 1 ? text.slice(0, place) + text.slice(place + how) : text.slice(0, place) + more + text.slice(place),
    );
  });

/** What a server may say. */
const LARGE = { depth: 128, values: 200_000 };

function verdict(text: string | Buffer): string {
  const result = parseStrictJson(text, LIMITS);
  if (result.ok) return 'ok';
  return result.at === null ? result.message : `${result.at.line}:${result.at.column} ${result.message}`;
}

/** Slow and plain: a recursive descent over code points that builds pairs, judged afterwards. */
function reference(text: string): boolean {
  try {
    JSON.parse(text);
  } catch {
    return false;
  }
  if (/\p{Surrogate}/u.test(text)) return false;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  const open: (Set<string> | null)[] = [];
  for (const [index, token] of tokens.entries()) {
    if (token === '{') open.push(new Set());
    else if (token === '[') open.push(null);
    else if (token === '}' || token === ']') open.pop();
    else if (token.startsWith('"')) {
      const value = String(JSON.parse(token));
      if (/\p{Surrogate}/u.test(value)) return false;
      const names = open.at(-1);
      if (names && tokens[index + 1] === ':') {
        const seen = value.replace(/[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]/gu, '');
        const folded = seen.toLowerCase().toUpperCase().toLowerCase();
        if (value === '__proto__' || value.includes('\0') || names.has(folded)) return false;
        names.add(folded);
      }
    } else if (/^[-\d]/.test(token)) {
      const value = Number(token);
      if (!Number.isFinite(value)) return false;
      if (Number.isInteger(value)) {
        if (Math.abs(value) > Number.MAX_SAFE_INTEGER) return false;
        const [, whole = '', fraction = '', exponent = '0'] =
          /^-?(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?$/.exec(token) ?? [];
        const shift = Number(exponent) - fraction.length;
        // A shift that digits cannot follow: only the exact zero is a whole number there, and large ones overflowed.
        if (Math.abs(shift) > 5000) {
          if (BigInt(whole + fraction) !== 0n && shift < 0) return false;
        } else if (shift < 0 && BigInt(whole + fraction) % 10n ** BigInt(-shift) !== 0n) return false;
      }
    }
    if (open.length > LIMITS.depth) return false;
  }
  return true;
}

describe('strict JSON', () => {
  test.each([
    ['{}', 'ok'],
    [' \t\r\n{"a": [1, -0, 1.5, 1e3, "x", true, false, null, {}, []]} ', 'ok'],
    ['{"a":9007199254740991,"b":-9007199254740991}', 'ok'],
    ['{"a":1.0,"b":100e-2,"c":1e15,"d":0e-5000,"e":0.0000000000000000000000}', 'ok'],
    ['"\\ud83d\\ude00 😀"', 'ok'],
    ['', '1:1 the end of the text where a value is expected'],
    ['{"a":1,}', '1:8 "}" where a name in quotes is expected'],
    ['{"a" 1}', '1:6 "1" where ":" is expected'],
    ['{"a":1 "b":2}', '1:8 "\\"" where "," or "}" is expected'],
    ['[1 2]', '1:4 "2" where "," or "]" is expected'],
    ['[1,]', '1:4 "]" where a value is expected'],
    ['{} x', '1:4 "x" after the end of the value'],
    ["{'a':1}", '1:2 "\'" where a name in quotes is expected'],
    ['{"a":01}', '1:6 a number with a leading zero'],
    ['{"a":1.}', '1:6 a number that is not complete'],
    ['{"a":-}', '1:6 a number that is not complete'],
    ['{"a":1e}', '1:6 a number that is not complete'],
    ['{"a":NaN}', '1:6 "N" where a value is expected'],
    ['{"a":"\\x"}', '1:7 an escape that JSON does not know'],
    ['{"a":"\\u12g4"}', '1:7 "\\u" without four hexadecimal digits'],
    ['{"a":"\u0000"}', '1:7 a control character in a string'],
    ['{"a":"b', '1:8 a string without an end'],
    ['{"a":1e400}', '1:6 a number too large for a double'],
    ['{"a":9007199254740992}', '1:6 an integer beyond ±(2^53−1)'],
    ['{"a":-9007199254740993.0}', '1:6 an integer beyond ±(2^53−1)'],
    ['{"a":1e20}', '1:6 an integer beyond ±(2^53−1)'],
    ['{"a":4.99999999999999999999}', '1:6 a number with more digits than a double holds'],
    ['{"a":1e-400}', '1:6 a number with more digits than a double holds'],
    ['{"a":"\\ud83d"}', '1:6 a lone surrogate is not a character'],
    ['{"\\udc00":1}', '1:2 a lone surrogate is not a character'],
    ['{"__proto__":{}}', '1:2 the name "__proto__" is not allowed'],
    ['{"\\u005f_proto__":{}}', '1:2 the name "__proto__" is not allowed'],
    ['{"amount\\u0000":1}', '1:2 a name with the character U+0000'],
    ['{"a\\nb":1,"a\u200bc":1}', 'ok'],
    ['{"a":{"constructor":1}}', 'ok'],
    [`${'['.repeat(64)}${']'.repeat(64)}`, 'ok'],
    [`${'['.repeat(65)}${']'.repeat(65)}`, '1:65 nested deeper than 64 levels'],
    ['['.repeat(500_000), '1:65 nested deeper than 64 levels'],
  ])('%# %.40s', (text, expected) => {
    expect(verdict(text)).toBe(expected);
    expect(verdict(Buffer.from(text))).toBe(expected);
  });

  test.each([
    '{"a":1,"a":1}',
    '{"a":1,"A":1}',
    '{"a":1,"\\u0041":1}',
    '{"\u212a":1,"k":1}',
    '{"\u017f":1,"S":1}',
    '{"a":1,"a\\u0001":1}',
    '{"a\u200b":1,"a":1}',
    '{"a":1,"\ufe0fA":1}',
  ])('a name twice: %s', (text) => {
    expect(verdict(text)).toMatch(/stands twice in one object/);
  });

  test('a name twice among many, and its line', () => {
    const names = Array.from({ length: 200 }, (_, index) => `"name${index}": ${index}`);
    expect(verdict(`{${names.join(',\n')}}`)).toBe('ok');
    expect(verdict(`{${names.join(',\n')},\n"NAME7": 1}`)).toMatch(/^201:1 the name "NAME7" stands twice/);
  });

  test('the same name in different objects is fine', () => {
    expect(verdict('{"a":{"a":1},"b":[{"a":1},{"a":2}]}')).toBe('ok');
  });

  test('bytes that are not UTF-8, and byte order marks', () => {
    expect(verdict(Buffer.from([0x22, 0xff, 0x22]))).toBe('the text is not UTF-8');
    expect(verdict(Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]))).toBe('the text is not UTF-8');
    expect(verdict(Buffer.from([0x22, 0xc0, 0xaf, 0x22]))).toBe('the text is not UTF-8');
    expect(verdict(Buffer.from('{}', 'utf16le'))).toMatch(/^1:2 /);
    expect(verdict(Buffer.from('\ufeff{}'))).toBe('1:1 the text begins with a byte order mark');
    expect(verdict('"\ud800"')).toBe('1:2 a lone surrogate is not a character');
  });

  test('the value is that of JSON.parse, and no prototype is touched', () => {
    const result = parseStrictJson('{"toString":1,"b":[{"hasOwnProperty":null}]}', LIMITS);
    expect(result).toEqual({ ok: true, value: { toString: 1, b: [{ hasOwnProperty: null }] } });
  });

  test('random values pass as they are', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = JSON.stringify(value);
        expect(parseStrictJson(text, LIMITS).ok).toBe(reference(text));
      }),
    );
  });

  test('zeros in the middle of a number are read in linear time', async () => {
    const zeros = '0'.repeat(100_000);
    const read = (): number => {
      const began = performance.now();
      expect(verdict(`[0.${zeros}1e100001]`)).toBe('ok');
      expect(verdict(`[1.${zeros}1]`)).toBe('1:2 a number with more digits than a double holds');
      return performance.now() - began;
    };
    expect(await shortest(500, read)).toBeLessThan(500);
  });

  test('random texts near JSON are judged as the reference judges them', () => {
    const pieces = [
      '{ } [ ] , : " \\ "a" "A" "b": "a":1 "__proto__": 1 - 0 . e E5 + -0 1e400 1e-400 9007199254740993 1.5 0.1e1',
      '123456 true false null tru \\u0041 \\ud800 \\ude00 \u00e9 \u0000 \u2028 "\\n"',
    ];
    const piece = fc.constantFrom(' ', '\n', '\t', ...pieces.flatMap((line) => line.split(' ')));
    const text = fc.array(piece, { maxLength: 14 }).map((drawn) => drawn.join(''));
    const closed = text.map((inner) => `{"x":[${inner}]}`);
    const members = fc
      .array(fc.tuple(fc.constantFrom('a', 'A', 'b', '\\u0061', 'k', '\u212a', '__proto__'), text), { maxLength: 4 })
      .map((pairs) => `{${pairs.map(([name, value]) => `"${name}":${value === '' ? '1' : value}`).join(',')}}`);
    const number = fc
      .tuple(fc.constantFrom('', '-'), fc.nat(), fc.stringMatching(/^[0-9]{0,25}$/), fc.integer({ min: -30, max: 330 }))
      .map(([sign, whole, fraction, exponent]) => `${sign}${whole}${fraction && `.${fraction}`}e${exponent}`);
    fc.assert(
      fc.property(fc.oneof(text, closed, members, number), (candidate) => {
        expect(parseStrictJson(candidate, LIMITS).ok, candidate).toBe(reference(candidate));
      }),
    );
  });
});

describe('how much one text may hold', () => {
  const judge = (text: string) => parseStrictJson(text, LIMITS);

  test('5,000 values, lists and maps among them', () => {
    const list = (count: number) => `[${Array.from({ length: count }, () => '0').join(',')}]`;
    expect(judge(list(LIMITS.values - 1)).ok).toBe(true);
    expect(judge(list(LIMITS.values))).toMatchObject({ ok: false, message: 'more than 5000 values' });
    expect(judge(`[${Array.from({ length: LIMITS.values / 2 }, () => '{"a":0}').join(',')}]`).ok).toBe(false);
    expect(parseStrictJson(list(LIMITS.values), { depth: 64, values: LIMITS.values + 1 }).ok).toBe(true);
  });

  test('a large text read in slices is judged as it is at once', async () => {
    const item = `{"a":[1,{"b":"${'é'.repeat(40)}"}],"c":-0.5e3,"d":null}`;
    const sound = `[${Array.from({ length: 900 }, () => item).join(',\n ')}]`;
    expect(Buffer.byteLength(sound)).toBeGreaterThan(3 * LARGE_TEXT);
    const places = [0, 1, 20_000, 32_767, 32_768, 32_769, 65_536, sound.length - 2, sound.length - 1];
    const texts = [
      sound,
      `${sound} `,
      `${sound}]`,
      `${' '.repeat(100_000)}0`,
      `{"a":"${'x'.repeat(100_000)}","A":0}`,
      `[${'0,'.repeat(LIMITS.values)}0]`,
      '['.repeat(100_000),
      ...places.flatMap((at) => [sound.slice(0, at), `${sound.slice(0, at)}\u0001${sound.slice(at)}`]),
    ];
    for (const text of texts)
      expect(await parseStrictJsonInSlices(Buffer.from(text), LIMITS)).toEqual(parseStrictJson(text, LIMITS));
    expect(await parseStrictJsonInSlices(Buffer.from([0xff]), LIMITS)).toMatchObject({ ok: false });
  });

  test('the value of a large text is made in parts, and is what JSON.parse makes', async () => {
    const long = 'x'.repeat(40_000);
    const inner = `{"b" : [ ${Array.from({ length: 9_000 }, (_, index) => `{"n${index % 7}":${index}}`).join(' , ')} ],"7":1}`;
    const texts = [
      `[[],{},${inner} , ${inner},"${long}",${inner}]`,
      ` {"a":{"c":[1,2,${inner} ],"d":"\\n${long}\\"","e":{}}, "10":[${inner}],"2":[[[${inner}]]],"é\\u00e9":null } `,
      `{"a":[1,{"b":${inner},"c":{"d":"${long}"},"e":[]}, 2 ],"f":"${long}","g":[ ]}`,
      // What has no comma for long is still text when what is around it ends.
      `${'[1,{"a":2,"b":'.repeat(20)}${inner}${'}]'.repeat(20)}`,
      `"${String.raw`\ud83d\ude00`.repeat(10_000)}"`,
      `${' '.repeat(40_000)}[1,${' \n'.repeat(40_000)}2${'\t'.repeat(40_000)}]`,
      JSON.stringify(['é😀\u2028'.repeat(150_000)]),
    ];
    for (const text of texts) {
      expect(Buffer.byteLength(text)).toBeGreaterThan(LARGE_TEXT);
      const read = await parseStrictJsonInSlices(Buffer.from(text), LARGE);
      expect(read.ok ? JSON.stringify(read.value) : read).toBe(JSON.stringify(JSON.parse(text)));
    }
  });

  test('what is read in slices is what is read at once, value and fault, wherever a slice ends', async () => {
    await fc.assert(
      fc.asyncProperty(brokenJson, fc.constantFrom(1, 3, 16), fc.nat(3), async (text, slice, short) => {
        const limits = {
          depth: short === 0 ? 3 : 20,
          values: short === 1 ? 8 : 5_000,
          members: short === 2 ? 3 : 5_000,
        };
        const [whole, parts] = [parseStrictJson(text, limits), await parseStrictJsonInSlices(text, limits, slice)];
        expect(parts).toStrictEqual(whole);
      }),
    );
  });

  test('what comes after a long text is looked at, too', async () => {
    const text = `["${'x'.repeat(40_000)}",{"a":1,"a":2}]`;
    const fault = { ok: false, message: expect.stringContaining('"a"') };
    expect(parseStrictJson(text, LARGE)).toMatchObject(fault);
    expect(parseStrictJson(Buffer.from(text), LARGE)).toMatchObject(fault);
    expect(await parseStrictJsonInSlices(Buffer.from(text), LARGE)).toMatchObject(fault);
  });

  test('an object has as many members as it may have', async () => {
    const most = { ...LARGE, members: 20 };
    const map = (count: number) => `{${Array.from({ length: count }, (_, index) => `"${index}":0`).join(',')}}`;
    expect(parseStrictJson(`[${map(20)},${map(20)}]`, most).ok).toBe(true);
    const fault = { ok: false, message: 'more than 20 members in one object' };
    expect(parseStrictJson(`[${map(21)}]`, most)).toMatchObject(fault);
    expect(await parseStrictJsonInSlices(Buffer.from(`[${map(21)}]`), most)).toMatchObject(fault);
  });

  test('names of 1,024 characters, which no message shows whole', () => {
    const name = (length: number) => JSON.stringify('n'.repeat(length));
    expect(judge(`{${name(1024)}:0}`).ok).toBe(true);
    expect(judge(`{${name(1025)}:0}`)).toMatchObject({ ok: false, message: 'a name of more than 1024 characters' });
    const twice = judge(`{${name(1024)}:0,${name(1024)}:0}`);
    expect(twice.ok ? '' : twice.message).toMatch(/^the name "n{100}"… stands twice/);
  });
});
