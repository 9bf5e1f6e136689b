import { createHmac, type KeyObject } from 'node:crypto';
import type { EntityLimits, EntityStore } from '../effects/entity-store.ts';
import { type Entity, type EntityOrigin, entityName, textOfEntity } from '../effects/model/entity.ts';
import type { LedgerActor } from '../effects/model/ledger.ts';

/** Entities of one change. A step with so many takes a few ms. */
export const MOST_AT_ONCE = 100;

const DIGEST_BYTES = 16;

/** An entity to put, and where it comes from. */
export interface Incoming {
  readonly entity: Entity;
  readonly origin: EntityOrigin;
}

export type BrainWriter = ReturnType<typeof createBrainWriter>;

export function createBrainWriter(parts: {
  readonly store: Pick<EntityStore, 'putEntities'>;
  /** The key of a workspace: attributes have few possible values, and a plain digest would tell them. */
  readonly digestKey: (workspace: string) => KeyObject;
  readonly limits: () => EntityLimits;
}) {
  const keyed = (workspace: string, text: string): string =>
    createHmac('sha256', parts.digestKey(workspace)).update(text).digest().toString('base64url', 0, DIGEST_BYTES);
  const digestOf = (workspace: string, entity: Entity, body: string): string =>
    keyed(workspace, `entity\n${entityName(entity)}\n${body}`);

  return {
    /** Puts at most {@link MOST_AT_ONCE} entities, all or none. No two have the same type and id. */
    put(workspace: string, entities: readonly Incoming[], actor: LedgerActor): ReturnType<EntityStore['putEntities']> {
      const records = entities.map(({ entity, origin }) => {
        const { type, id } = entity;
        const body = textOfEntity(entity);
        return { type, id, body, origin, characters: body.length, digest: digestOf(workspace, entity, body) };
      });
      return parts.store.putEntities({ workspace, entities: records, actor, limits: parts.limits() });
    },
    digest: (workspace: string, entity: Entity): string => digestOf(workspace, entity, textOfEntity(entity)),
    /** The digest by which the store knows files again, of a plain one over all that they say. */
    filesDigest: (workspace: string, plain: string): string => keyed(workspace, `files\n${plain}`),
  };
}
