import type { AskedOf } from '../effects/store.ts';
import { INSTALLATION, type LedgerActor } from '../effects/model/ledger.ts';
import { type PolicyProposal, proposalStatus, proposalEventData } from '../effects/model/policy-proposal.ts';
import type {
  BudgetDefinition,
  PolicyActivation,
  PolicyBundle,
  PolicyChange,
  PolicyInForce,
  PolicyStore,
} from '../effects/policy-store.ts';
import type { RowStore } from '../stores/port.ts';
import { ONLY, policyRows } from './control-rows.ts';
import { budgetGroup } from './counters.ts';
import type { Draft } from './draft.ts';
import { jsonKind, repository, textKind } from './kind.ts';
import { readRecord, type StepRunner } from './runner.ts';
import { appendEvents } from './view.ts';

const GATEWAY: LedgerActor = { type: 'gateway', id: 'policy' };

export const definitionRows = repository(
  jsonKind<Readonly<Record<string, Pick<BudgetDefinition, 'unit' | 'window'>>>>('budget_definitions', () => []),
);

/** What was in force, newest first. */
const historyRows = repository(jsonKind<readonly PolicyInForce[]>('policy_history', () => []));
const MOST_HISTORY = 100;

/** Packed files by their version; their parts are rows of their own. */
const bundleRows = repository(jsonKind<{ readonly seal: string; readonly parts: number }>('policy_bundle', () => []));
const partRows = repository(textKind('policy_part'));
const partId = (version: string, part: number): string => `${version}/${part}`;

/** Versions whose files are kept, however large: those that were in force last. */
const ALWAYS_KEPT = 10;
/** Files of older versions of the history are kept as long as all that are kept have at most so many parts (16 MB). */
const MOST_PARTS = 64;

/** How many counters of a workspace are searched for budgets in use. */
const MAX_COUNTERS = 100_000;

export interface Policies {
  /** What a store shows of them, and what it does with proposals. */
  readonly kept: Omit<PolicyStore, 'activatePolicy' | 'onPolicyChanged'>;
  activate(
    version: string,
    budgets: readonly BudgetDefinition[],
    change: PolicyChange | null,
    workspaces: () => Promise<readonly string[]>,
  ): Promise<PolicyActivation>;
  bring(workspace: string): Promise<void>;
}

export function createPolicies(store: RowStore, runner: StepRunner): Policies {
  async function groupsInUse(workspaces: readonly string[]): Promise<ReadonlySet<string>> {
    const groups = new Set<string>();
    for (const workspace of workspaces)
      for (const { group } of await store.sums(workspace, MAX_COUNTERS)) groups.add(group);
    return groups;
  }

  /**
   * If there are several activations at once, the last one counts. So look again after bringing one, until it is the
   * one in force.
   */
  async function bring(workspace: string): Promise<void> {
    for (;;) {
      const policy = await readRecord(runner, policyRows, INSTALLATION, ONLY);
      if (policy === null) return;
      const { result } = await runner.run(workspace, (draft) => {
        if (policyRows.get(draft, ONLY) === policy) return false;
        policyRows.put(draft, ONLY, policy);
        return true;
      });
      if (!result) return;
    }
  }

  /** Writes what is not there as it is to be: parts that something else has altered too. */
  async function keepBundle({ version, seal, parts }: PolicyBundle): Promise<void> {
    for (const [index, part] of parts.entries())
      await runner.run(INSTALLATION, (draft) => {
        const id = partId(version, index);
        if (partRows.get(draft, id) !== part) partRows.put(draft, id, part);
      });
    await runner.run(INSTALLATION, (draft) => {
      const there = bundleRows.get(draft, version);
      // What is only proposed has no seal, and takes none away.
      const next = seal === '' ? (there?.seal ?? '') : seal;
      if (there?.seal !== next || there.parts !== parts.length)
        bundleRows.put(draft, version, { seal: next, parts: parts.length });
    });
  }

  /** Forgets the files of versions that are too many, or leave the history next, and of proposals that are over. */
  async function dropOldest(): Promise<void> {
    const { versions, open, over, leaves } = await runner.peek(INSTALLATION, (draft) => {
      const history = (historyRows.get(draft, ONLY) ?? []).map(({ version }) => version);
      const proposals = proposalRows.get(draft, ONLY) ?? [];
      return {
        versions: [...new Set(history.slice(0, MOST_HISTORY - 1))],
        open: proposals.filter((one) => isOpenProposal(draft, one)).map(({ version }) => version),
        over: proposals.map(({ version }) => version),
        leaves: history.slice(MOST_HISTORY - 1),
      };
    });
    const heads = await Promise.all(versions.map((version) => readRecord(runner, bundleRows, INSTALLATION, version)));
    const kept = new Set(open);
    let parts = 0;
    for (const [index, version] of versions.entries()) {
      parts += heads[index]?.parts ?? 0;
      if (index < ALWAYS_KEPT || parts <= MOST_PARTS) kept.add(version);
    }
    const there = versions.filter((_, index) => heads[index] !== null);
    for (const version of new Set([...over, ...there, ...leaves])) if (!kept.has(version)) await drop(version);
  }

  async function drop(version: string): Promise<void> {
    const there = await readRecord(runner, bundleRows, INSTALLATION, version);
    if (there === null) return;
    await runner.run(INSTALLATION, (draft) => {
      if (bundleRows.get(draft, version) !== null) bundleRows.put(draft, version, null);
      for (let index = 0; index < there.parts; index += 1)
        if (partRows.get(draft, partId(version, index)) !== null) partRows.put(draft, partId(version, index), null);
    });
  }

  /** The version that is in force instead of one that is not to come back; `null` where it may. */
  function supersededBy(draft: Draft, version: string, change: PolicyChange | null): string | null {
    const inForce = policyRows.get(draft, ONLY);
    const history = historyRows.get(draft, ONLY) ?? [];
    if (inForce === null || inForce === version || change === null || change.again === 'yes') return null;
    if (change.again === 'after_files' && history[0]?.how === 'files') return null;
    return history.some((one) => one.version === version) ? inForce : null;
  }

  /** Whether what was to be confirmed is over, or is not what was read. */
  function isProposalOver(draft: Draft, change: PolicyChange | null): boolean {
    const proposal = change?.proposal;
    return proposal !== undefined && !isAsRead(draft, proposal.confirmed.id, proposal.before);
  }

  /** Puts it in force, in the step's change, and on record with who did it. */
  function putInForce(draft: Draft, version: string, change: PolicyChange | null): void {
    const before = policyRows.get(draft, ONLY);
    if (change?.proposal !== undefined) endConfirmed(draft, change.proposal.confirmed, change.proposal.actor);
    if (before !== version) {
      endProposals(draft, 'all', 'superseded', change?.by ?? GATEWAY);
      policyRows.put(draft, ONLY, version);
    }
    if (change === null) return;
    const history = historyRows.get(draft, ONLY) ?? [];
    if (before === version && history[0]?.version === version) return;
    const { by, how, why, files, proposal } = change;
    const details = { ...(why === undefined ? {} : { why }), ...(files === undefined ? {} : { files }) };
    const confirmedBy = proposal?.confirmed.people.map(({ user }) => user).filter((user) => user !== by.id);
    const line = { version, at: draft.now, by, how, ...details, ...(confirmedBy === undefined ? {} : { confirmedBy }) };
    historyRows.put(draft, ONLY, [line, ...history].slice(0, MOST_HISTORY));
    const kind = how === 'rollback' ? 'policy.rolled_back' : 'policy.activated';
    const ofTwo = confirmedBy === undefined ? {} : { proposed_by: by.id, confirmed_by: confirmedBy };
    const actor = proposal?.actor ?? by;
    appendEvents(draft, [{ kind, effectId: null, actor, data: { version, before, how, ...details, ...ofTwo } }]);
  }

  const kept: Policies['kept'] = {
    policyInForce: () => readRecord(runner, policyRows, INSTALLATION, ONLY),
    policyHistory: async () => (await readRecord(runner, historyRows, INSTALLATION, ONLY)) ?? [],
    async policyBundle(version) {
      const head = await readRecord(runner, bundleRows, INSTALLATION, version);
      if (head === null) return null;
      const parts: string[] = [];
      for (let index = 0; index < head.parts; index += 1) {
        const part = await readRecord(runner, partRows, INSTALLATION, partId(version, index));
        if (part === null) return null;
        parts.push(part);
      }
      return { version, seal: head.seal, parts };
    },
    policyProposals: async () => (await readRecord(runner, proposalRows, INSTALLATION, ONLY)) ?? [],
    async putPolicyProposal({ bundle, ...put }) {
      if (bundle !== null) await keepBundle(bundle);
      const { result } = await runner.run(INSTALLATION, (draft) => putProposal(draft, put));
      await dropOldest();
      return result;
    },
    async endPolicyProposals(which, actor) {
      const { result } = await runner.run(INSTALLATION, (draft) => endProposals(draft, which, 'withdrawn', actor));
      if (result > 0) await dropOldest();
      return result;
    },
  };

  return {
    kept,
    bring,
    async activate(version, budgets, change, workspaces) {
      if (await runner.peek(INSTALLATION, (draft) => isProposalOver(draft, change))) return { kind: 'proposal_over' };
      const instead = await runner.peek(INSTALLATION, (draft) => supersededBy(draft, version, change));
      if (instead !== null) return { kind: 'superseded', version: instead };
      if (change !== null && change.bundle !== null) await keepBundle(change.bundle);
      const before = await workspaces();
      const defined = (await readRecord(runner, definitionRows, INSTALLATION, ONLY)) ?? {};
      const redefined = budgets.flatMap((definition) => {
        const was = Object.hasOwn(defined, definition.budget) ? defined[definition.budget] : undefined;
        if (was === undefined || (was.unit === definition.unit && was.window === definition.window)) return [];
        return [{ definition, was }];
      });
      const inUse = redefined.length === 0 ? new Set<string>() : await groupsInUse(before);
      const refused = redefined.filter(
        ({ definition }) => !definition.reset && inUse.has(budgetGroup(definition.budget)),
      );
      if (refused.length > 0) {
        return {
          kind: 'budget_redefined',
          budgets: refused.map(({ definition, was }) => ({
            budget: definition.budget,
            was: `${was.unit} per ${was.window}`,
            is: `${definition.unit} per ${definition.window}`,
          })),
        };
      }
      if (redefined.length > 0)
        for (const workspace of before)
          await runner.run(workspace, (draft) => {
            for (const { definition } of redefined) draft.reset(budgetGroup(definition.budget));
            const data = { budgets: redefined.map(({ definition }) => definition.budget), policy_version: version };
            appendEvents(draft, [{ kind: 'budget.reset', effectId: null, actor: change?.by ?? GATEWAY, data }]);
          });
      const { result } = await runner.run(INSTALLATION, (draft): PolicyActivation => {
        if (isProposalOver(draft, change)) return { kind: 'proposal_over' };
        const meanwhile = supersededBy(draft, version, change);
        if (meanwhile !== null) return { kind: 'superseded', version: meanwhile };
        const there = definitionRows.get(draft, ONLY) ?? {};
        const next = Object.fromEntries([
          ...Object.entries(there),
          ...budgets.map(({ budget, unit, window }) => [budget, { unit, window }] as const),
        ]);
        if (JSON.stringify(next) !== JSON.stringify(there)) definitionRows.put(draft, ONLY, next);
        putInForce(draft, version, change);
        return { kind: 'active', version };
      });
      // Workspaces that were entered meanwhile may have got the previous policy.
      for (const workspace of await workspaces()) await bring(workspace);
      if (change !== null) await dropOldest();
      return result;
    },
  };
}

/** Newest first; also what is over, as long as there is room. */
export const proposalRows = repository(jsonKind<readonly PolicyProposal[]>('policy_proposals', () => []));

const MOST_KEPT = 20;
const MOST_OPEN = 10;

const proposalsOf = (draft: Draft): readonly PolicyProposal[] => proposalRows.get(draft, ONLY) ?? [];

function isOpenProposal(draft: Draft, proposal: PolicyProposal): boolean {
  return proposalStatus(proposal, draft.now, policyRows.get(draft, ONLY)) === 'open';
}

/** Whether a proposal is as somebody has read it, and open. */
function isAsRead(draft: Draft, id: string, seal: string): boolean {
  return proposalsOf(draft).some((one) => one.id === id && one.seal === seal && isOpenProposal(draft, one));
}

/** What the step of {@link PolicyStore.putPolicyProposal} does. What is in the files now takes the place of what was. */
function putProposal(draft: Draft, { proposal, before, actor }: Omit<AskedOf<'putPolicyProposal'>, 'bundle'>) {
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
function endProposals(
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
function endConfirmed(draft: Draft, confirmed: PolicyProposal, by: LedgerActor): void {
  const ended = { at: draft.now, as: 'confirmed', by } as const;
  proposalRows.put(
    draft,
    ONLY,
    proposalsOf(draft).map((one) => (one.id === confirmed.id ? { ...confirmed, ended } : one)),
  );
  const data = { ...proposalEventData(confirmed), complete: true };
  appendEvents(draft, [{ kind: 'policy.confirmed', effectId: null, actor: by, data }]);
}
