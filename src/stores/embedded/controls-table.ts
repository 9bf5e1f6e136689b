import type { PauseRecord } from '../../effects/controls.ts';
import type { Agent } from '../../effects/principal.ts';
import type { BudgetDefinition } from '../../effects/store.ts';
import type { SqlDatabase } from './driver.ts';
import { columnText, decode, integer, plainText } from './document.ts';

export interface ControlsTable {
  pauseVersion(workspace: string): number;
  pause(workspace: string, id: string): PauseRecord | null;
  /** Pauses in force. */
  pauses(workspace: string, now: number): readonly PauseRecord[];
  putPause(pause: PauseRecord): void;
  removePause(workspace: string, id: string): void;
  sweepPauses(now: number): void;

  definition(budget: string): Pick<BudgetDefinition, 'unit' | 'window'> | null;
  define(definition: BudgetDefinition): void;

  secretMark(): string | null;
  putSecretMark(mark: string): void;
  /** Notes users that were never seen; the first ones of all were there before anybody looked. */
  seeUsers(ids: readonly string[], now: number): void;
  userSince(id: string): number | null;

  /** Whether the workspace is new. */
  addWorkspace(id: string): boolean;
  workspaces(): readonly string[];
  agent(workspace: string, id: string): Agent | null;
  putAgent(agent: Agent): void;
  agents(): readonly Agent[];
  forget(): void;
}

/** What administrators set: pauses, definitions of budgets, workspaces, agents. */
export function openControlsTable(database: SqlDatabase): ControlsTable {
  const version = database.prepare('SELECT version FROM pause_versions WHERE workspace = ?');
  const grow = database.prepare(
    'INSERT INTO pause_versions (workspace, version) VALUES (?, 1) ON CONFLICT (workspace) DO UPDATE SET version = version + 1',
  );
  const pause = database.prepare('SELECT doc FROM pauses WHERE workspace = ? AND id = ?');
  const listPauses = database.prepare(
    'SELECT doc FROM pauses WHERE workspace = ? AND (until IS NULL OR until > ?) ORDER BY id',
  );
  const putPause = database.prepare('INSERT OR REPLACE INTO pauses (workspace, id, until, doc) VALUES (?, ?, ?, ?)');
  const removePause = database.prepare('DELETE FROM pauses WHERE workspace = ? AND id = ?');
  const sweepPauses = database.prepare('DELETE FROM pauses WHERE until <= ?');
  const definition = database.prepare('SELECT unit, window FROM budget_definitions WHERE budget = ?');
  const define = database.prepare('INSERT OR REPLACE INTO budget_definitions (budget, unit, window) VALUES (?, ?, ?)');
  const secretMark = database.prepare('SELECT mark FROM secret');
  const putSecretMark = database.prepare('INSERT OR REPLACE INTO secret (one, mark) VALUES (1, ?)');
  const workspace = database.prepare('SELECT 1 AS one FROM workspaces WHERE id = ?');
  const addWorkspace = database.prepare('INSERT INTO workspaces (id) VALUES (?)');
  const listWorkspaces = database.prepare('SELECT id FROM workspaces ORDER BY id');
  const agent = database.prepare('SELECT doc FROM agents WHERE workspace = ? AND id = ?');
  const putAgent = database.prepare('INSERT OR REPLACE INTO agents (workspace, id, doc) VALUES (?, ?, ?)');
  const listAgents = database.prepare('SELECT doc FROM agents ORDER BY workspace, id');
  const anyUser = database.prepare('SELECT 1 AS one FROM users LIMIT 1');
  const user = database.prepare('SELECT since FROM users WHERE id = ?');
  const addUser = database.prepare('INSERT INTO users (id, since) VALUES (?, ?)');
  const versions = new Map<string, number>();

  return {
    pauseVersion(of) {
      const known = versions.get(of);
      if (known !== undefined) return known;
      const row = version.get(columnText(of));
      const found = row === undefined ? 0 : integer(row['version']);
      versions.set(of, found);
      return found;
    },
    pause(of, id) {
      const row = pause.get(columnText(of), columnText(id));
      return row === undefined ? null : decode<PauseRecord>(row['doc']);
    },
    pauses: (of, now) => listPauses.all(columnText(of), now).map((row) => decode<PauseRecord>(row['doc'])),
    putPause(record) {
      putPause.run(columnText(record.workspace), columnText(record.id), record.until, JSON.stringify(record));
      grow.run(columnText(record.workspace));
      versions.delete(record.workspace);
    },
    removePause(of, id) {
      removePause.run(columnText(of), columnText(id));
      grow.run(columnText(of));
      versions.delete(of);
    },
    sweepPauses(now) {
      sweepPauses.run(now);
    },
    definition(budget) {
      const row = definition.get(columnText(budget));
      return row === undefined ? null : { unit: decode<string>(row['unit']), window: decode<string>(row['window']) };
    },
    define({ budget, unit, window }) {
      define.run(columnText(budget), JSON.stringify(unit), JSON.stringify(window));
    },
    secretMark() {
      const row = secretMark.get();
      return row === undefined ? null : decode<string>(row['mark']);
    },
    putSecretMark(mark) {
      putSecretMark.run(JSON.stringify(mark));
    },
    seeUsers(ids, now) {
      const first = anyUser.get() === undefined;
      const since = first ? 0 : now;
      // The empty name says that somebody has looked.
      if (first) addUser.run('', 0);
      for (const id of new Set(ids)) if (user.get(columnText(id)) === undefined) addUser.run(columnText(id), since);
    },
    userSince(id) {
      const row = user.get(columnText(id));
      return row === undefined ? null : integer(row['since']);
    },
    addWorkspace(id) {
      if (workspace.get(columnText(id)) !== undefined) return false;
      addWorkspace.run(columnText(id));
      return true;
    },
    workspaces: () => listWorkspaces.all().map((row) => plainText(row['id'])),
    agent(of, id) {
      const row = agent.get(columnText(of), columnText(id));
      return row === undefined ? null : decode<Agent>(row['doc']);
    },
    putAgent(record) {
      putAgent.run(columnText(record.workspace), columnText(record.id), JSON.stringify(record));
    },
    agents: () => listAgents.all().map((row) => decode<Agent>(row['doc'])),
    forget: () => versions.clear(),
  };
}
