import type { ConfirmedPolicy, ProposedPolicy } from '../api/ports.ts';
import type { LedgerActor } from '../effects/model/ledger.ts';
import {
  PEOPLE_BEHIND,
  PROPOSAL_LASTS_MS,
  type PolicyProposal,
  proposalStatus,
  proposalTerms,
} from '../effects/model/policy-proposal.ts';
import { ledgerActor, type Principal } from '../effects/model/principal.ts';
import type { PolicyChange } from '../effects/policy-store.ts';
import type { EffectStore } from '../effects/store.ts';
import { anotherPerson, type Persons, standsBehind } from '../identity/stands-behind.ts';
import type { PolicySeals } from '../secrets/policy-seals.ts';
import type { InForce } from './in-force.ts';

/** What comes in force by the last confirmation. */
export type LastConfirmation = NonNullable<PolicyChange['proposal']>;

/** What came of a confirmation. */
type Joined =
  /** Everybody who has to stands behind it: it can come in force. */
  | { readonly kind: 'complete'; readonly proposal: LastConfirmation }
  | Exclude<ConfirmedPolicy, { readonly kind: 'active' }>;

const WHY_NOT = {
  full: 'Ten proposals are open already: confirm or withdraw one of them first.',
  over: 'Other policies came in force meanwhile. Propose it again.',
} as const;

/** Proposals of policies: made by one person, or found in files, and confirmed by somebody else. */
export interface Proposals {
  /**
   * Proposes policies in place of those in force; `null` where none are in force yet.
   * @param by who wants them; a gateway found them in its files
   * @throws StoreUnavailable
   */
  propose(
    next: Pick<InForce, 'policies' | 'own'>,
    how: PolicyProposal['how'],
    by: Principal | LedgerActor,
    told: Pick<PolicyProposal, 'why' | 'files'>,
  ): Promise<ProposedPolicy | null>;
  /** Counts a confirmation, unless it is the last one that is needed. @throws StoreUnavailable */
  confirm(id: string, by: Principal): Promise<Joined>;
  /** Whether a gateway vouches for what is proposed as this version. @throws StoreUnavailable */
  isProposed(version: string): Promise<boolean>;
}

export function createProposals(parts: {
  readonly store: Pick<EffectStore, 'now' | 'policyInForce' | 'policyProposals' | 'putPolicyProposal'>;
  readonly seals: PolicySeals;
  readonly persons: Persons;
  readonly newId: (prefix: 'ppl') => string;
}): Proposals {
  const { store, seals, persons } = parts;

  const isSound = (proposal: PolicyProposal): boolean => seals.fitsProposal(proposalTerms(proposal), proposal.seal);
  const sealed = (terms: Omit<PolicyProposal, 'seal' | 'ended'>): PolicyProposal => ({
    ...terms,
    seal: seals.sealProposal(proposalTerms(terms)),
  });

  async function open(): Promise<readonly PolicyProposal[]> {
    const inForce = await store.policyInForce();
    const all = await store.policyProposals();
    return all.filter((one) => isSound(one) && proposalStatus(one, store.now(), inForce) === 'open');
  }

  return {
    async propose({ policies: { version }, own }, how, by, told) {
      const from = await store.policyInForce();
      if (from === null) return null;
      if (from === version) return { kind: 'active', version };
      const actor = 'keyId' in by ? ledgerActor(by) : by;
      const person = 'keyId' in by ? await standsBehind(persons, by) : null;
      const there = (await open()).find(
        (one) => one.version === version && one.how === how && (one.how === 'files' || one.by.id === actor.id),
      );
      if (there !== undefined) return { kind: 'proposed', proposal: there, version: from };
      const at = store.now();
      const terms = { version, from, how, by: actor, ...told, people: person === null ? [] : [person] };
      const proposal = sealed({ id: parts.newId('ppl'), ...terms, at, expiresAt: at + PROPOSAL_LASTS_MS });
      const bundle = own.version === version && own.parts.length > 0 ? { version, seal: '', parts: own.parts } : null;
      const put = await store.putPolicyProposal({ proposal, before: null, bundle, actor });
      return put === 'put' ? { kind: 'proposed', proposal, version: from } : { kind: 'refused', message: WHY_NOT[put] };
    },

    async confirm(id, by) {
      const proposal = (await store.policyProposals()).find((one) => one.id === id);
      if (proposal === undefined) return { kind: 'absent' };
      if (!isSound(proposal)) return { kind: 'refused', message: 'Something else than a gateway wrote the proposal.' };
      const inForce = await store.policyInForce();
      const status = proposalStatus(proposal, store.now(), inForce);
      if (status !== 'open') return { kind: 'refused', message: `The proposal is over (${status}).` };
      const person = await anotherPerson(persons, by, proposal);
      if (typeof person === 'string') return { kind: 'own_request', message: person };
      const { ended: _, seal: before, ...terms } = proposal;
      const joined = sealed({ ...terms, people: [...terms.people, person] });
      const actor = ledgerActor(by);
      if (joined.people.length >= PEOPLE_BEHIND)
        return { kind: 'complete', proposal: { confirmed: joined, before, actor } };
      const put = await store.putPolicyProposal({ proposal: joined, before, bundle: null, actor });
      if (put !== 'put') return { kind: 'refused', message: 'The proposal is over, or is not as it was read.' };
      return { kind: 'counted', proposal: joined, version: terms.from };
    },

    isProposed: async (version) => (await open()).some((one) => one.version === version),
  };
}
