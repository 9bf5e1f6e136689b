import { describe, expect, it } from 'vitest';
import type { ClaimRecord } from '../../src/effects/model/claim.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { type HoldsEnd, release } from '../../src/effects/steps/give-back.ts';
import { EFFECT } from './records.ts';

const LIFE: EffectRecord['life'] = { state: 'rejected', at: 0, approvalId: 'apr_1', until: 0 };
const HOLD = { budget: 'refunds', unit: 'EUR', bucket: 'bot', window: 'r:3600000', amount: 30 };
const NOW = 1000;

/** What an effect with a hold of 30 EUR gives back. */
function ended(
  end: HoldsEnd,
  holdState: EffectRecord['holdState'],
  amounts?: Readonly<Record<string, number | null>>,
  holds = [HOLD],
) {
  const effect = { ...EFFECT, life: LIFE, holds, holdState };
  const { plan, events, effect: after } = release({ now: NOW, claimOn: () => null }, effect, end, null, amounts);
  return { holdState: after.holdState, budgets: plan.budgets, events };
}

/** The change of the budget's row. */
const change = (hold: number, spend: number) => {
  const { amount: _, ...row } = HOLD;
  return [{ ...row, limit: null, hold, spend }];
};

describe('what is held of a budget', () => {
  it('is given back once', () => {
    expect(ended('void', 'held')).toMatchObject({ holdState: 'voided', budgets: change(-30, 0) });
    for (const state of ['voided', 'posted', 'none'] as const)
      expect(ended('void', state)).toEqual({ holdState: state, budgets: [], events: [] });
  });

  it('is spent once, also after it was given back: then all of it is an overdraft', () => {
    const posted = ended('post', 'held');
    expect(posted).toMatchObject({ holdState: 'posted', budgets: change(-30, 30) });
    expect(posted.events.map(({ kind, data }) => [kind, data])).toEqual([['budget.posted', { holds: [HOLD] }]]);
    const late = ended('post', 'voided');
    expect(late).toMatchObject({ holdState: 'posted', budgets: change(0, 30) });
    expect(late.events.map(({ kind, data }) => [kind, data])).toEqual([['budget.overdraft', { holds: [HOLD] }]]);
    for (const state of ['posted', 'none'] as const)
      expect(ended('post', state)).toEqual({ holdState: state, budgets: [], events: [] });
  });

  it('is posted with what was spent; only what is more than was held is an overdraft', () => {
    const less = ended('post', 'held', { EUR: 12 });
    expect(less.budgets).toEqual(change(-30, 12));
    expect(less.events.map(({ kind, data }) => [kind, data])).toEqual([
      ['budget.posted', { holds: [{ ...HOLD, posted: 12 }] }],
    ]);
    const more = ended('post', 'held', { EUR: 45 });
    expect(more.budgets).toEqual(change(-30, 45));
    expect(more.events.map(({ kind, data }) => [kind, data])).toEqual([
      ['budget.posted', { holds: [HOLD] }],
      ['budget.overdraft', { holds: [{ ...HOLD, amount: 15 }] }],
    ]);
  });

  it('is posted whole where the answer does not say what was spent, which its event says, once for each unit', () => {
    const two = [HOLD, { ...HOLD, budget: 'all-refunds' }, { ...HOLD, unit: 'calls', amount: 1 }];
    const { budgets, events } = ended('post', 'held', { EUR: null, calls: 1 }, two);
    expect(budgets?.map(({ hold, spend }) => [hold, spend])).toEqual([
      [-30, 30],
      [-30, 30],
      [-1, 1],
    ]);
    expect(events.map(({ data }) => data['actual_missing'])).toEqual([['EUR']]);
    expect(ended('post', 'held').events[0]?.data).not.toHaveProperty('actual_missing');
  });

  it('stays held as long as the outcome is not known', () => {
    expect(ended('keep', 'held')).toEqual({ holdState: 'held', budgets: [], events: [] });
  });
});

describe('what an unknown effect keeps until it is quiet', () => {
  const USE = { pool: 'workers', units: 2 };
  const CLAIM: ClaimRecord = {
    id: 'clm_1',
    workspace: 'demo',
    target: 'x:1',
    agentId: 'bot',
    createdAt: 0,
    expiresAt: 0,
    runningEffects: [EFFECT.id],
    extendedUntil: 0,
  };
  const kept = (claim: ClaimRecord, keepUntil: number | null) =>
    release(
      { now: NOW, claimOn: () => claim },
      { ...EFFECT, life: LIFE, claims: ['x:1'], uses: [USE] },
      keepUntil === null ? 'void' : 'keep',
      keepUntil,
    );

  it('its units of a pool, in the name of its agent', () => {
    const { plan, effect } = kept(CLAIM, 5000);
    expect(plan.uses).toEqual([{ ...USE, effectId: EFFECT.id, agentId: 'bot', until: 5000 }]);
    expect(plan.usesGone).toBe(EFFECT.id);
    expect(effect.uses).toEqual([USE]);
    expect(kept(CLAIM, null)).toMatchObject({ plan: { uses: [] }, effect: { uses: [], claims: [] } });
  });

  it('its claim, unless it lasts longer already', () => {
    expect(kept(CLAIM, 5000).plan.claims).toEqual([{ ...CLAIM, runningEffects: [], extendedUntil: 5000 }]);
    expect(kept({ ...CLAIM, extendedUntil: 9000 }, 5000).plan.claims).toMatchObject([{ extendedUntil: 9000 }]);
    expect(kept(CLAIM, null).plan).toMatchObject({ claims: [], claimsGone: ['x:1'] });
  });

  it('a claim that others run under, or that was asked for, stays theirs', () => {
    const shared = { ...CLAIM, runningEffects: [EFFECT.id, 'eff_2'] };
    expect(kept(shared, null).plan.claims).toMatchObject([{ runningEffects: ['eff_2'] }]);
    expect(kept({ ...CLAIM, expiresAt: NOW + 1 }, null).plan).toMatchObject({ claimsGone: [], claims: [{}] });
    expect(kept({ ...CLAIM, runningEffects: ['eff_2'] }, null).plan).toMatchObject({ claims: [], claimsGone: [] });
  });
});
