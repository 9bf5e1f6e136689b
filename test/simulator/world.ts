import { admitStep } from '../../src/effects/steps/admission.ts';
import type { EffectRecord, Evidence, Fence } from '../../src/effects/model/effect.ts';
import type { Plan, StepView } from '../../src/effects/steps/plan.ts';
import { Audit } from '../../src/effects/upkeep/fsck.ts';
import { isLate } from '../../src/effects/run/execute.ts';
import { resolveStep, settleStep } from '../../src/effects/steps/settlement.ts';
import type {
  Admission,
  AdmitRequest,
  ResolveRequest,
  Resolution,
  SettleOutcome,
  Settlement,
  SettleRequest,
} from '../../src/effects/store.ts';
import { loseLeaseStep } from '../../src/effects/steps/sweep.ts';
import { type Classified, classify, type Seen } from '../../src/upstreams/http/answer.ts';
import { applyPlan, copyState, emptyState, type MapState, viewOf } from '../contract/map-view.ts';

/**
 * The production lifecycle and admission logic in a world of its own: virtual time, gateways that crash and freeze, a
 * network that loses and delays, an upstream whose effects are counted. Random walks and exhaustive search share it.
 */
export interface World {
  now: number;
  state: MapState;
  gateways: Gateway[];
  /** Requests on their way to the upstream. */
  wire: Message[];
  /** How often the upstream did the action of each key. */
  happened: Record<string, number>;
  crashesLeft: number;
  freezesLeft: number;
  /** Requests that clients may still make. */
  requestsLeft: number;
  nonce: number;
  /** What was written to the ledger, where one life is walked through; a search keeps no ledger. */
  readonly written: MapState['ledger'] | null;
}

export type Gateway =
  | { readonly kind: 'idle' }
  | { readonly kind: 'admitted'; readonly attempt: Attempt; readonly frozenSince: number | null }
  | { readonly kind: 'sent'; readonly attempt: Attempt };

interface Attempt {
  readonly key: string;
  readonly effectId: string;
  readonly fence: Fence;
  readonly dispatchBy: number;
  readonly timeoutAt: number;
}

interface Message {
  readonly key: string;
  /** The upstream's key where it removes duplicates. */
  readonly upstreamKey: string;
  readonly from: Fence;
  /** After this nothing of it can reach the upstream any more (A1). */
  readonly until: number;
  readonly gateway: number;
}

/** The rules under test; a mutant replaces one of them. */
export interface Rules {
  admit(view: StepView, request: AdmitRequest): Plan<Admission>;
  settle(view: StepView, request: SettleRequest): Plan<Settlement>;
  resolve(view: StepView, request: ResolveRequest): Plan<Resolution>;
  lose(view: StepView, effect: EffectRecord): Plan<EffectRecord> | null;
  /** Asked immediately before the first byte. */
  maySend(now: number, dispatchBy: number): boolean;
  /** What the owner makes of the upstream's answer. */
  classify(seen: Seen): Classified;
}

const NOTHING_DECLARED = { committed: [], failed: [], unknown: [], body: [] } as const;

/** The product's look at the time, for an attempt of this world. */
export function beforeLate(late: typeof isLate, now: number, dispatchBy: number): boolean {
  const admittedAt = dispatchBy - TIMES.dispatchWindowMs;
  return !late(now - admittedAt, { admittedAt, dispatchBy });
}

export const PRODUCTION: Rules = {
  admit: admitStep,
  settle: settleStep,
  resolve: resolveStep,
  lose: (view, effect) => loseLeaseStep(view, effect, false),
  maySend: (now, dispatchBy) => beforeLate(isLate, now, dispatchBy),
  classify: (seen) => classify('write', NOTHING_DECLARED, seen),
};

export interface Scope {
  readonly keys: readonly string[];
  readonly gateways: number;
  readonly crashes: number;
  readonly freezes: number;
  readonly requests: number;
  /** Units each action costs, and of each budget. */
  readonly amount: number;
  readonly limits: Readonly<Record<string, number>>;
  readonly idempotentUpstream: boolean;
}

export const TIMES = { dispatchWindowMs: 2000, timeoutMs: 1000, maxProcessingMs: 4000, maxFreezeMs: 3000 } as const;

const VERSIONS = { policy: 'v1', pauses: 0 };
const EVIDENCE: Evidence = { code: 'http_status', message: '', answered: null, startedAt: null, endedAt: null };

/** A world in which nothing has happened. */
export function newWorld(scope: Scope, keeps: 'ledger' | 'nothing' = 'nothing'): World {
  const state = emptyState(VERSIONS);
  state.maxFreezeMs = TIMES.maxFreezeMs;
  return {
    now: 0,
    state,
    gateways: Array.from({ length: scope.gateways }, () => ({ kind: 'idle' })),
    wire: [],
    happened: Object.fromEntries(scope.keys.map((key) => [key, 0])),
    crashesLeft: scope.crashes,
    freezesLeft: scope.freezes,
    requestsLeft: scope.requests,
    nonce: 0,
    written: keeps === 'ledger' ? [] : null,
  };
}

/** A copy that can be changed on its own. */
export function copyWorld(world: World): World {
  return { ...world, gateways: [...world.gateways], wire: [...world.wire], happened: { ...world.happened } };
}

/** One thing that can happen next. `apply` changes the world it is given. */
export interface Action {
  readonly name: string;
  apply(world: World): void;
}

/** Everything that can happen next in a world. */
export function actions(world: World, scope: Scope, rules: Rules): readonly Action[] {
  const all: Action[] = [];
  const add = (name: string, apply: (world: World) => void): void => void all.push({ name, apply });
  const commit = (target: World, mutate: (state: MapState) => void): void => {
    target.state = copyState(target.state);
    mutate(target.state);
    target.written?.push(...target.state.ledger);
    // Replies and the ledger are not looked at in a search, and would keep equal states apart.
    target.state.ledger = [];
  };
  const step = <Reply>(target: World, plan: Plan<Reply>): Reply => {
    commit(target, (state) => void applyPlan(state, plan, target.now));
    return plan.reply;
  };

  const idle = world.gateways.findIndex((gateway) => gateway.kind === 'idle');
  if (idle >= 0 && world.requestsLeft > 0) {
    for (const key of scope.keys) {
      add(`gateway ${idle} gets a request with ${key}`, (target) => {
        target.requestsLeft -= 1;
        target.nonce += 1;
        const request = admitRequest(key, scope, target.nonce);
        const admission = step(target, rules.admit(viewOf(target.state, target.now), request));
        if (admission.kind !== 'dispatch' || admission.effect.life.state !== 'executing') return;
        const { lease } = admission.effect.life;
        target.gateways[idle] = {
          kind: 'admitted',
          frozenSince: null,
          attempt: {
            key,
            effectId: admission.effect.id,
            fence: lease.fence,
            dispatchBy: lease.dispatchBy,
            timeoutAt: lease.dispatchBy + TIMES.timeoutMs,
          },
        };
      });
    }
  }

  const settle = (target: World, attempt: Attempt, outcome: SettleOutcome): void => {
    step(
      target,
      rules.settle(viewOf(target.state, target.now), {
        workspace: 'w',
        effectId: attempt.effectId,
        fence: attempt.fence,
        outcome,
        settledBy: { by: 'owner' },
        evidence: EVIDENCE,
        stages: [],
      }),
    );
  };

  for (const [index, gateway] of world.gateways.entries()) {
    if (gateway.kind === 'idle') continue;
    const { attempt } = gateway;
    if (gateway.kind === 'admitted') {
      const { frozenSince } = gateway;
      if (frozenSince === null) {
        add(`gateway ${index} sends`, (target) => {
          if (!rules.maySend(target.now, attempt.dispatchBy)) {
            target.gateways[index] = { kind: 'idle' };
            settle(target, attempt, { kind: 'failed', result: null });
            return;
          }
          target.gateways[index] = { kind: 'sent', attempt };
          sendMessage(target, index, attempt, scope);
        });
        if (world.freezesLeft > 0) {
          add(`gateway ${index} freezes before it checks the time`, (target) => {
            target.freezesLeft -= 1;
            target.gateways[index] = { ...gateway, frozenSince: target.now };
          });
          // A1: between its last check and the write a process is frozen no longer than max_freeze.
          if (rules.maySend(world.now, attempt.dispatchBy)) {
            add(`gateway ${index} freezes after it checked the time`, (target) => {
              target.freezesLeft -= 1;
              target.gateways[index] = { kind: 'sent', attempt };
              target.wire.push({
                ...message(target, index, attempt, scope),
                until: target.now + TIMES.maxFreezeMs + TIMES.maxProcessingMs,
              });
            });
          }
        }
      } else {
        add(`gateway ${index} wakes`, (target) => {
          target.gateways[index] = { ...gateway, frozenSince: null };
        });
      }
    } else {
      if (world.now >= attempt.timeoutAt) {
        add(`gateway ${index} gives up waiting`, (target) => {
          target.gateways[index] = { kind: 'idle' };
          settle(target, attempt, { kind: 'unknown' });
        });
      }
    }
    if (world.crashesLeft > 0) {
      add(`gateway ${index} crashes`, (target) => {
        target.crashesLeft -= 1;
        // What was committed stays: that the stores answer nothing before it is durable is tested with them.
        target.gateways[index] = { kind: 'idle' };
      });
    }
  }

  for (const [index, one] of world.wire.entries()) {
    if (world.now > one.until) continue;
    const answer = (target: World, status: number): void => {
      target.wire.splice(index, 1);
      const gateway = target.gateways[one.gateway];
      if (gateway?.kind !== 'sent' || gateway.attempt.fence.nonce !== one.from.nonce) return;
      target.gateways[one.gateway] = { kind: 'idle' };
      settle(target, gateway.attempt, recorded(rules.classify({ kind: 'answer', status, body: 'whole', json: {} })));
    };
    const act = (target: World): void => {
      const isKnown = scope.idempotentUpstream && target.happened[one.upstreamKey] !== undefined;
      if (scope.idempotentUpstream) target.happened[one.upstreamKey] = 1;
      if (!isKnown) target.happened[one.key] = (target.happened[one.key] ?? 0) + 1;
    };
    for (const status of [200, 500]) {
      add(`upstream acts on ${one.key} and answers ${status}`, (target) => {
        act(target);
        answer(target, status);
      });
    }
    add(`upstream acts on ${one.key}; the answer is lost`, (target) => {
      act(target);
      target.wire.splice(index, 1);
    });
    add(`upstream redirects ${one.key} after it acted`, (target) => {
      act(target);
      answer(target, 303);
    });
    add(`upstream refuses ${one.key}`, (target) => answer(target, 422));
    add(`the request of ${one.key} is lost`, (target) => void target.wire.splice(index, 1));
  }

  for (const effect of world.state.effects.values()) {
    const { life } = effect;
    if (life.state === 'executing' && world.now >= life.lease.leaseEnd) {
      add(`the sweeper declares ${effect.idempotencyKey} lost`, (target) => {
        const plan = rules.lose(viewOf(target.state, target.now), effect);
        if (plan !== null) step(target, plan);
      });
    }
    if (life.state === 'unknown') {
      // A2: the person looks at the upstream, and says what is true at that moment.
      const happened = (world.happened[effect.idempotencyKey] ?? 0) > 0;
      add(`a person says that ${effect.idempotencyKey} ${happened ? 'happened' : 'did not happen'}`, (target) => {
        step(
          target,
          rules.resolve(viewOf(target.state, target.now), {
            workspace: 'w',
            effectId: effect.id,
            outcome: happened ? { kind: 'happened', receipt: { id: 'r', jws: 'j' } } : { kind: 'not_happened' },
            settledBy: { by: 'resolve', keyId: 'k', user: 'u', forced: false, comment: null, evidence: null },
            actor: { type: 'user', id: 'u' },
            fence: life.lease.fence,
            force: false,
          }),
        );
      });
    }
  }

  const next = nextInstant(world);
  if (next !== null) add(`time passes to ${next}`, (target) => passTime(target, next));
  return all;
}

/** What the owner settles for what it made of an answer. */
function recorded({ outcome }: Classified): SettleOutcome {
  switch (outcome) {
    case 'committed':
      return {
        kind: 'committed',
        receipt: { id: 'r', jws: 'j' },
        result: null,
        accepted: false,
        responseTruncated: false,
      };
    case 'failed':
      return { kind: 'failed', result: null };
    case 'unknown':
      return { kind: 'unknown' };
  }
}

/** The next moment at which something becomes possible or impossible. */
function nextInstant(world: World): number | null {
  const instants: number[] = [];
  for (const { life } of world.state.effects.values()) {
    if (life.state === 'executing') instants.push(life.lease.dispatchBy, life.lease.leaseEnd);
    if (life.state === 'unknown') instants.push(life.lease.quiesceUntil);
  }
  for (const gateway of world.gateways) {
    if (gateway.kind === 'sent') instants.push(gateway.attempt.timeoutAt);
    if (gateway.kind === 'admitted') instants.push(gateway.attempt.dispatchBy);
  }
  for (const { until } of world.wire) instants.push(until + 1);
  const later = instants.filter((instant) => instant > world.now);
  return later.length === 0 ? null : Math.min(...later);
}

function passTime(world: World, to: number): void {
  world.now = to;
  world.wire = world.wire.filter(({ until }) => to <= until);
}

function message(world: World, gateway: number, attempt: Attempt, scope: Scope): Message {
  const effect = world.state.effects.get(attempt.effectId);
  const upstreamKey = scope.idempotentUpstream ? `${attempt.effectId}.${effect?.generation ?? 0}` : attempt.key;
  return { key: attempt.key, upstreamKey, from: attempt.fence, until: world.now + TIMES.maxProcessingMs, gateway };
}

function sendMessage(world: World, gateway: number, attempt: Attempt, scope: Scope): void {
  world.wire.push(message(world, gateway, attempt, scope));
}

function admitRequest(key: string, scope: Scope, nonce: number): AdmitRequest {
  return {
    workspace: 'w',
    effectId: `eff_${key}_${nonce}`,
    approvalId: `apr_${nonce}`,
    generationMs: null,
    idempotencyKey: key,
    fingerprint: key,
    action: { type: 't', tool: 't', toolDigest: 'd', upstream: 'u', kind: 'write', target: `t:${key}` },
    actor: {
      agentId: 'a',
      agentOwner: null,
      keyId: 'k',
      keyKind: 'agent',
      user: null,
      keyMadeBy: null,
      via: 'effects_api',
    },
    verdict: {
      kind: 'permit',
      mode: 'enforce',
      obligations: Object.entries(scope.limits).map(([budget, limit]) => ({
        kind: 'budget',
        rule: 'r',
        budget,
        unit: 'u',
        bucket: '',
        sharing: 'own',
        window: { kind: 'calendar', start: 0, end: 1e12 },
        limit,
        amount: scope.amount,
      })),
      approvals: [],
      trace: { policyVersion: VERSIONS.policy, matched: [], shadow: [], observed: null },
    },
    approvalDigest: '',
    dispatches: null,
    pausedBy: null,
    seen: VERSIONS,
    times: {
      dispatchWindowMs: TIMES.dispatchWindowMs,
      timeoutMs: TIMES.timeoutMs,
      maxProcessingMs: TIMES.maxProcessingMs,
      idempotentForMs: scope.idempotentUpstream ? 1e9 : null,
    },
    owner: 'g',
    nonce: `n${nonce}`,
    claimId: null,
    reservationId: null,
    metadata: null,
    sealed: '',
    stages: [],
  };
}

/** What fsck would find at the end of a life. */
export function fsckOf({ state, now, written }: World): string | null {
  const audit = new Audit();
  for (const event of written ?? []) audit.add({ ...event, id: '' });
  const rows = [...state.budgets].map(([key, { spent, held }]) => {
    const [budget, bucket, window] = JSON.parse(key);
    return { budget, bucket, window, unit: '', limit: 0, spent, held, resetsAt: null };
  });
  const effects = [...state.effects.values()];
  const open = audit.open();
  for (const { id } of effects) open.delete(id);
  const gone = [...open].map(([id, ledger]) => `${id} is gone, ${ledger} by the ledger`);
  const [first] = [...audit.compareEffects(effects), ...gone, ...audit.compareRows(rows, now)];
  return first === undefined ? null : `fsck: ${JSON.stringify(first)}`;
}

/** What must hold in every world. @returns the first invariant that is broken, or `null` */
export function violation(world: World, scope: Scope): string | null {
  for (const key of scope.keys) if ((world.happened[key] ?? 0) > 1) return `${key} happened more than once`;
  let committed = 0;
  for (const effect of world.state.effects.values()) {
    const happened = world.happened[effect.idempotencyKey] ?? 0;
    const { state } = effect.life;
    if (state === 'committed') committed += 1;
    if (state === 'committed' && happened === 0) return `${effect.idempotencyKey} is committed and never happened`;
    if (state === 'failed' && happened > 0) return `${effect.idempotencyKey} is failed and happened`;
    if (effect.closed) return `${effect.idempotencyKey} contradicts itself`;
  }
  for (const [budget, limit] of Object.entries(scope.limits)) {
    let spent = 0;
    let held = 0;
    for (const [key, row] of world.state.budgets) {
      if (JSON.parse(key)[0] !== budget) continue;
      spent += row.spent;
      held += row.held;
    }
    if (spent + held > limit) return `budget ${budget} is overspent`;
    if (held < 0 || spent < 0) return `budget ${budget} has a negative figure`;
    if (spent !== committed * scope.amount) return `budget ${budget} does not say what was committed`;
    const open = [...world.state.effects.values()].filter(
      ({ life }) => life.state === 'executing' || life.state === 'unknown',
    ).length;
    if (held !== open * scope.amount) return `budget ${budget} holds what nobody has`;
  }
  return null;
}
