import { describe, expect, it } from 'vitest';
import { admitStep } from '../../src/effects/admission.ts';
import type { EffectRecord } from '../../src/effects/effect.ts';
import { settleStep } from '../../src/effects/settlement.ts';
import type { Admission, AdmitRequest, SettleRequest } from '../../src/effects/store.ts';
import {
  repeatAdmission,
  repeatSettlement,
  seenByAdmission,
  seenBySettlement,
} from '../../src/stores/embedded/repeat.ts';
import { applyPlan, emptyState, viewOf } from '../contract/map-view.ts';
import {
  admitRequest,
  approvalBy,
  budgetOf,
  committed,
  FAILED,
  permit,
  rateOf,
  settleRequest,
  UNKNOWN,
} from '../contract/requests.ts';

/** What crosses between the threads, after the crossing. */
function crossed<T>(value: T): T {
  return JSON.parse(JSON.stringify(value));
}

let state = emptyState({ policy: '', pauses: 0 });
let now = 1_700_000_000_000;

function begin(): void {
  state = emptyState({ policy: '', pauses: 0 });
}

/** Admits, and says what the gateway's thread makes of what is sent to it; `null` where the answer itself is sent. */
function admit(request: AdmitRequest): { readonly reply: Admission; readonly repeated: Admission | null } {
  now += 7;
  const reply = applyPlan(state, admitStep(viewOf(state, now), request), now);
  const seen = seenByAdmission(request, reply);
  return { reply, repeated: seen === null ? null : repeatAdmission(request, crossed(seen)) };
}

function settle(request: SettleRequest, known: EffectRecord) {
  now += 7;
  const reply = applyPlan(state, settleStep(viewOf(state, now), request), now);
  const at = seenBySettlement(request, reply);
  return { reply, repeated: at === null ? null : repeatSettlement(request, known, at) };
}

function executing(request: AdmitRequest): EffectRecord {
  const { reply } = admit(request);
  if (reply.kind !== 'dispatch') throw new Error(`not admitted: ${reply.kind}`);
  return reply.effect;
}

describe('a repeated step', () => {
  it('answers an ordinary admission as the store did', () => {
    begin();
    const shared = { bucket: '[]', sharing: 'shared', budget: 'payments/team' } as const;
    const verdicts = [
      permit(),
      permit([budgetOf(10_000, 250)]),
      permit([budgetOf(10_000, 250), rateOf(50, 60_000), budgetOf(90_000, 3, shared)]),
      // Twice the same row: each is judged by what was held before the step.
      permit([budgetOf(10_000, 250), budgetOf(20_000, 250)]),
      permit([budgetOf(10_000, 0, { window: { kind: 'calendar', start: 0, end: 2_000_000_000_000 } })]),
    ];
    for (const verdict of [...verdicts, ...verdicts]) {
      const { reply, repeated } = admit(admitRequest({ verdict, metadata: { order: 42 } }));
      expect(reply.kind).toBe('dispatch');
      expect(repeated).toEqual(reply);
    }
  });

  it('answers an ordinary settlement as the store did', () => {
    begin();
    for (const outcome of [committed(), FAILED]) {
      const request = admitRequest({ verdict: permit([budgetOf(10_000, 250)]) });
      const effect = executing(request);
      const { reply, repeated } = settle(settleRequest(effect, outcome), effect);
      expect(reply.kind).toBe('settled');
      expect(repeated).toEqual(reply);
    }
  });

  it('is not made of what the gateway’s thread cannot know', () => {
    begin();
    const claimed = permit([{ kind: 'claim', rule: 'payments/claim', target: 'payment:1', hold: 'call' }]);
    const pooled = permit([{ kind: 'reserve', rule: 'gpu/reserve', pool: 'gpu', units: 1, capacity: 4 }]);
    for (const request of [
      admitRequest({ verdict: permit([], [approvalBy()]) }),
      admitRequest({ verdict: permit([budgetOf(100, 250)]) }),
      admitRequest({ verdict: claimed }),
      admitRequest({ verdict: pooled }),
      admitRequest({ verdict: { ...permit([budgetOf(100, 250)]), mode: 'observe' } }),
      admitRequest({ seen: { policy: 'of before', pauses: 0 } }),
    ]) {
      expect(admit(request).repeated).toBeNull();
    }
    const request = admitRequest();
    const effect = executing(request);
    expect(admit(request).repeated).toBeNull();
    settle(settleRequest(effect, FAILED), effect);
    const second = admit({ ...request, nonce: 'again' });
    expect(second.reply.kind).toBe('dispatch');
    expect(second.repeated).toBeNull();
  });

  it('is not made of a settlement that found another record than the executing one', () => {
    begin();
    const effect = executing(admitRequest());
    expect(settle(settleRequest(effect, UNKNOWN), effect).repeated).toBeNull();
    const late = settle(settleRequest(effect, committed()), effect);
    expect(late.reply.kind).toBe('settled');
    expect(late.repeated).toBeNull();
    const again = executing(admitRequest());
    const outcome = committed();
    settle(settleRequest(again, outcome), again);
    const same = settle(settleRequest(again, outcome, { stages: [] }), again);
    expect(same.reply.kind).toBe('settled');
    expect(same.repeated).toBeNull();
    expect(settle(settleRequest(again, FAILED), again).repeated).toBeNull();
  });
});
