import type { EntityStore } from '../effects/entity-store.ts';
import {
  ABSENT_ENTITY,
  type Entity,
  entityName,
  entityOf,
  type EntityRef,
  type SeenEntity,
  UNREAD_ENTITY,
} from '../effects/model/entity.ts';
import { isEntityId } from './check-entity.ts';

/** Entities, and characters of them, that are remembered. */
const MOST_ENTITIES = 5000;
const MOST_CHARACTERS = 16 * 1024 * 1024;

/**
 * Entities that policies read lately. They may be out of date: an admission is held against the versions in the
 * store, and where one has changed, the entity is read again and the call judged anew.
 */
export type EntityFacts = ReturnType<typeof createEntityFacts>;

interface Remembered {
  readonly entity: Entity | null;
  readonly seen: SeenEntity;
  readonly characters: number;
}

export function createEntityFacts(store: Pick<EntityStore, 'entities'>) {
  /** Oldest first. */
  const remembered = new Map<string, Remembered>();
  let characters = 0;
  const nameOf = (workspace: string, ref: EntityRef): string => `${workspace}\n${entityName(ref)}`;

  function forget(name: string): void {
    characters -= remembered.get(name)?.characters ?? 0;
    remembered.delete(name);
  }

  function remember(name: string, one: Remembered): void {
    forget(name);
    remembered.set(name, one);
    characters += one.characters;
    for (const oldest of remembered.keys()) {
      if (remembered.size <= MOST_ENTITIES && characters <= MOST_CHARACTERS) return;
      forget(oldest);
    }
  }

  return {
    /** Synchronous. What is not remembered is seen as unread. */
    view(workspace: string): {
      /** `null`: there is none, or it is not known here. */
      entity(type: string, id: string): Entity | null;
      /** What was read, in the versions that were seen; `null`: nothing. */
      seen(): readonly SeenEntity[] | null;
    } {
      let seen: Map<string, SeenEntity> | null = null;
      return {
        entity(type, id) {
          // The caller may have sent anything; what cannot be an id is none.
          if (!isEntityId(id)) return null;
          const name = nameOf(workspace, { type, id });
          const known = remembered.get(name);
          seen ??= new Map();
          seen.set(name, known?.seen ?? { type, id, version: UNREAD_ENTITY, digest: '' });
          return known?.entity ?? null;
        },
        seen: () => (seen === null ? null : [...seen.values()]),
      };
    },
    /** Reads entities from the store, also where they are remembered. @throws StoreUnavailable */
    async read(workspace: string, refs: readonly EntityRef[]): Promise<void> {
      const records = await store.entities(workspace, refs);
      for (const [index, { type, id }] of refs.entries()) {
        const record = records[index] ?? null;
        remember(nameOf(workspace, { type, id }), {
          entity: record === null ? null : entityOf(record),
          seen: { type, id, version: record?.version ?? ABSENT_ENTITY, digest: record?.digest ?? '' },
          characters: type.length + id.length + (record?.body.length ?? 0),
        });
      }
    },
  };
}
