import type { EntityOrigin, EntityRecord, EntityRef } from './model/entity.ts';
import type { LedgerActor } from './model/ledger.ts';
import type { Page } from './model/page.ts';

export interface EntityLimits {
  readonly entities: number;
  /** Characters of all bodies, before they are sealed. */
  readonly characters: number;
}

export interface BrainState {
  /** Grows with each change. 0: nothing was ever put. */
  readonly version: number;
  readonly entities: number;
  readonly characters: number;
  /** The last removals, oldest first; the names are of `entityName`. */
  readonly removed: readonly { readonly version: number; readonly name: string }[];
  /** Removals of this version and earlier ones are not listed any more. */
  readonly forgotten: number;
  /** Digests of files that were read in, newest first; empty: none ever was. */
  readonly files: readonly string[];
}

export interface EntityStore {
  /** Puts entities, all or none. No two have the same type and id. */
  putEntities(request: {
    readonly workspace: string;
    readonly entities: readonly (Pick<EntityRecord, 'type' | 'id' | 'digest' | 'body'> & {
      readonly origin: EntityOrigin;
      /** Of the body, before it is sealed. */
      readonly characters: number;
    })[];
    readonly actor: LedgerActor;
    readonly limits: EntityLimits;
  }): Promise<
    | {
        readonly kind: 'put';
        readonly version: number;
        readonly created: number;
        readonly changed: number;
        /** Those that were there with the same content. They keep their version. */
        readonly unchanged: number;
      }
    /** A file has these: indices in the request. Nothing was put. */
    | { readonly kind: 'in_file'; readonly entities: readonly { readonly index: number; readonly file: string }[] }
    | { readonly kind: 'too_much'; readonly of: 'entities' | 'characters'; readonly limit: number }
  >;
  removeEntities(request: {
    readonly workspace: string;
    readonly entities: readonly EntityRef[];
    /** Only those with an origin of this kind are removed. */
    readonly origin: EntityOrigin['kind'];
    readonly actor: LedgerActor;
  }): Promise<
    | { readonly kind: 'removed'; readonly count: number }
    /** A file has the first such entity. Nothing was removed. */
    | { readonly kind: 'in_file'; readonly file: string }
  >;
  /** Records that the files with this digest are read in. */
  noteEntityFiles(workspace: string, digest: string): Promise<void>;
  /** In the order of the references; `null`: there is none. */
  entities(workspace: string, refs: readonly EntityRef[]): Promise<readonly (EntityRecord | null)[]>;
  /** Those that changed last come first. */
  entityPage(
    workspace: string,
    filter: { readonly type: string | null; readonly limit: number; readonly cursor: string | null },
  ): Promise<Page<EntityRecord>>;
  /** Entities of a version greater than `version`, oldest first. `next` is the `after` of the next slice. */
  entitiesSince(
    workspace: string,
    version: number,
    after: EntityPlace | null,
  ): Promise<{
    readonly entities: readonly EntityRecord[];
    /** `null`: this was the last slice. */
    readonly next: EntityPlace | null;
  }>;
  brainState(workspace: string): Promise<BrainState>;
  onEntitiesChanged(listener: (workspace: string) => void): void;
}

export interface EntityPlace {
  readonly at: number;
  readonly id: string;
}
