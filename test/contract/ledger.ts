import { describe, expect, it } from 'vitest';
import { INSTALLATION, type LedgerEvent } from '../../src/effects/model/ledger.ts';
import { PAGE_BYTES } from '../../src/effects/model/page.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  AGENT,
  ANY,
  committed,
  dispatched,
  FAILED,
  keyRecord,
  permit,
  PERSON,
  settleRequest,
  UNKNOWN,
  WORKSPACE,
} from './requests.ts';

export function describeLedger(open: OpenStore, capabilities: Capabilities): void {
  describe('ledger', () => {
    const at = useStore(open, capabilities);

    const seqs = (events: readonly LedgerEvent[]): number[] => events.map(({ seq }) => seq);
    const counted = (first: number, length: number): number[] => Array.from({ length }, (_, n) => first + n);

    async function all(workspace = WORKSPACE): Promise<readonly LedgerEvent[]> {
      return await at.store.ledger(workspace, 0, 10_000);
    }

    it('has no gaps, and stands in order, whatever runs at once', async () => {
      await Promise.all(
        Array.from({ length: 50 }, async (_, n) => {
          const { effect } = await dispatched(at.store);
          await at.store.settle(settleRequest(effect, n % 3 === 0 ? FAILED : committed()));
        }),
      );
      const events = await all();
      expect(events.length).toBeGreaterThanOrEqual(150);
      expect(seqs(events)).toEqual(counted(1, events.length));
      expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
      for (const [n, { at: time }] of events.entries()) expect(time).toBeGreaterThanOrEqual(events[n - 1]?.at ?? 0);
    });

    it('goes on without a gap after a restart', async () => {
      await dispatched(at.store);
      const before = await all();
      await at.reopen();
      await dispatched(at.store);
      const after = await all();
      expect(after.slice(0, before.length)).toEqual(before);
      expect(seqs(after)).toEqual(counted(1, after.length));
    });

    it('says beforehand at which place an admission stands', async () => {
      await dispatched(at.store);
      const { effect, ledger } = await dispatched(at.store);
      const event = (await all()).find(({ seq }) => seq === ledger.seq);
      expect(event).toMatchObject({ kind: 'effect.admitted', effectId: effect.id });
    });

    it('tells an effect’s story in order, and only its own', async () => {
      const { effect } = await dispatched(at.store);
      await dispatched(at.store);
      await at.store.settle(settleRequest(effect, committed('j', 'rcp_7')));
      const story = await at.store.effectLedger(WORKSPACE, effect.id);
      expect(story.map(({ kind }) => kind)).toEqual([
        'effect.admitted',
        'execution.started',
        'execution.succeeded',
        'receipt.issued',
      ]);
      expect(story.every(({ effectId }) => effectId === effect.id)).toBe(true);
      expect(story.at(-1)?.data).toEqual({ receipt_id: 'rcp_7' });
      expect(await at.store.effectLedger('other', effect.id)).toEqual([]);
    });

    it('keeps what belongs to no workspace together, apart from every workspace', async () => {
      await dispatched(at.store);
      const before = await all();
      await at.store.putKey(keyRecord({ kind: 'administrative', workspace: null, agentId: null }), PERSON);
      await at.store.append(INSTALLATION, [
        { kind: 'policy.loaded', effectId: null, actor: { type: 'gateway', id: 'boot_1' }, data: { version: 'v2' } },
      ]);
      const reason = { code: 'wrong_key_kind', message: 'An administrative key runs nothing.' } as const;
      const refused = await at.store.admit(
        admitRequest({
          workspace: INSTALLATION,
          verdict: { kind: 'deny', decision: 'denied_permission', reason, trace: permit().trace },
        }),
      );
      expect(refused).toMatchObject({ kind: 'refused', decision: 'denied_permission' });
      const events = await all(INSTALLATION);
      expect(events.map(({ kind }) => kind)).toEqual(['key.created', 'policy.loaded', 'effect.denied']);
      expect(seqs(events)).toEqual(counted(1, events.length));
      expect(await all()).toEqual(before);
    });

    it('is read in parts of any size', async () => {
      for (let n = 0; n < 5; n += 1) {
        const { effect } = await dispatched(at.store);
        await at.store.settle(settleRequest(effect, committed()));
      }
      const events = await all();
      for (const size of [1, 2, 3, 7]) {
        const read: LedgerEvent[] = [];
        for (;;) {
          const part = await at.store.ledger(WORKSPACE, read.at(-1)?.seq ?? 0, size);
          expect(part.length).toBeLessThanOrEqual(size);
          if (part.length === 0) break;
          read.push(...part);
        }
        expect(read).toEqual(events);
      }
      expect(await at.store.ledger(WORKSPACE, events.length, 10)).toEqual([]);
    });

    it('is read backwards in parts of any size', async () => {
      for (let n = 0; n < 5; n += 1) {
        const { effect } = await dispatched(at.store);
        await at.store.settle(settleRequest(effect, committed()));
      }
      const events = (await all()).toReversed();
      for (const size of [1, 2, 3, 7]) {
        const read: LedgerEvent[] = [];
        for (;;) {
          const part = await at.store.ledgerBefore(WORKSPACE, read.at(-1)?.seq ?? null, size);
          expect(part.length).toBeLessThanOrEqual(size);
          if (part.length === 0) break;
          read.push(...part);
        }
        expect(read).toEqual(events);
      }
      expect(await at.store.ledgerBefore(WORKSPACE, 1, 10)).toEqual([]);
      expect(await at.store.ledgerBefore('nobody', null, 10)).toEqual([]);
    });

    it('counts each workspace by itself', async () => {
      await dispatched(at.store);
      await dispatched(at.store, { workspace: 'other' });
      expect(seqs(await all('other'))).toEqual([1]);
      expect(await all('nobody')).toEqual([]);
    });

    it('takes events that belong to no step', async () => {
      await at.store.append(WORKSPACE, [
        { kind: 'policy.loaded', effectId: null, actor: { type: 'gateway', id: 'g' }, data: { version: 'v1' } },
        { kind: 'read.batch', effectId: null, actor: AGENT, data: { reads: 12, deep: { list: [1, null, 'ü'] } } },
      ]);
      expect(await all()).toMatchObject([
        { seq: 1, kind: 'policy.loaded', effectId: null, actor: { type: 'gateway', id: 'g' }, data: { version: 'v1' } },
        { seq: 2, kind: 'read.batch', data: { reads: 12, deep: { list: [1, null, 'ü'] } } },
      ]);
      await at.store.append(WORKSPACE, []);
      expect(await all()).toHaveLength(2);
    });

    at.timed('counts a storm of duplicates instead of writing each', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, committed()));
      const before = (await all()).length;
      const storm = Array.from({ length: 200 }, () => at.store.admit(admitRequest({ idempotencyKey: 'k' })));
      for (const answer of await Promise.all(storm)) expect(answer.kind).toBe('existing');
      expect((await all()).length - before).toBe(10);
      at.advance(1_000);
      // What was counted comes before what is written next.
      await dispatched(at.store, { idempotencyKey: 'next' });
      const [counted, next] = (await all()).slice(before + 10);
      expect(counted).toMatchObject({ kind: 'effect.duplicate_blocked', data: { repeated: 190 } });
      expect(next).toMatchObject({ kind: 'effect.admitted' });
    });

    at.timed('counts a storm of conflicts under one key instead of writing each', async () => {
      await dispatched(at.store, { idempotencyKey: 'k' });
      for (let n = 0; n < 40; n += 1)
        await at.store.admit(admitRequest({ idempotencyKey: 'k', fingerprint: `other ${n}` }));
      at.advance(1_000);
      await at.store.sweep(1);
      const events = (await all()).slice(1);
      expect(events).toHaveLength(11);
      expect(events.at(-1)).toMatchObject({ kind: 'effect.conflict', data: { repeated: 30 } });
    });

    it('says of an admission and of a refusal by which policy and rules, and what policy looked at', async () => {
      const matched = [
        { rule: 'payments/refunds', effect: 'constrain', unknown: [] },
        { rule: 'payments/rate', effect: 'allow', unknown: [] },
      ] as const;
      const shadow = ['payments/next'];
      const entities = [{ type: 'customer', id: '42', version: 0, digest: '' }] as const;
      await at.store.activatePolicy('v2', []);
      const seen = { policy: 'v2', pauses: 0 };
      const trace = { ...permit().trace, policyVersion: 'v2', matched, shadow, entities };
      await dispatched(at.store, { seen, verdict: { ...permit(), trace } });
      const reason = { code: 'rule_denied', message: '-', rule: 'payments/noon' } as const;
      const verdict = { kind: 'deny', decision: 'denied_policy', reason, trace } as const;
      await at.store.admit(admitRequest({ seen, verdict }));
      const looked = { policy_version: 'v2', entities: [{ type: 'customer', id: '42', version: 0 }] };
      expect((await all()).filter(({ effectId }) => effectId !== null)).toMatchObject([
        { kind: 'effect.admitted', data: { rules: ['payments/refunds', 'payments/rate'], shadow, ...looked } },
        { kind: 'effect.denied', data: { code: 'rule_denied', rule: 'payments/noon', ...looked } },
      ]);
    });

    at.timed('counts what one API key that may not act is refused, whoever and whatever it names', async () => {
      const reason = { code: 'unknown_agent', message: 'There is no such agent.' } as const;
      const verdict = { kind: 'deny', decision: 'denied_identity', reason, trace: permit().trace } as const;
      const storm = Array.from({ length: 40 }, (_, n) => {
        const request = admitRequest({ idempotencyKey: `k${n}`, verdict });
        return at.store.admit({ ...request, actor: { ...request.actor, agentId: '', keyId: 'key_loud' } });
      });
      for (const answer of await Promise.all(storm)) expect(answer.kind).toBe('refused');
      expect(await all()).toHaveLength(10);
      at.advance(1_000);
      await at.store.sweep(1);
      const events = await all();
      expect(events.map(({ actor }) => actor)).toEqual(Array(11).fill({ type: 'key', id: 'key_loud' }));
      expect(events.at(-1)).toMatchObject({ kind: 'effect.denied', data: { code: 'unknown_agent', repeated: 30 } });
    });

    // By the machine's clock a second may pass in the storm, and what was counted in it comes then.
    at.timed('is not silenced by a storm about something else: another key, another kind, another reason', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'loud' });
      await at.store.settle(settleRequest(effect, committed()));
      const quiet = await dispatched(at.store, { idempotencyKey: 'quiet' });
      await at.store.settle(settleRequest(quiet.effect, committed()));
      const denied = (code: 'rule_denied' | 'no_rule_allows', idempotencyKey: string) => {
        const reason = { code, message: '-' };
        const verdict = { kind: 'deny', decision: 'denied_policy', reason, trace: permit().trace } as const;
        return at.store.admit(admitRequest({ idempotencyKey, verdict }));
      };
      const conflict = (idempotencyKey: string) =>
        at.store.admit(admitRequest({ idempotencyKey, fingerprint: 'other' }));
      for (let n = 0; n < 15; n += 1) {
        await at.store.admit(admitRequest({ idempotencyKey: 'loud' }));
        await conflict('loud');
        await denied('rule_denied', 'refused');
      }
      const before = (await all()).length;
      await at.store.admit(admitRequest({ idempotencyKey: 'quiet' }));
      await conflict('quiet');
      await denied('no_rule_allows', 'refused');
      await denied('rule_denied', 'refused too');
      expect((await all()).slice(before).map(({ kind }) => kind)).toEqual([
        'effect.duplicate_blocked',
        'effect.conflict',
        'effect.denied',
        'effect.denied',
      ]);
    });

    at.timed('writes duplicates again in the next second', async () => {
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k' });
      await at.store.settle(settleRequest(effect, committed()));
      const before = (await all()).length;
      for (let second = 0; second < 3; second += 1) {
        for (let n = 0; n < 4; n += 1) await at.store.admit(admitRequest({ idempotencyKey: 'k' }));
        at.advance(1_000);
      }
      expect((await all()).length - before).toBe(12);
    });
  });

  describe('lists', () => {
    const at = useStore(open, capabilities);

    async function make(count: number, overrides: Parameters<typeof dispatched>[1] = {}) {
      const made = [];
      for (let n = 0; n < count; n += 1) made.push((await dispatched(at.store, overrides)).effect);
      return made;
    }

    it('shows each effect once over its pages, newest first, also where times are equal', async () => {
      const made = await make(23);
      const seen: string[] = [];
      let cursor: string | null = null;
      do {
        const page = await at.store.effects(WORKSPACE, { ...ANY, limit: 5, cursor });
        expect(page.items.length).toBeLessThanOrEqual(5);
        seen.push(...page.items.map(({ id }) => id));
        cursor = page.next;
      } while (cursor !== null);
      expect(seen).toEqual(made.map(({ id }) => id).reverse());
    });

    it('ends a page by bytes as well as by count, and shows each effect once', async () => {
      const made = [];
      for (const size of [450_000, 450_000, 10, 450_000, PAGE_BYTES + 1, 10, 10])
        made.push(await dispatched(at.store, { sealed: 's'.repeat(size) }));
      const pages: string[][] = [];
      let cursor: string | null = null;
      do {
        const page = await at.store.effects(WORKSPACE, { ...ANY, limit: 200, cursor });
        const bytes = page.items.reduce((sum, { sealed }) => sum + (sealed?.length ?? 0), 0);
        expect(page.items.length === 1 || bytes <= PAGE_BYTES).toBe(true);
        pages.push(page.items.map(({ id }) => id));
        cursor = page.next;
      } while (cursor !== null);
      expect(pages.flat()).toEqual(made.map(({ effect }) => effect.id).reverse());
      expect(pages.map(({ length }) => length)).toEqual([2, 1, 3, 1]);
    });

    it('keeps its place while new effects are made', async () => {
      const made = await make(6);
      const first = await at.store.effects(WORKSPACE, { ...ANY, limit: 3 });
      await make(4);
      const second = await at.store.effects(WORKSPACE, { ...ANY, limit: 3, cursor: first.next });
      expect([...first.items, ...second.items].map(({ id }) => id)).toEqual(made.map(({ id }) => id).reverse());
    });

    it('finds effects by state, decision, tool and agent, and by all of them together', async () => {
      const [one, two] = await make(2);
      const [three] = await make(1, { action: { tool: 'crm.update' } });
      const [four] = await make(1, { actor: { agentId: 'other-bot' } });
      if (!one || !two || !three || !four) throw new Error('not made');
      await at.store.settle(settleRequest(one, committed()));
      await at.store.settle(settleRequest(two, UNKNOWN));
      await at.store.admit(
        admitRequest({
          verdict: {
            kind: 'deny',
            decision: 'denied_policy',
            reason: { code: 'rule_denied', message: '-' },
            trace: permit().trace,
          },
        }),
      );
      const found = async (filter: Partial<typeof ANY>) =>
        (await at.store.effects(WORKSPACE, { ...ANY, ...filter })).items.map(({ id }) => id);
      expect(await found({ state: 'committed' })).toEqual([one.id]);
      expect(await found({ state: 'unknown' })).toEqual([two.id]);
      expect(await found({ state: 'executing' })).toEqual([four.id, three.id]);
      expect(await found({ decision: 'denied_policy' })).toHaveLength(1);
      expect(await found({ decision: 'in_progress' })).toEqual([four.id, three.id]);
      expect(await found({ decision: 'unknown_effect' })).toEqual([two.id]);
      expect(await found({ tool: 'crm.update' })).toEqual([three.id]);
      expect(await found({ agentId: 'other-bot' })).toEqual([four.id]);
      expect(await found({ agentId: 'support-bot', tool: 'payments.refund', state: 'committed' })).toEqual([one.id]);
      expect(await found({ agentId: 'other-bot', tool: 'crm.update' })).toEqual([]);
      expect((await at.store.effects('other', ANY)).items).toEqual([]);
    });

    at.timed('finds effects by time: from a time on, up to before another', async () => {
      const start = at.now();
      const made = [];
      for (let n = 0; n < 5; n += 1) {
        made.push(...(await make(1)));
        at.advance(1_000);
      }
      const found = async (filter: Partial<typeof ANY>) =>
        (await at.store.effects(WORKSPACE, { ...ANY, ...filter })).items.map(({ id }) => id);
      const ids = made.map(({ id }) => id).reverse();
      expect(await found({ since: start + 1_000, until: start + 3_000 })).toEqual(ids.slice(2, 4));
      expect(await found({ since: start + 1_000, agentId: 'support-bot' })).toEqual(ids.slice(0, 4));
      expect(await found({ until: start + 1, tool: 'payments.refund' })).toEqual(ids.slice(4));
      expect(await found({ since: start + 5_000 })).toEqual([]);
      expect(await found({ until: start })).toEqual([]);
    });
  });
}
