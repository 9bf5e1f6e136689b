import type { Put } from '../../port.ts';
import type { SqlDatabase } from '../driver.ts';
import type { openCountersTable } from './counters-table.ts';
import type { openLedgerTable } from './ledger-table.ts';
import type { openMetaTable } from './meta-table.ts';
import type { openNames, WorkspaceNames } from './names.ts';
import type { Entry, openPlacesTable, openRowsTable } from './rows-table.ts';

/** The tables of a store, with what writes to several of them. */
export interface Tables {
  readonly database: SqlDatabase;
  readonly names: ReturnType<typeof openNames>;
  readonly rows: ReturnType<typeof openRowsTable>;
  readonly places: ReturnType<typeof openPlacesTable>;
  readonly counters: ReturnType<typeof openCountersTable>;
  readonly ledger: ReturnType<typeof openLedgerTable>;
  readonly meta: ReturnType<typeof openMetaTable>;
  write(workspace: WorkspaceNames, entry: Entry, put: Omit<Put, 'version'>, version: string): void;
  /** Says that the transaction writes something. */
  wrote(): void;
}
