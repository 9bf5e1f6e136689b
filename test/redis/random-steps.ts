import { admitStep } from '../../src/effects/steps/admission.ts';
import type { Fence } from '../../src/effects/model/effect.ts';
import {
  makeReservationStep,
  releaseClaimStep,
  releaseReservationStep,
  renewClaimStep,
  takeClaimStep,
} from '../../src/effects/steps/claims-and-reservations.ts';
import type { Plan, StepView } from '../../src/effects/steps/plan.ts';
import { resolveStep, settleStep } from '../../src/effects/steps/settlement.ts';
import type { AdmitRequest, EffectStore, SettleOutcome } from '../../src/effects/store.ts';
import { loseLeaseStep } from '../../src/effects/steps/sweep.ts';
import type { Obligation, Verdict } from '../../src/effects/model/verdict.ts';
import { expireApprovalStep, giveUpStep, voteStep } from '../../src/effects/steps/voting.ts';
import { applyPlan, type MapState, viewOf } from '../contract/map-view.ts';
import { admitRequest, approvalBy, newId, permit } from '../contract/requests.ts';

/** Random steps, the same for a store and for the pure steps on a map. */

export type Random = () => number;

/** A small generator of numbers from 0 to 1, the same for a seed. */
export function randomOf(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

function pick<T>(random: Random, items: readonly [T, ...T[]]): T {
  return items[Math.floor(random() * items.length)] ?? items[0];
}

const ACTOR = { type: 'user', id: 'maria' } as const;

/** What a sequence has seen, from which later steps are made. */
export interface Seen {
  readonly attempts: { readonly effectId: string; readonly fence: Fence }[];
  readonly approvals: string[];
  /** Requests that were granted, with the calls that they are about. */
  readonly granted: { readonly approvalId: string; readonly key: string; readonly fingerprint: string }[];
  readonly claims: string[];
  readonly reservations: string[];
}

/** One step: how it runs on a store, and what it is on a map. */
export interface RandomStep {
  readonly name: string;
  readonly onStore: (store: EffectStore) => Promise<unknown>;
  readonly onMap: (state: MapState, now: number) => unknown;
}

/** Slots of a rolling window as stores count them: a slot counts until its end is a whole window ago. */
function slotted(windowMs: number, at: number, now: number): boolean {
  const width = Math.max(1, Math.ceil(windowMs / 1000));
  return Math.floor(at / width) >= Math.floor((now - windowMs) / width);
}

/** The view of a map, with figures of rolling windows, pending approvals and uses as stores keep them. */
export function storeLikeView(state: MapState, now: number): StepView {
  const view = viewOf(state, now);
  return {
    ...view,
    budget(workspace, budget, bucket, window) {
      const { spent, held, rows } = view.budget(workspace, budget, bucket, window);
      // Figures stay integers that a number holds exactly, also where late evidence posts more than the limit.
      const figures = { spent: Math.min(spent, Number.MAX_SAFE_INTEGER), held, rows };
      const rolling = /^r:(\d+)$/.exec(window)?.[1];
      const row = state.budgets.get(JSON.stringify([budget, bucket, window]));
      if (rolling === undefined || row === undefined) return figures;
      const counted = row.postings.filter(({ at }) => slotted(Number(rolling), at, now));
      return {
        ...figures,
        spent: Math.min(
          Number.MAX_SAFE_INTEGER,
          counted.reduce((sum, { amount }) => sum + amount, 0),
        ),
      };
    },
    rate: (_workspace, id, bucket, windowMs) =>
      (state.rates.get(JSON.stringify([id, bucket])) ?? []).filter((at) => slotted(windowMs, at, now)).length,
    pendingApprovals: (_workspace, agentId) =>
      [...state.approvals.values()].filter(
        ({ status, requester }) => status === 'pending' && requester.agentId === agentId,
      ).length,
    usesOf(workspace, pool) {
      const newest = new Map(view.usesOf(workspace, pool).map((use) => [use.effectId, use]));
      return [...newest.values()];
    },
  };
}

function onMap<Request, Reply>(
  step: (view: StepView, request: Request) => Plan<Reply>,
  request: Request,
): RandomStep['onMap'] {
  return (state, now) => applyPlan(state, step(storeLikeView(state, now), request), now);
}

function obligations(random: Random, now: number, target: string): readonly Obligation[] {
  const some: Obligation[] = [];
  const day = 86_400_000;
  const start = Math.floor(now / day) * day;
  const window = pick(random, [
    { kind: 'calendar', start, end: start + day } as const,
    { kind: 'calendar', start, end: start + day } as const,
    { kind: 'rolling', ms: 30_000 } as const,
    { kind: 'calendar', start: start - day, end: start } as const,
  ]);
  if (random() < 0.6) {
    some.push({
      kind: 'budget',
      rule: 'money/own',
      budget: 'money/own',
      unit: 'EUR-cent',
      bucket: pick(random, ['["a"]', '["b"]', '["ü\u0000"]']),
      sharing: 'own',
      window: random() < 0.9 ? window : { kind: 'rolling', ms: 30_000 },
      limit: pick(random, [100, 1000, Number.MAX_SAFE_INTEGER]),
      amount: pick(random, [0, 7, 50, 333, null, Number.MAX_SAFE_INTEGER]),
    });
  }
  if (random() < 0.4) {
    some.push({
      kind: 'budget',
      rule: 'money/all',
      budget: 'money/all',
      unit: 'EUR-cent',
      bucket: '[]',
      sharing: 'shared',
      window: { kind: 'rolling', ms: 30_000 },
      limit: 400,
      amount: pick(random, [7, 50, 399]),
    });
  }
  if (random() < 0.2) {
    some.push({ kind: 'rate_limit', rule: 'money/rate', id: 'money/rate', bucket: '[]', windowMs: 20_000, limit: 3 });
  }
  if (random() < 0.25) {
    some.push({
      kind: 'claim',
      rule: 'money/claim',
      target: pick(random, [target, 'claimed']),
      hold: pick(random, ['call', 'call', 'existing']),
    });
  }
  if (random() < 0.25) {
    some.push({ kind: 'reserve', rule: 'money/pool', pool: 'gpu', units: pick(random, [1, 2]), capacity: 4 });
  }
  return some;
}

function verdict(random: Random, now: number, target: string): Verdict {
  const observed = random() < 0.1 ? ({ would: 'denied_policy', rule: null } as const) : null;
  const trace = { ...permit().trace, observed, shadow: random() < 0.1 ? ['money/shadow'] : [] };
  if (random() < 0.1) {
    return {
      kind: 'deny',
      decision: pick(random, ['denied_policy', 'denied_permission', 'denied_paused']),
      reason: { code: 'rule_denied', message: 'No: “never”.', ...(random() < 0.5 ? { rule: 'money/never' } : {}) },
      trace,
    };
  }
  const approvals =
    random() < 0.25
      ? [
          approvalBy({ quorum: pick(random, [1, 2]), hold: pick(random, ['own', 'all']), expiresMs: 60_000 }),
          ...(random() < 0.3 ? [approvalBy({ rule: 'money/second' })] : []),
        ]
      : [];
  return {
    ...permit(obligations(random, now, target), approvals),
    mode: random() < 0.15 ? 'observe' : 'enforce',
    trace,
  };
}

function randomAdmission(random: Random, workspace: string, now: number, seen: Seen): AdmitRequest {
  const key = pick(random, ['k1', 'k2', 'k3', 'k4', 'k5', '\u0000 ключ']);
  const target = pick(random, ['payment:1', 'payment:2']);
  const agentId = pick(random, ['support-bot', 'support-bot', 'billing-bot']);
  const given = verdict(random, now, target);
  return admitRequest({
    workspace,
    idempotencyKey: key,
    fingerprint: `fp:${key}:${random() < 0.05 ? 'other' : 'same'}`,
    verdict: given,
    approvalDigest: given.kind === 'permit' && given.approvals.length > 0 ? pick(random, ['d1', 'd1', 'd1', 'd2']) : '',
    pausedBy: random() < 0.06 ? { id: 'pau_1', reason: 'stop', until: random() < 0.5 ? null : now + 5000 } : null,
    seen: { policy: random() < 0.03 ? 'older' : '', pauses: random() < 0.03 ? 7 : 0 },
    claimId: random() < 0.1 ? (seen.claims.at(-1) ?? 'clm_none') : null,
    reservationId: random() < 0.1 ? (seen.reservations.at(-1) ?? 'rsv_none') : null,
    metadata: random() < 0.5 ? { order: 7, nested: { list: [1, null, 'x'] } } : null,
    action: { target, toolDigest: random() < 0.95 ? 'sha256:7d1a' : 'sha256:other' },
    actor: { agentId },
    times: { idempotentForMs: random() < 0.4 ? 3_600_000 : null },
  });
}

function outcome(random: Random): SettleOutcome {
  switch (Math.floor(random() * 5)) {
    case 0:
      return { kind: 'failed', result: null };
    case 1:
      return { kind: 'unknown' };
    case 2:
      return {
        kind: 'denied',
        decision: 'denied_claim',
        reason: { code: 'state_drift', message: 'The state is another.' },
        mismatches: [{ field: 'status', assumed: 'open', current: null }],
      };
    default:
      return {
        kind: 'committed',
        receipt: { id: newId('rcp'), jws: `jws.${newId('r')}` },
        result: { status: 201, headers: {}, body: { kind: 'json', value: { n: 2 ** 53 - 1 } }, truncated: false },
        accepted: random() < 0.2,
        responseTruncated: random() < 0.2,
      };
  }
}

function settling(random: Random, workspace: string, now: number, seen: Seen): RandomStep | null {
  const attempt = seen.attempts[Math.floor(random() * seen.attempts.length)];
  if (attempt === undefined) return null;
  const { effectId, fence } = attempt;
  if (random() < 0.3) {
    const said = pick(random, ['happened', 'not_happened']);
    const request = {
      workspace,
      effectId,
      fence,
      outcome:
        said === 'happened'
          ? ({ kind: said, receipt: { id: newId('rcp'), jws: 'jws.said' } } as const)
          : ({ kind: 'not_happened' } as const),
      settledBy:
        random() < 0.7
          ? ({ by: 'resolve', keyId: 'key_1', user: 'maria', forced: false, comment: null, evidence: null } as const)
          : ({ by: 'probe', evidence: { status: 200 } } as const),
      actor: ACTOR,
      force: random() < 0.3,
    };
    return { name: `resolve ${said}`, onStore: (store) => store.resolve(request), onMap: onMap(resolveStep, request) };
  }
  const came = outcome(random);
  const startedAt = random() < 0.8 ? now - 5 : null;
  const request = {
    workspace,
    effectId,
    fence,
    outcome: came,
    settledBy: { by: 'owner' } as const,
    evidence: {
      code: startedAt === null ? 'not_dispatched' : 'http_status',
      message: 'The upstream answered.',
      status: 201,
      startedAt,
      endedAt: now,
    },
    stages: [
      {
        stage: 'state_check' as const,
        status: pick(random, ['passed', 'skipped'] as const),
        startedAt: now,
        durationMs: 1,
        detail: null,
      },
    ],
  };
  return {
    name: `settle ${request.outcome.kind}`,
    onStore: (store) => store.settle(request),
    onMap: onMap(settleStep, request),
  };
}

function voting(random: Random, workspace: string, now: number, seen: Seen): RandomStep | null {
  const approvalId = seen.approvals[Math.floor(random() * seen.approvals.length)];
  if (approvalId === undefined) return null;
  const user = pick(random, ['maria', 'ada', 'olga', 'tom']);
  const request = {
    workspace,
    approvalId,
    verdict: pick(random, ['approve', 'approve', 'approve', 'reject'] as const),
    user,
    keyId: random() < 0.9 ? `key_${user}` : 'key_agent0000001',
    voterSince: random() < 0.9 ? 0 : now,
    comment: random() < 0.5 ? null : 'yes "indeed"',
    requirements: pick<readonly number[]>(random, [[0], [0, 1], [1], []]),
    actor: ACTOR,
  };
  return { name: `vote ${request.verdict}`, onStore: (store) => store.vote(request), onMap: onMap(voteStep, request) };
}

function holding(random: Random, workspace: string, seen: Seen): RandomStep {
  const agentId = pick(random, ['support-bot', 'billing-bot']);
  const id = newId(random() < 0.5 ? 'clm' : 'rsv');
  const ttlMs = pick(random, [2000, 60_000]);
  const keyId = `key_${ttlMs}`;
  const claim = { workspace, id: seen.claims.at(-1) ?? 'clm_none', actor: ACTOR };
  const reservation = { workspace, id: seen.reservations.at(-1) ?? 'rsv_none', actor: ACTOR };
  switch (Math.floor(random() * 6)) {
    case 0:
    case 1: {
      const target = pick(random, ['payment:1', 'payment:2', 'claimed']);
      const request = { id, workspace, target, agentId, keyId, ttlMs, actor: ACTOR };
      return { name: 'take claim', onStore: (store) => store.takeClaim(request), onMap: onMap(takeClaimStep, request) };
    }
    case 2:
      return {
        name: 'renew claim',
        onStore: (store) => store.renewClaim(workspace, claim.id, ttlMs, ACTOR),
        onMap: onMap(renewClaimStep, { ...claim, ttlMs }),
      };
    case 3:
      return {
        name: 'release claim',
        onStore: (store) => store.releaseClaim(workspace, claim.id, ACTOR),
        onMap: onMap(releaseClaimStep, claim),
      };
    case 4: {
      const request = { id, workspace, pool: 'gpu', capacity: 4, units: 2, agentId, keyId, ttlMs, actor: ACTOR };
      return {
        name: 'reserve',
        onStore: (store) => store.makeReservation(request),
        onMap: onMap(makeReservationStep, request),
      };
    }
    default:
      return {
        name: 'release reservation',
        onStore: (store) => store.releaseReservation(workspace, reservation.id, ACTOR),
        onMap: onMap(releaseReservationStep, reservation),
      };
  }
}

/** What a sweep declares, on a map: leases by their end, then requests for approval by theirs. */
export function sweepMap(state: MapState, now: number): null {
  const leases = [...state.effects.values()].flatMap((effect) =>
    effect.life.state === 'executing' ? [{ effect, end: effect.life.lease.leaseEnd }] : [],
  );
  for (const { effect } of leases.sort((a, b) => a.end - b.end || (a.effect.id < b.effect.id ? -1 : 1))) {
    const plan = loseLeaseStep(storeLikeView(state, now), effect, false);
    if (plan !== null) applyPlan(state, plan, now);
  }
  const overdue = [...state.approvals.values()]
    .filter(({ status, expiresAt }) => (status === 'pending' || status === 'granted') && expiresAt <= now)
    .sort((a, b) => a.expiresAt - b.expiresAt || (a.id < b.id ? -1 : 1));
  for (const approval of overdue) {
    const effect = state.effects.get(approval.effectId);
    if (effect !== undefined) applyPlan(state, expireApprovalStep(storeLikeView(state, now), effect, approval), now);
  }
  return null;
}

function givingUp(workspace: string, approvalId: string): RandomStep {
  const reason = { code: 'key_ended', message: 'The key was revoked: “gone”.' } as const;
  const request = { workspace, approvalId, decision: 'denied_permission', reason, actor: ACTOR } as const;
  return { name: 'give up', onStore: (store) => store.giveUp(request), onMap: onMap(giveUpStep, request) };
}

/** The next step of a sequence. */
export function randomStep(random: Random, workspace: string, now: number, seen: Seen): RandomStep {
  const granted = seen.granted.at(-1);
  if (granted !== undefined && random() < 0.08) return givingUp(workspace, granted.approvalId);
  const kind = random();
  if (kind < 0.35) return settling(random, workspace, now, seen) ?? holding(random, workspace, seen);
  if (kind < 0.45) return voting(random, workspace, now, seen) ?? holding(random, workspace, seen);
  if (kind < 0.55) return holding(random, workspace, seen);
  if (kind < 0.6) {
    return {
      name: 'sweep',
      async onStore(store) {
        // It sweeps the workspaces of other sequences as well: what it did here shows in the state.
        await store.sweep(10_000);
        return null;
      },
      onMap: sweepMap,
    };
  }
  const asked = randomAdmission(random, workspace, now, seen);
  // Mostly of the call that was granted last; at times of another key.
  const request =
    granted === undefined || random() > 0.4
      ? asked
      : {
          ...asked,
          dispatches: granted.approvalId,
          ...(random() < 0.5 ? { verdict: permit([], [approvalBy()]), approvalDigest: 'd1' } : {}),
          ...(random() < 0.9 ? { idempotencyKey: granted.key, fingerprint: granted.fingerprint } : {}),
        };
  if (kind < 0.65) {
    return {
      name: 'preview',
      onStore: (store) => store.preview(request),
      onMap: (state, at) => admitStep(storeLikeView(state, at), request).reply,
    };
  }
  const name = request.dispatches === null ? 'admit' : 'send granted';
  return { name, onStore: (store) => store.admit(request), onMap: onMap(admitStep, request) };
}
