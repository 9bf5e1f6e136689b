import { expect, it } from 'vitest';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import { outcomeHeaders } from '../../src/effects/run/render.ts';

it.each([
  [null, undefined],
  [0, '1'],
  [1, '1'],
  [999, '1'],
  [1_000, '1'],
  [1_001, '2'],
  [90_500, '91'],
])(
  'what is to be waited for %s ms has the header Retry-After: %s, never less than a second',
  (retryAfterMs, header) => {
    const outcome: RunOutcome = {
      decision: 'denied_budget',
      workspace: 'demo',
      effectId: 'eff_1',
      tool: 'notes.add',
      target: 'notes',
      agentId: 'bot',
      idempotencyKey: 'k',
      attempt: 0,
      reason: { code: 'rate_limited', message: 'Wait.' },
      budgets: [],
      observed: null,
      repeat: false,
      retryAfterMs,
      next: null,
      mismatches: [],
    };
    expect(outcomeHeaders(outcome)['retry-after']).toBe(header);
  },
);
