import type { Reason } from '../model/decision.ts';

/** Why a call is not sent whose request for approval, or a vote on it, is not as a gateway wrote it. */
export const FORGED: Reason = {
  code: 'approval_forged',
  message:
    'The request for approval, or a vote on it, is not as a gateway wrote it. Nothing is approved by it: ask with a new idempotency key, and find out who else writes to the store.',
};
