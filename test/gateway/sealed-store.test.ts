import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { ApprovalRecord, Vote } from '../../src/effects/model/approval.ts';
import type { ApprovalRequirement } from '../../src/effects/model/verdict.ts';
import type { AdmitRequest, EffectStore } from '../../src/effects/store.ts';
import { sealedSettlement, sealedStore } from '../../src/gateway/sealed-store.ts';
import { openSecrets, type Secrets } from '../../src/secrets/vault.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import {
  admitRequest,
  ANY,
  approvalBy,
  committed,
  dispatched,
  permit,
  resolveRequest,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const SUMMARY = 'Refund canary-of-the-summary to customer 42';
const RESULT = 'canary-of-the-result';

let folder = '';
let plain: EffectStore;
let secrets: Secrets;
let store: EffectStore;
beforeEach(async () => {
  folder = storeFolder();
  secrets = await openSecrets({ masterFile: join(folder, 'master'), previous: [] });
  plain = await openEmbeddedStore({
    path: join(folder, 'store'),
    lockWaitMs: 0,
    worker: 'never',
    retention: { keysMs: null, effectsMs: 1e9, denialsMs: 1e9 },
    keySeals: KEY_SEALS,
  });
  store = sealedStore(plain, secrets);
});
afterEach(async () => {
  await plain.close();
  rmSync(folder, { recursive: true });
});

function result(text = RESULT) {
  return {
    kind: 'http',
    status: 201,
    headers: { 'x-of': text },
    body: { kind: 'json', value: { text } },
    truncated: false,
  } as const;
}
const outcome = (text?: string) => ({ ...committed(), result: result(text) }) as ReturnType<typeof committed>;
const ALL = { status: null, agentId: null, limit: 50, cursor: null } as const;

/** All bytes of the store's files. */
function onDisk(): string {
  return readdirSync(join(folder, 'store'))
    .map((name) => readFileSync(join(folder, 'store', name), 'latin1'))
    .join('');
}

it('neither summaries nor kept answers stand in the files of the store, and readers get them as they were', async () => {
  const verdict = permit(
    [],
    [approvalBy({ summary: SUMMARY }), approvalBy({ rule: 'payments/b', summary: `${SUMMARY} b` })],
  );
  const waiting = await store.admit(admitRequest({ idempotencyKey: 'k', verdict }));
  if (waiting.kind !== 'pending') throw new Error('it waits');
  const { approval } = waiting;
  expect(approval.requirements.map(({ summary }) => summary)).toEqual([SUMMARY, `${SUMMARY} b`]);
  expect(await store.approval(WORKSPACE, approval.id)).toEqual(approval);
  expect((await store.approvals(WORKSPACE, ALL)).items).toEqual([approval]);
  expect(await store.vote(voteRequest(approval, { requirements: [0, 1] }))).toMatchObject({
    approval: { requirements: approval.requirements },
  });
  expect(await store.grantedApprovals(10)).toMatchObject([{ requirements: approval.requirements }]);

  const { effect } = await dispatched(store);
  await store.settle(settleRequest(effect, outcome()));
  expect(await store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'committed', result: result() } });
  expect((await store.effects(WORKSPACE, ANY)).items).toContainEqual(
    expect.objectContaining({ life: expect.objectContaining({ result: result() }) }),
  );
  const { idempotencyKey, fingerprint } = effect;
  expect(await store.admit(admitRequest({ idempotencyKey, fingerprint }))).toMatchObject({
    kind: 'existing',
    effect: { life: { result: result() } },
  });
  expect(onDisk()).not.toContain('canary');
  const settlement = sealedSettlement(settleRequest(effect, outcome()), secrets);
  expect(JSON.stringify(settlement)).not.toContain('canary');
  expect(sealedSettlement(settlement, secrets)).toBe(settlement);
});

it('a call that nobody is asked for needs no id of a request for approval, and no time', async () => {
  const request = Object.defineProperty(admitRequest({ idempotencyKey: 'unasked' }), 'approvalId', {
    get: () => expect.unreachable('an id was made'),
  });
  const stale = { kind: 'stale', versions: request.seen, now: 1 } as const;
  const inner: EffectStore = {
    ...plain,
    now: () => expect.unreachable('the clock was read'),
    admit: async () => stale,
  };
  expect(await sealedStore(inner, secrets).admit(request)).toEqual(stale);
});

it('a kept answer that is a message is sealed and opened like one over HTTP', async () => {
  const message = { kind: 'message', body: { kind: 'json', value: { text: RESULT } }, truncated: false } as const;
  const { effect } = await dispatched(store);
  await store.settle(settleRequest(effect, { kind: 'failed', result: message }));
  expect(await store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { result: message } });
  expect(await plain.effect(WORKSPACE, effect.id)).toMatchObject({
    life: { result: { kind: 'message', body: { kind: 'sealed' } } },
  });
  expect(onDisk()).not.toContain('canary');
});

it('records of before are read as they are', async () => {
  const verdict = permit([], [approvalBy({ summary: SUMMARY })]);
  const waiting = await plain.admit(admitRequest({ verdict }));
  if (waiting.kind !== 'pending') throw new Error('it waits');
  // Who can write to the store could make such a one: it is shown, and nothing is approved by it.
  expect(await store.approval(WORKSPACE, waiting.approval.id)).toEqual({ ...waiting.approval, isForged: true });
  const { effect } = await dispatched(plain);
  await plain.settle(settleRequest(effect, outcome()));
  expect(await store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { result: result() } });
  expect(onDisk()).toContain(RESULT);
});

/** A request that two rules ask for, granted by one vote, as the store keeps it. */
async function granted(more: Partial<AdmitRequest> = {}): Promise<ApprovalRecord> {
  const verdict = permit([], [approvalBy(), approvalBy({ rule: 'payments/b' })]);
  const waiting = await store.admit(admitRequest({ verdict, ...more }));
  if (waiting.kind !== 'pending') throw new Error('it waits');
  await store.vote(voteRequest(waiting.approval, { requirements: [0, 1] }));
  const kept = await plain.approval(WORKSPACE, waiting.approval.id);
  if (kept === null) throw new Error('it is kept');
  return kept;
}

it.each<[string, (kept: ApprovalRecord, other: ApprovalRecord) => Partial<ApprovalRecord>]>([
  ['another digest', () => ({ digest: 'another' })],
  ['another agent that asked', ({ requester }) => ({ requester: { ...requester, agentId: 'other' } })],
  ['another owner of the agent', ({ requester }) => ({ requester: { ...requester, agentOwner: 'tom' } })],
  ['another user who asked', ({ requester }) => ({ requester: { ...requester, user: 'tom' } })],
  ['another key that asked', ({ requester }) => ({ requester: { ...requester, keyId: 'key_other' } })],
  ['another maker of the key', ({ requester }) => ({ requester: { ...requester, keyMadeBy: null } })],
  ['other roles', ({ requirements: [one, two] }) => ({ requirements: asks(one, two, { roles: ['all'], users: [] }) })],
  ['other users', ({ requirements: [one, two] }) => ({ requirements: asks(one, two, { roles: [], users: ['tom'] }) })],
  [
    'another user beside the same roles',
    ({ requirements: [one, two] }) => ({ requirements: asks(one, two, { roles: ['finance-lead'], users: ['tom'] }) }),
  ],
  ['a smaller quorum', ({ requirements }) => ({ requirements: first(requirements, { quorum: 0 }) })],
  ['the name of another rule', ({ requirements }) => ({ requirements: first(requirements, { rule: 'payments/c' }) })],
  ['another text of the rule', ({ requirements }) => ({ requirements: first(requirements, { ruleDigest: 'other' }) })],
  ['a longer time', ({ requirements }) => ({ requirements: first(requirements, { expiresMs: 9e9 }) })],
  ['another hold', ({ requirements: [one, ...more] }) => ({ requirements: otherHold(one, more) })],
  [
    'no word that a reason is needed',
    ({ requirements }) => ({ requirements: first(requirements, { requireReason: true }) }),
  ],
  ['a vote that was a rejection', ({ votes }) => ({ votes: votes.map((vote) => ({ ...vote, verdict: 'reject' })) })],
  ['a vote for less', ({ votes }) => ({ votes: votes.map((vote) => ({ ...vote, requirements: [0] })) })],
  ['a vote by another key', ({ votes }) => ({ votes: votes.map((vote) => ({ ...vote, keyId: 'key_other' })) })],
  ['a requirement less', ({ requirements }) => ({ requirements: requirements.slice(0, 1) })],
  ['a requirement twice', ({ requirements: [one] }) => ({ requirements: one === undefined ? [] : [one, one] })],
  ['no requirement', () => ({ requirements: [] })],
  ['a later beginning', ({ createdAt }) => ({ createdAt: createdAt + 3_600_000 })],
  [
    'another limit to go beyond',
    ({ requirements }) => ({ requirements: first(requirements, { beyond: 'budget:other' }) }),
  ],
  ['others to decide as well', ({ requirements }) => ({ requirements: first(requirements, { escalate: SOON }) })],
  ['no vote', () => ({ votes: [] })],
  ['no vote, and was used', () => ({ votes: [], status: 'used' })],
  ['a vote without a seal', ({ votes }) => ({ votes: votes.map(({ seal: _seal, ...vote }) => vote) })],
  ['a vote of another user', ({ votes }) => ({ votes: votes.map((vote) => ({ ...vote, user: 'tom' })) })],
  ['a vote with another comment', ({ votes }) => ({ votes: votes.map((vote) => ({ ...vote, comment: 'yes' })) })],
  ['the vote on another request', (_kept, { votes }) => ({ votes })],
])('a granted request that was given %s is shown, and approves nothing', async (_what, change) => {
  // The same question twice, under two keys: what the votes are about tells the requests apart, and nothing else.
  const same = { approvalDigest: 'the same question' };
  const [kept, other] = [await granted(same), await granted(same)];
  const seen: string[] = [];
  const read = async (record: ApprovalRecord) => {
    const edited = sealedStore({ ...plain, approval: async () => record }, secrets, undefined, (of) => seen.push(of));
    return edited.approval(WORKSPACE, record.id);
  };
  const opened = await read(kept);
  expect(opened).not.toHaveProperty('isForged');
  // What vouches for a vote is for the gateway alone.
  expect(opened?.votes.map(({ user, seal }) => [user, seal])).toEqual([['maria', undefined]]);
  expect(seen).toEqual([]);
  expect(await read({ ...kept, ...change(kept, other) })).toMatchObject({ id: kept.id, isForged: true });
  expect(seen).toEqual([`approval ${WORKSPACE} ${kept.id}`]);
});

const HOURS = { schedule: 'office', expiresAt: 9e12, escalatesAt: 8e12 };
const SOON = { afterMs: 1, to: { roles: [], users: ['tom'] } };
const LATER = { afterMs: 3_600_000, to: { roles: [], users: ['omar'] } };
const ALIKE = { times: 5, forMs: 3_600_000 };

it.each<[string, (kept: ApprovalRecord) => Partial<ApprovalRecord>]>([
  ['an earlier time for others', ({ requirements }) => ({ requirements: first(requirements, { escalate: SOON }) })],
  [
    'an earlier time for the same others',
    ({ requirements }) => ({ requirements: first(requirements, { escalate: { ...LATER, afterMs: 1 } }) }),
  ],
  [
    'a role that it escalates to as well',
    ({ requirements }) => ({
      requirements: first(requirements, { escalate: { ...LATER, to: { ...LATER.to, roles: ['all'] } } }),
    }),
  ],
  [
    'more calls ahead',
    ({ requirements }) => ({ requirements: first(requirements, { allowAlike: { ...ALIKE, times: 50 } }) }),
  ],
  [
    'calls ahead for longer',
    ({ requirements }) => ({ requirements: first(requirements, { allowAlike: { ...ALIKE, forMs: 9e9 } }) }),
  ],
  [
    'another schedule',
    ({ requirements }) => ({ requirements: first(requirements, { hours: { ...HOURS, schedule: 'always' } }) }),
  ],
  ['other hours', ({ requirements }) => ({ requirements: first(requirements, { hours: { ...HOURS, expiresAt: 1 } }) })],
  [
    'fewer hours for others',
    ({ requirements }) => ({ requirements: first(requirements, { hours: { ...HOURS, escalatesAt: 1 } }) }),
  ],
  [
    'all time, and not hours',
    ({ requirements }) => ({ requirements: requirements.map(({ hours: _hours, ...one }) => one) }),
  ],
  ['others than it escalates to', ({ requirements }) => ({ requirements: toOthers(requirements) })],
  [
    'nobody to escalate to',
    ({ requirements }) => ({ requirements: requirements.map(({ escalate: _escalate, ...one }) => one) }),
  ],
  ['an earlier beginning, so that others could decide', ({ createdAt }) => ({ createdAt: createdAt - 3_600_000 })],
])('a request that escalates and was given %s is shown, and approves nothing', async (_what, change) => {
  const { approval } = await waits([approvalBy({ escalate: LATER, expiresMs: 9e9, hours: HOURS, allowAlike: ALIKE })]);
  const kept = await plain.approval(WORKSPACE, approval.id);
  if (kept === null) throw new Error('it is kept');
  const shown = async (record: ApprovalRecord) =>
    (await sealedStore({ ...plain, approval: async () => record }, secrets).approval(WORKSPACE, record.id))?.isForged;
  expect(await shown(kept)).toBeUndefined();
  expect(await shown({ ...kept, ...change(kept) })).toBe(true);
  // Whoever changes what is asked changes nothing about since when.
  const asked = { ...SEALED_CHANGE, requirements: approval.requirements, requester: approval.requester };
  await store.vote(voteRequest(approval, { change: { ...asked, askedAt: approval.createdAt } }));
  const changed = await plain.approval(WORKSPACE, approval.id);
  if (changed === null) throw new Error('it is kept');
  expect(await shown(changed)).toBeUndefined();
  expect(await shown({ ...changed, ...change(changed) })).toBe(true);
});

it.each<[string, Parameters<typeof voteRequest>[1], (vote: Vote) => Vote]>([
  ['a rejection', { verdict: 'reject', requirements: [0, 1] }, (vote) => ({ ...vote, verdict: 'approve' })],
  ['a vote for one requirement', { requirements: [0] }, (vote) => ({ ...vote, requirements: [0, 1] })],
])('%s that something else turned into consent to all is shown, and approves nothing', async (_what, cast, turned) => {
  const { approval } = await waits([approvalBy(), approvalBy({ rule: 'payments/b' })]);
  await store.vote(voteRequest(approval, cast));
  const kept = await plain.approval(WORKSPACE, approval.id);
  if (kept === null) throw new Error('it is kept');
  const shown = async (record: ApprovalRecord) =>
    (await sealedStore({ ...plain, approval: async () => record }, secrets).approval(WORKSPACE, record.id))?.isForged;
  expect(await shown(kept)).toBeUndefined();
  expect(await shown({ ...kept, status: 'granted', votes: kept.votes.map(turned) })).toBe(true);
});

it('a request that escalates is from the time at which it was asked, give or take a minute', async () => {
  const escalate = { afterMs: 3_600_000, to: { roles: [], users: ['omar'] } };
  const { approval } = await waits([approvalBy({ escalate, expiresMs: 9e9 })]);
  const { createdAt: askedAt } = approval;
  const asked = { ...SEALED_CHANGE, requirements: approval.requirements, requester: approval.requester };
  await store.vote(voteRequest(approval, { change: { ...asked, askedAt } }));
  const kept = await plain.approval(WORKSPACE, approval.id);
  if (kept === null) throw new Error('it is kept');
  const isForged = async (late: number) => {
    const record = { ...kept, createdAt: askedAt + late };
    return (await sealedStore({ ...plain, approval: async () => record }, secrets).approval(WORKSPACE, kept.id))
      ?.isForged;
  };
  expect(await Promise.all([-60_001, -60_000, 60_000, 60_001].map(isForged))).toEqual([
    true,
    undefined,
    undefined,
    true,
  ]);
});

const SEALED_CHANGE = { digest: 'changed', costs: [], params: ['amount'], sealed: 'sealed.changed' } as const;

async function waits(approvals: readonly ApprovalRequirement[]) {
  const waiting = await store.admit(admitRequest({ verdict: permit([], approvals) }));
  if (waiting.kind !== 'pending') throw new Error('it waits');
  return waiting;
}

function toOthers(requirements: readonly Requirement[]): readonly Requirement[] {
  return requirements.map((one) =>
    one.escalate === undefined ? one : { ...one, escalate: { ...one.escalate, to: SOON.to } },
  );
}

type Requirement = ApprovalRecord['requirements'][number];

function first([one, ...more]: readonly Requirement[], change: Partial<Requirement>): readonly Requirement[] {
  return one === undefined ? [] : [{ ...one, ...change }, ...more];
}

function otherHold(one: Requirement | undefined, more: readonly Requirement[]): readonly Requirement[] {
  return one === undefined ? [] : [{ ...one, hold: one.hold === 'own' ? 'all' : 'own' }, ...more];
}

function asks(one: Requirement | undefined, two: Requirement | undefined, approvers: Requirement['approvers']) {
  return one === undefined || two === undefined ? [] : [{ ...one, approvers }, two];
}

it('an entity that something else than a gateway wrote is not read', async () => {
  const entity = { type: 'customer', id: 'c1', body: '{"name":"Ada"}' };
  let kept: Parameters<EffectStore['putEntities']>[0]['entities'][number] | undefined;
  const inner: EffectStore = {
    ...plain,
    async putEntities(request) {
      [kept] = request.entities;
      return { kind: 'put', version: 1, created: 1, changed: 0, unchanged: 0 };
    },
    entities: async () => all(),
    entityPage: async () => ({ items: all(), next: null }),
    entitiesSince: async () => ({ entities: all(), next: null }),
  };
  const all = () => (kept === undefined ? [] : [{ ...kept, version: 1, updatedAt: 1 }]);
  const guarded = sealedStore(inner, secrets);
  const written = {
    ...entity,
    digest: 'd',
    characters: entity.body.length,
    origin: { kind: 'api', by: { type: 'key', id: 'key_1' } },
  } as const;
  await guarded.putEntities({
    workspace: WORKSPACE,
    entities: [written],
    actor: { type: 'key', id: 'key_1' },
    limits: { entities: 10, characters: 1000 },
  });
  expect(kept?.body).not.toContain('Ada');
  expect(await guarded.entities(WORKSPACE, [entity])).toMatchObject([{ body: entity.body }]);
  const sealed = kept;
  const page = await guarded.entityPage(WORKSPACE, { type: null, limit: 10, cursor: null });
  expect(page).toMatchObject({ items: [{ body: entity.body }] });
  expect(await guarded.entitiesSince(WORKSPACE, 0, null)).toMatchObject({ entities: [{ body: entity.body }] });
  for (const body of ['{"name":"Eve"}', `${sealed?.body ?? ''}A`]) {
    if (sealed !== undefined) kept = { ...sealed, body };
    await expect(guarded.entities(WORKSPACE, [entity])).rejects.toMatchObject({ name: 'StoreUnavailable' });
  }
  // Nor one that was sealed for another.
  if (sealed !== undefined) kept = { ...sealed, id: 'c2' };
  await expect(guarded.entities(WORKSPACE, [entity])).rejects.toMatchObject({ name: 'StoreUnavailable' });
});

it('what another secret sealed, or what was moved to another record, is not shown', async () => {
  const { effect } = await dispatched(store);
  await store.settle(settleRequest(effect, outcome()));
  const other = sealedStore(plain, await openSecrets({ masterFile: join(folder, 'other'), previous: [] }));
  const sealedLife = { life: { state: 'committed', result: { status: 201, body: { kind: 'sealed' } } } };
  expect(await other.effect(WORKSPACE, effect.id)).toMatchObject(sealedLife);
  const kept = await plain.effect(WORKSPACE, effect.id);
  if (kept === null) throw new Error('it is kept');
  for (const moved of [{ id: 'eff_other' }, { workspace: 'other' }]) {
    const moving = sealedStore({ ...plain, effect: async () => ({ ...kept, ...moved }) }, secrets);
    expect(await moving.effect(WORKSPACE, effect.id)).toMatchObject(sealedLife);
  }
  const asked = (await waits([approvalBy({ summary: SUMMARY })])).approval;
  expect(await other.approval(WORKSPACE, asked.id)).toMatchObject({
    isForged: true,
    requirements: [{ summary: '(the summary cannot be read)' }],
  });
  const bound = { what: 'approval', workspace: WORKSPACE, of: 'apr_1', part: 0 } as const;
  const sealed = secrets.sealText('a', bound);
  expect(secrets.openText(sealed, bound)).toBe('a');
  for (const elsewhere of [
    { ...bound, what: 'result' as const },
    { ...bound, workspace: 'w' },
    { ...bound, of: 'apr_2' },
    { ...bound, part: 1 },
  ])
    expect(secrets.openText(sealed, elsewhere)).toBeNull();
});

it('a list opens no more than a bounded part of what is kept', async () => {
  const long = 'x'.repeat(600_000);
  for (let n = 0; n < 3; n += 1) {
    const { effect } = await dispatched(store);
    await store.settle(settleRequest(effect, outcome(long)));
  }
  const kinds = (await store.effects(WORKSPACE, ANY)).items.map(({ life }) =>
    life.state === 'committed' ? life.result?.body.kind : null,
  );
  expect(kinds.filter((kind) => kind === 'json').length).toBeLessThan(3);
  expect(kinds.filter((kind) => kind === 'sealed').length).toBeGreaterThan(0);
});

/** A request that two people have to agree to; one has, another changed it, and it is granted as changed or not. */
async function changedOnce() {
  const verdict = permit(
    [],
    [approvalBy({ quorum: 2, requireReason: true, editable: { amount: { kind: 'range', min: 1, max: 9 } } })],
  );
  const waiting = await store.admit(admitRequest({ verdict }));
  if (waiting.kind !== 'pending') throw new Error('it waits');
  const { approval } = waiting;
  await store.vote(voteRequest(approval, { user: 'omar' }));
  const asked = await plain.approval(WORKSPACE, approval.id);
  const change = {
    digest: 'changed',
    requirements: approval.requirements.map((one) => ({ ...one, summary: SUMMARY })),
    askedAt: approval.createdAt,
    requester: approval.requester,
    costs: [],
    params: ['amount'],
    sealed: 'sealed.changed',
  };
  await store.vote(voteRequest(approval, { user: 'maria', change }));
  const kept = await plain.approval(WORKSPACE, approval.id);
  if (kept === null || asked === null) throw new Error('both are kept');
  return { asked, kept };
}

it('a changed question is sealed anew, and votes of before the change do not count for it, nor its votes for what was asked', async () => {
  const { asked, kept } = await changedOnce();
  expect(await store.approval(WORKSPACE, kept.id)).toMatchObject({
    digest: 'changed',
    requirements: [{ summary: SUMMARY }],
    votes: [{ user: 'maria' }],
  });
  expect((await store.approval(WORKSPACE, kept.id))?.isForged).toBeUndefined();
  expect(onDisk()).not.toContain('canary');
  const shown = async (record: ApprovalRecord) => {
    const inner: EffectStore = { ...plain, approval: async () => record };
    return (await sealedStore(inner, secrets).approval(WORKSPACE, record.id))?.isForged;
  };
  expect(await shown(kept)).toBeUndefined();
  expect(await shown({ ...kept, votes: [...asked.votes, ...kept.votes], status: 'granted' })).toBe(true);
  const { changed: _changed, ...unchanged } = kept;
  expect(await shown({ ...asked, votes: [...asked.votes, ...kept.votes], status: 'granted' })).toBe(true);
  // Votes of older versions name no question: the id of the request did, while nobody could change it.
  const older = ({ seal: _seal, ...vote }: Vote): Vote => {
    const text = JSON.stringify([vote.user, vote.keyId, vote.verdict, vote.comment, vote.requirements]);
    return { ...vote, seal: secrets.sealText(text, { what: 'vote', workspace: WORKSPACE, of: kept.id, part: 0 }) };
  };
  expect(await shown({ ...asked, votes: asked.votes.map(older) })).toBeUndefined();
  expect(await shown({ ...kept, votes: kept.votes.map(older) })).toBe(true);
  expect(await shown({ ...unchanged, digest: asked.digest })).toBe(true);
  const [requirement] = kept.requirements;
  if (requirement === undefined) throw new Error('somebody is asked');
  const wider = { ...requirement, editable: { amount: { kind: 'range', min: 1, max: 9_000 } } } as const;
  expect(await shown({ ...kept, requirements: [wider] })).toBe(true);
  const { requireReason, ...lax } = requirement;
  expect([requireReason, await shown({ ...kept, requirements: [lax] })]).toEqual([true, true]);
});

it('whatever answers with a record opens it', async () => {
  const verdict = permit([], [approvalBy({ summary: SUMMARY })]);
  const request = admitRequest({ idempotencyKey: 'again', verdict });
  const waiting = await store.admit(request);
  if (waiting.kind !== 'pending') throw new Error('it waits');
  const { approval } = waiting;
  const opened = [{ summary: SUMMARY }];
  expect(await store.preview(request)).toMatchObject({ kind: 'pending', approval: { requirements: opened } });
  expect(await store.admit(request)).toMatchObject({ kind: 'pending', approval: { requirements: opened } });
  await store.vote(voteRequest(approval));
  expect(await store.admit(request)).toMatchObject({ kind: 'dispatch', approval: { requirements: opened } });
  const given = await granted();
  const reason = { code: 'agent_disabled', message: 'The agent is disabled.' } as const;
  const actor = { type: 'gateway', id: 'approvals' } as const;
  expect(
    await store.giveUp({
      workspace: WORKSPACE,
      approvalId: given.id,
      decision: 'denied_identity',
      reason,
      actor,
    }),
  ).toMatchObject({ kind: 'given_up', approval: { requirements: [{ summary: approvalBy().summary }, {}] } });

  const { effect } = await dispatched(store);
  const settle = settleRequest(effect, outcome());
  await store.settle(settle);
  // One that comes second is told what is there.
  const second = await store.settle({ ...settle, outcome: outcome('other') });
  expect(second).toMatchObject({ kind: 'refused', effect: { life: { result: result() } } });
  const resolved = await store.resolve(resolveRequest(effect, 'happened'));
  expect(resolved).toMatchObject({ effect: { life: { result: result() } } });
});

it('each step is measured once, done or failed; rules in shadow count once for a call that is decided', async () => {
  const steps: string[] = [];
  const shadowed: string[] = [];
  const measures: NonNullable<Parameters<typeof sealedStore>[2]> = {
    step: (step, end) => steps.push(`${step} ${end}`),
    stages: (stages) => steps.push(`stages ${stages.length}`),
    shadowed: (rules) => shadowed.push(...rules),
  };
  const measured = sealedStore(plain, secrets, measures);
  const plainly = permit([]);
  const verdict = { ...plainly, trace: { ...plainly.trace, shadow: ['set/tried'] } };
  const request = admitRequest({ idempotencyKey: 'measured', verdict });
  const admitted = await measured.admit(request);
  if (admitted.kind !== 'dispatch') throw new Error(admitted.kind);
  expect((await measured.admit(request)).kind).toBe('existing');
  expect(shadowed).toEqual(['set/tried']);
  const asking = admitRequest({ verdict: { ...verdict, approvals: [approvalBy()] } });
  for (let times = 0; times < 2; times += 1) expect((await measured.admit(asking)).kind).toBe('pending');
  expect(shadowed).toEqual(['set/tried', 'set/tried']);
  steps.splice(1, 2);
  await measured.settle(settleRequest(admitted.effect, outcome()));
  expect(steps).toEqual(['admit done', 'admit done', 'stages 1', 'settle done']);
  const away = new Error('away');
  const broken = sealedStore({ ...plain, preview: () => Promise.reject(away) }, secrets, measures);
  await expect(broken.preview(request)).rejects.toBe(away);
  expect(steps.at(-1)).toBe('preview failed');
});

it('calls are let in by what a gateway allowed ahead; by what something else wrote they are not sent', async () => {
  const heard: string[] = [];
  const listening = sealedStore(plain, secrets, undefined, (record) => void heard.push(record));
  const verdict = permit([], [approvalBy({ allowAlike: { times: 5, forMs: 3_600_000 } })]);
  const alike = (likeness: string) => ({ verdict, alike: { likeness, registeredBy: null } });
  for (const [likeness, by] of [
    ['sealed', listening],
    ['written', plain],
  ] as const) {
    const waiting = await listening.admit(admitRequest(alike(likeness)));
    if (waiting.kind !== 'pending') throw new Error('it waits');
    const { id: approvalId, effectId } = waiting.approval;
    const draft = {
      id: `alw_${likeness}`,
      workspace: WORKSPACE,
      likeness,
      approvalId,
      effectId,
      agentId: 'support-bot',
      tool: 'payments.refund',
      target: 'payment:42',
      rules: ['payments/large'],
      varies: {},
      by: { user: 'maria', keyId: 'key_acct00000001' },
      times: 2,
      until: plain.now() + 3_600_000,
    };
    await by.vote(voteRequest(waiting.approval, { alike: draft }));
  }
  const letIn = await listening.admit(admitRequest(alike('sealed')));
  expect(letIn).toMatchObject({ kind: 'dispatch', allowance: { id: 'alw_sealed', used: 1 } });
  expect(JSON.stringify(letIn)).not.toContain('isForged');
  expect(await listening.admit(admitRequest(alike('written')))).toMatchObject({
    kind: 'dispatch',
    allowance: { id: 'alw_written', isForged: true },
  });
  const { items } = await listening.allowances(WORKSPACE, { agentId: null, limit: 10, cursor: null });
  expect(items.map(({ id, isForged }) => [id, isForged])).toEqual(
    expect.arrayContaining([
      ['alw_sealed', undefined],
      ['alw_written', true],
    ]),
  );
  expect(await listening.allowance(WORKSPACE, 'alw_written')).toMatchObject({ isForged: true });
  const actor = { type: 'user', id: 'omar' } as const;
  expect(await listening.revokeAllowance({ workspace: WORKSPACE, id: 'alw_written', by: 'omar', actor })).toMatchObject(
    { kind: 'revoked', allowance: { isForged: true } },
  );
  expect(new Set(heard.filter((record) => record.startsWith('allowance')))).toEqual(
    new Set([`allowance ${WORKSPACE} alw_written`]),
  );
});
