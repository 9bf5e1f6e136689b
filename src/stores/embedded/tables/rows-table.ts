import { ABSENT, type ReadRow, type Row } from '../../port.ts';
import { bulk, type SqlDatabase, type SqlRow } from '../driver.ts';
import { columnText, integer, ownText, plainText, text } from './columns.ts';

/** How many rows are remembered after they were looked at; sometimes up to twice as many. */
const REMEMBERED = 512;

/** Texts up to this length are remembered with their rows. */
const SHORT_TEXT = 256;

/** After texts of so many characters rows are forgotten too: what was made of them may be kept with them. */
const REMEMBERED_CHARACTERS = 8 * 1024 * 1024;

/** A row that becomes shorter than this part of it does not stay where it is. */
const SHORTER = 3 / 4;

/** A row as it will be at the end of the transaction. */
export class Entry implements ReadRow {
  readonly kind: number;
  /** Its number in the file; 0: it is not there. */
  n: number;
  /** {@link ABSENT}: there is none. */
  version: string;
  /** `null`: not read. */
  known: string | null = null;
  /** To be written, with the id of this change. */
  isChanged = false;
  /** It gets another number when it is written. */
  isMoved = false;
  id = '';
  read: object | undefined = undefined;
  isOver = false;
  /** Version that those give who looked at it last. */
  readFor = '';
  /** Length of the text that `read` was made of. */
  size = 0;
  readonly #load: (entry: Entry) => string;

  /** @param row its number and version; `undefined` where it is not there */
  constructor(kind: number, row: SqlRow | undefined, load: (entry: Entry) => string) {
    this.kind = kind;
    this.n = row === undefined ? 0 : integer(row['n']);
    this.version = row === undefined ? ABSENT : text(row['version']);
    this.#load = load;
  }

  get text(): string {
    return this.known ?? this.#load(this);
  }
}

/**
 * The rows. What a transaction writes is collected in memory, where later changes see it, and written once at its end.
 * Rows that were looked at are remembered for a while, without long texts, because most rows are soon written again.
 */
export function openRowsTable(database: SqlDatabase) {
  /** Of all rows of kinds that nobody has made: there is nothing to read, and nothing to remember. */
  const none = new Entry(0, undefined, load);
  const last = database.prepare('SELECT max(n) AS n FROM rows');
  const select = database.prepare('SELECT n, version FROM rows WHERE kind = ? AND id = ?');
  const selectText = database.prepare('SELECT text FROM rows WHERE n = ?');
  const selectSize = database.prepare('SELECT octet_length(text) AS size FROM rows WHERE n = ?');
  const insert = bulk(database, 'INSERT OR ROLLBACK INTO rows (n, kind, id, version, text) VALUES', '(?, ?, ?, ?, ?)');
  const update = database.prepare('UPDATE rows SET version = ?, text = ? WHERE n = ?');
  const remove = database.prepare('DELETE FROM rows WHERE n = ?');
  let young = new Map<string, Entry>();
  let old = new Map<string, Entry>();
  let changed: Entry[] = [];
  let highest: number | null = null;
  let characters = 0;

  /** @param isNew there is none unless it was looked at. One that is there nevertheless breaks the transaction */
  function find(kind: number, id: string, isNew = false): Entry {
    if (kind === 0) return none;
    const name = `${kind} ${id}`;
    const known = young.get(name);
    if (known !== undefined) return known;
    const entry = old.get(name) ?? new Entry(kind, isNew ? undefined : select.get(kind, columnText(id)), load);
    characters += entry.size;
    young.set(ownText(name), entry);
    return entry;
  }

  function load(entry: Entry): string {
    const read = plainText(selectText.get(entry.n)?.['text']);
    if (read.length <= SHORT_TEXT) entry.known = read;
    entry.size = read.length;
    characters += read.length;
    return read;
  }

  function put(entry: Entry): void {
    const { n, version } = entry;
    const column = columnText(entry.known ?? '');
    if (n > 0 && (version === ABSENT || entry.isMoved)) {
      remove.run(n);
      entry.n = 0;
    }
    if (entry.n > 0) update.run(version, column, n);
    else if (version !== ABSENT) {
      highest = (highest ?? integer(last.get()?.['n'] ?? 0)) + 1;
      entry.n = highest;
      insert.add(highest, entry.kind, columnText(entry.id), version, column);
    }
    entry.known = null;
    entry.isChanged = false;
    entry.isMoved = false;
    entry.id = '';
    if (entry.isOver) entry.read = undefined;
    entry.size = entry.read === undefined ? 0 : column.length;
    characters += entry.size;
  }

  return {
    find,
    /** The row of an entry, with its text. */
    row: (entry: Entry): Row | null => (entry.version === ABSENT ? null : { version: entry.version, text: entry.text }),
    write(entry: Entry, id: string, version: string, written: string | null): void {
      entry.version = written === null ? ABSENT : version;
      entry.known = written;
      entry.read = undefined;
      entry.isOver = false;
      if (entry.isChanged) return;
      entry.isChanged = true;
      entry.id = id;
      changed.push(entry);
    },
    /**
     * Called before a `write` that leaves less of a row. Rows are written at the end of the file, so nothing would fill the
     * room beside it. It goes to the end as well, and its page becomes empty with the rows around it.
     */
    shorten(entry: Entry, characters: number): void {
      if (entry.n > 0 && characters < SHORTER * integer(selectSize.get(entry.n)?.['size'] ?? 0)) entry.isMoved = true;
    },
    flush(): void {
      for (const entry of changed) put(entry);
      changed = [];
      insert.flush();
    },
    /** Called at the end of a transaction. */
    shrink(): void {
      if (young.size <= REMEMBERED && characters <= REMEMBERED_CHARACTERS) return;
      old = young;
      young = new Map();
      characters = 0;
    },
    forget(): void {
      young = new Map();
      old = new Map();
      changed = [];
      highest = null;
      insert.forget();
    },
  };
}

/**
 * Places of rows in lists. Only people's reads use them, so they are collected and written at the end of the
 * transaction.
 */
export function openPlacesTable(database: SqlDatabase) {
  const insert = bulk(database, 'INSERT OR IGNORE INTO places (list, at, id) VALUES', '(?, ?, ?)');
  // With (list, at, id) IN (VALUES …), SQLite makes a table of them first: half as much again.
  const remove = bulk(database, 'DELETE FROM places WHERE', '(list = ? AND at = ? AND id = ?)', ' OR ');
  return {
    enter(list: number, at: number, id: string): void {
      insert.add(list, at, columnText(id));
    },
    leave(list: number, at: number, id: string): void {
      remove.add(list, at, columnText(id));
    },
    /** Writes what was collected: first what leaves lists, then what enters them. */
    flush(): void {
      remove.flush();
      insert.flush();
    },
    forget(): void {
      insert.forget();
      remove.forget();
    },
  };
}
