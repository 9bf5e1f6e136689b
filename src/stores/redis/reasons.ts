import type { Reason } from '../../effects/model/decision.ts';
import { EXPIRED_GRANTED, EXPIRED_UNDECIDED, MAX_ATTEMPTS } from '../../effects/steps/lifecycle.ts';
import { fromPlainText } from './names.ts';

/**
 * Why a call was refused, in words. Scripts answer with a code and figures, because they neither format nor hash;
 * `=` stands before a reason that the gateway knew. The words are those of effects/steps/admission.ts and obligations.ts.
 */
export function reasonOf(why: readonly string[]): Reason {
  const [code = '', ...rest] = why;
  const [first = '', second = '', third = '', fourth = '', fifth = '', sixth = '', seventh = ''] =
    rest.map(fromPlainText);
  const rule = first;
  switch (code) {
    case '=':
      return JSON.parse(rest[1] ?? '') as Reason;
    case 'key_closed':
      return {
        code,
        message:
          'Evidence about earlier attempts of this action contradicts itself; the key takes no more attempts. Look at the effect’s ledger and settle it by hand.',
      };
    case 'attempts_exhausted':
      return {
        code,
        message: `The action was attempted ${MAX_ATTEMPTS} times. Find out why it fails, then use a new idempotency key.`,
      };
    case 'approval_rejected':
      return {
        code,
        message: 'An approver rejected this action. Do something else, or talk to the approver.',
      };
    case 'approval_expired':
      return {
        code,
        message: first === 'granted' ? EXPIRED_GRANTED : EXPIRED_UNDECIDED,
      };
    case 'too_many_pending':
      return {
        code,
        message: '20 actions of this agent wait for approval already. Wait until some are decided.',
      };
    case 'key_reused':
      return {
        code,
        message:
          'This idempotency key belongs to another action. Use a new key for a new action; send the first action unchanged to repeat it.',
      };
    case 'claim_held':
      return {
        code,
        message: 'Another agent holds a claim on the target. Wait until it is released, then send the same call again.',
        ...(rule === '' ? {} : { rule }),
      };
    case 'claim_named':
      return {
        code: 'claim_required',
        message: 'The claim named is over, or is not this agent’s claim on this target. Take the claim again.',
      };
    case 'claim_required':
      return {
        code,
        message: 'The policy asks for a claim on the target, held before the call. Take one, then send the call again.',
        rule,
      };
    case 'pool_exhausted':
      return {
        code,
        message: `The call needs ${second} of ${third}; ${fourth} of ${fifth} are free. Wait, or reserve ahead.`,
        rule,
      };
    case 'reservation_invalid':
      return {
        code,
        message: 'The reservation named is over, is not this agent’s, or is of a pool that this call does not use.',
      };
    case 'rate_limited':
      return {
        code,
        message: `The limit is ${second} calls in ${Number(third) / 1000} s. Wait, then send the same call again.`,
        rule,
      };
    case 'amount_invalid':
      return {
        code,
        message: `The amount for budget ${second} is absent, negative, fractional or too large. Send a whole number of ${third} from 0 to 2^53-1.`,
        rule,
      };
    case 'too_many_rows':
      return {
        code,
        message: `Budget ${second} has 10000 rows, which is the limit. Ask the owner of the policy to count by fewer values.`,
        rule,
      };
    case 'budget_exceeded':
      return {
        code,
        message:
          seventh === 'own'
            ? `The call needs ${fourth} ${third}; ${sixth} of ${fifth} are left in budget ${second}.`
            : `Budget ${second} does not have ${fourth} ${third} left.`,
        rule,
      };
    default:
      throw new TypeError(`the store refused for ${code}, which has no words`);
  }
}
