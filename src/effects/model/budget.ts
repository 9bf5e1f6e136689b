export interface BudgetRow {
  readonly budget: string;
  readonly unit: string;
  readonly bucket: string;
  /** Id of the row's window: `c:<start>:<end>` for calendar windows, `r:<ms>` for rolling ones. */
  readonly window: string;
  readonly limit: number;
  readonly spent: number;
  readonly held: number;
  /** End of a calendar window; `null` for rolling ones. */
  readonly resetsAt: number | null;
}
