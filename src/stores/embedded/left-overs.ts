import type { ClaimRecord } from '../../effects/controls.ts';
import type { EffectRecord } from '../../effects/effect.ts';
import type { Plan, StepView } from '../../effects/plan.ts';
import type { EffectFilter, Page } from '../../effects/store.ts';
import { loseLeaseStep } from '../../effects/sweep.ts';
import type { EffectsTable } from './effects-table.ts';
import type { HoldingsTable } from './holdings-table.ts';

/**
 * Left-overs that a step declares at most beside the effect that it is about: bounds how long its neighbours wait.
 * Claims and units of those beyond stay taken until their turn comes.
 */
const AT_ONCE = 100;

/**
 * Effects that an earlier boot left executing. Their owners are dead, so they are unknown from the first answer on:
 * whoever comes upon one declares it in the same transaction, and the sweep declares the rest bit by bit.
 */
export interface LeftOvers {
  /** The store as steps see it: no left-over among what executes. */
  readonly view: StepView;
  /**
   * What executes and was admitted before `bootedAt` (ms) is left over.
   * @param unwatchedMs what the clock says has gone by since the store was last written. Somebody may have set it: this
   * time does not count for what was under way
   */
  recover(bootedAt: number, unwatchedMs: number): void;
  /** Declares some. @returns how many; fewer than `limit`: none is left */
  declare(limit: number): number;
  page(workspace: string, filter: EffectFilter): Page<EffectRecord>;
  /** Active claims. */
  claims(workspace: string): readonly ClaimRecord[];
  /** The transaction was rolled back: what it declared is left over again. */
  forget(): void;
}

/**
 * @param recorded what is on record, left-overs included
 * @param apply writes the plan of a step within the transaction under way
 */
export function openLeftOvers(
  effects: EffectsTable,
  holdings: HoldingsTable,
  recorded: StepView,
  apply: (workspace: string, plan: Plan<EffectRecord>) => EffectRecord,
): LeftOvers {
  let bootedAt: number | null = null;
  /** `null` where none is left. */
  let before: number | null = null;
  let unwatched = 0;

  function declared(effect: EffectRecord): EffectRecord {
    if (before === null || effect.life.state !== 'executing' || effect.life.lease.admittedAt >= before) return effect;
    const { lease } = effect.life;
    // Its owner sent nothing after this boot; of a restart before it, which left it undeclared, nothing is known here.
    const quiet = before + unwatched + lease.quiesceUntil - lease.leaseEnd;
    const quiesceUntil = Math.max(lease.quiesceUntil + unwatched, quiet);
    const life = { ...effect.life, lease: { ...lease, quiesceUntil } };
    const plan = loseLeaseStep(recorded, { ...effect, life }, true);
    return plan === null ? effect : apply(effect.workspace, plan);
  }

  function effect(workspace: string, id: string): EffectRecord | null {
    const found = effects.effect(workspace, id);
    return found === null ? null : declared(found);
  }

  /** Reads what effects hold, again where some of those that run had been left over. */
  function holding<T>(workspace: string, read: () => T, running: (found: T) => readonly string[]): T {
    const found = read();
    if (before === null) return found;
    const ids = running(found).slice(0, AT_ONCE);
    for (const id of ids) effect(workspace, id);
    return ids.length === 0 ? found : read();
  }

  const ofClaim = (claim: ClaimRecord | null): readonly string[] => claim?.runningEffects ?? [];
  const ofClaims = (claims: readonly ClaimRecord[]): readonly string[] => claims.flatMap(ofClaim);

  const view: StepView = {
    get now() {
      return recorded.now;
    },
    get epoch() {
      return recorded.epoch;
    },
    maxFreezeMs: recorded.maxFreezeMs,
    versions: recorded.versions,
    nextSeq: recorded.nextSeq,
    binding(workspace, key) {
      const found = recorded.binding(workspace, key);
      return found?.kind === 'effect' ? { kind: 'effect', effect: declared(found.effect) } : found;
    },
    effect,
    rejection: recorded.rejection,
    approval: recorded.approval,
    pendingApprovals: recorded.pendingApprovals,
    claim: (workspace, id) => holding(workspace, () => recorded.claim(workspace, id), ofClaim),
    claimOn: (workspace, target) => holding(workspace, () => recorded.claimOn(workspace, target), ofClaim),
    claimCount(workspace, agentId) {
      if (before !== null) holding(workspace, () => holdings.runningClaims(workspace, agentId, AT_ONCE), ofClaims);
      return recorded.claimCount(workspace, agentId);
    },
    claimsOfKey: recorded.claimsOfKey,
    reservation: recorded.reservation,
    reservationsOf: recorded.reservationsOf,
    reservationsOfKey: recorded.reservationsOfKey,
    usesOf: (workspace, pool) =>
      holding(
        workspace,
        () => recorded.usesOf(workspace, pool),
        (uses) => uses.flatMap(({ effectId, until }) => (until === null ? [effectId] : [])),
      ),
    budget: recorded.budget,
    rate: recorded.rate,
  };

  return {
    view,
    recover(at, unwatchedMs) {
      unwatched = unwatchedMs;
      bootedAt = at;
      before = at;
    },
    declare(limit) {
      if (before === null) return 0;
      const found = effects.admittedBefore(before, limit);
      for (const { workspace, id } of found) {
        effects.endStep();
        effect(workspace, id);
      }
      if (found.length === 0) before = null;
      return found.length;
    },
    page(workspace, filter) {
      const page = effects.page(workspace, filter, before);
      if (before === null) return page;
      return { ...page, items: page.items.map((item) => effect(workspace, item.id) ?? item) };
    },
    claims: (workspace) => holding(workspace, () => holdings.claims(workspace, recorded.now), ofClaims),
    forget() {
      before = bootedAt;
    },
  };
}
