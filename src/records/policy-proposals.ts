import type { LedgerActor } from '../effects/model/ledger.ts';
import { type PolicyProposal, proposalStatus, proposalEventData } from '../effects/model/policy-proposal.ts';
import type { PutProposal } from '../effects/policy-store.ts';
import { ONLY, policyRows } from './control-rows.ts';
import type { Draft } from './draft.ts';
import { jsonKind, repository } from './kind.ts';
import { appendEvents } from './view.ts';

/** Newest first; also what is over, as long as there is room. */
export const proposalRows = repository(jsonKind<readonly PolicyProposal[]>('policy_proposals', () => []));

const MOST_KEPT = 20;
const MOST_OPEN = 10;

const proposalsOf = (draft: Draft): readonly PolicyProposal[] => proposalRows.get(draft, ONLY) ?? [];

export function isOpenProposal(draft: Draft, proposal: PolicyProposal): boolean {
  return proposalStatus(proposal, draft.now, policyRows.get(draft, ONLY)) === 'open';
}

/** Whether a proposal is as somebody has read it, and open. */
export function isAsRead(draft: Draft, id: string, seal: string): boolean {
  return proposalsOf(draft).some((one) => one.id === id && one.seal === seal && isOpenProposal(draft, one));
}

/** What the step of {@link PolicyStore.putPolicyProposal} does. What is in the files now takes the place of what was. */
export function putProposal(draft: Draft, { proposal, before, actor }: Omit<PutProposal, 'bundle'>) {
  if (before === null ? !isOpenProposal(draft, proposal) : !isAsRead(draft, proposal.id, before)) return 'over';
  if (before === null && proposal.how === 'files') endProposals(draft, 'of files', 'withdrawn', actor);
  const others = proposalsOf(draft).filter(({ id }) => id !== proposal.id);
  const open = others.filter((one) => isOpenProposal(draft, one));
  if (before === null && open.length >= MOST_OPEN) return 'full';
  const over = others.filter((one) => !open.includes(one));
  proposalRows.put(draft, ONLY, [proposal, ...open, ...over].slice(0, MOST_KEPT));
  const data = proposalEventData(proposal);
  const event =
    before === null
      ? ({ kind: 'policy.proposed', data } as const)
      : ({ kind: 'policy.confirmed', data: { ...data, complete: false } } as const);
  appendEvents(draft, [{ ...event, effectId: null, actor }]);
  return 'put';
}

/** Ends what is open. @returns how many that were */
export function endProposals(
  draft: Draft,
  which: { readonly id: string } | 'of files' | 'all',
  as: 'withdrawn' | 'superseded',
  by: LedgerActor,
): number {
  const all = proposalsOf(draft);
  const isMeant = (one: PolicyProposal): boolean =>
    which === 'all' || (which === 'of files' ? one.how === 'files' : one.id === which.id);
  const ending = all.filter((one) => isMeant(one) && isOpenProposal(draft, one));
  if (ending.length === 0) return 0;
  const ended = { at: draft.now, as, by };
  proposalRows.put(
    draft,
    ONLY,
    all.map((one) => (ending.includes(one) ? { ...one, ended } : one)),
  );
  // Of what is superseded, the event of what came in force says enough.
  if (as === 'withdrawn')
    appendEvents(
      draft,
      ending.map((one) => ({ kind: 'policy.withdrawn', effectId: null, actor: by, data: proposalEventData(one) })),
    );
  return ending.length;
}

/** The last confirmation, in the step that puts it in force. */
export function endConfirmed(draft: Draft, confirmed: PolicyProposal, by: LedgerActor): void {
  const ended = { at: draft.now, as: 'confirmed', by } as const;
  proposalRows.put(
    draft,
    ONLY,
    proposalsOf(draft).map((one) => (one.id === confirmed.id ? { ...confirmed, ended } : one)),
  );
  const data = { ...proposalEventData(confirmed), complete: true };
  appendEvents(draft, [{ kind: 'policy.confirmed', effectId: null, actor: by, data }]);
}
