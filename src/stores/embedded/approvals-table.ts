import type { ApprovalRecord } from '../../effects/approval.ts';
import type { SqlDatabase, SqlRow, SqlValue } from './driver.ts';
import type { ApprovalFilter, Page } from '../../effects/store.ts';
import { columnText, decode, integer, text } from './document.ts';

/** A fingerprint that an approver rejected. */
interface Rejection {
  readonly effectId: string;
  readonly until: number;
}

export interface ApprovalsTable {
  get(workspace: string, id: string): ApprovalRecord | null;
  pendingOf(workspace: string, agentId: string): number;
  put(approval: ApprovalRecord): void;
  /** Newest first. */
  page(workspace: string, filter: ApprovalFilter): Page<ApprovalRecord>;
  granted(limit: number): readonly ApprovalRecord[];
  /** Requests whose time is over: nobody decided, or what was granted could not be sent. */
  overdue(now: number, limit: number): readonly ApprovalRecord[];
  removeOf(effectId: string): void;
  rejection(workspace: string, fingerprint: string, now: number): Rejection | null;
  reject(workspace: string, fingerprint: string, rejection: Rejection): void;
  sweepRejections(now: number): void;
}

/** Members that came later are absent in records of before. */
function read(row: SqlRow): ApprovalRecord {
  const found = decode<Omit<ApprovalRecord, 'stopped' | 'costs'> & Partial<ApprovalRecord>>(row['doc']);
  return { ...found, stopped: found.stopped ?? null, costs: found.costs ?? [] };
}

/** Requests for approval, and the fingerprints that were rejected. */
export function openApprovalsTable(database: SqlDatabase): ApprovalsTable {
  const get = database.prepare('SELECT doc FROM approvals WHERE workspace = ? AND id = ?');
  const pending = database.prepare(
    "SELECT count(*) AS rows FROM approvals INDEXED BY approvals_status WHERE status = 'pending' AND workspace = ? AND agent = ?",
  );
  const put = database.prepare(
    `INSERT INTO approvals (id, workspace, effect, agent, status, expires, doc) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (workspace, id) DO UPDATE SET status = excluded.status, expires = excluded.expires, doc = excluded.doc`,
  );
  const granted = database.prepare("SELECT doc FROM approvals WHERE status = 'granted' ORDER BY expires LIMIT ?");
  const overdue = database.prepare(
    "SELECT doc FROM approvals INDEXED BY approvals_status WHERE status IN ('pending', 'granted') AND expires <= ? ORDER BY expires LIMIT ?",
  );
  const removeOf = database.prepare('DELETE FROM approvals WHERE effect = ?');
  const rejection = database.prepare(
    'SELECT effect, until FROM rejections WHERE workspace = ? AND fingerprint = ? AND until > ?',
  );
  const reject = database.prepare(
    'INSERT OR REPLACE INTO rejections (workspace, fingerprint, effect, until) VALUES (?, ?, ?, ?)',
  );
  const sweepRejections = database.prepare('DELETE FROM rejections WHERE until <= ?');
  const one = (row: ReturnType<typeof get.get>): ApprovalRecord | null => (row === undefined ? null : read(row));
  const many = (rows: ReturnType<typeof get.all>): readonly ApprovalRecord[] => rows.map(read);
  return {
    get: (workspace, id) => one(get.get(columnText(workspace), columnText(id))),
    pendingOf: (workspace, agentId) => integer(pending.get(columnText(workspace), columnText(agentId))?.['rows']),
    put(approval) {
      put.run(
        columnText(approval.id),
        columnText(approval.workspace),
        columnText(approval.effectId),
        columnText(approval.requester.agentId),
        approval.status,
        approval.expiresAt,
        JSON.stringify(approval),
      );
    },
    page: (workspace, filter) => readPage(database, workspace, filter),
    granted: (limit) => many(granted.all(limit)),
    overdue: (now, limit) => many(overdue.all(now, limit)),
    removeOf(effectId) {
      removeOf.run(columnText(effectId));
    },
    rejection(workspace, fingerprint, now) {
      const row = rejection.get(columnText(workspace), columnText(fingerprint), now);
      return row === undefined ? null : { effectId: text(row['effect']), until: integer(row['until']) };
    },
    reject(workspace, fingerprint, { effectId, until }) {
      reject.run(columnText(workspace), columnText(fingerprint), effectId, until);
    },
    sweepRejections(now) {
      sweepRejections.run(now);
    },
  };
}

/** Few are pending or granted at a time: those are found by status. The others are looked for along the list. */
function readPage(
  database: SqlDatabase,
  workspace: string,
  { status, agentId, limit, cursor }: ApprovalFilter,
): Page<ApprovalRecord> {
  const where = ['workspace = ?'];
  const values: SqlValue[] = [columnText(workspace)];
  const ask = (condition: string, value: SqlValue): void => {
    where.push(condition);
    values.push(value);
  };
  if (status !== null) ask('status = ?', status);
  if (agentId !== null) ask('agent = ?', columnText(agentId));
  if (cursor !== null && /^[0-9a-z]{1,11}$/.test(cursor)) ask('n < ?', Number.parseInt(cursor, 36));
  const index = status === 'pending' || status === 'granted' ? 'INDEXED BY approvals_status' : 'NOT INDEXED';
  const rows = database
    .prepare(`SELECT n, doc FROM approvals ${index} WHERE ${where.join(' AND ')} ORDER BY n DESC LIMIT ?`)
    .all(...values, limit + 1);
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  return {
    items: shown.map(read),
    next: rows.length > limit && last !== undefined ? integer(last['n']).toString(36) : null,
  };
}
