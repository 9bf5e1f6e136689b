import { canonicalJson, readOwnJson } from '../../json/text.ts';
import type { JsonObject } from '../../json/value.ts';
import type { LedgerActor } from './ledger.ts';

/** Names one entity of the company brain within a workspace. */
export interface EntityRef {
  /** What it is: `customer`, `order`. */
  readonly type: string;
  readonly id: string;
}

/** What an entity says of another one. `rel` is the kind of the link: `placed_by`. */
export interface EntityLink extends EntityRef {
  readonly rel: string;
}

/** Something of the organisation that agents and policies may consult: a customer, an order, a service. */
export interface Entity extends EntityRef {
  readonly name: string;
  readonly attributes: JsonObject;
  readonly links: readonly EntityLink[];
}

/** Where an entity comes from. What a file names belongs to the file: the API changes nothing of it. */
export type EntityOrigin =
  | { readonly kind: 'api'; readonly by: LedgerActor }
  /** `line` counts from 1. */
  | { readonly kind: 'file'; readonly file: string; readonly line: number };

export interface EntityRecord extends EntityRef {
  /** The version of the brain that wrote it: a count that only grows, from 1 on. */
  readonly version: number;
  /** Of {@link textOfEntity}, under a key of the workspace: two records are equal where their digests are. */
  readonly digest: string;
  readonly origin: EntityOrigin;
  /** ms. */
  readonly updatedAt: number;
  /** {@link textOfEntity}; at rest it is sealed. */
  readonly body: string;
}

/** The version of an entity that is not there, and of one of which this gateway has not read whether it is there. */
export const ABSENT_ENTITY = 0;
export const UNREAD_ENTITY = -1;

/** An entity that policy looked at, as it was then. */
export interface SeenEntity extends EntityRef {
  /** {@link ABSENT_ENTITY} where there was none, {@link UNREAD_ENTITY} where that was not known. */
  readonly version: number;
  /** The digest of its record; empty where there was none. */
  readonly digest: string;
}

/** What an entity says beside its type and id, as one text. Entities with equal texts say the same. */
export function textOfEntity({ name, attributes, links }: Omit<Entity, keyof EntityRef>): string {
  return canonicalJson({ name, attributes, links: links.map(({ rel, type, id }) => ({ rel, type, id })) });
}

export function entityOf({ type, id, body }: Pick<EntityRecord, 'type' | 'id' | 'body'>): Entity {
  // Only `textOfEntity` writes bodies.
  const { name, attributes, links } = readOwnJson<Omit<Entity, keyof EntityRef>>(body);
  return { type, id, name, attributes, links };
}

/** A text that no other entity of a workspace has. A type has no line break. */
export function entityName({ type, id }: EntityRef): string {
  return `${type}\n${id}`;
}

/** The reference of an {@link entityName}. */
export function refOfName(name: string): EntityRef {
  const at = name.indexOf('\n');
  return { type: name.slice(0, at), id: name.slice(at + 1) };
}

/** Which entities policy looked at, and in which version: what each said then can be proven by its digest. */
export function entitiesToWire(entities: readonly SeenEntity[]) {
  return entities.map(({ type, id, version, digest }) => ({ type, id, version, digest }));
}
