import { expect, it } from 'vitest';
import { admitStep } from '../../src/effects/steps/admission.ts';
import { emptyState, viewOf } from '../contract/map-view.ts';
import { admitRequest, approvalBy, budgetOf, permit } from '../contract/requests.ts';

const NOW = 1_750_000_000_000;
const window = (end: number) => ({ window: { kind: 'calendar', start: NOW - 1_000, end } as const });

it('a plan that holds in calendar windows is valid until the first of them ends, and not after', () => {
  const hour = budgetOf(100, 1, { budget: 'hour', ...window(NOW + 3_000) });
  const day = budgetOf(100, 1, { budget: 'day', ...window(NOW + 9_000) });
  const rolling = budgetOf(100, 1, { budget: 'rolling' });
  const until = (...of: Parameters<typeof permit>) => {
    const view = viewOf(emptyState({ policy: '', pauses: 0 }), NOW);
    return admitStep(view, admitRequest({ verdict: permit(...of) })).validUntil;
  };
  expect(until([day, hour, rolling])).toBe(NOW + 3_000);
  expect(until([day, rolling], [approvalBy()])).toBe(NOW + 9_000);
  expect(until([rolling])).toBeUndefined();
});
