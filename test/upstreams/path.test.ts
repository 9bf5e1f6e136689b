import { describe, expect, test } from 'vitest';
import { isReadAlike, isUsualSpelling, matchPattern, readPath, readPattern } from '../../src/upstreams/http/url.ts';

describe('a path that servers may read in different ways is refused, with what it has', () => {
  const character = 'the path has a character that a path may not have; percent-encode it';
  const dots = 'the path has a "." or ".." segment';
  const encoded = 'the path has an encoded dot, slash, backslash or NUL';
  const percent = 'the path has a percent sign that does not encode UTF-8';
  const control = 'the path has a control character';
  const empty = 'the path has an empty segment ("//")';
  test.each([
    ['a', character],
    ['/a b', character],
    ['/a"b', character],
    ['/a\\b', character],
    ['/a{b}', character],
    ['/a|b', character],
    ['/é', character],
    ['/a?b', character],
    ['/a#b', character],
    ['//', empty],
    ['//a', empty],
    ['/a//b', empty],
    ['/.', dots],
    ['/..', dots],
    ['/a/./b', dots],
    ['/a/..', dots],
    ['/..;a', dots],
    ['/a;b', 'the path has a ";", which some servers cut a segment off at'],
    ['/%2E', encoded],
    ['/a%2Fb', encoded],
    ['/a%2fb', encoded],
    ['/a%5Cb', encoded],
    ['/a%5cb', encoded],
    ['/a%00b', encoded],
    ['/a%', percent],
    ['/a%zz', percent],
    ['/a%ff', percent],
    ['/a%c3', percent],
    ['/a%0Ab', control],
    ['/a%7F', control],
    ['/a%1f', control],
  ])('%s', (path, message) => {
    expect(readPath(path)).toEqual({ ok: false, message });
  });

  test.each([
    ['/', ['']],
    ['/a/', ['a', '']],
    ['/...', ['...']],
    ['/.a/a.', ['.a', 'a.']],
    ["/a-._~!$&'()*+,=:@", ["a-._~!$&'()*+,=:@"]],
    ['/%C3%A9%20%25%3B', ['é %;']],
  ])('but %s is a path', (path, segments) => {
    expect(readPath(path)).toEqual({ ok: true, segments });
  });

  test('encoded slashes are read where a param may hold them, and nothing else is with them', () => {
    expect(readPath('/a%2Fb%2fc/d', true)).toEqual({ ok: true, segments: ['a/b/c', 'd'] });
    for (const path of ['/a%2F..', '/a%2F.%2Fb', '/..%2Fa']) expect(readPath(path, true)).toMatchObject({ ok: false });
    for (const path of ['/a%2F%2E', '/a%5C', '/a%00'])
      expect(readPath(path, true)).toEqual({ ok: false, message: encoded });
  });
});

test('names that all servers read alike', () => {
  for (const name of ['', 'a', 'a b', 'a.b', '.a', 'é', 'a%b', 'a:b'])
    expect([name, isReadAlike(name)]).toEqual([name, true]);
  for (const name of [
    ' a',
    'a ',
    'a.',
    'a;b',
    'a%2fb',
    'a%2Fb',
    '％２ｆ',
    'a；b',
    'a．',
    'a\u200b',
    '\ufeffa',
    'a\u00ad',
  ])
    expect([name, isReadAlike(name)]).toEqual([name, false]);
});

test.each([
  ['/v1/a+b', '/v1/:id', false],
  ['/v1/a%2Bb', '/v1/:id', true],
  ['/v1/a%2bb', '/v1/:id', true],
  ['/v1/%61b', '/v1/:id', true],
  ['/v1/%7E%2D', '/v1/:id', true],
  ['/v1/a:b', '/v1/:id', false],
  // What is fixed is spelled as the pattern has it.
  ['/v1/a:b', '/v1/a:b', true],
  ['/v1/a%3Ab', '/v1/a:b', false],
  ['/v1/a/b%20c', '/v1/*path', true],
  ['/v1/a%2Fb', '/v1/*path', false],
])('%s is the usual spelling for %s: %s', (path, pattern, is) => {
  expect(isUsualSpelling(path, pattern)).toBe(is);
});

test('a pattern has params that fill their segments, and the rest of the path only at its end', () => {
  for (const pattern of ['/a/{+b}/c', '/a/*b/c', '/a{b}', '/{a}b', '/{a}{b}']) expect(readPattern(pattern)).toBeNull();
  expect(readPattern('/a/{b}/{+c}')).toEqual([
    { kind: 'literal', text: 'a' },
    { kind: 'param', name: 'b' },
    { kind: 'param', name: 'c', holds: 'any' },
  ]);
  const match = (pattern: string, ...segments: string[]) => matchPattern(readPattern(pattern) ?? [], segments);
  expect(match('/a/:b', 'a', 'x')).toEqual({ b: 'x' });
  for (const segments of [['a'], ['a', ''], ['a', 'x', 'y'], ['b', 'x'], ['a', 'x/y']])
    expect(match('/a/:b', ...segments)).toBeNull();
  expect(match('/a/*b', 'a', 'x', 'y')).toEqual({ b: 'x/y' });
  for (const segments of [['a'], ['a', '']]) expect(match('/a/*b', ...segments)).toBeNull();
});
