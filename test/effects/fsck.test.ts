import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it, test } from 'vitest';
import { checkWorkspace, Audit } from '../../src/effects/upkeep/fsck.ts';
import type { JsonObject } from '../../src/json/value.ts';
import type { KeyRecord } from '../../src/effects/model/key.ts';
import { admitStep } from '../../src/effects/steps/admission.ts';
import { stateAfter } from '../../src/effects/steps/ledger-states.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { emptyState, viewOf } from '../contract/map-view.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { RETENTION } from '../contract/fixture.ts';
import {
  admitRequest,
  approvalBy,
  claimRequest,
  committed,
  dispatched,
  FAILED,
  keyRecord,
  permit,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';
import type { LedgerEvent, LedgerKind } from '../../src/effects/model/ledger.ts';

function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
}

let seq = 0;
function event(kind: LedgerKind, effectId: string, data: JsonObject = {}, at = 1000): LedgerEvent {
  seq += 1;
  return { seq, id: `evt_${seq}`, at, kind, effectId, actor: { type: 'gateway', id: 'g' }, data };
}

const holds = (amount: number, window = 'c:0:9000'): JsonObject => ({
  holds: [{ budget: 'day', unit: 'coin', bucket: 'all', window, amount }],
});

const row = (spent: number, held: number, window = 'c:0:9000') => ({
  budget: 'day',
  unit: 'coin',
  bucket: 'all',
  window,
  limit: 100,
  spent,
  held,
  resetsAt: null,
});

it('a key that was set free behind the store, and a record that is gone too soon, are named', async () => {
  const rows = emptyRows();
  const store = createEffectStore(
    { ...mapStore(rows, () => 1_750_000_000_000), ...ALONE },
    { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
  const { effect } = await dispatched(store);
  await store.settle(settleRequest(effect, committed()));
  const failed = (await dispatched(store)).effect;
  await store.settle(settleRequest(failed, FAILED));
  const asked = await store.admit(admitRequest({ verdict: permit([], [approvalBy()]) }));
  if (asked.kind !== 'pending') throw new Error('somebody is asked');
  await store.vote(voteRequest(asked.approval, { verdict: 'reject' }));
  const settled = [effect, failed, asked.effect];
  expect(await checkWorkspace(store, WORKSPACE, 1e9)).toEqual([]);
  const bound = { ...store, boundTo: async () => null };
  expect(await checkWorkspace(bound, WORKSPACE, 1e9)).toEqual(
    settled
      .toReversed()
      .map(({ id, idempotencyKey }) => ({ what: 'binding', where: id, ledger: idempotencyKey, store: 'nothing' })),
  );
  const gone = { ...store, effects: async () => ({ items: [], next: null }) };
  expect(await checkWorkspace(gone, WORKSPACE, 1e9)).toEqual(
    settled.map(({ id }) => ({ what: 'binding', where: id, ledger: 'a record', store: 'nothing' })),
  );
  // After its time a record may be gone.
  expect(await checkWorkspace(gone, WORKSPACE)).toEqual([]);
  await store.close();
});

it('of pages of the ledger nothing stays but ids, also where these are cut out of a page', () => {
  const audit = new Audit();
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  for (let page = 0; page < 100; page += 1) {
    const text = `${page} ${'x'.repeat(500_000)}`.padEnd(1_000_000, `eff_${String(page).padStart(22, '0')} `);
    audit.add(event('effect.admitted', text.slice(-27, -1)));
  }
  collectGarbage();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(20_000_000);
  expect(audit.open().size).toBe(100);
});

it('of records it has one page at a time, and a record that is not settled and is gone is named', async () => {
  const rows = emptyRows();
  const store = createEffectStore(
    { ...mapStore(rows, () => 1_750_000_000_000), ...ALONE },
    { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
  const all: string[] = [];
  for (let made = 0; made < 250; made += 1)
    all.push((await dispatched(store, { idempotencyKey: `k${made}` })).effect.id);
  const held = new Set<WeakRef<object>>();
  let pages = 0;
  let most = 0;
  const paged: typeof store = {
    ...store,
    async effects(...asked) {
      pages += 1;
      const { items, next } = await store.effects(...asked);
      // The store remembers its own.
      const copies = items.map((item) => ({ ...item }));
      for (const copy of copies) held.add(new WeakRef(copy));
      return { items: copies, next };
    },
    async boundTo(...asked) {
      // What is still referred to is not collected, whatever is done.
      if (pages === 3 && most === 0) {
        await new Promise((resume) => setImmediate(resume));
        collectGarbage();
        most = [...held].filter((one) => one.deref() !== undefined).length;
      }
      return store.boundTo(...asked);
    },
  };
  expect(await checkWorkspace(paged, WORKSPACE)).toEqual([]);
  expect([pages, held.size]).toEqual([3, 250]);
  expect(most).toBeLessThan(200);
  const without = {
    ...store,
    effects: async (...asked: Parameters<typeof store.effects>) => {
      const page = await store.effects(...asked);
      return { ...page, items: page.items.filter(({ id }) => id !== all[7]) };
    },
  };
  expect(await checkWorkspace(without, WORKSPACE)).toEqual([
    { what: 'state', where: all[7], ledger: 'executing', store: 'nothing' },
  ]);
  await store.close();
});

it('figures of caps are compared with the claims on record', async () => {
  const rows = emptyRows();
  const store = createEffectStore(
    { ...mapStore(rows, () => 1_750_000_000_000), ...ALONE },
    { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
  await store.takeClaim(claimRequest('customer:7'));
  expect(await checkWorkspace(store, WORKSPACE)).toEqual([]);
  for (const counter of rows.spaces.get(WORKSPACE)?.counters.values() ?? []) counter.held += 2;
  expect(await checkWorkspace(store, WORKSPACE)).toEqual([
    { what: 'cap', where: 'claims_of_agent support-bot', ledger: '1', store: '3' },
    { what: 'cap', where: 'claims_of_key key_agent0000001', ledger: '1', store: '3' },
  ]);
  await store.close();
});

describe('figures from the ledger', () => {
  it('held, posted, voided, overdrawn', () => {
    const audit = new Audit();
    for (const one of [
      event('budget.held', 'a', holds(5)),
      event('budget.posted', 'a', holds(5)),
      event('budget.held', 'b', holds(7)),
      event('budget.voided', 'b', holds(7)),
      event('budget.overdraft', 'b', holds(7)),
      event('budget.held', 'c', holds(3)),
    ])
      audit.add(one);
    expect(audit.compareRows([row(12, 3)], 2000)).toEqual([]);
    expect(audit.compareRows([row(11, 4)], 2000)).toEqual([
      { what: 'held', where: 'day all c:0:9000', ledger: '3', store: '4' },
      { what: 'spent', where: 'day all c:0:9000', ledger: '12', store: '11' },
    ]);
    expect(audit.compareRows([], 2000)).toHaveLength(2);
    // The window is over.
    expect(audit.compareRows([], 9000)).toEqual([]);
  });

  it('what was spent less than it was held, and what a later attempt took over', () => {
    const audit = new Audit();
    const [held] = holds(5)['holds'] as readonly JsonObject[];
    audit.add(event('budget.held', 'a', holds(5)));
    audit.add(event('budget.posted', 'a', { holds: [{ ...held, posted: 2 }] }));
    audit.add(event('budget.held', 'b', holds(5)));
    audit.add(event('budget.held', 'b', { ...holds(7), taken_over: holds(5)['holds'] ?? [] }));
    expect(audit.compareRows([row(2, 7)], 2000)).toEqual([]);
  });

  it('windows that were over as the check began are left out, and so is what a rolling one has forgotten', () => {
    const audit = new Audit(1_500_000);
    audit.add(event('budget.posted', 'a', holds(5), 1000));
    audit.add(event('budget.posted', 'b', holds(7, 'c:0:9000000'), 1000));
    audit.add(event('budget.posted', 'old', holds(50, 'r:1000000'), 1000));
    audit.add(event('budget.posted', 'new', holds(5, 'r:1000000'), 900_000));
    // Asked as of earlier, they would count.
    expect(audit.compareRows([row(7, -7, 'c:0:9000000'), row(5, -55, 'r:1000000')], 2000)).toEqual([]);
  });

  it('are forgotten where a budget is begun anew', () => {
    const audit = new Audit();
    for (const window of ['c:0:9000', 'r:1000000']) audit.add(event('budget.posted', 'a', holds(5, window)));
    audit.add({ ...event('budget.reset', '', { budgets: ['day'] }), effectId: null });
    expect(audit.compareRows([row(0, -5), row(0, -5, 'r:1000000')], 2000)).toEqual([]);
  });

  it('a row that the ledger knows nothing of', () => {
    const found = new Audit().compareRows([row(5, 4)], 2000);
    expect(found).toEqual([
      { what: 'held', where: 'day all c:0:9000', ledger: '0', store: '4' },
      { what: 'spent', where: 'day all c:0:9000', ledger: '0', store: '5' },
    ]);
  });

  it('a rolling window forgets what is older, give or take a slot', () => {
    const audit = new Audit();
    const window = 'r:1000000';
    audit.add(event('budget.posted', 'old', holds(50, window), 1000));
    audit.add(event('budget.posted', 'new', holds(5, window), 900_000));
    const spent = (counter: number) =>
      audit.compareRows([row(counter, -55, window)], 1_500_000).filter(({ what }) => what === 'spent');
    expect(spent(5)).toEqual([]);
    expect(spent(55)).toHaveLength(1);
    expect(spent(0)).toHaveLength(1);
  });
});

describe('states from the ledger', () => {
  const stateOf = (...kinds: readonly (readonly [LedgerKind, JsonObject?])[]): string | undefined => {
    const audit = new Audit();
    for (const [kind, data] of kinds) audit.add(event(kind, 'e', data));
    return audit.open().get('e');
  };

  it.each([
    ['executing', [['effect.admitted']]],
    ['unknown', [['effect.admitted'], ['execution.lost']]],
    ['unknown', [['effect.admitted'], ['execution.failed', { recorded_as: 'unknown' }]]],
    ['unknown', [['effect.admitted'], ['execution.lost'], ['execution.failed', { recorded_as: 'unknown' }]]],
    [undefined, [['effect.admitted'], ['execution.lost'], ['execution.lost', { recorded_as: 'failed' }]]],
    ['pending_approval', [['approval.requested']]],
    [undefined, [['effect.admitted'], ['execution.succeeded']]],
    [undefined, [['effect.admitted'], ['execution.lost'], ['effect.resolved', { outcome: 'happened' }]]],
    ['unknown', [['effect.admitted'], ['execution.lost'], ['effect.denied']]],
  ] as const)('%s', (state, kinds) => {
    expect(stateOf(...kinds)).toBe(state);
  });
});

it.each([
  ['unknown', 'effect.resolved', { outcome: 'happened' }, 'committed'],
  ['unknown', 'effect.resolved', { outcome: 'not_happened' }, 'failed'],
  ['unknown', 'effect.reconciled', { outcome: 'happened' }, 'committed'],
  ['unknown', 'effect.reconciled', { outcome: 'not_happened' }, 'failed'],
  // A repetition that is refused leaves what the key is bound to as it is; an attempt that is refused does not.
  ['failed', 'effect.denied', {}, 'failed'],
  ['failed', 'effect.denied', { attempt: 2 }, 'denied'],
] as const)('what was %s is after %s %j %s', (before, kind, data, after) => {
  expect(stateAfter(before, { kind, data })).toBe(after);
});

test.each(['effect.denied', 'effect.conflict'] as const)('after %s an effect is denied', (kind) => {
  const audit = new Audit();
  audit.add(event(kind, 'a'));
  const reason = { code: 'key_reused', message: '' } as const;
  const life = { state: 'denied', at: 0, decision: 'idempotency_conflict', reason, mismatches: [] } as const;
  expect(audit.compareEffects([{ ...admitted(), id: 'a', holdState: 'none', life }])).toEqual([]);
});

/** An effect as admission makes it. */
function admitted(): EffectRecord {
  const versions = { policy: '', pauses: 0 };
  const admission = admitStep(viewOf(emptyState(versions), 0), admitRequest({ seen: versions })).reply;
  if (admission.kind !== 'dispatch') throw new Error('the call is admitted');
  return admission.effect;
}

describe('holds of effects', () => {
  it('that were given back are none, also where another attempt waits that holds nothing yet', () => {
    const audit = new Audit();
    audit.add(event('budget.held', 'a', holds(5)));
    audit.add(event('budget.voided', 'a', holds(5)));
    const effect = admitted();
    const effectWith = (holdState: EffectRecord['holdState']): EffectRecord => ({ ...effect, id: 'a', holdState });
    const differing = (holdState: EffectRecord['holdState']) =>
      audit.compareEffects([effectWith(holdState)]).filter(({ what }) => what === 'holds');
    expect(differing('voided')).toEqual([]);
    expect(differing('none')).toEqual([]);
    expect(differing('held')).toHaveLength(1);
    expect(differing('posted')).toHaveLength(1);
  });
});

describe('keys', () => {
  const made = keyRecord({ id: 'key_a' });
  const found = (events: readonly LedgerEvent[], keys: readonly KeyRecord[]) => {
    const audit = new Audit();
    for (const one of events) audit.add(one);
    return audit.compareKeys(keys);
  };
  const created = event('key.created', '', { key_id: 'key_a' });

  it('are as the ledger says: there, and ended where they were ended', () => {
    expect(found([created], [made])).toEqual([]);
    expect(found([created, event('key.revoked', '', { key_id: 'key_a' })], [{ ...made, revokedAt: 1 }])).toEqual([]);
    const rotated = event('key.rotated', '', { key_id: 'key_a' });
    expect(found([created, rotated], [{ ...made, replacedBy: 'key_b' }])).toEqual([]);
    expect(found([created, rotated], [{ ...made, replacedBy: 'key_b', revokedAt: 5 }])).toEqual([]);
  });

  it('that the ledger ended and the store still takes, or lost, differ', () => {
    const revoked = event('key.revoked', '', { key_id: 'key_a' });
    expect(found([created, revoked], [made])).toEqual([
      { what: 'key', where: 'key_a', ledger: 'revoked', store: 'created' },
    ]);
    expect(found([created], [])).toEqual([{ what: 'key', where: 'key_a', ledger: 'created', store: 'nothing' }]);
    expect(found([created, event('key.rotated', '', { key_id: 'key_a' })], [made])).toHaveLength(1);
    expect(found([created], [{ ...made, revokedAt: 1 }])).toHaveLength(1);
  });
});

describe('passkeys', () => {
  const added = event('passkey.added', '', { passkey_id: 'psk_a', user: 'maria' });
  const removed = event('passkey.removed', '', { passkey_id: 'psk_a', user: 'maria' });
  const found = (events: readonly LedgerEvent[], ids: readonly string[]) => {
    const audit = new Audit();
    for (const one of events) audit.add(one);
    expect([...audit.usersWithPasskeys()]).toEqual(['maria']);
    return audit.comparePasskeys(new Set(ids));
  };

  it('are as the ledger says: one that is lost, and one that came back, differ', () => {
    expect(found([added], ['psk_a'])).toEqual([]);
    expect(found([added, removed], [])).toEqual([]);
    expect(found([added, removed, added], ['psk_a'])).toEqual([]);
    expect(found([added], [])).toEqual([
      { what: 'passkey', where: 'psk_a', ledger: 'a passkey of maria', store: 'nothing' },
    ]);
    expect(found([added, removed], ['psk_a'])).toEqual([
      { what: 'passkey', where: 'psk_a', ledger: 'none, it was removed', store: 'a passkey of maria' },
    ]);
  });

  it('that a vote names are as they were before it', () => {
    const voted = event('approval.granted', 'eff_a', { passkey_id: 'psk_a', user: 'maria' });
    expect(found([added, voted], ['psk_a'])).toEqual([]);
    expect(found([added, voted], [])).toHaveLength(1);
    expect(found([added, removed, voted], [])).toEqual([]);
  });
});
