import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { memberAt } from './commitments.ts';
import { isSettledByAnswer, textOf } from './effect-lines.ts';

/** What an event and the receipt of its effect both say: the name, and the place of it in each. */
const SAID_TWICE: Readonly<
  Record<string, readonly (readonly [name: string, inEvent: readonly string[], inReceipt: readonly string[]])[]>
> = {
  'effect.admitted': [
    ['agent', ['actor', 'id'], ['actor', 'agent_id']],
    ['attempt', ['data', 'attempt'], ['effect', 'attempt']],
    ['tool', ['data', 'tool'], ['action', 'tool']],
    ['policy_version', ['data', 'policy_version'], ['policy', 'version']],
    ['rules', ['data', 'rules'], ['policy', 'matched']],
    ['beyond', ['data', 'beyond'], ['policy', 'beyond']],
  ],
  'execution.started': [['at', ['at'], ['upstream', 'started']]],
  'execution.succeeded': [
    ['attempt', ['data', 'attempt'], ['effect', 'attempt']],
    ['status', ['data', 'status'], ['upstream', 'status']],
  ],
  'effect.resolved': [['forced', ['data', 'forced'], ['effect', 'settled_by', 'forced']]],
  'allowance.used': [
    ['allowance_id', ['data', 'allowance_id'], ['allowance', 'id']],
    ['given_by', ['data', 'given_by'], ['allowance', 'by']],
    ['used', ['data', 'used'], ['allowance', 'use']],
  ],
};

/** What events say of an effect whose receipt has not come yet. */
interface Told {
  /** Of the last attempt: what its events say, and where the receipt has it, by the name and the event. */
  said: Map<string, readonly [text: string, inReceipt: readonly string[]]>;
  /** The request for approval that was seen to be made. */
  asked: Json | undefined;
  /** The request that the attempt was admitted with; `null`: that event was not seen. */
  admittedWith: Json | undefined;
  votes: { readonly request: Json | undefined; readonly user: string }[];
}

/**
 * Holds the events of effects against their receipts: who has the signing key can write other events and seal them anew, and
 * has to contradict a receipt then.
 */
export function createEventCheck() {
  const told = new Map<string, Told>();
  /** What receipts say was charged, less what events say was: nothing is left where they agree. */
  const charged = new Map<string, Map<string, number>>();

  function charge(
    effectId: string,
    of: Json | undefined,
    sign: 1 | -1,
    amountOf: (one: JsonObject) => Json | undefined,
  ) {
    const left = charged.get(effectId) ?? new Map<string, number>();
    for (const one of isJsonArray(of) ? of : []) {
      if (!isJsonObject(one)) continue;
      const key = textOf([one['budget'] ?? one['id'] ?? null, one['unit'] ?? null]);
      const rest = (left.get(key) ?? 0) + sign * Number(amountOf(one));
      if (rest === 0) left.delete(key);
      else left.set(key, rest);
    }
    if (left.size === 0) charged.delete(effectId);
    else charged.set(effectId, left);
  }

  return {
    /** @param hasReceipt whether the receipt of the effect was before it */
    event(event: JsonObject, effectId: string, hasReceipt: boolean): void {
      const { kind, data } = event;
      if (typeof kind !== 'string' || !isJsonObject(data)) return;
      if (kind === 'budget.posted' || kind === 'budget.overdraft') {
        if (hasReceipt) charge(effectId, data['holds'], -1, ({ amount, posted }) => posted ?? amount);
        return;
      }
      if (kind === 'execution.failed') told.delete(effectId);
      const same = SAID_TWICE[kind];
      if (same === undefined && !kind.startsWith('approval.')) return;
      const of: Told = told.get(effectId) ?? { said: new Map(), asked: undefined, admittedWith: null, votes: [] };
      told.set(effectId, of);
      const { approval_id: request, user } = data;
      if (kind === 'effect.admitted') [of.said, of.admittedWith] = [new Map(), request];
      if (kind === 'approval.requested' || kind === 'approval.renewed') of.asked = request;
      if (kind === 'approval.granted') {
        // Who approved the question before it was changed has not approved this one.
        if (data['changed'] !== undefined) of.votes = [];
        of.votes.push({ request, user: textOf([user ?? null, memberAt(event, ['actor', 'id']) ?? null]) });
      }
      for (const [name, inEvent, inReceipt] of same ?? [])
        of.said.set(`${name} of ${kind}`, [textOf(memberAt(event, inEvent)), inReceipt]);
    },
    /** The names of what events before the receipt say differently. */
    receipt(payload: JsonObject, effectId: string): readonly string[] {
      charge(effectId, payload['budget'], 1, ({ posted }) => posted);
      const of = told.get(effectId);
      if (of === undefined) return [];
      told.delete(effectId);
      const isOfAttempt = isSettledByAnswer(payload['effect']);
      const differing = [...of.said].flatMap(([what, [text, inReceipt]]) =>
        (inReceipt[0] === 'upstream' && !isOfAttempt) || text === textOf(memberAt(payload, inReceipt)) ? [] : [what],
      );
      return isOfVotes(of, payload['approval']) ? differing : [...differing, 'approvers of approval.granted'];
    },
    /** Effects whose events say that something else was charged than their receipts. */
    charged: (): readonly string[] => [...charged.keys()],
  };
}

/** Whether a receipt names those who approved, of a request that events tell from its beginning; of others they are among them. */
function isOfVotes({ asked, admittedWith, votes }: Told, approval: Json | undefined): boolean {
  const named = (isJsonArray(approval) ? approval : []).filter(isJsonObject);
  const request = named[0]?.['id'];
  if (admittedWith !== null && admittedWith !== request) return false;
  const users = named.map(({ by = null }) => textOf([by, by]));
  const voted = votes.filter((vote) => vote.request === request).map(({ user }) => user);
  return asked === request ? voted.join() === users.join() : voted.every((user) => users.includes(user));
}
