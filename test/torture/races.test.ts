import { setImmediate as turn } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import { type Admission, type AdmitRequest, type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import type { VoteRequest, VoteResult } from '../../src/effects/approval-store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { openRedisStore } from '../../src/gateway/redis-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import {
  admitRequest,
  type AdmitOverrides,
  approvalBy,
  budgetOf,
  committed,
  newId,
  pauseRequest,
  permit,
  PERSON,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { DEEP } from '../deep.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { journalFolder, redisOptions } from '../redis/contract.ts';
import { type RedisServer, startRedis } from '../redis/servers.ts';
import { expectSilentFsck } from '../silent-fsck.ts';
import { seededRandom } from './random.ts';

/**
 * Two things that want the same happen at once: an approval and its end, an approval and a rejection, a last use and many
 * calls, a pause and a call. Never both, and never neither for ever. On Redis two gateways share the store. The judge is
 * what was sent, not what the store says.
 */

const ROUNDS = DEEP ? 10_000 : 100;
/** Rounds that are under way together, so that their steps share groups. */
const TOGETHER = 10;
/** A round takes some ms; this bounds one that never ends, ms. */
const PATIENCE_MS = 500;
const AMOUNT = 7;
const EXPIRES_MS = 1_000;
/** The same where no race is about it: longer than a round takes on any machine, ms. */
const OUTLASTS_MS = 60_000;
/** Turns of the event loop that a racer may let the others have. */
const HEAD_START = 6;
const SEED = 20_261_126;

const RETENTION = { keysMs: null, effectsMs: 365 * 86_400_000, denialsMs: 365 * 86_400_000 };

/** A store that others use too may give up before it has written anything, and asks to be asked again. */
async function untilTaken<T>(step: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await step();
    } catch (error) {
      if (!(error instanceof StoreUnavailable && error.message.startsWith('Too much happens at once'))) throw error;
    }
  }
}

/** What was really done, by key: the gateway's part after an admission, without an upstream. */
class Sent {
  readonly #of = new Map<string, number>();

  times(key: string): number {
    return this.#of.get(key) ?? 0;
  }

  get all(): number {
    return [...this.#of.values()].reduce((sum, times) => sum + times, 0);
  }

  /** Sends what may be sent, and settles it. */
  async after(store: EffectStore, admission: Admission): Promise<Admission> {
    if (admission.kind !== 'dispatch') return admission;
    const { effect } = admission;
    this.#of.set(effect.idempotencyKey, this.times(effect.idempotencyKey) + 1);
    const settlement = settleRequest(effect, committed());
    expect(await untilTaken(() => store.settle(settlement))).toEqual({ kind: 'settled' });
    return admission;
  }
}

/** A store, as one or two gateways see it. */
class Field {
  readonly sent = new Sent();
  readonly random = seededRandom(SEED);
  /** How far its clock is from the machine's, ms. */
  #ahead = 0;
  #stores: readonly EffectStore[] = [];

  async open(openAll: (clock: () => number) => Promise<readonly EffectStore[]>): Promise<void> {
    this.#stores = await openAll(() => this.now());
  }

  now(): number {
    return Date.now() + this.#ahead;
  }

  advance(ms: number): void {
    this.#ahead += ms;
  }

  /** The store by any of its gateways. */
  get store(): EffectStore {
    const store = this.#stores[Math.floor(this.random() * this.#stores.length)];
    if (store === undefined) throw new Error('the store is open while its tests run');
    return store;
  }

  async send(overrides: AdmitOverrides): Promise<Admission> {
    const { store } = this;
    return this.sent.after(store, await untilTaken(() => store.admit(admitRequest(overrides))));
  }

  vote(request: VoteRequest): Promise<VoteResult> {
    return untilTaken(() => this.store.vote(request));
  }

  /** Starts all in an order of its own, each some turns later than it might. @returns what the first one gives */
  async race<T>(first: () => Promise<T>, ...others: readonly (() => Promise<unknown>)[]): Promise<T> {
    const run = async <R>(racer: () => Promise<R>): Promise<R> => {
      for (let turns = Math.floor(this.random() * HEAD_START); turns > 0; turns -= 1) await turn();
      return racer();
    };
    const isLast = this.random() < 0.5;
    const before = isLast ? others.map(run) : [];
    const [result] = await Promise.all([run(first), ...before, ...(isLast ? [] : others.map(run))]);
    return result;
  }

  async rounds(round: (n: number) => Promise<string>): Promise<ReadonlyMap<string, number>> {
    const seen = new Map<string, number>();
    for (let n = 0; n < ROUNDS; n += TOGETHER) {
      const ends = await Promise.all(Array.from({ length: TOGETHER }, (_, at) => round(n + at)));
      for (const end of ends) seen.set(end, (seen.get(end) ?? 0) + 1);
    }
    return seen;
  }

  async sweep(): Promise<void> {
    for (;;) {
      const { approvalsExpired, lost } = await untilTaken(() => this.store.sweep(1_000));
      if (approvalsExpired + lost === 0) return;
    }
  }

  /** Nothing waits or is held once all is over, and what is spent is what was sent. */
  async expectTrueBudgets(): Promise<void> {
    for (const store of this.#stores) await expectSilentFsck(store);
    const pending = { status: 'pending', agentId: null, limit: 100, cursor: null } as const;
    const { items } = await this.store.approvals(WORKSPACE, pending);
    expect(items.map(({ id, expiresAt }) => ({ id, lasts: expiresAt - this.now() }))).toEqual([]);
    const budgets = await this.store.budgets(WORKSPACE);
    const sum = (of: 'held' | 'spent'): number => budgets.reduce((all, row) => all + row[of], 0);
    expect({ held: sum('held'), spent: sum('spent') }).toEqual({ held: 0, spent: AMOUNT * this.sent.all });
  }

  async close(): Promise<void> {
    await Promise.all(this.#stores.map((store) => store.close()));
  }
}

/** Of one in so many calls: a budget that all of them move is a race of its own, and slow. */
const budget = () => budgetOf(1e9, AMOUNT, { bucket: JSON.stringify([newId('b').at(-1)]) });
const asking = (expiresMs = 3_600_000) =>
  permit([budget()], [approvalBy({ expiresMs, allowAlike: { times: 5, forMs: 3_600_000 } })]);

const APPROVED = 'counted, already_decided: used committed 1';
const REJECTED = 'already_decided, counted: rejected rejected 0';

/** A call of an agent of its own: one may have only so many that wait. */
function newCall(race: string) {
  return { idempotencyKey: newId(race), actor: { agentId: newId('agent') } };
}

/** A request for approval that waits. */
async function waiting(field: Field, asked: AdmitOverrides): Promise<ApprovalRecord> {
  const admission = await field.send(asked);
  if (admission.kind !== 'pending') throw new Error(`expected pending, was ${JSON.stringify(admission)}`);
  return admission.approval;
}

function describeRaces(name: string, open: (clock: () => number) => Promise<readonly EffectStore[]>): void {
  describe(`${name}: ${ROUNDS} times each`, { timeout: ROUNDS * PATIENCE_MS }, () => {
    const field = new Field();
    beforeAll(() => field.open(open));
    afterAll(() => field.close());

    it('an approval and the end of its request: sent, or over, and never both', async () => {
      const seen = await field.rounds(async (n) => {
        const asked = { ...newCall('expiry'), verdict: asking(EXPIRES_MS) };
        const approval = await waiting(field, asked);
        const carry = () => field.send({ ...asked, dispatches: approval.id });
        const sentBefore = field.sent.all;
        const isFirst = n % TOGETHER === 1 || field.random() < 0.5;
        // Of each round one at least comes too late.
        const isLate = n % TOGETHER === 2;
        const mayVote = () =>
          field.now() >= approval.expiresAt || (!isLate && (isFirst || field.sent.all > sentBefore));
        const vote = await field.race(
          async () => {
            while (!mayVote()) await turn();
            const result = await field.vote(voteRequest(approval));
            await field.race(carry, carry);
            return result;
          },
          async () => {
            // One of those that are under way together moves the clock of all, when some of them were sent.
            if (n % TOGETHER === 0) {
              const enough = sentBefore + Math.floor(field.random() * (TOGETHER - 1));
              while (field.sent.all < enough && field.now() < approval.expiresAt) await turn();
              field.advance(EXPIRES_MS);
            }
            await field.sweep();
          },
        );
        const is = await field.store.approval(WORKSPACE, approval.id);
        const end = `${vote.kind} ${is?.status} ${field.sent.times(asked.idempotencyKey)}`;
        expect(['counted used 1', 'counted expired 0', 'already_decided expired 0']).toContain(end);
        return end;
      });
      expect([...seen.keys()]).toEqual(expect.arrayContaining(['already_decided expired 0', 'counted used 1']));
      await field.expectTrueBudgets();
    });

    it('an approval and a rejection: one of them counts, and only what is approved is sent', async () => {
      const seen = await field.rounds(async () => {
        const asked = { ...newCall('reject'), verdict: asking() };
        const approval = await waiting(field, asked);
        let rejection = '';
        const vote = await field.race(
          async () => {
            const result = await field.vote(voteRequest(approval, { user: 'maria' }));
            await field.send({ ...asked, dispatches: approval.id });
            return result;
          },
          async () => {
            const no = { user: 'omar', verdict: 'reject', comment: 'No.' } as const;
            rejection = (await field.vote(voteRequest(approval, no))).kind;
          },
          () => field.send(asked),
        );
        await field.send(asked);
        const is = await field.store.approval(WORKSPACE, approval.id);
        const { life } = (await field.store.effect(WORKSPACE, approval.effectId)) ?? {};
        const sent = field.sent.times(asked.idempotencyKey);
        const end = `${vote.kind}, ${rejection}: ${is?.status} ${life?.state} ${sent}`;
        expect([APPROVED, REJECTED]).toContain(end);
        return end;
      });
      expect([...seen.keys()].sort()).toEqual([REJECTED, APPROVED]);
      await field.expectTrueBudgets();
    });

    it('the last use of an allowance, four calls and its withdrawal: no more uses than were given', async () => {
      const seen = await field.rounds(async () => {
        const likeness = newId('like');
        const alike = { likeness, registeredBy: null };
        const { actor, idempotencyKey: first } = newCall('first');
        const approval = await waiting(field, { idempotencyKey: first, actor, verdict: asking(OUTLASTS_MS) });
        const id = newId('alw');
        const allowance = {
          id,
          workspace: WORKSPACE,
          likeness,
          approvalId: approval.id,
          effectId: approval.effectId,
          agentId: actor.agentId,
          tool: approval.tool,
          target: approval.target,
          rules: ['payments/large'],
          varies: {},
          by: { user: 'maria', keyId: 'key_acct00000001' },
          times: 1,
          until: field.now() + 3_600_000,
        };
        expect(await field.vote(voteRequest(approval, { alike: allowance }))).toMatchObject({ kind: 'counted' });
        const keys = Array.from({ length: 4 }, () => newId('last'));
        await field.race(
          () => untilTaken(() => field.store.revokeAllowance({ workspace: WORKSPACE, id, by: 'omar', actor: PERSON })),
          ...keys.map((key) => () => field.send({ idempotencyKey: key, actor, verdict: asking(OUTLASTS_MS), alike })),
        );
        const sent = keys.reduce((sum, key) => sum + field.sent.times(key), 0);
        const is = await field.store.allowance(WORKSPACE, id);
        expect({ used: is?.used, most: sent <= 1 }).toEqual({ used: sent, most: true });
        return `${sent}`;
      });
      expect([...seen.keys()].sort()).toEqual(['0', '1']);
      // By far: where a call was on its way as the clock was moved, the store's time is ahead of the clock for a while.
      field.advance(2 * OUTLASTS_MS);
      await field.sweep();
      await field.expectTrueBudgets();
    });

    it('a granted call that two gateways carry out: sent once', async () => {
      const seen = await field.rounds(async () => {
        const asked = { ...newCall('grant'), verdict: asking() };
        const approval = await waiting(field, asked);
        await field.vote(voteRequest(approval));
        const carry = (dispatches: string | null) => () => field.send({ ...asked, dispatches });
        await field.race(carry(approval.id), carry(approval.id), carry(null), carry(approval.id));
        return `${field.sent.times(asked.idempotencyKey)}`;
      });
      expect(seen).toEqual(new Map([['1', ROUNDS]]));
      await field.expectTrueBudgets();
    });

    it('a pause and a call: the ledger has no admission after the pause, and a call is sent or denied', async () => {
      const seen = await field.rounds(async () => {
        const call = newCall('pause');
        const { agentId } = call.actor;
        const pause = pauseRequest({ scope: { kind: 'agent', id: agentId } });
        const subject = { ...call, verdict: permit([budget()]) };
        const { version } = await field.store.pauses(WORKSPACE);
        const asked = async (pauses: number, pausedBy: AdmitRequest['pausedBy']): Promise<Admission> =>
          field.send({ ...subject, seen: { policy: '', pauses }, pausedBy });
        await field.race(
          async () => {
            let admission = await asked(version, null);
            // As the gateway does: what it knew of the pauses was old, so it looks again.
            while (admission.kind === 'stale') {
              const now = await field.store.pauses(WORKSPACE);
              const match = now.pauses.find(({ id }) => id === pause.id);
              const by = match === undefined ? null : { id: match.id, reason: match.reason, until: null };
              admission = await asked(now.version, by);
            }
            return admission;
          },
          () => untilTaken(() => field.store.setPause(pause)),
        );
        const sent = field.sent.times(call.idempotencyKey);
        const newest = await field.store.ledgerBefore(WORKSPACE, null, 200);
        const paused = newest.find(({ kind, data }) => kind === 'pause.set' && data['pause_id'] === pause.id)?.seq ?? 0;
        const admitted = newest.find(({ kind, actor }) => kind === 'effect.admitted' && actor.id === agentId)?.seq;
        expect(paused).toBeGreaterThan(0);
        if (admitted !== undefined) expect(admitted).toBeLessThan(paused);
        expect(sent).toBe(admitted === undefined ? 0 : 1);
        await untilTaken(() => field.store.liftPause(WORKSPACE, pause.id, 'account', PERSON));
        return `${sent}`;
      });
      expect([...seen.keys()].sort()).toEqual(['0', '1']);
      await field.expectTrueBudgets();
    });
  });
}

describeRaces('the embedded store', async (clock) => [
  await openEmbeddedStore({
    path: storeFolder(),
    lockWaitMs: 0,
    worker: 'never',
    retention: RETENTION,
    keySeals: KEY_SEALS,
    clock,
  }),
]);

let server: RedisServer | null = null;
afterAll(() => server?.stop());

describeRaces('two gateways on one Redis', async (clock) => {
  const started = await startRedis();
  server = started;
  const open = (gatewayId: string): Promise<EffectStore> =>
    openRedisStore(redisOptions(started, { journalFolder: journalFolder(), retention: RETENTION, clock, gatewayId }));
  return Promise.all(['gw-1', 'gw-2'].map(open));
});
