import { describe, expect, it } from 'vitest';
import { type Capabilities, DAY, type OpenStore, RETENTION, useStore } from './fixture.ts';
import {
  admitRequest,
  ANY,
  approvalBy,
  committed,
  dispatched,
  FAILED,
  permit,
  resolveRequest,
  settleRequest,
  UNKNOWN,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

export function describeRetention(open: OpenStore, capabilities: Capabilities): void {
  describe('retention', () => {
    const at = useStore(open, capabilities);

    at.timed('keeps receipt and key when the record’s time is over', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, committed('kept.receipt.bytes', 'rcp_1')));
      at.advance(RETENTION.effectsMs + 1);
      expect(await at.store.sweep(100)).toMatchObject({ aged: 1 });
      expect(await at.store.effect(WORKSPACE, effect.id)).toBeNull();
      expect((await at.store.effects(WORKSPACE, ANY)).items).toEqual([]);
      await at.reopen();
      expect(await at.store.receipt(WORKSPACE, effect.id)).toEqual({ id: 'rcp_1', jws: 'kept.receipt.bytes' });
      expect(await at.store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({
        kind: 'expired',
        tombstone: { id: effect.id, idempotencyKey: 'k', outcome: { state: 'committed' } },
      });
      expect(await at.store.admit(admitRequest({ idempotencyKey: 'k', fingerprint: 'other' }))).toMatchObject({
        decision: 'idempotency_conflict',
      });
    });

    at.timed('keeps a record for all of its time', async () => {
      const { effect } = await dispatched(at.store);
      await at.store.settle(settleRequest(effect, committed()));
      at.advance(RETENTION.effectsMs - 1);
      expect(await at.store.sweep(100)).toMatchObject({ aged: 0 });
      expect(await at.store.effect(WORKSPACE, effect.id)).not.toBeNull();
    });

    at.timed('keeps for all of its time what was settled a moment ago, however long ago it began', async () => {
      const { effect } = await dispatched(at.store);
      await at.store.settle(settleRequest(effect, UNKNOWN));
      at.advance(RETENTION.effectsMs + 1);
      await at.store.resolve(resolveRequest(effect, 'happened'));
      expect(await at.store.sweep(100)).toMatchObject({ aged: 0 });
      at.advance(RETENTION.effectsMs - 1);
      expect(await at.store.sweep(100)).toMatchObject({ aged: 0 });
      expect(await at.store.effect(WORKSPACE, effect.id)).not.toBeNull();
      at.advance(1);
      expect(await at.store.sweep(100)).toMatchObject({ aged: 1 });
    });

    at.timed('refuses what was rejected also when only a tombstone is left', async () => {
      const verdict = permit([], [approvalBy()]);
      const waiting = await at.store.admit(admitRequest({ idempotencyKey: 'k', verdict }));
      if (waiting.kind !== 'pending') throw new Error(waiting.kind);
      await at.store.vote(voteRequest(waiting.approval, { verdict: 'reject' }));
      at.advance(RETENTION.effectsMs + 1);
      await at.store.sweep(100);
      expect(await at.store.effect(WORKSPACE, waiting.effect.id)).toBeNull();
      expect(await at.store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({
        kind: 'refused',
        reason: { code: 'approval_rejected' },
      });
    });

    at.timed('forgets a request for approval with the effect that it was about', async () => {
      const asking = { idempotencyKey: 'k', verdict: permit([], [approvalBy()]) };
      const waiting = await at.store.admit(admitRequest(asking));
      if (waiting.kind !== 'pending') throw new Error(waiting.kind);
      const { id } = waiting.approval;
      await at.store.vote(voteRequest(waiting.approval));
      const { approvalDigest } = admitRequest(asking);
      const { effect } = await dispatched(at.store, { ...asking, approvalDigest });
      await at.store.settle(settleRequest(effect, committed()));
      at.advance(RETENTION.effectsMs);
      expect(await at.store.approval(WORKSPACE, id)).not.toBeNull();
      at.advance(1);
      await at.store.sweep(100);
      expect(await at.store.approval(WORKSPACE, id)).toBeNull();
    });

    at.timed('forgets the words of a rejection with the effect that it was about', async () => {
      const waiting = await at.store.admit(admitRequest({ verdict: permit([], [approvalBy()]) }));
      if (waiting.kind !== 'pending') throw new Error(waiting.kind);
      const { id } = waiting.approval;
      await at.store.vote(voteRequest(waiting.approval, { verdict: 'reject', comment: 'not to him', salt: 'a-salt' }));
      at.advance(RETENTION.effectsMs);
      expect(await at.store.approval(WORKSPACE, id)).toMatchObject({
        votes: [{ comment: 'not to him', salt: 'a-salt' }],
      });
      at.advance(1);
      await at.store.sweep(100);
      expect(await at.store.approval(WORKSPACE, id)).toBeNull();
    });

    at.timed('lets a key whose attempt failed long ago be used again', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, FAILED));
      at.advance(RETENTION.effectsMs + 1);
      await at.store.sweep(100);
      const again = await dispatched(at.store, { idempotencyKey: 'k' });
      expect(await at.store.settle(settleRequest(again.effect, committed()))).toMatchObject({ kind: 'settled' });
      expect(await at.store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({
        kind: 'existing',
        effect: { id: again.effect.id },
      });
    });

    at.timed('keeps key and receipt for all of the time of keys', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, committed('kept.receipt.bytes', 'rcp_1')));
      at.advance(RETENTION.effectsMs + 1);
      await at.store.sweep(100);
      at.advance(RETENTION.keysMs - RETENTION.effectsMs - 2);
      await at.store.sweep(100);
      expect(await at.store.receipt(WORKSPACE, effect.id)).toMatchObject({ id: 'rcp_1' });
      expect(await at.store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({ kind: 'expired' });
    });

    at.timed('forgets a key when the time of keys is over', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, committed()));
      at.advance(RETENTION.effectsMs + 1);
      await at.store.sweep(100);
      at.advance(RETENTION.keysMs);
      await at.store.sweep(100);
      expect(await at.store.receipt(WORKSPACE, effect.id)).toBeNull();
      await dispatched(at.store, { idempotencyKey: 'k', fingerprint: 'anything' });
    });

    at.timed('never forgets what is not settled', async () => {
      const running = await dispatched(at.store);
      const unknown = await dispatched(at.store);
      await at.store.settle(settleRequest(unknown.effect, UNKNOWN));
      at.advance(1_000 * DAY);
      await at.store.sweep(100);
      await at.store.sweep(100);
      for (const { effect } of [running, unknown]) {
        expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'unknown' } });
      }
    });

    at.timed('goes on behind any number of records that stay, and says how far it is', async () => {
      const open = [];
      for (let n = 0; n < 25; n += 1) open.push((await dispatched(at.store)).effect);
      for (const effect of open) await at.store.settle(settleRequest(effect, UNKNOWN));
      at.advance(1);
      const { effect } = await dispatched(at.store);
      await at.store.settle(settleRequest(effect, committed()));
      at.advance(RETENTION.effectsMs + 1);
      const oldestUnknown = open[0]?.createdAt;
      expect(await at.store.sweep(1)).toMatchObject({ aged: 0, unsettled: 10, reached: oldestUnknown, oldestUnknown });
      expect(await at.store.sweep(1)).toMatchObject({ aged: 0, unsettled: 20 });
      expect(await at.store.sweep(1)).toMatchObject({ aged: 1, unsettled: 25, reached: null });
      expect(await at.store.effect(WORKSPACE, effect.id)).toBeNull();
      // And begins anew: what was settled meanwhile goes.
      const [first] = open;
      if (first === undefined) throw new Error('there is none');
      await at.store.resolve(resolveRequest(first, 'happened'));
      at.advance(RETENTION.effectsMs + 1);
      expect(await at.store.sweep(1)).toMatchObject({ aged: 1 });
      expect(await at.store.effect(WORKSPACE, first.id)).toBeNull();
    });

    at.timed('ages as many records as one sweep may, and the rest in the next', async () => {
      for (let n = 0; n < 5; n += 1) {
        const { effect } = await dispatched(at.store);
        await at.store.settle(settleRequest(effect, committed()));
      }
      at.advance(RETENTION.effectsMs + 1);
      expect(await at.store.sweep(3)).toMatchObject({ aged: 3 });
      expect(await at.store.sweep(3)).toMatchObject({ aged: 2 });
    });

    at.timed('forgets refusals when their time is over, in as many rounds as it takes', async () => {
      const verdict = {
        kind: 'deny',
        decision: 'denied_policy',
        reason: { code: 'rule_denied', message: '-' },
        trace: permit().trace,
      } as const;
      for (let n = 0; n < 5; n += 1) await at.store.admit(admitRequest({ verdict }));
      expect((await at.store.effects(WORKSPACE, ANY)).items).toHaveLength(5);
      at.advance(RETENTION.denialsMs + 1);
      expect(await at.store.sweep(3)).toMatchObject({ aged: 3 });
      expect(await at.store.sweep(3)).toMatchObject({ aged: 2 });
      expect((await at.store.effects(WORKSPACE, ANY)).items).toEqual([]);
      expect(await at.store.ledger(WORKSPACE, 0, 10)).toHaveLength(5);
    });
  });

  describe('time and life', () => {
    const at = useStore(open, capabilities);

    at.timed('never lets time go back, not even over a restart', async () => {
      await dispatched(at.store);
      const before = at.store.now();
      at.setClock(at.now() - 3_600_000);
      expect(at.store.now()).toBeGreaterThanOrEqual(before);
      await at.reopen();
      expect(at.store.now()).toBeGreaterThanOrEqual(before);
      const { effect } = await dispatched(at.store);
      expect(effect.createdAt).toBeGreaterThanOrEqual(before);
    });

    it('is ready, and says how durable it is', () => {
      const health = at.store.health();
      expect(health).toMatchObject({ ready: true, problem: null });
      expect(health.durability).not.toBe('');
      expect(health.epoch).toBeGreaterThanOrEqual(1);
    });

    it('finishes what is under way when it is closed, and takes nothing afterwards', async () => {
      const { store } = at;
      const underWay = dispatched(store);
      await store.close();
      await expect(underWay).resolves.toMatchObject({ kind: 'dispatch' });
      await expect(store.admit(admitRequest())).rejects.toMatchObject({ name: 'StoreUnavailable' });
      await at.reopen();
      const { effect } = await underWay;
      expect(await at.store.effect(WORKSPACE, effect.id)).not.toBeNull();
    });
  });
}
