import { hash } from 'node:crypto';
import { canonicalJson } from '../json/text.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { memberAt } from './commitments.ts';

/** What the line of an effect and its receipt both say: the name, and the place of it in each. */
const SAID_TWICE: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  ['receipt_id', ['receipt_id'], ['id']],
  ['workspace', ['workspace'], ['ws']],
  ['decision', ['decision'], ['effect', 'decision']],
  ['attempt', ['attempt'], ['effect', 'attempt']],
  ['settled_by', ['settled_by', 'by'], ['effect', 'settled_by', 'by']],
  ['action_type', ['action_type'], ['action', 'type']],
  ['tool', ['tool'], ['action', 'tool']],
  ['agent_id', ['agent_id'], ['actor', 'agent_id']],
  ['key_id', ['key_id'], ['actor', 'key_id']],
  ['user', ['user'], ['actor', 'user']],
  ['via', ['via'], ['actor', 'via']],
  ['policy.version', ['policy', 'version'], ['policy', 'version']],
  ['policy.matched', ['policy', 'matched'], ['policy', 'matched']],
  ['upstream', ['upstream'], ['upstream', 'name']],
  ['evidence.status', ['evidence', 'status'], ['upstream', 'status']],
  ['evidence.started_at', ['evidence', 'started_at'], ['upstream', 'started']],
  ['evidence.ended_at', ['evidence', 'ended_at'], ['upstream', 'ended']],
];

const OF_ATTEMPT: ReadonlySet<string> = new Set(['evidence.status', 'evidence.started_at', 'evidence.ended_at']);

/** Those whose line has status and times of the attempt itself: after a resolve or a probe it has when it was admitted. */
const BY_ANSWER: ReadonlySet<Json | undefined> = new Set(['owner', 'late_answer']);

/** Whether an effect was settled by its answer. @param effect its line, or that member of its receipt */
export function isSettledByAnswer(effect: Json | undefined): boolean {
  return isJsonObject(effect) && BY_ANSWER.has(memberAt(effect, ['settled_by', 'by']));
}

/** What stands at the places of one side, as texts. */
function textsAt(of: JsonObject, side: 1 | 2): readonly string[] {
  const isOfAttempt = isSettledByAnswer(side === 1 ? of : memberAt(of, ['effect']));
  return SAID_TWICE.map((member) =>
    OF_ATTEMPT.has(member[0]) && !isOfAttempt ? '' : textOf(memberAt(of, member[side])),
  );
}

/** Letters of what tells the values of one member apart; an edit is found by the digest of all. */
const LETTERS = 4;

/** What a receipt says that the line of its effect has to say as well, in little room: a bundle has many. */
export function saidByReceipt(payload: JsonObject): string {
  return digestOf(textsAt(payload, 2));
}

/** The names of what the line of an effect says differently than its receipt; `null`: nothing. */
export function differingMembers(line: JsonObject, said: string): readonly string[] | null {
  const own = digestOf(textsAt(line, 1));
  if (own === said) return null;
  const part = (of: string, index: number): string => of.slice(index * LETTERS, (index + 1) * LETTERS);
  return SAID_TWICE.flatMap(([name], index) => (part(own, index) === part(said, index) ? [] : [name]));
}

/** Some letters of the digest of each, and then the digest of all. */
function digestOf(texts: readonly string[]): string {
  const parts = texts.map((text) => hash('sha256', text, 'base64url').slice(0, LETTERS));
  return parts.join('') + hash('sha256', canonicalJson(texts), 'base64url');
}

/** Rules of a receipt say also what they do; those of a line are names alone. */
export function textOf(value: Json | undefined): string {
  if (value === undefined) return '';
  const names = isJsonArray(value) ? value.map((one) => (isJsonObject(one) ? (one['rule'] ?? null) : one)) : value;
  return canonicalJson(names);
}
