import { describe, expect, it } from 'vitest';
import {
  type LedgerDraft,
  type LedgerEvent,
  type LedgerFilter,
  ledgerEventToWire,
} from '../../src/effects/model/ledger.ts';
import { type Capabilities, DAY, type OpenStore, useStore } from './fixture.ts';
import {
  AGENT,
  admitRequest,
  ANY,
  approvalBy,
  committed,
  dispatched,
  FAILED,
  keyRecord,
  permit,
  PERSON,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

/** The ledger as people search it: filters, pages, and what is known of the effect behind an event. */
export function describeLedgerPages(open: OpenStore, capabilities: Capabilities): void {
  describe('pages of the ledger', () => {
    const at = useStore(open, capabilities);

    const batch = (n: number): LedgerDraft => ({ kind: 'read.batch', effectId: null, actor: AGENT, data: { n } });

    async function pages(filter: Partial<LedgerFilter>, limit = 7): Promise<readonly LedgerEvent[]> {
      const found: LedgerEvent[] = [];
      let cursor: string | null = null;
      do {
        const page = await at.store.ledgerPage(WORKSPACE, { since: null, until: null, ...filter, limit, cursor });
        expect(page.items.length).toBeLessThanOrEqual(limit);
        found.push(...page.items);
        cursor = page.next;
      } while (cursor !== null);
      return found;
    }

    /** The lines of an export, in the order of the ledger. */
    async function exported(filter: Partial<LedgerFilter>): Promise<readonly unknown[]> {
      const of = { workspace: WORKSPACE, publicUrl: '', what: ['events'], form: 'json' } as const;
      const asked = { ...of, filter: { since: null, until: null, ...filter } };
      let lines = '';
      for await (const { text } of at.store.exported(asked, () => ({ tool: null, now: 0 }))) lines += text;
      return lines === ''
        ? []
        : lines
            .trimEnd()
            .split('\n')
            .map((line): unknown => JSON.parse(line));
    }

    const lineOf = (event: LedgerEvent): object => ({ type: 'event', ...ledgerEventToWire(event) });

    /** Both ways of reading give the same events. */
    async function kinds(filter: Partial<LedgerFilter>): Promise<readonly string[]> {
      const found = (await pages(filter)).toReversed();
      expect(await exported(filter)).toEqual(found.map(lineOf));
      return found.map(({ kind }) => kind);
    }

    it('show each event once, newest first, in pages of any size', async () => {
      await at.store.append(
        WORKSPACE,
        Array.from({ length: 450 }, (_, n) => batch(n)),
      );
      const all = await at.store.ledger(WORKSPACE, 0, 1_000);
      for (const size of [13, 200]) expect(await pages({}, size)).toEqual(all.toReversed());
      expect(await exported({})).toEqual(all.map(lineOf));
      expect(await at.store.ledgerPage('nobody', { since: null, until: null, limit: 5, cursor: null })).toEqual({
        items: [],
        next: null,
      });
    });

    it('that find little look at a part of the ledger, and say where to go on', async () => {
      await at.store.append(WORKSPACE, [{ ...batch(0), kind: 'store.time_accepted' }]);
      for (let n = 0; n < 11; n += 1)
        await at.store.append(
          WORKSPACE,
          Array.from({ length: 200 }, (_, m) => batch(m)),
        );
      const filter = { kind: 'store', since: null, until: null, limit: 5 } as const;
      const first = await at.store.ledgerPage(WORKSPACE, { ...filter, cursor: null });
      expect(first.items).toEqual([]);
      expect(first.next).not.toBeNull();
      const second = await at.store.ledgerPage(WORKSPACE, { ...filter, cursor: first.next });
      expect(second).toMatchObject({ items: [{ kind: 'store.time_accepted', seq: 1 }], next: null });
    });

    it('are searched by kind, by all kinds of one thing, and by who caused it', async () => {
      const { effect } = await dispatched(at.store);
      await at.store.settle(settleRequest(effect, committed()));
      await at.store.putKey(keyRecord({ agentId: 'support-bot' }), PERSON);
      await at.store.append(WORKSPACE, [
        { kind: 'pause.set', effectId: null, actor: { type: 'user', id: 'tom' }, data: { pause_id: 'pau_1' } },
        { kind: 'pause.lifted', effectId: null, actor: PERSON, data: { pause_id: 'pau_1' } },
      ]);
      expect(await kinds({ kind: 'pause.set' })).toEqual(['pause.set']);
      expect(await kinds({ kind: 'pause' })).toEqual(['pause.set', 'pause.lifted']);
      expect(await kinds({ kind: 'execution' })).toEqual(['execution.started', 'execution.succeeded']);
      expect(await kinds({ actor: 'tom' })).toEqual(['pause.set']);
      expect(await kinds({ user: 'maria' })).toEqual(['key.created', 'pause.lifted']);
      expect(await kinds({ kind: 'pause', user: 'maria' })).toEqual(['pause.lifted']);
      expect(await kinds({ effectId: effect.id })).toEqual([
        'effect.admitted',
        'execution.started',
        'execution.succeeded',
        'receipt.issued',
      ]);
    });

    it('know of an event which agent, tool, target, rule, user and key its effect had', async () => {
      const ours = admitRequest({
        action: { tool: 'crm.write', target: 'customer:7' },
        actor: { agentId: 'crm-bot', user: 'omar', keyId: 'key_omar' },
        verdict: {
          ...permit(),
          trace: { ...permit().trace, matched: [{ rule: 'crm/writes', effect: 'allow', unknown: [] }] },
        },
      });
      await dispatched(at.store);
      const { effect } = await dispatched(at.store, ours);
      await at.store.settle(settleRequest(effect, FAILED));
      const other = { kind: 'claim.taken', effectId: null, actor: PERSON } as const;
      await at.store.append(WORKSPACE, [
        { ...other, data: { claim_id: 'clm_1', target: 'customer:7', agent_id: 'crm-bot' } },
        { ...other, data: { claim_id: 'clm_2', target: 'customer:8', agent_id: 'x' } },
      ]);
      const story = ['effect.admitted', 'execution.started', 'execution.failed'];
      expect(await kinds({ tool: 'crm.write' })).toEqual(story);
      expect(await kinds({ rule: 'crm/writes' })).toEqual(story);
      expect(await kinds({ user: 'omar' })).toEqual(story);
      expect(await kinds({ keyId: 'key_omar' })).toEqual(story);
      expect(await kinds({ target: 'customer:7' })).toEqual([...story, 'claim.taken']);
      expect(await kinds({ agentId: 'crm-bot' })).toEqual([...story, 'claim.taken']);
      expect(await kinds({ agentId: 'crm-bot', kind: 'execution' })).toEqual(story.slice(1));
      expect(await kinds({ agentId: 'crm-bot', tool: 'payments.refund' })).toEqual([]);
    });

    it('know of an agent whose it is, and of what was only observed which rule would have stopped it', async () => {
      const by = { effectId: null, actor: PERSON } as const;
      await at.store.append(WORKSPACE, [
        { ...by, kind: 'agent.registered', data: { agent_id: 'bot', owner: 'olga' } },
        { ...by, kind: 'agent.registered', data: { agent_id: 'other', owner: 'tom' } },
        { ...by, kind: 'effect.admitted', data: { observed: { would: 'denied_policy', rule: 'a/no' } } },
        { ...by, kind: 'effect.admitted', data: { observed: { would: 'denied_policy', rule: 'a/other' } } },
      ]);
      expect(await kinds({ user: 'olga' })).toEqual(['agent.registered']);
      expect(await kinds({ rule: 'a/no' })).toEqual(['effect.admitted']);
    });

    it('know of a key also what it was made in place of', async () => {
      const [old, next] = [keyRecord(), keyRecord()];
      for (const key of [old, next]) await at.store.putKey(key, PERSON);
      await at.store.endKey(old.id, { kind: 'replaced', by: next.id, overlapMs: 1 }, PERSON);
      expect(await kinds({ keyId: next.id })).toEqual(['key.created', 'key.rotated']);
    });

    at.timed('are bounded by time: from one, up to but not at another', async () => {
      const begun = at.now();
      for (let n = 0; n < 30; n += 1) {
        await at.store.append(WORKSPACE, [batch(n), batch(n)]);
        at.advance(1_000);
      }
      const numbers = async (filter: Partial<LedgerFilter>): Promise<readonly unknown[]> => {
        const found = (await pages(filter)).toReversed();
        expect(await exported(filter)).toEqual(found.map(lineOf));
        return found.map(({ data }) => data['n']);
      };
      expect(await numbers({ since: begun + 27_000 })).toEqual([27, 27, 28, 28, 29, 29]);
      expect(await numbers({ until: begun + 2_000 })).toEqual([0, 0, 1, 1]);
      expect(await numbers({ since: begun + 10_000, until: begun + 11_000 })).toEqual([10, 10]);
      expect(await numbers({ since: begun + 10_001, until: begun + 11_000 })).toEqual([]);
      expect(await numbers({ since: begun + 60_000 })).toEqual([]);
      expect(await numbers({ until: begun })).toEqual([]);
    });

    at.timed('still find what an effect did after its record was removed by age', async () => {
      const { effect } = await dispatched(at.store, { action: { target: 'customer:9' } });
      const payload = { actor: { user: 'olga', key_id: 'key_old' }, policy: { matched: [{ rule: 'old/rule' }] } };
      const jws = `e30.${Buffer.from(JSON.stringify(payload)).toString('base64url')}.x`;
      await at.store.settle(settleRequest(effect, committed(jws)));
      const found = await kinds({ effectId: effect.id });
      at.advance(31 * DAY);
      await at.store.sweep(10);
      expect(await at.store.effect(WORKSPACE, effect.id)).toBeNull();
      for (const filter of [{ target: 'customer:9' }, { user: 'olga' }, { keyId: 'key_old' }, { rule: 'old/rule' }])
        expect(await kinds(filter), JSON.stringify(filter)).toEqual(found);
    });
  });

  describe('lists of effects', () => {
    const at = useStore(open, capabilities);

    it('are filtered by whose key it was, and by who approved or rejected', async () => {
      const asked = (key: string) =>
        at.store.admit(
          admitRequest({
            idempotencyKey: key,
            actor: { user: key === 'a' ? 'omar' : 'tom', keyId: `key_${key}` },
            verdict: {
              ...permit([], [approvalBy()]),
              trace: { ...permit().trace, matched: [{ rule: 'r', effect: 'require_approval', unknown: [] }] },
            },
          }),
        );
      const [first, second] = [await asked('a'), await asked('b')];
      if (first.kind !== 'pending' || second.kind !== 'pending') throw new Error('they wait');
      await dispatched(at.store);
      await at.store.vote(voteRequest(first.approval, { user: 'maria' }));
      await at.store.vote(voteRequest(second.approval, { user: 'bob', verdict: 'reject' }));
      const ids = async (filter: object) =>
        (await at.store.effects(WORKSPACE, { ...ANY, ...filter })).items.map(({ id }) => id);
      expect(await ids({ approver: 'maria' })).toEqual([first.effect.id]);
      expect(await ids({ approver: 'bob' })).toEqual([second.effect.id]);
      expect(await ids({ approver: 'nobody' })).toEqual([]);
      expect(await ids({ user: 'omar' })).toEqual([first.effect.id]);
      expect(await ids({ keyId: 'key_b' })).toEqual([second.effect.id]);
      expect(await ids({ approver: 'maria', user: 'tom' })).toEqual([]);
    });
  });
}
