import type { ApprovalRecord } from '../../effects/model/approval.ts';
import type { Decision } from '../../effects/model/decision.ts';
import { decisionOf, type EffectRecord } from '../../effects/model/effect.ts';
import { amountText, lastName, moneyText } from '../../effects/model/money.ts';
import type { ApprovalRequirement } from '../../effects/model/verdict.ts';
import type { CallReader } from '../../effects/wire/calls.ts';
import { canonicalJson } from '../../json/text.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import type { ApiPorts } from '../ports.ts';
import { spanText } from './layout.ts';

const LOOKED_AT = 20;

/** How long before now the same call is spoken of beside the answers, ms. */
const SHORTLY_MS = 24 * 3_600_000;

/** An earlier call of the same agent. */
export interface EarlierCall {
  readonly id: string;
  readonly tool: string;
  /** When it happened; when it was asked, where that is not known. */
  readonly at: number;
  readonly decision: Decision;
  /** `null`: they are not shown, or are those of another tool. */
  readonly params: JsonObject | null;
  /** What it took from budgets: says in which currency its amounts are. */
  readonly costs: EffectRecord['holds'];
}

/** What the agent did before, newest first, as far as that is still on record and near enough to be found at once. */
export interface Earlier {
  readonly onTarget: readonly EarlierCall[];
  /** The last call of the same tool that happened; `null` where none is found. */
  readonly alike: EarlierCall | null;
}

/** A value that is not the same in two things that a person compares. */
export interface Difference {
  readonly name: string;
  readonly before: string;
  readonly now: string;
}

/** Reads what the agent of a request did before. @throws StoreUnavailable */
export async function earlierOf(
  ports: Pick<ApiPorts, 'store'>,
  approval: ApprovalRecord,
  calls: CallReader,
): Promise<Earlier> {
  const { workspace, effectId, tool, requester } = approval;
  const [onTarget, happened] = await Promise.all([
    earlierOnTarget(ports, approval, calls),
    ports.store.effects(workspace, { ...pageOf(requester), tool, decision: 'committed', limit: 2 }),
  ]);
  const last = happened.items.find(({ id }) => id !== effectId);
  return { onTarget, alike: last === undefined ? null : earlierCall(last, calls) };
}

/** One page of what the agent of a request did on its target before. @throws StoreUnavailable */
export async function earlierOnTarget(
  { store }: Pick<ApiPorts, 'store'>,
  { workspace, effectId, target, tool, requester }: ApprovalRecord,
  calls: CallReader,
): Promise<Earlier['onTarget']> {
  const { items } = await store.effects(workspace, { ...pageOf(requester), target, limit: LOOKED_AT });
  const others = items.filter(({ id }) => id !== effectId);
  return others.map((effect) => earlierCall(effect, effect.action.tool === tool ? calls : null));
}

function pageOf({ agentId }: ApprovalRecord['requester']) {
  return { agentId, state: null, decision: null, tool: null, since: null, until: null, cursor: null };
}

function earlierCall(effect: EffectRecord, calls: CallReader | null): EarlierCall {
  return {
    id: effect.id,
    tool: effect.action.tool,
    at: effect.life.state === 'committed' ? effect.life.at : effect.createdAt,
    decision: decisionOf(effect),
    params: calls === null ? null : paramsIn(calls.params(effect)),
    costs: effect.holds,
  };
}

/** What is said of the same call that was made before. */
const MADE: Readonly<Partial<Record<Decision, string>>> = {
  committed: 'was made',
  in_progress: 'was sent',
  unknown_effect: 'may have been made',
};

/**
 * What somebody should know who is about to let a call happen again: the same was done shortly before, or waits as well. Empty
 * where neither is found among the agent's last calls on the target.
 */
export function repeatText(tool: string, onTarget: Earlier['onTarget'], params: Json | undefined, now: number): string {
  const same = onTarget.filter(
    (call) => call.tool === tool && call.params !== null && isJsonObject(params) && isOfSameAmount(call.params, params),
  );
  const made = same.find(({ decision, at }) => MADE[decision] !== undefined && now - at < SHORTLY_MS);
  const waiting = same.filter(({ decision }) => decision === 'pending_approval').length;
  const before =
    made === undefined ? '' : `The same ${lastName(tool)} ${MADE[made.decision] ?? ''} ${spanText(now - made.at)} ago.`;
  const more = waiting === 1 ? 'One more like this is waiting.' : `${waiting} more like this are waiting.`;
  return [before, waiting === 0 ? '' : more].filter((line) => line !== '').join(' ');
}

/** Whether two calls have the same numbers, in the same currency; where they have none, the same params. */
function isOfSameAmount(before: JsonObject, now: JsonObject): boolean {
  const hasNumbers = Object.values(now).some((value) => typeof value === 'number');
  const isAmount = (name: string): boolean => name === 'currency' || typeof (now[name] ?? before[name]) === 'number';
  return paramsThatDiffer(before, now).every(({ name }) => hasNumbers && !isAmount(name));
}

function paramsIn(of: ReturnType<CallReader['params']>): JsonObject | null {
  return 'params' in of ? of.params : null;
}

/**
 * Which params differ between two calls, as they are shown: of what is masked or cut nothing is said.
 * @param currencyOf the currency that a param is an amount of now; `null`: it stands as it is
 * @param currencyBefore that of before. What is not known to be in the same currency is no amount of that
 */
export function paramsThatDiffer(
  before: JsonObject,
  now: JsonObject,
  currencyOf: (name: string) => string | null = () => null,
  currencyBefore = (name: string) => (before['currency'] === now['currency'] ? currencyOf(name) : null),
): readonly Difference[] {
  const names = [...new Set([...Object.keys(now), ...Object.keys(before)])];
  return names
    .filter((name) => textOf(before[name]) !== textOf(now[name]))
    .map((name) => {
      const text = (value: Json | undefined, currency: string | null): string =>
        moneyText(value, currency) ?? textOf(value);
      return { name, before: text(before[name], currencyBefore(name)), now: text(now[name], currencyOf(name)) };
    });
}

function laterOf(escalate: ApprovalRequirement['escalate']): string {
  return escalate === undefined ? '' : `, later also ${[...escalate.to.roles, ...escalate.to.users].join(', ')}`;
}

/** What people are asked now and were not asked before: a request and the one that took its place. */
export function whatChanged(
  before: ApprovalRecord,
  now: ApprovalRecord,
  currency: Json | undefined,
): readonly Difference[] {
  const views = [before, now].map((of) => ({
    'What will happen': of.requirements[0]?.summary ?? '',
    'Asked by': of.requirements.map(({ rule }) => rule).join(', '),
    'Who may decide': of.requirements
      .map(
        ({ quorum, approvers, escalate }) =>
          `${quorum} of ${[...approvers.roles, ...approvers.users].join(', ')}${laterOf(escalate)}`,
      )
      .join('; '),
    'Takes from budgets': of.costs
      .map(({ budget, unit, amount, limit }) => {
        const taken = amount === null ? '?' : amountText(amount, unit, currency);
        return `${taken} of ${budget}, of ${amountText(limit, unit, currency)} in all`;
      })
      .join(', '),
  }));
  const [then = {}, today = {}] = views.map((view): JsonObject => view);
  return paramsThatDiffer(then, today);
}

/** Why people are asked anew, and that a vote on the request of before sent nothing. @param isSeen whether a difference is shown */
export function whyAnew(before: ApprovalRecord, now: ApprovalRecord, user: string, isSeen: boolean): string {
  const hasVoted = before.votes.some((vote) => vote.user === user);
  const what = hasVoted
    ? 'What would run now is not what you approved, so nothing was sent. People are asked anew.'
    : 'Policy or the tool was changed after this was asked first, so people are asked anew.';
  const known = new Set(before.requirements.map(({ ruleDigest }) => ruleDigest));
  const rules = now.requirements.filter(({ ruleDigest }) => !known.has(ruleDigest)).map(({ rule }) => rule);
  const written = rules.length === 0 ? '' : ` Written anew: rule ${rules.join(', ')}.`;
  const unseen = `Nothing differs of what stands here: the tool ${now.tool} was declared anew, or what its rule counts.`;
  return `${what}${written || isSeen ? written : ` ${unseen}`} Decide on what stands below.`;
}

function textOf(value: Json | undefined): string {
  if (value === undefined) return '(absent)';
  return typeof value === 'string' ? value : canonicalJson(value);
}
