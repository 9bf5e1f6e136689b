import { afterAll, beforeAll, expect, test } from 'vitest';
import { type EntityLink, textOfEntity } from '../../src/effects/model/entity.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { type ProxiedWorld, startProxiedWorld } from './gateway.ts';

const ACTOR = { type: 'user', id: 'maria' } as const;

let world: ProxiedWorld;
beforeAll(async () => {
  world = await startProxiedWorld();
});
afterAll(() => world.close());

/** Puts entities into the store as another gateway would: nobody tells the one that answers. */
function put(type: string, id: string, attributes: JsonObject, links: readonly EntityLink[] = []): Promise<unknown> {
  const body = textOfEntity({ name: id, attributes, links });
  return world.store.putEntities({
    workspace: 'demo',
    entities: [{ type, id, body, digest: body, characters: body.length, origin: { kind: 'api', by: ACTOR } }],
    actor: ACTOR,
    limits: { entities: 100, characters: 100_000 },
  });
}

let counter = 0;
async function order(shop: string): Promise<string> {
  counter += 1;
  const headers = { 'idempotency-key': `brain-${counter}`, 'content-type': 'application/json' };
  const answer = await world.call('POST', `/shop/v1/vip/${shop}`, { body: '{"text":"x"}', headers });
  return answer.headers.get('svc-decision') ?? '';
}

async function read(shop: string): Promise<string> {
  return (await world.call('GET', `/shop/v1/vip/${shop}`)).headers.get('svc-decision') ?? '';
}

async function lastOf(kind: string): Promise<JsonObject | undefined> {
  const events = await world.store.ledgerBefore('demo', null, 50);
  return events.find((event) => event.kind === kind)?.data;
}

const owner = (id: string): EntityLink => ({ rel: 'owned_by', type: 'person', id });

test('an entity that is not there lets nothing through, and the record says that it was looked for', async () => {
  expect(await order('nowhere')).toBe('denied_policy');
  expect((await lastOf('effect.denied'))?.['entities']).toEqual([
    { type: 'shop', id: 'nowhere', version: 0, digest: '' },
  ]);
  expect(await read('nowhere')).toBe('denied_policy');
});

test('what it says decides, and the record has the version and the digest that were seen', async () => {
  await put('person', 'ann', { sanctioned: false });
  await put('shop', 'a', { tier: 'gold' }, [owner('ann')]);
  expect(await order('a')).toBe('committed');
  const seen = (await lastOf('effect.admitted'))?.['entities'];
  expect(seen).toEqual([
    { type: 'shop', id: 'a', version: 2, digest: expect.stringContaining('gold') },
    { type: 'person', id: 'ann', version: 1, digest: expect.stringContaining('sanctioned') },
  ]);
  expect(await read('a')).toBe('committed');
});

test('the call after a change is judged by the change, at once, though nobody told this gateway', async () => {
  await put('person', 'bob', { sanctioned: false });
  await put('shop', 'b', { tier: 'gold' }, [owner('bob')]);
  expect([await order('b'), await read('b')]).toEqual(['committed', 'committed']);
  await put('person', 'bob', { sanctioned: true });
  expect([await order('b'), await read('b')]).toEqual(['denied_policy', 'denied_policy']);
  await put('person', 'bob', { sanctioned: false });
  expect([await read('b'), await order('b')]).toEqual(['committed', 'committed']);
  const entities = [{ type: 'shop', id: 'b' }];
  await world.store.removeEntities({ workspace: 'demo', entities, origin: 'api', actor: ACTOR });
  expect([await order('b'), await read('b')]).toEqual(['denied_policy', 'denied_policy']);
  await put('shop', 'b', { tier: 'gold' }, [owner('bob')]);
  expect(await order('b')).toBe('committed');
});

test('a deny rule with an entity that cannot be found denies', async () => {
  await put('shop', 'c', { tier: 'gold' });
  expect(await order('c')).toBe('denied_policy');
  await put('shop', 'c', { tier: 'gold' }, [owner('nobody')]);
  expect(await order('c')).toBe('denied_policy');
});

test('a preview reads what it needs: what nobody has read yet, and what another gateway has changed since', async () => {
  await put('person', 'eve', { sanctioned: false });
  for (const shop of ['d', 'e']) await put('shop', shop, { tier: 'gold' }, [owner('eve')]);
  expect(await order('d')).toBe('committed');
  const would = async (shop: string): Promise<string> => {
    counter += 1;
    const preview = await world.preview(shop, `brain-${counter}`);
    return preview.kind === 'preview' ? preview.would : preview.problem.code;
  };
  expect(await would('e')).toBe('committed');
  await put('shop', 'e', { tier: 'tin' }, [owner('eve')]);
  expect(await would('e')).toBe('denied_policy');
});
