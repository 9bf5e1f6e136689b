import type { ArchivedReceipt, EffectRecord, SignedReceipt, Stage, Tombstone } from '../effects/model/effect.ts';
import {
  decodeEffect,
  encodeCall,
  encodeLife,
  encodeOutcome,
  encodeTerms,
  isCall,
  type KnownOutcome,
} from './effect-text.ts';
import type { Place } from '../stores/port.ts';
import { type Draft, type ReadHint, MOSTLY_ABSENT } from './draft.ts';
import { type Kind, repository, textKind } from './kind.ts';
import { readOwnJson } from '../json/text.ts';

/** The content of an effect's row: its record, or what is left of it. */
export type StoredEffect =
  | {
      readonly kind: 'effect';
      readonly effect: EffectRecord;
      /** Set once it was written or read. */
      texts?: EffectTexts;
    }
  | { readonly kind: 'tombstone'; readonly tombstone: Tombstone };

/** A settlement changes neither the call nor the terms, so their texts are made once. */
interface EffectTexts {
  readonly call: string;
  readonly terms: string;
  readonly admittedStages: number;
}

export const EFFECTS = 'effects';
export const TOMBSTONES = 'tombstones';
export const DENIED = 'denied';
/** Executing effects, ordered by the end of their lease. */
export const LEASES = 'leases';
export const effectsOfAgent = (agentId: string): string => `agent:${agentId}`;
/** Effects whose records are in the archive, by when they were made, as in the list of this name. */
export const archivedOf = (list: string): string => `archived:${list}`;
/** Unknown effects of a tool that no gateway has probed yet, by when they became unknown. */
export const unprobedOf = (tool: string): string => `unprobed:${tool}`;
/** Unknown effects of a tool that a gateway probes again, by when. */
export const probedAgain = (tool: string): string => `probed:${tool}`;
/** Effects in one of the states that few effects are in. */
export const effectsIn = (state: 'pending_approval' | 'unknown' | 'rejected' | 'failed'): string => `state:${state}`;

/** One text per line: JSON on one line contains no line ends. */
function encodeEffect(effect: EffectRecord, { call, terms, admittedStages }: EffectTexts): string {
  const known = outcomeOf(effect);
  const begin = `${call}\n${terms}\n${encodeLife(effect, admittedStages)}`;
  if (known === null) return begin;
  const { outcome, payload } = encodeOutcome(known);
  return payload === null ? `${begin}\n${outcome}` : `${begin}\n${outcome}\n${payload}`;
}

function textsOf(effect: EffectRecord, before: StoredEffect | null): EffectTexts {
  const was = before?.kind === 'effect' ? before : null;
  const texts = was?.texts ?? null;
  if (was === null || texts === null)
    return { call: encodeCall(effect), terms: encodeTerms(effect), admittedStages: effect.stages.length };
  const { call, terms, admittedStages } = texts;
  const isSameCall = isCall(was.effect, effect);
  const areSameTerms =
    was.effect.trace === effect.trace &&
    was.effect.holds === effect.holds &&
    beginsWith(effect.stages, was.effect.stages, admittedStages);
  if (isSameCall && areSameTerms) return texts;
  return {
    call: isSameCall ? call : encodeCall(effect),
    terms: areSameTerms ? terms : encodeTerms(effect),
    admittedStages: areSameTerms ? admittedStages : effect.stages.length,
  };
}

function beginsWith(stages: readonly Stage[], first: readonly Stage[], count: number): boolean {
  for (let index = 0; index < count; index += 1) if (stages[index] !== first[index]) return false;
  return stages.length >= count;
}

function outcomeOf({ life }: EffectRecord): KnownOutcome | null {
  switch (life.state) {
    case 'committed':
      return { evidence: life.evidence, receipt: life.receipt, result: life.result };
    case 'failed':
      return { evidence: life.evidence, receipt: null, result: life.result };
    case 'pending_approval':
    case 'executing':
    case 'unknown':
    case 'rejected':
    case 'denied':
      return null;
  }
}

const TOMBSTONE_MARK = 'tombstone\n';

/** What is left of an effect, by the text of its row; `null`: all of it, which is not decoded for that. */
export function tombstoneIn(text: string): Tombstone | null {
  return text.startsWith(TOMBSTONE_MARK) ? readOwnJson<Tombstone>(text.slice(TOMBSTONE_MARK.length)) : null;
}

/** The receipt of an effect; `null`: it has none. Of one that is archived only the id stands here. */
export function receiptIn(stored: StoredEffect): SignedReceipt | ArchivedReceipt | null {
  const outcome = stored.kind === 'effect' ? stored.effect.life : stored.tombstone.outcome;
  return outcome.state === 'committed' ? outcome.receipt : null;
}

const kind: Kind<StoredEffect> = {
  name: 'effect',
  encode(stored, before) {
    if (stored.kind === 'tombstone') return `${TOMBSTONE_MARK}${JSON.stringify(stored.tombstone)}`;
    const texts = textsOf(stored.effect, before);
    stored.texts = texts;
    return encodeEffect(stored.effect, texts);
  },
  decode(text) {
    const tombstone = tombstoneIn(text);
    if (tombstone !== null) return { kind: 'tombstone', tombstone };
    const [call = '', terms = '', life = '', outcome = null, payload = null] = text.split('\n');
    const known = outcome === null ? null : { outcome, payload };
    const { record, admittedStages } = decodeEffect({ call, terms, life, known });
    return { kind: 'effect', effect: record, texts: { call, terms, admittedStages } };
  },
  // Thousands of settled effects in memory would make garbage collection slower for every call.
  isOver: (stored) => stored.kind === 'tombstone' || stored.effect.life.state === 'committed',
  places: (stored) => (stored.kind === 'effect' ? placesOf(stored.effect) : placesOfTombstone(stored.tombstone)),
};

function placesOfTombstone({ at, archived, agentId, outcome }: Tombstone): readonly Place[] {
  const forgotten: Place = { list: TOMBSTONES, at };
  if (archived === undefined) return [forgotten];
  const lists = [
    EFFECTS,
    effectsOfAgent(agentId),
    ...(outcome.state === 'committed' ? [] : [effectsIn(outcome.state)]),
  ];
  return [forgotten, ...lists.map((list) => ({ list: archivedOf(list), at: archived.createdAt }))];
}

function placesOf({ createdAt, actor, action, life }: EffectRecord): readonly Place[] {
  const always: readonly Place[] = [
    { list: EFFECTS, at: createdAt },
    { list: effectsOfAgent(actor.agentId), at: createdAt },
  ];
  switch (life.state) {
    case 'executing':
      return [...always, { list: LEASES, at: life.lease.leaseEnd }];
    case 'unknown': {
      const places = [...always, { list: effectsIn(life.state), at: createdAt }];
      if (life.probeAt === null) return places;
      return life.probeAt === undefined
        ? [...places, { list: unprobedOf(action.tool), at: life.at }]
        : [...places, { list: probedAgain(action.tool), at: life.probeAt }];
    }
    case 'pending_approval':
    case 'rejected':
    case 'failed':
      return [...always, { list: effectsIn(life.state), at: createdAt }];
    case 'denied':
      return [...always, { list: DENIED, at: life.at }];
    case 'committed':
      return always;
  }
}

export const effectRows = repository(kind);

/** A settled effect as the text that is kept of it for proof: without its params and its answer. */
export function textForProof(effect: EffectRecord): string {
  const { life } = effect;
  const kept: EffectRecord = {
    ...effect,
    sealed: null,
    life: life.state === 'committed' || life.state === 'failed' ? { ...life, result: null } : life,
  };
  return encodeEffect(kept, textsOf(kept, null));
}

export const keyRows = repository(textKind('key'));

const BOUND: ReadHint = { ...MOSTLY_ABSENT, follow: effectRows.kind };

/** Mostly the key is bound to no effect. If it is, the step needs the effect's record too. */
export function boundId(draft: Draft, idempotencyKey: string): string | null {
  return keyRows.get(draft, idempotencyKey, BOUND);
}
