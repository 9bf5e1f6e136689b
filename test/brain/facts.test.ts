import { expect, it } from 'vitest';
import { createEntityFacts, type EntityFacts } from '../../src/brain/facts.ts';
import { ABSENT_ENTITY, type EntityRef, textOfEntity, UNREAD_ENTITY } from '../../src/effects/model/entity.ts';

const BY = { kind: 'api', by: { type: 'user', id: 'maria' } } as const;

/** Facts of a store where every entity is, with so many characters. */
function factsOf(characters: number): EntityFacts {
  const text = 'x'.repeat(characters);
  return createEntityFacts({
    entities: async (workspace, refs) =>
      refs.map(({ type, id }) => ({
        type,
        id,
        version: 1,
        digest: `${workspace} ${id}`,
        origin: BY,
        updatedAt: 0,
        body: textOfEntity({ name: id, attributes: { text }, links: [] }),
      })),
  });
}

const customer = (id: string): EntityRef => ({ type: 'customer', id });

function isKnown(facts: EntityFacts, id: string, workspace = 'demo'): boolean {
  return facts.view(workspace).entity('customer', id) !== null;
}

it('what one workspace has read is unread in another', async () => {
  const facts = factsOf(1);
  await facts.read('demo', [customer('a')]);
  expect(isKnown(facts, 'a')).toBe(true);
  const view = facts.view('other');
  expect(view.entity('customer', 'a')).toBeNull();
  expect(view.seen()).toEqual([{ type: 'customer', id: 'a', version: UNREAD_ENTITY, digest: '' }]);
});

it('what is not in the store is seen as absent once it was read, so that nobody reads it for ever', async () => {
  const facts = createEntityFacts({ entities: async () => [null] });
  await facts.read('demo', [customer('a')]);
  const view = facts.view('demo');
  expect(view.entity('customer', 'a')).toBeNull();
  expect(view.seen()).toEqual([{ type: 'customer', id: 'a', version: ABSENT_ENTITY, digest: '' }]);
});

it.each(['', 'a\u202eb', 'a\nb', 'x'.repeat(257), '\ud800'])('%j can be no id, and is not looked up', (id) => {
  const view = factsOf(1).view('demo');
  expect(view.entity('customer', id)).toBeNull();
  expect(view.seen()).toBeNull();
});

it('remembers so many entities, and forgets the oldest', async () => {
  const facts = factsOf(1);
  await facts.read(
    'demo',
    Array.from({ length: 5001 }, (_, at) => customer(`c${at}`)),
  );
  expect([isKnown(facts, 'c0'), isKnown(facts, 'c1'), isKnown(facts, 'c5000')]).toEqual([false, true, true]);
});

it('remembers so many characters, each entity once', async () => {
  const facts = factsOf(1_000_000);
  await facts.read('demo', [customer('first')]);
  for (let times = 0; times < 20; times += 1) await facts.read('demo', [customer('second')]);
  expect(isKnown(facts, 'first')).toBe(true);
  for (let at = 0; at < 16; at += 1) await facts.read('demo', [customer(`c${at}`)]);
  expect([isKnown(facts, 'first'), isKnown(facts, 'c15')]).toEqual([false, true]);
});
