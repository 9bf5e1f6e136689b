import { unplaced } from '../diagnostics/find-files.ts';
import { InvalidFiles } from '../diagnostics/render.ts';
import type { BrainState, EntityStore } from '../effects/entity-store.ts';
import { entityName, refOfName } from '../effects/model/entity.ts';
import type { LedgerActor } from '../effects/model/ledger.ts';
import type { ReadingTurns } from '../effects/run/reading-turns.ts';
import { type PackedWorkspace, unpackPiece } from './packed-entities.ts';
import { type BrainWriter, MOST_AT_ONCE } from './writer.ts';

/** What the store has of an entity. Bodies are not needed, so they stay sealed. */
interface Kept {
  readonly digest: string;
  /** The file that names it; `null`: none does. */
  readonly file: string | null;
}

/** Brings the entities of a workspace to what files say. Others stay as they are. */
export class FileLoader {
  readonly #parts;
  readonly #store;
  readonly #writer;
  readonly #turns;

  constructor(parts: {
    /** As it is at rest. */
    readonly store: Pick<EntityStore, 'brainState' | 'entitiesSince' | 'removeEntities' | 'noteEntityFiles'>;
    readonly writer: BrainWriter;
    readonly turns: ReadingTurns;
    readonly actor: LedgerActor;
  }) {
    this.#parts = parts;
    this.#store = parts.store;
    this.#writer = parts.writer;
    this.#turns = parts.turns;
  }

  /**
   * Only what differs is written. Interrupted, it is done again by the next call.
   * @param files `null`: no file names an entity of this workspace
   * @param older whether files count that were read in before the ones that were read last
   * @throws InvalidFiles where the workspace would hold too much, StoreUnavailable
   */
  async load(
    workspace: string,
    files: PackedWorkspace | null,
    older: 'load' | 'leave',
  ): Promise<
    { readonly kind: 'same' | 'older' } | { readonly kind: 'loaded'; readonly put: number; readonly removed: number }
  > {
    const state = await this.#store.brainState(workspace);
    if (files === null && state.files.length === 0) return { kind: 'same' };
    const digest = this.#writer.filesDigest(workspace, files?.digest ?? '');
    if (state.files[0] === digest) return { kind: 'same' };
    if (older === 'leave' && state.files.includes(digest)) return { kind: 'older' };
    const pieces = files?.pieces ?? [];
    const kept = await this.#keptIn(workspace, state);
    const removed = await this.#removeGone(workspace, kept, pieces);
    const put = await this.#putChanged(workspace, kept, pieces);
    await this.#store.noteEntityFiles(workspace, digest);
    return { kind: 'loaded', put, removed };
  }

  async #keptIn(workspace: string, { entities }: BrainState): Promise<Map<string, Kept>> {
    const kept = new Map<string, Kept>();
    if (entities === 0) return kept;
    let after = null;
    do {
      const slice: Awaited<ReturnType<EntityStore['entitiesSince']>> = await this.#store.entitiesSince(
        workspace,
        0,
        after,
      );
      for (const one of slice.entities)
        kept.set(entityName(one), {
          digest: one.digest,
          file: one.origin.kind === 'file' ? one.origin.file : null,
        });
      after = slice.next;
    } while (after !== null);
    return kept;
  }

  /** Removes first: what is gone makes room. */
  async #removeGone(
    workspace: string,
    kept: ReadonlyMap<string, Kept>,
    pieces: readonly Uint8Array[],
  ): Promise<number> {
    const ofFiles = new Set<string>();
    for (const [name, { file }] of kept) if (file !== null) ofFiles.add(name);
    for (const piece of pieces)
      await this.#turns.run(() => {
        for (const { entity } of unpackPiece(piece)) ofFiles.delete(entityName(entity));
      });
    const gone = [...ofFiles].map(refOfName);
    for (let at = 0; at < gone.length; at += MOST_AT_ONCE) {
      const entities = gone.slice(at, at + MOST_AT_ONCE);
      await this.#turns.run(() =>
        this.#store.removeEntities({ workspace, entities, origin: 'file', actor: this.#parts.actor }),
      );
    }
    return gone.length;
  }

  async #putChanged(
    workspace: string,
    kept: ReadonlyMap<string, Kept>,
    pieces: readonly Uint8Array[],
  ): Promise<number> {
    let count = 0;
    for (const piece of pieces)
      await this.#turns.run(async () => {
        const changed = unpackPiece(piece).filter(({ entity, file }) => {
          const before = kept.get(entityName(entity));
          // A line that only moved is no change: all below an insertion would be written anew, and calls judged again.
          return before?.file !== file || before.digest !== this.#writer.digest(workspace, entity);
        });
        if (changed.length === 0) return;
        count += changed.length;
        const put = await this.#writer.put(
          workspace,
          changed.map(({ entity, file, line }) => ({ entity, origin: { kind: 'file', file, line } })),
          this.#parts.actor,
        );
        if (put.kind === 'too_much')
          throw new InvalidFiles(
            [
              unplaced(
                'too_many_entities',
                `With the files and what else is there, the workspace ${workspace} would have more than ${put.limit} ${put.of === 'entities' ? 'entities' : 'characters of entities'}`,
                `delete some, or raise limits.${put.of === 'entities' ? 'brain_entities' : 'brain_size'}`,
              ),
            ],
            new Map(),
          );
      });
    return count;
  }
}
