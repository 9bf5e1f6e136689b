import { describe, expect, it } from 'vitest';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  ANY,
  budgetOf,
  claimRequest,
  committed,
  dispatched,
  FAILED,
  leaseOf,
  permit,
  resolveRequest,
  settleRequest,
  WORKSPACE,
} from './requests.ts';

/**
 * Promises about effects that were executing when their gateway ended. After the restart they are unknown from the
 * first answer on, whoever asks and however, though the sweep puts them on record bit by bit.
 */
export function describeLeftOvers(open: OpenStore, capabilities: Capabilities): void {
  describe('what a restart finds executing', () => {
    const at = useStore(open, capabilities);

    const kinds = async (id: string): Promise<readonly string[]> =>
      (await at.store.effectLedger(WORKSPACE, id)).map(({ kind }) => kind);
    const idsOf = async (filter: Partial<typeof ANY>): Promise<readonly string[]> =>
      (await at.store.effects(WORKSPACE, { ...ANY, ...filter })).items.map(({ id }) => id);

    it('is read as unknown', async () => {
      const { effect } = await dispatched(at.store);
      await at.reopen();
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({
        life: { state: 'unknown', lease: { fence: leaseOf(effect).fence }, evidence: { code: 'lease_over' } },
      });
      expect(await at.store.receipt(WORKSPACE, effect.id)).toBeNull();
      expect(await kinds(effect.id)).toEqual(['effect.admitted', 'execution.lost']);
    });

    it('is listed among the unknown ones, and not among the executing ones', async () => {
      const before = await Promise.all(Array.from({ length: 3 }, () => dispatched(at.store)));
      const ids = before.map(({ effect }) => effect.id).reverse();
      const other = await dispatched(at.store);
      await at.store.settle(settleRequest(other.effect, committed()));
      await at.reopen();
      const after = await dispatched(at.store);
      expect(await idsOf({ state: 'executing' })).toEqual([after.effect.id]);
      expect(await idsOf({ decision: 'in_progress' })).toEqual([after.effect.id]);
      expect((await idsOf({ state: 'unknown' })).toSorted()).toEqual(ids.toSorted());
      expect((await idsOf({ state: 'unknown', limit: 2 })).length).toBe(2);
    });

    it('is found by its decision, and by none', async () => {
      const { effect } = await dispatched(at.store);
      await at.reopen();
      expect(await idsOf({ decision: 'unknown_effect' })).toEqual([effect.id]);
      await at.reopen();
      const { items } = await at.store.effects(WORKSPACE, ANY);
      expect(items).toMatchObject([{ id: effect.id, life: { state: 'unknown' } }]);
    });

    it('keeps its key: the same call is not sent again', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.reopen();
      const asked = { idempotencyKey: 'k' };
      for (const answer of [await at.store.preview(admitRequest(asked)), await at.store.admit(admitRequest(asked))]) {
        expect(answer).toMatchObject({
          kind: 'existing',
          safeToRetry: false,
          effect: { id: effect.id, life: { state: 'unknown' } },
        });
      }
    });

    it('runs again only where the upstream itself removes duplicates', async () => {
      const times = { idempotentForMs: 3_600_000 };
      await dispatched(at.store, { idempotencyKey: 'k', times });
      await at.reopen();
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k', times });
      expect(effect).toMatchObject({ attempt: 2, generation: 1, mayHaveHappened: true });
      // The second attempt is this boot's own.
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'executing' } });
      expect(await idsOf({ state: 'executing' })).toEqual([effect.id]);
      expect((await at.store.sweep(100)).lost).toBe(0);
      expect(await kinds(effect.id)).toEqual(['effect.admitted', 'execution.lost', 'effect.admitted']);
    });

    it('takes a late answer, and refuses one of another attempt', async () => {
      const { effect } = await dispatched(at.store);
      await at.reopen();
      const other = settleRequest(effect, FAILED, { fence: { ...leaseOf(effect).fence, nonce: 'another' } });
      expect(await at.store.settle(other)).toMatchObject({
        kind: 'refused',
        contradiction: false,
        effect: { life: { state: 'unknown' } },
      });
      expect(await at.store.settle(settleRequest(effect, committed()))).toEqual({ kind: 'settled' });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({
        life: { state: 'committed', settledBy: { by: 'late_answer' } },
      });
      expect((await kinds(effect.id)).slice(0, 2)).toEqual(['effect.admitted', 'execution.lost']);
    });

    it('can be resolved', async () => {
      const { effect } = await dispatched(at.store);
      const second = await dispatched(at.store);
      await at.reopen();
      expect(await at.store.resolve(resolveRequest(effect, 'happened'))).toMatchObject({
        kind: 'resolved',
        effect: { life: { state: 'committed' } },
      });
      expect(await kinds(effect.id)).toEqual([
        'effect.admitted',
        'execution.lost',
        'effect.resolved',
        'receipt.issued',
      ]);
      expect(await at.store.resolve(resolveRequest(second.effect, 'not_happened'))).toMatchObject({
        kind: 'too_early',
        effect: { life: { state: 'unknown' } },
      });
    });

    it('keeps what it holds, and the ledger says the same', async () => {
      for (let n = 0; n < 3; n += 1) await dispatched(at.store, { verdict: permit([budgetOf(10, 2)]) });
      await at.reopen();
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ held: 6, spent: 0 }]);
      expect(await checkWorkspace(at.store, WORKSPACE)).toEqual([]);
      expect(await at.store.admit(admitRequest({ verdict: permit([budgetOf(10, 5)]) }))).toMatchObject({
        kind: 'refused',
        decision: 'denied_budget',
      });
    });

    const target = 'payment:1';
    const claimed = permit([{ kind: 'claim', rule: 'r', target, hold: 'call' }]);
    const reserved = permit([{ kind: 'reserve', rule: 'r', pool: 'gpu', units: 4, capacity: 4 }]);
    const another = { agentId: 'another-bot' };

    at.timed('keeps its claim and its units until it is quiet', async () => {
      const { effect } = await dispatched(at.store, { verdict: claimed, action: { target } });
      await dispatched(at.store, { verdict: reserved });
      await at.reopen();
      at.setClock(leaseOf(effect).quiesceUntil - 1);
      expect(await at.store.takeClaim(claimRequest(target, another))).toMatchObject({ kind: 'held' });
      const onTarget = admitRequest({ verdict: claimed, action: { target }, actor: another });
      expect(await at.store.admit(onTarget)).toMatchObject({ decision: 'denied_claim' });
      const fromPool = admitRequest({ verdict: reserved, actor: another });
      expect(await at.store.admit(fromPool)).toMatchObject({ decision: 'denied_reservation' });
    });

    /** Restarts, and lets the time go by until the effect is quiet; nothing has been swept. */
    async function restartLate(effect: EffectRecord): Promise<void> {
      await at.reopen();
      at.setClock(leaseOf(effect).quiesceUntil);
    }

    at.timed('does not hold its claim against another call once it is quiet', async () => {
      const { effect } = await dispatched(at.store, { verdict: claimed, action: { target } });
      await restartLate(effect);
      await dispatched(at.store, { verdict: claimed, action: { target }, actor: another });
    });

    at.timed('does not hold its units against another call once it is quiet', async () => {
      const { effect } = await dispatched(at.store, { verdict: reserved });
      await restartLate(effect);
      await dispatched(at.store, { verdict: reserved, actor: another });
    });

    at.timed('does not hold its claim against another agent once it is quiet', async () => {
      const { effect } = await dispatched(at.store, { verdict: claimed, action: { target } });
      await restartLate(effect);
      expect(await at.store.takeClaim(claimRequest(target, another))).toMatchObject({ kind: 'made' });
    });

    at.timed('does not show its claim once it is quiet', async () => {
      const { effect } = await dispatched(at.store, { verdict: claimed, action: { target } });
      await restartLate(effect);
      expect(await at.store.claims(WORKSPACE)).toEqual([]);
    });

    at.timed('does not find its claim once it is quiet', async () => {
      const { effect } = await dispatched(at.store, { verdict: claimed, action: { target } });
      const [claim] = await at.store.claims(WORKSPACE);
      await restartLate(effect);
      expect(await at.store.claim(WORKSPACE, claim?.id ?? '')).toBeNull();
    });

    it('is declared once, also where the sweep is cut short by the next restart', async () => {
      const effects = await Promise.all(Array.from({ length: 5 }, () => dispatched(at.store)));
      await at.reopen();
      for (const lost of [2, 2]) expect((await at.store.sweep(2)).lost).toBe(lost);
      await at.reopen();
      expect((await at.store.sweep(100)).lost).toBe(1);
      expect((await at.store.sweep(100)).lost).toBe(0);
      for (const { effect } of effects) expect(await kinds(effect.id)).toEqual(['effect.admitted', 'execution.lost']);
    });

    it('does not touch what is admitted after the restart', async () => {
      await dispatched(at.store);
      await at.reopen();
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      expect((await at.store.sweep(100)).lost).toBe(1);
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'executing' } });
      expect(await at.store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({
        kind: 'existing',
        effect: { life: { state: 'executing' } },
      });
      expect(await at.store.settle(settleRequest(effect, committed()))).toEqual({ kind: 'settled' });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { settledBy: { by: 'owner' } } });
    });
  });
}
