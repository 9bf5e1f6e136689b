import type { EffectAction, EffectRecord, Stage, Tombstone } from '../effects/model/effect.ts';
import type { VerdictTrace } from '../effects/model/verdict.ts';
import {
  decodeEffect,
  encodeCall,
  encodeLife,
  encodeOutcome,
  encodeTerms,
  type SaidOutcome,
  sameCall,
} from './effect-text.ts';
import type { Place } from '../stores/port.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { type Kind, stock, textKind } from './kind.ts';

/** What stands in a row of an effect: its record, or what is left of it. */
export type StoredEffect =
  | { readonly kind: 'effect'; readonly effect: EffectRecord }
  | { readonly kind: 'tombstone'; readonly tombstone: Tombstone };

/** Lists of effects. */
export const EFFECTS = 'effects';
export const TOMBSTONES = 'tombstones';
export const DENIED = 'denied';
/** Executing effects by the end of their lease. */
export const LEASES = 'leases';
export const effectsOfAgent = (agentId: string): string => `agent:${agentId}`;
/** Effects in a state that few are in. */
export const effectsIn = (state: 'pending_approval' | 'unknown' | 'rejected' | 'failed'): string => `state:${state}`;

/** Texts one below the other: JSON has no line ends of its own. */
function encodeEffect(effect: EffectRecord): string {
  const outcome = outcomeOf(effect);
  const call = callText(effect);
  const terms = termsText(effect);
  const parts = [call, terms.text, encodeLife(effect, terms.stages, outcome !== null)];
  if (outcome !== null) parts.push(encodeOutcome(outcome));
  return parts.join('\n');
}

/** Settling changes neither what was asked for nor the terms: their texts are made once. */
const callTexts = new WeakMap<EffectAction, { readonly of: EffectRecord; readonly text: string }>();
const termsTexts = new WeakMap<
  VerdictTrace,
  { readonly of: EffectRecord; readonly text: string; readonly stages: number }
>();

function callText(effect: EffectRecord): string {
  const known = callTexts.get(effect.action);
  if (known !== undefined && known.of.id === effect.id && sameCall(known.of, effect)) return known.text;
  const text = encodeCall(effect);
  callTexts.set(effect.action, { of: effect, text });
  return text;
}

function termsText(effect: EffectRecord): { readonly text: string; readonly stages: number } {
  const known = termsTexts.get(effect.trace);
  if (known !== undefined && known.of.holds === effect.holds && beginsWith(effect.stages, known.of.stages))
    return known;
  const made = { of: effect, text: encodeTerms(effect), stages: effect.stages.length };
  termsTexts.set(effect.trace, made);
  return made;
}

function beginsWith(stages: readonly Stage[], first: readonly Stage[]): boolean {
  return first.every((stage, index) => stages[index] === stage);
}

function outcomeOf({ life }: EffectRecord): SaidOutcome | null {
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

const kind: Kind<StoredEffect> = {
  name: 'effect',
  encode: (stored) =>
    stored.kind === 'effect' ? encodeEffect(stored.effect) : `${TOMBSTONE_MARK}${JSON.stringify(stored.tombstone)}`,
  decode(text) {
    if (text.startsWith(TOMBSTONE_MARK))
      return { kind: 'tombstone', tombstone: JSON.parse(text.slice(TOMBSTONE_MARK.length)) as Tombstone };
    const [call = '', terms = '', life = '', outcome = null] = text.split('\n');
    return { kind: 'effect', effect: decodeEffect({ call, terms, life, outcome }).record };
  },
  places: (stored) =>
    stored.kind === 'effect' ? placesOf(stored.effect) : [{ list: TOMBSTONES, at: stored.tombstone.at }],
};

function placesOf({ createdAt, actor, life }: EffectRecord): readonly Place[] {
  const always: readonly Place[] = [
    { list: EFFECTS, at: createdAt },
    { list: effectsOfAgent(actor.agentId), at: createdAt },
  ];
  switch (life.state) {
    case 'executing':
      return [...always, { list: LEASES, at: life.lease.leaseEnd }];
    case 'pending_approval':
    case 'unknown':
    case 'rejected':
    case 'failed':
      return [...always, { list: effectsIn(life.state), at: createdAt }];
    case 'denied':
      return [...always, { list: DENIED, at: life.at }];
    case 'committed':
      return always;
  }
}

export const effectRows = stock(kind);

/** The effect that an idempotency key is bound to: its id. */
export const keyRows = stock(textKind('key'));

/** Looks at the effect that a key is bound to: mostly at none, and where there is one its record is needed too. */
export function boundId(draft: Draft, idempotencyKey: string): string | null {
  return keyRows.get(draft, idempotencyKey, { ...MOSTLY_ABSENT, follow: effectRows.kind });
}
