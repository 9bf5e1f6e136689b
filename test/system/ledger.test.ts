import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import {
  INSTALLATION,
  LEDGER_GROUPS,
  LEDGER_KINDS,
  type LedgerDraft,
  type LedgerKind,
} from '../../src/effects/model/ledger.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { svc } from '../cli/run.ts';
import { RETENTION } from '../contract/fixture.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { type Answer, makeApiKey, send } from './gateway.ts';
import { freshKey, refund, startWorld, type World } from './world.ts';

let world: World;
let url = '';
let auditor = '';
let spare = '';
const made: Record<string, string> = {};
const BOOT = { type: 'gateway', id: 'boot_1' } as const;

/** Where an event of each kind stands here: `done` by what the test does, or written as the gateway that does it would. */
const MADE: Readonly<Record<LedgerKind, 'done' | 'done, of the installation' | LedgerDraft>> = {
  'effect.denied': 'done',
  'effect.admitted': 'done',
  'effect.duplicate_blocked': 'done',
  'effect.probed': about('effect.probed', { said: 'unknown' }),
  'effect.reconciled': about('effect.reconciled', { outcome: 'happened' }),
  'effect.resolved': 'done',
  'effect.erased': 'done',
  'effect.contradiction': about('effect.contradiction', { said: 'committed' }),
  'effect.conflict': 'done',
  'approval.requested': 'done',
  'approval.granted': 'done',
  'approval.rejected': 'done',
  'approval.expired': about('approval.expired', { code: 'approval_expired' }),
  'approval.renewed': about('approval.renewed', { approval_id: 'apr_1' }),
  'approval.escalated': about('approval.escalated', { approval_id: 'apr_1' }),
  'allowance.given': about('allowance.given', { allowance_id: 'alw_1' }),
  'allowance.used': about('allowance.used', { allowance_id: 'alw_1' }),
  'allowance.revoked': about('allowance.revoked', { allowance_id: 'alw_1' }),
  'state.verified': about('state.verified', { attempt: 1 }),
  'state.drifted': about('state.drifted', { fields: ['status'] }),
  'execution.started': 'done',
  'execution.succeeded': 'done',
  'execution.failed': 'done',
  'execution.lost': 'done',
  'budget.held': 'done',
  'budget.posted': 'done',
  'budget.voided': 'done',
  'budget.overdraft': about('budget.overdraft', { holds: [] }),
  'budget.reset': about('budget.reset', { budgets: ['world/another'] }),
  'receipt.issued': 'done',
  'read.batch': 'done',
  'key.created': 'done',
  'key.revoked': 'done',
  'key.rotated': 'done',
  'passkey.added': about('passkey.added', { passkey_id: 'psk_1', user: 'nobody' }),
  'passkey.removed': about('passkey.removed', { passkey_id: 'psk_1', user: 'nobody' }),
  'user.added': 'done, of the installation',
  'user.removed': about('user.removed', { user: 'nobody', roles: [] }),
  'user.roles_changed': about('user.roles_changed', { user: 'nobody', given: [], taken: ['lead'] }),
  'workspace.created': about('workspace.created', { workspace: 'demo' }),
  'agent.registered': 'done',
  'policy.loaded': about('policy.loaded', { version: 'v1' }),
  'policy.activated': 'done, of the installation',
  'policy.rolled_back': about('policy.rolled_back', { version: 'v0' }),
  'policy.rejected': about('policy.rejected', { in_force: 'v1' }),
  'policy.proposed': about('policy.proposed', { proposal: 'ppl_1', version: 'v2' }),
  'policy.confirmed': about('policy.confirmed', { proposal: 'ppl_1', version: 'v2' }),
  'policy.withdrawn': about('policy.withdrawn', { proposal: 'ppl_1', version: 'v2' }),
  'store.loss_accepted': about('store.loss_accepted', {}),
  'store.restored': about('store.restored', {}),
  'store.time_accepted': about('store.time_accepted', {}),
  'archive.segment': about('archive.segment', { segment: 1 }),
  'gateway.declared_lost': about('gateway.declared_lost', { gateway: 'boot_2' }),
  'pause.set': 'done',
  'pause.lifted': 'done',
  'claim.taken': 'done',
  'claim.renewed': 'done',
  'claim.released': 'done',
  'reservation.made': 'done',
  'reservation.released': 'done',
  'brain.entities_put': 'done',
  'brain.entities_removed': 'done',
};

function about(kind: LedgerKind, data: LedgerDraft['data']): LedgerDraft {
  return { kind, effectId: null, actor: BOOT, data };
}

const admin = (method: string, path: string, body?: unknown): Promise<Answer> =>
  send(url, world.gateway.administrativeKey, method, path, body);
const ws = (method: string, path: string, body?: unknown, key = world.keys.account): Promise<Answer> =>
  send(url, key, method, `/v1/workspaces/demo${path}`, body);

beforeAll(async () => {
  world = await startWorld();
  ({ url } = world.gateway);
  auditor = await makeApiKey(world.gateway, 'olga', { profile: 'auditor', workspace: 'demo' });
  await act();
  await world.gateway.stop();
  await writeTheOthers();
  ({ url } = await world.gateway.restart());
});
afterAll(() => world.close());

/** What people and agents do, by which most kinds of events come to be. */
async function act(): Promise<void> {
  const call = refund();
  made['refund'] = (await world.run(call)).body.effect_id;
  await world.run(call);
  await world.run({ ...call, params: { ...(refund()['params'] as object), amount: 7 } });
  await world.run(refund({ currency: 'JPY' }));
  await world.run(refund({ reason: 'mode:unavailable' }));
  const lost = (await world.run(refund({ reason: 'mode:drop_after' }))).body.effect_id;
  await vi.waitFor(async () =>
    expect((await world.post(`/effects/${lost}/resolve`, { outcome: 'happened' }, world.keys.approver)).status).toBe(
      200,
    ),
  );
  // The rejected one comes first, and gives its budget back.
  for (const verdict of ['reject', 'approve']) {
    const { body } = await world.run(refund({ amount: 50_001 }));
    await world.post(`/approvals/${body.approval.id}/${verdict}`, {}, world.keys.approver);
    made['large'] = body.effect_id;
  }
  await ws('DELETE', `/effects/${lost}/params`);
  const pause = await ws('POST', '/pauses', { scope: { tool: 'nothing.here' }, reason: 'a test' });
  await ws('DELETE', `/pauses/${pause.body.id}`);
  const claim = await ws('POST', '/claims', { target: 'payment:held', ttl_s: 60 }, world.keys.bot);
  await ws('POST', `/claims/${claim.body.id}/renew`, {}, world.keys.bot);
  await ws('DELETE', `/claims/${claim.body.id}`, undefined, world.keys.bot);
  const slot = await ws('POST', '/reservations', { pool: 'deploy-slot', units: 1, ttl_s: 60 }, world.keys.bot);
  await ws('DELETE', `/reservations/${slot.body.id}`, undefined, world.keys.bot);
  await admin('POST', '/v1/workspaces/demo/agents', { id: 'newcomer' });
  await admin('PUT', '/v1/workspaces/demo/brain/entities', { entities: [{ type: 'team', id: 'blue', name: 'Blue' }] });
  await admin('DELETE', '/v1/workspaces/demo/brain/entities/team/blue');
  const key = (await admin('POST', '/v1/beta/users/tom/keys', { name: 'x', kind: 'account', workspace: 'demo' })).body
    .id;
  spare = key;
  const next = (await admin('POST', `/v1/beta/keys/${key}/rotate`, {})).body.id;
  await admin('DELETE', `/v1/beta/keys/${next}`);
  await send(url, world.keys.bot, 'GET', '/payments/v1/payments/pay_1');
  await vi.waitFor(async () => expect((await ledger('kind=read.batch')).body.events).toHaveLength(1), 5_000);
}

/** The kinds that need a lost gateway, a store that was set back, and the like. */
async function writeTheOthers(): Promise<void> {
  const store = await openEmbeddedStore({
    path: world.gateway.dataFolder,
    lockWaitMs: 5_000,
    worker: 'never',
    retention: RETENTION,
    keySeals: KEY_SEALS,
  });
  for (const where of Object.values(MADE)) if (typeof where !== 'string') await store.append('demo', [where]);
  await store.append(INSTALLATION, [about('store.time_accepted', {})]);
  await store.close();
}

const ledger = (query: string, key = auditor): Promise<Answer> =>
  send(url, key, 'GET', `/v1/workspaces/demo/ledger?${query}`);

async function byCommand(key: string, ...words: readonly string[]): Promise<{ readonly events: { kind: string }[] }> {
  vi.stubEnv('SVC_API_KEY', key);
  const said = await svc('ledger', '--url', url, '--workspace', 'demo', '--json', ...words);
  vi.unstubAllEnvs();
  expect(said.code, said.err).toBe(0);
  return JSON.parse(said.out);
}

it('each kind of event is read back, over the API and with svc ledger, and one that is new has to be', async () => {
  expect(Object.keys(MADE).toSorted()).toEqual(LEDGER_KINDS.toSorted());
  for (const kind of LEDGER_KINDS) {
    const isOfInstallation = MADE[kind] === 'done, of the installation';
    const answer = isOfInstallation ? await admin('GET', `/v1/beta/ledger?kind=${kind}`) : await ledger(`kind=${kind}`);
    expect(answer.status, kind).toBe(200);
    expect(answer.body.events.length, kind).toBeGreaterThan(0);
    expect(new Set(answer.body.events.map((event: { kind: string }) => event.kind))).toEqual(new Set([kind]));
    const words = isOfInstallation ? ['--installation'] : [];
    const said = await byCommand(
      isOfInstallation ? world.gateway.administrativeKey : auditor,
      ...words,
      '--kind',
      kind,
    );
    expect(said.events, kind).toEqual(answer.body.events);
  }
});

it('all kinds belong to a thing, and are found by it', async () => {
  expect(new Set(LEDGER_KINDS.map((kind) => kind.split('.')[0]))).toEqual(new Set(LEDGER_GROUPS));
  const { body } = await ledger('kind=pause');
  expect(body.events.map((event: { kind: string }) => event.kind)).toEqual(['pause.lifted', 'pause.set']);
});

it('says who changed what: keys, pauses, claims, entities, agents', async () => {
  const told = async (query: string) =>
    (await ledger(query)).body.events.map(
      ({ kind, actor }: { kind: string; actor: { type: string; id: string } }) => `${kind} ${actor.type}`,
    );
  expect(await told(`key_id=${spare}`)).toEqual(['key.rotated key', 'key.created key']);
  expect(await told('kind=pause&user=tom')).toEqual(['pause.lifted user', 'pause.set user']);
  expect(await told('target=payment:held')).toEqual([
    'claim.released agent',
    'claim.renewed agent',
    'claim.taken agent',
  ]);
  expect(await told('kind=brain')).toEqual(['brain.entities_removed key', 'brain.entities_put key']);
  expect(await told('agent_id=newcomer')).toEqual(['agent.registered key']);
});

it('finds the events of effects by what the effect was, page by page', async () => {
  const { body } = await ledger('tool=payments.refund&kind=effect.admitted&limit=2');
  expect(body.events).toHaveLength(2);
  const rest = await ledger(`tool=payments.refund&kind=effect.admitted&limit=200&cursor=${body.next_cursor}`);
  const seen = [...body.events, ...rest.body.events].map((event: { effect_id: string }) => event.effect_id);
  expect(seen).toContain(made['refund']);
  expect(new Set(seen).size).toBe(seen.length);
  const kinds = (await ledger(`rule=world/refund-large&effect_id=${made['large']}`)).body.events.map(
    (event: { kind: string }) => event.kind,
  );
  expect(kinds).toContain('approval.granted');
  expect(kinds).toContain('receipt.issued');
  expect((await ledger('tool=notes.add')).body.events).toEqual([]);
  expect((await ledger('until=2020-01-01T00:00:00Z')).body).toEqual({ events: [], next_cursor: null });
});

it('effects are found by who approved them, whose key it was, their target and their rule', async () => {
  const ids = async (query: string) =>
    (await world.get(`/effects?${query}`, auditor)).body.effects.map((effect: { id: string }) => effect.id);
  expect(await ids('approver=maria&state=committed')).toEqual([made['large']]);
  expect(await ids('approver=tom')).toEqual([]);
  expect(await ids('user=olga&rule=world/refund-large&state=committed')).toEqual([made['large']]);
  vi.stubEnv('SVC_API_KEY', auditor);
  const words = ['--approver', 'maria', '--state', 'committed', '--since', '2020-01-01'];
  const said = await svc('effects', 'list', '--url', url, '--workspace', 'demo', '--json', ...words);
  vi.unstubAllEnvs();
  expect(JSON.parse(said.out).effects.map((effect: { id: string }) => effect.id)).toEqual([made['large']]);
});

it('is shown as a table to people, whose words cannot move their terminal', async () => {
  vi.stubEnv('SVC_API_KEY', world.keys.account);
  const said = await svc('ledger', '--url', url, '--workspace', 'demo', '--kind', 'pause');
  vi.unstubAllEnvs();
  expect(said.out).toMatch(/seq +at +event +by +effect +what it says\n.*pause\.lifted +user tom/);
});

it('is read by no agent, by no other workspace, and not without the scope', async () => {
  const own = await makeApiKey({ ...world.gateway, url }, 'olga', {
    profile: 'auditor',
    workspace: 'demo',
    agent_id: 'bot',
  });
  const elsewhere = await makeApiKey({ ...world.gateway, url }, 'olga', { profile: 'auditor', workspace: 'elsewhere' });
  const codes = [];
  for (const key of [own, elsewhere, world.keys.bot, world.keys.readonly])
    codes.push((await ledger('', key)).body.code);
  expect(codes).toEqual(['wrong_key_kind', 'wrong_workspace', 'wrong_key_kind', 'insufficient_scope']);
  // The command line says how the workspace is named.
  vi.stubEnv('SVC_API_KEY', elsewhere);
  const { code, err } = await svc('ledger', '--url', url, '--workspace', 'demo');
  vi.unstubAllEnvs();
  expect([code, err]).toEqual([1, expect.stringMatching(/\[wrong_workspace\]\n.*in SVC_WORKSPACE\.$/)]);
  // Who changed which user, and no more of what belongs to no workspace.
  const installation = async (query: string, key = auditor) =>
    (await send(url, key, 'GET', `/v1/beta/ledger${query}`)).body;
  for (const query of ['', '?kind=key', '?kind=policy', '?actor=maria'])
    expect((await installation(query)).code, query).toBe('wrong_key_kind');
  for (const query of ['?kind=user', '?kind=user.added', '?kind=passkey'])
    expect(await installation(query), query).toEqual(await installation(query, world.gateway.administrativeKey));
  expect((await installation('?kind=user')).events.length).toBeGreaterThan(0);
  expect((await installation('?kind=user', world.keys.readonly)).code).toBe('insufficient_scope');
  expect((await send(url, auditor, 'POST', '/v1/workspaces/demo/effects', refund({}, freshKey()))).status).toBe(403);
});

it('what is no filter is refused with a pointer', async () => {
  for (const query of ['kind=nothing', 'since=yesterday', 'limit=201', 'cursor=!', 'colour=red'])
    expect((await ledger(query)).status, query).toBe(400);
});
