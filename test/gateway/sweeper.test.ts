import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { retentionNotes, Sweeper } from '../../src/gateway/sweeper.ts';
import { settlementTexts } from '../../src/records/settlement-text.ts';
import { openSpillJournal } from '../../src/stores/journal/spill.ts';
import type { EffectPorts } from '../../src/effects/ports.ts';
import { refund, type Rig, startRig } from '../api/rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

it('a settlement that cannot be read keeps nothing else from its turn, and is told of', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-sweep-'));
  writeFileSync(join(folder, '0.settlement.json'), '{"half');
  const told: string[] = [];
  let swept: () => void = () => undefined;
  const sweeping = new Promise<void>((resolve) => {
    swept = resolve;
  });
  const store = {
    ...rig.core.store,
    async sweep(limit: number) {
      const report = await rig.core.store.sweep(limit);
      swept();
      return report;
    },
  };
  const sweeper = new Sweeper(
    { ...rig.core, store },
    rig.people,
    await openSpillJournal(folder, settlementTexts),
    5,
    (error) => told.push(String(error)),
  );
  await sweeping;
  await sweeper.stop();
  expect(told[0]).toContain('0.settlement.json');
  rmSync(folder, { recursive: true });
});

const NO_SPILL = { write: async () => undefined, drain: async () => 0 };

it('told to stop while it sweeps, it ends with that round, and not with the next', async () => {
  let end: () => void = () => undefined;
  const held = new Promise<void>((resolve) => {
    end = resolve;
  });
  let isSweeping = false;
  const store = {
    ...rig.core.store,
    async sweep(limit: number) {
      isSweeping = true;
      await held;
      return rig.core.store.sweep(limit);
    },
  };
  const sweeper = new Sweeper({ ...rig.core, store }, rig.people, NO_SPILL, 3_600_000, () => undefined);
  await expect.poll(() => isSweeping).toBe(true);
  let isOver = false;
  void sweeper.stop().then(() => {
    isOver = true;
  });
  end();
  await expect.poll(() => isOver, { timeout: 10_000 }).toBe(true);
});

/** A call that people agreed to, and whose gateway died before it sent it. */
async function leftBehind(): Promise<{ readonly effectId: string; readonly decidedAt: number }> {
  const body = refund({ params: { payment_id: 'pay_2', amount: 60_000, currency: 'EUR' } });
  const asked = await rig.send('POST', '/v1/workspaces/demo/effects', { key: rig.keys.agent, body });
  expect(asked.json['decision']).toBe('pending_approval');
  const { id } = asked.json['approval'] as unknown as { id: string };
  const voted = await rig.core.store.vote({
    workspace: 'demo',
    approvalId: id,
    digest: (await rig.core.store.approval('demo', id))?.digest ?? '',
    change: null,
    verdict: 'approve',
    user: 'maria',
    keyId: 'key_of_maria',
    voterSince: 0,
    comment: null,
    requirements: [0],
    escalated: [],
    actor: { type: 'user', id: 'maria' },
  });
  const decidedAt = voted.kind === 'counted' ? voted.approval.decidedAt : null;
  if (decidedAt === null) throw new Error(voted.kind);
  return { effectId: String(asked.json['effect_id']), decidedAt };
}

/** The gateway's ports, with a clock of the test's, a count of the rounds, and in which of them calls were tried. */
function counted(now: () => number): { readonly ports: EffectPorts; rounds: number; readonly tries: number[] } {
  const { store } = rig.core;
  const tries: number[] = [];
  const of = {
    rounds: 0,
    tries,
    ports: {
      ...rig.core,
      store: {
        ...store,
        now,
        admit: (request: Parameters<typeof store.admit>[0]) => {
          tries.push(of.rounds);
          return store.admit(request);
        },
        grantedApprovals: (limit: number) => {
          of.rounds += 1;
          return store.grantedApprovals(limit);
        },
      },
    },
  };
  return of;
}

it('a granted call is sent by the sweep once nobody else can be sending it, and not before', async () => {
  const { effectId, decidedAt } = await leftBehind();
  const stateOf = async () => (await rig.core.store.effect('demo', effectId))?.life.state;
  let later = 10;
  const of = counted(() => decidedAt + later);
  const sweeper = new Sweeper(of.ports, rig.people, NO_SPILL, 5, () => undefined);
  await expect.poll(() => of.rounds).toBeGreaterThan(3);
  expect(await stateOf()).toBe('pending_approval');
  later = 11;
  await expect.poll(stateOf).toBe('committed');
  await sweeper.stop();
});

it('a granted call that is stopped is tried less and less often, and is sent when nothing stops it', async () => {
  const { effectId, decidedAt } = await leftBehind();
  const pause = { scope: { tool: 'payments.refund' }, reason: 'stop' };
  const set = await rig.send('POST', '/v1/workspaces/demo/pauses', { body: pause });
  const of = counted(() => decidedAt + 60_000);
  const sweeper = new Sweeper(of.ports, rig.people, NO_SPILL, 5, () => undefined);
  await expect.poll(() => of.tries.length).toBe(5);
  // Between them 1, 3, 7, and then always 7 rounds.
  expect(of.tries).toEqual([1, 3, 7, 15, 23]);
  await rig.send('DELETE', `/v1/workspaces/demo/pauses/${String(set.json['id'])}`);
  await expect.poll(async () => (await rig.core.store.effect('demo', effectId))?.life.state).toBe('committed');
  await sweeper.stop();
});

it('settlements that the store did not take are handed in each round', async () => {
  let drained = 0;
  const spill = { ...NO_SPILL, drain: async () => (drained += 1) };
  const sweeper = new Sweeper(rig.core, rig.people, spill, 5, () => undefined);
  await expect.poll(() => drained).toBeGreaterThan(3);
  await sweeper.stop();
});

it('a round goes on for as long as there is as much as one step ends', async () => {
  const counts = [{ aged: 100 }, { lost: 100 }, { approvalsExpired: 100 }, { aged: 99, lost: 99 }];
  const steps: number[] = [];
  const none = { reached: null, oldestUnknown: null, archive: null };
  const nothing = { lost: 0, approvalsExpired: 0, aged: 0, unsettled: 0, ...none };
  const store = {
    ...rig.core.store,
    async sweep(limit: number) {
      steps.push(limit);
      return { ...nothing, ...counts[steps.length - 1] };
    },
  };
  // The next round would begin after the test.
  const sweeper = new Sweeper({ ...rig.core, store }, rig.people, NO_SPILL, 1e9, () => undefined);
  await expect.poll(() => sweeper.last()?.aged).toBe(99);
  await sweeper.stop();
  expect(steps).toEqual([100, 100, 100, 100]);
});

it('records that stay, outcomes that nobody settles, and a sweeper that stands still are named in /readyz', () => {
  const at = 1_760_000_000_000;
  const none = { archive: null, oldestUnknown: null };
  const report = { lost: 0, approvalsExpired: 0, aged: 0, unsettled: 0, reached: 5, ...none, at };
  expect(retentionNotes(null, at)).toEqual([]);
  expect(retentionNotes(report, at)).toEqual([]);
  const [note] = retentionNotes({ ...report, unsettled: 1_200, reached: 1_750_000_000_000 }, at);
  expect(note).toMatchObject({ part: 'retention', message: expect.stringMatching(/^1200 effects .*2025-06-15T/) });
  expect(retentionNotes(report, at + 599_999)).toEqual([]);
  expect(retentionNotes(report, at + 600_000)).toMatchObject([
    { part: 'retention', message: expect.stringMatching(/^Nothing .*2025-10-09T/) },
  ]);
  const archive = { failure: '/nfs/demo cannot be written: EROFS.', last: null };
  expect(retentionNotes({ ...report, archive }, at)).toMatchObject([
    { part: 'archive', message: expect.stringMatching(/stay in the store: \/nfs\/demo cannot be written/) },
  ]);
  expect(retentionNotes({ ...report, archive: { ...archive, failure: null } }, at)).toEqual([]);
  expect(retentionNotes({ ...report, oldestUnknown: at - 3_599_999 }, at)).toEqual([]);
  expect(retentionNotes({ ...report, oldestUnknown: at - 3_600_000 }, at)).toMatchObject([
    { part: 'unknown_outcomes', message: expect.stringContaining('2025-10-09T') },
  ]);
});
