import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { NO_HEADERS } from '../../src/effects/model/action-call.ts';
import { effectToWire } from '../../src/effects/wire/effect.ts';
import type { VoteResult } from '../../src/effects/approval-store.ts';
import type { AllowanceRecord } from '../../src/effects/model/allowance.ts';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import { BUSY, type EffectRecord, type Evidence } from '../../src/effects/model/effect.ts';
import { decideApproval, dispatchGranted } from '../../src/effects/run/decide-approval.ts';
import type { EffectPorts, ReceiptFacts } from '../../src/effects/ports.ts';
import { resolveEffect } from '../../src/effects/run/resolve-effect.ts';
import { outcomeOfRecord } from '../../src/effects/run/to-outcome.ts';
import { Running } from '../../src/effects/run/running.ts';
import { runEffect } from '../../src/effects/run/run-effect.ts';
import { MAX_ATTEMPTS } from '../../src/effects/steps/lifecycle.ts';
import type { RunRequest } from '../../src/effects/model/run-request.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import type { Tool } from '../../src/effects/model/tool.ts';
import type { UpstreamPort, UpstreamResult } from '../../src/effects/upstream.ts';
import { ALLOWANCE } from '../effects/records.ts';
import { refund, type Rig, startRig } from './rig.ts';
import { NO_FILES } from '../../src/effects/model/files.ts';

const WS = 'demo';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

let calls = 0;

/** A call of the account key for `bot`, as the door hands it on. */
async function request(more: Partial<RunRequest> = {}): Promise<RunRequest> {
  const known = await rig.ports.authenticate(rig.keys.account);
  if ('failure' in known) throw new Error(known.failure);
  calls += 1;
  return {
    principal: known,
    via: 'effects_api',
    workspace: WS,
    agentId: 'bot',
    actionType: null,
    tool: 'payments.refund',
    target: null,
    params: { payment_id: 'pay_1', amount: 100 + calls, currency: 'EUR' },
    files: NO_FILES,
    headers: NO_HEADERS,
    idempotencyKey: `attempt-${calls}`,
    stateCheck: null,
    claimId: null,
    reservationId: null,
    metadata: null,
    proxied: null,
    requestIp: null,
    stages: [],
    ...more,
  };
}

async function run(ports: Partial<EffectPorts>, call: RunRequest) {
  const result = await runEffect({ ...rig.core, ...ports }, call);
  if (result.kind !== 'outcome') throw new Error(JSON.stringify(result));
  return result.outcome;
}

const EVIDENCE: Evidence = {
  code: 'http_status',
  message: 'As told.',
  answered: { kind: 'http', status: 500 },
  startedAt: 1,
  endedAt: 2,
};
const UNKNOWN: UpstreamResult = { kind: 'unknown', evidence: EVIDENCE };
const FAILED: UpstreamResult = { kind: 'failed', evidence: EVIDENCE, answer: null, result: null };

/** As a client of the proxy sends it. */
const PROXIED: RunRequest['proxied'] = {
  kind: 'http',
  pathAndQuery: '/v1/payments/pay_1/refunds',
  method: 'POST',
  headers: {},
  body: Buffer.from('{}'),
  setCookie: false,
};

/** An upstream that is asked, and of which this is said. */
function said(result: UpstreamResult): Pick<EffectPorts, 'upstream'> {
  const upstream: UpstreamPort = {
    readState: (tool, params) => rig.core.upstream.readState(tool, params),
    send: async (dispatch) => (dispatch.gate() === 'go' ? result : rig.core.upstream.send(dispatch)),
  };
  return { upstream };
}

it('the upstream gets a key of the gateway’s own, which is another one for each time that it is asked', async () => {
  const keys: unknown[] = [];
  const upstream: UpstreamPort = {
    ...rig.core.upstream,
    async send({ upstreamKey }) {
      keys.push(upstreamKey);
      return FAILED;
    },
  };
  const call = await request();
  const { effectId } = await run({ upstream }, call);
  await run({ upstream }, call);
  // Another agent may have chosen the same key.
  expect(keys).toEqual([`${effectId}.1`, `${effectId}.2`]);
});

/** The catalogue with other tools in it. */
function withTool(change: Partial<Tool>): Pick<EffectPorts, 'catalog'> {
  const known = rig.core.catalog();
  const changed = new Map<string, Tool>();
  const catalog = {
    ...known,
    tool(name: string) {
      const tool = known.tool(name);
      if (tool === null) return null;
      const mine = changed.get(name) ?? { ...tool, ...change };
      changed.set(name, mine);
      return mine;
    },
    check: (_: Tool, params: RunRequest['params']) => {
      const tool = known.tool('payments.refund');
      return tool === null ? [] : known.check(tool, params);
    },
    target: (_: Tool, params: RunRequest['params']) => {
      const tool = known.tool('payments.refund');
      return tool === null ? null : known.target(tool, params);
    },
  };
  return { catalog: () => catalog };
}
const deduplicating = (forMs: number) => withTool({ idempotent: { kind: 'header', header: 'idempotency-key', forMs } });

describe('what somebody must look at', () => {
  const alerts: (readonly [string, string])[] = [];
  const heard: Pick<EffectPorts, 'alert'> = { alert: (what, effectId) => void alerts.push([what, effectId]) };

  it.each([true, false])('is an answer against the record, where it contradicts it: %s', async (contradiction) => {
    alerts.length = 0;
    const { store } = rig.core;
    const settle: typeof store.settle = async (settled) => {
      const effect = await store.effect(WS, settled.effectId);
      if (effect === null) throw new Error('it is on record');
      return { kind: 'refused', effect, contradiction };
    };
    const outcome = await run({ ...heard, store: { ...store, settle } }, await request());
    expect(alerts).toEqual(contradiction ? [['contradiction', outcome.effectId]] : []);
    // What is on record is the answer, and no receipt is handed out.
    expect(outcome).toMatchObject({ decision: 'in_progress' });
    expect(outcome).not.toHaveProperty('receipt');
  });

  it('is a settlement of which there is no effect, and a key that another agent uses', async () => {
    alerts.length = 0;
    const { store } = rig.core;
    const settle: typeof store.settle = async () => ({ kind: 'absent' });
    const lost = await run({ ...heard, store: { ...store, settle } }, await request());
    expect(lost).toMatchObject({ decision: 'unknown_effect', settlement: 'pending' });
    const call = await request();
    const first = await run(heard, call);
    const other = await run(heard, { ...call, agentId: 'other-bot' });
    expect(other.decision).toBe('idempotency_conflict');
    // Its own agent may have made a mistake, and is told so: nobody else has to look.
    const own = await run(heard, { ...call, params: { ...call.params, amount: 1 } });
    expect(own.decision).toBe('idempotency_conflict');
    expect(alerts).toEqual([
      ['settlement_lost', lost.effectId],
      ['foreign_key_reuse', other.effectId],
    ]);
    expect(first.decision).toBe('committed');
  });
});

describe('the answer to an attempt', () => {
  it.each<readonly [string, UpstreamResult]>([
    ['failed', FAILED],
    ['came too late to be sent', { kind: 'held_back', by: 'late', evidence: EVIDENCE }],
    ['was stopped by a pause', { kind: 'held_back', by: 'paused', evidence: EVIDENCE }],
  ])('that %s is that nobody knows while an earlier one may have happened', async (_what, result) => {
    const again = { ...deduplicating(600_000) };
    const call = await request();
    expect(await run({ ...again, ...said(UNKNOWN) }, call)).toMatchObject({ decision: 'unknown_effect' });
    const second = await run({ ...again, ...said(result) }, call);
    expect(second).toMatchObject({ decision: 'unknown_effect', attempt: 2 });
    expect(await rig.core.store.effect(WS, second.effectId)).toMatchObject({ life: { state: 'unknown' } });
  });

  it('that nobody knows is safe to ask again, but for the last one that may be', async () => {
    const ports = { ...deduplicating(600_000), ...said(UNKNOWN) };
    const call = await request();
    const safe: unknown[] = [];
    for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt += 1) {
      const outcome = await run(ports, call);
      expect(outcome).toMatchObject({ decision: 'unknown_effect', attempt });
      safe.push('safeToRetry' in outcome && outcome.safeToRetry);
    }
    expect(safe).toEqual([...Array.from({ length: MAX_ATTEMPTS - 1 }, () => true), false]);
  });

  it('that somebody settles stands in its receipt where that attempt was admitted, not the first', async () => {
    const ports = { ...deduplicating(600_000), ...said(UNKNOWN) };
    const call = await request();
    await run(ports, call);
    const { effectId, attempt } = await run(ports, call);
    expect(attempt).toBe(2);
    const settled = { outcome: 'happened', evidence: null, comment: null, force: false } as const;
    const { principal } = call;
    const resolved = await resolveEffect(rig.core, { principal, workspace: WS, effectId, ...settled });
    const life = resolved.kind === 'resolved' ? resolved.effect.life : null;
    if (life?.state !== 'committed') throw new Error('it is settled');
    const admitted = (await rig.core.store.effectLedger(WS, effectId)).filter(({ kind }) => kind === 'effect.admitted');
    expect(admitted).toHaveLength(2);
    const seq = admitted[1]?.seq ?? 0;
    expect(rig.ports.receipts.view(life.receipt.jws ?? '')).toMatchObject({ ledger: { seq } });
  });

  it('is settled by nobody who saw an attempt before it, nor where the store cannot be reached', async () => {
    const ports = { ...deduplicating(600_000), ...said(UNKNOWN) };
    const call = await request();
    const { effectId } = await run(ports, call);
    const { store } = rig.core;
    const resolve = (more: Partial<typeof store>) =>
      resolveEffect(
        { ...rig.core, store: { ...store, ...more } },
        { ...call, effectId, outcome: 'happened', evidence: null, comment: null, force: false },
      );
    // Between the look at the effect and the word of the person it was sent again.
    const moved = await resolve({
      async effect(workspace, id) {
        const seen = await store.effect(workspace, id);
        await run(ports, call);
        return seen;
      },
    });
    expect(moved).toMatchObject({ kind: 'problem', problem: { code: 'conflict' } });
    expect(await store.effect(WS, effectId)).toMatchObject({ attempt: 2, life: { state: 'unknown' } });
    const away = await resolve({ effect: () => Promise.reject(new StoreUnavailable('away')) });
    expect(away).toMatchObject({ kind: 'problem', problem: { code: 'store_unavailable', retryAfterMs: 1_000 } });
  });

  it.each([
    ['somebody', { by: 'resolve', keyId: 'key_1', user: 'ada', forced: false, comment: null, evidence: null }],
    ['a probe', { by: 'probe', evidence: {} }],
    ['the attempt itself', { by: 'owner' }],
  ] as const)('says that it was established that it did not happen where %s did so', async (who, settledBy) => {
    const { effectId } = await run(said(FAILED), await request());
    const effect = await rig.core.store.effect(WS, effectId);
    if (effect?.life.state !== 'failed') throw new Error('it failed');
    const { decision, reason } = outcomeOfRecord({ ...effect, life: { ...effect.life, settledBy } }, false, null);
    const code = who === 'the attempt itself' ? 'upstream_refused' : 'resolved_not_happened';
    expect([decision, reason]).toEqual(['failed', { code, message: 'As told.' }]);
  });

  it('may take its whole time to be sent after the admission, however long was waited for what changed before', async () => {
    let late = 0;
    let asked = 0;
    const ports: Partial<EffectPorts> = {
      store: {
        ...rig.core.store,
        async admit(admission) {
          asked += 1;
          return asked === 1
            ? { kind: 'stale', versions: admission.seen, now: rig.core.store.now() }
            : rig.core.store.admit(admission);
        },
      },
      async refresh() {
        late += 10 * rig.core.settings().dispatchWindowMs;
      },
      elapsed: () => performance.now() + late,
    };
    expect(await run(ports, await request())).toMatchObject({ decision: 'committed' });
    expect(asked).toBe(2);
  });

  it('that failed is that nobody knows where the store cannot be asked and its lease is over', async () => {
    let late = 0;
    const store = { ...rig.core.store, settle: () => Promise.reject(new StoreUnavailable('gone')) };
    const ports = (after: number): Partial<EffectPorts> => ({
      store,
      elapsed: () => performance.now() + late,
      upstream: {
        ...said(FAILED).upstream,
        async send({ gate }) {
          expect(gate()).toBe('go');
          late += after;
          return FAILED;
        },
      },
    });
    expect(await run(ports(0), await request())).toMatchObject({ decision: 'failed', settlement: 'pending' });
    expect(await run(ports(60_000), await request())).toMatchObject({
      decision: 'unknown_effect',
      settlement: 'pending',
    });
  });

  it('that happened has the receipt on record, not one of its own', async () => {
    const receipt = { id: 'rcp_on_record', jws: 'on.record.first' };
    const upstream: UpstreamPort = {
      readState: (tool, params) => rig.core.upstream.readState(tool, params),
      async send(dispatch) {
        const effect = await rig.core.store.effect(WS, dispatch.effectId);
        if (effect?.life.state !== 'executing') throw new Error('it runs');
        await rig.core.store.settle({
          workspace: WS,
          effectId: effect.id,
          fence: effect.life.lease.fence,
          outcome: { kind: 'committed', receipt, result: null, accepted: false, responseTruncated: false },
          settledBy: { by: 'owner' },
          evidence: EVIDENCE,
          stages: [],
        });
        return rig.core.upstream.send(dispatch);
      },
    };
    expect(await run({ upstream }, await request())).toMatchObject({ decision: 'duplicate_blocked', receipt });
  });

  it('allows a retry only as long as the upstream knows the key when the lease ends', async () => {
    for (const [forMs, safeToRetry] of [
      [3_000, false],
      [600_000, true],
    ] as const) {
      const outcome = await run({ ...deduplicating(forMs), ...said(UNKNOWN) }, await request());
      expect(outcome).toMatchObject({ decision: 'unknown_effect', safeToRetry });
    }
  });

  it('that nobody knows still shows what is held', async () => {
    const before = await run({}, await request());
    const outcome = await run(said(UNKNOWN), await request());
    const held = (of: typeof before) => of.budgets.find(({ row }) => row.budget.endsWith('agent-day'))?.row.held;
    expect(held(outcome)).toBe((held(before) ?? 0) + 100 + calls);
  });

  it('is made with the salts on record, also of a later attempt', async () => {
    const call = await request();
    expect(await run(said(FAILED), call)).toMatchObject({ decision: 'failed' });
    const issued: ReceiptFacts[] = [];
    const issueReceipt = (facts: ReceiptFacts) => {
      issued.push(facts);
      return rig.core.issueReceipt(facts);
    };
    const outcome = await run({ issueReceipt }, call);
    expect(outcome).toMatchObject({ decision: 'committed', attempt: 2 });
    const effect = await rig.core.store.effect(WS, outcome.effectId);
    if (effect?.sealed === null || effect?.sealed === undefined) throw new Error('it keeps its params');
    const bound = { workspace: WS, effectId: effect.id, fingerprint: effect.fingerprint };
    expect(issued.map(({ sealed }) => sealed?.salts)).toEqual([rig.core.secrets.open(effect.sealed, bound)?.salts]);
  });
});

it('a receipt is dated by the store, also where somebody set the clock of the machine while the upstream worked', async () => {
  let jump = 0;
  const issued: ReceiptFacts[] = [];
  const ports: Partial<EffectPorts> = {
    elapsed: () => performance.now() + jump,
    issueReceipt(facts) {
      issued.push(facts);
      return rig.core.issueReceipt(facts);
    },
    upstream: {
      ...rig.core.upstream,
      async send(dispatch) {
        const result = await rig.core.upstream.send(dispatch);
        jump = 3_600_000;
        return result;
      },
    },
  };
  const begun = rig.core.store.now();
  expect(await run(ports, await request())).toMatchObject({ decision: 'committed' });
  const [facts] = issued;
  expect(facts?.issuedAt).toBeGreaterThanOrEqual(begun);
  expect(facts?.issuedAt).toBeLessThanOrEqual(rig.core.store.now());
  // When the answer had come.
  expect(facts?.issuedAt).toBe(facts?.evidence.endedAt);
});

describe('the time to send', () => {
  /** A gateway whose time passes only where the test says, and which pauses it was asked about for when. */
  function timed() {
    let at = 1_000_000;
    const pausesAt: number[] = [];
    const ports: Partial<EffectPorts> = {
      elapsed: () => at,
      pauses: {
        version: (workspace) => rig.core.pauses.version(workspace),
        match(workspace, subject, now) {
          pausesAt.push(now);
          return rig.core.pauses.match(workspace, subject, now);
        },
      },
    };
    const sending = (afterMs: number, gates: unknown[]): Partial<EffectPorts> => ({
      ...ports,
      upstream: {
        ...said(FAILED).upstream,
        async send(dispatch) {
          at += afterMs;
          gates.push(dispatch.gate());
          return rig.core.upstream.send(dispatch);
        },
      },
    });
    return { sending, pausesAt };
  }

  it('is over with the window for it, counted from before the admission: then nothing is sent, and the key is free', async () => {
    const { dispatchWindowMs } = rig.core.settings();
    const gates: unknown[] = [];
    const call = await request();
    const { sending } = timed();
    const late = await run(sending(dispatchWindowMs, gates), call);
    expect(late).toMatchObject({ decision: 'failed', reason: { code: 'not_dispatched' }, attempt: 1 });
    expect(await rig.core.store.effect(WS, late.effectId)).toMatchObject({ life: { state: 'failed' }, unsent: 1 });
    expect(await run(sending(dispatchWindowMs - 1, gates), call)).toMatchObject({ decision: 'committed', attempt: 2 });
    expect(gates).toEqual(['late', 'go']);
  });

  it('is asked about pauses as of the moment of sending, and stands in the stages', async () => {
    const { sending, pausesAt } = timed();
    const gates: unknown[] = [];
    const before = rig.core.store.now();
    const outcome = await run(sending(1_500, gates), await request());
    // The last two are of the gate: it is asked here, and by the upstream.
    const [admitted = 0, ...sent] = pausesAt.slice(-3);
    expect(admitted).toBeGreaterThanOrEqual(before);
    expect(sent).toEqual([admitted + 1_500, admitted + 1_500]);
    const effect = await rig.core.store.effect(WS, outcome.effectId);
    const stages = Object.fromEntries(effect?.stages.map((stage) => [stage.stage, stage]) ?? []);
    expect(stages).toMatchObject({
      admission: { status: 'passed', durationMs: 0, detail: 'attempt 1' },
      execute: { status: 'passed', durationMs: 1_500 },
      settle: { durationMs: null, detail: 'committed' },
    });
    expect((stages['settle']?.startedAt ?? 0) - (stages['execute']?.startedAt ?? 0)).toBe(1_500);
  });

  it('shows what runs: its stages so far and the one that runs now, and nothing of it afterwards', async () => {
    let seen: unknown = null;
    const upstream: UpstreamPort = {
      ...said(FAILED).upstream,
      async send(dispatch) {
        const running = rig.core.running.stagesOf(dispatch.effectId);
        seen = { over: running?.over.map(({ stage }) => stage), now: running?.now };
        return rig.core.upstream.send(dispatch);
      },
    };
    const from = rig.core.store.now();
    const { effectId } = await run({ upstream }, await request());
    expect(seen).toMatchObject({ over: ['admission'], now: { stage: 'execute', startedAt: expect.any(Number) } });
    expect(seen).toHaveProperty(
      'now.startedAt',
      expect.toSatisfy((at: number) => at >= from && Number.isInteger(at)),
    );
    expect(rig.core.running.stagesOf(effectId)).toBeNull();
  });

  it('of two attempts of an effect that overlap the later one is shown, also once the earlier has ended', () => {
    const running = new Running();
    const attempts = [2, 1, 3].map((attempt) => ({ effect: { id: 'eff_1', attempt }, over: [], now: null }));
    const places = attempts.map((attempt) => running.begin(attempt));
    running.begin({ effect: { id: 'eff_2', attempt: 4 }, over: [], now: null });
    expect(running.stagesOf('eff_1')).toBe(attempts[2]);
    for (const at of [1, 2]) running.end(places[at] ?? -1);
    expect(running.stagesOf('eff_1')).toBe(attempts[0]);
    const again = running.begin({ effect: { id: 'eff_3', attempt: 1 }, over: [], now: null });
    expect(places).toContain(again);
    running.end(places[0] ?? -1);
    expect(running.stagesOf('eff_1')).toBeNull();
  });
});

describe('where policy only observes', () => {
  const observing: Pick<EffectPorts, 'judge'> = {
    judge(...of) {
      const verdict = rig.core.judge(...of);
      return verdict.kind === 'permit' ? { ...verdict, mode: 'observe' } : verdict;
    },
  };
  const asked = { payment_id: 'pay_2', amount: 60_002, currency: 'EUR' };

  it('a call of nobody runs that somebody would be asked about', async () => {
    const call = await request({ params: asked });
    const ofNobody = { ...call, principal: { ...call.principal, user: null } };
    expect(await run({}, ofNobody)).toMatchObject({ reason: { code: 'key_without_user' } });
    const seen = await run({ ...observing, ...said(FAILED) }, { ...ofNobody, idempotencyKey: 'of-nobody' });
    expect(seen).toMatchObject({ decision: 'failed', observed: { would: 'pending_approval' } });
  });

  it('a call of somebody waits with files as large as are kept', async () => {
    const files = { ...NO_FILES, bytes: 999_999 };
    const settings: EffectPorts['settings'] = () => ({ ...rig.core.settings(), filesKeptBytes: 999_999 });
    const call = await request({ params: { ...asked, amount: 60_004 }, files });
    expect(await run({ settings }, call)).toMatchObject({ decision: 'pending_approval' });
  });

  it('a call with files runs that are too large to wait', async () => {
    const files = { ...NO_FILES, bytes: 1_000_000 };
    const settings: EffectPorts['settings'] = () => ({ ...rig.core.settings(), filesKeptBytes: 999_999 });
    const call = await request({ params: { ...asked, amount: 60_003 }, files });
    expect(await run({ settings }, call)).toMatchObject({ reason: { code: 'files_too_large_to_wait' } });
    const seen = await run({ ...observing, ...said(FAILED), settings }, { ...call, idempotencyKey: 'with-files' });
    expect(seen).toMatchObject({ decision: 'failed', observed: { would: 'pending_approval' } });
  });
});

describe('an upstream that was busy', () => {
  const busy: UpstreamResult = { ...FAILED, evidence: { ...EVIDENCE, code: BUSY }, retryAfterMs: 7_000 };

  it('is asked again when it says, also by a library that repeats', async () => {
    const outcome = await run(said(busy), await request());
    expect(outcome).toMatchObject({
      decision: 'failed',
      reason: { code: 'upstream_busy' },
      retryAfterMs: 7_000,
      askAgain: true,
    });
    const refused = await run(said({ ...busy, evidence: EVIDENCE }), await request());
    expect(refused).toMatchObject({ decision: 'failed', reason: { code: 'upstream_refused' }, retryAfterMs: null });
    expect(refused).not.toHaveProperty('askAgain');
  });

  it('is not asked again by itself once all attempts are used up', async () => {
    const call = await request();
    for (let attempt = 1; attempt <= 10; attempt += 1) {
      const outcome = await run(said(busy), call);
      expect(outcome).toMatchObject({ attempt, retryAfterMs: attempt < 10 ? 7_000 : null });
      expect('askAgain' in outcome).toBe(attempt < 10);
    }
  });
});

describe('what an answer says was spent', () => {
  it('is posted, and shown in what the budgets have left', async () => {
    const before = await run({}, await request());
    const upstream: UpstreamPort = {
      ...said(FAILED).upstream,
      async send(dispatch) {
        const result = await rig.core.upstream.send(dispatch);
        return result.kind === 'committed' ? { ...result, amounts: { 'EUR-cent': 3 } } : result;
      },
    };
    const outcome = await run({ upstream }, await request());
    expect(outcome).toMatchObject({ decision: 'committed', amounts: { 'EUR-cent': 3 } });
    expect(before).not.toHaveProperty('amounts');
    const figures = (of: typeof before) => of.budgets.find(({ row }) => row.budget.endsWith('agent-day'))?.row;
    expect(figures(outcome)).toMatchObject({ spent: (figures(before)?.spent ?? 0) + 3, held: figures(before)?.held });
    const rows = await rig.core.store.budgets(WS);
    expect(rows.find(({ budget }) => budget.endsWith('agent-day'))).toMatchObject({ spent: figures(outcome)?.spent });
  });
});

describe('a fault of the gateway', () => {
  const failing = (gated: boolean, alerts: unknown[]): Partial<EffectPorts> => ({
    alert: (what, effectId, cause) => void alerts.push([what, effectId, cause]),
    upstream: {
      ...said(FAILED).upstream,
      async send({ gate }) {
        if (gated) expect(gate()).toBe('go');
        throw new Error('a fault of the gateway');
      },
    },
  });
  const fault = expect.objectContaining({ message: 'a fault of the gateway' });

  it('before anything can have been sent leaves the key free, and people are told', async () => {
    const alerts: unknown[] = [];
    const call = await request();
    const outcome = await run(failing(false, alerts), call);
    expect(outcome).toMatchObject({ decision: 'failed', reason: { code: 'not_dispatched' }, settlement: 'done' });
    expect(alerts).toEqual([['attempt_fault', outcome.effectId, fault]]);
    expect(await run({}, call)).toMatchObject({ decision: 'committed', attempt: 2 });
  });

  it('after something may have been sent is never told as a failure, and nothing is sent again', async () => {
    const alerts: unknown[] = [];
    const call = await request();
    const outcome = await run(failing(true, alerts), call);
    expect(outcome).toMatchObject({ decision: 'unknown_effect', safeToRetry: false, settlement: 'done' });
    expect(alerts).toEqual([['attempt_fault', outcome.effectId, fault]]);
    expect(await rig.core.store.effect(WS, outcome.effectId)).toMatchObject({
      life: { state: 'unknown', evidence: { code: 'internal', answered: null } },
    });
    expect(await run({}, call)).toMatchObject({ decision: 'unknown_effect', attempt: 1 });
    expect(rig.core.running.stagesOf(outcome.effectId)).toBeNull();
  });
});

describe('a call', () => {
  it('that policy refuses does not wait for a place at the upstream, and gives back the one that comes', async () => {
    let given = 0;
    let come: (giveBack: () => void) => void = () => {};
    const coming = new Promise<() => void>((resolve) => {
      come = resolve;
    });
    const ports: Partial<EffectPorts> = { place: () => coming };
    const refused = await run(ports, await request({ tool: 'payments.get', params: { payment_id: 'pay_1' } }));
    expect(refused.decision).toBe('denied_policy');
    come(() => void (given += 1));
    await coming;
    await Promise.resolve();
    expect(given).toBe(1);
    expect(await run(ports, await request())).toMatchObject({ decision: 'committed' });
    expect(given).toBe(2);
  });

  it.each<[string, Partial<RunRequest>]>([
    ['of the effects API', {}],
    ['of a client of the proxy', { via: 'proxy', proxied: PROXIED }],
  ])('%s that finds no place is not admitted: nothing is kept of it, and it may come again', async (_, more) => {
    const call = await request(more);
    expect(await runEffect({ ...rig.core, place: async () => null }, call)).toMatchObject({
      kind: 'problem',
      problem: { code: 'busy', retryAfterMs: expect.any(Number) },
    });
    expect(await run({}, { ...call, via: 'effects_api', proxied: null })).toMatchObject({
      decision: 'committed',
      attempt: 1,
    });
  });

  it('is given up where policy or pauses change with each look at it', async () => {
    let asked = 0;
    const store: EffectPorts['store'] = {
      ...rig.core.store,
      async admit(admission) {
        asked += 1;
        return { kind: 'stale', versions: admission.seen, now: rig.core.store.now() };
      },
    };
    expect(await runEffect({ ...rig.core, store }, await request())).toMatchObject({
      kind: 'problem',
      problem: { code: 'store_unavailable', retryAfterMs: 1_000 },
    });
    expect(asked).toBe(5);
  });

  it('keeps its earlier answer to itself where policy would refuse it by now; the receipt stays the caller’s', async () => {
    const call = await request();
    const first = await run({}, call);
    const judge: EffectPorts['judge'] = (input) => ({
      kind: 'deny',
      decision: 'denied_policy',
      reason: { code: 'rule_denied', message: 'Not any more.' },
      trace: rig.core.judge(input).trace,
    });
    const shown = await run({}, call);
    const hidden = await run({ judge }, call);
    if (first.decision !== 'committed') throw new Error(first.decision);
    const { id, jws } = first.receipt;
    expect(shown).toMatchObject({ decision: 'duplicate_blocked', receipt: { id, jws }, result: { status: 201 } });
    expect(hidden).toMatchObject({ decision: 'duplicate_blocked', receipt: { id, jws }, result: null });
  });

  it('is checked anew where its tool changes in between; one through the proxy is not sent', async () => {
    const changed = withTool({ digest: 'sha256:of-now' }).catalog();
    const ports = () => {
      let reads = 0;
      return { catalog: () => (reads++ === 0 ? rig.core.catalog() : changed) };
    };
    const outcome = await run(ports(), await request());
    expect(await rig.core.store.effect(WS, outcome.effectId)).toMatchObject({
      action: { toolDigest: 'sha256:of-now' },
      life: { state: 'committed' },
    });
    expect(await runEffect({ ...rig.core, ...ports() }, await request({ proxied: PROXIED }))).toMatchObject({
      kind: 'problem',
      problem: { code: 'not_ready' },
    });
  });

  it('gives its place at the upstream back where the store cannot be reached', async () => {
    let taken = 0;
    const place = () => {
      taken += 1;
      return () => {
        taken -= 1;
      };
    };
    const store = { ...rig.core.store, admit: () => Promise.reject(new StoreUnavailable('gone')) };
    expect(await runEffect({ ...rig.core, store, place }, await request())).toMatchObject({
      problem: { code: 'store_unavailable' },
    });
    expect(taken).toBe(0);
  });

  it.each(['tool', 'agent', 'upstream', 'key'] as const)(
    'is stopped by a pause of its %s, before admission and before its first byte',
    async (kind) => {
      const call = await request();
      const { keyId } = call.principal;
      const id = { tool: '', agent: 'bot', upstream: 'payments', key: keyId }[kind];
      const scope = kind === 'tool' ? ({ kind, glob: 'payments.*' } as const) : ({ kind, id } as const);
      const actor = { type: 'user', id: 'ops' } as const;
      const by = { keyId: 'key_1', keyKind: 'account', user: 'ops' } as const;
      const pauseId = `pau_${kind}`;
      const pause = async () => {
        const asked = { id: pauseId, workspace: WS, scope, reason: 'incident', until: null, by, actor };
        await rig.core.store.setPause(asked);
        await rig.core.refresh(WS);
      };
      const lift = async () => {
        await rig.core.store.liftPause(WS, pauseId, 'account', actor);
        await rig.core.refresh(WS);
      };
      const upstream: UpstreamPort = {
        ...said(FAILED).upstream,
        async send(dispatch) {
          await pause();
          return rig.core.upstream.send(dispatch);
        },
      };
      expect(await run({ upstream }, call)).toMatchObject({ decision: 'denied_paused', attempt: 1 });
      expect(await run({}, await request())).toMatchObject({ decision: 'denied_paused', attempt: 0 });
      await lift();
      expect(await run({}, call)).toMatchObject({ decision: 'committed' });
    },
  );
});

describe('a call that was approved', () => {
  /** A call that waits, and a vote by which it is granted, without the gateway sending it. */
  async function granted(more: Partial<RunRequest> = {}) {
    const params = { payment_id: 'pay_2', amount: 60_000 + calls, currency: 'EUR' };
    const outcome = await run({}, await request({ params, ...more }));
    if (outcome.decision !== 'pending_approval') throw new Error(outcome.decision);
    const voted = await rig.core.store.vote({
      workspace: WS,
      approvalId: outcome.approval.id,
      digest: outcome.approval.digest,
      change: null,
      verdict: 'approve',
      user: 'maria',
      keyId: 'key_of_maria',
      voterSince: 0,
      comment: null,
      requirements: [0],
      escalated: [],
      actor: { type: 'user', id: 'maria' },
    });
    if (voted.kind !== 'counted') throw new Error(voted.kind);
    return voted;
  }
  const forged = (approval: ApprovalRecord | null) => (approval === null ? null : { ...approval, isForged: true });
  const forgedVote = (voted: VoteResult): VoteResult =>
    voted.kind === 'counted' ? { ...voted, approval: { ...voted.approval, isForged: true } } : voted;
  async function sent(ports: Partial<EffectPorts>, more: Partial<RunRequest> = {}) {
    const { approval, effect } = await granted(more);
    return dispatchGranted({ ...rig.core, ...ports }, rig.people, approval, effect);
  }

  it('is sent only where the state is still what was assumed', async () => {
    const stateCheck = {
      intent: 'refund',
      assumedState: { status: 'captured by nobody' },
      requiredFields: ['status'],
      conditions: {},
      onMismatch: 'replan',
    } as const;
    expect(await sent({}, { stateCheck })).toMatchObject({
      kind: 'dispatched',
      outcome: { decision: 'denied_claim', reason: { code: 'state_drift' } },
    });
  });

  it('is judged by the address and the profile of who asked', async () => {
    const asked: unknown[] = [];
    const judge: EffectPorts['judge'] = (input) => {
      asked.push([input.requestIp, input.key.profile]);
      return rig.core.judge(input);
    };
    const { approval, effect } = await granted({ requestIp: '192.0.2.7' });
    const people = { ...rig.people, key: async () => ({ profile: 'mcp_agent' }) };
    await dispatchGranted({ ...rig.core, judge }, people, approval, effect);
    expect(asked).toEqual([['192.0.2.7', 'mcp_agent']]);
  });

  it.each<readonly [string, Partial<EffectPorts['store']>]>([
    ['before the vote', { approval: async (...of) => forged(await rig.core.store.approval(...of)) }],
    ['as it is counted', { vote: async (...of) => forgedVote(await rig.core.store.vote(...of)) }],
  ])('takes no vote that is seen to be on a forged request %s, and is not sent', async (_when, forging) => {
    const never: UpstreamPort = { ...rig.core.upstream, send: () => expect.unreachable('it was sent') };
    const asked = await run({}, await request({ params: { payment_id: 'pay_2', amount: 60_000, currency: 'EUR' } }));
    if (asked.decision !== 'pending_approval') throw new Error(asked.decision);
    const maria = await rig.ports.authenticate(rig.keys.approver);
    if ('failure' in maria) throw new Error(maria.failure);
    const ports = { ...rig.core, upstream: never, store: { ...rig.core.store, ...forging } };
    const vote = { workspace: WS, approvalId: asked.approval.id, verdict: 'approve', comment: null } as const;
    const beside = { principal: maria, changes: null, digest: asked.approval.digest };
    expect(await decideApproval(ports, rig.people, { ...vote, ...beside })).toMatchObject({
      kind: 'problem',
      problem: { code: 'conflict', detail: expect.stringContaining('not as a gateway wrote it') },
    });
  });

  it('tells who votes too late what was decided, by whom, and why it was not sent yet; and when the store is back', async () => {
    const asked = await run({}, await request({ params: { payment_id: 'pay_2', amount: 60_003, currency: 'EUR' } }));
    if (asked.decision !== 'pending_approval') throw new Error(asked.decision);
    const maria = await rig.ports.authenticate(rig.keys.approver);
    if ('failure' in maria) throw new Error(maria.failure);
    const vote = { workspace: WS, approvalId: asked.approval.id, verdict: 'approve', comment: null } as const;
    const beside = { principal: maria, changes: null, digest: asked.approval.digest };
    const voting = (answer: () => Promise<VoteResult>) =>
      decideApproval({ ...rig.core, store: { ...rig.core.store, vote: answer } }, rig.people, { ...vote, ...beside });
    const approval: ApprovalRecord = {
      ...asked.approval,
      status: 'granted',
      votes: [{ user: 'tom', keyId: 'key_1', verdict: 'approve', at: 0, comment: null, requirements: [0] }],
      stopped: { at: 1, decision: 'denied_paused', reason: { code: 'paused', message: 'Paused: a look (pau_1).' } },
    };
    expect(await voting(async () => ({ kind: 'already_decided', approval }))).toMatchObject({
      problem: {
        code: 'conflict',
        detail:
          'The request was approved already. tom approved it at 1970-01-01T00:00:00.000Z. The call waits, and is tried again until the request expires: Paused: a look (pau_1).',
      },
    });
    expect(await voting(() => Promise.reject(new StoreUnavailable('away')))).toMatchObject({
      problem: { code: 'store_unavailable', retryAfterMs: 1_000 },
    });
  });

  it('tells who became a user since that somebody who was there decides it', async () => {
    const asked = await run({}, await request({ params: { payment_id: 'pay_2', amount: 60_001, currency: 'EUR' } }));
    if (asked.decision !== 'pending_approval') throw new Error(asked.decision);
    const maria = await rig.ports.authenticate(rig.keys.approver);
    if ('failure' in maria) throw new Error(maria.failure);
    const people = { ...rig.people, since: async () => asked.approval.createdAt + 1 };
    const vote = { workspace: WS, approvalId: asked.approval.id, verdict: 'approve', comment: null } as const;
    const beside = { principal: maria, changes: null, digest: asked.approval.digest };
    expect(await decideApproval(rig.core, people, { ...vote, ...beside })).toMatchObject({
      problem: { code: 'own_request', detail: expect.stringContaining('You became a user after the request') },
    });
  });

  it('is decided by nobody who registered the agent that asks, whichever way', async () => {
    const asked = await run({}, await request({ params: { payment_id: 'pay_2', amount: 60_002, currency: 'EUR' } }));
    if (asked.decision !== 'pending_approval') throw new Error(asked.decision);
    const maria = await rig.ports.authenticate(rig.keys.approver);
    if ('failure' in maria) throw new Error(maria.failure);
    const agent = rig.people.agent(WS, asked.approval.requester.agentId);
    if (agent === null) throw new Error('the agent is not known');
    const people = { ...rig.people, agent: () => ({ ...agent, registeredBy: maria.user }) };
    const vote = { workspace: WS, approvalId: asked.approval.id, comment: null, principal: maria, changes: null };
    for (const verdict of ['reject', 'approve'] as const)
      expect(await decideApproval(rig.core, people, { ...vote, verdict, digest: null })).toMatchObject({
        problem: { code: 'own_request', detail: expect.stringContaining('You registered the agent that asks') },
      });
  });

  it('is not asked again by itself where the upstream was busy: the approval covered one dispatch', async () => {
    const busy: UpstreamResult = { ...FAILED, evidence: { ...EVIDENCE, code: BUSY }, retryAfterMs: 7_000 };
    const became = await sent(said(busy));
    expect(became).toMatchObject({ outcome: { decision: 'failed', retryAfterMs: null } });
    expect(became).not.toHaveProperty('outcome.askAgain');
  });

  it('is not safe to retry where nobody knows its outcome: the approval covered one dispatch', async () => {
    const again = deduplicating(600_000);
    const { approval, effect } = await granted();
    const became = await dispatchGranted({ ...rig.core, ...said(UNKNOWN), ...again }, rig.people, approval, effect);
    expect(became).toMatchObject({ outcome: { decision: 'unknown_effect', safeToRetry: false } });
  });

  it('is shown as not safe to retry too, where one that needed no approval is', async () => {
    const again = deduplicating(600_000);
    const recorded = async (id: string): Promise<EffectRecord> => {
      const effect = await rig.core.store.effect(WS, id);
      if (effect === null) throw new Error('it is on record');
      return effect;
    };
    const shown = async (id: string, change: Partial<Tool> = {}, been: Partial<EffectRecord> = {}) => {
      const effect = await recorded(id);
      const tool = again.catalog().tool(effect.action.tool);
      return effectToWire(
        { ...effect, ...been },
        {
          publicUrl: '',
          receiptView: rig.ports.receipts.view,
          tool: tool === null ? null : { ...tool, ...change },
          withResult: false,
          approval: null,
          now: rig.core.store.now(),
        },
      );
    };
    const plain = await run({ ...said(UNKNOWN), ...again }, await request());
    expect(await shown(plain.effectId ?? '')).toMatchObject({
      state: 'unknown',
      safe_to_retry: true,
      next: 'retry',
      settled_at: null,
    });
    // What the tool became since may do something else under the same key.
    expect(await shown(plain.effectId ?? '', { digest: 'another' })).toMatchObject({ safe_to_retry: false });
    expect(await shown(plain.effectId ?? '', { idempotent: { kind: 'none' } })).toMatchObject({ safe_to_retry: false });
    const { trace } = await recorded(plain.effectId ?? '');
    const use = { id: 'alw_1', approvalId: 'apr_1', by: 'maria', use: 1 };
    const not: Readonly<Record<string, Partial<EffectRecord>>> = {
      'attempted as often as may be': { attempt: MAX_ATTEMPTS },
      'contradicted by its own evidence': { closed: true },
      'never sent': { firstDispatchAt: null },
      'sent too long ago': { firstDispatchAt: rig.core.store.now() - 600_000 },
      'changed by an approver': { trace: { ...trace, changed: { approvalId: 'apr_1', params: ['amount'] } } },
      'beyond a limit': { trace: { ...trace, beyond: [{ limit: 'payments/day', by: 1 }] } },
      'allowed ahead': { trace: { ...trace, allowance: use } },
    };
    for (const [what, been] of Object.entries(not))
      expect([what, (await shown(plain.effectId ?? '', {}, been)).safe_to_retry]).toEqual([what, false]);
    const failed = await run(said(FAILED), await request());
    expect(await shown(failed.effectId ?? '')).toMatchObject({ did_it_happen: 'no', safe_to_retry: true });
    // What another attempt said meanwhile is that it happened.
    expect(await shown(failed.effectId ?? '', {}, { closed: true })).toMatchObject({
      did_it_happen: 'maybe',
      safe_to_retry: false,
      next: 'block',
    });
    const { approval, effect } = await granted();
    await dispatchGranted({ ...rig.core, ...said(UNKNOWN), ...again }, rig.people, approval, effect);
    expect(await shown(effect.id)).toMatchObject({ state: 'unknown', safe_to_retry: false });
  });

  it('needs a person behind its key, also where the agent has an owner', async () => {
    const params = { payment_id: 'pay_2', amount: 70_000, currency: 'EUR' };
    const answer = await rig.send('POST', '/v1/workspaces/demo/effects', {
      key: rig.keys.runner,
      body: refund({ params }),
    });
    expect(answer.json).toMatchObject({ decision: 'denied_policy', reason: { code: 'key_without_user' } });
  });
});

describe('a call that was allowed ahead', () => {
  /** A store in which each call is let in by an allowance. */
  function allowing(more: Pick<AllowanceRecord, 'isForged'>): Pick<EffectPorts, 'store'> {
    const { store } = rig.core;
    const by = { user: 'maria', keyId: 'key_of_maria' };
    const allowance = {
      ...ALLOWANCE,
      rules: ['world/refund-large'],
      by,
      times: 2,
      used: 1,
      expiresAt: 1,
      epoch: 1,
      ...more,
    };
    const admit: typeof store.admit = async (asked) => {
      const admission = await store.admit(asked);
      return admission.kind === 'dispatch' ? { ...admission, allowance } : admission;
    };
    return { store: { ...store, admit } };
  }

  it('is not sent where something else than a gateway wrote that', async () => {
    const never: UpstreamPort = { ...rig.core.upstream, send: () => expect.unreachable('it was sent') };
    const answer = await run({ ...allowing({ isForged: true }), upstream: never }, await request());
    // With a new key alone it would be refused again.
    const message: unknown = expect.stringContaining('revoke it');
    expect(answer).toMatchObject({ decision: 'denied_policy', reason: { code: 'approval_forged', message } });
    expect(await run(allowing({}), await request())).toMatchObject({ decision: 'committed' });
  });

  it('is not safe to retry where nobody knows its outcome, and not asked again by itself where the upstream is busy', async () => {
    const again = deduplicating(600_000);
    const unknown = await run({ ...allowing({}), ...said(UNKNOWN), ...again }, await request());
    expect(unknown).toMatchObject({ decision: 'unknown_effect', safeToRetry: false });
    const busy: UpstreamResult = { ...FAILED, evidence: { ...EVIDENCE, code: BUSY } };
    expect(await run(said(busy), await request())).toHaveProperty('askAgain', true);
    expect(await run({ ...allowing({}), ...said(busy) }, await request())).not.toHaveProperty('askAgain');
  });
});
