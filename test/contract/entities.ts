import type { AskedOf } from '../../src/effects/store.ts';
import { describe, expect, it, vi } from 'vitest';
import type { SeenEntity } from '../../src/effects/model/entity.ts';
import type { Deny, Permit } from '../../src/effects/model/verdict.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  approvalBy,
  dispatched,
  PERSON,
  permit,
  settleRequest,
  UNKNOWN,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

const LIMITS = { entities: 6, characters: 1000 };
const API = { kind: 'api', by: PERSON } as const;
const FILE = { kind: 'file', file: 'crm.yaml', line: 3 } as const;

type Given = AskedOf<'putEntities'>['entities'][number];

/** A verdict for which policy looked at the customer `a` in this version. */
function having<V extends Deny | Permit>(verdict: V, version: number): V {
  const entities: readonly SeenEntity[] = [{ type: 'customer', id: 'a', version, digest: version === 0 ? '' : 'd' }];
  return { ...verdict, trace: { ...verdict.trace, entities } };
}

const DENIED: Deny = {
  kind: 'deny',
  decision: 'denied_policy',
  reason: { code: 'rule_denied', message: 'Sanctioned.', rule: 'payments/sanctioned' },
  trace: permit().trace,
};

function entity(id: string, change: Partial<Given> = {}): Given {
  const body = `{"name":"${id}"}`;
  return { type: 'customer', id, body, digest: `digest of ${id}`, characters: body.length, origin: API, ...change };
}

export function describeEntities(open: OpenStore, capabilities: Capabilities): void {
  describe('entities of the company brain', () => {
    const at = useStore(open, capabilities);
    const put = (...entities: readonly Given[]) =>
      at.store.putEntities({ workspace: WORKSPACE, entities, actor: PERSON, limits: LIMITS });
    const remove = (id: string, origin: 'api' | 'file' = 'api') =>
      at.store.removeEntities({ workspace: WORKSPACE, entities: [{ type: 'customer', id }], origin, actor: PERSON });
    const read = async (id: string) => (await at.store.entities(WORKSPACE, [{ type: 'customer', id }]))[0];
    const since = async (version: number) => {
      const { entities, next } = await at.store.entitiesSince(WORKSPACE, version, null);
      expect(next).toBeNull();
      return entities.map(({ id }) => id);
    };

    it('are kept as they were put, and a change gives a new version to what changed alone', async () => {
      expect(await put(entity('a'), entity('b'))).toEqual({
        kind: 'put',
        version: 1,
        created: 2,
        changed: 0,
        unchanged: 0,
      });
      const changed = entity('b', { body: '{"name":"B"}', digest: 'another', characters: 12 });
      expect(await put(entity('a'), changed, entity('c'))).toEqual({
        kind: 'put',
        version: 2,
        created: 1,
        changed: 1,
        unchanged: 1,
      });
      expect(await put(entity('a'), changed)).toMatchObject({ version: 2, unchanged: 2 });
      await at.reopen();
      expect(await read('a')).toMatchObject({ ...entity('a'), version: 1 });
      expect(await read('b')).toMatchObject({ ...changed, version: 2 });
      expect(await read('none')).toBeNull();
      expect(await at.store.entities('elsewhere', [{ type: 'customer', id: 'a' }])).toEqual([null]);
      expect(await since(0)).toEqual(expect.arrayContaining(['a', 'b', 'c']));
      expect(await since(1)).toHaveLength(2);
      expect(await since(2)).toEqual([]);
      expect(await at.store.brainState(WORKSPACE)).toMatchObject({ version: 2, entities: 3, characters: 36 });
    });

    it('are others where the type or the id differs, be it in the case of a letter', async () => {
      const alike = [entity('a'), entity('A'), entity('a', { type: 'Customer' }), entity('a', { type: 'order' })];
      expect(await put(...alike)).toMatchObject({ created: 4 });
      const found = await at.store.entities(WORKSPACE, alike);
      expect(found.map((one) => one && [one.type, one.id])).toEqual(alike.map(({ type, id }) => [type, id]));
    });

    it('keep their version where another person puts the same', async () => {
      await put(entity('a'));
      const other = { kind: 'api', by: { type: 'user', id: 'somebody-else' } } as const;
      expect(await put(entity('a', { origin: other }))).toMatchObject({ version: 1, unchanged: 1 });
      expect(await read('a')).toMatchObject({ origin: API });
    });

    it('over limits that were lowered: what is there can be replaced and shrink, and not grow', async () => {
      await put(entity('a', { characters: 500 }), entity('b', { characters: 400 }));
      const lowered = (limits: AskedOf<'putEntities'>['limits'], characters: number) =>
        at.store.putEntities({
          workspace: WORKSPACE,
          entities: [entity('a', { digest: `of ${characters}`, characters })],
          actor: PERSON,
          limits,
        });
      expect(await lowered({ entities: 1, characters: 1000 }, 450)).toMatchObject({ kind: 'put', changed: 1 });
      expect(await lowered({ entities: 6, characters: 100 }, 300)).toMatchObject({ kind: 'put', changed: 1 });
      expect(await lowered({ entities: 6, characters: 100 }, 301)).toMatchObject({ kind: 'too_much' });
    });

    it('are removed, counted no more, and the removal is known to who follows', async () => {
      await put(entity('a'), entity('b'));
      expect(await remove('a')).toEqual({ kind: 'removed', count: 1 });
      expect(await remove('a')).toEqual({ kind: 'removed', count: 0 });
      expect(await read('a')).toBeNull();
      const state = await at.store.brainState(WORKSPACE);
      expect(state).toMatchObject({ version: 2, entities: 1, characters: 12, forgotten: 0 });
      expect(state.removed).toEqual([{ version: 2, name: 'customer\na' }]);
      await put(entity('a'));
      expect(await read('a')).toMatchObject({ version: 3 });
    });

    it('are removed by the hundred, and what is remembered of it has a bound', async () => {
      const ids = Array.from({ length: 250 }, (_, at) => `e${at}`);
      for (let from = 0; from < ids.length; from += 50) {
        await at.store.putEntities({
          workspace: WORKSPACE,
          entities: ids.slice(from, from + 50).map((id) => entity(id)),
          actor: PERSON,
          limits: { entities: 1_000, characters: 100_000 },
        });
        await at.store.removeEntities({
          workspace: WORKSPACE,
          entities: ids.slice(from, from + 50).map((id) => ({ type: 'customer', id })),
          origin: 'api',
          actor: PERSON,
        });
      }
      const { removed, forgotten, version } = await at.store.brainState(WORKSPACE);
      expect(removed.length).toBe(200);
      // All removals of a version are remembered, or none: who follows from there on has to read everything.
      expect([forgotten, version]).toEqual([2, 10]);
      expect(removed.every((one) => one.version > forgotten)).toBe(true);
      // Those that one removal pushes out may be of several versions.
      const more = Array.from({ length: 100 }, (_, at) => entity(`m${at}`));
      const limits = { entities: 1_000, characters: 100_000 };
      await at.store.putEntities({ workspace: WORKSPACE, entities: more, actor: PERSON, limits });
      await at.store.removeEntities({ workspace: WORKSPACE, entities: more, origin: 'api', actor: PERSON });
      const after = await at.store.brainState(WORKSPACE);
      expect([after.forgotten, after.removed.length]).toEqual([6, 200]);
    });

    it('were removed further back than is remembered for ever, however few are removed next', async () => {
      const all = Array.from({ length: 251 }, (_, n) => entity(`e${n}`));
      const limits = { entities: 1_000, characters: 100_000 };
      for (let from = 0; from < all.length; from += 50)
        await at.store.putEntities({
          workspace: WORKSPACE,
          entities: all.slice(from, from + 50),
          actor: PERSON,
          limits,
        });
      const removal = { workspace: WORKSPACE, origin: 'api', actor: PERSON } as const;
      await at.store.removeEntities({ ...removal, entities: all.slice(1) });
      const before = await at.store.brainState(WORKSPACE);
      expect([before.forgotten, before.removed]).toEqual([before.version, []]);
      await at.store.removeEntities({ ...removal, entities: all.slice(0, 1) });
      const { forgotten, removed } = await at.store.brainState(WORKSPACE);
      expect([forgotten, removed.length]).toEqual([before.version, 1]);
    });

    it('of files: of the digests that were read in, the newest are remembered, each once', async () => {
      for (let at20 = 0; at20 < 25; at20 += 1) await at.store.noteEntityFiles(WORKSPACE, `d${at20}`);
      await at.store.noteEntityFiles(WORKSPACE, 'd10');
      const { files } = await at.store.brainState(WORKSPACE);
      expect(files).toEqual([
        'd10',
        ...Array.from({ length: 14 }, (_, at20) => `d${24 - at20}`),
        'd9',
        'd8',
        'd7',
        'd6',
        'd5',
      ]);
    });

    it('are put all or none: one of a file stops the others, and so does a limit', async () => {
      await put(entity('a', { origin: FILE }));
      expect(await put(entity('b'), entity('a', { digest: 'other' }))).toEqual({
        kind: 'in_file',
        entities: [{ index: 1, file: 'crm.yaml' }],
      });
      expect(await remove('a')).toEqual({ kind: 'in_file', file: 'crm.yaml' });
      expect(await read('b')).toBeNull();
      const many = ['1', '2', '3', '4', '5', '6'].map((id) => entity(id));
      expect(await put(...many)).toEqual({ kind: 'too_much', of: 'entities', limit: 6 });
      expect(await put(entity('b', { characters: 989 }))).toEqual({
        kind: 'too_much',
        of: 'characters',
        limit: 1000,
      });
      expect(await put(entity('b', { characters: 988 }))).toMatchObject({ created: 1 });
      expect(await at.store.brainState(WORKSPACE)).toMatchObject({ entities: 2, characters: 1000 });
      await remove('b');
      expect(await at.store.brainState(WORKSPACE)).toMatchObject({ entities: 1, characters: 12 });
    });

    it('of the API are taken over by a file that names them, and only the file lets them go', async () => {
      await put(entity('a'));
      expect(await put(entity('a', { origin: FILE }))).toMatchObject({ changed: 1 });
      expect(await remove('a')).toMatchObject({ kind: 'in_file' });
      expect(await remove('a', 'file')).toEqual({ kind: 'removed', count: 1 });
      await put(entity('b'));
      expect(await remove('b', 'file')).toEqual({ kind: 'removed', count: 0 });
    });

    it('stand in the ledger by name with who did it, and without what they say', async () => {
      await put(entity('a', { body: '{"name":"secret"}' }));
      await remove('a');
      const events = (await at.store.ledger(WORKSPACE, 0, 100)).filter(({ kind }) => kind.startsWith('brain.'));
      expect(events).toMatchObject([
        {
          kind: 'brain.entities_put',
          actor: PERSON,
          data: { version: 1, entities: [{ type: 'customer', id: 'a' }] },
        },
        {
          kind: 'brain.entities_removed',
          actor: PERSON,
          data: { version: 2, entities: [{ type: 'customer', id: 'a' }] },
        },
      ]);
      expect(JSON.stringify(events)).not.toContain('secret');
    });

    it('have ids of every script, and lists have pages', async () => {
      const ids = ['Ζεύς / 1', '株式会社', 'o\'neil\\"', '__proto__', 'a:b c'];
      await put(...ids.map((id) => entity(id, { body: '{}', characters: 2 })));
      await put(entity('x', { type: 'order', body: '{}', characters: 2 }));
      for (const id of ids) expect(await read(id)).toMatchObject({ id });
      const seen: string[] = [];
      let cursor: string | null = null;
      do {
        const page: Awaited<ReturnType<typeof at.store.entityPage>> = await at.store.entityPage(WORKSPACE, {
          type: 'customer',
          limit: 2,
          cursor,
        });
        seen.push(...page.items.map(({ id }) => id));
        cursor = page.next;
      } while (cursor !== null);
      expect(seen.toSorted()).toEqual(ids.toSorted());
      const all = await at.store.entityPage(WORKSPACE, { type: null, limit: 10, cursor: null });
      expect(all.items[0]).toMatchObject({ type: 'order', id: 'x' });
    });

    it('admit a call only in the versions that its verdict saw, absent ones too', async () => {
      const admit = (verdict: Deny | Permit) => at.store.admit(admitRequest({ verdict }));
      const stale = { kind: 'stale' };
      expect(await admit(having(permit(), 1))).toMatchObject(stale);
      expect(await admit(having(permit(), 0))).toMatchObject({ kind: 'dispatch' });
      await put(entity('a'), entity('b'));
      expect(await admit(having(permit(), 0))).toMatchObject(stale);
      expect(await admit(having(permit(), 1))).toMatchObject({ kind: 'dispatch' });
      await put(entity('a', { body: '{"name":"A"}', digest: 'another' }));
      expect(await admit(having(permit(), 1))).toMatchObject(stale);
      expect(await admit(having(DENIED, 1))).toMatchObject(stale);
      expect(await admit(having(DENIED, 2))).toMatchObject({ kind: 'refused' });
      await remove('a');
      expect(await admit(having(permit(), 2))).toMatchObject(stale);
      expect(await admit(having(permit(), 0))).toMatchObject({ kind: 'dispatch' });
    });

    it('do not stop what was granted with what they said before', async () => {
      const asking = permit([], [approvalBy()]);
      const call = { idempotencyKey: 'k', verdict: having(asking, 0) };
      const asked = await at.store.admit(admitRequest(call));
      if (asked.kind !== 'pending') throw new Error(`expected pending, was ${JSON.stringify(asked)}`);
      await at.store.vote(voteRequest(asked.approval));
      await put(entity('a'));
      const again = (verdict: Deny | Permit) => at.store.admit(admitRequest({ ...call, verdict }));
      expect(await again(having(DENIED, 0))).toMatchObject({ kind: 'stale' });
      expect((await at.store.approval(WORKSPACE, asked.approval.id))?.stopped).toBeNull();
      expect(await again(having(asking, 0))).toMatchObject({ kind: 'stale' });
      expect(await dispatched(at.store, { ...call, verdict: having(asking, 1) })).toMatchObject({
        approval: { status: 'used' },
      });
    });

    it('do not keep from being repeated what may be, with what they said before', async () => {
      const call = { idempotencyKey: 'k', times: { idempotentForMs: 60_000 } };
      const { effect } = await dispatched(at.store, { ...call, verdict: having(permit(), 0) });
      await at.store.settle(settleRequest(effect, UNKNOWN));
      await put(entity('a'));
      const again = (version: number) => at.store.admit(admitRequest({ ...call, verdict: having(DENIED, version) }));
      expect(await again(0)).toMatchObject({ kind: 'stale' });
      expect(await again(1)).toMatchObject({ kind: 'existing', effect: { life: { state: 'unknown' } } });
      await dispatched(at.store, { ...call, verdict: having(permit(), 1) });
    });

    it('tell listeners of their workspace', async () => {
      const heard: string[] = [];
      at.store.onEntitiesChanged((workspace) => void heard.push(workspace));
      await put(entity('a'));
      await vi.waitFor(() => expect(heard).toContain(WORKSPACE), { timeout: 30_000 });
    });

    it('remembers the files that were read in', async () => {
      for (const digest of ['one', 'two', 'one']) await at.store.noteEntityFiles(WORKSPACE, digest);
      expect((await at.store.brainState(WORKSPACE)).files).toEqual(['one', 'two']);
    });
  });
}
