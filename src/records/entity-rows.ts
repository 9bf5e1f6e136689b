import { createHash } from 'node:crypto';
import {
  ABSENT_ENTITY,
  entityName,
  type EntityRecord,
  type EntityRef,
  type SeenEntity,
} from '../effects/model/entity.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, repository } from './kind.ts';

/** An entity with the length of its body before it was sealed, which counts toward the limit. */
export interface StoredEntity extends EntityRecord {
  readonly characters: number;
}

export const ENTITIES = 'entities';
export const entitiesOfType = (type: string): string => `entities_of:${type}`;

/** Entities, in the order of the versions that wrote them. */
export const entityRows = repository<StoredEntity>({
  ...jsonKind<StoredEntity>('entity', ({ type, version }) => [
    { list: ENTITIES, at: version },
    { list: entitiesOfType(type), at: version },
  ]),
  // A large import leaves room in memory for what calls look at.
  isOver: () => true,
});

/** Cursors and places name rows by their ids, and an id of an entity is any text. */
export function rowId(ref: EntityRef): string {
  return `ent_${createHash('sha256').update(entityName(ref)).digest('hex').slice(0, 40)}`;
}

/** The version of an entity, as a step sees it. */
export function entityVersion(draft: Draft, seen: SeenEntity): number {
  const hint = seen.version === ABSENT_ENTITY ? MOSTLY_ABSENT : undefined;
  return entityRows.get(draft, rowId(seen), hint)?.version ?? ABSENT_ENTITY;
}
