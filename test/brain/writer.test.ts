import { createSecretKey } from 'node:crypto';
import { expect, it } from 'vitest';
import { createBrainWriter } from '../../src/brain/writer.ts';
import type { Entity } from '../../src/effects/model/entity.ts';

const ENTITY: Entity = { type: 'customer', id: 'c1', name: 'Acme', attributes: { tier: 'gold' }, links: [] };

function digest(entity: Entity, key = 'k', workspace = 'demo'): string {
  const writer = createBrainWriter({
    store: { putEntities: () => Promise.reject(new Error('nothing is put')) },
    digestKey: (of) => createSecretKey(Buffer.from(`${key} of ${of}`)),
    limits: () => ({ entities: 1, characters: 1 }),
  });
  return writer.digest(workspace, entity);
}

it('the digest of an entity depends on all of it, on the workspace, and on a key that nobody outside has', () => {
  const digests = [
    digest(ENTITY),
    digest({ ...ENTITY, id: 'c2' }),
    digest({ ...ENTITY, type: 'person' }),
    digest({ ...ENTITY, attributes: { tier: 'silver' } }),
    digest(ENTITY, 'another'),
    digest(ENTITY, 'k', 'other'),
  ];
  expect(new Set(digests).size).toBe(digests.length);
  expect(digest({ ...ENTITY })).toBe(digests[0]);
});
