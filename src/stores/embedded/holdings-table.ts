import type { ClaimRecord, ReservationRecord } from '../../effects/controls.ts';
import type { RunningUse } from '../../effects/plan.ts';
import type { SqlDatabase, SqlRow } from './driver.ts';
import { columnText, decode, integer } from './document.ts';

/** How long a claim that is over stays to be looked up, ms. */
const CLAIM_KEPT_MS = 60 * 60 * 1000;

export interface HoldingsTable {
  claim(workspace: string, id: string): ClaimRecord | null;
  claimOn(workspace: string, target: string): ClaimRecord | null;
  activeClaims(workspace: string, agentId: string, now: number): number;
  claimsOfKey(workspace: string, keyId: string, now: number): number;
  /** Some claims of an agent under which effects run. */
  runningClaims(workspace: string, agentId: string, limit: number): readonly ClaimRecord[];
  /** Active claims. */
  claims(workspace: string, now: number): readonly ClaimRecord[];
  putClaim(claim: ClaimRecord): void;
  removeClaim(workspace: string, target: string): void;

  reservation(workspace: string, id: string): ReservationRecord | null;
  /** Reservations whose time is not over, of one pool or of all. */
  reservations(workspace: string, pool: string | null, now: number): readonly ReservationRecord[];
  reservationsOfKey(workspace: string, keyId: string, now: number): number;
  putReservation(reservation: ReservationRecord): void;
  removeReservation(workspace: string, id: string): void;

  uses(workspace: string, pool: string, now: number): readonly RunningUse[];
  putUse(workspace: string, use: RunningUse): void;
  removeUses(workspace: string, effectId: string): void;

  sweep(now: number): void;
  forget(): void;
}

/** Claims, reservations, and units in use. */
export function openHoldingsTable(database: SqlDatabase): HoldingsTable {
  const claimById = database.prepare('SELECT doc FROM claims WHERE id = ? AND workspace = ?');
  const claimByTarget = database.prepare('SELECT doc FROM claims WHERE workspace = ? AND target = ?');
  const countClaims = database.prepare(
    'SELECT count(*) AS rows FROM claims WHERE workspace = ? AND agent = ? AND (running > 0 OR until > ?)',
  );
  const countClaimsOfKey = database.prepare(
    "SELECT count(*) AS rows FROM claims WHERE workspace = ? AND json_extract(doc, '$.keyId') = ? AND (running > 0 OR until > ?)",
  );
  const countReservationsOfKey = database.prepare(
    "SELECT count(*) AS rows FROM reservations WHERE workspace = ? AND json_extract(doc, '$.keyId') = ? AND until > ?",
  );
  const runningClaims = database.prepare(
    'SELECT doc FROM claims WHERE workspace = ? AND agent = ? AND running > 0 LIMIT ?',
  );
  const listClaims = database.prepare(
    'SELECT doc FROM claims WHERE workspace = ? AND (running > 0 OR until > ?) ORDER BY target',
  );
  const putClaim = database.prepare(
    'INSERT OR REPLACE INTO claims (workspace, target, id, agent, running, until, doc) VALUES (?, ?, ?, ?, ?, ?, ?)',
  );
  const removeClaim = database.prepare('DELETE FROM claims WHERE workspace = ? AND target = ?');
  const sweepClaims = database.prepare('DELETE FROM claims WHERE running = 0 AND until <= ?');
  const countAll = database.prepare(
    'SELECT (SELECT count(*) FROM claims) AS claims, (SELECT count(*) FROM uses) AS uses',
  );

  const reservation = database.prepare('SELECT doc FROM reservations WHERE workspace = ? AND id = ?');
  const listReservations = database.prepare(
    'SELECT doc FROM reservations WHERE workspace = ? AND until > ? ORDER BY id',
  );
  const poolReservations = database.prepare(
    'SELECT doc FROM reservations WHERE workspace = ? AND pool = ? AND until > ? ORDER BY id',
  );
  const putReservation = database.prepare(
    'INSERT OR REPLACE INTO reservations (workspace, id, pool, until, doc) VALUES (?, ?, ?, ?, ?)',
  );
  const removeReservation = database.prepare('DELETE FROM reservations WHERE workspace = ? AND id = ?');
  const sweepReservations = database.prepare('DELETE FROM reservations WHERE until <= ?');

  const poolUses = database.prepare(
    'SELECT doc FROM uses WHERE workspace = ? AND pool = ? AND (until IS NULL OR until > ?)',
  );
  const putUse = database.prepare(
    'INSERT OR REPLACE INTO uses (workspace, effect, pool, until, doc) VALUES (?, ?, ?, ?, ?)',
  );
  const removeUses = database.prepare('DELETE FROM uses WHERE workspace = ? AND effect = ?');
  const sweepUses = database.prepare('DELETE FROM uses WHERE until <= ?');

  /** Whether the tables have held anything since they were last seen empty: most installations use neither. */
  let some: { claims: boolean; uses: boolean } | null = null;
  function present(): { claims: boolean; uses: boolean } {
    if (some === null) {
      const row = countAll.get();
      some = { claims: integer(row?.['claims']) > 0, uses: integer(row?.['uses']) > 0 };
    }
    return some;
  }

  const claimOf = (row: SqlRow | undefined): ClaimRecord | null =>
    row === undefined ? null : decode<ClaimRecord>(row['doc']);

  return {
    claim: (workspace, id) => claimOf(claimById.get(columnText(id), columnText(workspace))),
    claimOn: (workspace, target) =>
      present().claims ? claimOf(claimByTarget.get(columnText(workspace), columnText(target))) : null,
    activeClaims: (workspace, agentId, now) =>
      integer(countClaims.get(columnText(workspace), columnText(agentId), now)?.['rows']),
    claimsOfKey: (workspace, keyId, now) => integer(countClaimsOfKey.get(columnText(workspace), keyId, now)?.['rows']),
    runningClaims: (workspace, agentId, limit) =>
      runningClaims
        .all(columnText(workspace), columnText(agentId), limit)
        .map((row) => decode<ClaimRecord>(row['doc'])),
    claims: (workspace, now) =>
      listClaims.all(columnText(workspace), now).map((row) => decode<ClaimRecord>(row['doc'])),
    putClaim(claim) {
      present().claims = true;
      putClaim.run(
        columnText(claim.workspace),
        columnText(claim.target),
        columnText(claim.id),
        columnText(claim.agentId),
        claim.runningEffects.length,
        Math.max(claim.expiresAt, claim.extendedUntil),
        JSON.stringify(claim),
      );
    },
    removeClaim(workspace, target) {
      removeClaim.run(columnText(workspace), columnText(target));
    },

    reservation(workspace, id) {
      const row = reservation.get(columnText(workspace), columnText(id));
      return row === undefined ? null : decode<ReservationRecord>(row['doc']);
    },
    reservations: (workspace, pool, now) =>
      (pool === null
        ? listReservations.all(columnText(workspace), now)
        : poolReservations.all(columnText(workspace), columnText(pool), now)
      ).map((row) => decode<ReservationRecord>(row['doc'])),
    reservationsOfKey: (workspace, keyId, now) =>
      integer(countReservationsOfKey.get(columnText(workspace), keyId, now)?.['rows']),
    putReservation(record) {
      putReservation.run(
        columnText(record.workspace),
        columnText(record.id),
        columnText(record.pool),
        record.expiresAt,
        JSON.stringify(record),
      );
    },
    removeReservation(workspace, id) {
      removeReservation.run(columnText(workspace), columnText(id));
    },

    uses: (workspace, pool, now) =>
      poolUses.all(columnText(workspace), columnText(pool), now).map((row) => decode<RunningUse>(row['doc'])),
    putUse(workspace, use) {
      present().uses = true;
      putUse.run(columnText(workspace), columnText(use.effectId), columnText(use.pool), use.until, JSON.stringify(use));
    },
    removeUses(workspace, effectId) {
      if (present().uses) removeUses.run(columnText(workspace), columnText(effectId));
    },

    sweep(now) {
      sweepClaims.run(now - CLAIM_KEPT_MS);
      sweepReservations.run(now);
      sweepUses.run(now);
      some = null;
    },
    forget() {
      some = null;
    },
  };
}
