import { describe, expect, it } from 'vitest';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { Admission } from '../../src/effects/store.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  type AdmitOverrides,
  admitRequest,
  committed,
  FAILED,
  permit,
  settleRequest,
  UNKNOWN,
  approvalBy,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

const WINDOW = 120_000;

/** A call under a derived key, of an action that the caller gives no key. */
function derived(more: AdmitOverrides = {}): ReturnType<typeof admitRequest> {
  return admitRequest({ idempotencyKey: 'meant:fp1:x', fingerprint: 'fp1:x', generationMs: WINDOW, ...more });
}

function begun(admission: Admission): EffectRecord {
  if (admission.kind !== 'dispatch') throw new Error(admission.kind);
  return admission.effect;
}

export function describeGenerations(open: OpenStore, capabilities: Capabilities): void {
  describe('derived keys with generations', () => {
    const at = useStore(open, capabilities);

    it('of many calls at once one begins the generation, and the others join it', async () => {
      const all = await Promise.all(Array.from({ length: 12 }, () => at.store.admit(derived())));
      const [first, ...others] = all.filter(({ kind }) => kind === 'dispatch').map(begun);
      expect(others).toEqual([]);
      expect(first?.idempotencyKey).toBe('meant:fp1:x.1');
      expect(all.filter((one) => one.kind === 'existing' && one.effect.id === first?.id)).toHaveLength(11);
    });

    at.timed('a committed one is joined for the window, and then the next begins, with a key of its own', async () => {
      const first = begun(await at.store.admit(derived()));
      await at.store.settle(settleRequest(first, committed('the.first', 'rcp_1')));
      at.advance(WINDOW - 1);
      expect(await at.store.admit(derived())).toMatchObject({ kind: 'existing', effect: { id: first.id } });
      at.advance(1);
      const second = begun(await at.store.admit(derived()));
      expect([second.idempotencyKey, second.id === first.id]).toEqual(['meant:fp1:x.2', false]);
      expect(await at.store.admit(derived())).toMatchObject({ kind: 'existing', effect: { id: second.id } });
      // The first one keeps its key: named, it is still the same call.
      const named = admitRequest({ idempotencyKey: 'meant:fp1:x.1', fingerprint: 'fp1:x' });
      expect(await at.store.admit(named)).toMatchObject({ kind: 'existing', effect: { id: first.id } });
      expect(await at.store.receipt(WORKSPACE, first.id)).toMatchObject({ id: 'rcp_1' });
    });

    at.timed('one whose outcome is unknown is joined at any age', async () => {
      const first = begun(await at.store.admit(derived()));
      await at.store.settle(settleRequest(first, UNKNOWN));
      at.advance(400 * WINDOW);
      const again = await at.store.admit(derived());
      expect(again).toMatchObject({ kind: 'existing', effect: { id: first.id, life: { state: 'unknown' } } });
    });

    at.timed('one that waits for approval is joined at any age of the request', async () => {
      const verdict = permit([], [approvalBy({ expiresMs: 40 * WINDOW })]);
      const asked = await at.store.admit(derived({ verdict, approvalDigest: 'd' }));
      if (asked.kind !== 'pending') throw new Error(asked.kind);
      at.advance(20 * WINDOW);
      const again = await at.store.admit(derived({ verdict, approvalDigest: 'd' }));
      expect(again).toMatchObject({ kind: 'pending', created: false, effect: { id: asked.effect.id } });
    });

    at.timed('a rejected one is joined for the window', async () => {
      const asking = derived({ verdict: permit([], [approvalBy()]), approvalDigest: 'd' });
      const asked = await at.store.admit(asking);
      if (asked.kind !== 'pending') throw new Error(asked.kind);
      await at.store.vote(voteRequest(asked.approval, { verdict: 'reject' }));
      at.advance(WINDOW - 1);
      const again = await at.store.admit(asking);
      expect(again).toMatchObject({
        kind: 'refused',
        effectId: asked.effect.id,
        reason: { code: 'approval_rejected' },
      });
    });

    it('a failed one gets another attempt within the window', async () => {
      const first = begun(await at.store.admit(derived()));
      await at.store.settle(settleRequest(first, FAILED));
      const again = begun(await at.store.admit(derived()));
      expect([again.id, again.attempt]).toEqual([first.id, 2]);
    });

    it('a refused call begins none, and what is committed later is joined under the first', async () => {
      const reason = { code: 'rule_denied', message: '-' } as const;
      const verdict = { kind: 'deny', decision: 'denied_policy', reason, trace: permit().trace } as const;
      expect(await at.store.admit(derived({ verdict }))).toMatchObject({ kind: 'refused' });
      const first = begun(await at.store.admit(derived()));
      expect(first.idempotencyKey).toBe('meant:fp1:x.1');
      expect(await at.store.admit(derived())).toMatchObject({ kind: 'existing', effect: { id: first.id } });
    });

    it('reads are new each time, also while the last one runs', async () => {
      const read = (): ReturnType<typeof admitRequest> => derived({ generationMs: 0, action: { kind: 'read' } });
      const first = begun(await at.store.admit(read()));
      const second = begun(await at.store.admit(read()));
      await at.store.settle(settleRequest(second, committed('x', 'rcp_2')));
      const third = begun(await at.store.admit(read()));
      expect([first, second, third].map(({ idempotencyKey }) => idempotencyKey)).toEqual(
        [1, 2, 3].map((n) => `meant:fp1:x.${n}`),
      );
    });
  });
}
