import { describe, expect, it } from 'vitest';
import type { SettleOutcome } from '../../src/effects/store.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  approvalBy,
  committed,
  dispatched,
  FAILED,
  leaseOf,
  permit,
  PERSON,
  resolveRequest,
  settleRequest,
  UNKNOWN,
  WORKSPACE,
} from './requests.ts';

const IDEMPOTENT = { idempotencyKey: 'k', times: { idempotentForMs: 3_600_000 } };

export function describeSettlement(open: OpenStore, capabilities: Capabilities): void {
  describe('settlement', () => {
    const at = useStore(open, capabilities);

    it('stores the outcome, the receipt and the stages in one step', async () => {
      const { effect } = await dispatched(at.store);
      const settlement = await at.store.settle(settleRequest(effect, committed('a.b.c', 'rcp_1')));
      expect(settlement).toEqual({ kind: 'settled' });
      const settled = await at.store.effect(WORKSPACE, effect.id);
      expect(settled).toMatchObject({
        life: { state: 'committed', receipt: { id: 'rcp_1', jws: 'a.b.c' }, result: { status: 201 } },
      });
      expect(settled?.stages).toHaveLength(effect.stages.length + 1);
      expect(await at.store.receipt(WORKSPACE, effect.id)).toEqual({ id: 'rcp_1', jws: 'a.b.c' });
    });

    it.each([
      ['nonce', { nonce: 'another owner' }],
      ['attempt', { n: 2 }],
      ['epoch', { epoch: 99 }],
    ])('refuses a settlement whose fence has another %s, and changes nothing', async (_, difference) => {
      const { effect } = await dispatched(at.store);
      const fence = { ...leaseOf(effect).fence, ...difference };
      const settlement = await at.store.settle(settleRequest(effect, committed(), { fence }));
      expect(settlement.kind).toBe('refused');
      expect(await at.store.effect(WORKSPACE, effect.id)).toEqual(effect);
      expect(await at.store.receipt(WORKSPACE, effect.id)).toBeNull();
    });

    it('takes the same settlement twice as one', async () => {
      const { effect } = await dispatched(at.store);
      const request = settleRequest(effect, committed());
      const first = await at.store.settle(request);
      const events = await at.store.effectLedger(WORKSPACE, effect.id);
      expect(await at.store.settle(request)).toMatchObject({ kind: 'settled' });
      expect(first.kind).toBe('settled');
      expect(await at.store.effectLedger(WORKSPACE, effect.id)).toEqual(events);
    });

    it('keeps the first receipt when another is offered for the same attempt', async () => {
      const { effect } = await dispatched(at.store);
      await at.store.settle(settleRequest(effect, committed('first.receipt.bytes')));
      const second = await at.store.settle(settleRequest(effect, committed('second.receipt.bytes')));
      expect(second.kind).toBe('refused');
      expect(await at.store.receipt(WORKSPACE, effect.id)).toMatchObject({ jws: 'first.receipt.bytes' });
    });

    it('lets exactly one of two racing settlements win', async () => {
      const { effect } = await dispatched(at.store);
      const answers = await Promise.all([
        at.store.settle(settleRequest(effect, committed('one.receipt'))),
        at.store.settle(settleRequest(effect, committed('other.receipt'))),
      ]);
      expect(answers.map(({ kind }) => kind).sort()).toEqual(['refused', 'settled']);
    });

    it('says so when there is no such effect', async () => {
      const { effect } = await dispatched(at.store);
      const settlement = await at.store.settle(settleRequest(effect, FAILED, { effectId: 'eff_none' }));
      expect(settlement).toEqual({ kind: 'absent' });
      expect(await at.store.settle(settleRequest(effect, FAILED, { workspace: 'other' }))).toEqual({ kind: 'absent' });
    });

    it('takes late evidence that a failed attempt happened, while nobody has acted on the failure', async () => {
      const { effect } = await dispatched(at.store);
      await at.store.settle(settleRequest(effect, FAILED));
      await at.store.settle(settleRequest(effect, committed('late.receipt')));
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({
        life: { state: 'committed', settledBy: { by: 'late_answer' }, receipt: { jws: 'late.receipt' } },
      });
    });

    it('closes the key when late evidence contradicts a newer attempt', async () => {
      const first = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(first.effect, FAILED));
      const second = await dispatched(at.store, { idempotencyKey: 'k' });
      const late = await at.store.settle(settleRequest(first.effect, committed()));
      expect(late).toMatchObject({ kind: 'refused', contradiction: true, effect: { closed: true } });
      await at.store.settle(settleRequest(second.effect, FAILED));
      const more = await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
      expect(more).toMatchObject({ kind: 'refused', decision: 'denied_policy', reason: { code: 'key_closed' } });
      const { evidence } = settleRequest(first.effect, FAILED);
      expect(
        (await at.store.effectLedger(WORKSPACE, first.effect.id)).map(({ kind, data }) => [kind, data]),
      ).toContainEqual([
        'effect.contradiction',
        { state: 'executing', said: 'committed', attempt: 1, current_attempt: 2, evidence: evidence.message },
      ]);
    });

    it('never lets certainty fall: after an unknown attempt, a failed one is unknown', async () => {
      const first = await dispatched(at.store, IDEMPOTENT);
      await at.store.settle(settleRequest(first.effect, UNKNOWN));
      const second = await dispatched(at.store, IDEMPOTENT);
      await at.store.settle(settleRequest(second.effect, FAILED));
      expect(await at.store.effect(WORKSPACE, first.effect.id)).toMatchObject({ life: { state: 'unknown' } });
      // The ledger says both: what the attempt came to, and as what the effect is on record.
      const failed = (await at.store.effectLedger(WORKSPACE, first.effect.id)).filter(
        ({ kind }) => kind === 'execution.failed',
      );
      expect(failed).toMatchObject([{ data: { attempt: 2, recorded_as: 'unknown' } }]);
    });

    it('takes an answer to the second attempt as evidence for the effect', async () => {
      const first = await dispatched(at.store, IDEMPOTENT);
      await at.store.settle(settleRequest(first.effect, UNKNOWN));
      const second = await dispatched(at.store, IDEMPOTENT);
      await at.store.settle(settleRequest(second.effect, committed('second.attempt')));
      expect(await at.store.receipt(WORKSPACE, first.effect.id)).toMatchObject({ jws: 'second.attempt' });
    });

    const DRIFTED: SettleOutcome = {
      kind: 'denied',
      decision: 'denied_claim',
      reason: { code: 'state_drift', message: 'The payment has changed.' },
      mismatches: [{ field: 'status', assumed: 'open', current: 'closed' }],
    };

    it('frees the key of a first attempt that was stopped before its first byte', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, DRIFTED));
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({
        life: { state: 'denied', mismatches: [{ field: 'status', assumed: 'open', current: 'closed' }] },
      });
      const { effect: next } = await dispatched(at.store, { idempotencyKey: 'k', fingerprint: 'replanned' });
      expect(next.id).not.toBe(effect.id);
    });

    it.each([
      ['failed', FAILED, {}],
      ['unknown', UNKNOWN, IDEMPOTENT],
    ] as const)(
      'after a %s attempt, one that was stopped leaves the effect as it was',
      async (state, first, request) => {
        const { effect } = await dispatched(at.store, { idempotencyKey: 'k', ...request });
        await at.store.settle(settleRequest(effect, first));
        const second = await dispatched(at.store, { idempotencyKey: 'k', ...request });
        const stages = [{ stage: 'state_check', status: 'passed', startedAt: 0, durationMs: 1, detail: null }] as const;
        await at.store.settle(settleRequest(second.effect, DRIFTED, { stages }));
        expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ attempt: 2, life: { state } });
      },
    );

    at.timed('takes the owner’s late word that it was stopped, after the lease', async () => {
      const { effect } = await dispatched(at.store);
      at.advance(10_000);
      await at.store.sweep(100);
      expect(await at.store.settle(settleRequest(effect, DRIFTED))).toEqual({ kind: 'settled' });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'denied' } });
    });

    at.timed('declares an attempt lost when its lease is over, and not before', async () => {
      const { effect } = await dispatched(at.store);
      at.advance(8_999);
      expect(await at.store.sweep(100)).toMatchObject({ lost: 0 });
      at.advance(1);
      expect(await at.store.sweep(100)).toMatchObject({ lost: 1 });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({
        life: { state: 'unknown', evidence: { code: 'lease_over' } },
      });
      expect(await at.store.sweep(100)).toMatchObject({ lost: 0 });
    });

    at.timed('takes the owner’s late answer after the lease', async () => {
      const { effect } = await dispatched(at.store);
      at.advance(10_000);
      await at.store.sweep(100);
      expect(await at.store.settle(settleRequest(effect, committed()))).toEqual({ kind: 'settled' });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { settledBy: { by: 'late_answer' } } });
    });

    it('gives the receipt back byte for byte after a restart', async () => {
      const jws = `eyJ.${'é漢😀"\\/\u2028'.repeat(40)}.sig`;
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, committed(jws, 'rcp_1')));
      const before = await at.store.effect(WORKSPACE, effect.id);
      await at.reopen();
      expect(await at.store.receipt(WORKSPACE, effect.id)).toEqual({ id: 'rcp_1', jws });
      expect(await at.store.effect(WORKSPACE, effect.id)).toEqual(before);
      const again = await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
      expect(again).toMatchObject({ kind: 'existing', effect: { life: { receipt: { jws } } } });
    });
  });

  describe('resolution', () => {
    const at = useStore(open, capabilities);

    async function unknownEffect() {
      const { effect } = await dispatched(at.store);
      const settlement = await at.store.settle(settleRequest(effect, UNKNOWN));
      const settled = await at.store.effect(WORKSPACE, effect.id);
      if (settlement.kind !== 'settled' || settled === null) throw new Error(settlement.kind);
      return settled;
    }

    it('takes “happened” at any time, with the receipt signed before', async () => {
      const effect = await unknownEffect();
      const resolution = await at.store.resolve(resolveRequest(effect, 'happened'));
      expect(resolution).toMatchObject({ kind: 'resolved', effect: { life: { state: 'committed' } } });
      expect(await at.store.receipt(WORKSPACE, effect.id)).toMatchObject({ jws: 'jws.resolved' });
    });

    it('says in the record and in the ledger who settled it, and how', async () => {
      const [by, probed] = [await unknownEffect(), await unknownEffect()];
      const happened = resolveRequest(by, 'happened');
      await at.store.resolve(happened);
      const settledBy = { by: 'probe', evidence: { status: 'absent' } } as const;
      await at.store.resolve(resolveRequest(probed, 'not_happened', { settledBy, force: true }));
      const story = async (id: string) =>
        (await at.store.effectLedger(WORKSPACE, id)).slice(3).map(({ kind, actor, data }) => ({ kind, actor, data }));
      const receiptId = happened.outcome.kind === 'happened' ? happened.outcome.receipt.id : '';
      expect(await story(by.id)).toEqual([
        {
          kind: 'effect.resolved',
          actor: PERSON,
          data: { attempt: 1, outcome: 'happened', forced: false, comment: null, evidence: null },
        },
        { kind: 'receipt.issued', actor: PERSON, data: { receipt_id: receiptId } },
      ]);
      expect(await story(probed.id)).toEqual([
        {
          kind: 'effect.reconciled',
          actor: PERSON,
          data: { attempt: 1, outcome: 'not_happened', evidence: settledBy.evidence },
        },
      ]);
      const evidenceOf = async (id: string) => {
        const life = (await at.store.effect(WORKSPACE, id))?.life;
        return life?.state === 'committed' || life?.state === 'failed' ? life.evidence : null;
      };
      expect(await evidenceOf(by.id)).toMatchObject({
        code: 'declared',
        message: 'It was established that the action happened.',
      });
      expect(await evidenceOf(probed.id)).toMatchObject({
        code: 'declared',
        message: 'It was established that the action did not happen.',
      });
    });

    it('resolves no call that was refused or waits, and none that is settled by its owner’s failure', async () => {
      const failed = await dispatched(at.store);
      await at.store.settle(settleRequest(failed.effect, FAILED));
      const waits = await at.store.admit(admitRequest({ verdict: permit([], [approvalBy()]) }));
      if (waits.kind !== 'pending') throw new Error(waits.kind);
      for (const effectId of [failed.effect.id, waits.effect.id])
        for (const outcome of ['happened', 'not_happened'] as const)
          expect(
            await at.store.resolve(resolveRequest(failed.effect, outcome, { effectId, force: true })),
          ).toMatchObject({
            kind: 'not_unknown',
            effect: { id: effectId },
          });
    });

    it('takes the word of a probe', async () => {
      const effect = await unknownEffect();
      const settledBy = { by: 'probe', evidence: { status: 'paid' } } as const;
      const reading = { kind: 'effect.probed', effectId: effect.id, actor: { type: 'agent', id: 'bot' } } as const;
      await at.store.append(WORKSPACE, [{ ...reading, data: { attempt: 1, said: 'unknown' } }]);
      const kinds = (await at.store.effectLedger(WORKSPACE, effect.id)).map(({ kind }) => kind);
      expect(kinds.at(-1)).toBe('effect.probed');
      const resolution = await at.store.resolve(resolveRequest(effect, 'happened', { settledBy }));
      expect(resolution).toMatchObject({ kind: 'resolved', effect: { life: { state: 'committed', settledBy } } });
    });

    it('refuses “not happened” while something may still be under way', async () => {
      const effect = await unknownEffect();
      const resolution = await at.store.resolve(resolveRequest(effect, 'not_happened'));
      expect(resolution.kind).toBe('too_early');
      expect(resolution.kind === 'too_early' && resolution.retryAfterMs).toBeGreaterThan(0);
      expect(await at.store.effect(WORKSPACE, effect.id)).toEqual(effect);
    });

    at.timed('takes “not happened” from quiesce_until on', async () => {
      const effect = await unknownEffect();
      const { quiesceUntil } = leaseOf(effect);
      at.setClock(quiesceUntil - 1);
      expect(await at.store.resolve(resolveRequest(effect, 'not_happened'))).toMatchObject({
        kind: 'too_early',
        retryAfterMs: 1,
      });
      at.setClock(quiesceUntil);
      expect(await at.store.resolve(resolveRequest(effect, 'not_happened'))).toMatchObject({
        kind: 'resolved',
        effect: { life: { state: 'failed', settledBy: { by: 'resolve', user: 'maria' } } },
      });
    });

    it('takes it earlier only by force', async () => {
      const effect = await unknownEffect();
      const resolution = await at.store.resolve(resolveRequest(effect, 'not_happened', { force: true }));
      expect(resolution).toMatchObject({ kind: 'resolved', effect: { life: { state: 'failed' } } });
    });

    it('takes the same resolution twice as one, and refuses the opposite', async () => {
      const effect = await unknownEffect();
      await at.store.resolve(resolveRequest(effect, 'happened'));
      expect(await at.store.resolve(resolveRequest(effect, 'happened'))).toMatchObject({ kind: 'unchanged' });
      expect(await at.store.resolve(resolveRequest(effect, 'not_happened', { force: true }))).toMatchObject({
        kind: 'already_resolved',
      });
    });

    it('takes what a probe settled as settled: the same is said twice, and the opposite is refused', async () => {
      const effect = await unknownEffect();
      const byProbe = { settledBy: { by: 'probe', evidence: {} } } as const;
      await at.store.resolve(resolveRequest(effect, 'happened', byProbe));
      expect(await at.store.resolve(resolveRequest(effect, 'happened'))).toMatchObject({ kind: 'unchanged' });
      expect(await at.store.resolve(resolveRequest(effect, 'not_happened', { force: true }))).toMatchObject({
        kind: 'already_resolved',
      });
    });

    it('resolves only what is unknown', async () => {
      const { effect } = await dispatched(at.store);
      expect(await at.store.resolve(resolveRequest(effect, 'happened'))).toMatchObject({ kind: 'not_unknown' });
      await at.store.settle(settleRequest(effect, committed()));
      expect(await at.store.resolve(resolveRequest(effect, 'happened'))).toMatchObject({ kind: 'not_unknown' });
      expect(await at.store.resolve(resolveRequest(effect, 'happened', { effectId: 'eff_none' }))).toEqual({
        kind: 'absent',
      });
    });

    it('refuses a resolution of an attempt that another has followed', async () => {
      const first = await dispatched(at.store, IDEMPOTENT);
      await at.store.settle(settleRequest(first.effect, UNKNOWN));
      const second = await dispatched(at.store, IDEMPOTENT);
      await at.store.settle(settleRequest(second.effect, UNKNOWN));
      expect(await at.store.resolve(resolveRequest(first.effect, 'happened'))).toMatchObject({ kind: 'moved' });
    });

    it('lets the owner’s answer and a resolution race: one of them settles', async () => {
      const effect = await unknownEffect();
      const [settlement, resolution] = await Promise.all([
        at.store.settle(settleRequest(effect, committed('by.the.owner'))),
        at.store.resolve(resolveRequest(effect, 'not_happened', { force: true })),
      ]);
      expect([settlement.kind === 'settled', resolution.kind === 'resolved'].filter(Boolean)).toHaveLength(1);
    });
  });
}
