import { type AllowanceRecord, alikeObstacle, allowanceStatus, mostAlike } from '../../effects/model/allowance.ts';
import { type ApprovalCost, type ApprovalRecord, decidersAt, isAmong } from '../../effects/model/approval.ts';
import type { BudgetRow, EffectRecord } from '../../effects/model/effect.ts';
import { type Editable, editableIn } from '../../effects/model/editable.ts';
import { inOneHand } from '../../effects/run/key-makers.ts';
import type { Standing } from '../../effects/run/standing.ts';
import { variesIn } from '../../effects/run/likeness.ts';
import type { AllowAlike, ApprovalRequirement } from '../../effects/model/verdict.ts';
import type { Tool } from '../../effects/model/tool.ts';
import { effectAsAsked, rowOf, whyAsked } from '../../effects/wire/approval.ts';
import { readCalls } from '../../effects/wire/calls.ts';
import { approvalFor, effectFor, standingFor } from '../../effects/wire/withheld.ts';
import { isJsonObject, type JsonObject } from '../../json/value.ts';
import { permit } from '../../identity/permissions.ts';
import type { ApiPorts } from '../ports.ts';
import { type Earlier, earlierOf } from './earlier.ts';
import type { Approver } from './session.ts';

export interface ShownApproval {
  readonly approval: ApprovalRecord;
  /** `null`: its record is gone. */
  readonly effect: EffectRecord | null;
  /** As it is declared now; `null` if it is not. */
  readonly tool: Tool | null;
  /** What is sent where, and its params as far as this person may see them: as the API shows them. */
  readonly action: JsonObject;
  readonly params: JsonObject;
  readonly costs: readonly { readonly cost: ApprovalCost; readonly row: BudgetRow | null }[];
  readonly why: ReturnType<typeof whyAsked>;
  /** What the agent did before; `null` for who may not read effects. */
  readonly earlier: Earlier | null;
  readonly mayReadEffects: boolean;
  /** The request that took the place of this one, because what is asked has changed. */
  readonly replacedBy: string | null;
  /** Why this person does not decide on it; `null` where nothing is seen that stands against it. */
  readonly obstacle: string | null;
  /** What an approval would do now; `null` where it is decided, or its record is gone. */
  readonly standing: Standing | null;
  /** Params that this person may change, by name. */
  readonly mayChange: Editable;
  /** How far this person may allow the next calls alike, and in what they may differ; `null`: not at all. */
  readonly alike: (AllowAlike & { readonly varies: Editable }) | null;
  /** The next calls that were allowed with a vote on it; `null`: none, as far as that is near enough to be found at once. */
  readonly allowed: AllowanceRecord | null;
  /** What this person has allowed ahead and still lets calls in; empty while it is not decided. */
  readonly allowances: readonly AllowanceRecord[];
  /** ms since the epoch, by the store's clock. */
  readonly now: number;
}

/** Reads a request for approval for its page; `null` if there is none. @throws StoreUnavailable */
export async function shownTo(
  ports: ApiPorts,
  approver: Approver,
  workspace: string,
  approvalId: string,
): Promise<ShownApproval | null> {
  const { store } = ports;
  const { principal } = approver;
  const kept = await store.approval(workspace, approvalId);
  if (kept === null) return null;
  const approval = approvalFor(principal, kept);
  const calls = readCalls(ports, principal, 'page');
  const reading = permit(principal, 'effects.read', workspace);
  const mayReadEffects = reading.ok && reading.view.kind !== 'own';
  const [effect, budgets, earlier, given, standing] = await Promise.all([
    store.effect(workspace, approval.effectId),
    approval.costs.length === 0 ? [] : store.budgets(workspace),
    mayReadEffects ? earlierOf(ports, approval, readCalls(ports, principal, 'page')) : null,
    approval.status === 'pending' ? null : store.allowances(workspace, { agentId: null, limit: 100, cursor: null }),
    approval.status === 'pending' ? ports.standingOf(kept) : null,
  ]);
  const asked = effect === null ? null : effectAsAsked(approval, effect);
  const allowances = (given?.items ?? []).filter((one) => one.isForged !== true);
  const isOpen = (one: AllowanceRecord): boolean => allowanceStatus(one, store.now(), store.health().epoch) === 'open';
  const waitsOn = effect?.life.state === 'pending_approval' ? effect.life.approvalId : null;
  return {
    approval,
    effect: effect && effectFor(principal, effect),
    tool: ports.catalog().tool(approval.tool),
    action: asked === null ? {} : calls.action(asked),
    params: asked === null ? { params_omitted: 'the record of the call is gone' } : calls.params(asked),
    costs: approval.costs.map((cost) => ({ cost, row: rowOf(cost, effect, budgets) })),
    why: whyAsked(approval, effect, ports.policies().set.rules),
    earlier,
    mayReadEffects,
    standing: standing && standingFor(principal, approval, standing),
    replacedBy: waitsOn === null || waitsOn === approvalId ? null : waitsOn,
    mayChange: editableIn(approval.requirements.filter((one) => decides(ports, approver, approval, one))),
    alike: asked === null ? null : alikeFor(ports, approver, approval, calls.params(asked)),
    obstacle:
      obstacleFor(ports, approver, approval) ??
      (await inOneHand(store, approval, { user: approver.user, madeBy: principal.madeBy })),
    allowed: allowances.find((one) => one.approvalId === approvalId) ?? null,
    allowances: allowances.filter((one) => one.by.user === approver.user && isOpen(one)),
    now: store.now(),
  };
}

/** What this person may allow ahead. Who does not see the params could not know what is alike. */
function alikeFor(
  ports: ApiPorts,
  approver: Approver,
  approval: ApprovalRecord,
  { params }: JsonObject,
): ShownApproval['alike'] {
  const own = approval.requirements.flatMap((one, index) => (decides(ports, approver, approval, one) ? [index] : []));
  const most = mostAlike(approval.requirements);
  if (!isJsonObject(params) || most === null || alikeObstacle(approval, own, false) !== null) return null;
  return { ...most, varies: variesIn(approval.requirements, params) };
}

/** What the vote of this person would be refused for, as far as that is known before. The vote is judged anyway. */
function obstacleFor(ports: ApiPorts, approver: Approver, approval: ApprovalRecord): string | null {
  const { directory } = ports;
  const { principal, user } = approver;
  const { requester, requirements, workspace, createdAt } = approval;
  const agent = directory.agent(workspace, requester.agentId);
  const close = [requester.user, requester.agentOwner, requester.keyMadeBy, agent?.registeredBy];
  if (close.includes(user) || requester.keyId === principal.keyId)
    return 'It is your own request, or that of your agent or your key. Somebody else decides.';
  if (principal.keyCreatedAt > createdAt)
    return 'Your key was made after the request, so it does not decide on it. Use one that is older.';
  if (requirements.some((one) => decides(ports, approver, approval, one))) return null;
  return 'The policy names others to decide; who they are stands below.';
}

/** Whether the policy names somebody to decide by a requirement, as it stands now. */
function decides(
  { directory, store }: Pick<ApiPorts, 'directory' | 'store'>,
  { user }: Approver,
  approval: ApprovalRecord,
  requirement: ApprovalRequirement,
): boolean {
  return isAmong(decidersAt(approval, requirement, store.now()), user, directory.rolesOf(user));
}
