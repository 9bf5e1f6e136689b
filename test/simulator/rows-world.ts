import { setTimeout } from 'node:timers/promises';
import { vi } from 'vitest';
import type { EffectRecord, Lease } from '../../src/effects/model/effect.ts';
import { isLate } from '../../src/effects/run/execute.ts';
import { type Admission, type AdmitRequest, type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import type { OpenRows } from '../../src/stores/open-rows.ts';
import { commitTo, emptyRows, type MapRows } from '../port/map-rows.ts';
import {
  claimRequest,
  pauseRequest,
  PERSON,
  reservationRequest,
  resolveRequest,
  voteRequest,
} from '../contract/requests.ts';
import {
  CAPACITY,
  CLAIMANT,
  CLAIMS_AT_MOST,
  MAX_FREEZE_MS,
  outcomeOf,
  POOL,
  requestFor,
  settlement,
  START,
  TARGET,
  TIMES,
  type View,
} from './rows-calls.ts';
import {
  answeredTruly,
  brokenAtTheEnd,
  claimsNow,
  claimsOf,
  createWitness,
  effectsOf,
  takenNow,
  type Truth,
} from './rows-invariants.ts';
import { type Commit, createNetwork, type Network } from './rows-network.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

/** What is under test: the product's rules over rows, and the store's side; a mutant replaces one of them. */
export interface Product {
  readonly createEffectStore: typeof createEffectStore;
  readonly commit: Commit;
}

export const PRODUCT: Product = { createEffectStore, commit: commitTo };

export interface Scope {
  readonly keys: readonly string[];
  readonly gateways: number;
  /** How far each gateway's clock is from the store's, ms. */
  readonly skews: readonly number[];
  readonly requests: number;
  /** The requests in their order, where it is not any. */
  readonly asks?: readonly { readonly gateway: number; readonly key: string }[];
  /** Messages that are lost, late or refused; answers that are lost. */
  readonly faults: number;
  /** Only batches that never arrive are among them. */
  readonly isOnlyLoss?: boolean;
  readonly crashes: number;
  readonly failovers: number;
  /** Things that people do in between. */
  readonly people: readonly Deed[];
  readonly deeds: number;
  /** How long claims last that are there from the start, ms. */
  readonly claims?: readonly number[];
  /** How often time passes by so much, ms. */
  readonly passes: readonly number[];
  readonly passings: number;
  /** The upstream does what it is asked at once, and says so. */
  readonly isUpstreamPrompt: boolean;
  /** Whether gateways know which others have ended. */
  readonly knowsTheDead: boolean;
}

export type Deed =
  | 'pause'
  | 'lift'
  | 'policy'
  | 'claim'
  | 'claim another'
  | 'release'
  | 'reserve'
  | 'vote'
  | 'sweep'
  | 'resolve';

/** One thing that can happen next. */
export interface Action {
  readonly name: string;
  readonly weight: number;
  apply(): void;
}

interface Gateway {
  readonly name: string;
  readonly store: EffectStore;
  readonly seen: View;
  /** What it was asked and heard, in order: what it does next follows from this. */
  readonly heard: string[];
  ids: number;
  readonly timers: (() => void)[];
}

interface OnTheWire {
  readonly name: string;
  readonly key: string;
  readonly until: number;
  readonly timeoutAt: number;
  readonly answer: (outcome: 'committed' | 'failed' | 'unknown') => void;
  isAwaited: boolean;
}

export interface World {
  readonly truth: Truth;
  broken(): string | null;
  actions(): readonly Action[];
  /** Lets everything run that needs no action. */
  turn(): Promise<void>;
  /** Everything that what can happen next depends on. */
  signature(): string;
  /** Heals the network, and looks at how it ends. @returns what is broken */
  end(): Promise<string | null>;
}

const RETENTION = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 } as const;
/** Time that passes at the end, ms; until lost answers were looked for and leases are over. */
const AT_THE_END = [501, 1000, 5001, 30_000, 120_000];

const immediate = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A world in which gateways have come up, and nothing has happened. */
export async function newWorld(scope: Scope, product: Product): Promise<World> {
  const rows: MapRows = emptyRows();
  let now = START;
  const truth: Truth = { rows, now: () => now, happened: new Map(), asked: new Map() };
  const happened = new Map<string, number>();
  const asked = new Map<string, AdmitRequest>();
  Object.assign(truth, { happened, asked });
  const witness = createWitness(truth);
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  let broken: string | null = null;
  const network: Network = createNetwork(
    rows,
    () => now,
    product.commit,
    (change, answer) => {
      boots.add(change.id.slice(0, change.id.indexOf('.')));
      broken ??= witness.saw(change, answer);
      if (openCalls.size > 0) noteTaken();
      noteClaims();
    },
  );
  const left = { ...scope, policies: 0 };
  const wire: OnTheWire[] = [];
  const spilled: { readonly gateway: Gateway; readonly again: () => void }[] = [];
  const openCalls = new Set<Map<string, number>>();
  /** For each claim that is asked for: how many the agent has had meanwhile, at most. */
  const openClaims = new Set<{ most: number }>();
  /** A gateway may take what is just over for running, by as much as its clock is behind. */
  const behind = Math.max(0, ...scope.skews.map((skew) => -skew));
  /** Admissions of live gateways that were told that the store is not available. */
  const unavailable = new Map<string, Gateway>();
  const dead = new Set<string>();
  const gateways: Gateway[] = [];
  /** Random parts of the ids of changes, in the order of the gateways. */
  const boots = new Set<string>();
  let isHealed = false;
  /** What is there is acknowledged; `null` where something since then was. */
  let acknowledged: MapRows | null = null;

  function noteTaken(): void {
    const taken = takenNow(truth);
    for (const most of openCalls)
      for (const [name, value] of taken) most.set(name, Math.max(most.get(name) ?? 0, value));
  }

  function noteClaims(): void {
    for (const open of openClaims) open.most = Math.max(open.most, claimsNow(truth, now - behind));
  }

  async function askForClaim(gateway: Gateway, target: string, ttlMs: number): Promise<void> {
    const open = { most: claimsNow(truth, now - behind) };
    openClaims.add(open);
    try {
      const request = claimRequest(target, { ...CLAIMANT, id: `clm_${newId(gateway)}`, ttlMs });
      const { kind } = await gateway.store.takeClaim({ ...request, workspace: 'w' });
      if (kind === 'too_many' && open.most < CLAIMS_AT_MOST) broken ??= `${target} is refused, and there was room`;
    } finally {
      openClaims.delete(open);
    }
  }

  function open(index: number, boot: number): Gateway {
    const name = `g${index}.${boot}`;
    const clock = (): number => now + (scope.skews[index] ?? 0);
    const store: OpenRows = {
      ...network.connect(name, clock),
      installId: 'map',
      health: () => ({ ready: true, problem: null, durability: 'none', epoch: rows.epoch }),
      impediment: () => null,
      ended: {
        owner: null,
        known: async () => {},
        any: () => scope.knowsTheDead && dead.size > 0,
        quietAt: (_, lease: Lease) => (dead.has(lease.owner) ? lease.quiesceUntil : null),
        none: () => {},
      },
    };
    const timers: (() => void)[] = [];
    vi.stubGlobal('setInterval', (callback: () => void) => {
      timers.push(callback);
      return { unref: () => {} };
    });
    const effects = product.createEffectStore(store, {
      retention: RETENTION,
      keySeals: KEY_SEALS,
      maxFreezeMs: MAX_FREEZE_MS,
    });
    vi.unstubAllGlobals();
    return { name, store: effects, seen: { policy: '', pauses: 0, pausedBy: null }, heard: [], ids: 0, timers };
  }

  /** Runs something on a gateway; only that the store is not available may come of it. */
  function start(work: () => Promise<unknown>): void {
    work().catch((error: unknown) => {
      if (!(error instanceof StoreUnavailable))
        broken ??= `a fault: ${String(error instanceof Error ? error.stack : error)}`;
    });
  }

  const newId = (gateway: Gateway): string => {
    gateway.ids += 1;
    return `${gateway.name}_${gateway.ids}`;
  };

  async function refresh(gateway: Gateway): Promise<void> {
    const { version, pauses } = await gateway.store.pauses('w');
    const pause = pauses[0];
    gateway.seen.pauses = version;
    gateway.seen.pausedBy = pause === undefined ? null : { id: pause.id, reason: pause.reason, until: pause.until };
  }

  async function call(gateway: Gateway, key: string, dispatches: string | null = null): Promise<void> {
    for (let evaluations = 0; evaluations < 4; evaluations += 1) {
      const begun = now;
      const isFree = isHealed;
      const clock = gateway.store.now();
      const { seen } = gateway;
      const request = requestFor(key, { now: clock, owner: gateway.name, seen, id: newId(gateway), dispatches });
      asked.set(request.nonce, request);
      const most = new Map(takenNow(truth));
      openCalls.add(most);
      let admission: Admission;
      try {
        admission = await gateway.store.admit(request);
      } catch (error) {
        if (error instanceof StoreUnavailable) {
          unavailable.set(request.nonce, gateway);
          if (isFree) broken ??= `${key} is not answered although nothing is in its way`;
        }
        throw error;
      } finally {
        openCalls.delete(most);
      }
      broken ??= answeredTruly(truth, admission, most);
      if (admission.kind === 'stale') {
        gateway.seen.policy = admission.versions.policy;
        await refresh(gateway);
        continue;
      }
      if (admission.kind === 'dispatch') await attempt(gateway, admission.effect, key, begun);
      return;
    }
  }

  async function attempt(gateway: Gateway, effect: EffectRecord, key: string, begun: number): Promise<void> {
    if (effect.life.state !== 'executing') throw new Error(`${effect.id} is dispatched in state ${effect.life.state}`);
    const { lease } = effect.life;
    if (isLate(now - begun, lease)) return await settle(gateway, effect, 'failed');
    if (scope.isUpstreamPrompt || isHealed) {
      act(key);
      return await settle(gateway, effect, 'committed');
    }
    const outcome = await new Promise<'committed' | 'failed' | 'unknown'>((answer) => {
      const until = now + TIMES.maxProcessingMs;
      wire.push({
        name: `${gateway.name} ${key}`,
        key,
        until,
        timeoutAt: now + TIMES.timeoutMs,
        answer,
        isAwaited: true,
      });
    });
    await settle(gateway, effect, outcome);
  }

  function act(key: string): void {
    const times = (happened.get(key) ?? 0) + 1;
    happened.set(key, times);
    if (times > 1) broken ??= `${key} happened more than once`;
  }

  async function settle(
    gateway: Gateway,
    effect: EffectRecord,
    word: 'committed' | 'failed' | 'unknown',
  ): Promise<void> {
    const request = settlement(effect, outcomeOf(word, effect));
    for (;;) {
      try {
        const reply = await gateway.store.settle(request);
        const there = effectsOf(truth).find(({ id }) => id === effect.id);
        if (there === undefined || reply.kind === 'absent') broken ??= `${effect.id} is settled, and is not on record`;
        else if (word === 'committed') {
          const { life } = there;
          const isThis = life.state === 'committed' && life.receipt.jws === `jws.${effect.id}.${effect.attempt}`;
          if (isThis !== (reply.kind === 'settled'))
            broken ??= `${effect.id} is ${life.state}, and its owner hears ${reply.kind}`;
        } else if (reply.kind === 'settled' && there.attempt === effect.attempt && there.life.state === 'executing')
          broken ??= `${effect.id} is settled, and runs on record`;
        return;
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        if (isHealed) broken ??= `${effect.id} cannot be settled although nothing is in its way`;
        await new Promise<void>((again) => spilled.push({ gateway, again }));
      }
    }
  }

  function crash(index: number): void {
    const gateway = gateways[index];
    if (gateway === undefined) return;
    network.cut(gateway.name);
    dead.add(gateway.name);
    for (const [nonce, of] of unavailable) if (of === gateway) unavailable.delete(nonce);
    for (const message of network.messages) if (message.from === gateway.name) message.isForgotten = true;
    for (const message of network.messages.filter(({ from, state }) => from === gateway.name && state === 'made'))
      network.drop(message);
    for (let at = spilled.length - 1; at >= 0; at -= 1) if (spilled[at]?.gateway === gateway) spilled.splice(at, 1);
    gateways[index] = open(index, Number(gateway.name.split('.')[1]) + 1);
  }

  function failOver(): void {
    if (acknowledged !== null) {
      rows.spaces.clear();
      for (const [name, space] of acknowledged.spaces) rows.spaces.set(name, space);
      witness.failedOver();
    }
    rows.epoch += 1;
    acknowledged = null;
    for (const message of network.messages.slice()) if (message.state === 'made') network.forget(message);
  }

  function passTime(ms: number): void {
    now += ms;
    for (let at = wire.length - 1; at >= 0; at -= 1) {
      const message = wire[at];
      if (message === undefined || now <= message.until) continue;
      wire.splice(at, 1);
      if (message.isAwaited) message.answer('unknown');
    }
    noteClaims();
    for (const { timers } of gateways) for (const fire of timers) fire();
  }

  /** What a person does, on a gateway. @returns `null` where there is nothing of the kind to do */
  function deed(kind: Deed, gateway: Gateway): (() => Promise<unknown>) | null {
    const { store } = gateway;
    const id = (prefix: string): string => `${prefix}_${newId(gateway)}`;
    switch (kind) {
      case 'pause':
        return () => store.setPause({ ...pauseRequest({ id: id('pau'), workspace: 'w' }), until: null });
      case 'lift':
        return async () => {
          const { pauses } = await store.pauses('w');
          const first = pauses[0];
          if (first !== undefined) await store.liftPause('w', first.id, 'administrative', PERSON);
        };
      case 'policy':
        return async () => {
          left.policies += 1;
          const version = `v${left.policies}`;
          await store.activatePolicy(version, []);
          gateway.seen.policy = version;
        };
      case 'claim':
        return () => askForClaim(gateway, TARGET, 3000);
      case 'claim another':
        return () => askForClaim(gateway, `another of ${newId(gateway)}`, 3000);
      case 'release': {
        // Asked of the truth: lists for people are read in turns, which are of the clock and not of this world.
        const ids = claimsOf(truth).map((claim) => claim.id);
        return async () => {
          for (const claimId of ids) await store.releaseClaim('w', claimId, PERSON);
        };
      }
      case 'reserve':
        return () =>
          store.makeReservation({
            ...reservationRequest({ agentId: 'y', capacity: CAPACITY, ttlMs: 3000 }),
            id: id('rsv'),
            pool: POOL,
            workspace: 'w',
          });
      case 'vote': {
        const waiting = effectsOf(truth).find(({ life }) => life.state === 'pending_approval');
        if (waiting?.life.state !== 'pending_approval') return null;
        const { approvalId } = waiting.life;
        return async () => {
          await store.vote(
            voteRequest({ id: approvalId, digest: `digest:${waiting.idempotencyKey}` }, { workspace: 'w' }),
          );
          await call(gateway, waiting.idempotencyKey, approvalId);
        };
      }
      case 'sweep':
        return () => store.sweep(100);
      case 'resolve': {
        const unknown = effectsOf(truth).find(({ life }) => life.state === 'unknown');
        if (unknown === undefined) return null;
        const outcome = (happened.get(unknown.idempotencyKey) ?? 0) > 0 ? 'happened' : 'not_happened';
        return () => store.resolve(resolveRequest(unknown, outcome));
      }
    }
  }

  /** Keys that a gateway may be asked for next. */
  function asksOf(index: number): readonly string[] {
    if (scope.asks === undefined) return scope.keys;
    const next = scope.asks[scope.requests - left.requests];
    return next === undefined || next.gateway !== index ? [] : [next.key];
  }

  function actions(): readonly Action[] {
    const all: Action[] = [];
    const add = (name: string, weight: number, apply: () => void): void => void all.push({ name, weight, apply });
    const fault = (): void => void (left.faults -= 1);
    const faulty = left.faults > 0;
    for (const message of network.messages.slice()) {
      const { name, from, state, isForgotten, isRead } = message;
      const hear = (): void => {
        const gateway = gateways.find((one) => one.name === from);
        const heard = network.deliver(message, scope.isUpstreamPrompt);
        gateway?.heard.push(`${now - START} ${name} ${heard}`);
        acknowledged = null;
      };
      const fail = (): void =>
        void gateways.find((one) => one.name === from)?.heard.push(`${now - START} ${name} failed`);
      if (state === 'made') {
        add(`${name} is answered`, 8, hear);
        if (faulty && scope.isOnlyLoss !== true)
          add(`the answer to ${name} is lost`, 1, () => (fault(), fail(), network.forget(message)));
        continue;
      }
      add(`${name} is made`, 8, () => {
        if (scope.failovers > 0 && acknowledged === null && !network.messages.some((one) => one.state === 'made'))
          acknowledged = structuredClone(rows);
        network.make(message);
        if (isRead && scope.isUpstreamPrompt && !isForgotten) hear();
      });
      if (isForgotten) {
        add(`${name} never arrives`, 1, () => network.drop(message));
        continue;
      }
      if (!faulty || (isRead && scope.isOnlyLoss === true)) continue;
      add(`${name} is lost`, 1, () => (fault(), fail(), network.drop(message)));
      if (isRead || scope.isOnlyLoss === true) continue;
      add(`${name} is late`, 1, () => (fault(), fail(), network.forget(message)));
      add(`${name} is refused`, 1, () => (fault(), network.refuse(message)));
    }
    for (const one of wire) {
      const answer = (act_: boolean, outcome: 'committed' | 'failed' | 'unknown' | null) => (): void => {
        if (act_) act(one.key);
        if (outcome === null) one.isAwaited = false;
        else wire.splice(wire.indexOf(one), 1);
        if (outcome !== null || act_) {
          if (wire.includes(one)) wire.splice(wire.indexOf(one), 1);
        }
        if (outcome !== null) one.answer(outcome);
      };
      if (one.isAwaited) {
        add(`upstream does ${one.name}`, 6, answer(true, 'committed'));
        add(`upstream refuses ${one.name}`, 2, answer(false, 'failed'));
        add(`upstream does ${one.name}; the answer is lost`, 1, answer(true, 'unknown'));
        add(`the request of ${one.name} is lost`, 1, answer(false, 'unknown'));
        if (now >= one.timeoutAt)
          add(`${one.name} is waited for no longer`, 1, () => {
            one.isAwaited = false;
            one.answer('unknown');
          });
      } else
        add(`upstream does ${one.name}, late`, 1, () => {
          act(one.key);
          wire.splice(wire.indexOf(one), 1);
        });
    }
    for (const [at, { gateway, again }] of spilled.entries())
      add(`${gateway.name} settles again`, 3, () => {
        spilled.splice(at, 1);
        gateway.heard.push(`${now - START} again`);
        again();
      });
    for (const [index, gateway] of gateways.entries()) {
      if (left.requests > 0)
        for (const key of asksOf(index))
          add(`${gateway.name} is asked for ${key}`, 2, () => {
            left.requests -= 1;
            gateway.heard.push(`${now - START} ${key}`);
            start(() => call(gateway, key));
          });
      if (left.deeds > 0)
        for (const kind of scope.people) {
          const work = deed(kind, gateway);
          if (work !== null)
            add(`a person on ${gateway.name}: ${kind}`, 0.4, () => {
              left.deeds -= 1;
              gateway.heard.push(`${now - START} ${kind}`);
              start(work);
            });
        }
      if (left.crashes > 0)
        add(`${gateway.name} crashes`, 0.3, () => {
          left.crashes -= 1;
          crash(index);
        });
    }
    if (left.failovers > 0)
      add('the store fails over', 0.3, () => {
        left.failovers -= 1;
        failOver();
      });
    if (left.passings > 0)
      for (const ms of scope.passes)
        add(`${ms} ms pass`, 0.8, () => {
          left.passings -= 1;
          passTime(ms);
        });
    return all;
  }

  async function turn(): Promise<void> {
    await immediate();
    network.endTurn();
  }

  /** All that is on its way arrives, in order. */
  async function pump(): Promise<void> {
    for (let rounds = 0; rounds < 2000; rounds += 1) {
      await turn();
      if (broken !== null) return;
      const message = network.messages[0];
      const spill = spilled[0];
      if (message !== undefined) {
        if (message.state === 'sent') network.make(message);
        if (!message.isForgotten) network.deliver(message, false);
      } else if (spill !== undefined) {
        spilled.shift();
        spill.again();
      } else return;
    }
    broken ??= 'it comes to no end';
  }

  /** By one of them: which one has nothing to do with what there is to sweep. */
  async function sweepAll(): Promise<void> {
    const gateway = gateways[now % gateways.length];
    if (gateway !== undefined) start(() => gateway.store.sweep(100));
    await pump();
  }

  async function end(): Promise<string | null> {
    isHealed = true;
    for (const ms of AT_THE_END) {
      await pump();
      passTime(ms);
      await pump();
      await sweepAll();
    }
    const left_ = effectsOf(truth).find(
      ({ life }) => life.state === 'unknown' && unavailable.has(life.lease.fence.nonce),
    );
    if (left_ !== undefined) broken ??= `${left_.id}, whose admission was not answered, is left as unknown`;
    for (;;) {
      const gateway = gateways[0];
      const person = gateway === undefined ? null : deed('resolve', gateway);
      if (person === null || broken !== null) break;
      start(person);
      await pump();
    }
    for (const [index, key] of [...scope.keys, ...scope.keys].entries()) {
      const gateway = gateways[index % gateways.length];
      if (broken !== null || gateway === undefined) return broken;
      start(() => call(gateway, key));
      await pump();
    }
    passTime(40_000);
    await sweepAll();
    const first = gateways[0];
    if (broken !== null || first === undefined) return broken;
    let found: string | null | undefined;
    start(async () => {
      found = await brokenAtTheEnd(truth, first.store);
    });
    // It reads record by record, with pauses in between.
    for (let rounds = 0; rounds < 2000 && found === undefined && broken === null; rounds += 1) {
      await pump();
      await setTimeout(1);
    }
    return broken ?? (found === undefined ? 'the check at the end comes to no end' : found);
  }

  function signature(): string {
    const named = (text: string): string =>
      [...boots].reduce((known, boot, index) => known.replaceAll(boot, `boot ${index}`), text);
    const space = [...rows.spaces].map(([name, { rows: kept, counters, ledger }]) => [
      name,
      [...kept.values()].map(({ kind, id, version, text }) => [kind, id, version, text]).sort(byText),
      [...counters.values()].map(({ name: of, held, spent }) => [of.name, held, [...spent]]).sort(byText),
      ledger.length,
    ]);
    return named(
      JSON.stringify([
        space,
        now,
        rows.epoch,
        gateways.map(({ name, heard }) => [name, heard]),
        network.messages.map(({ name, state, isForgotten }) => [name, state, isForgotten]).sort(byText),
        wire.map(({ name, until, isAwaited }) => [name, until, isAwaited]).sort(byText),
        [...happened],
        [left.requests, left.faults, left.crashes, left.failovers, left.deeds, left.passings],
      ]),
    );
  }

  for (let index = 0; index < scope.gateways; index += 1) {
    const gateway = open(index, 1);
    gateways.push(gateway);
    start(() => refresh(gateway));
    await pump();
  }
  const [first] = gateways;
  if (first !== undefined)
    for (const [n, ttlMs] of (scope.claims ?? []).entries()) start(() => askForClaim(first, `there ${n}`, ttlMs));
  await pump();
  return { truth, broken: () => broken, actions, turn, signature, end };
}

function byText(one: readonly unknown[], other: readonly unknown[]): number {
  return String(one) < String(other) ? -1 : 1;
}
