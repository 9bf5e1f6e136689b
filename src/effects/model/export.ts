import type { Vote } from './approval.ts';
import type { EffectRecord } from './effect.ts';
import type { LedgerEvent, LedgerFilter } from './ledger.ts';
import type { Tool } from './tool.ts';

export const EXPORTED = ['effects', 'receipts', 'events'] as const;
export type Exported = (typeof EXPORTED)[number];

/** One line of an export. `jws` `null`: an event says that a receipt was issued, and nobody has it any more. */
export type ExportItem =
  /** `words`: what was said with a rejection, which its event commits to. */
  | { readonly type: 'event'; readonly event: LedgerEvent; readonly words?: Pick<Vote, 'comment' | 'salt'> }
  | { readonly type: 'receipt'; readonly effectId: string; readonly id: string; readonly jws: string | null }
  /** `decided`: who approved or rejected it, and when the last of them did; looked up for comma-separated values alone. */
  | {
      readonly type: 'effect';
      readonly effect: EffectRecord;
      readonly decided: { readonly by: readonly string[]; readonly at: number | null };
    };

/** What is exported. `publicUrl`: where links lead. */
export interface ExportRequest {
  readonly workspace: string;
  readonly publicUrl: string;
  readonly filter: Omit<LedgerFilter, 'limit' | 'cursor'>;
  readonly what: readonly Exported[];
  readonly form: 'json' | 'csv';
}

/** Some lines, and how many there are of each. */
export interface ExportPart {
  readonly text: string;
  readonly counts: Readonly<Record<Exported, number>>;
}

/** What the line of an effect needs besides its record: the tool as it is declared, and the store's time. */
export type ExportContext = (effect: EffectRecord) => { readonly tool: Tool | null; readonly now: number };
