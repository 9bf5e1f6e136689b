import type { SqlDatabase, SqlStatement, SqlValue } from '../driver.ts';

/** How many rows one statement writes. The largest size that fits is used. */
const SIZES = [32, 8, 1];

/**
 * Writes many rows with few statements, because a call of the driver costs as much as a row.
 * @param before the statement before its rows
 * @param columns of a row
 * @param after the statement after its rows
 */
export function bulk(database: SqlDatabase, before: string, columns: number, after = '') {
  const row = `(${Array.from({ length: columns }, () => '?').join(', ')})`;
  const statements: readonly (readonly [number, SqlStatement])[] = SIZES.map((size) => [
    size * columns,
    database.prepare(`${before} ${Array.from({ length: size }, () => row).join(', ')}${after}`),
  ]);
  let gathered: SqlValue[] = [];
  return {
    /** The columns of one more row. */
    add(...values: readonly SqlValue[]): void {
      for (const value of values) gathered.push(value);
    },
    flush(): void {
      if (gathered.length === 0) return;
      let at = 0;
      for (const [size, statement] of statements)
        for (; gathered.length - at >= size; at += size) statement.run(...gathered.slice(at, at + size));
      gathered = [];
    },
    forget(): void {
      gathered = [];
    },
  };
}
