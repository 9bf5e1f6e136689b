import { type ApprovalRecord, costsOf, limitsOf } from '../model/approval.ts';
import { boundsFault, type Editable } from '../model/editable.ts';
import type { EffectRecord } from '../model/effect.ts';
import { type Problem, problem, type RequestFault } from '../model/run-request.ts';
import type { ApprovalRequirement, Permit } from '../model/verdict.ts';
import type { EffectPorts, SealedParams } from '../ports.ts';
import type { AdmitRequest } from '../store.ts';
import type { ApprovalChange } from '../approval-store.ts';
import { canonicalJson } from '../../json/text.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import type { Call } from './call.ts';
import { evaluateKnown } from './evaluate.ts';
import { grantedCall, type People, type Recalled } from './recall.ts';
import { ASK_ANEW, judgeAsked } from './standing.ts';

type Changing =
  | { readonly kind: 'change'; readonly change: ApprovalChange | null }
  | { readonly kind: 'problem'; readonly problem: Problem };

/**
 * Makes of what an approver changed the question that everybody is asked from then on. The changed call passes the checks
 * of a new one: the schema of its tool, and policy, which may refuse it. Whoever had to agree still has to.
 * @param requirements those that the person decides by: only what these name may be changed
 * @returns the change; `null` where nothing differs from what stands
 * @throws StoreUnavailable
 */
export async function changeCall(
  ports: EffectPorts,
  people: People,
  approval: ApprovalRecord,
  requirements: readonly number[],
  changes: JsonObject | null,
): Promise<Changing> {
  if (changes === null || requirements.length === 0) return { kind: 'change', change: null };
  const effect = await ports.store.effect(approval.workspace, approval.effectId);
  if (effect === null || approval.status !== 'pending') return { kind: 'change', change: null };
  const now = await judgeAsked(ports, people, approval, effect);
  if (now.kind === 'gone') return problem('change_refused', now.reason.message);
  const { given, standing } = now;
  const { params: stands, asked = stands } = given.sealedParams;
  const faults = faultsOf(approval, requirements, asked, changes);
  if (faults.length > 0)
    return problem('invalid_request', 'The call cannot be changed like this. Nothing was decided.', null, faults);
  const params: JsonObject = { ...stands, ...changes };
  if (isSame(params, stands)) return { kind: 'change', change: null };
  // What is changed is what the person saw: under other rules, or sent by another tool, it would be something else.
  if (standing.kind === 'stale' || effect.action.toolDigest !== given.tool.digest)
    return problem(
      'change_refused',
      `Policy or the tool is no longer as it was when this was asked. Nothing was decided. ${ASK_ANEW} That can be changed.`,
    );
  const names = Object.keys(params).filter((name) => !isSame(params[name], asked[name]));
  if (names.length === 0)
    return problem(
      'change_refused',
      'That is what the agent asked before another approver changed it. Reject the change, and let the agent ask again.',
    );
  const misfits = ports.catalog().check(given.tool, params);
  if (misfits.length > 0)
    return problem(
      'invalid_request',
      `The changed call does not fit the tool ${given.tool.name}. Nothing was decided.`,
      null,
      misfits,
    );
  if ((ports.catalog().target(given.tool, params) ?? effect.action.target) !== effect.action.target)
    return problem('change_refused', 'The changed call would act on another target. Nothing was decided.');
  return judged(ports, approval, effect, given, { ...given.sealedParams, params, asked }, names);
}

/** Why the changes are not within what the policy lets this person change. */
function faultsOf(
  approval: ApprovalRecord,
  requirements: readonly number[],
  asked: JsonObject,
  changes: JsonObject,
): readonly RequestFault[] {
  const naming = approval.requirements.filter((_, index) => requirements.includes(index));
  return Object.entries(changes).flatMap(([name, value]): readonly RequestFault[] => {
    const path = `/changes/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    if (!naming.some(({ editable = NONE }) => Object.hasOwn(editable, name)))
      return [{ path, message: 'is not named by the policy as a param that you may change' }];
    // Every rule that names the param has its bounds kept, also one that others decide by.
    return approval.requirements.flatMap(({ editable = NONE }) => {
      const bounds = Object.hasOwn(editable, name) ? editable[name] : undefined;
      const before = Object.hasOwn(asked, name) ? asked[name] : undefined;
      const message = bounds === undefined ? null : boundsFault(bounds, before, value);
      return message === null ? [] : [{ path, message }];
    });
  });
}

const NONE: Editable = {};

/** What policy says of the changed call, and what people are asked of it. */
async function judged(
  ports: EffectPorts,
  approval: ApprovalRecord,
  effect: EffectRecord,
  given: Extract<Recalled, { kind: 'there' }>,
  sealedParams: SealedParams,
  names: readonly string[],
): Promise<Changing> {
  const { workspace, id: effectId, fingerprint } = effect;
  const askedDigest = approval.changed?.askedDigest ?? approval.digest;
  const sealed = ports.secrets.seal(sealedParams, { workspace, effectId, fingerprint });
  const changed = { by: '', at: 0, params: names, sealed, askedDigest };
  const call = grantedCall(ports, { ...approval, changed }, effect, { ...given, sealed, sealedParams });
  const request = await evaluateKnown(ports, call, limitsOf(approval));
  const { verdict } = request;
  if (verdict.kind === 'deny')
    return problem(
      'change_refused',
      `The policy refuses the changed call: ${verdict.reason.message} Nothing was decided.`,
    );
  const other = verdict.approvals.find((one) => !approval.requirements.some((known) => isSameRule(one, known)));
  if (other !== undefined)
    return problem(
      'change_refused',
      `Of the changed call the rule ${other.rule} asks people who were not asked. Nothing was decided.`,
    );
  return { kind: 'change', change: changeOf(ports, approval, call, request, verdict, names) };
}

function changeOf(
  ports: EffectPorts,
  approval: ApprovalRecord,
  call: Call,
  { approvalDigest: digest, sealed }: AdmitRequest,
  verdict: Permit,
  params: readonly string[],
): ApprovalChange {
  const { agent, key, tool, workspace, target, requestIp } = call;
  const input = { agent, key, tool, workspace, target, params: call.params, headers: call.headers.sent, requestIp };
  const summaries = ports.summarize({ ...input, now: ports.store.now() }, approval.requirements);
  const requirements = approval.requirements.map((one, index): ApprovalRequirement => {
    return { ...one, summary: summaries[index] ?? one.summary };
  });
  const { requester, createdAt: askedAt } = approval;
  return { digest, requirements, askedAt, requester, costs: costsOf(verdict.obligations), params, sealed };
}

function isSameRule(one: ApprovalRequirement, other: ApprovalRequirement): boolean {
  return one.rule === other.rule && one.ruleDigest === other.ruleDigest && one.beyond === other.beyond;
}

function isSame(one: Json | undefined, other: Json | undefined): boolean {
  if (one === undefined || other === undefined) return one === other;
  return canonicalJson(one) === canonicalJson(other);
}
