import { expect, it } from 'vitest';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { effectRows } from '../../src/records/effect-rows.ts';
import { exportParts, readProgram } from '../../src/records/export.ts';
import { createStepRunner } from '../../src/records/runner.ts';
import { appendEvents } from '../../src/records/view.ts';
import { emptyRows, mapStore } from '../port/map-rows.ts';

it('a receipt stands after the event that names it; one that is not kept any more is not another of its effect', async () => {
  const rows = mapStore(emptyRows(), () => 1_000);
  await createStepRunner(rows).run('w', (draft) => {
    effectRows.put(draft, 'eff_1', {
      kind: 'tombstone',
      tombstone: {
        id: 'eff_1',
        workspace: 'w',
        idempotencyKey: 'k',
        fingerprint: 'f',
        agentId: 'bot',
        tool: 'a.b',
        target: 'x:1',
        attempt: 2,
        at: 1,
        outcome: { state: 'committed', receipt: { id: 'rcp_now', jws: 'e30.e30.e30' } },
      },
    });
    appendEvents(
      draft,
      ['rcp_before', 'rcp_now'].map((id) => ({
        kind: 'receipt.issued',
        effectId: 'eff_1',
        actor: { type: 'gateway', id: 'one' },
        data: { receipt_id: id },
      })),
    );
  });
  const request = {
    workspace: 'w',
    publicUrl: '',
    filter: { since: null, until: null },
    what: ['receipts'],
    form: 'json',
  };
  const answer = await readProgram(rows)(JSON.stringify([request, { of: 'events', after: 0, end: 3 }]));
  const [head, ...lines] = answer
    .trimEnd()
    .split('\n')
    .map((line): Record<string, unknown> => JSON.parse(line));
  expect(head).toEqual({
    next: null,
    left: [],
    counts: { events: 0, effects: 0, receipts: 2 },
    tookMs: expect.any(Number),
  });
  expect(lines.map(({ receipt_id: id, jws }) => [id, jws])).toEqual([
    ['rcp_before', null],
    ['rcp_now', 'e30.e30.e30'],
  ]);
});

it('the thread that makes the lines rests longer than it works, so that calls keep its core', async () => {
  const rows = mapStore(emptyRows(), () => 1_000);
  const turns = createReadingTurns();
  const counts = { events: 0, effects: 1, receipts: 0 };
  const asked: number[] = [];
  const program = async (): Promise<string> => {
    asked.push(performance.now());
    const next = asked.length < 3 ? { of: 'effects', after: { at: asked.length, id: 'eff_1' } } : null;
    return `${JSON.stringify({ next, left: [], counts, tookMs: 40 })}\n{}\n`;
  };
  const request = {
    workspace: 'w',
    publicUrl: '',
    filter: { since: null, until: null },
    what: ['effects'],
    form: 'json',
  } as const;
  const from = {
    readable: { store: rows, turns },
    program,
    hasArchive: false,
    present: async (one: EffectRecord) => one,
  };
  for await (const { text } of exportParts(from, request, () => ({ tool: null, now: 0 }))) expect(text).toBe('{}\n');
  const [first = 0, second = 0, third = 0] = asked;
  expect(asked).toHaveLength(3);
  // Timers may be a ms early.
  expect(Math.min(second - first, third - second)).toBeGreaterThan(1.4 * 40);
});
