import { describe, expect, it } from 'vitest';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  approvalBy,
  committed,
  dispatched,
  FAILED,
  permit,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

const PERSON = { type: 'user', id: 'maria' } as const;

/** What is forgotten on demand. */
export function describeErasure(open: OpenStore, capabilities: Capabilities): void {
  describe('erasing', () => {
    const at = useStore(open, capabilities);
    const erase = (effectId: string) => at.store.erase({ workspace: WORKSPACE, effectId, actor: PERSON });
    const kinds = async (id: string) => (await at.store.effectLedger(WORKSPACE, id)).map(({ kind }) => kind);

    it('forgets params, salts and the kept answer; the receipt, the rest of the record and the ledger stay', async () => {
      const { effect } = await dispatched(at.store);
      await at.store.settle(settleRequest(effect, committed('a.b.c', 'rcp_1')));
      const before = await at.store.effect(WORKSPACE, effect.id);
      expect(before?.sealed).toEqual(expect.any(String));
      expect(await erase(effect.id)).toEqual({ kind: 'erased' });
      const after = await at.store.effect(WORKSPACE, effect.id);
      expect(after).toEqual({ ...before, sealed: null, life: { ...before?.life, result: null } });
      expect(await at.store.receipt(WORKSPACE, effect.id)).toEqual({ id: 'rcp_1', jws: 'a.b.c' });
      expect(await kinds(effect.id)).toContain('receipt.issued');
      const last = (await at.store.effectLedger(WORKSPACE, effect.id)).at(-1);
      expect(last).toMatchObject({ kind: 'effect.erased', actor: PERSON });

      expect(await erase(effect.id)).toEqual({ kind: 'unchanged' });
      expect((await kinds(effect.id)).filter((kind) => kind === 'effect.erased')).toHaveLength(1);
      await at.reopen();
      expect(await at.store.effect(WORKSPACE, effect.id)).toEqual(after);
    });

    it('forgets the answer kept of a failure too', async () => {
      const { effect } = await dispatched(at.store);
      const body = { kind: 'json', value: { iban: 'DE1' } } as const;
      const result = { kind: 'http', status: 402, headers: {}, body, truncated: false } as const;
      await at.store.settle(settleRequest(effect, { kind: 'failed', result }));
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { result } });
      expect(await erase(effect.id)).toEqual({ kind: 'erased' });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ sealed: null, life: { result: null } });
      expect(await erase(effect.id)).toEqual({ kind: 'unchanged' });
    });

    it('is refused while the params are needed', async () => {
      const { effect } = await dispatched(at.store);
      expect(await erase(effect.id)).toEqual({ kind: 'needed' });
      await at.store.settle(settleRequest(effect, { kind: 'unknown' }));
      expect(await erase(effect.id)).toEqual({ kind: 'needed' });
      expect((await at.store.effect(WORKSPACE, effect.id))?.sealed).toEqual(expect.any(String));
      expect(await erase('eff_none')).toEqual({ kind: 'absent' });
      const waits = await at.store.admit(admitRequest({ verdict: permit([], [approvalBy()]) }));
      if (waits.kind !== 'pending') throw new Error(waits.kind);
      expect(await erase(waits.effect.id)).toEqual({ kind: 'needed' });
      expect((await at.store.effect(WORKSPACE, waits.effect.id))?.sealed).toEqual(expect.any(String));
    });

    it('forgets what a refusal said of the params, and of the state that the upstream showed', async () => {
      const { effect } = await dispatched(at.store);
      const reason = { code: 'state_drift', message: 'The live state is not what was assumed: iban.' } as const;
      const mismatches = [{ field: 'iban', assumed: 'DE1', current: 'DE2' }];
      await at.store.settle(settleRequest(effect, { kind: 'denied', decision: 'denied_claim', reason, mismatches }));
      expect(await erase(effect.id)).toEqual({ kind: 'erased' });
      const drifted = await at.store.effect(WORKSPACE, effect.id);
      expect(drifted).toMatchObject({ sealed: null, life: { state: 'denied', reason, mismatches: [] } });

      const told = { code: 'rule_denied', message: 'No refund of 900 to Eve.', rule: 'p/cap' } as const;
      const verdict = { kind: 'deny', decision: 'denied_policy', reason: told, trace: permit().trace } as const;
      const refused = await at.store.admit(admitRequest({ verdict }));
      if (refused.kind !== 'refused') throw new Error(refused.kind);
      expect(await erase(refused.effectId)).toEqual({ kind: 'erased' });
      const denied = await at.store.effect(WORKSPACE, refused.effectId);
      expect(denied?.life).toMatchObject({ reason: { ...told, message: 'The rule p/cap refuses this call.' } });
      for (const id of [effect.id, refused.effectId]) expect(await erase(id)).toEqual({ kind: 'unchanged' });
    });

    it('leaves the receipt to whoever asks again with the same key, and what people wrote when they decided', async () => {
      const request = { verdict: permit([], [approvalBy()]), idempotencyKey: 'erased' };
      const waits = await at.store.admit(admitRequest(request));
      if (waits.kind !== 'pending') throw new Error(waits.kind);
      await at.store.vote(voteRequest(waits.approval, { comment: 'called the customer' }));
      const { effect } = await dispatched(at.store, request);
      await at.store.settle(settleRequest(effect, committed('a.b.c', 'rcp_9')));
      const approval = await at.store.approval(WORKSPACE, waits.approval.id);
      expect(approval?.votes).toMatchObject([{ comment: 'called the customer' }]);
      expect(await erase(effect.id)).toEqual({ kind: 'erased' });
      expect(await at.store.admit(admitRequest(request))).toMatchObject({
        kind: 'existing',
        effect: { id: effect.id, life: { state: 'committed', receipt: { id: 'rcp_9', jws: 'a.b.c' } } },
      });
      expect(await at.store.approval(WORKSPACE, waits.approval.id)).toEqual(approval);
    });

    it('forgets the params of a call that was refused', async () => {
      const reason = { code: 'no_rule_allows', message: '-' } as const;
      const verdict = { kind: 'deny', decision: 'denied_policy', reason, trace: permit().trace } as const;
      const refused = await at.store.admit(admitRequest({ verdict }));
      if (refused.kind !== 'refused') throw new Error(refused.kind);
      expect(await erase(refused.effectId)).toEqual({ kind: 'erased' });
      expect(await at.store.effect(WORKSPACE, refused.effectId)).toMatchObject({
        sealed: null,
        life: { state: 'denied', reason },
      });
      expect(await erase(refused.effectId)).toEqual({ kind: 'unchanged' });
    });

    it('leaves a failed action free to run again, with what comes then', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'again' });
      await at.store.settle(settleRequest(effect, FAILED));
      expect(await erase(effect.id)).toEqual({ kind: 'erased' });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ sealed: null, life: { state: 'failed' } });
      const request = admitRequest({ idempotencyKey: 'again' });
      expect(await at.store.admit(request)).toMatchObject({ kind: 'dispatch', effect: { id: effect.id } });
      expect((await at.store.effect(WORKSPACE, effect.id))?.sealed).toBe(request.sealed);
    });
  });
}
