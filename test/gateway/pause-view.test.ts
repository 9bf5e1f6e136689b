import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { PauseScope } from '../../src/effects/model/pause.ts';
import type { PauseSubject } from '../../src/effects/ports.ts';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { createPauseView } from '../../src/gateway/views.ts';
import { compilePattern } from '../../src/policy/glob.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { newId, PERSON, WORKSPACE } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

// The real one, counted.
vi.mock('../../src/policy/glob.ts', { spy: true });

const SUBJECT: PauseSubject = { tool: 'payments.refund', agentId: 'bot', upstream: 'payments', keyId: 'key_1' };

let path = '';
let store: EffectStore;
beforeEach(async () => {
  path = storeFolder();
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  store = await openEmbeddedStore({ path, lockWaitMs: 5000, retention, keySeals: KEY_SEALS, worker: 'never' });
});
afterEach(async () => {
  await store.close();
  rmSync(path, { recursive: true });
});

async function pause(scope: PauseScope, until: number | null = null) {
  const by = { keyId: 'key_admin', keyKind: 'administrative', user: 'maria' } as const;
  const set = await store.setPause({
    id: newId('pau'),
    workspace: WORKSPACE,
    scope,
    reason: 'stop',
    until,
    by,
    actor: PERSON,
  });
  if (set === null) throw new Error('there is room for it');
  return set;
}

/** Writes the row of the pauses without asking the store. */
async function write(edit: (text: string) => string): Promise<void> {
  const openDatabase = await loadDriver();
  const database = openDatabase(join(path, 'store.db'));
  const stored = database.prepare("SELECT id, kind, text FROM rows WHERE text LIKE '%payments.*%' AND id = ''").get();
  const text = String(stored?.['text']);
  expect(edit(text)).not.toBe(text);
  database
    .prepare("UPDATE rows SET text = ?, version = version || 'x' WHERE id = '' AND kind = ?")
    .run(edit(text), Number(stored?.['kind']));
  database.close();
}

it('an answer of the store that comes late does not undo a pause that is known already', async () => {
  const late = await store.pauses(WORKSPACE);
  let giveLate: () => void = () => undefined;
  let asked = 0;
  const view = createPauseView({
    ...store,
    pauses(workspace) {
      asked += 1;
      if (asked > 1) return store.pauses(workspace);
      return new Promise((resolve) => {
        giveLate = () => resolve(late);
      });
    },
  });
  const first = view.refresh(WORKSPACE);
  await pause({ kind: 'workspace' });
  await view.refresh(WORKSPACE);
  expect(view.match(WORKSPACE, SUBJECT, store.now())).toMatchObject({ reason: 'stop' });
  giveLate();
  await first;
  expect(view.match(WORKSPACE, SUBJECT, store.now())).toMatchObject({ reason: 'stop' });
});

it('what another gateway sets is seen by the notice of the store; who listens hears of each change once', async () => {
  const view = createPauseView(store);
  const heard: string[] = [];
  view.onChange((workspace) => heard.push(workspace));
  // Nothing that is admitted under a view that was never loaded is admitted.
  expect([view.version(WORKSPACE), view.isLoaded(WORKSPACE), view.loaded()]).toEqual([-1, false, []]);
  expect(view.match(WORKSPACE, SUBJECT, store.now())).toBeNull();
  const set = await pause({ kind: 'workspace' });
  await expect.poll(() => view.match(WORKSPACE, SUBJECT, store.now())).toMatchObject({ id: set.id });
  expect([view.version(WORKSPACE) > 0, view.isLoaded(WORKSPACE), view.loaded()]).toEqual([true, true, [WORKSPACE]]);
  await view.refresh(WORKSPACE);
  expect(heard).toEqual([WORKSPACE]);
  await store.liftPause(WORKSPACE, set.id, 'administrative', PERSON);
  await expect.poll(() => view.match(WORKSPACE, SUBJECT, store.now())).toBeNull();
  expect(heard).toEqual([WORKSPACE, WORKSPACE]);
});

it('a notice after which the store cannot be read leaves what is known, and its version, which admits nothing', async () => {
  let announce: (workspace: string) => void = () => undefined;
  let isAway = false;
  const view = createPauseView({
    ...store,
    onPausesChanged: (listener) => {
      announce = listener;
    },
    pauses: (workspace) => (isAway ? Promise.reject(new StoreUnavailable('away')) : store.pauses(workspace)),
  });
  await pause({ kind: 'workspace' });
  await view.refresh(WORKSPACE);
  const version = view.version(WORKSPACE);
  isAway = true;
  announce(WORKSPACE);
  await expect(view.refresh(WORKSPACE)).rejects.toThrow('away');
  expect(view.version(WORKSPACE)).toBe(version);
  expect(view.match(WORKSPACE, SUBJECT, store.now())).not.toBeNull();
});

it('a glob is compiled once, however many pauses are set after it', async () => {
  const view = createPauseView(store);
  vi.mocked(compilePattern).mockClear();
  for (const name of ['a', 'b', 'c', 'd']) {
    await pause({ kind: 'tool', glob: `${name}.*` });
    await view.refresh(WORKSPACE);
  }
  expect(vi.mocked(compilePattern).mock.calls.map(([, glob]) => glob)).toEqual(['a.*', 'b.*', 'c.*', 'd.*']);
  expect(view.match(WORKSPACE, { ...SUBJECT, tool: 'a.b' }, store.now())).not.toBeNull();
  expect(view.match(WORKSPACE, { ...SUBJECT, tool: 'e.b' }, store.now())).toBeNull();
});

it('a pause whose glob cannot be read stops every tool', async () => {
  const view = createPauseView(store);
  await pause({ kind: 'tool', glob: 'mail.{a' });
  await view.refresh(WORKSPACE);
  expect(view.match(WORKSPACE, SUBJECT, store.now())).toMatchObject({ reason: 'stop' });
});

it.each<[PauseScope, Partial<PauseSubject>]>([
  [{ kind: 'agent', id: 'bot' }, { agentId: 'other' }],
  [{ kind: 'upstream', id: 'payments' }, { upstream: 'other' }],
  [{ kind: 'key', id: 'key_1' }, { keyId: 'key_2' }],
  [{ kind: 'tool', glob: 'payments.*' }, { tool: 'mail.send' }],
])('%j stops what it names and nothing else', async (scope, other) => {
  const view = createPauseView(store);
  await pause(scope);
  await view.refresh(WORKSPACE);
  expect(view.match(WORKSPACE, SUBJECT, store.now())).not.toBeNull();
  expect(view.match(WORKSPACE, { ...SUBJECT, ...other }, store.now())).toBeNull();
});

it('of several pauses each stops, in its own workspace alone; all who listen see it when they hear of it', async () => {
  const view = createPauseView(store);
  const seen: unknown[] = [];
  for (const name of ['first', 'second'])
    view.onChange((workspace) => seen.push([name, workspace, view.match(workspace, SUBJECT, store.now())?.id]));
  await pause({ kind: 'agent', id: 'other' });
  const { id } = await pause({ kind: 'upstream', id: 'payments' });
  await view.refresh(WORKSPACE);
  expect(seen.slice(-2)).toEqual([
    ['first', WORKSPACE, id],
    ['second', WORKSPACE, id],
  ]);
  await view.refresh('elsewhere');
  expect(view.match('elsewhere', SUBJECT, store.now())).toBeNull();
});

it('a pause stops until its end, and not at it', async () => {
  const view = createPauseView(store);
  const until = store.now() + 60_000;
  await pause({ kind: 'workspace' }, until);
  await view.refresh(WORKSPACE);
  expect(view.match(WORKSPACE, SUBJECT, until - 1)).toMatchObject({ until });
  expect(view.match(WORKSPACE, SUBJECT, until)).toBeNull();
});

it('the version of the pauses is sealed with them: another would hide from gateways what was set since', async () => {
  await pause({ kind: 'tool', glob: 'payments.*' });
  await write((text) => text.replace('"version":1', '"version":9'));
  const { version, pauses } = await store.pauses(WORKSPACE);
  expect(version).toBe(9);
  expect(pauses.map(({ id }) => id)).toContain('pau_unsealed');
});

it('pauses that something else than a gateway wrote pause the workspace, until an administrator lifts that', async () => {
  const set = await pause({ kind: 'tool', glob: 'payments.*' });
  await write((text) => text.replace('payments.*', 'nothing.*'));
  const { pauses } = await store.pauses(WORKSPACE);
  expect(pauses).toMatchObject([{ id: set.id }, { id: 'pau_unsealed', scope: { kind: 'workspace' } }]);
  // Another pause does not vouch for what is there.
  await pause({ kind: 'agent', id: 'a' });
  expect((await store.pauses(WORKSPACE)).pauses.map(({ id }) => id)).toContain('pau_unsealed');
  expect(await store.liftPause(WORKSPACE, 'pau_unsealed', 'account', PERSON)).toMatchObject({
    kind: 'administrative_only',
  });
  expect(await store.liftPause(WORKSPACE, 'pau_unsealed', 'administrative', PERSON)).toMatchObject({ kind: 'lifted' });
  expect((await store.pauses(WORKSPACE)).pauses.map(({ id }) => id)).not.toContain('pau_unsealed');
});
