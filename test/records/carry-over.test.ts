import { afterEach, describe, expect, it } from 'vitest';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { EffectStore } from '../../src/effects/store.ts';
import { carryOver, type CarriedOver } from '../../src/records/carry-over.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { RETENTION } from '../contract/fixture.ts';
import {
  admitRequest,
  type AdmitOverrides,
  approvalBy,
  budgetOf,
  claimRequest,
  committed,
  dispatched,
  FAILED,
  leaseOf,
  pauseRequest,
  permit,
  PERSON,
  resolveRequest,
  settleRequest,
  UNKNOWN,
  voteRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, type MapRows, mapStore } from '../port/map-rows.ts';
import { expectSilentFsck } from '../silent-fsck.ts';

/*
 * A store goes back to a backup. What ran since is brought into it from the store that it replaces: nothing of it runs
 * again, and of nothing is it said that it did not happen.
 */

let now = 1_750_000_000_000;
let open: EffectStore[] = [];
afterEach(async () => {
  for (const store of open) await store.close();
  open = [];
});

function storeOn(rows: MapRows): EffectStore {
  const options = { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 };
  const store = createEffectStore({ ...mapStore(rows, () => now), ...ALONE }, options);
  open.push(store);
  return store;
}

/** @param since what happened after the backup, in the store that is replaced */
async function restore<T>(
  before: (store: EffectStore) => Promise<T>,
  since: (store: EffectStore, made: T) => Promise<unknown>,
): Promise<{ readonly store: EffectStore; readonly carried: CarriedOver; readonly made: T }> {
  const replaced = emptyRows();
  const store = storeOn(replaced);
  const made = await before(store);
  const restored = { ...structuredClone(replaced), epoch: 2 };
  now += 1_000;
  await since(store, made);
  now += 60_000;
  const carried = await carryOver(
    mapStore(restored, () => now),
    mapStore(replaced, () => now),
  );
  const after = storeOn(restored);
  await expectSilentFsck(after);
  return { store: after, carried, made };
}

const nothing = async (): Promise<null> => null;

/** A budget of which one unit is spent already. */
async function budget(store: EffectStore): Promise<void> {
  const { effect } = await dispatched(store, { verdict: permit([budgetOf(100, 1)]) });
  await store.settle(settleRequest(effect, committed()));
}
const COSTS: AdmitOverrides = { idempotencyKey: 'k', verdict: permit([budgetOf(100, 60)]) };
const NOBODY = { unknown: 0, receipts: 0, fault: null };

async function recordOf(store: EffectStore, { id }: Pick<EffectRecord, 'id'>): Promise<EffectRecord> {
  const effect = await store.effect(WORKSPACE, id);
  if (effect === null) throw new Error('it is on record');
  return effect;
}

async function waiting(store: EffectStore, overrides: AdmitOverrides = COSTS, expiresMs = 3_600_000) {
  const verdict = permit([budgetOf(100, 60)], [approvalBy({ expiresMs })]);
  const asked = await store.admit(admitRequest({ ...overrides, verdict }));
  if (asked.kind !== 'pending') throw new Error(asked.kind);
  return asked;
}

const held = async (store: EffectStore) => (await store.budgets(WORKSPACE)).map((row) => [row.spent, row.held]);

describe('after a restore', () => {
  it('what was committed since is unknown: its key runs nothing, its money is held, and its receipt is named', async () => {
    let ran: EffectRecord | null = null;
    const { store, carried } = await restore(budget, async (replaced) => {
      ran = (await dispatched(replaced, COSTS)).effect;
      await replaced.settle(settleRequest(ran, committed('jws.1', 'rcp_1')));
    });
    expect(carried).toEqual({ ...NOBODY, unknown: 1 });
    if (ran === null) throw new Error('it ran');
    const effect = await recordOf(store, ran);
    expect(effect).toMatchObject({
      attempt: 1,
      holdState: 'held',
      life: {
        state: 'unknown',
        lease: { owner: 'svc restore', fence: { epoch: 2, n: 1 }, admittedAt: now - 60_000, quiesceUntil: now },
        evidence: { code: 'store_restored', answered: null, message: expect.stringContaining('the receipt rcp_1') },
      },
    });
    expect(await held(store)).toEqual([[1, 60]]);
    expect(await store.admit(admitRequest(COSTS))).toMatchObject({ kind: 'existing', effect: { id: effect.id } });
    const events = await store.effectLedger(WORKSPACE, effect.id);
    const actor = { type: 'gateway', id: 'svc restore' };
    expect(events).toMatchObject([
      {
        kind: 'execution.lost',
        actor,
        data: { attempt: 1, code: 'store_restored', was: 'committed', receipt_id: 'rcp_1', quiet_at: isoNow() },
      },
      { kind: 'budget.held', actor, data: { holds: [{ amount: 60 }] } },
    ]);
    // Nothing of it is on its way any more, so somebody may say at once what became of it.
    expect(await store.resolve(resolveRequest(effect, 'happened'))).toMatchObject({ kind: 'resolved' });
    expect(await held(store)).toEqual([[61, 0]]);
  });

  it('claims and reservations that a call held are not brought over: another one may have them by now', async () => {
    const claim = { kind: 'claim', rule: 'r', target: 'customer:7', hold: 'call' } as const;
    let ran: EffectRecord | null = null;
    const { store } = await restore(nothing, async (replaced) => {
      ran = (await dispatched(replaced, { idempotencyKey: 'k', verdict: permit([claim]) })).effect;
      expect(ran.claims).toEqual(['customer:7']);
    });
    if (ran === null) throw new Error('it ran');
    expect(await recordOf(store, ran)).toMatchObject({ claims: [], uses: [] });
    expect(await store.takeClaim(claimRequest('customer:7', { agentId: 'other-bot' }))).toMatchObject({ kind: 'made' });
  });

  it.each([
    ['runs still', null],
    ['is unknown', UNKNOWN],
  ] as const)('what %s is unknown, and not said to be over before it could be', async (_, outcome) => {
    let ran: EffectRecord | null = null;
    const { store, carried } = await restore(budget, async (replaced) => {
      ran = (await dispatched(replaced, COSTS)).effect;
      if (outcome !== null) await replaced.settle(settleRequest(ran, outcome));
    });
    expect(carried).toEqual({ ...NOBODY, unknown: 1 });
    if (ran === null) throw new Error('it ran');
    const [before, effect] = [leaseOf(ran), await recordOf(store, ran)];
    const quiet = now + before.quiesceUntil - before.admittedAt;
    expect(leaseOf(effect)).toEqual({ ...before, quiesceUntil: quiet });
    expect(await store.resolve(resolveRequest(effect, 'not_happened'))).toMatchObject({
      kind: 'too_early',
      retryAfterMs: quiet - now,
    });
    const [lost] = await store.effectLedger(WORKSPACE, effect.id);
    expect(lost).toMatchObject({ data: { was: outcome === null ? 'executing' : 'unknown' } });
    expect(lost?.data).not.toHaveProperty('receipt_id');
  });

  it('what came to nothing since is not brought over, nor what is there as it was', async () => {
    const { store, carried, made } = await restore(
      async (replaced) => {
        const there = await dispatched(replaced, { idempotencyKey: 'there' });
        await replaced.settle(settleRequest(there.effect, committed()));
        return { there: there.effect, running: (await dispatched(replaced, { idempotencyKey: 'running' })).effect };
      },
      async (replaced, { running }) => {
        const failed = await dispatched(replaced, COSTS);
        await replaced.settle(settleRequest(failed.effect, FAILED));
        await waiting(replaced, { idempotencyKey: 'waits' });
        // The store knows that it ran: its next start finds it unknown.
        await replaced.settle(settleRequest(running, committed()));
      },
    );
    expect(carried).toEqual(NOBODY);
    expect(await store.effect(WORKSPACE, made.running.id)).toMatchObject({ life: { state: 'executing' } });
    expect(await store.effect(WORKSPACE, made.there.id)).toMatchObject({ life: { state: 'committed' } });
    await dispatched(store, COSTS);
  });

  it('what waited for approval and ran since waits no more: nobody votes on it, and what it held is held once', async () => {
    const { store, carried, made } = await restore(
      (replaced) => waiting(replaced),
      async (replaced, { approval }) => {
        await replaced.vote(voteRequest(approval));
        const sent = await dispatched(replaced, { ...COSTS, verdict: permit([budgetOf(100, 60)], [approvalBy()]) });
        await replaced.settle(settleRequest(sent.effect, committed('jws.2', 'rcp_2')));
      },
    );
    expect(carried).toEqual({ ...NOBODY, unknown: 1 });
    const { approval, effect } = made;
    expect(await store.approval(WORKSPACE, approval.id)).toMatchObject({ status: 'used' });
    expect(await store.vote(voteRequest(approval))).toMatchObject({ kind: 'already_decided' });
    expect(await recordOf(store, effect)).toMatchObject({
      createdAt: effect.createdAt,
      holdState: 'held',
      life: { state: 'unknown' },
    });
    expect(await held(store)).toEqual([[0, 60]]);
    const kinds = (await store.effectLedger(WORKSPACE, effect.id)).map(({ kind }) => kind);
    expect(kinds).toEqual(['approval.requested', 'budget.held', 'execution.lost']);
  });

  it('what was unknown and was repeated since has the attempt of since, and what it held is held once', async () => {
    const again: AdmitOverrides = { ...COSTS, times: { idempotentForMs: 600_000 } };
    const { store, carried, made } = await restore(
      async (replaced) => {
        const { effect } = await dispatched(replaced, again);
        await replaced.settle(settleRequest(effect, UNKNOWN));
        return effect;
      },
      (replaced) => dispatched(replaced, again),
    );
    expect(carried).toEqual({ ...NOBODY, unknown: 1 });
    const effect = await recordOf(store, made);
    expect(effect).toMatchObject({ attempt: 2, life: { state: 'unknown', lease: { fence: { n: 2 } } } });
    expect(await held(store)).toEqual([[0, 60]]);
  });

  it('what is committed in both stays as it is, also where something of it was erased since', async () => {
    const { store, carried, made } = await restore(
      async (replaced) => {
        const { effect } = await dispatched(replaced, COSTS);
        await replaced.settle(settleRequest(effect, committed('jws.1', 'rcp_1')));
        return effect;
      },
      (replaced, { id }) => replaced.erase({ workspace: WORKSPACE, effectId: id, actor: PERSON }),
    );
    expect(carried).toEqual(NOBODY);
    expect(await recordOf(store, made)).toMatchObject({ life: { state: 'committed', receipt: { id: 'rcp_1' } } });
    expect(await held(store)).toEqual([[60, 0]]);
  });

  it('what had failed and was attempted again since has the attempt of since', async () => {
    const { store, carried, made } = await restore(
      async (replaced) => {
        const { effect } = await dispatched(replaced, COSTS);
        await replaced.settle(settleRequest(effect, FAILED));
        return effect;
      },
      async (replaced) => {
        const again = await dispatched(replaced, COSTS);
        await replaced.settle(settleRequest(again.effect, committed()));
      },
    );
    expect(carried).toEqual({ ...NOBODY, unknown: 1 });
    expect(await recordOf(store, made)).toMatchObject({ attempt: 2, holdState: 'held', life: { state: 'unknown' } });
    expect(await held(store)).toEqual([[0, 60]]);
    expect(await store.admit(admitRequest(COSTS))).toMatchObject({ kind: 'existing', effect: { attempt: 2 } });
  });

  it('another request that waits under the same key is over: it was when the call ran', async () => {
    let ran = '';
    const { store, carried, made } = await restore(
      (replaced) => waiting(replaced, COSTS, 500),
      async (replaced) => {
        // Its time is over, and the key is free for a call that policy lets run.
        ran = (await dispatched(replaced, COSTS)).effect.id;
      },
    );
    expect(carried).toEqual({ ...NOBODY, unknown: 1 });
    expect(await store.approval(WORKSPACE, made.approval.id)).toMatchObject({ status: 'expired' });
    expect(await recordOf(store, made.effect)).toMatchObject({
      life: { state: 'denied', reason: { message: expect.stringMatching(/^Nobody decided /) } },
    });
    expect((await store.effectLedger(WORKSPACE, made.effect.id)).at(-1)).toMatchObject({
      kind: 'approval.expired',
      data: { code: 'store_restored' },
    });
    expect(await store.admit(admitRequest(COSTS))).toMatchObject({ kind: 'existing', effect: { id: ran } });
  });

  it('a derived key is that of the last generation, whichever is brought first', async () => {
    const derived: AdmitOverrides = { idempotencyKey: 'meant:x', fingerprint: 'x', generationMs: 120_000 };
    const ids: string[] = [];
    const { store, carried } = await restore(nothing, async (replaced) => {
      for (let generation = 1; generation <= 2; generation += 1) {
        const { effect } = await dispatched(replaced, derived);
        await replaced.settle(settleRequest(effect, committed()));
        ids.push(effect.id);
        now += 120_000;
      }
    });
    expect(carried).toEqual({ ...NOBODY, unknown: 2 });
    expect(await store.admit(admitRequest(derived))).toMatchObject({
      kind: 'existing',
      effect: { id: ids[1], idempotencyKey: 'meant:x.2' },
    });
    expect(await store.admit(admitRequest({ idempotencyKey: 'meant:x.1', fingerprint: 'x' }))).toMatchObject({
      kind: 'existing',
      effect: { id: ids[0] },
    });
  });

  it('a key that a caller sent is no generation of another, whatever it ends with', async () => {
    const commit = async (store: EffectStore, idempotencyKey: string): Promise<string> => {
      const { effect } = await dispatched(store, { idempotencyKey });
      await store.settle(settleRequest(effect, committed()));
      return effect.id;
    };
    const { store, made } = await restore(
      (before) => commit(before, 'order'),
      async (since) => {
        await commit(since, 'order.2');
        await commit(since, 'invoice.2');
      },
    );
    expect(await store.admit(admitRequest({ idempotencyKey: 'order' }))).toMatchObject({
      kind: 'existing',
      effect: { id: made, idempotencyKey: 'order' },
    });
    expect(await store.admit(admitRequest({ idempotencyKey: 'invoice' }))).toMatchObject({ kind: 'dispatch' });
  });

  it('what was committed since and has aged keeps its key by its receipt, and what it was asked for is not asked again', async () => {
    const { store, carried, made } = await restore(
      (replaced) => waiting(replaced, { idempotencyKey: 'asked' }),
      async (replaced, { approval }) => {
        await replaced.vote(voteRequest(approval));
        const verdict = permit([budgetOf(100, 60)], [approvalBy()]);
        for (const [key, sent] of [['asked', { verdict }] as const, ['k', {}] as const]) {
          const { effect } = await dispatched(replaced, { idempotencyKey: key, ...sent });
          await replaced.settle(settleRequest(effect, committed(`jws.${key}`, `rcp_${key}`)));
        }
        now += RETENTION.effectsMs + 1;
        await replaced.sweep(100);
      },
    );
    expect(carried).toEqual({ unknown: 1, receipts: 1, fault: null });
    expect(await store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({
      kind: 'expired',
      tombstone: { outcome: { receipt: { id: 'rcp_k', jws: 'jws.k' } } },
    });
    expect(await recordOf(store, made.effect)).toMatchObject({
      attempt: 1,
      life: { state: 'unknown', evidence: { message: expect.stringContaining('rcp_asked') } },
    });
  });

  it('what was paused since is paused, and what was let run again runs', async () => {
    const { store } = await restore(
      async (at) => {
        await dispatched(at, { idempotencyKey: 'k' });
        return at.setPause(pauseRequest({ id: 'pau_before' }));
      },
      async (at) => {
        await at.setPause(pauseRequest({ id: 'pau_since' }));
        await at.liftPause(WORKSPACE, 'pau_before', 'administrative', PERSON);
      },
    );
    expect((await store.pauses(WORKSPACE)).pauses.map(({ id }) => id)).toEqual(['pau_since']);
  });

  it('what cannot be read of the store that is replaced is told, and what was read is brought over', async () => {
    const replaced = emptyRows();
    await dispatched(storeOn(replaced), COSTS);
    const restored = emptyRows();
    const rows = mapStore(restored, () => now);
    const { list, rows: lookUp } = mapStore(replaced, () => now);
    let looks = 0;
    const carried = await carryOver(rows, {
      rows: lookUp,
      list: (query) => ((looks += 1), looks === 3 ? Promise.reject(new Error('a page is damaged')) : list(query)),
    });
    expect(carried).toEqual({ unknown: 1, receipts: 0, fault: 'a page is damaged' });
    expect(await storeOn(restored).admit(admitRequest(COSTS))).toMatchObject({ kind: 'existing' });
    // Newest first: what ran last is the likeliest to be repeated.
    const asked: string[] = [];
    await carryOver(
      mapStore(emptyRows(), () => now),
      {
        rows: lookUp,
        list: (query) => (asked.push(`${query.list} ${query.order}`), list(query)),
      },
    );
    expect(asked.filter((one) => /^(effects|tombstones) /.test(one))).toEqual(['effects down', 'tombstones down']);
    // What cannot be written is no matter of the store that is replaced.
    const full = { ...mapStore(emptyRows(), () => now), commit: () => Promise.reject(new Error('the disk is full')) };
    await expect(carryOver(full, { list, rows: lookUp })).rejects.toThrow('the disk is full');
  });
});

const isoNow = (): string => new Date(now).toISOString();
