import type { EntityOrigin } from '../effects/model/entity.ts';
import { timeToWire } from '../effects/wire/time.ts';
import type { BrainAnswer, BrainEntity } from './port.ts';

export function entityToWire({ type, id, name, attributes, links, version, updatedAt }: BrainEntity) {
  return {
    type,
    id,
    name,
    attributes,
    links: links.map((link) => ({ ...link })),
    version,
    updated_at: timeToWire(updatedAt),
  };
}

/** Where an entity comes from. */
export function originToWire(origin: EntityOrigin) {
  switch (origin.kind) {
    case 'api':
      return { kind: origin.kind, by: { type: origin.by.type, id: origin.by.id } };
    case 'file':
      return { kind: origin.kind, file: origin.file, line: origin.line };
  }
}

/** The answer to a search as HTTP and MCP give it: `entities`, `joined`, `sources` and `truncated`. */
export function answerToWire({ entities, joined, sources, truncated }: BrainAnswer) {
  return {
    entities: entities.map((hit) => ({ ...entityToWire(hit), score: hit.score })),
    joined: joined.map(({ of, entities: linked }) => ({
      of: { type: of.type, id: of.id },
      entities: linked.map((entity) => ({
        ...entityToWire(entity),
        rel: entity.rel,
        direction: entity.direction,
      })),
    })),
    sources: sources.map(({ type, id, origin }) => ({ type, id, ...originToWire(origin) })),
    truncated,
  };
}
