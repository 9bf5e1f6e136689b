import type { ClaimRecord } from '../effects/model/claim.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import type { LedgerDraft } from '../effects/model/ledger.ts';
import { quote } from '../json/quote.ts';
import type { Binding, StepView } from '../effects/steps/plan.ts';
import type { EventDraft } from '../stores/port.ts';
import { approvalRows, pendingOf, rejectionRows } from './approval-rows.ts';
import { versionsOf } from './control-rows.ts';
import { type Cap, countOf } from './counted.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { entityVersion } from './entity-rows.ts';
import { boundId, effectRows } from './effect-rows.ts';
import { budgetSum, rateSum } from './figures.ts';
import {
  claimById,
  claimOn,
  claimsOfAgent,
  claimsOfKey,
  poolState,
  reservationRows,
  reservationsOfKey,
} from './held-rows.ts';
import { readOwnJson } from '../json/read.ts';

/** How many effects of claims and pools a step looks at besides its own. */
const AT_ONCE = 100;

/**
 * The view of a step over its draft.
 * @param someEnded whether owners have ended and may have left running effects behind
 * @param seen is told of each effect that is looked at. It throws if that effect has to be declared lost first, because
 *   its owner has ended
 * @param reached is told of each cap that is reached. It throws if what is over has to be given back first
 */
export function viewOn(
  draft: Draft,
  { maxFreezeMs, leaseOwner }: Pick<StepView, 'maxFreezeMs' | 'leaseOwner'>,
  someEnded: boolean,
  seen: (effect: EffectRecord) => void,
  reached: (cap: string) => void,
): StepView {
  function effect(id: string): EffectRecord | null {
    const stored = effectRows.get(draft, id);
    if (stored?.kind !== 'effect') return null;
    seen(stored.effect);
    return stored.effect;
  }

  function binding(key: string): Binding | null {
    const id = boundId(draft, key);
    const stored = id === null ? null : effectRows.get(draft, id);
    if (stored === null) return null;
    if (stored.kind === 'effect') seen(stored.effect);
    return stored;
  }

  /** Looks at the effects that hold something, so that those of owners that have ended let go first. */
  function settleRunning(ids: readonly string[]): void {
    if (someEnded) for (const id of ids.slice(0, AT_ONCE)) effect(id);
  }

  function onTarget(target: string): ClaimRecord | null {
    const claim = claimOn(draft, target);
    settleRunning(claim?.runningEffects ?? []);
    return claim;
  }

  function counted({ name, limit }: Cap): number {
    const count = countOf(draft, name);
    if (count >= limit) reached(name);
    return count;
  }

  return {
    now: draft.now,
    epoch: draft.epoch,
    maxFreezeMs,
    leaseOwner,
    versions: () => versionsOf(draft),
    // The store assigns places on commit. Here the first event of a change has place 0.
    nextSeq: () => 0,
    binding: (_, key) => binding(key),
    effect: (_, id) => effect(id),
    rejection(_, fingerprint) {
      const rejection = rejectionRows.get(draft, fingerprint, MOSTLY_ABSENT);
      return rejection !== null && rejection.until > draft.now ? rejection : null;
    },
    entityVersion: (_, seen) => entityVersion(draft, seen),
    approval: (_, id) => approvalRows.get(draft, id),
    pendingApprovals: (_, agentId) => pendingOf(draft, agentId),
    claim(_, id) {
      const claim = claimById(draft, id);
      settleRunning(claim?.runningEffects ?? []);
      return claim;
    },
    claimOn: (_, target) => onTarget(target),
    claimCount: (_, agentId) => counted(claimsOfAgent(agentId)),
    claimsOfKey: (_, keyId) => counted(claimsOfKey(keyId)),
    reservation: (_, id) => reservationRows.get(draft, id),
    reservationsOf: (_, pool) => poolState(draft, pool).reservations,
    reservationsOfKey: (_, keyId) => counted(reservationsOfKey(keyId)),
    usesOf(_, pool) {
      const { uses } = poolState(draft, pool);
      settleRunning(uses.flatMap(({ effectId, until }) => (until === null ? [effectId] : [])));
      return uses;
    },
    budget: (_, budget, bucket, window) =>
      draft.figure(budgetSum({ budget, bucket, window })) ?? { spent: 0, held: 0, rows: 0 },
    budgetAsStored: (_, budget, bucket, window) => draft.figureAsStored(budgetSum({ budget, bucket, window })),
    rate: (_, id, bucket, windowMs) => draft.figure(rateSum({ id, bucket, windowMs }))?.spent ?? 0,
  };
}

/** An event of the ledger as it is stored. */
type EventText = readonly [
  kind: LedgerDraft['kind'],
  actorType: LedgerDraft['actor']['type'],
  actorId: string,
  data: LedgerDraft['data'],
];

export function appendEvents(draft: Draft, events: readonly LedgerDraft[]): void {
  for (const event of events) draft.event(eventDraft(event));
}

export function eventDraft({ kind, effectId, actor, data }: LedgerDraft): EventDraft {
  return { about: effectId, text: `["${kind}","${actor.type}",${quote(actor.id)},${JSON.stringify(data)}]` };
}

export function eventOf(about: string | null, text: string): LedgerDraft {
  // Only `eventDraft` writes the texts of the ledger.
  const [kind, type, id, data] = readOwnJson<EventText>(text);
  return { kind, effectId: about, actor: { type, id }, data };
}
