import type { SqlDatabase } from './driver.ts';
import { decode, integer, text } from './document.ts';

/** The one row about the store itself. */
export interface Meta {
  readonly installId: string;
  readonly epoch: number;
  /** How often a gateway has opened the store. */
  readonly boots: number;
  /** The highest time that was told; the clock begins there. */
  readonly clock: number;
  /** Transactions written; the file beside the store remembers it, so that an older copy is noticed. */
  readonly commits: number;
  /** Active policy version; empty before the first. */
  readonly policy: string;
}

export interface MetaTable {
  /** Throws where {@link MetaTable.find} would find nothing. */
  get(): Meta;
  find(): Meta | null;
  create(installId: string, clock: number): void;
  /** A gateway begins to use the store. */
  boot(epoch: number): void;
  setPolicy(version: string): void;
  /** Goes with each transaction that writes. */
  tick(clock: number): void;
  forget(): void;
}

export function openMetaTable(database: SqlDatabase): MetaTable {
  const find = database.prepare('SELECT install_id, epoch, boots, clock, commits, policy FROM meta');
  const create = database.prepare(
    'INSERT INTO meta (one, install_id, epoch, boots, clock, commits, policy) VALUES (1, ?, 1, 0, ?, 1, \'""\')',
  );
  const boot = database.prepare('UPDATE meta SET epoch = ?, boots = boots + 1');
  const setPolicy = database.prepare('UPDATE meta SET policy = ?');
  const tick = database.prepare('UPDATE meta SET clock = max(clock, ?), commits = commits + 1');
  let known: Meta | null = null;

  function read(): Meta | null {
    if (known !== null) return known;
    const row = find.get();
    if (row === undefined) return null;
    known = {
      installId: text(row['install_id']),
      epoch: integer(row['epoch']),
      boots: integer(row['boots']),
      clock: integer(row['clock']),
      commits: integer(row['commits']),
      policy: decode<string>(row['policy']),
    };
    return known;
  }

  return {
    get() {
      const meta = read();
      if (meta === null) throw new TypeError('the store has no row about itself');
      return meta;
    },
    find: read,
    create(installId, clock) {
      create.run(installId, clock);
    },
    boot(epoch) {
      boot.run(epoch);
      known = null;
    },
    setPolicy(version) {
      setPolicy.run(JSON.stringify(version));
      known = null;
    },
    tick(clock) {
      tick.run(clock);
      if (known !== null) known = { ...known, clock: Math.max(known.clock, clock), commits: known.commits + 1 };
    },
    forget() {
      known = null;
    },
  };
}
