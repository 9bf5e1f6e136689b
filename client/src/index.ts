export { SvcError } from './error.ts';
export type { Fault } from './error.ts';
export type { Json, JsonObject } from './json.ts';
export type * from './records.ts';
export type * from './result.ts';
export { Svc } from './svc.ts';
export type { SvcOptions } from './svc.ts';
export type { Fetch } from './transport.ts';
export type {
  ApiKey,
  Approval,
  ApprovalPage,
  Became,
  Budget,
  BudgetRow,
  Claim,
  Decision,
  Effect,
  EffectBudgets,
  EffectPage,
  EffectState,
  EffectWithLedger,
  LedgerEvent,
  LedgerPage,
  MadeKey,
  Mismatch,
  NotificationDelivery,
  NotificationPage,
  Observed,
  PassedRead,
  PassedReadPage,
  Pause,
  PauseScope,
  PendingApproval,
  PolicyHistory,
  PolicyProposal,
  PolicySuggestion,
  PolicyVersion,
  Preview,
  Probed,
  Reason,
  Receipt,
  ReconcileVerdict,
  Reservation,
  Run,
  StateVerdict,
  Voted,
} from './wire-records.ts';
