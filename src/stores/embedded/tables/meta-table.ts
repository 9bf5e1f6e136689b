import type { SqlDatabase } from '../driver.ts';
import { integer, text } from './columns.ts';

export interface FileMeta {
  readonly installId: string;
  readonly epoch: number;
  /** How often a gateway has opened the store. */
  readonly boots: number;
  /** The highest time that was given out; the clock begins there. */
  readonly clock: number;
  /** How many transactions were written. The mark beside the store remembers it, so that an older copy is noticed. */
  readonly commits: number;
}

export function openMetaTable(database: SqlDatabase) {
  const find = database.prepare('SELECT install_id, epoch, boots, clock, commits FROM meta');
  const create = database.prepare(
    'INSERT INTO meta (one, install_id, epoch, boots, clock, commits) VALUES (1, ?, 1, 0, ?, 1)',
  );
  const boot = database.prepare('UPDATE meta SET epoch = ?, boots = boots + 1');
  const begin = database.prepare('UPDATE meta SET epoch = ?');
  const tick = database.prepare('UPDATE meta SET clock = max(clock, ?), commits = commits + 1');
  let known: FileMeta | null = null;

  function read(): FileMeta | null {
    if (known !== null) return known;
    const row = find.get();
    if (row === undefined) return null;
    known = {
      installId: text(row['install_id']),
      epoch: integer(row['epoch']),
      boots: integer(row['boots']),
      clock: integer(row['clock']),
      commits: integer(row['commits']),
    };
    return known;
  }

  return {
    /** Like `find`, but throws if there is nothing. */
    get(): FileMeta {
      const meta = read();
      if (meta === null) throw new TypeError('the store has no row about itself');
      return meta;
    },
    find: read,
    create(installId: string, clock: number): void {
      create.run(installId, clock);
    },
    /** A gateway starts to use the store. */
    boot(epoch: number, clock: number): void {
      boot.run(epoch);
      tick.run(clock);
      known = null;
    },
    /** What may be missing from the store is accepted: it goes on in this epoch. */
    beginEpoch(epoch: number): void {
      begin.run(epoch);
      known = null;
    },
    /** Called in each transaction that writes. */
    tick(clock: number): void {
      tick.run(clock);
      if (known !== null) known = { ...known, clock: Math.max(known.clock, clock), commits: known.commits + 1 };
    },
    forget(): void {
      known = null;
    },
  };
}
