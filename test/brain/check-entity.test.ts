import { expect, it } from 'vitest';
import { checkEntity, MAX_ID, MAX_LINKS, MOST_FAULTS } from '../../src/brain/check-entity.ts';
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
  ['one link too many', { ...SOUND, links: links(MAX_LINKS + 1) }, ['links']],
  ['a prototype', { ...SOUND, attributes: JSON.parse('{"in":{"__proto__":1}}') as Json }, ['attributes', 'in']],
  ['half a character within attributes', { ...SOUND, attributes: { a: ['\udc00'] } }, ['attributes', 'a', 0]],
])('%s is refused, and where it stands is told', (_what, value, path) => {
  const checked = checkEntity(value);
  expect(checked.ok ? [] : checked.faults.map((fault) => fault.path)).toEqual([path]);
});

it('as many links as may be are taken', () => {
  expect(checkEntity({ ...SOUND, links: links(MAX_LINKS) }).ok).toBe(true);
});

it('of ten thousand unknown members, the first hundred are told', () => {
  const members = Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`nam${at}`, at]));
  const checked = checkEntity({ ...SOUND, ...members });
  expect(checked.ok ? 0 : checked.faults.length).toBe(MOST_FAULTS);
});
