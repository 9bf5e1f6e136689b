import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { DERIVED } from '../../src/effects/steps/generations.ts';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import { ArchiveUnavailable, type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { createArchive } from '../../src/records/archive.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { createStepRunner } from '../../src/records/runner.ts';
import { inFolder } from '../../src/stores/archive/place.ts';
import { openArchive } from '../../src/stores/archive/segments.ts';
import type { SegmentStore } from '../../src/stores/open-rows.ts';
import type { Listed, ListQuery, RowStore } from '../../src/stores/port.ts';
import { DAY, RETENTION } from '../contract/fixture.ts';
import {
  admitRequest,
  ANY,
  approvalBy,
  budgetOf,
  committed,
  dispatched,
  FAILED,
  permit,
  settleRequest,
  UNKNOWN,
  voteRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { expectSilentFsck } from '../silent-fsck.ts';
import { ALONE, emptyRows, type MapRows, mapStore } from '../port/map-rows.ts';

let folder = '';
let now = 0;
let rows: MapRows = emptyRows();
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-archive-'));
  now = 1_750_000_000_000;
  rows = emptyRows();
});
afterEach(() => rmSync(folder, { recursive: true }));

/** A gateway that ends at one of its operations, before or after that is done; all later ones fail. */
class Killed {
  #left: number;
  readonly #isDone: boolean;
  happened = false;

  constructor(operations: number, isDone: boolean) {
    this.#left = operations;
    this.#isDone = isDone;
  }

  async at<T>(operation: () => Promise<T>): Promise<T> {
    this.#left -= 1;
    if (this.#left >= 0) return operation();
    if (this.#isDone && !this.happened) await operation();
    this.happened = true;
    throw new StoreUnavailable('killed');
  }
}

/** Of the gateway on `rows`, whose archive is in `folder`. */
function open(
  killed = new Killed(Infinity, false),
  archive = openArchive(inFolder(folder), 'map', KEY_SEALS),
): EffectStore {
  const whole = { ...mapStore(rows, () => now), ...ALONE };
  const commit: RowStore['commit'] = (change) => killed.at(() => whole.commit(change));
  const killable: SegmentStore = {
    ...archive,
    write: (...segment) => killed.at(() => archive.write(...segment)),
    setMark: (...mark) => killed.at(() => archive.setMark(...mark)),
  };
  return createEffectStore(
    { ...whole, commit },
    { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0, archive: killable },
  );
}

async function using<T>(store: EffectStore, work: (store: EffectStore) => Promise<T>): Promise<T> {
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

/** Makes settled effects of every kind, one a day. @returns their ids, oldest first */
async function settledEffects(store: EffectStore): Promise<readonly string[]> {
  const ids: string[] = [];
  for (const [n, outcome] of [committed('jws.0', 'rcp_0'), FAILED, committed('jws.2', 'rcp_2')].entries()) {
    const { effect } = await dispatched(store, { idempotencyKey: `key-${n}`, action: { target: `order:${n}` } });
    await store.settle(settleRequest(effect, outcome));
    ids.push(effect.id);
    now += DAY;
  }
  const waiting = await store.admit(admitRequest({ idempotencyKey: 'key-3', verdict: permit([], [approvalBy()]) }));
  if (waiting.kind !== 'pending') throw new Error(waiting.kind);
  await store.vote(voteRequest(waiting.approval, { verdict: 'reject' }));
  return [...ids, waiting.effect.id];
}

async function expectAllThere(store: EffectStore, ids: readonly string[]): Promise<void> {
  const listed = await store.effects(WORKSPACE, ANY);
  expect(listed.items.map(({ id }) => id)).toEqual(ids.toReversed());
  for (const id of ids) expect(await store.effect(WORKSPACE, id)).toMatchObject({ id, sealed: null });
  const receipts = await Promise.all(ids.map((id) => store.receipt(WORKSPACE, id)));
  expect(receipts).toMatchObject([{ jws: 'jws.0' }, null, { jws: 'jws.2' }, null]);
  expect(await store.admit(admitRequest({ idempotencyKey: 'key-2' }))).toMatchObject({
    kind: 'expired',
    tombstone: { id: ids[2], outcome: { receipt: { id: 'rcp_2', jws: 'jws.2' } } },
  });
  expect(await store.admit(admitRequest({ idempotencyKey: 'key-3' }))).toMatchObject({
    reason: { code: 'approval_rejected' },
  });
}

/** Every segment that the ledger names, from the first, and how many effects it says are in all of them. */
async function archivedByLedger(store: EffectStore): Promise<{ segments: unknown[]; effects: number }> {
  const events = (await store.ledger(WORKSPACE, 0, 10_000)).filter(({ kind }) => kind === 'archive.segment');
  for (const [index, { data }] of events.entries())
    expect(data['before']).toBe(index === 0 ? null : events[index - 1]?.data['sha256']);
  return {
    segments: events.map(({ data }) => data['segment']),
    effects: events.reduce((sum, { data }) => sum + Number(data['effects']), 0),
  };
}

it('what is past its age is in the archive, and found as before: by id, key, target and time, with its receipt', async () => {
  const ids = await using(open(), settledEffects);
  now += RETENTION.effectsMs + DAY;
  await using(open(), async (store) => {
    const { effect: running } = await dispatched(store, { idempotencyKey: 'running' });
    expect(await store.sweep(100)).toMatchObject({ aged: 4, archive: { failure: null, last: { segment: 1 } } });
    await expectAllThereBut(store, ids, running.id);
    const page = async (of: object): Promise<readonly string[]> =>
      (await store.effects(WORKSPACE, { ...ANY, ...of })).items.map(({ id }) => id);
    expect(await page({ target: 'order:1' })).toEqual([ids[1]]);
    expect(await page({ state: 'failed' })).toEqual([ids[1]]);
    expect(await page({ state: 'rejected', agentId: 'support-bot' })).toEqual([ids[3]]);
    const first = await store.effect(WORKSPACE, ids[0] ?? '');
    const createdAt = first?.createdAt ?? 0;
    expect(await page({ since: createdAt, until: createdAt + DAY })).toEqual([ids[0]]);
    const before = { until: createdAt + DAY };
    for (const of of [{ rule: 'payments/refunds' }, { keyId: 'key_agent0000001' }, { tool: 'payments.refund' }])
      expect(await page({ ...before, ...of }), JSON.stringify(of)).toEqual([ids[0]]);
    for (const of of [{ rule: 'payments/other' }, { user: 'maria' }, { tool: 'payments.get' }])
      expect(await page({ ...before, ...of }), JSON.stringify(of)).toEqual([]);
    const newest = await store.effects(WORKSPACE, { ...ANY, limit: 2 });
    const rest = await store.effects(WORKSPACE, { ...ANY, limit: 9, cursor: newest.next });
    expect([...newest.items, ...rest.items].map(({ id }) => id)).toEqual([running.id, ...ids.toReversed()]);
    const facts = await store.ledgerPage(WORKSPACE, {
      target: 'order:0',
      since: null,
      until: null,
      limit: 99,
      cursor: null,
    });
    expect(facts.items.length).toBeGreaterThan(2);
    await expectSilentFsck(store);
  });
  const kept = rows.spaces.get(WORKSPACE);
  expect([...(kept?.lists.keys() ?? [])]).toContain('archived:effects');
  const texts = [...(rows.spaces.get(WORKSPACE)?.rows.values() ?? [])].map(({ text }) => text).join('\n');
  expect(texts).not.toContain('jws.0');
  now += RETENTION.keysMs;
  await using(open(), (store) => store.sweep(100));
  const lists = [...(kept?.lists ?? [])].filter(([name, { size }]) => name.startsWith('archived:') && size > 0);
  expect(lists).toEqual([]);
  // What is older than retention.keys may be removed by hand: nothing leads there any more.
  rmSync(join(folder, WORKSPACE, '000000001.jsonl'));
  await using(open(), async (store) => {
    const { effect } = await dispatched(store, { idempotencyKey: 'later' });
    const { items } = await store.effects(WORKSPACE, ANY);
    expect(items.map(({ id }) => id)).toContain(effect.id);
    for (const id of ids) expect(await store.effect(WORKSPACE, id)).toBeNull();
  });
});

async function expectAllThereBut(store: EffectStore, ids: readonly string[], more: string): Promise<void> {
  const { items } = await store.effects(WORKSPACE, ANY);
  expect(items.map(({ id }) => id)).toEqual([more, ...ids.toReversed()]);
  expect(await store.receipt(WORKSPACE, ids[0] ?? '')).toEqual({ id: 'rcp_0', jws: 'jws.0' });
}

it.each([false, true])(
  'killed at any step, with that step done or not (%s): nothing is lost, and nothing twice',
  async (isDone) => {
    for (let step = 0, isKilled = true; isKilled; step += 1) {
      rmSync(folder, { recursive: true });
      rows = emptyRows();
      now = 1_750_000_000_000;
      const ids = await using(open(), settledEffects);
      now += RETENTION.effectsMs + DAY;
      const killed = new Killed(step, isDone);
      await using(open(killed), (store) => store.sweep(2).catch(() => undefined));
      isKilled = killed.happened;
      await using(open(), async (store) => {
        for (let left = 3; left > 0; left -= 1) await store.sweep(2);
        await expectAllThere(store, ids);
        const { segments, effects } = await archivedByLedger(store);
        expect(segments, `killed at ${step}`).toEqual(segments.map((_, index) => index + 1));
        expect(effects, `killed at ${step}`).toBe(ids.length);
        expect(readdirSync(join(folder, WORKSPACE)).length).toBe(segments.length + 1);
      });
    }
  },
);

it('a store from a backup is not used beside a newer archive, and takes it in where somebody says so', async () => {
  const verdict = permit([budgetOf(100, 7)], [approvalBy()]);
  const asking = admitRequest({ idempotencyKey: 'asked', verdict });
  const { approval, asked, failed } = await using(open(), async (store) => {
    const { effect } = await dispatched(store, { idempotencyKey: 'retried' });
    await store.settle(settleRequest(effect, FAILED));
    const waiting = await store.admit(asking);
    if (waiting.kind !== 'pending') throw new Error(waiting.kind);
    expect(await store.budgets(WORKSPACE)).toMatchObject([{ held: 7 }]);
    return { approval: waiting.approval, asked: waiting.effect, failed: effect };
  });
  const backup = structuredClone(rows);
  await using(open(), async (store) => {
    const again = await dispatched(store, { idempotencyKey: 'retried' });
    await store.settle(settleRequest(again.effect, committed('jws.again')));
    await store.vote(voteRequest(approval));
    const sent = await dispatched(store, { idempotencyKey: 'asked', verdict, approvalDigest: asking.approvalDigest });
    await store.settle(settleRequest(sent.effect, committed('jws.asked')));
    const late = await dispatched(store, { idempotencyKey: 'later' });
    await store.settle(settleRequest(late.effect, committed('jws.later')));
    const derived = await dispatched(store, { idempotencyKey: `${DERIVED}act`, generationMs: 60_000 });
    await store.settle(settleRequest(derived.effect, committed('jws.derived')));
    const first = await dispatched(store, { idempotencyKey: 'reused' });
    await store.settle(settleRequest(first.effect, FAILED));
    now += RETENTION.effectsMs + DAY;
    await store.sweep(100);
    const second = await dispatched(store, { idempotencyKey: 'reused' });
    await store.settle(settleRequest(second.effect, committed('jws.reused')));
    now += RETENTION.effectsMs + DAY;
    await store.sweep(100);
  });

  rows = backup;
  await using(open(), async (store) => {
    const refused = store.admit(admitRequest({ idempotencyKey: 'later' }));
    await expect(refused).rejects.toThrow('older than its archive');
    await expect(refused).rejects.toThrow(`delete ${join(folder, WORKSPACE, 'head.json')}`);
    await expect(store.vote(voteRequest(approval))).rejects.toThrow('older than its archive');
    expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_rolled_back' } });
    rmSync(join(folder, WORKSPACE, 'head.json'));
    for (const [key, jws] of Object.entries({ later: 'jws.later', retried: 'jws.again', reused: 'jws.reused' }))
      expect(await store.admit(admitRequest({ idempotencyKey: key })), key).toMatchObject({
        kind: 'expired',
        tombstone: { outcome: { receipt: { jws } } },
      });
    expect(store.health()).toMatchObject({ ready: true });
    expect(await store.effect(WORKSPACE, failed.id)).toMatchObject({ life: { state: 'committed' }, attempt: 2 });
    expect(await store.admit({ ...asking, effectId: 'eff_again' })).toMatchObject({ kind: 'expired' });
    expect(await store.vote(voteRequest(approval))).toEqual({ kind: 'absent' });
    expect(await store.budgets(WORKSPACE)).toEqual([]);
    const voided = (await store.effectLedger(WORKSPACE, asked.id)).find(({ kind }) => kind === 'budget.voided');
    expect(voided?.data).toMatchObject({ holds: [{ amount: 7 }] });
    // The call of a generation that lasts is not sent again either.
    const again = await store.preview(admitRequest({ idempotencyKey: `${DERIVED}act`, generationMs: 1e13 }));
    expect(again).toMatchObject({ kind: 'expired', tombstone: { outcome: { receipt: { jws: 'jws.derived' } } } });
    expect(await archivedByLedger(store)).toMatchObject({ segments: [1, 2] });
    await store.sweep(100);
    expect((await store.effects(WORKSPACE, ANY)).items.length).toBe(6);
  });
});

it('an archive of another course of the store is not its archive, though it has got as far', async () => {
  const root = folder;
  const course = async (name: string, ...keys: readonly string[]) => {
    [rows, folder] = [emptyRows(), join(root, name)];
    mkdirSync(folder);
    await using(open(), async (store) => {
      for (const key of keys) {
        const { effect } = await dispatched(store, { idempotencyKey: key });
        await store.settle(settleRequest(effect, committed(`jws.${key}`)));
        now += RETENTION.effectsMs + DAY;
        await store.sweep(100);
      }
    });
    return { rows, at: (file: string) => join(root, name, WORKSPACE, file) };
  };
  await course('one', 'a', 'b');
  const other = await course('other', 'c', 'd');
  const refused = (why: string) =>
    using(open(), async (store) => {
      await expect(store.admit(admitRequest({ idempotencyKey: 'late' }))).rejects.toThrow(why);
      expect(store.health().ready).toBe(false);
    });
  folder = join(root, 'one');
  await refused('older than its archive');
  // Nor is a segment taken in that does not follow the one that the store names.
  const short = await course('short', 'e');
  rmSync(short.at('head.json'));
  cpSync(other.at('000000002.jsonl'), short.at('000000002.jsonl'));
  await refused('does not follow the one that the store names');
  folder = root;
});

it('requests that a restored store knows as pending end with the archive: the agent may ask as many as ever', async () => {
  const MOST = 20;
  const verdict = permit([], [approvalBy()]);
  const ask = (store: EffectStore, name: string) => store.admit(admitRequest({ idempotencyKey: name, verdict }));
  const waiting = await using(open(), async (store) => {
    const asked = [];
    for (let n = 0; n < MOST; n += 1) asked.push(await ask(store, `asked-${n}`));
    expect(await ask(store, 'too many')).toMatchObject({ reason: { code: 'too_many_pending' } });
    return asked.filter((one) => one.kind === 'pending');
  });
  const backup = structuredClone(rows);
  await using(open(), async (store) => {
    for (const { approval } of waiting) await store.vote(voteRequest(approval, { verdict: 'reject' }));
    now += RETENTION.effectsMs + DAY;
    await store.sweep(100);
  });
  rows = backup;
  rmSync(join(folder, WORKSPACE, 'head.json'));
  await using(open(), async (store) => {
    for (let n = 0; n < MOST; n += 1)
      expect(await ask(store, `new-${n}`), String(n)).toMatchObject({ kind: 'pending' });
    const listed = await store.approvals(WORKSPACE, { status: 'pending', agentId: null, limit: 100, cursor: null });
    expect(listed.items.length).toBe(MOST);
  });
});

it('what the store does not know the end of stays unknown when the archive is taken in', async () => {
  const unknown = await using(open(), async (store) => {
    const { effect } = await dispatched(store, { idempotencyKey: 'unknown' });
    await store.settle(settleRequest(effect, UNKNOWN));
    return effect;
  });
  const backup = structuredClone(rows);
  await using(open(), async (store) => {
    await store.settle(settleRequest(unknown, committed('jws.late'), { settledBy: { by: 'late_answer' } }));
    now += RETENTION.effectsMs + DAY;
    expect(await store.sweep(100)).toMatchObject({ aged: 1 });
  });
  rows = backup;
  rmSync(join(folder, WORKSPACE, 'head.json'));
  await using(open(), async (store) => {
    expect(await store.admit(admitRequest({ idempotencyKey: 'unknown' }))).toMatchObject({
      kind: 'existing',
      effect: { id: unknown.id, life: { state: 'unknown' } },
    });
    // The segment has it, and its event counts what it stands for.
    expect(await archivedByLedger(store)).toEqual({ segments: [1], effects: 0 });
  });
});

it('an archive that cannot be used is said, and holds up neither calls nor what else is swept', async () => {
  const ids = await using(open(), settledEffects);
  now += RETENTION.effectsMs + DAY;
  await using(open(), async (store) => {
    await store.admit(admitRequest());
    rmSync(folder, { recursive: true });
    writeFileSync(folder, 'no folder');
    expect(await store.sweep(100)).toMatchObject({ aged: 0, archive: { failure: expect.stringContaining('ENOTDIR') } });
    expect(await store.effect(WORKSPACE, ids[0] ?? '')).not.toBeNull();
    expect(await store.admit(admitRequest())).toMatchObject({ kind: 'dispatch' });
    rmSync(folder);
    expect(await store.sweep(100)).toMatchObject({ aged: 4, archive: { failure: null } });
  });
});

it.each([
  ['demo', 'other'],
  ['other', 'demo'],
])('where the archive of %s cannot be used, %s is swept all the same', async (broken, whole) => {
  const asking = { verdict: permit([], [approvalBy()]) };
  const asked = await using(open(), async (store) => {
    const [, other] = [
      await store.admit(admitRequest({ ...asking, workspace: broken })),
      await store.admit(admitRequest({ ...asking, workspace: whole, effectId: 'eff_2', approvalId: 'apr_2' })),
    ];
    return other;
  });
  if (asked.kind !== 'pending') throw new Error(asked.kind);
  mkdirSync(join(folder, broken));
  writeFileSync(join(folder, broken, 'head.json'), 'no mark');
  now = asked.approval.expiresAt;
  await using(open(), async (store) => {
    await expect(store.sweep(100)).rejects.toThrow(
      'head.json is damaged, so it cannot be told whether the store is as new as its archive',
    );
    expect(await store.approval(whole, asked.approval.id)).toMatchObject({ status: 'expired' });
  });
});

it('a segment whose answer was lost is taken in, and no record goes twice; a mark that was not written follows', async () => {
  const archive = openArchive(inFolder(folder), 'map', KEY_SEALS);
  let [isLost, marks] = [true, 0];
  const lossy: SegmentStore = {
    ...archive,
    async write(...segment) {
      const written = await archive.write(...segment);
      if (!isLost) return written;
      isLost = false;
      throw new StoreUnavailable('the answer was lost');
    },
    setMark(...mark) {
      marks += 1;
      return marks === 2 ? Promise.reject(new StoreUnavailable('no mark now')) : archive.setMark(...mark);
    },
  };
  await using(open(undefined, lossy), async (store) => {
    await settledEffects(store);
    now += RETENTION.effectsMs + DAY;
    for (const failure of ['the answer was lost', null, null])
      expect(await store.sweep(100)).toMatchObject({ archive: { failure } });
    expect(await archivedByLedger(store)).toMatchObject({ segments: [1] });
    const { effect } = await dispatched(store, { idempotencyKey: 'later' });
    await store.settle(settleRequest(effect, FAILED));
    now += RETENTION.effectsMs + DAY;
    for (const failure of ['no mark now', null]) expect(await store.sweep(100)).toMatchObject({ archive: { failure } });
    expect(await archivedByLedger(store)).toMatchObject({ segments: [1, 2] });
  });
  expect(await archive.mark(WORKSPACE)).toMatchObject({ n: 2 });
});

it('a segment that was altered or is gone is an error with its file, and so is the archive of another store', async () => {
  const ids = await using(open(), settledEffects);
  now += RETENTION.effectsMs + DAY;
  await using(open(), (store) => store.sweep(100));
  const file = join(folder, WORKSPACE, '000000001.jsonl');
  writeFileSync(file, ' ', { flag: 'a' });
  await using(open(), async (store) => {
    await expect(store.effect(WORKSPACE, ids[0] ?? '')).rejects.toThrow(`${file} of the archive is not used`);
    await expect(store.effects(WORKSPACE, ANY)).rejects.toThrow(StoreUnavailable);
    rmSync(file);
    await expect(store.effect(WORKSPACE, ids[0] ?? '')).rejects.toThrow(
      `Segment 1 of the workspace ${WORKSPACE} is not in the archive: it was expected at ${file}. Put it back`,
    );
  });
  await using(open(undefined, openArchive(inFolder(folder), 'another', KEY_SEALS)), async (store) => {
    await expect(store.admit(admitRequest())).rejects.toThrow('of the archive of another store');
  });
});

it('a file that is too large for a segment is not read', async () => {
  const ids = await using(open(), settledEffects);
  now += RETENTION.effectsMs + DAY;
  await using(open(), (store) => store.sweep(100));
  truncateSync(join(folder, WORKSPACE, '000000001.jsonl'), 64 * 1024 * 1024);
  await using(open(), (store) =>
    expect(store.effect(WORKSPACE, ids[0] ?? '')).rejects.toThrow('a segment never has more than'),
  );
});

/** Two segments of settled effects, and a third with one committed under the key `late`. @returns the rows after the first */
async function threeSegments(): Promise<MapRows> {
  await using(open(), settledEffects);
  now += RETENTION.effectsMs + DAY;
  await using(open(), (store) => store.sweep(2));
  const first = structuredClone(rows);
  await using(open(), async (store) => {
    await store.sweep(2);
    const { effect } = await dispatched(store, { idempotencyKey: 'late' });
    await store.settle(settleRequest(effect, committed('jws.late')));
    now += RETENTION.effectsMs + DAY;
    await store.sweep(2);
  });
  expect(readdirSync(join(folder, WORKSPACE))).toContain('000000003.jsonl');
  return first;
}

it('a folder without what the store names is not its archive: no call runs until that is back', async () => {
  rows = await threeSegments();
  const archive = folder;
  folder = mkdtempSync(join(tmpdir(), 'svc-archive-'));
  await using(open(), async (store) => {
    await expect(store.admit(admitRequest({ idempotencyKey: 'late' }))).rejects.toThrow('Segment 1 of the workspace');
    expect(store.health().ready).toBe(false);
  });
  expect(readdirSync(folder)).toEqual([]);
  rmSync(folder, { recursive: true });
  folder = archive;
});

it('a segment that is missing before others ends what is taken in, and no call runs', async () => {
  rows = await threeSegments();
  for (const name of ['head.json', '000000002.jsonl']) rmSync(join(folder, WORKSPACE, name));
  await using(open(), async (store) => {
    await expect(store.admit(admitRequest({ idempotencyKey: 'late' }))).rejects.toThrow('Segment 2 of the workspace');
  });
});

it('of an effect that went into two segments the later one says what became of it', async () => {
  await using(open(), (store) => store.admit(admitRequest({ idempotencyKey: 'other' })));
  const backup = structuredClone(rows);
  const archive = openArchive(inFolder(folder), 'map', KEY_SEALS);
  let whenWritten = async (): Promise<void> => {};
  const write: SegmentStore['write'] = async (...segment) => {
    const written = await archive.write(...segment);
    await whenWritten();
    return written;
  };
  await using(open(undefined, { ...archive, write }), async (store) => {
    const { effect } = await dispatched(store, { idempotencyKey: 'retried' });
    await store.settle(settleRequest(effect, FAILED));
    now += RETENTION.effectsMs + DAY;
    whenWritten = async () => {
      whenWritten = async () => {};
      const again = await dispatched(store, { idempotencyKey: 'retried' });
      await store.settle(settleRequest(again.effect, committed('jws.retried')));
    };
    await store.sweep(100);
    now += RETENTION.effectsMs + DAY;
    await store.sweep(100);
    expect(await archivedByLedger(store)).toMatchObject({ segments: [1, 2] });
  });
  rows = backup;
  rmSync(join(folder, WORKSPACE, 'head.json'));
  await using(open(), async (store) => {
    expect(await store.admit(admitRequest({ idempotencyKey: 'retried' }))).toMatchObject({
      kind: 'expired',
      tombstone: { outcome: { receipt: { jws: 'jws.retried' } } },
    });
  });
});

it('a segment of effects that people were asked about more than once is one change', async () => {
  const EFFECTS = 100;
  await using(open(), async (store) => {
    for (let effect = 0; effect < EFFECTS; effect += 1) {
      const ask = (time: number) =>
        store.admit(
          admitRequest({
            idempotencyKey: `asked-${effect}`,
            effectId: `eff_asked${effect}`,
            approvalId: `apr_${effect}_${time}`,
            approvalDigest: `digest ${time}`,
            verdict: permit([], [approvalBy()]),
          }),
        );
      for (const time of [1, 2]) await ask(time);
      const last = await ask(3);
      if (last.kind !== 'pending') throw new Error(last.kind);
      await store.vote(voteRequest(last.approval, { verdict: 'reject' }));
    }
  });
  now += RETENTION.effectsMs + DAY;
  // Nothing is remembered of them.
  await using(open(), async (store) => {
    expect(await store.sweep(EFFECTS)).toMatchObject({ aged: EFFECTS, archive: { failure: null } });
    expect(await archivedByLedger(store)).toEqual({ segments: [1], effects: EFFECTS });
    for (const time of [1, 2, 3]) expect(await store.approval(WORKSPACE, `apr_0_${time}`), String(time)).toBeNull();
  });
});

it.each([
  ['a hundred effects', 101, 1],
  ['a million characters', 3, 600_000],
])('a segment has at most %s, and what is more goes into the next', async (_, effects, characters) => {
  await using(open(), async (store) => {
    for (let made = 0; made < effects; made += 1) {
      const { effect } = await dispatched(store, { sealed: 's'.repeat(characters) });
      await store.settle(settleRequest(effect, FAILED));
    }
    now += RETENTION.effectsMs + DAY;
    expect(await store.sweep(1_000)).toMatchObject({ aged: effects, archive: { failure: null } });
    expect(await archivedByLedger(store)).toEqual({ segments: [1, 2], effects });
  });
});

it('fsck is silent where the key of an archived call that failed was used again', async () => {
  await using(open(), async (store) => {
    const { effect } = await dispatched(store, { idempotencyKey: 'again' });
    await store.settle(settleRequest(effect, FAILED));
    now += RETENTION.effectsMs + DAY;
    await store.sweep(100);
    const next = await dispatched(store, { idempotencyKey: 'again' });
    await store.settle(settleRequest(next.effect, committed('jws.again')));
    expect(await checkWorkspace(store, WORKSPACE, RETENTION.effectsMs)).toEqual([]);
  });
});

/** The newest effects, as a look at their list asks for them. */
const NEWEST: ListQuery = {
  workspace: WORKSPACE,
  list: 'effects',
  kind: 'effect',
  order: 'down',
  from: null,
  to: null,
  after: null,
  limit: 50,
  characters: 1_000_000,
};

it('a look at a list opens four segments, and goes on where it ended', async () => {
  const SEGMENTS = 9;
  await using(open(), async (store) => {
    for (let n = 0; n < SEGMENTS; n += 1) {
      const { effect } = await dispatched(store, { idempotencyKey: `key-${n}` });
      await store.settle(settleRequest(effect, committed(`jws.${n}`)));
      now += RETENTION.effectsMs + DAY;
      await store.sweep(100);
    }
    expect((await archivedByLedger(store)).segments).toHaveLength(SEGMENTS);
  });
  const archive = openArchive(inFolder(folder), 'map', KEY_SEALS);
  let reads = 0;
  const counted: SegmentStore = { ...archive, read: (...segment) => ((reads += 1), archive.read(...segment)) };
  const whole = { ...mapStore(rows, () => now), ...ALONE };
  const { whole: store } = createArchive(whole, createStepRunner(whole), counted);
  const look = async (after: ListQuery['after']): Promise<ListQuery['after']> => {
    const { entries, more } = await store.list({ ...NEWEST, after });
    looks.push([entries.length, more, reads]);
    const last = entries.at(-1);
    return last === undefined ? null : { at: last.at, id: last.id };
  };
  const looks: unknown[] = [];
  const fourth = await look(null);
  await look(null);
  await look(await look(fourth));
  // Eight of them are remembered: who begins again has the newest ones read again.
  await look(null);
  expect(looks).toEqual([
    [4, true, 4],
    [4, true, 4],
    [4, true, 8],
    [1, false, 9],
    [4, true, 13],
  ]);
});

it('a record that is in no archive that is there is not to be had now, and is not said to be none', async () => {
  const [id = ''] = await using(open(), settledEffects);
  now += RETENTION.effectsMs + DAY;
  await using(open(), (store) => store.sweep(100));
  const archive = openArchive(inFolder(folder), 'map', KEY_SEALS);
  const without: SegmentStore = {
    ...archive,
    read: async (...asked) => {
      const segment = await archive.read(...asked);
      return segment === null ? null : { ...segment, rows: segment.rows.filter((row) => row.id !== id) };
    },
  };
  const whole = { ...mapStore(rows, () => now), ...ALONE };
  const options = { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 };
  for (const [kept, why] of [
    [without, `The archive has no record of ${id}, which the store says is in it.`],
    [null, 'store.archive names no place any more'],
  ] as const)
    await using(createEffectStore(whole, { ...options, archive: kept }), async (store) => {
      const read = store.effect(WORKSPACE, id);
      await expect(read).rejects.toThrow(ArchiveUnavailable);
      await expect(read).rejects.toThrow(why);
    });
});

it.each<[string, ListQuery['order'], Part, Part, number, string]>([
  ['of one time, by their ids', 'up', [5, 'b'], [5, 'a', 5, 'c'], 9, 'a b c'],
  ['of one time, newest first', 'down', [5, 'b'], [5, 'c', 5, 'a'], 9, 'c b a'],
  ['that are too many for one look', 'up', [1, 'a', 3, 'c'], [2, 'b', 4, 'd'], 2, 'a b …'],
  ['of which one part was cut short', 'up', [1, 'a', 2, 'b', '…'], [5, 'c', 6, 'd'], 9, 'a b …'],
  ['of which both parts were cut short', 'down', [9, 'a', 7, 'b', '…'], [8, 'c', 3, 'd', '…'], 9, 'a c b …'],
])('effects here and in the archive are one list: %s', async (_, order, here, there, limit, expected) => {
  const whole = { ...mapStore(rows, () => now), ...ALONE };
  const parts: RowStore = { ...whole, list: async ({ list }) => listedOf(list === NEWEST.list ? here : there) };
  const archive = createArchive(parts, createStepRunner(parts), openArchive(inFolder(folder), 'map', KEY_SEALS));
  const { entries, more } = await archive.whole.list({ ...NEWEST, order, limit });
  expect([...entries.map(({ id }) => id), ...(more ? ['…'] : [])].join(' ')).toBe(expected);
});

/** Times and ids of entries, and `…` where there is more behind them. */
type Part = readonly (number | string)[];

function listedOf(part: Part): Listed {
  const entries: Listed['entries'][number][] = [];
  for (const [index, at] of part.entries())
    if (typeof at === 'number') entries.push({ at, id: String(part[index + 1]), row: { version: 'v', text: '' } });
  return { entries, more: part.at(-1) === '…' };
}

it('rows for people have what is in the archive, also where they are asked for by name', async () => {
  const [id = ''] = await using(open(), settledEffects);
  const whole = { ...mapStore(rows, () => now), ...ALONE };
  const names = [
    { kind: 'effect', id },
    { kind: 'effect', id: 'eff_none' },
  ] as const;
  const texts = async (of: Pick<RowStore, 'rows'>) =>
    (await of.rows(WORKSPACE, names)).map((row) => row?.text.split('\n')[0]);
  const before = await texts(whole);
  now += RETENTION.effectsMs + DAY;
  await using(open(), (store) => store.sweep(100));
  expect(await texts(whole)).toEqual(['tombstone', undefined]);
  const archive = createArchive(whole, createStepRunner(whole), openArchive(inFolder(folder), 'map', KEY_SEALS));
  // But for its params, which are not kept there.
  expect((await texts(archive.whole))[0]?.slice(0, 40)).toBe(before[0]?.slice(0, 40));
});

it('an effect that goes into the archive between the two looks of a list is in it once', async () => {
  await using(open(), settledEffects);
  const whole = { ...mapStore(rows, () => now), ...ALONE };
  const before = await whole.list(NEWEST);
  now += RETENTION.effectsMs + DAY;
  await using(open(), (store) => store.sweep(100));
  const late: RowStore = {
    ...whole,
    list: (query) => (query.list === NEWEST.list ? Promise.resolve(before) : whole.list(query)),
  };
  const archive = createArchive(late, createStepRunner(late), openArchive(inFolder(folder), 'map', KEY_SEALS));
  const { entries } = await archive.whole.list(NEWEST);
  expect(entries.map(({ id }) => id)).toEqual(before.entries.map(({ id }) => id));
});

it('a sweep that ends where the archive cannot be written leaves the count of what is unsettled as it was', async () => {
  const settled = async (store: EffectStore, key: string): Promise<void> => {
    const { effect } = await dispatched(store, { idempotencyKey: key });
    await store.settle(settleRequest(effect, committed(`jws.${key}`)));
  };
  await using(open(), async (store) => {
    for (let n = 0; n < 99; n += 1) await settled(store, `old-${n}`);
    writeFileSync(join(folder, WORKSPACE), 'no folder');
    const begun = now;
    now += DAY;
    const { effect } = await dispatched(store, { idempotencyKey: 'lost' });
    await store.settle(settleRequest(effect, UNKNOWN));
    const later = now + RETENTION.effectsMs + DAY;
    now = later;
    expect(await store.sweep(100)).toMatchObject({ aged: 0, unsettled: 1 });
    // One more before it: a whole segment, which cannot be written.
    now = begun;
    await settled(store, 'one-more');
    now = later;
    expect(await store.sweep(1000)).toMatchObject({ aged: 0, unsettled: 1 });
  });
});

it('an archive that is slow holds up what else is swept for a tenth of the time at most', async () => {
  let clock = 0;
  let asked = 0;
  const hung: SegmentStore = {
    ...openArchive(inFolder(folder), 'map', KEY_SEALS),
    mark() {
      asked += 1;
      clock += 15_000;
      return Promise.reject(new StoreUnavailable('no answer in time'));
    },
  };
  const whole = { ...mapStore(rows, () => now), ...ALONE };
  const archive = createArchive(whole, createStepRunner(whole), hung, () => clock);
  const row = { id: 'eff_demo', text: '' };
  const round = async () => [await archive.move('demo', [row]), await archive.move('other', [row]), asked];
  expect(await round()).toEqual([false, false, 1]);
  clock += 134_000;
  expect(await round()).toEqual([false, false, 1]);
  clock += 1_000;
  expect(await round()).toEqual([false, false, 2]);
  expect(archive.state()).toMatchObject({ failure: 'no answer in time' });
});
