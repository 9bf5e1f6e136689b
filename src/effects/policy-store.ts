import type { LedgerActor } from './model/ledger.ts';
import type { PolicyProposal } from './model/policy-proposal.ts';

/** The part of a budget's definition that its rows depend on. */
export interface BudgetDefinition {
  readonly budget: string;
  readonly unit: string;
  /** Canonical text of the window, e.g. `day Europe/Berlin`, `rolling 604800000`. */
  readonly window: string;
  readonly reset: boolean;
}

/** The policy files of a gateway, packed: what all gateways of a store run. */
export interface PolicyBundle {
  readonly version: string;
  /** Vouches for the version: who can only write to the store puts no policies in force. Empty: it is only proposed. */
  readonly seal: string;
  /** A store keeps each as a row. */
  readonly parts: readonly string[];
}

export interface PolicyInForce extends Pick<PolicyProposal, 'version' | 'at' | 'by' | 'files'> {
  /** `files`: a gateway found it in its files, at its start or when they changed. */
  readonly how: 'files' | 'activate' | 'rollback';
  /** What the person said who put it in force. */
  readonly why?: string;
  /** Who confirmed it, where it was proposed. */
  readonly confirmedBy?: readonly string[];
}

export interface PolicyChange extends Pick<PolicyInForce, 'by' | 'how' | 'why' | 'files'> {
  /** `null` where the store has it already, or it is too large to be kept there. */
  readonly bundle: PolicyBundle | null;
  /**
   * Whether a version comes back that was in force before the one that is now; `after_files`: only where files put the
   * present one in force, and no person.
   */
  readonly again: 'yes' | 'after_files' | 'no';
  /** The proposal that comes in force by this, with everybody who stands behind it now. */
  readonly proposal?: {
    readonly confirmed: PolicyProposal;
    /** Its seal as it was read. If another one is there, it is not put in force. */
    readonly before: string;
    /** Who confirmed it last. */
    readonly actor: LedgerActor;
  };
}

export type PolicyActivation =
  | { readonly kind: 'active'; readonly version: string }
  /** It was in force before the one that is, and was not to come back. Nothing was changed. */
  | { readonly kind: 'superseded'; readonly version: string }
  /** What was proposed is over, or something else came in force. Nothing was changed. */
  | { readonly kind: 'proposal_over' }
  /** Unit or window of a budget with rows would change, and `reset: true` is missing. */
  | {
      readonly kind: 'budget_redefined';
      readonly budgets: readonly { readonly budget: string; readonly was: string; readonly is: string }[];
    };

export interface PolicyStore {
  /**
   * Sets the policy version in force; the newest activation wins. Later admissions must have been evaluated with it. With
   * `change` it is kept with its files, and is recorded in the history and the ledger.
   */
  activatePolicy(
    version: string,
    budgets: readonly BudgetDefinition[],
    change?: PolicyChange,
  ): Promise<PolicyActivation>;
  /** The version in force; `null` before the first. */
  policyInForce(): Promise<string | null>;
  /** Newest first, at most 100. */
  policyHistory(): Promise<readonly PolicyInForce[]>;
  /** `null` where it is not kept, or not any more. */
  policyBundle(version: string): Promise<PolicyBundle | null>;
  /** What was proposed, newest first, also what is over; at most 20. */
  policyProposals(): Promise<readonly PolicyProposal[]>;
  /** Keeps a proposal, also one that somebody else has confirmed. */
  putPolicyProposal(put: {
    readonly proposal: PolicyProposal;
    /** The seal that it replaces; `null`: it is new. */
    readonly before: string | null;
    /** Of new ones: the files, where the store has not had them. */
    readonly bundle: PolicyBundle | null;
    readonly actor: LedgerActor;
  }): Promise<'put' | 'over' | 'full'>;
  /** Ends what is open: of this id, or all that a gateway found in its files. Returns how many that were. */
  endPolicyProposals(which: { readonly id: string } | 'of files', actor: LedgerActor): Promise<number>;
  /** Called when other policies may have come in force. */
  onPolicyChanged(listener: () => void): void;
}
