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

const WHY_NOT = {
  full: 'Ten proposals are open already: confirm or withdraw one of them first.',
  over: 'Other policies came in force meanwhile. Propose it again.',
} as const;

/** Proposals of policies: made by one person, or found in files, and confirmed by somebody else. */
export class Proposals {
  readonly #parts;
  readonly #store;

  constructor(parts: {
    readonly store: Pick<EffectStore, 'now' | 'policyInForce' | 'policyProposals' | 'putPolicyProposal'>;
    readonly seals: PolicySeals;
    readonly persons: Persons;
    readonly newId: (prefix: 'ppl') => string;
  }) {
    this.#parts = parts;
    this.#store = parts.store;
  }

  /**
   * Proposes policies in place of those in force; `null` where none are in force yet.
   * @param by who wants them; a gateway found them in its files
   * @throws StoreUnavailable
   */
  async propose(
    { policies: { version }, own }: Pick<InForce, 'policies' | 'own'>,
    how: PolicyProposal['how'],
    by: Principal | LedgerActor,
    details: Pick<PolicyProposal, 'why' | 'files'>,
  ): Promise<ProposedPolicy | null> {
    const from = await this.#store.policyInForce();
    if (from === null) return null;
    if (from === version) return { kind: 'active', version };
    const actor = 'keyId' in by ? ledgerActor(by) : by;
    const person = 'keyId' in by ? await standsBehind(this.#parts.persons, by) : null;
    const there = (await this.#open()).find(
      (one) => one.version === version && one.how === how && (one.how === 'files' || one.by.id === actor.id),
    );
    if (there !== undefined) return { kind: 'proposed', proposal: there, version: from };
    const at = this.#store.now();
    const terms = { version, from, how, by: actor, ...details, people: person === null ? [] : [person] };
    const proposal = this.#sealed({ id: this.#parts.newId('ppl'), ...terms, at, expiresAt: at + PROPOSAL_LASTS_MS });
    const bundle = own.version === version && own.parts.length > 0 ? { version, seal: '', parts: own.parts } : null;
    const put = await this.#store.putPolicyProposal({ proposal, before: null, bundle, actor });
    return put === 'put' ? { kind: 'proposed', proposal, version: from } : { kind: 'refused', message: WHY_NOT[put] };
  }

  /** Counts a confirmation, unless it is the last one that is needed. @throws StoreUnavailable */
  async confirm(
    id: string,
    by: Principal,
  ): Promise<
    | { readonly kind: 'complete'; readonly proposal: NonNullable<PolicyChange['proposal']> }
    | Exclude<ConfirmedPolicy, { readonly kind: 'active' }>
  > {
    const proposal = (await this.#store.policyProposals()).find((one) => one.id === id);
    if (proposal === undefined) return { kind: 'absent' };
    if (!this.#isSound(proposal))
      return { kind: 'refused', message: 'Something else than a gateway wrote the proposal.' };
    const inForce = await this.#store.policyInForce();
    const status = proposalStatus(proposal, this.#store.now(), inForce);
    if (status !== 'open') return { kind: 'refused', message: `The proposal is over (${status}).` };
    const person = await anotherPerson(this.#parts.persons, by, proposal);
    if (typeof person === 'string') return { kind: 'own_request', message: person };
    const { ended: _, seal: before, ...terms } = proposal;
    const joined = this.#sealed({ ...terms, people: [...terms.people, person] });
    const actor = ledgerActor(by);
    if (joined.people.length >= PEOPLE_BEHIND)
      return { kind: 'complete', proposal: { confirmed: joined, before, actor } };
    const put = await this.#store.putPolicyProposal({ proposal: joined, before, bundle: null, actor });
    if (put !== 'put') return { kind: 'refused', message: 'The proposal is over, or is not as it was read.' };
    return { kind: 'counted', proposal: joined, version: terms.from };
  }

  /** Whether a gateway vouches for what is proposed as this version. @throws StoreUnavailable */
  async isProposed(version: string): Promise<boolean> {
    return (await this.#open()).some((one) => one.version === version);
  }

  #isSound(proposal: PolicyProposal): boolean {
    return this.#parts.seals.fitsProposal(proposalTerms(proposal), proposal.seal);
  }

  #sealed(terms: Omit<PolicyProposal, 'seal' | 'ended'>): PolicyProposal {
    return {
      ...terms,
      seal: this.#parts.seals.sealProposal(proposalTerms(terms)),
    };
  }

  async #open(): Promise<readonly PolicyProposal[]> {
    const inForce = await this.#store.policyInForce();
    const all = await this.#store.policyProposals();
    return all.filter((one) => this.#isSound(one) && proposalStatus(one, this.#store.now(), inForce) === 'open');
  }
}
