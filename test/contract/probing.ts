import { describe, expect, it } from 'vitest';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { AskedOf } from '../../src/effects/store.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  committed,
  dispatched,
  leaseOf,
  resolveRequest,
  settleRequest,
  UNKNOWN,
  WORKSPACE,
} from './requests.ts';

const FAR = 3_600_000;

/** When unknown effects are probed by gateways, and by which. */
export function describeProbing(open: OpenStore, capabilities: Capabilities): void {
  describe('probes that are due', () => {
    const at = useStore(open, capabilities);

    async function unknown(): Promise<EffectRecord> {
      const { effect } = await dispatched(at.store);
      await at.store.settle(settleRequest(effect, UNKNOWN));
      const settled = await at.store.effect(WORKSPACE, effect.id);
      if (settled === null) throw new Error('the effect is gone');
      return settled;
    }
    const due = async (tool: string, { afterMs = 0, limit = 10 } = {}): Promise<readonly string[]> =>
      (await at.store.probesDue(WORKSPACE, tool, afterMs, limit)).map(({ id }) => id);
    const plan = (effect: EffectRecord, more: Partial<AskedOf<'planProbe'>> = {}): AskedOf<'planProbe'> => ({
      workspace: WORKSPACE,
      effectId: effect.id,
      fence: leaseOf(effect).fence,
      due: 'unplanned',
      next: at.store.now() + FAR,
      reading: null,
      ...more,
    });

    it('are those of unknown effects of the tool, the oldest first', async () => {
      const [one, two] = [await unknown(), await unknown()];
      await dispatched(at.store);
      const { tool } = one.action;
      expect(new Set(await due(tool))).toEqual(new Set([one.id, two.id]));
      expect(await due(tool, { limit: 1 })).toHaveLength(1);
      expect(await due('another.tool')).toEqual([]);
      expect(await due(tool, { afterMs: FAR })).toEqual([]);
    });

    it('are in one order: what is put off again and again keeps nothing else back', async () => {
      const [again, fresh] = [await unknown(), await unknown()];
      const since = fresh.life.state === 'unknown' ? fresh.life.at : 0;
      const { tool } = again.action;
      const next = Math.ceil(since);
      await expect.poll(() => at.store.now()).toBeGreaterThanOrEqual(next);
      await at.store.planProbe(plan(again, { next }));
      expect(await due(tool, { limit: 1 })).toEqual([fresh.id]);
      expect(await due(tool)).toEqual([fresh.id, again.id]);
      await at.store.planProbe(plan(again, { due: next, next: Math.floor(since) - 1 }));
      expect(await due(tool, { limit: 1 })).toEqual([again.id]);
    });

    it('are taken by one gateway: for the others they are not due any more', async () => {
      const effect = await unknown();
      const takes = await Promise.all([1, 2, 3].map(() => at.store.planProbe(plan(effect))));
      expect(takes.toSorted()).toEqual(['moved', 'moved', 'planned']);
      expect(await due(effect.action.tool)).toEqual([]);
    });

    it('are due again when their time has come, also after a restart', async () => {
      const effect = await unknown();
      const next = Math.floor(at.store.now());
      expect(await at.store.planProbe(plan(effect, { next }))).toBe('planned');
      expect(await due(effect.action.tool)).toEqual([effect.id]);
      await at.reopen();
      expect(await due(effect.action.tool)).toEqual([effect.id]);
      // Who still sees it as it was before comes too late.
      expect(await at.store.planProbe(plan(effect))).toBe('moved');
      expect(await at.store.planProbe(plan(effect, { due: next }))).toBe('planned');
      expect(await due(effect.action.tool)).toEqual([]);
    });

    it('end with the last one', async () => {
      const effect = await unknown();
      await at.store.planProbe(plan(effect, { due: 'any', next: null }));
      expect(await due(effect.action.tool)).toEqual([]);
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'unknown', probeAt: null } });
    });

    it('end with the outcome, whoever brings it', async () => {
      const [late, resolved, planned] = [await unknown(), await unknown(), await unknown()];
      await at.store.planProbe(plan(planned, { next: Math.floor(at.store.now()) }));
      expect(await due(late.action.tool)).toHaveLength(3);
      await at.store.settle(settleRequest(late, committed()));
      await at.store.resolve(resolveRequest(resolved, 'happened'));
      await at.store.resolve(resolveRequest(planned, 'happened'));
      expect(await due(late.action.tool)).toEqual([]);
      expect(await at.store.planProbe(plan(late, { due: 'any' }))).toBe('moved');
    });

    it('begin anew when the call is repeated and is unknown again', async () => {
      const idempotent = { idempotencyKey: 'again', times: { idempotentForMs: FAR } };
      const { effect } = await dispatched(at.store, idempotent);
      await at.store.settle(settleRequest(effect, UNKNOWN));
      await at.store.planProbe(plan(effect, { next: null }));
      const again = await at.store.admit(admitRequest({ ...idempotent, fingerprint: effect.fingerprint }));
      if (again.kind !== 'dispatch') throw new Error(again.kind);
      expect(await due(effect.action.tool)).toEqual([]);
      expect(await at.store.planProbe(plan(effect, { due: 'any' }))).toBe('moved');
      await at.store.settle(settleRequest(again.effect, UNKNOWN));
      // A reading of the attempt before says nothing of this one.
      expect(await at.store.planProbe(plan(effect, { due: 'any', next: null }))).toBe('moved');
      expect(await due(effect.action.tool)).toEqual([effect.id]);
    });

    it('put their readings on record, also where the effect has moved on', async () => {
      const effect = await unknown();
      const reading = { actor: { type: 'gateway', id: 'prober' }, data: { attempt: 1, said: 'unknown' } } as const;
      const before = await at.store.effect(WORKSPACE, effect.id);
      expect(await at.store.planProbe(plan(effect, { reading }))).toBe('planned');
      expect(await at.store.planProbe(plan(effect, { reading }))).toBe('moved');
      const events = (await at.store.effectLedger(WORKSPACE, effect.id)).filter(({ kind }) => kind === 'effect.probed');
      expect(events.map(({ actor, data }) => ({ actor, data }))).toEqual([reading, reading]);
      const after = await at.store.effect(WORKSPACE, effect.id);
      expect(after).toEqual({ ...before, life: { ...before?.life, probeAt: expect.any(Number) } });
    });
  });
}
