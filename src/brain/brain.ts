import type { EntityStore } from '../effects/entity-store.ts';
import { entityOf, type EntityRecord, type EntityRef, entityName, refOfName } from '../effects/model/entity.ts';
import type { ReadingTurns } from '../effects/run/reading-turns.ts';
import { isEntityType } from './check-entity.ts';
import {
  BadQuestion,
  type BrainAnswer,
  type BrainEntity,
  BrainNotReady,
  type BrainQuestion,
  MOST_HITS,
} from './port.ts';
import { WorkspaceIndex, type Linked } from './workspace-index.ts';
import { wordsOf } from './words.ts';

/** Characters of a query. */
export const MAX_QUERY = 256;
/** Linked entities of one hit, and of all. */
export const JOINED_OF_HIT = 20;
export const JOINED = 100;
/** Links that are visited for all hits of an answer. */
const MAX_LINKS_VISITED = 20_000;
/** Entities that are read at once, and characters of all in one answer, each counted as often as it is shown. */
const READ_AT_ONCE = 25;
export const ANSWER_CHARACTERS = 512 * 1024;
/** How long a question waits for the first reading, and a change until it is found, ms. */
const WAIT_MS = 5000;
/** How long after a failed read it is tried again, ms. */
const AGAIN_MS = 1000;

interface Known {
  index: WorkspaceIndex;
  /** The index has every change up to this version. */
  version: number;
  isComplete: boolean;
  reading: Promise<void> | null;
  /** Whether something changed since that began. */
  isStale: boolean;
}

type Store = Pick<EntityStore, 'brainState' | 'entitiesSince' | 'entities' | 'onEntitiesChanged'>;

/**
 * The company brain: questions, and the index that answers them. The entities of a workspace are read when somebody first
 * asks, and then followed.
 */
export class Brain {
  readonly #parts;
  readonly #store;
  readonly #waitMs;
  readonly #workspaces = new Map<string, Known>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #closed = false;

  constructor(parts: {
    readonly store: Store;
    readonly turns: ReadingTurns;
    /** Told when entities cannot be read; they are tried again. */
    readonly failed: (workspace: string, error: unknown) => void;
    /** How long a question waits for the entities to be read into memory, ms. */
    readonly waitMs?: number;
  }) {
    this.#parts = parts;
    this.#store = parts.store;
    this.#waitMs = parts.waitMs ?? WAIT_MS;
    this.#store.onEntitiesChanged((workspace) => {
      const known = this.#workspaces.get(workspace);
      if (known !== undefined && !this.#closed) void this.#read(workspace, known).catch(() => undefined);
    });
  }

  /** Reads the entities of a workspace into memory, unless that is done or under way. */
  warm(workspace: string): void {
    void this.#read(workspace, this.#knownOf(workspace)).catch(() => undefined);
  }

  /** Resolves when what the store had at the time of the call is found. @throws StoreUnavailable */
  async caughtUp(workspace: string): Promise<void> {
    const known = this.#knownOf(workspace);
    // The one that is under way may have read before.
    if (known.reading !== null) await known.reading.catch(() => undefined);
    await this.#read(workspace, known);
  }

  /**
   * Told after a change. Resolves when questions find it, or after some seconds; where nobody has asked yet, at once: the
   * first question reads all.
   */
  async written(workspace: string): Promise<void> {
    if (this.#workspaces.has(workspace)) await this.#inTime(this.caughtUp(workspace).catch(() => undefined));
  }

  close(): void {
    this.#closed = true;
    for (const timer of this.#timers) clearTimeout(timer);
  }

  /** Looks for entities of one type. @throws BadQuestion, BrainNotReady, StoreUnavailable */
  async query(workspace: string, question: BrainQuestion): Promise<BrainAnswer> {
    checkQuestion(question);
    const { query, entityType, joinTo, limit } = question;
    const index = await this.#ready(workspace);
    const { found, more } = index.search(entityType, query, limit);
    const hits = found.map(({ id, score }) => ({ type: entityType, id, score }));
    const { joins, isAll } = joinsOf(index, hits, joinTo);
    const refs = uniqueRefs([...hits, ...joins.flatMap(({ linked }) => linked)]);
    const read = await this.#readAll(workspace, refs, ANSWER_CHARACTERS);
    return answerOf(hits, joins, read, more || !isAll || !read.isAll);
  }

  /** The types of entities that there are, as far as they have been read. */
  types(workspace: string): readonly string[] {
    return this.#workspaces.get(workspace)?.index.types() ?? [];
  }

  #knownOf(workspace: string): Known {
    const known = this.#workspaces.get(workspace) ?? emptyIndex();
    this.#workspaces.set(workspace, known);
    return known;
  }

  /** Brings an index up to what the store has. What is removed while it is read is removed in the next round. */
  async #follow(workspace: string, known: Known): Promise<void> {
    for (;;) {
      const state = await this.#store.brainState(workspace);
      if (state.version === known.version && known.isComplete) return;
      // Removals that are not listed any more are found only by reading all; so is a store that was emptied.
      if (known.version > 0 && (known.version < state.forgotten || state.version < known.version)) startAnew(known);
      const since = known.version;
      let after = null;
      do {
        if (this.#closed) return;
        const slice: Awaited<ReturnType<Store['entitiesSince']>> = await this.#store.entitiesSince(
          workspace,
          since,
          after,
        );
        await this.#parts.turns.map(slice.entities, (record) => known.index.put(entityOf(record)));
        after = slice.next;
      } while (after !== null);
      for (const { version, name } of state.removed)
        if (since > 0 && version > since) removeUnlessThere(known.index, name, await this.#isThere(workspace, name));
      known.version = state.version;
      known.isComplete = true;
    }
  }

  /** An entity that was removed may have been put again. */
  async #isThere(workspace: string, name: string): Promise<boolean> {
    const [record] = await this.#store.entities(workspace, [refOfName(name)]);
    return record !== null && record !== undefined;
  }

  #read(workspace: string, known: Known): Promise<void> {
    if (known.reading !== null) {
      known.isStale = true;
      return known.reading;
    }
    const reading = this.#follow(workspace, known)
      .then(() => (known.index.isWorn() ? this.#rebuild(workspace, known) : undefined))
      .finally(() => {
        known.reading = null;
      });
    known.reading = reading;
    reading.then(
      () => {
        if (!known.isStale) return;
        known.isStale = false;
        void this.#read(workspace, known).catch(() => undefined);
      },
      (error: unknown) => {
        if (this.#closed) return;
        this.#parts.failed(workspace, error);
        const timer = setTimeout(() => {
          this.#timers.delete(timer);
          void this.#read(workspace, known).catch(() => undefined);
        }, AGAIN_MS).unref();
        this.#timers.add(timer);
      },
    );
    return reading;
  }

  /** Questions are answered from the old index until the new one is complete. */
  async #rebuild(workspace: string, known: Known): Promise<void> {
    const next = emptyIndex();
    await this.#follow(workspace, next);
    known.index = next.index;
    known.version = next.version;
  }

  async #ready(workspace: string): Promise<WorkspaceIndex> {
    const known = this.#knownOf(workspace);
    if (known.isComplete) return known.index;
    if (!(await this.#inTime(this.#read(workspace, known))))
      throw new BrainNotReady('The entities of this workspace are still being read. Ask again in a few seconds.');
    return known.index;
  }

  /** Waits for a reading, for as long as anybody waits for one. @returns whether it ended by then */
  async #inTime(reading: Promise<void>): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(resolve, this.#waitMs, false).unref();
    });
    return Promise.race([reading.then(() => true), late]).finally(() => clearTimeout(timer));
  }

  /** Reads entities in small parts, until there are enough characters. */
  async #readAll(workspace: string, refs: readonly EntityRef[], most: number): Promise<Read> {
    const records = new Map<string, EntityRecord>();
    let characters = 0;
    for (let at = 0; at < refs.length; at += READ_AT_ONCE) {
      if (characters > most) return { records, isAll: false, characters };
      const found = await this.#parts.turns.run(() =>
        this.#store.entities(workspace, refs.slice(at, at + READ_AT_ONCE)),
      );
      for (const record of found) {
        if (record === null) continue;
        characters += record.body.length;
        records.set(entityName(record), record);
      }
    }
    return { records, isAll: true, characters };
  }
}

interface Read {
  readonly records: ReadonlyMap<string, EntityRecord>;
  readonly isAll: boolean;
  readonly characters: number;
}

interface Join {
  readonly of: EntityRef;
  readonly linked: readonly Linked[];
}

function emptyIndex(): Known {
  return { index: new WorkspaceIndex(), version: 0, isComplete: false, reading: null, isStale: false };
}

function startAnew(known: Known): void {
  known.index = new WorkspaceIndex();
  known.version = 0;
  known.isComplete = false;
}

function removeUnlessThere(index: WorkspaceIndex, name: string, isThere: boolean): void {
  if (!isThere) index.remove(refOfName(name));
}

function checkQuestion({ query, entityType, joinTo, limit }: BrainQuestion): void {
  if (query.length > MAX_QUERY) throw new BadQuestion(`query has at most ${MAX_QUERY} characters`);
  if (wordsOf(query, 1).length === 0) throw new BadQuestion('query needs a word, a number or an id to look for');
  for (const [member, type] of [
    ['entity_type', entityType],
    ['join_to.entity_type', joinTo],
  ] as const)
    if (type !== null && !isEntityType(type))
      throw new BadQuestion(`${member} must be the type of entities: a letter, then letters, digits, _ and -`);
  if (!Number.isInteger(limit) || limit < 1 || limit > MOST_HITS)
    throw new BadQuestion(`limit must be a whole number from 1 to ${MOST_HITS}`);
}

function joinsOf(
  index: WorkspaceIndex,
  hits: readonly EntityRef[],
  joinTo: string | null,
): { readonly joins: readonly Join[]; readonly isAll: boolean } {
  if (joinTo === null) return { joins: [], isAll: true };
  const joins: Join[] = [];
  let isAll = true;
  let left = JOINED;
  const budget = { left: MAX_LINKS_VISITED };
  for (const hit of hits) {
    const { linked, more } = index.linked(hit, joinTo, Math.min(JOINED_OF_HIT, left), budget);
    if (more) isAll = false;
    left -= linked.length;
    joins.push({ of: { type: hit.type, id: hit.id }, linked });
  }
  return { joins, isAll };
}

function uniqueRefs(refs: readonly EntityRef[]): readonly EntityRef[] {
  return [...new Map(refs.map((ref) => [entityName(ref), { type: ref.type, id: ref.id }])).values()];
}

/** What was removed since the index was read is left out, and so is what comes when there are enough characters. */
function answerOf(
  hits: readonly (EntityRef & { readonly score: number })[],
  joins: readonly Join[],
  { records }: Read,
  truncated: boolean,
): BrainAnswer {
  const opened = new Map<string, BrainEntity>();
  let left = ANSWER_CHARACTERS;
  const shown = (ref: EntityRef): BrainEntity | null => {
    const name = entityName(ref);
    const record = records.get(name);
    if (record === undefined) return null;
    if (left < record.body.length) {
      left = 0;
      return null;
    }
    left -= record.body.length;
    const entity = opened.get(name) ?? shownEntity(record);
    opened.set(name, entity);
    return entity;
  };
  const entities = hits.flatMap((hit) => {
    const entity = shown(hit);
    return entity === null ? [] : [{ ...entity, score: Math.round(hit.score * 1000) / 1000 }];
  });
  const joined: BrainAnswer['joined'][number][] = [];
  for (const { of, linked } of joins) {
    if (!opened.has(entityName(of))) continue;
    const others = linked.flatMap(({ rel, direction, type, id }) => {
      const entity = shown({ type, id });
      return entity === null ? [] : [{ ...entity, rel, direction }];
    });
    if (others.length > 0) joined.push({ of, entities: others });
  }
  const sources = [...records].flatMap(([name, { type, id, origin }]) =>
    opened.has(name) ? [{ type, id, origin }] : [],
  );
  return { entities, joined, sources, truncated: truncated || left === 0 };
}

/** A record as people and agents see it. */
export function shownEntity(record: EntityRecord): BrainEntity {
  return { ...entityOf(record), version: record.version, updatedAt: record.updatedAt };
}
