import { expect, test } from 'vitest';
import type { BudgetDefinition, PolicyChange } from '../../src/effects/policy-store.ts';
import { type PolicyProposal, proposalStatus } from '../../src/effects/model/policy-proposal.ts';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { createPolicies } from '../../src/records/policies.ts';
import { createStepRunner } from '../../src/records/runner.ts';
import { changeOf, sumOf } from '../port/changes.ts';
import { emptyRows, mapStore } from '../port/map-rows.ts';

const MARIA = { type: 'user', id: 'maria' } as const;
const CHANGE = { by: MARIA, how: 'activate', again: 'no', bundle: null } as const;

function policies() {
  const rows = emptyRows();
  const store = mapStore(rows, () => 1_750_000_000_000);
  const kept = createPolicies(store, createStepRunner(store));
  const activate = (version: string, change: Partial<PolicyChange> = {}) =>
    kept.activate(version, [], { ...CHANGE, ...change }, async () => ['demo']);
  return {
    ...kept.kept,
    rows,
    store,
    activate,
    define: (version: string, budget: BudgetDefinition) => kept.activate(version, [budget], null, async () => ['demo']),
    files: (version: string, parts = [`${version} one`, `${version} two`]) =>
      activate(version, { again: 'yes', bundle: { version, seal: `of ${version}`, parts } }),
    versions: async () => (await kept.kept.policyHistory()).map(({ version }) => version),
    /** Rows of files that are kept, heads and parts. */
    keptRows: () =>
      [...(rows.spaces.get(INSTALLATION)?.rows.values() ?? [])]
        .filter(({ kind }) => kind.startsWith('policy_bundle') || kind.startsWith('policy_part'))
        .map(({ id }) => id),
  };
}

test('a version that was in force does not come back, unless it may: always, or after what files said', async () => {
  const { activate, policyInForce, versions } = policies();
  await activate('v1', { how: 'files' });
  await activate('v2', { how: 'files' });
  expect(await activate('v1')).toEqual({ kind: 'superseded', version: 'v2' });
  expect(await versions()).toEqual(['v2', 'v1']);
  expect(await activate('v1', { again: 'after_files' })).toEqual({ kind: 'active', version: 'v1' });
  expect(await activate('v2', { again: 'after_files' })).toEqual({ kind: 'superseded', version: 'v1' });
  expect(await activate('v2', { again: 'yes', how: 'rollback' })).toEqual({ kind: 'active', version: 'v2' });
  expect(await policyInForce()).toBe('v2');
  expect(await versions()).toEqual(['v2', 'v1', 'v2', 'v1']);
});

test('what is in force already is put on record once', async () => {
  const { activate, versions, store } = policies();
  await activate('v1', { why: 'first' });
  expect(await activate('v1', { why: 'again' })).toEqual({ kind: 'active', version: 'v1' });
  expect(await versions()).toEqual(['v1']);
  const ledger = await store.ledger({ workspace: INSTALLATION, about: null, order: 'up', after: null, limit: 10 });
  expect(ledger).toHaveLength(1);
});

test('who put a version in force, how and why stands in the history and in the ledger, and no more than was said', async () => {
  const { activate, policyHistory, store } = policies();
  await activate('v1', { how: 'files' });
  await activate('v2', { why: 'limits of June' });
  await activate('v1', { again: 'yes', how: 'rollback', why: 'too strict' });
  const at = 1_750_000_000_000;
  expect(await policyHistory()).toEqual([
    { version: 'v1', at, by: MARIA, how: 'rollback', why: 'too strict' },
    { version: 'v2', at, by: MARIA, how: 'activate', why: 'limits of June' },
    { version: 'v1', at, by: MARIA, how: 'files' },
  ]);
  const ledger = await store.ledger({ workspace: INSTALLATION, about: null, order: 'up', after: null, limit: 10 });
  expect(ledger.map(({ text }) => JSON.parse(text))).toEqual([
    ['policy.activated', 'user', 'maria', { version: 'v1', before: null, how: 'files' }],
    ['policy.activated', 'user', 'maria', { version: 'v2', before: 'v1', how: 'activate', why: 'limits of June' }],
    ['policy.rolled_back', 'user', 'maria', { version: 'v1', before: 'v2', how: 'rollback', why: 'too strict' }],
  ]);
});

/** What one person proposes in the place of `v1`. */
const proposal = (id: string, over: Partial<PolicyProposal> = {}): PolicyProposal => ({
  id,
  version: 'v2',
  from: 'v1',
  how: 'activate',
  by: MARIA,
  people: [{ user: 'maria', keyId: 'key_1', makers: [] }],
  at: 0,
  expiresAt: 2_000_000_000_000,
  seal: `of ${id}`,
  ...over,
});

test('what was proposed comes in force as it was read, while it is open, and its event is by who confirmed it', async () => {
  const { activate, policyInForce, putPolicyProposal, endPolicyProposals, store } = policies();
  await activate('v1');
  const ADA = { type: 'user', id: 'ada' } as const;
  for (const id of ['p1', 'p2'])
    await putPolicyProposal({ proposal: proposal(id), before: null, bundle: null, actor: MARIA });
  const confirm = (id: string, before: string) => {
    const people = [...proposal(id).people, { user: 'ada', keyId: 'key_2', makers: [] }];
    return activate('v2', { proposal: { confirmed: proposal(id, { people }), before, actor: ADA } });
  };
  expect(await endPolicyProposals({ id: 'p1' }, MARIA)).toBe(1);
  expect(await confirm('p1', 'of p1')).toEqual({ kind: 'proposal_over' });
  expect(await confirm('p2', 'of another')).toEqual({ kind: 'proposal_over' });
  expect(await policyInForce()).toBe('v1');
  expect(await confirm('p2', 'of p2')).toEqual({ kind: 'active', version: 'v2' });
  const ledger = await store.ledger({ workspace: INSTALLATION, about: null, order: 'down', after: null, limit: 1 });
  expect(JSON.parse(ledger[0]?.text ?? '')).toEqual([
    'policy.activated',
    'user',
    'ada',
    { version: 'v2', before: 'v1', how: 'activate', proposed_by: 'maria', confirmed_by: ['ada'] },
  ]);
});

test('a proposal of files takes the place of the one before, and of none of a person', async () => {
  const { activate, putPolicyProposal, policyProposals } = policies();
  await activate('v1');
  for (const [id, how] of [
    ['person', 'activate'],
    ['old', 'files'],
    ['new', 'files'],
  ] as const)
    await putPolicyProposal({ proposal: proposal(id, { how }), before: null, bundle: null, actor: MARIA });
  const ended = (await policyProposals()).map(({ id, ended: by }) => [id, by?.as ?? 'open']);
  expect(Object.fromEntries(ended)).toEqual({ person: 'open', old: 'withdrawn', new: 'open' });
});

test('what was in force keeps its seal when somebody proposes it again, and what is only proposed gets none', async () => {
  const { files, policyBundle, putPolicyProposal } = policies();
  for (const version of ['v1', 'v2']) await files(version);
  for (const [version, seal] of [
    ['v1', 'of v1'],
    ['v3', ''],
  ] as const) {
    const bundle = { version, seal: '', parts: [`${version} one`, `${version} two`] };
    const of = proposal(`p of ${version}`, { version, from: 'v2' });
    expect(await putPolicyProposal({ proposal: of, before: null, bundle, actor: MARIA })).toBe('put');
    expect(await policyBundle(version)).toEqual({ ...bundle, seal });
  }
});

test('of a hundred and one versions the first is not in the history any more', async () => {
  const { activate, versions } = policies();
  for (let n = 0; n <= 100; n += 1) await activate(`v${n}`);
  const history = await versions();
  expect([history.length, history[0], history.at(-1)]).toEqual([100, 'v100', 'v1']);
});

test('the files of the versions of the history are kept as long as they are small, of the last ten always', async () => {
  const { files, policyBundle, keptRows } = policies();
  for (let n = 0; n < 32; n += 1) await files(`v${n}`);
  await files('v0');
  for (let times = 0; times < 3; times += 1) for (const version of ['v30', 'v31']) await files(version);
  expect(keptRows()).toHaveLength(32 * 3);
  await files('v32');
  expect(await policyBundle('v1')).toBeNull();
  expect(keptRows().filter((id) => id.startsWith('v1/'))).toEqual([]);
  expect(keptRows()).toHaveLength(32 * 3);
  expect(await policyBundle('v0')).toEqual({ version: 'v0', seal: 'of v0', parts: ['v0 one', 'v0 two'] });
  const large = Array.from({ length: 70 }, (_, n) => `part ${n}`);
  for (let n = 33; n < 43; n += 1) await files(`v${n}`, large);
  expect(keptRows()).toHaveLength(10 * 71);
  expect(await policyBundle('v33')).toMatchObject({ parts: large });
});

test('of what leaves the history no files are left', async () => {
  const { files, policyBundle, keptRows, versions } = policies();
  for (let n = 0; n < 100; n += 1) await files(`v${n}`, n < 50 ? [`${n}`] : []);
  expect((await versions()).at(-1)).toBe('v0');
  expect([await policyBundle('v0'), await policyBundle('v1')]).toMatchObject([null, { parts: ['1'] }]);
  await files('v100', []);
  expect(await policyBundle('v1')).toBeNull();
  expect(keptRows().filter((id) => !id.includes('/'))).toHaveLength(99);
});

test('files of which a part is gone are none; the next who has them puts back what is gone or was altered', async () => {
  const { files, policyBundle, rows } = policies();
  await files('v1');
  const space = rows.spaces.get(INSTALLATION)?.rows;
  for (const [name, row] of space ?? []) {
    if (row.id === 'v1/0') space?.set(name, { ...row, version: 'evil', text: 'allow all' });
    if (row.id === 'v1/1') space?.delete(name);
  }
  expect(await policyBundle('v1')).toBeNull();
  const again = createPolicies(
    mapStore(rows, () => 1_750_000_000_000),
    createStepRunner(mapStore(rows, () => 1_750_000_000_000)),
  );
  const bundle = { version: 'v1', seal: 'of v1', parts: ['v1 one', 'v1 two'] };
  await again.activate('v1', [], { ...CHANGE, again: 'yes', bundle }, async () => []);
  expect(await again.kept.policyBundle('v1')).toEqual(bundle);
});

test.each([
  ['another unit', { unit: 'calls', window: 'day UTC' }],
  ['another window', { unit: 'EUR-cent', window: 'hour UTC' }],
])('a budget in use gets %s only with a reset', async (_, next) => {
  const { define, policyInForce, store } = policies();
  const daily = { budget: 'daily', unit: 'EUR-cent', window: 'day UTC', reset: false };
  await define('v1', daily);
  expect(await define('v2', { ...daily, ...next })).toEqual({ kind: 'active', version: 'v2' });
  await define('v3', daily);
  await store.commit(changeOf('demo', 1, { sums: [sumOf('row', { group: 'budget daily', spend: 7 })] }));
  expect(await define('v4', { ...daily, ...next })).toMatchObject({
    kind: 'budget_redefined',
    budgets: [{ budget: 'daily', was: 'EUR-cent per day UTC' }],
  });
  expect(await policyInForce()).toBe('v3');
  expect(await define('v4', { ...daily, reset: true })).toEqual({ kind: 'active', version: 'v4' });
  expect(await store.sums('demo', 10)).toMatchObject([{ spent: 7 }]);
  expect(await define('v5', { ...daily, ...next, reset: true })).toEqual({ kind: 'active', version: 'v5' });
  expect((await store.sums('demo', 10)).filter(({ spent }) => spent > 0)).toEqual([]);
  // Whoever adds up the ledger begins anew there.
  const ledger = await store.ledger({ workspace: 'demo', about: null, order: 'down', after: null, limit: 1 });
  expect(JSON.parse(ledger[0]?.text ?? '')).toEqual([
    'budget.reset',
    'gateway',
    'policy',
    { budgets: ['daily'], policy_version: 'v5' },
  ]);
});

test('a proposal is open for a day, and ends where other policies come in force than it was made beside', () => {
  const proposal = { from: 'v1', expiresAt: 1_000 };
  expect(['v1', 'v2', null].map((inForce) => proposalStatus(proposal, 999, inForce))).toEqual([
    'open',
    'superseded',
    'superseded',
  ]);
  expect(proposalStatus(proposal, 1_000, 'v1')).toBe('expired');
  const by = { type: 'user', id: 'tom' } as const;
  expect(proposalStatus({ ...proposal, ended: { at: 1, as: 'withdrawn', by } }, 2_000, 'v2')).toBe('withdrawn');
});
