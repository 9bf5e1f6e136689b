import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { isoTime } from '../../src/effects/model/iso-time.ts';
import type { EffectRecord, Evidence } from '../../src/effects/model/effect.ts';
import type { Principal } from '../../src/effects/model/principal.ts';
import type { EffectPorts } from '../../src/effects/ports.ts';
import { createProbe } from '../../src/effects/run/probe-effect.ts';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import type { Json } from '../../src/json/value.ts';
import type { UpstreamResult } from '../../src/effects/upstream.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { RETENTION } from '../contract/fixture.ts';
import { committed, dispatched, leaseOf, newId, settleRequest, UNKNOWN, WORKSPACE } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';
import { makeTool } from '../upstreams/tool.ts';
import { type Rig, startRig } from './rig.ts';

/* Probes over a store whose clock the test sets: what one reading settles, what takes two, and what settles nothing. */

const EVERY = 5_000;
const READ = makeTool({ name: 'payments.find', kind: 'read' });
const TOOL = {
  ...makeTool(),
  probe: {
    read: READ,
    params: { payment: '{payment_id}', key: '{idempotency_key}' },
    happened: { status: 'refunded' },
    notHappened: { status: 'open' },
    everyMs: EVERY,
    afterMs: 1_000,
    forMs: 3_600_000,
  },
};
const PARAMS = { payment_id: 'pay_1', amount: 5 };
const PRINCIPAL: Principal = {
  kind: 'account',
  keyId: 'key_ops',
  workspace: WORKSPACE,
  user: 'ops',
  madeBy: null,
  keyCreatedAt: 0,
  readOnly: false,
  allowedTools: null,
};
const EVIDENCE: Evidence = { code: 'http_status', message: 'As told.', answered: null, startedAt: 1, endedAt: 2 };

let rig: Rig;
let now = 0;
let store: EffectStore;
beforeAll(async () => {
  rig = await startRig();
});
afterEach(() => store.close());
afterAll(() => rig.close());

function answered(value: Json, status = 200): UpstreamResult {
  const result = { kind: 'http', status, headers: {}, body: { kind: 'json', value }, truncated: false } as const;
  return { kind: 'failed', evidence: EVIDENCE, answer: null, result };
}
const OPEN = answered({ status: 'open' });
const REFUNDED = answered({ status: 'refunded' });

/** A gateway with one call whose outcome is unknown. @param hasFailed whether an attempt before it failed */
async function unknownCall(hasFailed = false) {
  now = 1_750_000_000_000;
  store = createEffectStore(
    { ...mapStore(emptyRows(), () => now), ...ALONE },
    { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 },
  );
  const asked: unknown[] = [];
  let places = 0;
  let says: UpstreamResult = OPEN;
  const ports: EffectPorts = {
    ...rig.core,
    store,
    catalog: () => ({ ...rig.core.catalog(), tool: (name) => (name === TOOL.name ? TOOL : null) }),
    place: () => {
      places += 1;
      return () => void (places -= 1);
    },
    upstream: {
      ...rig.core.upstream,
      async send({ gate, tool, params, upstreamKey }) {
        asked.push([gate(), tool.name, params, upstreamKey, places]);
        return says;
      },
    },
  };
  const [effectId, fingerprint] = [newId('eff'), 'fp:probed'];
  const salts = rig.core.secrets.newSalts();
  const content = { params: PARAMS, salts, stateCheck: null, claimId: null, reservationId: null };
  const request = {
    effectId,
    fingerprint,
    idempotencyKey: newId('order'),
    sealed: rig.core.secrets.seal(content, { workspace: WORKSPACE, effectId, fingerprint }),
    action: { tool: TOOL.name, toolDigest: TOOL.digest },
  };
  let { effect } = await dispatched(store, request);
  if (hasFailed) {
    await store.settle(settleRequest(effect, { kind: 'failed', result: null }));
    ({ effect } = await dispatched(store, request));
  }
  await store.settle(settleRequest(effect, UNKNOWN));
  const call = { principal: PRINCIPAL, workspace: WORKSPACE, effectId };
  const probe = createProbe(ports);
  return {
    effect,
    asked,
    ports,
    call,
    probe: (change: Partial<typeof call> = {}) => probe({ ...call, ...change }),
    with: (change: Partial<EffectPorts>) => createProbe({ ...ports, ...change })(call),
    say: (result: UpstreamResult) => void (says = result),
    places: () => places,
    quiet: leaseOf(effect).quiesceUntil,
  };
}

const life = async ({ id }: EffectRecord) => (await store.effect(WORKSPACE, id))?.life;
const readings = async ({ id }: EffectRecord) =>
  (await store.effectLedger(WORKSPACE, id)).filter(({ kind }) => kind === 'effect.probed');

it('that it happened is settled by one reading, of what the call was about, with what was seen as evidence', async () => {
  const { effect, probe, say, asked, places } = await unknownCall();
  say(REFUNDED);
  const at = now;
  expect(await probe()).toMatchObject({ kind: 'probed', finding: 'happened', isSettled: true, retryAfterMs: null });
  const key = `${effect.id}.1`;
  expect(asked).toEqual([['go', 'payments.find', { payment: 'pay_1', key }, key, 1]]);
  expect(places()).toBe(0);
  const settled = await life(effect);
  expect(settled).toMatchObject({
    state: 'committed',
    settledBy: {
      by: 'probe',
      evidence: { said: 'happened', fields: ['status'], read: 'payments.find', read_at: isoTime(at) },
    },
  });
  // What was read is no part of the record: only its digest is.
  expect(JSON.stringify(settled)).not.toContain('refunded');
  expect(await readings(effect)).toEqual([]);
});

it('asks by the key that the upstream got with this attempt, and not with one that failed before', async () => {
  const { effect, probe, asked } = await unknownCall(true);
  await probe();
  const key = `${effect.id}.2`;
  expect(asked).toEqual([['go', 'payments.find', { payment: 'pay_1', key }, key, 1]]);
});

it('does not wait behind what people read: hundreds of unknown outcomes would be settled too late', async () => {
  const { effect, probe, say } = await unknownCall();
  say(REFUNDED);
  const order: string[] = [];
  for (let part = 0; part < 200; part += 1) void store.turns.run(() => {});
  const shown = store.effectLedgerInTurns(WORKSPACE, effect.id).then(() => order.push('shown to a person'));
  await probe();
  order.push('probed');
  await shown;
  expect(order).toEqual(['probed', 'shown to a person']);
});

it('that it did not is settled by two readings in a row, both after everything is over', async () => {
  const { effect, probe, quiet } = await unknownCall();
  now = quiet - EVERY - 1;
  expect(await probe()).toMatchObject({ finding: 'not_happened', isSettled: false });
  now = quiet - 1;
  expect(await probe()).toMatchObject({ finding: 'not_happened', isSettled: false, retryAfterMs: EVERY });
  now += EVERY;
  expect(await probe()).toMatchObject({ finding: 'not_happened', isSettled: false, retryAfterMs: EVERY });
  now += EVERY - 1;
  expect(await probe()).toMatchObject({ kind: 'problem', problem: { code: 'too_early', retryAfterMs: 1 } });
  now += 1;
  expect(await probe()).toMatchObject({ finding: 'not_happened', isSettled: true, retryAfterMs: null });
  const before = (await readings(effect)).map(({ data, actor }) => [data['said'], data['attempt'], actor.id]);
  expect(before).toEqual(Array(3).fill(['not_happened', 1, 'ops']));
  expect(await life(effect)).toMatchObject({
    state: 'failed',
    settledBy: { evidence: { read_at: isoTime(now), before: { read_at: isoTime(now - EVERY) } } },
  });
});

it('a reading that shows nothing in between begins anew', async () => {
  const { effect, probe, quiet, say } = await unknownCall();
  now = quiet;
  for (const result of [OPEN, answered({ status: 'pending' }), OPEN]) {
    say(result);
    const reading = await probe();
    expect(reading).toMatchObject({ kind: 'probed', isSettled: false, wasHeard: true });
    now += 10 * EVERY;
  }
  expect(await life(effect)).toMatchObject({ state: 'unknown', probeAt: expect.any(Number) });
  say(REFUNDED);
  expect(await probe()).toMatchObject({ finding: 'happened', isSettled: true });
  // What was read before is evidence only of what did not happen.
  expect(await life(effect)).not.toHaveProperty('settledBy.evidence.before');
});

it('a reading at the moment when everything is over is one of the two', async () => {
  const { probe, quiet } = await unknownCall();
  now = quiet;
  expect(await probe()).toMatchObject({ isSettled: false });
  now += EVERY;
  expect(await probe()).toMatchObject({ finding: 'not_happened', isSettled: true });
});

it('readings that show nothing are made ever less often; one without an answer is none of them', async () => {
  const { probe, say } = await unknownCall();
  const pending = answered({ status: 'pending' });
  const waits: unknown[] = [];
  for (const result of [pending, pending, answered({ error: 'down' }, 500), pending]) {
    say(result);
    const reading = await probe();
    waits.push(reading.kind === 'probed' ? [reading.retryAfterMs, reading.wasHeard] : reading.problem);
    now += EVERY;
  }
  expect(waits).toEqual([
    [EVERY, true],
    [EVERY * 1.5, true],
    [EVERY * 1.5 ** 2, false],
    [EVERY * 1.5 ** 2, true],
  ]);
});

it.each<[string, UpstreamResult]>([
  ['nothing came', { kind: 'unknown', evidence: EVIDENCE }],
  [
    'it was cut',
    {
      ...answered({ status: 'refunded' }),
      kind: 'committed',
      answer: { kind: 'http', status: 200, headers: {}, body: Buffer.alloc(0) },
      result: {
        kind: 'http',
        status: 200,
        headers: {},
        body: { kind: 'json', value: { status: 'refunded' } },
        truncated: false,
      },
      accepted: false,
      responseTruncated: true,
    },
  ],
  ['the upstream is broken', answered({ error: 'down' }, 503)],
  ['the upstream is busy', answered({ error: 'later' }, 429)],
])('an answer that is none settles nothing, and says so: %s', async (_, result) => {
  const { effect, probe, say } = await unknownCall();
  say(result);
  expect(await probe()).toMatchObject({ finding: 'unknown', isSettled: false, wasHeard: false });
  const [reading] = await readings(effect);
  expect(reading?.data).toMatchObject({ said: 'unknown', read: 'payments.find', fault: expect.any(String) });
  expect(await life(effect)).toMatchObject({ state: 'unknown' });
});

it('who asks while a reading runs gets its result; another key asks by itself', async () => {
  const { probe, asked, say } = await unknownCall();
  say(answered({ status: 'pending' }));
  const [one, same] = await Promise.all([probe(), probe()]);
  expect(same).toBe(one);
  expect(asked).toHaveLength(1);
  now += 10 * EVERY;
  const [mine, others] = await Promise.all([probe(), probe({ principal: { ...PRINCIPAL, keyId: 'key_other' } })]);
  expect(others).not.toBe(mine);
});

it('is held back by a pause that begins while it waits for its place, which is one of the agent whose call it was', async () => {
  const { effect, with: changed, asked, ports, say } = await unknownCall();
  say(OPEN);
  let isPaused = false;
  const places: unknown[] = [];
  const seen: string[] = [];
  await changed({
    seeTool: async ({ name }) => void seen.push(name),
    pauses: { ...ports.pauses, match: () => (isPaused ? { id: 'pau_1', reason: 'incident', until: null } : null) },
    place(...of) {
      places.push(of);
      isPaused = true;
      return () => undefined;
    },
  });
  expect(asked).toEqual([expect.arrayContaining(['paused', READ.name])]);
  expect(places).toEqual([[TOOL.upstream, WORKSPACE, effect.actor.agentId]]);
  // What the server says of the read now decides whether it may be made.
  expect(seen).toEqual([READ.name]);
});

it('is refused, and nothing is sent, where there is nothing to ask, or nobody may', async () => {
  const { effect, probe, with: changed, asked, call, ports } = await unknownCall();
  const code = async (of: ReturnType<typeof probe>) => {
    const result = await of;
    return result.kind === 'problem' ? result.problem.code : result.kind;
  };
  expect(await code(probe({ effectId: 'eff_none' }))).toBe('not_found');
  expect(await code(probe({ workspace: 'other' }))).toBe('not_found');
  const only = (tool: string) => ({ principal: { ...PRINCIPAL, allowedTools: [tool] } });
  expect(await code(probe(only('notes.add')))).toBe('insufficient_scope');
  const withTool = (tool: typeof TOOL | null) => ({ catalog: () => ({ ...rig.core.catalog(), tool: () => tool }) });
  expect(await code(changed(withTool(null)))).toBe('no_probe');
  const { probe: _, ...without } = TOOL;
  expect(await code(changed({ catalog: () => ({ ...rig.core.catalog(), tool: () => without }) }))).toBe('no_probe');
  expect(await code(changed(withTool({ ...TOOL, digest: 'another' })))).toBe('conflict');
  expect(await code(changed({ place: async () => null }))).toBe('conflict');
  expect(await code(changed({ secrets: { ...rig.core.secrets, open: () => null } }))).toBe('conflict');
  // It is the read that has to be as it was approved, not the write that it is about.
  const unless = (name: string): Partial<EffectPorts> => ({
    mayRead: (read) => (read.name === name ? { code: 'tool_quarantined', message: 'Not now.' } : null),
  });
  expect(await code(changed(unless(READ.name)))).toBe('conflict');
  for (const paused of [TOOL.name, READ.name]) {
    const match: EffectPorts['pauses']['match'] = (_workspace, { tool, agentId, upstream, keyId }) =>
      tool === paused && agentId === 'support-bot' && upstream === 'payments' && keyId === effect.actor.keyId
        ? { id: 'pau_1', reason: 'incident', until: null }
        : null;
    expect(await code(changed({ pauses: { ...ports.pauses, match } }))).toBe('conflict');
  }
  const away = { ...store, effect: () => Promise.reject(new StoreUnavailable('away')) };
  expect(await code(changed({ store: away }))).toBe('store_unavailable');
  const broken = { ...store, effect: () => Promise.reject(new Error('a fault')) };
  await expect(changed({ store: broken })).rejects.toThrow('a fault');
  expect(asked).toEqual([]);
  expect(await readings(effect)).toEqual([]);
  expect(await code(probe(only(TOOL.name)))).toBe('probed');
  await store.settle(settleRequest(effect, committed()));
  expect(await code(createProbe(ports)(call))).toBe('not_unknown');
});
