import type { SettleOutcome, SettleRequest } from '../effects/store.ts';
import {
  evidenceOf,
  resultOf,
  storedEvidence,
  type StoredEvidence,
  storedResult,
  type StoredResult,
} from './effect-text.ts';
import { readOwnJson } from '../json/text.ts';

/** A settlement that waits for the store, as its file has it. */
interface StoredSettlement extends Omit<SettleRequest, 'evidence' | 'outcome'> {
  readonly evidence: StoredEvidence;
  readonly outcome: StoredOutcome;
}

type StoredOutcome =
  | Extract<SettleOutcome, { readonly kind: 'unknown' | 'denied' }>
  | AsStored<Extract<SettleOutcome, { readonly kind: 'committed' }>>
  | AsStored<Extract<SettleOutcome, { readonly kind: 'failed' }>>;
type AsStored<Of> = Omit<Of, 'result'> & { readonly result: StoredResult | null };

/** The texts of settlements that the store did not take yet. */
export const settlementTexts = {
  write(request: SettleRequest): string {
    const { outcome } = request;
    const evidence = storedEvidence(request.evidence);
    const stored: StoredSettlement = { ...request, evidence, outcome: storedOutcome(outcome) };
    return JSON.stringify(stored);
  },
  /** @param text of `write`; nothing else writes such files */
  read(text: string): SettleRequest {
    const stored = readOwnJson<StoredSettlement>(text);
    return { ...stored, evidence: evidenceOf(stored.evidence), outcome: outcomeAsStored(stored.outcome) };
  },
} as const;

function storedOutcome(outcome: SettleOutcome): StoredOutcome {
  switch (outcome.kind) {
    case 'committed': {
      const { id, jws } = outcome.receipt;
      return { ...outcome, receipt: { id, jws }, result: storedResult(outcome.result) };
    }
    case 'failed':
      return { ...outcome, result: storedResult(outcome.result) };
    case 'unknown':
    case 'denied':
      return outcome;
  }
}

function outcomeAsStored(outcome: StoredOutcome): SettleOutcome {
  switch (outcome.kind) {
    case 'committed':
    case 'failed':
      return { ...outcome, result: resultOf(outcome.result) };
    case 'unknown':
    case 'denied':
      return outcome;
  }
}
