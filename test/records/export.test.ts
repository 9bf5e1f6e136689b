import { expect, it } from 'vitest';
import { effectRows } from '../../src/records/effect-rows.ts';
import { readProgram } from '../../src/records/export.ts';
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
  expect(head).toEqual({ next: null, left: [], counts: { events: 0, effects: 0, receipts: 2 } });
  expect(lines.map(({ receipt_id: id, jws }) => [id, jws])).toEqual([
    ['rcp_before', null],
    ['rcp_now', 'e30.e30.e30'],
  ]);
});
