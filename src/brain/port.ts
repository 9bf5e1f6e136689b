import type { Entity, EntityOrigin, EntityRef } from '../effects/model/entity.ts';

export interface BrainQuestion {
  /** Words; each may have one typing error. The id of an entity finds it too. */
  readonly query: string;
  readonly entityType: string;
  /** The type of linked entities that are wanted with each hit; `null`: none. */
  readonly joinTo: string | null;
  /** Hits at most. */
  readonly limit: number;
}

/** An entity, and where it comes from. */
export interface BrainEntity extends Entity {
  readonly version: number;
  /** ms. */
  readonly updatedAt: number;
}

export interface BrainAnswer {
  /** Best first. `score` is larger for better ones, and means nothing outside one answer. */
  readonly entities: readonly (BrainEntity & { readonly score: number })[];
  /** One for each hit with linked entities, in the order of the hits; empty where no type was asked for. */
  readonly joined: readonly {
    /** The hit. */
    readonly of: EntityRef;
    /** Those that are linked with it. `outgoing`: the hit names it. `incoming`: it names the hit. */
    readonly entities: readonly (BrainEntity & { readonly rel: string; readonly direction: 'outgoing' | 'incoming' })[];
  }[];
  /** One for each entity of the answer. */
  readonly sources: readonly (EntityRef & { readonly origin: EntityOrigin })[];
  /** Whether there are more hits, or more linked entities, than the answer has. */
  readonly truncated: boolean;
}

/** The entities are still being read into memory; the question can be asked again in a moment. */
export class BrainNotReady extends Error {
  override readonly name = 'BrainNotReady';
}

/** The question is not one that can be asked. `message` says what to change. */
export class BadQuestion extends Error {
  override readonly name = 'BadQuestion';
}

/** The most hits of one answer, and the default. */
export const MOST_HITS = 50;
export const DEFAULT_HITS = 10;
