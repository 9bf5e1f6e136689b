import type { ReadingTurns } from '../effects/run/reading-turns.ts';
import type { BrainState, EntityStore } from '../effects/entity-store.ts';
import { entityName, type EntityRef } from '../effects/model/entity.ts';
import { PAGE_BYTES } from '../effects/model/page.ts';
import type { RowStore } from '../stores/port.ts';
import { ONLY } from './control-rows.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, repository } from './kind.ts';
import { ENTITIES, entitiesOfType, entityRows, rowId, type StoredEntity } from './entity-rows.ts';
import { pageOf } from './pages.ts';
import type { StepRunner } from './runner.ts';
import { appendEvents } from './view.ts';

export const brainRows = repository(jsonKind<BrainState>('brain', () => []));
const EMPTY: BrainState = { version: 0, entities: 0, characters: 0, removed: [], forgotten: 0, files: [] };

/** Removals, and digests of files, that are remembered. */
const MOST_REMOVED = 200;
const MOST_FILES = 20;

/** Entities, and characters, that one slice has. */
const SLICE = 50;
const SLICE_CHARACTERS = 256 * 1024;

const stateOf = (draft: Draft): BrainState => brainRows.get(draft, ONLY, MOSTLY_ABSENT) ?? EMPTY;

/** The entities of all workspaces over rows. @param write runs a step in a workspace */
export function createEntities(
  store: RowStore,
  runner: StepRunner,
  turns: ReadingTurns,
  write: <Result>(workspace: string, step: (draft: Draft) => Result) => Promise<Result>,
): Omit<EntityStore, 'onEntitiesChanged'> {
  /** Reads at once what a step would ask for one by one. */
  async function readAll(workspace: string, refs: readonly EntityRef[]): Promise<readonly (StoredEntity | null)[]> {
    const rows = await runner.read(
      workspace,
      refs.map((ref) => ({ kind: entityRows.kind, id: rowId(ref) })),
    );
    return rows.map((row) => (row === null ? null : entityRows.of(row)));
  }

  return {
    async putEntities({ workspace, entities, actor, limits }) {
      await readAll(workspace, entities);
      return write(workspace, (draft) => {
        const state = stateOf(draft);
        const there = entities.map((entity) => entityRows.get(draft, rowId(entity), MOSTLY_ABSENT));
        const inFile = there.flatMap((stored, index) =>
          stored?.origin.kind === 'file' && entities[index]?.origin.kind === 'api'
            ? [{ index, file: stored.origin.file }]
            : [],
        );
        if (inFile.length > 0) return { kind: 'in_file', entities: inFile };
        const version = state.version + 1;
        let { characters } = state;
        let created = 0;
        const put: StoredEntity[] = [];
        for (const [index, entity] of entities.entries()) {
          const stored = there[index] ?? null;
          const isSame = stored?.digest === entity.digest;
          if (isSame && JSON.stringify(stored?.origin) === JSON.stringify(entity.origin)) continue;
          // Another key that puts the same content changes nothing.
          if (isSame && stored?.origin.kind === 'api' && entity.origin.kind === 'api') continue;
          const size = entity.characters;
          characters += size - (stored?.characters ?? 0);
          if (stored === null) created += 1;
          put.push({ ...entity, version, updatedAt: draft.now });
        }
        const total = state.entities + created;
        const unchanged = entities.length - put.length;
        if (put.length === 0) return { kind: 'put', version: state.version, created, changed: 0, unchanged };
        if (total > limits.entities && created > 0) return { kind: 'too_much', of: 'entities', limit: limits.entities };
        if (characters > limits.characters && characters > state.characters)
          return { kind: 'too_much', of: 'characters', limit: limits.characters };
        for (const entity of put) entityRows.put(draft, rowId(entity), entity);
        brainRows.put(draft, ONLY, { ...state, version, entities: total, characters });
        appendEvents(draft, [
          { kind: 'brain.entities_put', effectId: null, actor, data: { version, entities: namesOf(put) } },
        ]);
        return { kind: 'put', version, created, changed: put.length - created, unchanged };
      });
    },
    async removeEntities({ workspace, entities, origin, actor }) {
      await readAll(workspace, entities);
      return write(workspace, (draft) => {
        const state = stateOf(draft);
        const there = entities.flatMap((ref) => entityRows.get(draft, rowId(ref), MOSTLY_ABSENT) ?? []);
        const file = there.find((stored) => stored.origin.kind === 'file');
        if (origin === 'api' && file?.origin.kind === 'file') return { kind: 'in_file', file: file.origin.file };
        const gone = there.filter((stored) => stored.origin.kind === origin);
        if (gone.length === 0) return { kind: 'removed', count: 0 };
        const version = state.version + 1;
        const removed = [...state.removed, ...gone.map((ref) => ({ version, name: entityName(ref) }))];
        const dropped = removed.slice(0, -MOST_REMOVED).at(-1)?.version ?? state.forgotten;
        for (const ref of gone) entityRows.put(draft, rowId(ref), null);
        brainRows.put(draft, ONLY, {
          ...state,
          version,
          entities: state.entities - gone.length,
          characters: state.characters - gone.reduce((sum, { characters }) => sum + characters, 0),
          removed: removed.filter((one) => one.version > dropped),
          forgotten: dropped,
        });
        appendEvents(draft, [
          { kind: 'brain.entities_removed', effectId: null, actor, data: { version, entities: namesOf(gone) } },
        ]);
        return { kind: 'removed', count: gone.length };
      });
    },
    noteEntityFiles(workspace, digest) {
      return write(workspace, (draft) => {
        const state = stateOf(draft);
        if (state.files[0] === digest) return;
        const files = [digest, ...state.files.filter((other) => other !== digest)].slice(0, MOST_FILES);
        brainRows.put(draft, ONLY, { ...state, files });
      });
    },
    entities: readAll,
    entityPage(workspace, { type, limit, cursor }) {
      const list = type === null ? ENTITIES : entitiesOfType(type);
      const most = { items: limit, characters: PAGE_BYTES };
      return pageOf({ store, turns }, { workspace, list, kind: entityRows.kind }, cursor, most, (row) =>
        entityRows.of(row),
      );
    },
    async entitiesSince(workspace, version, after) {
      const { entries, more } = await turns.run(() =>
        store.list({
          workspace,
          list: ENTITIES,
          kind: entityRows.kind,
          order: 'up',
          from: version + 1,
          to: null,
          after,
          limit: SLICE,
          characters: SLICE_CHARACTERS,
        }),
      );
      const last = entries.at(-1);
      const entities = await turns.map(entries, ({ row }) => entityRows.of(row));
      return { entities, next: more && last !== undefined ? { at: last.at, id: last.id } : null };
    },
    async brainState(workspace) {
      const [row = null] = await runner.read(workspace, [{ kind: brainRows.kind, id: ONLY }]);
      return row === null ? EMPTY : brainRows.of(row);
    },
  };
}

/** The ledger says which entities, and nothing of what they say. */
function namesOf(entities: readonly EntityRef[]): { readonly type: string; readonly id: string }[] {
  return entities.map(({ type, id }) => ({ type, id }));
}
