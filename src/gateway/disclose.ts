import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { receiptView } from '../receipts/view.ts';
import type { Secrets } from '../secrets/vault.ts';
import { type Disclosure, disclosureOf } from '../receipts/commitments.ts';

/**
 * Opens the seal of a committed effect for a caller who may read its params; `null` if there is none, or it does not
 * open.
 */
export function discloser(
  secrets: Pick<Secrets, 'open'>,
): (effect: EffectRecord, jws: string, approval: ApprovalRecord | null) => Disclosure | null {
  return (effect, jws, approval) => {
    const { workspace, id: effectId, fingerprint, sealed } = effect;
    const opened = sealed === null ? null : secrets.open(sealed, { workspace, effectId, fingerprint });
    return opened === null ? null : disclosureOf(effect, opened, receiptView(jws), approval);
  };
}
