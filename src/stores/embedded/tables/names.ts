import type { SqlDatabase, SqlStatement } from '../driver.ts';
import { columnText, integer, ownText } from './columns.ts';

/** The most names that stay in memory, for one workspace and in total. */
const CACHED = 20_000;

const WORKSPACE = 0;
const KIND = 1;
const LIST = 2;

export interface WorkspaceNames {
  readonly name: string;
  readonly n: number;
  readonly kinds: Map<string, number>;
  readonly lists: Map<string, number>;
}

/** For an unknown workspace: nothing has the number 0. */
const NO_WORKSPACE: WorkspaceNames = { name: '', n: 0, kinds: new Map(), lists: new Map() };

/**
 * Numbers for the names that callers use. What finds them without making any says 0 for new names.
 * @param isWriter names are made here only, or it is told to forget: kinds that nobody has made are remembered, too
 */
export function openNames(database: SqlDatabase, isWriter: boolean) {
  const select = database.prepare('SELECT n FROM names WHERE workspace = ? AND type = ? AND name = ?');
  const workspaces = new Map<string, WorkspaceNames>();
  let insert: SqlStatement | null = null;
  let total = 0;

  function find(workspace: number, type: number, name: string): number {
    const row = select.get(workspace, type, columnText(name));
    return row === undefined ? 0 : integer(row['n']);
  }

  function findOrMake(workspace: number, type: number, name: string): number {
    const found = find(workspace, type, name);
    if (found !== 0) return found;
    // Readers have a connection that cannot write, so the statement is prepared on first use.
    insert ??= database.prepare('INSERT INTO names (workspace, type, name) VALUES (?, ?, ?)');
    return insert.run(workspace, type, columnText(name));
  }

  function keep(names: Map<string, number>, name: string, n: number): number {
    if (n === 0 && !isWriter) return 0;
    total += 1;
    if (total > CACHED) {
      names.clear();
      workspaces.clear();
      total = 0;
    }
    names.set(ownText(name), n);
    return n;
  }

  function workspaceOf(name: string, n: number): WorkspaceNames {
    if (n === 0) return NO_WORKSPACE;
    const names: WorkspaceNames = { name: ownText(name), n, kinds: new Map(), lists: new Map() };
    workspaces.set(names.name, names);
    return names;
  }

  return {
    workspace: (name: string): WorkspaceNames =>
      workspaces.get(name) ?? workspaceOf(name, findOrMake(0, WORKSPACE, name)),
    kind({ n, kinds }: WorkspaceNames, name: string): number {
      const known = kinds.get(name) ?? 0;
      return known === 0 ? keep(kinds, name, findOrMake(n, KIND, name)) : known;
    },
    list: ({ n, lists }: WorkspaceNames, name: string): number =>
      lists.get(name) ?? keep(lists, name, findOrMake(n, LIST, name)),
    findWorkspace: (name: string): WorkspaceNames =>
      workspaces.get(name) ?? workspaceOf(name, find(0, WORKSPACE, name)),
    findKind: ({ n, kinds }: WorkspaceNames, name: string): number =>
      kinds.get(name) ?? (n === 0 ? 0 : keep(kinds, name, find(n, KIND, name))),
    findList: ({ n, lists }: WorkspaceNames, name: string): number =>
      lists.get(name) ?? (n === 0 ? 0 : keep(lists, name, find(n, LIST, name))),
    forget(): void {
      workspaces.clear();
      total = 0;
    },
  };
}
