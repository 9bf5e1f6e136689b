import { describe, expect, test } from 'vitest';
import { shownBudgets } from '../../src/effects/run/to-outcome.ts';
import { budgetToWire } from '../../src/effects/run/render.ts';
import { budgetOf, permit } from '../contract/requests.ts';

const ROW = {
  budget: 'payments/daily',
  unit: 'EUR-cent',
  bucket: '["support-bot"]',
  window: '2026-06-15',
  limit: 100,
  spent: 0,
  held: 0,
  resetsAt: null,
};

function levelOf(used: { spent: number; held: number; limit?: number }, warnAt: number | null): unknown {
  const obligation = budgetOf(100, 1, warnAt === null ? {} : { warnAt });
  const [shown] = shownBudgets([{ ...ROW, ...used }], permit([obligation]));
  if (shown === undefined) throw new Error('no budget');
  return budgetToWire(shown, false)['level'];
}

describe('the level of a budget', () => {
  test.each([
    [{ spent: 0, held: 0 }, null, 'ok'],
    [{ spent: 79, held: 0 }, null, 'ok'],
    [{ spent: 60, held: 20 }, null, 'low'],
    [{ spent: 49, held: 0 }, 50, 'ok'],
    [{ spent: 50, held: 0 }, 50, 'low'],
    [{ spent: 99, held: 0 }, 100, 'ok'],
    [{ spent: 90, held: 10 }, 100, 'exhausted'],
    [{ spent: 120, held: 0 }, 50, 'exhausted'],
    [{ spent: 0, held: 0, limit: 0 }, null, 'exhausted'],
  ])('%j, warn_at %s: %s', (used, warnAt, level) => {
    expect(levelOf(used, warnAt)).toBe(level);
  });

  test('is all that an agent sees of a budget that it shares', () => {
    const obligation = budgetOf(100, 1, { sharing: 'shared', warnAt: 10 });
    const [shown] = shownBudgets([{ ...ROW, spent: 10 }], permit([obligation]));
    if (shown === undefined) throw new Error('no budget');
    expect(budgetToWire(shown, true)).toEqual({
      budget: 'payments/daily',
      unit: 'EUR-cent',
      level: 'low',
      resets_at: null,
    });
  });
});
