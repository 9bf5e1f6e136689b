import type { ExportContext, ExportPart, ExportRequest } from './model/export.ts';
import type { LedgerDraft, LedgerEvent, LedgerFilter } from './model/ledger.ts';
import type { Page } from './model/page.ts';

/** The ledger: what happened, in order. */
export interface LedgerStore {
  effectLedger(workspace: string, effectId: string): Promise<readonly LedgerEvent[]>;
  /** The same for people, who wait so that calls need not. */
  effectLedgerInTurns(workspace: string, effectId: string): Promise<readonly LedgerEvent[]>;
  /** Events with `seq > after`, in order. */
  ledger(workspace: string, after: number, limit: number): Promise<readonly LedgerEvent[]>;
  /** Events with `seq < before`, newest first; `null` starts with the newest. */
  ledgerBefore(workspace: string, before: number | null, limit: number): Promise<readonly LedgerEvent[]>;
  /** Newest first. A page looks at a part of the ledger, and may be short though others follow. */
  ledgerPage(workspace: string, filter: LedgerFilter): Promise<Page<LedgerEvent>>;
  /** What is written after it has begun is left out. The parts are made as they are taken. */
  exported(request: ExportRequest, context: ExportContext): AsyncIterable<ExportPart>;
  /** Appends events that belong to no step (batches of reads, loaded policies). */
  append(workspace: string, events: readonly LedgerDraft[]): Promise<void>;
}
