import { expect, it } from 'vitest';
import { isLate } from '../../src/effects/run/execute.ts';
import { admitStep } from '../../src/effects/steps/admission.ts';
import { emptyState, viewOf } from '../contract/map-view.ts';
import { admitRequest, leaseOf } from '../contract/requests.ts';

it('an attempt is quiet after the time that the upstream may take and the longest freeze of a gateway', () => {
  const state = emptyState({ policy: '', pauses: 0 });
  state.maxFreezeMs = 10_000;
  const now = 1_750_000_000_000;
  const times = { dispatchWindowMs: 2_000, timeoutMs: 5_000, maxProcessingMs: 60_000 };
  const { reply } = admitStep(viewOf(state, now), admitRequest({ times }));
  if (reply.kind !== 'dispatch') throw new Error(reply.kind);
  const { admittedAt, dispatchBy, leaseEnd, quiesceUntil } = leaseOf(reply.effect);
  expect([admittedAt, dispatchBy, leaseEnd, quiesceUntil].map((at) => at - now)).toEqual([0, 2_000, 9_000, 79_000]);
});

it('an attempt is too late from the moment on at which it may not be sent any more', () => {
  const lease = { admittedAt: 5_000, dispatchBy: 7_000 };
  expect([1_999.9, 2_000, 2_001].map((elapsedMs) => isLate(elapsedMs, lease))).toEqual([false, true, true]);
});
