import type { AllowanceRecord } from '../effects/model/allowance.ts';
import { type Draft, MOSTLY_ABSENT, type ReadHint } from './draft.ts';
import { jsonKind, repository, textKind } from './kind.ts';

/** Allowances by when they were given, and by when they end. */
export const ALLOWANCES = 'allowances';
export const ENDING = 'allowances:ending';

export const allowanceRows = repository(
  jsonKind<AllowanceRecord>('allowance', ({ givenAt, expiresAt }) => [
    { list: ALLOWANCES, at: givenAt },
    { list: ENDING, at: expiresAt },
  ]),
);

/** The id of the allowance for calls of a likeness. */
export const alikeRows = repository(textKind('alike'));

const FOLLOWED: ReadHint = { ...MOSTLY_ABSENT, follow: allowanceRows.kind };

/** The allowance for calls of a likeness, whether or not it is over. */
export function allowanceAlike(draft: Draft, likeness: string): AllowanceRecord | null {
  const id = alikeRows.get(draft, likeness, FOLLOWED);
  return id === null ? null : allowanceRows.get(draft, id);
}

/** Writes an allowance. One that somebody ended no longer stands for its likeness. */
export function putAllowance(draft: Draft, allowance: AllowanceRecord): void {
  const { id, likeness, ended } = allowance;
  allowanceRows.get(draft, id, MOSTLY_ABSENT);
  allowanceRows.put(draft, id, allowance);
  const present = alikeRows.get(draft, likeness, FOLLOWED);
  if (ended === undefined && present !== id) alikeRows.put(draft, likeness, id);
  if (ended !== undefined && present === id) alikeRows.put(draft, likeness, null);
}
