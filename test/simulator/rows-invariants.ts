import type { ClaimRecord } from '../../src/effects/model/claim.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import type { Admission, AdmitRequest, EffectStore } from '../../src/effects/store.ts';
import { pauseRows, policyRows } from '../../src/records/control-rows.ts';
import { effectRows } from '../../src/records/effect-rows.ts';
import { budgetSum } from '../../src/records/counters.ts';
import { capSum, countedRows } from '../../src/records/counted.ts';
import {
  capsOfClaim,
  capsOfReservation,
  claimRows,
  countedClaim,
  countedReservation,
  poolRows,
  reservationRows,
} from '../../src/records/held-rows.ts';
import { eventOf } from '../../src/records/view.ts';
import type { Answer, Change, Row } from '../../src/stores/port.ts';
import { commitTo, type MapRows } from '../port/map-rows.ts';
import { CAPACITY, CLAIMANT, CLAIMS_AT_MOST, LIMITS, POOL, TARGET } from './rows-calls.ts';

/** How far from the moment that a step was run at its change may be made, ms. */
const SPAN_MS = 2000;

/** What is true beside what the store says. */
export interface Truth {
  readonly rows: MapRows;
  now(): number;
  /** How often the upstream did the action of each key. */
  readonly happened: ReadonlyMap<string, number>;
  /** Admissions that were asked for, by nonce. */
  readonly asked: ReadonlyMap<string, AdmitRequest>;
}

type Rows = ReadonlyMap<string, Row & { readonly id: string; readonly kind: string }>;

export function rowsOf({ rows }: Truth, workspace = 'w'): Rows {
  return rows.spaces.get(workspace)?.rows ?? new Map();
}

export function effectsOf(truth: Truth): readonly EffectRecord[] {
  const found: EffectRecord[] = [];
  for (const row of rowsOf(truth).values()) {
    if (row.kind !== effectRows.kind) continue;
    const stored = effectRows.of(row);
    if (stored.kind === 'effect') found.push(stored.effect);
  }
  return found;
}

/** What is taken of each figure, by its name. */
export function takenNow({ rows, now }: Truth): ReadonlyMap<string, number> {
  const sums = [...(rows.spaces.get('w')?.counters.values() ?? [])].map(({ name }) => name);
  const answer = commitTo(
    rows,
    {
      id: 'look',
      workspace: 'w',
      epoch: rows.epoch,
      at: 0,
      from: now() + 1,
      until: now(),
      guards: [],
      puts: [],
      sums: sums.map((sum) => ({ ...sum, hold: 0, spend: 0, limit: null, most: null, text: null })),
      resets: [],
      events: [],
    },
    now(),
  );
  return new Map(sums.map(({ name }, index) => [name, taken(answer, index)]));
}

function taken({ counters }: Answer, index: number): number {
  const counter = counters[index];
  return counter === undefined ? 0 : counter.spent + counter.held;
}

/** By the first word of a cap's name. */
const CLAIMS_AT_MOST_OF: Readonly<Record<string, number>> = {
  claims_of_agent: CLAIMS_AT_MOST,
  claims_of_key: 100,
  reservations_of_key: 100,
};
const COUNTS: ReadonlySet<string> = new Set([countedRows.kind, claimRows.kind, reservationRows.kind]);

/** How many claims the agent has that asks for them. */
export function claimsNow(truth: Truth, now: number): number {
  return claimsOf(truth).filter(({ agentId, expiresAt }) => agentId === CLAIMANT.agentId && expiresAt > now).length;
}

/** All claims on record, in no order. */
export function claimsOf(truth: Truth): readonly ClaimRecord[] {
  return [...rowsOf(truth).values()].filter(({ kind }) => kind === claimRows.kind).map((row) => claimRows.of(row));
}

/** Each figure of a cap is the number of rows that name it, and these rows are those of what is on record. */
function countedRightly(truth: Truth): string | null {
  const rows = [...rowsOf(truth).values()];
  const caps = new Map<string, number>();
  const counted = new Map<string, string>();
  for (const row of rows) {
    if (row.kind !== countedRows.kind) continue;
    const { caps: names, until } = countedRows.of(row);
    for (const name of names) caps.set(capSum(name).name, (caps.get(capSum(name).name) ?? 0) + 1);
    counted.set(row.id, `${until} ${names.join()}`);
  }
  for (const { name, held } of truth.rows.spaces.get('w')?.counters.values() ?? [])
    if (name.group === capSum('').group && held !== (caps.get(name.name) ?? 0))
      return `${name.name} says ${held}, and ${caps.get(name.name) ?? 0} count`;
  // By the clock of a gateway something may be over that is not yet.
  const over = truth.now() + SPAN_MS;
  const onRecord = new Map<string, string>();
  const put = (thing: string, until: number, of: readonly { readonly name: string }[]): void => {
    if (of.length > 0) onRecord.set(thing, `${until} ${of.map(({ name }) => name).join()}`);
  };
  for (const row of rows) {
    if (row.kind === claimRows.kind) {
      const claim = claimRows.of(row);
      if (claim.expiresAt > over) put(countedClaim(row.id), claim.expiresAt, capsOfClaim(claim));
    }
    if (row.kind === reservationRows.kind) {
      const reservation = reservationRows.of(row);
      if (reservation.expiresAt > over)
        put(countedReservation(row.id), reservation.expiresAt, capsOfReservation(reservation));
    }
  }
  for (const [thing, said] of onRecord)
    if (counted.get(thing) !== said) return `${thing} is on record as ${said}, and counts as ${counted.get(thing)}`;
  for (const [thing, said] of counted)
    if (Number(said.split(' ')[0]) > over && !onRecord.has(thing)) return `${thing} counts, and is not on record`;
  return null;
}

/** Looks at each change that the store makes. */
export interface Witness {
  /** @returns what is broken by it, or `null` */
  saw(change: Change, answer: Answer): string | null;
  /** What was not acknowledged is gone. */
  failedOver(): void;
}

export function createWitness(truth: Truth): Witness {
  let before = new Map<string, EffectRecord>();

  function settledStays(effect: EffectRecord): string | null {
    const was = before.get(effect.id);
    if (was === undefined || was.life.state === effect.life.state) return null;
    if (was.life.state === 'committed') return `${effect.id} was committed, and is ${effect.life.state}`;
    if (was.life.state === 'failed' && effect.attempt <= was.attempt && effect.life.state !== 'pending_approval')
      return `${effect.id} had failed, and is ${effect.life.state} without another attempt`;
    return null;
  }

  function admittedRightly({ id, life, holds }: EffectRecord): string | null {
    if (life.state !== 'executing') return null;
    const { fence, admittedAt } = life.lease;
    const request = truth.asked.get(fence.nonce);
    if (request === undefined) return `${id} was admitted, and nobody asked for it`;
    const rows = [...rowsOf(truth).values()];
    const policyRow = rows.find(({ kind }) => kind === policyRows.kind);
    const pausesRow = rows.find(({ kind }) => kind === pauseRows.kind);
    const policy = policyRow === undefined ? '' : policyRows.of(policyRow);
    const pauses = pausesRow === undefined ? 0 : pauseRows.of(pausesRow).version;
    if (request.seen.policy !== policy) return `${id} was admitted under policy ${request.seen.policy}, not ${policy}`;
    if (request.seen.pauses !== pauses) return `${id} was admitted under pauses that are not in force`;
    const now = truth.now();
    if (Math.abs(now - admittedAt) > SPAN_MS) return `${id} was admitted at another time than it was decided for`;
    for (const { window } of holds) {
      const [kind, start, end] = window.split(':');
      if (kind === 'c' && (now < Number(start) - SPAN_MS || now >= Number(end)))
        return `${id} holds in a window that is over`;
    }
    return null;
  }

  function oneAtATime(effects: readonly EffectRecord[]): string | null {
    const holders = new Set<string>();
    let units = 0;
    for (const { claims, uses, life, actor } of effects) {
      if (life.state !== 'executing') continue;
      if (claims.includes(TARGET)) holders.add(actor.agentId);
      for (const use of uses) if (use.pool === POOL) units += use.units;
    }
    if (holders.size > 1) return 'two agents hold one claim';
    return units > CAPACITY ? 'more of the pool is in use than there is' : null;
  }

  return {
    saw(change, answer) {
      if (answer.kind !== 'done' || change.workspace !== 'w') return null;
      for (const [index, { name, group, limit }] of change.sums.entries()) {
        const most = group.startsWith('budget ')
          ? LIMITS[group.slice('budget '.length)]
          : group === capSum('').group
            ? CLAIMS_AT_MOST_OF[name.split(' ')[1] ?? '']
            : limit;
        if (most !== null && most !== undefined && taken(answer, index) > most) return `${group} is over its limit`;
      }
      const isCounted = change.puts.some(({ kind }) => COUNTS.has(kind));
      const miscounted = isCounted ? countedRightly(truth) : null;
      if (miscounted !== null) return miscounted;
      const ledger = truth.rows.spaces.get('w')?.ledger ?? [];
      for (const [index] of change.events.entries())
        if (ledger[answer.seq + index - 1]?.text !== change.events[index]?.text)
          return 'the ledger does not say what was made';
      if (!change.puts.some(({ kind }) => kind === effectRows.kind)) return null;
      const effects = effectsOf(truth);
      const isAdmission = change.events.some(({ about, text }) => eventOf(about, text).kind === 'effect.admitted');
      for (const effect of effects) {
        const happened = truth.happened.get(effect.idempotencyKey) ?? 0;
        const { state } = effect.life;
        if (state === 'committed' && happened === 0) return `${effect.id} is committed and never happened`;
        if ((state === 'failed' || state === 'denied') && happened > 0 && bound(effect))
          return `${effect.id} is ${state} and happened`;
        if (effect.closed) return `${effect.id} contradicts itself`;
        const isPut = change.puts.some(({ kind, id }) => kind === effectRows.kind && id === effect.id);
        const broken = settledStays(effect) ?? (isAdmission && isPut ? admittedRightly(effect) : null);
        if (broken !== null) return broken;
      }
      before = new Map(effects.map((effect) => [effect.id, effect]));
      return oneAtATime(effects);
    },
    failedOver() {
      before = new Map(effectsOf(truth).map((effect) => [effect.id, effect]));
    },
  };

  /** A refusal has an id of its own: the key is bound to another effect, or to none. */
  function bound({ id, idempotencyKey }: EffectRecord): boolean {
    return rowsOf(truth).get(`key\n${idempotencyKey}`)?.text === id;
  }
}

/** What a gateway is told has to stand in the rows. @param most what was taken of each figure during the call, at most */
export function answeredTruly(truth: Truth, admission: Admission, most: ReadonlyMap<string, number>): string | null {
  const stored = (id: string): EffectRecord | undefined => effectsOf(truth).find((effect) => effect.id === id);
  switch (admission.kind) {
    case 'dispatch': {
      const { effect, ledger } = admission;
      const there = stored(effect.id);
      if (there === undefined || there.attempt < effect.attempt)
        return `${effect.id} may be sent, and is not on record`;
      const entry = truth.rows.spaces.get('w')?.ledger[ledger.seq - 1];
      const said = entry === undefined ? null : eventOf(entry.about, entry.text);
      return said?.kind === 'effect.admitted' && said.effectId === effect.id
        ? null
        : `${effect.id} may be sent, and its place in the ledger does not say so`;
    }
    case 'existing': {
      const there = stored(admission.effect.id);
      if (there === undefined) return `${admission.effect.id} is answered, and is not on record`;
      if (admission.effect.life.state === 'committed' && there.life.state !== 'committed')
        return `${there.id} is answered as committed, and is ${there.life.state}`;
      return null;
    }
    case 'pending':
      return stored(admission.effect.id) === undefined ? `${admission.effect.id} waits, and is not on record` : null;
    case 'refused': {
      if (admission.reason.code !== 'budget_exceeded') return null;
      const [row] = admission.budgets;
      if (row === undefined) return null;
      return (most.get(budgetSum(row).name) ?? 0) + 2 > row.limit
        ? null
        : `${admission.effectId} was refused for budget ${row.budget}, which had room all the time`;
    }
    case 'expired':
    case 'stale':
    case 'exceeds':
      return null;
  }
}

/** What has to hold when all is over: nothing runs, nothing is on its way, and people have said what they know. */
export async function brokenAtTheEnd(truth: Truth, store: EffectStore): Promise<string | null> {
  for (const { id, life, holdState } of effectsOf(truth)) {
    if (life.state === 'executing' || life.state === 'pending_approval') return `${id} is stuck: ${life.state}`;
    if (life.state !== 'unknown' && holdState === 'held') return `${id} is ${life.state} and holds`;
  }
  const space = truth.rows.spaces.get('w');
  for (const { name, held } of space?.counters.values() ?? [])
    if (held !== 0 && !effectsOf(truth).some(({ life }) => life.state === 'unknown'))
      return `${name.name} holds ${held} for nobody`;
  for (const row of rowsOf(truth).values()) {
    if (row.kind === claimRows.kind && claimRows.of(row).runningEffects.length > 0) return `claim ${row.id} is stuck`;
    if (row.kind === poolRows.kind && poolRows.of(row).uses.some(({ until }) => until === null))
      return `pool ${row.id} is stuck`;
  }
  for (const [index, { seq }] of (space?.ledger ?? []).entries()) if (seq !== index + 1) return 'the ledger has a gap';
  const policy = (workspace: string): string | undefined =>
    [...rowsOf(truth, workspace).values()].find(({ kind }) => kind === policyRows.kind)?.text;
  if (policy('w') !== policy(INSTALLATION)) return 'the workspace is not under the policy in force';
  const differences = await checkWorkspace(store, 'w');
  if (differences === null) return 'the workspace could not be checked';
  return differences.length === 0 ? null : `fsck: ${JSON.stringify(differences)}`;
}
