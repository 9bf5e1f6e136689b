import { expect, it } from 'vitest';
import type { EffectStore } from '../../src/effects/store.ts';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { pauseRows, policyRows } from '../../src/records/control-rows.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { brainRows } from '../../src/records/entities.ts';
import { apiKeyRows } from '../../src/records/installation.ts';
import type { RowStore, Watched } from '../../src/stores/port.ts';
import { RETENTION } from '../contract/fixture.ts';
import {
  admitRequest,
  approvalBy,
  claimRequest,
  committed,
  dispatched,
  FAILED,
  permit,
  reservationRequest,
  settleRequest,
  UNKNOWN,
  voteRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';

/** Two gateways on one store. What the first one's sweep finds in a list can change before its step for it runs. */
function twoGateways() {
  let now = 1_750_000_000_000;
  const rows = emptyRows();
  const whole = { ...mapStore(rows, () => now), ...ALONE };
  const options = { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 };
  const meanwhile = new Map<string, () => Promise<unknown>>();
  const list: RowStore['list'] = async (query) => {
    const listed = await whole.list(query);
    const act = meanwhile.get(query.kind);
    if (listed.entries.length > 0 && act !== undefined) {
      meanwhile.delete(query.kind);
      await act();
    }
    return listed;
  };
  return {
    sweeping: createEffectStore({ ...whole, list }, options),
    other: createEffectStore(whole, options),
    advance: (ms: number) => void (now += ms),
    /** What happens right after the sweep has found something of this kind. */
    meanwhile: (kind: string, act: () => Promise<unknown>) => void meanwhile.set(kind, act),
    hasHappened: () => meanwhile.size === 0,
  };
}

const DAY = 86_400_000;
const action = { target: 'customer:7' };

async function rejected(store: EffectStore, fingerprint: string, idempotencyKey: string): Promise<void> {
  const verdict = permit([], [approvalBy()]);
  const asked = await store.admit(admitRequest({ fingerprint, idempotencyKey, verdict }));
  if (asked.kind !== 'pending') throw new Error(asked.kind);
  await store.vote(voteRequest(asked.approval, { verdict: 'reject' }));
}

it('a sweep leaves a claim that was taken again since it found it over', async () => {
  const { sweeping, other, advance, meanwhile, hasHappened } = twoGateways();
  await other.takeClaim(claimRequest('customer:7', { ttlMs: 1_000 }));
  advance(10 * DAY);
  meanwhile('claim', () => other.takeClaim(claimRequest('customer:7', { agentId: 'other-bot' })));
  await sweeping.sweep(100);
  expect(hasHappened()).toBe(true);
  expect(await other.claims(WORKSPACE)).toMatchObject([{ agentId: 'other-bot' }]);
  expect(await other.admit(admitRequest({ action }))).toMatchObject({ decision: 'denied_claim' });
});

it('a sweep leaves a rejection that was made again since it found it over', async () => {
  const { sweeping, other, advance, meanwhile, hasHappened } = twoGateways();
  await rejected(other, 'refund of 42', 'first');
  advance(DAY);
  meanwhile('rejection', () => rejected(other, 'refund of 42', 'second'));
  await sweeping.sweep(100);
  expect(hasHappened()).toBe(true);
  const again = admitRequest({ fingerprint: 'refund of 42', verdict: permit([], [approvalBy()]) });
  expect(await other.admit(again)).toMatchObject({ kind: 'refused', reason: { code: 'approval_rejected' } });
});

it('a sweep leaves an effect of which another attempt was made since it found it past its age', async () => {
  const { sweeping, other, advance, meanwhile, hasHappened } = twoGateways();
  const { effect } = await dispatched(other, { idempotencyKey: 'k' });
  await other.settle(settleRequest(effect, FAILED));
  advance(RETENTION.effectsMs + 1);
  meanwhile('effect', async () => {
    const again = await dispatched(other, { idempotencyKey: 'k' });
    await other.settle(settleRequest(again.effect, committed()));
  });
  await sweeping.sweep(100);
  expect(hasHappened()).toBe(true);
  expect(await other.effect(WORKSPACE, effect.id)).toMatchObject({ attempt: 2, life: { state: 'committed' } });
});

it.each([
  ['demo', 'other'],
  ['other', 'demo'],
])(
  'a sweep tells since when an outcome is unknown, and how many are past their age, in all workspaces: %s',
  async (first, second) => {
    const { other, advance } = twoGateways();
    const made: number[] = [];
    for (const workspace of [first, second]) {
      const { effect } = await dispatched(other, { workspace });
      await other.settle(settleRequest(effect, UNKNOWN));
      made.push(effect.createdAt);
      advance(60_000);
    }
    expect(await other.sweep(100)).toMatchObject({ oldestUnknown: made[0], unsettled: 0 });
    advance(RETENTION.effectsMs);
    expect(await other.sweep(100)).toMatchObject({ oldestUnknown: made[0], unsettled: 2 });
  },
);

it('granted requests are found in all workspaces, and no more than were asked for', async () => {
  const { other } = twoGateways();
  const verdict = permit([], [approvalBy()]);
  for (const workspace of ['demo', 'elsewhere'])
    for (let n = 0; n < 2; n += 1) {
      const asked = await other.admit(admitRequest({ workspace, verdict }));
      if (asked.kind !== 'pending') throw new Error(asked.kind);
      await other.vote(voteRequest(asked.approval, { workspace }));
    }
  const found = async (limit: number) => (await other.grantedApprovals(limit)).map(({ workspace }) => workspace);
  expect(await found(100)).toEqual(['demo', 'demo', 'elsewhere', 'elsewhere']);
  expect(await found(3)).toEqual(['demo', 'demo', 'elsewhere']);
});

it('whoever listens hears what a store says, also where it says only that some of it may have been missed', async () => {
  let say: (changed: Watched) => void = () => undefined;
  const whole = { ...mapStore(emptyRows(), () => 1_000), ...ALONE };
  const options = { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 };
  const store = createEffectStore({ ...whole, watch: (_, listener) => void (say = listener) }, options);
  await dispatched(store);
  const heard: unknown[] = [];
  store.onKeysChanged((handles) => heard.push(handles));
  store.onPolicyChanged(() => heard.push('policies'));
  store.onPausesChanged((workspace) => heard.push(`pauses of ${workspace}`));
  store.onEntitiesChanged((workspace) => heard.push(`entities of ${workspace}`));
  const heardOf = (kind: string, workspace: string | null, id: string | null): readonly unknown[] => {
    say({ kind, workspace, id });
    return heard.splice(0);
  };
  expect(heardOf(apiKeyRows.kind, INSTALLATION, 'key_abc')).toEqual([['abc']]);
  expect(heardOf(apiKeyRows.kind, null, null)).toEqual([null]);
  for (const workspace of [INSTALLATION, null]) expect(heardOf(policyRows.kind, workspace, null)).toEqual(['policies']);
  // Those of workspaces follow the one of the installation.
  expect(heardOf(policyRows.kind, WORKSPACE, 'only')).toEqual([]);
  expect(heardOf(pauseRows.kind, 'other', 'only')).toEqual(['pauses of other']);
  expect(heardOf(pauseRows.kind, null, null)).toEqual([`pauses of ${WORKSPACE}`]);
  expect(heardOf(brainRows.kind, 'other', 'only')).toEqual(['entities of other']);
  expect(heardOf(brainRows.kind, null, null)).toEqual([`entities of ${WORKSPACE}`]);
});

it('what was given back since a sweep found it over is given back once', async () => {
  const { sweeping, other, advance, meanwhile, hasHappened } = twoGateways();
  const made = await other.makeReservation(reservationRequest({ units: 4, ttlMs: 1_000 }));
  if (made.kind !== 'made') throw new Error(made.kind);
  advance(1_000);
  meanwhile('reservation', () => other.sweep(100));
  await sweeping.sweep(100);
  expect(hasHappened()).toBe(true);
  expect(await other.makeReservation(reservationRequest({ units: 4 }))).toMatchObject({ kind: 'made' });
  expect(await other.makeReservation(reservationRequest({ units: 1 }))).toMatchObject({ kind: 'full' });
});

it('a key that was bound again belongs to what it is bound to, when the tombstone of before is over', async () => {
  const { sweeping, other, advance, meanwhile, hasHappened } = twoGateways();
  const first = await dispatched(other, { idempotencyKey: 'k' });
  await other.settle(settleRequest(first.effect, FAILED));
  advance(RETENTION.effectsMs + 1);
  await other.sweep(100);
  // A failed one that has aged gives its key to a new effect.
  const second = await dispatched(other, { idempotencyKey: 'k' });
  expect(second.effect.id).not.toBe(first.effect.id);
  await other.settle(settleRequest(second.effect, committed()));
  advance(RETENTION.keysMs - RETENTION.effectsMs);
  meanwhile('effect', async () => undefined);
  await sweeping.sweep(100);
  expect(hasHappened()).toBe(true);
  expect(await other.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({
    kind: 'expired',
    tombstone: { id: second.effect.id },
  });
});
