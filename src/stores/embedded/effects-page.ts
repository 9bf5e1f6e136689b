import type { Decision } from '../../effects/decision.ts';
import type { EffectRecord, EffectState } from '../../effects/effect.ts';
import { type EffectFilter, PAGE_BYTES, type Page } from '../../effects/store.ts';
import type { SqlDatabase, SqlValue } from './driver.ts';
import { columnText, integer } from './document.ts';
import { decodeEffect } from './effect-document.ts';

/** State of a row whose record is gone; its document is a tombstone. */
export const TOMBSTONE = 'tombstone';

/** Decisions that say the state, and no more. */
const STATE_OF: Readonly<Partial<Record<Decision, EffectState>>> = {
  in_progress: 'executing',
  unknown_effect: 'unknown',
  pending_approval: 'pending_approval',
};

/**
 * Newest first: rows stand in the order in which effects were made, and the store's time never goes back. States that
 * few effects are in are searched by state; all else along the list, whose index holds what is asked for most.
 * @param lostBefore executing effects that were admitted before then (ms) count as unknown; `null`: there are none
 */
export function readPage(
  database: SqlDatabase,
  workspace: string,
  filter: EffectFilter,
  lostBefore: number | null,
): Page<EffectRecord> {
  const where = ['workspace = ?', `coalesce(state, 'executing') <> '${TOMBSTONE}'`];
  const values: SqlValue[] = [columnText(workspace)];
  const ask = (condition: string, ...operands: SqlValue[]): void => {
    where.push(condition);
    values.push(...operands);
  };
  let [index, order] = ['INDEXED BY effects_list', 'created DESC, n DESC'];
  for (const state of [filter.state, filter.decision === null ? null : (STATE_OF[filter.decision] ?? null)]) {
    const places = state === null ? null : placesOf(state, lostBefore);
    if (places === null) continue;
    // Places alone are gathered, and stand in order: only rows of this page are read, however many there are.
    [index, order] = ['NOT INDEXED', 'n DESC'];
    ask(`n IN (${places.sql})`, ...places.values);
  }
  if (filter.state !== null && placesOf(filter.state, lostBefore) === null) ask('state = ?', filter.state);
  if (filter.decision !== null && STATE_OF[filter.decision] === undefined) ask('decision = ?', filter.decision);
  if (filter.tool !== null) ask('tool = ?', columnText(filter.tool));
  if (filter.agentId !== null) ask('agent = ?', columnText(filter.agentId));
  if (filter.since !== null) ask('created >= ?', filter.since);
  if (filter.until !== null) ask('created < ?', filter.until);
  const cursor = parseCursor(filter.cursor);
  if (cursor !== null) {
    ask('n < ?', cursor.n);
    ask('created <= ?', cursor.created);
  }
  // Lengths stand in the heads of rows: those that are not shown are not read.
  const found = database
    .prepare(
      `SELECT n, created, octet_length(call) + coalesce(octet_length(outcome), 0) AS bytes FROM effects ${index} LEFT JOIN lives USING (n) WHERE ${where.join(' AND ')} ORDER BY ${order} LIMIT ?`,
    )
    .all(...values, filter.limit + 1);
  let bytes = 0;
  const tooMany = found.findIndex((row, at) => {
    bytes += integer(row['bytes']);
    return at === filter.limit || (at > 0 && bytes > PAGE_BYTES);
  });
  const shown = tooMany === -1 ? found : found.slice(0, tooMany);
  const last = shown.at(-1);
  const rows = database
    .prepare(
      `SELECT call, terms, coalesce(lives.life, effects.life) AS life, outcome FROM effects LEFT JOIN lives USING (n) WHERE n IN (${shown.map(() => '?').join(', ')}) ORDER BY n DESC`,
    )
    .all(...shown.map((row) => integer(row['n'])));
  return {
    items: rows.map((row) => decodeEffect(row).record),
    next:
      tooMany === -1 || last === undefined
        ? null
        : `${integer(last['created']).toString(36)}.${integer(last['n']).toString(36)}`,
  };
}

/** A cursor that this store did not make begins at the start. */
function parseCursor(cursor: string | null): { readonly created: number; readonly n: number } | null {
  const match = /^([0-9a-z]{1,11})\.([0-9a-z]{1,11})$/.exec(cursor ?? '');
  if (match === null) return null;
  return { created: Number.parseInt(match[1] ?? '', 36), n: Number.parseInt(match[2] ?? '', 36) };
}

/** Where the effects of a state that few are in stand; `null` for a state that many are in. */
function placesOf(
  state: EffectState,
  lostBefore: number | null,
): { readonly sql: string; readonly values: readonly SqlValue[] } | null {
  const inState = `SELECT n FROM lives INDEXED BY lives_state WHERE state = '${state}'`;
  switch (state) {
    case 'executing':
      return lostBefore === null
        ? { sql: 'SELECT n FROM running', values: [] }
        : { sql: 'SELECT n FROM running WHERE admitted >= ?', values: [lostBefore] };
    case 'unknown':
      return lostBefore === null
        ? { sql: inState, values: [] }
        : { sql: `${inState} UNION ALL SELECT n FROM running WHERE admitted < ?`, values: [lostBefore] };
    case 'pending_approval':
    case 'rejected':
      return { sql: inState, values: [] };
    case 'committed':
    case 'failed':
    case 'denied':
      return null;
  }
}
