import { expect, it } from 'vitest';
import { checkEntity, MAX_ID, MOST_FAULTS } from '../../src/brain/check-entity.ts';
import type { Json } from '../../src/json/value.ts';

const SOUND = { type: 'team', id: 'a', name: 'A' } as const;
const links = (count: number): Json =>
  Array.from({ length: count }, (_, at) => ({ rel: 'of', type: 'team', id: `t${at}` }));

it.each<[string, Json, readonly (string | number)[]]>([
  ['a name with a character that turns the direction', { ...SOUND, name: 'A\u202eB' }, ['name']],
  ['a name with half a character', { ...SOUND, name: 'A\ud800' }, ['name']],
  ['an id with a character that turns the direction', { ...SOUND, id: 'a\u202eb' }, ['id']],
  ['an id with a control character', { ...SOUND, id: 'a\u0000' }, ['id']],
  ['an id with half a character', { ...SOUND, id: 'a\udc00' }, ['id']],
  ['an id without a character', { ...SOUND, id: '' }, ['id']],
  ['an id that is too long', { ...SOUND, id: 'a'.repeat(MAX_ID + 1) }, ['id']],
  [
    'the id of a link with a hidden character',
    { ...SOUND, links: [{ rel: 'of', type: 'team', id: 'a\u2066' }] },
    ['links', 0, 'id'],
  ],
  ['one link too many', { ...SOUND, links: links(101) }, ['links']],
  ['a prototype', { ...SOUND, attributes: JSON.parse('{"in":{"__proto__":1}}') as Json }, ['attributes', 'in']],
  ['half a character within attributes', { ...SOUND, attributes: { a: ['\udc00'] } }, ['attributes', 'a', 0]],
])('%s is refused, and where it stands is told', (_what, value, path) => {
  const checked = checkEntity(value);
  expect(checked.ok ? [] : checked.faults.map((fault) => fault.path)).toEqual([path]);
});

it.each([
  0x61c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069, 0x9, 0x7f, 0x85,
  0x2028,
])('an id and a name with the character %i would be read otherwise than they are', (code) => {
  const hidden = String.fromCodePoint(code);
  const checked = checkEntity({ ...SOUND, id: `a${hidden}b`, name: `A${hidden}B` });
  expect(checked.ok ? [] : checked.faults.map(({ path }) => path)).toEqual([['id'], ['name']]);
});

it('a hundred links are taken', () => {
  expect(checkEntity({ ...SOUND, links: links(100) }).ok).toBe(true);
});

const nested = (levels: number): Json => (levels === 0 ? 'x' : { in: nested(levels - 1) });
/** An entity that is so many characters as JSON, without type and id. */
const long = (characters: number): Json => {
  const empty = JSON.stringify({ attributes: { text: '' }, links: [], name: 'A' }).length;
  return { ...SOUND, attributes: { text: 'x'.repeat(characters - empty) } };
};

it.each<[string, Json, Json, readonly (string | number)[]]>([
  [
    'a type of 64 characters',
    { ...SOUND, type: `t${'-'.repeat(63)}` },
    { ...SOUND, type: `t${'-'.repeat(64)}` },
    ['type'],
  ],
  ['a type that begins with a letter', { ...SOUND, type: 'T1' }, { ...SOUND, type: '1T' }, ['type']],
  ['an id of 256 characters', { ...SOUND, id: 'a'.repeat(256) }, { ...SOUND, id: 'a'.repeat(257) }, ['id']],
  ['a name of 512 characters', { ...SOUND, name: 'a'.repeat(512) }, { ...SOUND, name: 'a'.repeat(513) }, ['name']],
  ['a name that says something', { ...SOUND, name: ' a ' }, { ...SOUND, name: '  ' }, ['name']],
  [
    'attributes of eight levels',
    { ...SOUND, attributes: nested(8) },
    { ...SOUND, attributes: nested(9) },
    ['attributes', ...Array.from({ length: 8 }, () => 'in')],
  ],
  ['16,384 characters', long(16_384), long(16_385), []],
  [
    'two links to one entity by other words',
    {
      ...SOUND,
      links: [
        { rel: 'of', type: 'team', id: 'b' },
        { rel: 'in', type: 'team', id: 'b' },
      ],
    },
    {
      ...SOUND,
      links: [
        { rel: 'of', type: 'team', id: 'b' },
        { rel: 'of', type: 'team', id: 'b' },
      ],
    },
    ['links', 1],
  ],
  ['links', { ...SOUND, links: [] }, { ...SOUND, links: {} }, ['links']],
  ['a link', { ...SOUND, links: [] }, { ...SOUND, links: [1] }, ['links', 0]],
  ['attributes', { ...SOUND, attributes: {} }, { ...SOUND, attributes: [] }, ['attributes']],
  ['an object', SOUND, [SOUND], []],
])('%s may be, and not more', (_what, sound, odd, path) => {
  expect(checkEntity(sound)).toMatchObject({ ok: true });
  const checked = checkEntity(odd);
  expect(checked.ok ? null : checked.faults.map((fault) => fault.path)).toEqual([path]);
});

it('what is missing is told, an id that is a number should be in quotes, and what is inherited is not there', () => {
  const faults = (value: Json) => {
    const checked = checkEntity(value);
    return checked.ok ? [] : checked.faults.map(({ path, message }) => `${path.join('.')} ${message}`);
  };
  expect(faults({}).map((one) => one.split(';')[0])).toEqual(['type is missing', 'id is missing', 'name is missing']);
  expect(faults({ ...SOUND, id: 7 })).toEqual([expect.stringContaining('; write it in quotes')]);
  expect(faults({ ...SOUND, atributes: {} })).toEqual([expect.stringContaining('attributes')]);
  expect(faults({ ...SOUND, links: [{ rel: 'of', type: 'team', id: 'b', why: 1 }] })).toHaveLength(1);
  expect(checkEntity(SOUND)).toEqual({ ok: true, entity: { ...SOUND, attributes: {}, links: [] } });
});

it('of ten thousand unknown members, the first hundred are told', () => {
  const members = Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`nam${at}`, at]));
  const checked = checkEntity({ ...SOUND, ...members });
  expect(checked.ok ? 0 : checked.faults.length).toBe(MOST_FAULTS);
});
