import { expect, it } from 'vitest';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { approvalRows } from '../../src/records/approval-rows.ts';
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
  // What was written at the end of the span, or after it, is not in it.
  const within = await readProgram(rows)(JSON.stringify([request, { of: 'events', after: 0, end: 2 }]));
  expect(within).toContain('rcp_before');
  expect(within).not.toContain('rcp_now');
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

function rejected(id: string): ApprovalRecord {
  const words = { comment: `no to ${id}`, salt: 'AAAA' };
  return {
    id,
    workspace: 'w',
    effectId: `eff_${id}`,
    digest: 'd',
    tool: 'a.b',
    target: 'x:1',
    requester: { agentId: 'bot', agentOwner: null, user: null, keyId: 'key_bot', keyMadeBy: null },
    requirements: [],
    costs: [],
    votes: [{ user: 'maria', keyId: 'key_maria', verdict: 'reject', at: 1, requirements: [0], ...words }],
    status: 'rejected',
    createdAt: 1,
    expiresAt: 2,
    decidedAt: 1,
    stopped: null,
  };
}

it('what was said stands with each rejection, however many follow each other', async () => {
  const rows = mapStore(emptyRows(), () => 1_000);
  const ids = Array.from({ length: 20 }, (_, n) => `apr_${n}`);
  await createStepRunner(rows).run('w', (draft) => {
    for (const id of ids) approvalRows.put(draft, id, rejected(id));
    appendEvents(
      draft,
      ids.map((id) => ({
        kind: 'approval.rejected',
        effectId: `eff_${id}`,
        actor: { type: 'user', id: 'maria' },
        data: { approval_id: id, comment: 'sc1:x' },
      })),
    );
  });
  const request = {
    workspace: 'w',
    publicUrl: '',
    filter: { since: null, until: null },
    what: ['events'],
    form: 'json',
  };
  const answer = await readProgram(rows)(JSON.stringify([request, { of: 'events', after: 0, end: ids.length + 1 }]));
  const said = answer
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((line): unknown => JSON.parse(line).words);
  expect(said).toEqual(ids.map((id) => ({ comment: `no to ${id}`, comment_salt: 'AAAA' })));
});
