import { outcomeOfAdmission, shownBudgets } from './to-outcome.ts';
import { checkCall } from './check-call.ts';
import { type Decision, type Reason, statusOf } from '../model/decision.ts';
import { denialRequest, evaluateKnown, sealInTurn } from './evaluate.ts';
import type { ShownBudget } from '../model/outcome.ts';
import type { EffectPorts } from '../ports.ts';
import { problem, type RunRequest } from '../model/run-request.ts';
import { type Admission, type AdmitRequest, StoreUnavailable } from '../store.ts';
import type { ApprovalRequirement, Obligation, Observed, Exceeded, VerdictTrace } from '../model/verdict.ts';

/** What a call would get now, and why. */
export interface Preview extends Pick<VerdictTrace, 'matched' | 'policyVersion' | 'entities' | 'observed'> {
  readonly kind: 'preview';
  readonly would: Decision;
  readonly httpStatus: number;
  readonly reason: Reason;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly obligations: readonly Obligation[];
  readonly approvals: readonly ApprovalRequirement[];
  readonly budgets: readonly ShownBudget[];
  /** The idempotency key is in use already. */
  readonly repeat: boolean;
}

/** A fingerprint that no call has. */
const NO_CALL = 'none';

export type PreviewResult = Preview | ReturnType<typeof problem>;

/**
 * Judges a call like a run, with a read-only admission. Writes nothing, sends nothing.
 * @param isOfCalls whether it counts what became of calls with the same params: whether one was rejected
 */
export function previewEffect(ports: EffectPorts, request: RunRequest, isOfCalls = true): Promise<PreviewResult> {
  return previewBeyond(ports, request, isOfCalls, null);
}

/** @param exceeded limits that the call would go beyond, and that people would be asked about */
async function previewBeyond(
  ports: EffectPorts,
  request: RunRequest,
  isOfCalls: boolean,
  exceeded: Exceeded,
): Promise<PreviewResult> {
  const checked = checkCall(ports, request, 'effects.preview');
  if (checked.kind === 'problem') return checked;
  try {
    if (checked.kind === 'denied') {
      const { deny } = checked.denied;
      // If the key may not preview, that says nothing about the call, so the answer is a problem.
      if (
        deny.reason.code === 'insufficient_scope' ||
        deny.reason.code === 'wrong_key_kind' ||
        deny.reason.code === 'wrong_workspace' ||
        deny.reason.code === 'read_only_key'
      ) {
        return problem(deny.reason.code, deny.reason.message);
      }
    }
    if (checked.kind === 'call') await sealInTurn(ports, checked.call);
    const judgedAs =
      checked.kind === 'denied'
        ? denialRequest(ports, request, checked.denied)
        : await evaluateKnown(ports, checked.call, exceeded);
    const admit = isOfCalls ? judgedAs : { ...judgedAs, fingerprint: NO_CALL };
    const admission = await ports.store.preview(admit);
    if (admission.kind === 'exceeds') return previewBeyond(ports, request, isOfCalls, new Set(admission.limits));
    if (admission.kind !== 'stale') return previewOf(admit, admission);
    // Policy, pauses or a budget window changed, so everything is checked again.
    await ports.refresh(admit.workspace, admit.verdict.trace.entities, admission.versions.policy);
    return previewBeyond(ports, request, isOfCalls, null);
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return problem('store_unavailable', 'The store cannot be reached.', 1000);
  }
}

function previewOf(request: AdmitRequest, admission: Admission): Preview {
  const { verdict } = request;
  const permit = verdict.kind === 'permit' ? verdict : null;
  const { decision, reason, repeat, budgets, observed } = judged(request, admission);
  return {
    kind: 'preview',
    would: decision,
    httpStatus: statusOf(decision, repeat),
    reason,
    tool: request.action.tool,
    target: request.action.target,
    agentId: request.actor.agentId,
    obligations: permit?.obligations ?? [],
    approvals: permit?.approvals ?? [],
    matched: verdict.trace.matched,
    policyVersion: verdict.trace.policyVersion,
    ...(verdict.trace.entities === undefined ? {} : { entities: verdict.trace.entities }),
    budgets,
    observed,
    repeat,
  };
}

function judged(
  request: AdmitRequest,
  admission: Admission,
): {
  readonly decision: Decision;
  readonly reason: Reason;
  readonly repeat: boolean;
  readonly budgets: readonly ShownBudget[];
  readonly observed: Observed | null;
} {
  if (admission.kind === 'stale' || admission.kind === 'exceeds')
    throw new TypeError('a stale admission is asked again, not shown');
  if (admission.kind !== 'dispatch') return outcomeOfAdmission(request, admission);
  return {
    decision: 'committed',
    reason: { code: 'committed', message: 'The action would be sent.' },
    repeat: false,
    budgets: shownBudgets(admission.budgets, request.verdict),
    observed: admission.observed,
  };
}
