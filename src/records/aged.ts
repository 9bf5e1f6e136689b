import type { EffectRecord, Life, Tombstone } from '../effects/model/effect.ts';
import type { RowStore } from '../stores/port.ts';
import { approvalRows, approvalsOfEffect, putApproval } from './approval-rows.ts';
import type { Draft } from './draft.ts';
import { effectRows, type StoredEffect } from './effect-rows.ts';
import { firstOf } from './lists.ts';

function isSettled(life: Life): life is Extract<Life, { readonly state: 'committed' | 'failed' | 'rejected' }> {
  return life.state === 'committed' || life.state === 'failed' || life.state === 'rejected';
}

export function isAged({ life }: EffectRecord, before: number): boolean {
  return isSettled(life) && life.at <= before;
}

/**
 * What stays of a settled effect; `null`: it is not settled.
 * @param segment of the archive that has its record; `null`: nothing has it
 */
export function tombstoneOf(effect: EffectRecord, segment: number | null): Tombstone | null {
  const { life, id, workspace, idempotencyKey, fingerprint, action, actor, attempt, createdAt } = effect;
  if (!isSettled(life)) return null;
  return {
    id,
    workspace,
    idempotencyKey,
    fingerprint,
    agentId: actor.agentId,
    tool: action.tool,
    target: action.target,
    attempt,
    at: life.at,
    outcome:
      life.state === 'committed'
        ? { state: 'committed', receipt: segment === null ? life.receipt : { id: life.receipt.id, jws: null } }
        : { state: life.state },
    ...(segment === null ? {} : { archived: { segment, createdAt } }),
  };
}

export async function approvalsOf(
  store: RowStore,
  workspace: string,
  effectId: string,
  limit: number,
): Promise<readonly string[]> {
  const asked = { workspace, list: approvalsOfEffect(effectId), kind: approvalRows.kind };
  return (await firstOf(store, asked, limit)).map(({ id }) => id);
}

/** One change with its requests for approval: whoever is killed between two leaves none that nobody finds again. */
export function replaceEffect(draft: Draft, id: string, left: StoredEffect | null, approvals: readonly string[]): void {
  effectRows.put(draft, id, left);
  for (const approvalId of approvals) {
    const approval = approvalRows.get(draft, approvalId);
    if (approval?.status === 'pending') putApproval(draft, { ...approval, status: 'expired', decidedAt: draft.now });
    if (approval !== null) approvalRows.put(draft, approvalId, null);
  }
}
