import { type Amounts, amountToPost } from '../model/answer.ts';
import type { EffectRecord, Hold } from '../model/effect.ts';
import type { Json } from '../../json/value.ts';
import type { LedgerDraft } from '../model/ledger.ts';
import { changed } from './lifecycle.ts';
import { isClaimActive } from './obligations.ts';
import type { BudgetChange, Plan, StepView } from './plan.ts';
import type { ClaimRecord } from '../model/claim.ts';

/** What to do with an effect's holds: post them as spent, give them back, or keep them while the outcome is unknown. */
export type HoldsEnd = 'post' | 'void' | 'keep';

/**
 * Releases what an effect has: claims, pool units and holds.
 * @param keepUntil an unknown effect keeps claims and units until then (ms); `null` releases at once
 * @param amounts what was really spent; absent: what was held
 */
export function release(
  view: Pick<StepView, 'now' | 'claimOn'>,
  effect: EffectRecord,
  end: HoldsEnd,
  keepUntil: number | null,
  amounts?: Amounts,
): {
  readonly effect: EffectRecord;
  readonly plan: Omit<Plan<unknown>, 'reply' | 'effects' | 'events'>;
  readonly events: readonly LedgerDraft[];
} {
  const claims: ClaimRecord[] = [];
  const claimsGone: string[] = [];
  for (const target of effect.claims) {
    const claim = view.claimOn(effect.workspace, target);
    if (claim === null || !claim.runningEffects.includes(effect.id)) continue;
    const left: ClaimRecord = {
      ...claim,
      runningEffects: claim.runningEffects.filter((id) => id !== effect.id),
      extendedUntil: Math.max(claim.extendedUntil, keepUntil ?? 0),
    };
    if (isClaimActive(left, view.now)) claims.push(left);
    else claimsGone.push(target);
  }
  const uses =
    keepUntil === null
      ? []
      : effect.uses.map((use) => ({ ...use, effectId: effect.id, agentId: effect.actor.agentId, until: keepUntil }));
  const money = endHolds(effect, end, amounts);
  return {
    effect: changed(effect, { holdState: money.holdState, claims: [], uses: keepUntil === null ? [] : effect.uses }),
    plan: { budgets: money.changes, claims, claimsGone, usesGone: effect.id, uses },
    events: money.events,
  };
}

function endHolds(
  effect: EffectRecord,
  end: HoldsEnd,
  amounts: Amounts | undefined,
): {
  readonly holdState: EffectRecord['holdState'];
  readonly changes: readonly BudgetChange[];
  readonly events: readonly LedgerDraft[];
} {
  const { holds, holdState } = effect;
  const nothing = { holdState, changes: [], events: [] };
  const gateway = { type: 'gateway', id: 'budget' } as const;
  switch (end) {
    case 'keep':
      return nothing;
    case 'void':
      if (holdState !== 'held') return nothing;
      return {
        holdState: 'voided',
        changes: holds.map((hold) => budgetChange(hold, -hold.amount, 0)),
        events: [{ kind: 'budget.voided', effectId: effect.id, actor: gateway, data: { holds: holdsToWire(holds) } }],
      };
    case 'post': {
      if (holdState !== 'held' && holdState !== 'voided') return nothing;
      // Voided holds are posted too, if late evidence shows that the action happened.
      const isHeld = holdState === 'held';
      const draft = (kind: LedgerDraft['kind'], data: LedgerDraft['data']): LedgerDraft => ({
        kind,
        effectId: effect.id,
        actor: gateway,
        data,
      });
      const over = holds.flatMap((hold) => {
        const amount = amountToPost(hold, amounts) - (isHeld ? hold.amount : 0);
        return amount > 0 || !isHeld ? [{ ...hold, amount }] : [];
      });
      return {
        holdState: 'posted',
        changes: holds.map((hold) => budgetChange(hold, isHeld ? -hold.amount : 0, amountToPost(hold, amounts))),
        events: [
          ...(isHeld
            ? [draft('budget.posted', { holds: postedToWire(holds, amounts), ...missingMember(holds, amounts) })]
            : []),
          ...(over.length > 0 ? [draft('budget.overdraft', { holds: holdsToWire(over) })] : []),
        ],
      };
    }
  }
}

/** The holds, and what of each is spent. What goes beyond a hold is an overdraft, with an event of its own. */
function postedToWire(holds: readonly Hold[], amounts: Amounts | undefined): Json {
  return holds.map((hold) => {
    const { budget, unit, bucket, window, amount } = hold;
    const posted = Math.min(amount, amountToPost(hold, amounts));
    return { budget, unit, bucket, window, amount, ...(posted === amount ? {} : { posted }) };
  });
}

/** Units of which the answer should have said what was spent, and did not. */
function missingMember(holds: readonly Hold[], amounts: Amounts | undefined): { readonly actual_missing?: Json } {
  const missing = new Set(holds.map(({ unit }) => unit).filter((unit) => amounts?.[unit] === null));
  return missing.size === 0 ? {} : { actual_missing: [...missing] };
}

function budgetChange({ budget, unit, bucket, window }: Hold, hold: number, spend: number): BudgetChange {
  return { budget, unit, bucket, window, limit: null, hold, spend };
}

export function holdsToWire(holds: readonly Hold[]): Json {
  return holds.map(({ budget, unit, bucket, window, amount }) => ({ budget, unit, bucket, window, amount }));
}
