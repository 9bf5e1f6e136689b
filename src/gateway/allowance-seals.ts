import type { AllowanceDraft, AllowanceRecord } from '../effects/model/allowance.ts';
import type { Secrets } from '../secrets/vault.ts';
import { readOwnJson } from '../json/read.ts';

/** An allowance as a gateway proposes it, with what vouches for it: for what, for whom, by whom, how often, until when. */
export function sealedAllowance(draft: AllowanceDraft, seals: Pick<Secrets, 'sealText'>): AllowanceDraft {
  const text = JSON.stringify([termsOf(draft), draft.until]);
  return { ...draft, seal: seals.sealText(text, bindingOf(draft)) };
}

/** An allowance as it is read, marked where anything that calls are let in by is not as a gateway wrote it. */
export function openedAllowance(stored: AllowanceRecord, seals: Pick<Secrets, 'openText'>): AllowanceRecord {
  const { seal, isForged: _, ...allowance } = stored;
  const text = seal === undefined ? null : seals.openText(seal, bindingOf(stored));
  const [terms, until] = text === null ? [] : readOwnJson<readonly [string, number]>(text);
  const isSound = terms === termsOf(stored) && until !== undefined && stored.expiresAt <= until;
  return isSound ? allowance : { ...allowance, isForged: true };
}

function termsOf({
  id,
  likeness,
  approvalId,
  effectId,
  agentId,
  tool,
  target,
  rules,
  varies,
  by,
  times,
}: Omit<AllowanceDraft, 'until'>): string {
  return JSON.stringify([
    id,
    likeness,
    [approvalId, effectId, agentId, tool, target],
    rules,
    varies,
    [by.user, by.keyId],
    times,
  ]);
}

function bindingOf({ workspace, id }: Pick<AllowanceRecord, 'workspace' | 'id'>) {
  return { what: 'allowance', workspace, of: id, part: 0 } as const;
}
