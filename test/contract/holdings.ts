import { describe, expect, it } from 'vitest';
import { MOST_PAUSES, type PauseRecord } from '../../src/effects/model/pause.ts';
import type { Obligation } from '../../src/effects/model/verdict.ts';
import type { EffectStore } from '../../src/effects/store.ts';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  AGENT,
  claimRequest,
  committed,
  dispatched,
  newId,
  leaseOf,
  pauseRequest,
  permit,
  PERSON,
  reservationRequest,
  resolveRequest,
  settleRequest,
  UNKNOWN,
  WORKSPACE,
} from './requests.ts';

const CLAIM: Extract<Obligation, { kind: 'claim' }> = {
  kind: 'claim',
  rule: 'crm/one-at-a-time',
  target: 'customer:7',
  hold: 'call',
};
const OTHER = { agentId: 'other-bot' };

export function describeHoldings(open: OpenStore, capabilities: Capabilities): void {
  describe('claims', () => {
    const at = useStore(open, capabilities);

    it('has in the ledger who holds what, and until when', async () => {
      const claim = await at.store.takeClaim(claimRequest('customer:7', OTHER));
      const reserved = await at.store.makeReservation(reservationRequest({ agentId: 'other-bot', units: 2 }));
      if (claim.kind !== 'made' || reserved.kind !== 'made') throw new Error('both are free');
      const { id: claim_id, expiresAt } = claim.claim;
      const events = await at.store.ledger(WORKSPACE, 0, 10);
      expect(events.map(({ kind, data }) => [kind, data])).toEqual([
        [
          'claim.taken',
          { claim_id, target: 'customer:7', agent_id: 'other-bot', expires_at: new Date(expiresAt).toISOString() },
        ],
        ['reservation.made', { reservation_id: reserved.reservation.id, pool: 'gpu', units: 2, agent_id: 'other-bot' }],
      ]);
    });

    it('gives a target to one agent at a time', async () => {
      const taken = await at.store.takeClaim(claimRequest('customer:7'));
      if (taken.kind !== 'made') throw new Error(taken.kind);
      expect(await at.store.takeClaim(claimRequest('customer:7', OTHER))).toEqual({ kind: 'held', claim: taken.claim });
      expect(await at.store.claim(WORKSPACE, taken.claim.id)).toEqual(taken.claim);
      expect(await at.store.claims(WORKSPACE)).toEqual([taken.claim]);
    });

    it('lets one of many concurrent agents have it', async () => {
      const answers = await Promise.all(
        Array.from({ length: 30 }, (_, n) => at.store.takeClaim(claimRequest('customer:7', { agentId: `bot-${n}` }))),
      );
      expect(answers.filter(({ kind }) => kind === 'made')).toHaveLength(1);
    });

    it('gives the holder its own claim again', async () => {
      const first = await at.store.takeClaim(claimRequest('customer:7'));
      const second = await at.store.takeClaim(claimRequest('customer:7', { ttlMs: 120_000 }));
      if (first.kind !== 'made' || second.kind !== 'made') throw new Error('not made');
      expect(second.claim.id).toBe(first.claim.id);
      expect(second.claim.expiresAt).toBeGreaterThan(first.claim.expiresAt);
    });

    it('is not shortened by being taken again', async () => {
      const first = await at.store.takeClaim(claimRequest('customer:7', { ttlMs: 120_000 }));
      const second = await at.store.takeClaim(claimRequest('customer:7', { ttlMs: 1_000 }));
      if (first.kind !== 'made' || second.kind !== 'made') throw new Error('not made');
      expect(second.claim.expiresAt).toBe(first.claim.expiresAt);
    });

    it('is free again once released', async () => {
      const taken = await at.store.takeClaim(claimRequest('customer:7'));
      if (taken.kind !== 'made') throw new Error(taken.kind);
      expect(await at.store.releaseClaim('other', taken.claim.id, AGENT)).toBeNull();
      expect(await at.store.releaseClaim(WORKSPACE, taken.claim.id, AGENT)).toMatchObject({ id: taken.claim.id });
      expect(await at.store.releaseClaim(WORKSPACE, taken.claim.id, AGENT)).toBeNull();
      expect(await at.store.takeClaim(claimRequest('customer:7', OTHER))).toMatchObject({ kind: 'made' });
    });

    at.timed('is over when its time is, and can be prolonged before', async () => {
      const taken = await at.store.takeClaim(claimRequest('customer:7', { ttlMs: 1_000 }));
      if (taken.kind !== 'made') throw new Error(taken.kind);
      at.advance(999);
      expect(await at.store.renewClaim(WORKSPACE, taken.claim.id, 1_000, AGENT)).toMatchObject({
        expiresAt: at.now() + 1_000,
      });
      at.advance(1_000);
      expect(await at.store.renewClaim(WORKSPACE, taken.claim.id, 1_000, AGENT)).toBeNull();
      expect(await at.store.claims(WORKSPACE)).toEqual([]);
      expect(await at.store.takeClaim(claimRequest('customer:7', OTHER))).toMatchObject({ kind: 'made' });
    });

    it('gives a key at most a hundred, for whichever agents, and counts those that are in force', async () => {
      const keyId = 'key_acct00000001';
      const take = (n: number, more: { keyId?: string } = {}) =>
        at.store.takeClaim(claimRequest(`customer:${n}`, { agentId: `bot-${Math.floor(n / 20)}`, keyId, ...more }));
      const taken = await Promise.all(Array.from({ length: 100 }, (_, n) => take(n)));
      expect(new Set(taken.map(({ kind }) => kind))).toEqual(new Set(['made']));
      const full = { kind: 'too_many', of: 'key', limit: 100 };
      expect(await take(100)).toEqual(full);
      // What the key has is prolonged; another key is not counted, and neither is what was given back.
      expect(await take(99)).toMatchObject({ kind: 'made' });
      expect(await take(101, { keyId: 'key_acct00000002' })).toMatchObject({ kind: 'made' });
      expect(await take(101)).toEqual(full);
      const [first] = taken;
      if (first?.kind !== 'made') throw new Error('not made');
      await at.store.releaseClaim(WORKSPACE, first.claim.id, AGENT);
      expect(await take(101)).toMatchObject({ kind: 'made', claim: { keyId } });
      expect(await take(102)).toEqual(full);
    });

    it('gives an agent at most twenty, however many it asks for at once', async () => {
      const answers = await Promise.all(
        Array.from({ length: 60 }, (_, n) => at.store.takeClaim(claimRequest(`customer:${n}`))),
      );
      expect(answers.filter(({ kind }) => kind === 'made')).toHaveLength(20);
      for (const answer of answers)
        if (answer.kind !== 'made') expect(answer).toEqual({ kind: 'too_many', of: 'agent', limit: 20 });
      expect(await at.store.claims(WORKSPACE)).toHaveLength(20);
      expect(await checkWorkspace(at.store, WORKSPACE)).toEqual([]);
    });

    at.timed('counts a claim for as long as it was prolonged', async () => {
      const take = (n: number, ttlMs: number) => at.store.takeClaim(claimRequest(`customer:${n}`, { ttlMs }));
      for (const ttlMs of [1_000, 10_000])
        for (let n = 0; n < 20; n += 1) expect(await take(n, ttlMs)).toMatchObject({ kind: 'made' });
      at.advance(9_999);
      expect(await take(20, 1_000)).toEqual({ kind: 'too_many', of: 'agent', limit: 20 });
      at.advance(1);
      expect(await take(20, 1_000)).toMatchObject({ kind: 'made' });
    });

    it('counts no claim that a call takes for itself, or has under another', async () => {
      const running = await Promise.all(
        Array.from({ length: 30 }, (_, n) => {
          const target = `account:${n}`;
          return dispatched(at.store, { verdict: permit([{ ...CLAIM, target }]), action: { target } });
        }),
      );
      expect(await at.store.capCounts(WORKSPACE)).toEqual([]);
      const take = (n: number) => at.store.takeClaim(claimRequest(`customer:${n}`));
      for (let n = 0; n < 20; n += 1) expect(await take(n)).toMatchObject({ kind: 'made' });
      const { effect } = await dispatched(at.store, { action: { target: 'customer:3' } });
      expect(await take(20)).toMatchObject({ kind: 'too_many' });
      for (const each of [...running.map((one) => one.effect), effect])
        await at.store.settle(settleRequest(each, committed()));
      expect(await take(20)).toMatchObject({ kind: 'too_many' });
      expect(await at.store.capCounts(WORKSPACE)).toContainEqual({
        cap: 'claims_of_agent support-bot',
        counter: 20,
        oneByOne: 20,
      });
      expect(await checkWorkspace(at.store, WORKSPACE)).toEqual([]);
    });

    it('counts a claim no more once it is released, also while a call runs under it', async () => {
      const take = (n: number) => at.store.takeClaim(claimRequest(`customer:${n}`));
      const [first] = await Promise.all(Array.from({ length: 20 }, (_, n) => take(n)));
      if (first?.kind !== 'made') throw new Error('not made');
      const { effect } = await dispatched(at.store, { action: { target: 'customer:0' } });
      expect(await take(20)).toMatchObject({ kind: 'too_many' });
      await at.store.releaseClaim(WORKSPACE, first.claim.id, AGENT);
      expect(await take(20)).toMatchObject({ kind: 'made' });
      await at.store.settle(settleRequest(effect, committed()));
      expect(await take(21)).toMatchObject({ kind: 'too_many' });
      expect(await checkWorkspace(at.store, WORKSPACE)).toEqual([]);
    });

    at.timed('counts no claim whose time is over, although nothing was swept; sweeps give back the rest', async () => {
      const take = (n: number, ttlMs = 60_000) => at.store.takeClaim(claimRequest(`customer:${n}`, { ttlMs }));
      for (let n = 0; n < 20; n += 1) await take(n, n < 18 ? 1_000 : 60_000);
      const { effect } = await dispatched(at.store, { action: { target: 'customer:0' } });
      expect(await take(20)).toMatchObject({ kind: 'too_many' });
      at.advance(999);
      expect(await take(20)).toMatchObject({ kind: 'too_many' });
      at.advance(1);
      const answers = await Promise.all(Array.from({ length: 40 }, (_, n) => take(100 + n)));
      expect(answers.filter(({ kind }) => kind === 'made')).toHaveLength(18);
      expect(await checkWorkspace(at.store, WORKSPACE)).toEqual([]);
      await at.store.settle(settleRequest(effect, committed()));
      at.advance(60_000);
      await at.store.sweep(100);
      expect(await at.store.capCounts(WORKSPACE)).toEqual([]);
      expect(await checkWorkspace(at.store, WORKSPACE)).toEqual([]);
    });

    at.timed('counts a claim that is over for nobody when another agent or key takes the target', async () => {
      await at.store.takeClaim(claimRequest('customer:7', { ttlMs: 1_000 }));
      at.advance(1_000);
      await at.store.takeClaim(claimRequest('customer:7', { ...OTHER, keyId: 'key_agent0000002' }));
      const counts = await at.store.capCounts(WORKSPACE);
      const full = counts.map(({ cap, counter }) => `${cap} ${counter}`).toSorted();
      expect(full).toEqual(['claims_of_agent other-bot 1', 'claims_of_key key_agent0000002 1']);
      expect(await checkWorkspace(at.store, WORKSPACE)).toEqual([]);
    });

    it('keeps other agents’ calls off a claimed target', async () => {
      await at.store.takeClaim(claimRequest('customer:7'));
      const action = { target: 'customer:7' };
      expect(await at.store.admit(admitRequest({ action, actor: OTHER }))).toMatchObject({
        kind: 'refused',
        decision: 'denied_claim',
      });
      expect(await at.store.admit(admitRequest({ action }))).toMatchObject({ kind: 'dispatch' });
    });

    it('asks for a claim that is held already, where the rule says so: the call takes none by itself', async () => {
      const verdict = permit([{ ...CLAIM, hold: 'existing' }]);
      const without = await at.store.admit(admitRequest({ verdict }));
      expect(without).toMatchObject({ decision: 'denied_claim', reason: { code: 'claim_required' } });
      expect(await at.store.claims(WORKSPACE)).toEqual([]);
      const { effect } = await dispatched(at.store, { verdict: permit([CLAIM]) });
      // One that lives by another call alone is no claim that is held.
      const beside = await at.store.admit(admitRequest({ verdict }));
      expect(beside).toMatchObject({ reason: { code: 'claim_required' } });
      await at.store.settle(settleRequest(effect, committed()));
      await at.store.takeClaim(claimRequest('customer:7'));
      await dispatched(at.store, { verdict });
    });

    it('holds a target for a call from admission to settlement', async () => {
      const { effect } = await dispatched(at.store, { verdict: permit([CLAIM]) });
      const other = { verdict: permit([CLAIM]), actor: OTHER };
      expect(await at.store.admit(admitRequest(other))).toMatchObject({ decision: 'denied_claim' });
      await at.store.settle(settleRequest(effect, committed()));
      expect(await at.store.claims(WORKSPACE)).toEqual([]);
      await dispatched(at.store, other);
    });

    at.timed('holds it for an unknown effect until that is quiet', async () => {
      const { effect } = await dispatched(at.store, { verdict: permit([CLAIM]) });
      await at.store.settle(settleRequest(effect, UNKNOWN));
      const other = { verdict: permit([CLAIM]), actor: OTHER };
      at.advance(60_000);
      const refused = await at.store.admit(admitRequest(other));
      expect(refused).toMatchObject({ decision: 'denied_claim' });
      at.advance((refused.kind === 'refused' ? (refused.retryAfterMs ?? 0) : 0) - 1);
      // Nobody is told to ask again at once.
      expect(await at.store.admit(admitRequest(other))).toMatchObject({
        decision: 'denied_claim',
        retryAfterMs: 1_000,
      });
      at.advance(1);
      await dispatched(at.store, other);
    });
  });

  describe('claims of calls that run', () => {
    const at = useStore(open, capabilities);
    const action = { target: 'customer:7' };
    const take = (overrides: Parameters<typeof claimRequest>[1] = {}) =>
      at.store.takeClaim(claimRequest('customer:7', overrides));

    at.timed('outlive their time while a call runs, also when they were taken again meanwhile', async () => {
      await take({ ttlMs: 1_000 });
      const { effect } = await dispatched(at.store, { action });
      expect(await take({ ttlMs: 1_000 })).toMatchObject({ claim: { runningEffects: [effect.id] } });
      at.advance(2_000);
      expect(await take(OTHER)).toMatchObject({ kind: 'held' });
      await at.store.settle(settleRequest(effect, committed()));
      expect(await take(OTHER)).toMatchObject({ kind: 'made' });
    });

    it('keep others out until the last of the calls that run under them is settled', async () => {
      await take();
      const [one, two] = [await dispatched(at.store, { action }), await dispatched(at.store, { action })];
      const [mine] = await at.store.claims(WORKSPACE);
      await at.store.releaseClaim(WORKSPACE, mine?.id ?? '', AGENT);
      await at.store.settle(settleRequest(one.effect, committed()));
      expect(await take(OTHER)).toMatchObject({ kind: 'held', claim: { runningEffects: [two.effect.id] } });
      await at.store.settle(settleRequest(two.effect, committed()));
      expect(await take(OTHER)).toMatchObject({ kind: 'made' });
    });

    it('keep others out for every call of their agent on the target, also one whose rules ask for no claim', async () => {
      const { effect } = await dispatched(at.store, { verdict: permit([CLAIM]), action: { target: CLAIM.target } });
      const beside = await dispatched(at.store, { action: { target: CLAIM.target } });
      await at.store.settle(settleRequest(effect, committed()));
      const other = { actor: OTHER, action: { target: CLAIM.target } };
      expect(await at.store.admit(admitRequest(other))).toMatchObject({ decision: 'denied_claim' });
      await at.store.settle(settleRequest(beside.effect, committed()));
      await dispatched(at.store, other);
    });

    at.timed('are left alone by a call that had the target before them', async () => {
      const { effect } = await dispatched(at.store, { verdict: permit([CLAIM]) });
      await at.store.settle(settleRequest(effect, UNKNOWN));
      const unknown = await at.store.effect(WORKSPACE, effect.id);
      at.setClock(unknown?.life.state === 'unknown' ? unknown.life.lease.quiesceUntil : 0);
      const running = await dispatched(at.store, { verdict: permit([CLAIM]), actor: OTHER });
      await at.store.settle(settleRequest(effect, committed()));
      expect(await take()).toMatchObject({ kind: 'held', claim: { runningEffects: [running.effect.id] } });
    });

    at.timed('are free when a person settles the call before anybody has declared it lost', async () => {
      const { effect } = await dispatched(at.store, { verdict: permit([CLAIM]) });
      at.advance(200_000);
      expect(await at.store.resolve(resolveRequest(effect, 'not_happened'))).toMatchObject({ kind: 'resolved' });
      expect(await at.store.claims(WORKSPACE)).toEqual([]);
      await dispatched(at.store, { verdict: permit([CLAIM]), actor: OTHER });
    });

    at.timed('are taken anew by a call that is repeated in the step that finds it lost', async () => {
      const again = { idempotencyKey: 'k', times: { idempotentForMs: 600_000 }, verdict: permit([CLAIM]) };
      await dispatched(at.store, again);
      at.advance(200_000);
      const { effect } = await dispatched(at.store, again);
      expect(effect).toMatchObject({ attempt: 2, claims: ['customer:7'] });
      expect(await take(OTHER)).toMatchObject({ kind: 'held', claim: { runningEffects: [effect.id] } });
      await at.store.settle(settleRequest(effect, committed()));
      expect(await take(OTHER)).toMatchObject({ kind: 'made' });
    });

    at.timed('stay for an unknown effect until that is quiet, also when they are taken again', async () => {
      await take({ ttlMs: 1_000 });
      const { effect } = await dispatched(at.store, { action });
      await at.store.settle(settleRequest(effect, UNKNOWN));
      await take({ ttlMs: 1_000 });
      at.advance(68_000);
      expect(await take(OTHER)).toMatchObject({ kind: 'held' });
      at.advance(2_000);
      expect(await take(OTHER)).toMatchObject({ kind: 'made' });
    });

    at.timed('stay for the longest of the unknown calls under them', async () => {
      await take({ ttlMs: 1_000 });
      const long = await dispatched(at.store, { action });
      const short = await dispatched(at.store, { action, times: { maxProcessingMs: 1_000 } });
      for (const { effect } of [long, short]) await at.store.settle(settleRequest(effect, UNKNOWN));
      const quietAt = ({ effect }: typeof long): number => leaseOf(effect).quiesceUntil;
      expect(quietAt(long)).toBeGreaterThan(quietAt(short));
      at.setClock(quietAt(long) - 1);
      expect(await take(OTHER)).toMatchObject({ kind: 'held' });
      at.advance(1);
      expect(await take(OTHER)).toMatchObject({ kind: 'made' });
    });

    it('keep others out when they are released before the call is settled', async () => {
      const taken = await take();
      if (taken.kind !== 'made') throw new Error(taken.kind);
      const { effect } = await dispatched(at.store, { action });
      await at.store.releaseClaim(WORKSPACE, taken.claim.id, AGENT);
      expect(await take(OTHER)).toMatchObject({ kind: 'held' });
      await at.store.settle(settleRequest(effect, committed()));
      expect(await take(OTHER)).toMatchObject({ kind: 'made' });
    });

    at.timed('end in time where a call is found lost and resolved at once', async () => {
      const { effect } = await dispatched(at.store, { verdict: permit([CLAIM]) });
      at.advance(9_000);
      expect(await at.store.resolve(resolveRequest(effect, 'happened'))).toMatchObject({ kind: 'resolved' });
      at.advance(61_000);
      expect(await at.store.claims(WORKSPACE)).toEqual([]);
      expect(await take(OTHER)).toMatchObject({ kind: 'made' });
    });

    it('are named for the target of the call, not for another', async () => {
      const taken = await take();
      if (taken.kind !== 'made') throw new Error(taken.kind);
      const claimId = taken.claim.id;
      expect(await at.store.admit(admitRequest({ claimId, action: { target: 'customer:8' } }))).toMatchObject({
        kind: 'refused',
        decision: 'denied_claim',
        reason: { code: 'claim_required' },
      });
      await dispatched(at.store, { claimId, action });
    });

    at.timed('are named while their time is not over, also by the agent that had them', async () => {
      const taken = await at.store.takeClaim(claimRequest('customer:7', { ttlMs: 1_000 }));
      if (taken.kind !== 'made') throw new Error(taken.kind);
      const named = { claimId: taken.claim.id, action };
      at.advance(999);
      await dispatched(at.store, named);
      at.advance(1);
      expect(await at.store.admit(admitRequest(named))).toMatchObject({
        decision: 'denied_claim',
        reason: { code: 'claim_required' },
      });
    });

    it('are named by who has them, and the refusal says what is missing', async () => {
      const taken = await at.store.takeClaim(claimRequest('customer:7', OTHER));
      if (taken.kind !== 'made') throw new Error(taken.kind);
      const released = async () => at.store.releaseClaim(WORKSPACE, taken.claim.id, AGENT);
      const named = { claimId: taken.claim.id, action };
      // While it is in force the target itself is another's.
      expect(await at.store.admit(admitRequest(named))).toMatchObject({
        decision: 'denied_claim',
        reason: { code: 'claim_held' },
      });
      await released();
      for (const claimId of [taken.claim.id, 'clm_none'])
        expect(await at.store.admit(admitRequest({ ...named, claimId }))).toMatchObject({
          decision: 'denied_claim',
          reason: { code: 'claim_required' },
          retryAfterMs: null,
        });
    });

    it('refuse with the rule that asks for the target, where one does, and say how long to wait', async () => {
      await take({ ...OTHER, ttlMs: 30_000 });
      const refused = (verdict = permit(), target = 'customer:7') =>
        at.store.admit(admitRequest({ verdict, action: { target } }));
      const byTarget = await refused();
      expect(byTarget).toMatchObject({ reason: { code: 'claim_held' } });
      expect(byTarget).not.toHaveProperty('reason.rule');
      const byRule = await refused(permit([CLAIM]), 'customer:8');
      expect(byRule).toMatchObject({ reason: { code: 'claim_held', rule: 'crm/one-at-a-time' } });
      for (const { retryAfterMs } of [byTarget, byRule].filter((one) => one.kind === 'refused')) {
        expect(retryAfterMs).toBeGreaterThan(20_000);
        expect(retryAfterMs).toBeLessThanOrEqual(30_000);
      }
    });

    it('refuse other agents also where policy only observes', async () => {
      await take(OTHER);
      const observing = { ...permit(), mode: 'observe' } as const;
      expect(await at.store.admit(admitRequest({ action, verdict: observing }))).toMatchObject({
        kind: 'refused',
        decision: 'denied_claim',
      });
    });
  });

  describe('reservations', () => {
    const at = useStore(open, capabilities);

    it('gives a key at most a hundred, for whichever agents and pools, and counts those that are in force', async () => {
      const keyId = 'key_acct00000001';
      const make = (n: number, more: { keyId?: string } = {}) =>
        at.store.makeReservation({
          ...reservationRequest({ agentId: `bot-${n}`, capacity: 1000, keyId, ...more }),
          pool: n % 2 === 0 ? 'gpu' : 'seats',
        });
      const made = await Promise.all(Array.from({ length: 100 }, (_, n) => make(n)));
      expect(new Set(made.map(({ kind }) => kind))).toEqual(new Set(['made']));
      expect(await make(100)).toEqual({ kind: 'too_many', limit: 100 });
      expect(await make(100, { keyId: 'key_acct00000002' })).toMatchObject({ kind: 'made' });
      const [first] = made;
      if (first?.kind !== 'made') throw new Error('not made');
      await at.store.releaseReservation(WORKSPACE, first.reservation.id, AGENT);
      expect(await make(100)).toMatchObject({ kind: 'made', reservation: { keyId } });
      expect(await make(101)).toEqual({ kind: 'too_many', limit: 100 });
      expect(await checkWorkspace(at.store, WORKSPACE)).toEqual([]);
    });

    at.timed('counts no reservation whose time is over, although nothing was swept', async () => {
      const keyId = 'key_acct00000001';
      const make = (n: number, ttlMs: number) =>
        at.store.makeReservation(reservationRequest({ agentId: `bot-${n}`, capacity: 1000, keyId, ttlMs }));
      for (let n = 0; n < 100; n += 1) await make(n, n < 3 ? 1_000 : 60_000);
      expect(await make(100, 60_000)).toMatchObject({ kind: 'too_many' });
      at.advance(1_000);
      const answers = await Promise.all(Array.from({ length: 5 }, (_, n) => make(101 + n, 1_000)));
      expect(answers.filter(({ kind }) => kind === 'made')).toHaveLength(3);
      at.advance(60_000);
      await at.store.sweep(200);
      expect(await at.store.capCounts(WORKSPACE)).toEqual([]);
    });
    const reserve = (units: number): Obligation => ({
      kind: 'reserve',
      rule: 'ml/gpu',
      pool: 'gpu',
      units,
      capacity: 4,
    });

    it('sets units aside up to the capacity', async () => {
      const made = await at.store.makeReservation(reservationRequest({ units: 3 }));
      if (made.kind !== 'made') throw new Error(made.kind);
      expect(await at.store.makeReservation(reservationRequest({ units: 2, ...OTHER }))).toEqual({
        kind: 'full',
        free: 1,
      });
      expect(await at.store.reservation(WORKSPACE, made.reservation.id)).toEqual(made.reservation);
      expect(await at.store.reservations(WORKSPACE)).toEqual([made.reservation]);
    });

    it('counts what an agent has set aside before against what it may set aside', async () => {
      expect(await at.store.makeReservation(reservationRequest({ units: 3 }))).toMatchObject({ kind: 'made' });
      expect(await at.store.makeReservation(reservationRequest({ units: 2 }))).toEqual({ kind: 'full', free: 1 });
      expect(await at.store.makeReservation(reservationRequest({ units: 1 }))).toMatchObject({ kind: 'made' });
    });

    it('counts what runs under what an agent has set aside once', async () => {
      expect(await at.store.makeReservation(reservationRequest({ units: 3 }))).toMatchObject({ kind: 'made' });
      await dispatched(at.store, { verdict: permit([reserve(2)]) });
      expect(await at.store.makeReservation(reservationRequest({ units: 2 }))).toEqual({ kind: 'full', free: 1 });
      expect(await at.store.makeReservation(reservationRequest({ units: 1 }))).toMatchObject({ kind: 'made' });
    });

    it('counts what another agent uses beyond what it has set aside', async () => {
      await at.store.makeReservation(reservationRequest({ units: 1, ...OTHER }));
      await dispatched(at.store, { verdict: permit([reserve(3)]), actor: OTHER });
      expect(await at.store.admit(admitRequest({ verdict: permit([reserve(2)]) }))).toMatchObject({
        kind: 'refused',
        reason: { code: 'pool_exhausted', message: expect.stringContaining('1 of 4 are free') },
      });
      await dispatched(at.store, { verdict: permit([reserve(1)]) });
    });

    it('sets nothing aside of what another agent uses', async () => {
      await dispatched(at.store, { verdict: permit([reserve(3)]), actor: OTHER });
      expect(await at.store.makeReservation(reservationRequest({ units: 2 }))).toEqual({ kind: 'full', free: 1 });
      expect(await at.store.makeReservation(reservationRequest({ units: 1 }))).toMatchObject({ kind: 'made' });
    });

    at.timed('gives back by name what is not over, the one that is named, and once', async () => {
      const [first, second] = [
        await at.store.makeReservation(reservationRequest({ units: 1, ttlMs: 1_000 })),
        await at.store.makeReservation(reservationRequest({ units: 2, ttlMs: 1_000 })),
      ];
      if (first.kind !== 'made' || second.kind !== 'made') throw new Error('not made');
      expect(await at.store.releaseReservation(WORKSPACE, first.reservation.id, AGENT)).toEqual(first.reservation);
      expect(await at.store.releaseReservation(WORKSPACE, first.reservation.id, AGENT)).toBeNull();
      expect(await at.store.makeReservation(reservationRequest({ units: 3, ...OTHER }))).toEqual({
        kind: 'full',
        free: 2,
      });
      at.advance(1_000);
      expect(await at.store.releaseReservation(WORKSPACE, second.reservation.id, AGENT)).toBeNull();
    });

    it('lends a call units of each pool that it needs, and gives each back', async () => {
      const disk = { ...reserve(2), pool: 'disk' };
      const { effect } = await dispatched(at.store, { verdict: permit([reserve(3), disk]) });
      expect(effect.uses).toEqual([
        { pool: 'gpu', units: 3 },
        { pool: 'disk', units: 2 },
      ]);
      const free = async (pool: string) => {
        const made = await at.store.makeReservation({ ...reservationRequest({ units: 4, ...OTHER }), pool });
        return made.kind === 'full' ? made.free : made.kind;
      };
      expect([await free('gpu'), await free('disk')]).toEqual([1, 2]);
      await at.store.settle(settleRequest(effect, committed()));
      expect([await free('gpu'), await free('disk')]).toEqual(['made', 'made']);
    });

    it('adds up what several rules ask of one pool', async () => {
      expect(await at.store.admit(admitRequest({ verdict: permit([reserve(3), reserve(2)]) }))).toMatchObject({
        kind: 'refused',
        decision: 'denied_reservation',
      });
      await dispatched(at.store, { verdict: permit([reserve(3), reserve(1)]) });
      expect(await at.store.admit(admitRequest({ verdict: permit([reserve(1)]) }))).toMatchObject({
        decision: 'denied_reservation',
      });
    });

    it('never sets more aside than there is, however many ask at once', async () => {
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, n) => at.store.makeReservation(reservationRequest({ agentId: `bot-${n}` }))),
      );
      expect(answers.filter(({ kind }) => kind === 'made')).toHaveLength(4);
    });

    it('gives released units back', async () => {
      const made = await at.store.makeReservation(reservationRequest({ units: 4 }));
      if (made.kind !== 'made') throw new Error(made.kind);
      expect(await at.store.releaseReservation(WORKSPACE, made.reservation.id, AGENT)).toEqual(made.reservation);
      expect(await at.store.releaseReservation(WORKSPACE, made.reservation.id, AGENT)).toBeNull();
      expect(await at.store.makeReservation(reservationRequest({ units: 4, ...OTHER }))).toMatchObject({
        kind: 'made',
      });
      const released = (await at.store.ledger(WORKSPACE, 0, 10)).filter(({ kind }) => kind === 'reservation.released');
      expect(released.map(({ data }) => data)).toEqual([
        { reservation_id: made.reservation.id, pool: 'gpu', units: 4 },
      ]);
    });

    at.timed('gives units back when the time is over', async () => {
      await at.store.makeReservation(reservationRequest({ units: 4, ttlMs: 1_000 }));
      at.advance(1_000);
      expect(await at.store.reservations(WORKSPACE)).toEqual([]);
      expect(await at.store.makeReservation(reservationRequest({ units: 4, ...OTHER }))).toMatchObject({
        kind: 'made',
      });
    });

    it('lends units to running calls and gets them back', async () => {
      const verdict = permit([reserve(2)]);
      const first = await dispatched(at.store, { verdict });
      await dispatched(at.store, { verdict });
      expect(await at.store.admit(admitRequest({ verdict }))).toMatchObject({
        kind: 'refused',
        decision: 'denied_reservation',
      });
      await at.store.settle(settleRequest(first.effect, committed()));
      await dispatched(at.store, { verdict });
    });

    at.timed(
      'takes a reservation that a call names while it is the agent’s, of the call’s pool and not over',
      async () => {
        const made = await at.store.makeReservation(reservationRequest({ units: 2, ttlMs: 1_000 }));
        if (made.kind !== 'made') throw new Error(made.kind);
        const reservationId = made.reservation.id;
        const named = { verdict: permit([reserve(1)]), reservationId };
        const invalid = { kind: 'refused', decision: 'denied_reservation', reason: { code: 'reservation_invalid' } };
        await dispatched(at.store, named);
        expect(await at.store.admit(admitRequest({ ...named, actor: OTHER }))).toMatchObject(invalid);
        expect(await at.store.admit(admitRequest({ ...named, verdict: permit() }))).toMatchObject(invalid);
        expect(await at.store.admit(admitRequest({ ...named, reservationId: 'rsv_none' }))).toMatchObject(invalid);
        at.advance(999);
        await dispatched(at.store, named);
        at.advance(1);
        expect(await at.store.admit(admitRequest(named))).toMatchObject(invalid);
      },
    );

    it('counts what is set aside against a pool that has become smaller', async () => {
      const smaller: Obligation = { kind: 'reserve', rule: 'ml/gpu', pool: 'gpu', units: 1, capacity: 2 };
      const made = await at.store.makeReservation(reservationRequest({ units: 3 }));
      if (made.kind !== 'made') throw new Error(made.kind);
      expect(await at.store.admit(admitRequest({ verdict: permit([smaller]), actor: OTHER }))).toMatchObject({
        kind: 'refused',
        decision: 'denied_reservation',
        reason: { code: 'pool_exhausted', message: expect.stringContaining('0 of 2 are free') },
      });
      for (const agentId of ['other-bot', 'support-bot']) {
        expect(await at.store.makeReservation(reservationRequest({ capacity: 2, agentId }))).toEqual({
          kind: 'full',
          free: 0,
        });
      }
      // Who has set them aside may take what the pool still has, and no more.
      const own = { verdict: permit([smaller]) };
      await dispatched(at.store, own);
      const { effect } = await dispatched(at.store, own);
      expect(await at.store.admit(admitRequest(own))).toMatchObject({ decision: 'denied_reservation' });
      await at.store.settle(settleRequest(effect, committed()));
      await dispatched(at.store, own);
    });

    it('does not count what an earlier attempt of the same action took against the next one', async () => {
      const again = { idempotencyKey: 'k', times: { idempotentForMs: 60_000 }, verdict: permit([reserve(4)]) };
      const { effect } = await dispatched(at.store, again);
      await at.store.settle(settleRequest(effect, UNKNOWN));
      expect(await at.store.admit(admitRequest({ verdict: permit([reserve(1)]) }))).toMatchObject({
        decision: 'denied_reservation',
      });
      expect((await dispatched(at.store, again)).effect).toMatchObject({ id: effect.id, attempt: 2 });
    });

    at.timed('lends them to an unknown effect until that is quiet', async () => {
      const verdict = permit([reserve(4)]);
      const { effect } = await dispatched(at.store, { verdict });
      await at.store.settle(settleRequest(effect, UNKNOWN));
      expect(await at.store.admit(admitRequest({ verdict }))).toMatchObject({ decision: 'denied_reservation' });
      at.advance(70_000);
      await dispatched(at.store, { verdict });
    });
  });

  describe('pauses', () => {
    const at = useStore(open, capabilities);
    const pause = (keyKind: 'account' | 'administrative', until: number | null = null, workspace = WORKSPACE) =>
      pauseRequest({
        workspace,
        scope: { kind: 'tool', glob: 'payments.**' },
        reason: 'incident 12',
        until,
        by: { keyId: 'key_1', keyKind, user: 'maria' },
      });
    const setBy = async (store: EffectStore, request: ReturnType<typeof pause>): Promise<PauseRecord> => {
      const set = await store.setPause(request);
      if (set === null) throw new Error('there is room for it');
      return set;
    };

    it('grows the version with every pause that is set or lifted', async () => {
      const before = await at.store.pauses(WORKSPACE);
      const set = await setBy(at.store, pause('account'));
      const during = await at.store.pauses(WORKSPACE);
      expect(during.version).toBeGreaterThan(before.version);
      expect(during.pauses).toEqual([set]);
      expect(await at.store.liftPause(WORKSPACE, set.id, 'account', PERSON)).toEqual({ kind: 'lifted', pause: set });
      const after = await at.store.pauses(WORKSPACE);
      expect(after.version).toBeGreaterThan(during.version);
      expect(after.pauses).toEqual([]);
    });

    it('lets only an administrative key lift what one has set', async () => {
      const set = await setBy(at.store, pause('administrative'));
      expect(await at.store.liftPause(WORKSPACE, set.id, 'account', PERSON)).toMatchObject({
        kind: 'administrative_only',
      });
      expect((await at.store.pauses(WORKSPACE)).pauses).toHaveLength(1);
      expect(await at.store.liftPause(WORKSPACE, set.id, 'administrative', PERSON)).toMatchObject({ kind: 'lifted' });
      expect(await at.store.liftPause(WORKSPACE, set.id, 'administrative', PERSON)).toEqual({ kind: 'absent' });
    });

    it('has a bound for all but administrative keys and the first pause of the whole workspace', async () => {
      const asked = Array.from({ length: MOST_PAUSES + 5 }, () => at.store.setPause(pause('account')));
      const refused = (await Promise.all(asked)).filter((set) => set === null);
      expect(refused).toHaveLength(5);
      const { version, pauses } = await at.store.pauses(WORKSPACE);
      expect(pauses).toHaveLength(MOST_PAUSES);
      expect(await at.store.setPause(pause('account'))).toBeNull();
      expect((await at.store.pauses(WORKSPACE)).version).toBe(version);
      expect(await at.store.setPause(pause('account', null, 'other'))).not.toBeNull();
      expect(await at.store.setPause(pause('administrative'))).not.toBeNull();
      const whole = { ...pause('account'), scope: { kind: 'workspace' } } as const;
      expect(await at.store.setPause(whole)).not.toBeNull();
      expect(await at.store.setPause({ ...whole, id: newId('pau') })).toBeNull();
      for (const { id } of pauses.slice(0, 2)) await at.store.liftPause(WORKSPACE, id, 'account', PERSON);
      expect(await at.store.setPause(pause('account'))).not.toBeNull();
      expect(await at.store.setPause(pause('account'))).toBeNull();
    });

    at.timed('ends a pause at its time', async () => {
      await at.store.setPause(pause('account', at.now() + 1_000));
      expect((await at.store.pauses(WORKSPACE)).pauses).toHaveLength(1);
      at.advance(1_000);
      expect((await at.store.pauses(WORKSPACE)).pauses).toEqual([]);
    });

    it('tells listeners which workspace’s pauses have changed, and keeps workspaces apart', async () => {
      const heard = new Set<string>();
      at.store.onPausesChanged((workspace) => heard.add(workspace));
      await at.store.setPause(pause('account', null, 'other'));
      expect([...heard]).toEqual(['other']);
      expect((await at.store.pauses(WORKSPACE)).pauses).toEqual([]);
    });

    it('keeps pauses and their version over a restart', async () => {
      await at.store.setPause(pause('account'));
      const before = await at.store.pauses(WORKSPACE);
      await at.reopen();
      expect(await at.store.pauses(WORKSPACE)).toEqual(before);
    });
  });
}
