import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EffectStore, SettleOutcome } from '../../src/effects/store.ts';
import { type ExportContext, EXPORTED, type Exported, type ExportRequest } from '../../src/effects/model/export.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { loadProgram } from '../../src/records/program.ts';
import { inFolder } from '../../src/stores/archive/place.ts';
import { openArchive } from '../../src/stores/archive/segments.ts';
import type { OpenRows } from '../../src/stores/open-rows.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import {
  admitRequest,
  approvalBy,
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
import { makeTool } from '../upstreams/tool.ts';
import { compileStore } from './compiled.ts';

const compiled = compileStore([]);
const openRows = await compiled.openEmbeddedRows();
afterAll(compiled.remove);

const KEPT = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };

/** A receipt that says who called, as those of the gateway do. */
function receiptOf(user: string, rule: string): SettleOutcome {
  const payload = { actor: { user, key_id: 'key_agent0000001' }, policy: { matched: [{ rule }] } };
  return committed(`e30.${Buffer.from(JSON.stringify(payload)).toString('base64url')}.e30`);
}

/** Effects in every state: some hundred, so that they are in many parts. */
async function fill(store: EffectStore): Promise<void> {
  for (let n = 0; n < 130; n += 1) {
    const agentId = `bot-${n % 3}`;
    const user = n % 2 === 0 ? 'olga' : 'tом';
    const action = { tool: n % 5 === 0 ? 'notes.add' : 'payments.refund', target: `заказ:${n}` };
    const { effect } = await dispatched(store, { action, actor: { agentId, user } });
    const outcome = n % 7 === 0 ? FAILED : n % 11 === 0 ? UNKNOWN : receiptOf(user, 'payments/refunds');
    await store.settle(settleRequest(effect, outcome));
  }
}

async function fillRest(store: EffectStore): Promise<void> {
  for (const verdict of ['approve', 'reject', null] as const) {
    const asked = await store.admit(admitRequest({ verdict: permit([], [approvalBy()]) }));
    if (asked.kind !== 'pending') throw new Error(asked.kind);
    if (verdict !== null) await store.vote(voteRequest(asked.approval, { verdict }));
  }
  for (let n = 0; n < 3; n += 1) await dispatched(store);
}

describe.each([
  ['', false, false],
  [' with effects past their age', true, false],
  [' with an archive', true, true],
])('an export of a store%s', (_, isAged, hasArchive) => {
  let path = '';
  let rows: OpenRows;
  /** With the thread that reads, and without it. */
  let stores: Readonly<Record<'there' | 'here', EffectStore>>;

  beforeAll(async () => {
    path = storeFolder();
    rows = await openRows({
      path,
      lockWaitMs: 0,
      worker: 'auto',
      program: { load: loadProgram, module: pathToFileURL(compiled.file('src/records/program.ts')) },
      readProgram: pathToFileURL(compiled.file('src/records/export.ts')),
    });
    const archive = hasArchive ? openArchive(inFolder(join(path, 'archive')), rows.installId, KEY_SEALS) : null;
    const { readProgram: _program, ...without } = rows;
    const options = { keySeals: KEY_SEALS, maxFreezeMs: 0, archive };
    stores = {
      there: createEffectStore(rows, { ...options, retention: KEPT }),
      here: createEffectStore(without, { ...options, retention: KEPT }),
    };
    const aging = createEffectStore(without, { ...options, retention: { ...KEPT, effectsMs: 1 } });
    await fill(stores.here);
    if (isAged) await aging.sweep(90);
    await fill(stores.here);
    await fillRest(stores.here);
  });
  afterAll(async () => {
    await stores.here.close();
    await stores.there.close();
    rmSync(path, { recursive: true });
  });

  const now = 1_800_000_000_000;
  const probe = { read: makeTool(), params: {}, happened: {}, notHappened: {}, everyMs: 1, afterMs: 1, forMs: 1 };
  const context: ExportContext = () => ({ tool: makeTool({ probe }), now });

  async function exported(
    store: EffectStore,
    asked: Partial<ExportRequest>,
  ): Promise<{ text: string; counts: Record<Exported, number>; parts: number }> {
    const counts = { events: 0, effects: 0, receipts: 0 };
    let text = '';
    let parts = 0;
    const all = { workspace: WORKSPACE, publicUrl: 'http://gateway', what: EXPORTED, form: 'json' } as const;
    const request: ExportRequest = { ...all, filter: { since: null, until: null }, ...asked };
    for await (const part of store.exported(request, context)) {
      text += part.text;
      parts += 1;
      for (const of of EXPORTED) counts[of] += part.counts[of];
    }
    return { text, counts, parts };
  }

  const time = { since: null, until: null };
  it.each<[string, Partial<ExportRequest>]>([
    ['all', {}],
    ['one agent', { filter: { ...time, agentId: 'bot-1' } }],
    ['one tool', { filter: { ...time, tool: 'notes.add' } }],
    ['one target', { filter: { ...time, target: 'заказ:7' } }],
    ['one user', { filter: { ...time, user: 'tом' } }],
    ['one rule', { filter: { ...time, rule: 'payments/refunds' } }],
    ['nobody', { filter: { ...time, agentId: 'nobody' } }],
    ['all receipts', { what: ['receipts'] }],
    ['all events', { what: ['events'] }],
    ['all effects', { what: ['effects'] }],
    ['effects as a table', { what: ['effects'], form: 'csv' }],
    ['receipts as a table', { what: ['receipts'], form: 'csv' }],
  ])('of %s is the same, whichever thread makes it', async (_what, asked) => {
    const here = await exported(stores.here, asked);
    const there = await exported(stores.there, asked);
    expect(there.text).toBe(here.text);
    expect(there.counts).toEqual(here.counts);
    if (asked.form !== 'csv')
      expect(here.counts.events + here.counts.effects + here.counts.receipts).toBe(here.text.split('\n').length - 1);
  });

  it('is made by the thread that reads, many looks at once', async () => {
    const events: Partial<ExportRequest> = { what: ['events'] };
    expect((await exported(stores.there, events)).parts).toBeLessThan((await exported(stores.here, events)).parts);
  });

  it('has each effect and each receipt once', async () => {
    const { text, counts } = await exported(stores.there, {});
    const lines = text
      .trimEnd()
      .split('\n')
      .map((line): Record<string, unknown> => JSON.parse(line));
    const effects = lines.filter(({ type }) => type === 'effect');
    expect(new Set(effects.map(({ id }) => id)).size).toBe(effects.length);
    expect(counts.effects).toBe(isAged && !hasArchive ? 176 : 266);
    const states = new Set(effects.map(({ state }) => state));
    for (const state of ['committed', 'failed', 'unknown', 'executing', 'pending_approval', 'rejected'])
      expect(states).toContain(state);
    const receipts = lines.filter(({ type }) => type === 'receipt');
    expect(receipts.length).toBe(lines.filter(({ kind }) => kind === 'receipt.issued').length);
    expect(receipts.every(({ jws }) => typeof jws === 'string')).toBe(true);
  });
});
