import { describe, expect, it } from 'vitest';
import { MAX_ATTEMPTS } from '../../src/effects/steps/lifecycle.ts';
import type { Deny } from '../../src/effects/model/verdict.ts';
import type { AdmitRequest } from '../../src/effects/store.ts';
import { type Capabilities, type OpenStore, RETENTION, useStore } from './fixture.ts';
import {
  admitRequest,
  ANY,
  budgetOf,
  committed,
  dispatched,
  FAILED,
  leaseOf,
  NOTHING_SENT,
  pauseRequest,
  permit,
  rateOf,
  settleRequest,
  UNKNOWN,
  WORKSPACE,
} from './requests.ts';

const DENY: Deny = {
  kind: 'deny',
  decision: 'denied_policy',
  reason: { code: 'rule_denied', message: 'Refunds stop at noon.', rule: 'payments/noon' },
  trace: permit().trace,
};

export function describeAdmission(open: OpenStore, capabilities: Capabilities): void {
  describe('admission', () => {
    const at = useStore(open, capabilities);

    it('admits a call with a fence of the first attempt and the nonce of its owner', async () => {
      const request = admitRequest();
      const admission = await at.store.admit(request);
      if (admission.kind !== 'dispatch') throw new Error(admission.kind);
      expect(admission.effect).toMatchObject({ id: request.effectId, attempt: 1, generation: 1 });
      expect(leaseOf(admission.effect).fence).toEqual({ epoch: admission.ledger.epoch, n: 1, nonce: request.nonce });
    });

    at.timed('fixes dispatch_by, lease_end and quiesce_until by its own clock', async () => {
      const { effect } = await dispatched(at.store);
      const lease = leaseOf(effect);
      expect(lease.admittedAt).toBe(at.now());
      expect(lease.dispatchBy).toBe(at.now() + 2_000);
      expect(lease.leaseEnd).toBe(at.now() + 9_000);
      expect(lease.quiesceUntil).toBeGreaterThanOrEqual(at.now() + 69_000);
    });

    it('answers with exactly the record that can be read afterwards', async () => {
      const { effect } = await dispatched(at.store, { metadata: { ticket: 7 } });
      expect(await at.store.effect(WORKSPACE, effect.id)).toEqual(effect);
    });

    it('says that the same key is running', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      const again = await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
      expect(again).toMatchObject({ kind: 'existing', effect: { id: effect.id, life: { state: 'executing' } } });
      expect(again.kind === 'existing' && again.retryAfterMs).toBeGreaterThan(0);
    });

    at.timed('says how long to wait for it: no longer than its lease', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      const asked = async () => {
        const again = await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
        return again.kind === 'existing' ? again.retryAfterMs : null;
      };
      expect(await asked()).toBe(1_000);
      at.advance(leaseOf(effect).leaseEnd - at.now() - 300);
      expect(await asked()).toBe(300);
    });

    it('answers a committed key with the original receipt', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, committed('the.very.bytes', 'rcp_1')));
      const again = await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
      expect(again).toMatchObject({
        kind: 'existing',
        effect: { life: { state: 'committed', receipt: { id: 'rcp_1', jws: 'the.very.bytes' } } },
      });
    });

    it('refuses another fingerprint under the key, and changes nothing', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      const other = await at.store.admit(admitRequest({ idempotencyKey: 'k', fingerprint: 'other' }));
      expect(other).toMatchObject({
        kind: 'refused',
        decision: 'idempotency_conflict',
        reason: { code: 'key_reused' },
      });
      expect(JSON.stringify(other)).not.toContain(effect.id);
      expect(await at.store.effect(WORKSPACE, effect.id)).toEqual(effect);
    });

    /** The same key with other params, by its own agent and by another. */
    async function conflicts() {
      const own = admitRequest({ idempotencyKey: 'k', fingerprint: 'other' });
      const actor = { ...own.actor, agentId: 'another-bot' };
      return {
        own: await at.store.admit(own),
        other: await at.store.admit(admitRequest({ idempotencyKey: 'k', fingerprint: 'other', actor })),
      };
    }
    const FOREIGN_TO_OTHERS = { own: { foreign: false }, other: { foreign: true } };

    it('says of a conflict whether the key is another agent’s', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      expect(await conflicts()).toMatchObject(FOREIGN_TO_OTHERS);
      await at.store.settle(settleRequest(effect, committed()));
      expect(await conflicts()).toMatchObject(FOREIGN_TO_OTHERS);
    });

    at.timed('says so also when only a tombstone is left', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, committed()));
      at.advance(RETENTION.effectsMs + 1);
      await at.store.sweep(100);
      expect(await at.store.effect(WORKSPACE, effect.id)).toBeNull();
      expect(await conflicts()).toMatchObject(FOREIGN_TO_OTHERS);
    });

    it('keeps the keys of workspaces apart', async () => {
      await dispatched(at.store, { idempotencyKey: 'k' });
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k', workspace: 'other' });
      expect(await at.store.effect(WORKSPACE, effect.id)).toBeNull();
      expect(await at.store.effect('other', effect.id)).toEqual(effect);
    });

    it('begins the next attempt and generation of a key whose attempt failed', async () => {
      const first = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(first.effect, FAILED));
      const second = await dispatched(at.store, { idempotencyKey: 'k' });
      expect(second.effect).toMatchObject({ id: first.effect.id, attempt: 2, generation: 2 });
      expect(leaseOf(second.effect).fence.n).toBe(2);
    });

    it('tells of a next attempt what it stores, also where the call itself asks again', async () => {
      const request = admitRequest({ idempotencyKey: 'k' });
      const first = await at.store.admit(request);
      if (first.kind !== 'dispatch') throw new Error(first.kind);
      await at.store.settle(settleRequest(first.effect, FAILED));
      const second = await at.store.admit({ ...request, nonce: 'again' });
      if (second.kind !== 'dispatch') throw new Error(second.kind);
      expect(second.effect).toMatchObject({ id: request.effectId, attempt: 2, generation: 2 });
      expect(await at.store.effect(WORKSPACE, request.effectId)).toEqual(second.effect);
    });

    it('takes at most ten attempts of one key', async () => {
      for (let attempt = 1; attempt <= 10; attempt += 1) {
        const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
        await at.store.settle(settleRequest(effect, FAILED));
      }
      const more = await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
      expect(more).toMatchObject({
        kind: 'refused',
        decision: 'denied_policy',
        reason: { code: 'attempts_exhausted' },
        attempt: 10,
      });
    });

    it('does not count attempts that sent nothing among the ten; their numbers go on', async () => {
      for (let attempt = 1; attempt <= 11; attempt += 1) {
        const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
        expect(effect).toMatchObject({ attempt, unsent: attempt - 1 });
        expect(leaseOf(effect).fence.n).toBe(attempt);
        await at.store.settle(settleRequest(effect, FAILED, NOTHING_SENT));
      }
      for (let attempt = 12; attempt <= 21; attempt += 1) {
        const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
        expect(effect).toMatchObject({ attempt, unsent: 11 });
        await at.store.settle(settleRequest(effect, FAILED));
      }
      const more = await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
      expect(more).toMatchObject({ kind: 'refused', reason: { code: 'attempts_exhausted' } });
    });

    it('counts an attempt that sent nothing once, though an earlier one keeps its effect unknown', async () => {
      const times = { idempotentForMs: 60_000 };
      const first = await dispatched(at.store, { idempotencyKey: 'k', times });
      await at.store.settle(settleRequest(first.effect, UNKNOWN));
      for (let attempt = 2; attempt <= 12; attempt += 1) {
        const { effect } = await dispatched(at.store, { idempotencyKey: 'k', times });
        const unsent = settleRequest(effect, FAILED, NOTHING_SENT);
        await at.store.settle(unsent);
        await at.store.settle(unsent);
        const record = await at.store.effect(WORKSPACE, effect.id);
        expect(record).toMatchObject({ attempt, unsent: attempt - 1, life: { state: 'unknown' } });
      }
    });

    it('never sends an unknown effect again where the upstream does not remove duplicates', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, UNKNOWN));
      const again = await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
      expect(again).toMatchObject({ kind: 'existing', safeToRetry: false, effect: { life: { state: 'unknown' } } });
    });

    it('repeats an unknown effect under the same upstream key where the upstream removes duplicates', async () => {
      const times = { idempotentForMs: 60_000 };
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k', times });
      await at.store.settle(settleRequest(effect, UNKNOWN));
      const again = await dispatched(at.store, { idempotencyKey: 'k', times });
      expect(again.effect).toMatchObject({ id: effect.id, attempt: 2, generation: 1, mayHaveHappened: true });
    });

    it('repeats it as often as may be attempted, and says then that it is not safe', async () => {
      const again = { idempotencyKey: 'k', times: { idempotentForMs: 60_000 } };
      for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt += 1) {
        const { effect } = await dispatched(at.store, again);
        expect(effect.attempt).toBe(attempt);
        await at.store.settle(settleRequest(effect, UNKNOWN));
      }
      expect(await at.store.admit(admitRequest(again))).toMatchObject({
        kind: 'existing',
        safeToRetry: false,
        effect: { attempt: MAX_ATTEMPTS, life: { state: 'unknown' } },
      });
    });

    at.timed('does not repeat it once the upstream has forgotten its key', async () => {
      const times = { idempotentForMs: 60_000 };
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k', times });
      await at.store.settle(settleRequest(effect, UNKNOWN));
      at.advance(60_000);
      expect(await at.store.admit(admitRequest({ idempotencyKey: 'k', times }))).toMatchObject({
        kind: 'existing',
        safeToRetry: false,
      });
    });

    it('does not repeat it when the tool means another request by now', async () => {
      const times = { idempotentForMs: 60_000 };
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k', times });
      await at.store.settle(settleRequest(effect, UNKNOWN));
      const changed = admitRequest({ idempotencyKey: 'k', times, action: { toolDigest: 'sha256:other' } });
      expect(await at.store.admit(changed)).toMatchObject({ kind: 'existing', safeToRetry: false });
    });

    it('does not repeat it where evidence has closed the key, and says that it is not safe', async () => {
      const again = { idempotencyKey: 'k', times: { idempotentForMs: 60_000 } };
      const first = await dispatched(at.store, again);
      await at.store.settle(settleRequest(first.effect, FAILED));
      const second = await dispatched(at.store, again);
      expect(await at.store.settle(settleRequest(first.effect, committed()))).toMatchObject({ contradiction: true });
      await at.store.settle(settleRequest(second.effect, UNKNOWN));
      expect(await at.store.admit(admitRequest(again))).toMatchObject({
        kind: 'existing',
        safeToRetry: false,
        effect: { attempt: 2, closed: true, life: { state: 'unknown' } },
      });
    });

    it('has the metadata that the latest attempt brought, and the earlier where that brought none', async () => {
      const attempt = async (metadata: AdmitRequest['metadata']) => {
        const { effect } = await dispatched(at.store, { idempotencyKey: 'k', metadata });
        await at.store.settle(settleRequest(effect, FAILED));
        return (await at.store.effect(WORKSPACE, effect.id))?.metadata;
      };
      expect(await attempt({ ticket: 7 })).toEqual({ ticket: 7 });
      expect(await attempt(null)).toEqual({ ticket: 7 });
      expect(await attempt({ ticket: 8 })).toEqual({ ticket: 8 });
    });

    it('repeats nothing while it is paused, and lets it be repeated afterwards', async () => {
      const again = { idempotencyKey: 'k', times: { idempotentForMs: 60_000 } };
      const { effect } = await dispatched(at.store, again);
      await at.store.settle(settleRequest(effect, UNKNOWN));
      const pausedBy = { id: 'pau_1', reason: 'incident', until: null };
      expect(await at.store.admit(admitRequest({ ...again, pausedBy }))).toMatchObject({
        kind: 'existing',
        effect: { life: { state: 'unknown' }, attempt: 1 },
      });
      await dispatched(at.store, again);
    });

    it('holds for a repeat what the unknown attempt holds: once, and until it is settled', async () => {
      const again = {
        idempotencyKey: 'k',
        times: { idempotentForMs: 60_000 },
        verdict: permit([budgetOf(100, 60)]),
      };
      const first = await dispatched(at.store, again);
      await at.store.settle(settleRequest(first.effect, UNKNOWN));
      const second = await dispatched(at.store, again);
      expect(second.effect).toMatchObject({ holds: [{ amount: 60 }], holdState: 'held' });
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ held: 60, spent: 0 }]);
      await at.store.settle(settleRequest(second.effect, committed()));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ held: 0, spent: 60 }]);
    });

    it('does not repeat it where another obligation refuses the call by now: it stays unknown', async () => {
      const again = { idempotencyKey: 'k', times: { idempotentForMs: 60_000 }, verdict: permit([rateOf(1, 60_000)]) };
      const { effect } = await dispatched(at.store, again);
      await at.store.settle(settleRequest(effect, UNKNOWN));
      expect(await at.store.admit(admitRequest(again))).toMatchObject({
        kind: 'existing',
        effect: { id: effect.id, attempt: 1, life: { state: 'unknown' } },
      });
      await dispatched(at.store, { ...again, verdict: permit([rateOf(2, 60_000)]) });
    });

    it('repeats an unknown effect on what it holds, whatever the budgets would say by now', async () => {
      const again = {
        idempotencyKey: 'k',
        times: { idempotentForMs: 60_000 },
        verdict: permit([budgetOf(100, 100)]),
      };
      const first = await dispatched(at.store, again);
      await at.store.settle(settleRequest(first.effect, UNKNOWN));
      await dispatched(at.store, { ...again, verdict: permit([budgetOf(50, null)]) });
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ held: 100, spent: 0 }]);
    });

    at.timed('says at which place a repeat stands also where it finds the attempt before it lost', async () => {
      const again = { idempotencyKey: 'k', times: { idempotentForMs: 600_000 } };
      const { effect } = await dispatched(at.store, again);
      at.advance(9_000);
      const second = await dispatched(at.store, again);
      const events = await at.store.effectLedger(WORKSPACE, effect.id);
      expect(events.map(({ kind }) => kind)).toEqual(['effect.admitted', 'execution.lost', 'effect.admitted']);
      expect(second.ledger.seq).toBe(events.at(-1)?.seq);
    });

    it('keeps the params as they were sealed first: a later attempt’s are sealed for another id', async () => {
      const first = await dispatched(at.store, { idempotencyKey: 'k', sealed: 'sealed.first' });
      await at.store.settle(settleRequest(first.effect, FAILED));
      const second = await dispatched(at.store, { idempotencyKey: 'k', sealed: 'sealed.second' });
      expect(second.effect.sealed).toBe('sealed.first');
      expect(await at.store.effect(WORKSPACE, first.effect.id)).toMatchObject({ attempt: 2, sealed: 'sealed.first' });
    });

    it('admits one of a hundred concurrent calls with one key', async () => {
      const answers = await Promise.all(
        Array.from({ length: 100 }, () => at.store.admit(admitRequest({ idempotencyKey: 'k' }))),
      );
      expect(answers.filter(({ kind }) => kind === 'dispatch')).toHaveLength(1);
      expect(answers.filter(({ kind }) => kind === 'existing')).toHaveLength(99);
    });

    it('admits concurrent calls with different keys, each at a place of its own in the ledger', async () => {
      const answers = await Promise.all(Array.from({ length: 64 }, () => dispatched(at.store)));
      expect(new Set(answers.map(({ ledger }) => ledger.seq)).size).toBe(64);
      expect(new Set(answers.map(({ effect }) => effect.id)).size).toBe(64);
    });

    it('records a refusal as an effect of its own, and binds no key by it', async () => {
      const refused = await at.store.admit(admitRequest({ idempotencyKey: 'k', verdict: DENY }));
      if (refused.kind !== 'refused') throw new Error(refused.kind);
      expect(refused).toMatchObject({ decision: 'denied_policy', reason: DENY.reason });
      const { stages } = admitRequest();
      const admission = { stage: 'admission', status: 'refused', durationMs: null, detail: 'payments/noon' };
      expect(await at.store.effect(WORKSPACE, refused.effectId)).toMatchObject({
        life: { state: 'denied', decision: 'denied_policy', reason: DENY.reason },
        stages: [...stages, admission],
      });
      // Where a stage before it refused the call, the admission did not.
      const before = {
        stage: 'policy',
        status: 'refused',
        startedAt: 1,
        durationMs: 1,
        detail: 'payments/noon',
      } as const;
      const sooner = await at.store.admit(admitRequest({ verdict: DENY, stages: [...stages, before] }));
      expect(await at.store.effect(WORKSPACE, sooner.kind === 'refused' ? sooner.effectId : '')).toMatchObject({
        stages: [...stages, before],
      });
      expect(await at.store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({ kind: 'dispatch' });
    });

    it('answers a committed key with its receipt even when policy would refuse it now', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, committed()));
      const again = await at.store.admit(admitRequest({ idempotencyKey: 'k', verdict: DENY }));
      expect(again).toMatchObject({ kind: 'existing', effect: { id: effect.id } });
    });

    it('tells who may not act nothing of what the key is bound to', async () => {
      await dispatched(at.store, { idempotencyKey: 'k', fingerprint: 'refund of 42' });
      for (const [decision, code] of [
        ['denied_permission', 'tool_not_allowed'],
        ['denied_identity', 'agent_disabled'],
      ] as const) {
        const verdict: Deny = { ...DENY, decision, reason: { code, message: '-' } };
        for (const fingerprint of ['refund of 42', 'another action']) {
          const told = await at.store.admit(admitRequest({ idempotencyKey: 'k', fingerprint, verdict }));
          expect(told).toMatchObject({ kind: 'refused', decision, reason: { code } });
        }
      }
    });

    it('refuses what was evaluated under a policy that is no longer active, and writes nothing', async () => {
      await at.store.activatePolicy('v2', []);
      const request = admitRequest();
      expect(await at.store.admit(request)).toMatchObject({ kind: 'stale', versions: { policy: 'v2' } });
      expect(await at.store.effect(WORKSPACE, request.effectId)).toBeNull();
      expect(await at.store.admit(admitRequest({ seen: { policy: 'v2', pauses: 0 } }))).toMatchObject({
        kind: 'dispatch',
      });
    });

    it('keeps the active policy over a restart', async () => {
      await at.store.activatePolicy('v2', []);
      await at.reopen();
      expect(await at.store.admit(admitRequest())).toMatchObject({ kind: 'stale', versions: { policy: 'v2' } });
    });

    it('refuses a gateway that has not heard of a pause', async () => {
      await at.store.setPause(pauseRequest());
      const { version } = await at.store.pauses(WORKSPACE);
      expect(await at.store.admit(admitRequest())).toMatchObject({ kind: 'stale', versions: { pauses: version } });
      const paused = admitRequest({
        seen: { policy: '', pauses: version },
        pausedBy: { id: 'pau_1', reason: 'incident', until: null },
      });
      expect(await at.store.admit(paused)).toMatchObject({ kind: 'refused', decision: 'denied_paused' });
    });

    at.timed(
      'refuses what is paused up to the end of the pause, says how long that is, and runs it from then on',
      async () => {
        const paused = { pausedBy: { id: 'pau_1', reason: 'incident', until: at.now() + 1_000 } };
        at.advance(999);
        expect(await at.store.admit(admitRequest(paused))).toMatchObject({
          decision: 'denied_paused',
          retryAfterMs: 1,
        });
        at.advance(1);
        await dispatched(at.store, paused);
      },
    );

    at.timed('refuses a budget window that has ended since the call was evaluated', async () => {
      const window = { kind: 'calendar', start: at.now() - 1_000, end: at.now() + 1_000 } as const;
      const verdict = permit([budgetOf(100, 1, { window })]);
      at.advance(1_000);
      expect(await at.store.admit(admitRequest({ verdict }))).toMatchObject({ kind: 'stale' });
    });

    at.timed('refuses a budget window that has not begun yet: another gateway is ahead', async () => {
      const window = { kind: 'calendar', start: at.now() + 1, end: at.now() + 1_000 } as const;
      const request = admitRequest({ verdict: permit([budgetOf(100, 1, { window })]) });
      expect(await at.store.admit(request)).toMatchObject({ kind: 'stale' });
      at.advance(1);
      expect(await at.store.admit(request)).toMatchObject({ kind: 'dispatch' });
    });

    it('previews what admission would answer, and writes nothing', async () => {
      const request = admitRequest({ verdict: permit([budgetOf(100, 60)]) });
      const before = await at.store.ledger(WORKSPACE, 0, 100);
      expect(await at.store.preview(request)).toMatchObject({ kind: 'dispatch' });
      expect(await at.store.preview(request)).toMatchObject({ kind: 'dispatch' });
      expect(await at.store.effect(WORKSPACE, request.effectId)).toBeNull();
      expect(await at.store.ledger(WORKSPACE, 0, 100)).toEqual(before);
      expect(await at.store.budgets(WORKSPACE)).toEqual([]);
      expect((await at.store.effects(WORKSPACE, ANY)).items).toEqual([]);
      expect(await at.store.admit(request)).toMatchObject({ kind: 'dispatch' });
    });

    at.timed('finds an effect whose lease is over unknown, whoever asks first', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      at.advance(9_000);
      const again = await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
      expect(again).toMatchObject({ kind: 'existing', effect: { id: effect.id, life: { state: 'unknown' } } });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'unknown' } });
      const { quiesceUntil } = leaseOf(effect);
      // Its time was over. That its gateway had ended, nobody knows.
      expect((await at.store.effectLedger(WORKSPACE, effect.id)).at(-1)).toMatchObject({
        kind: 'execution.lost',
        actor: { type: 'gateway', id: 'sweeper' },
        data: { attempt: 1, code: 'lease_over', owner_ended: false, quiet_at: new Date(quiesceUntil).toISOString() },
      });
    });
  });
}
