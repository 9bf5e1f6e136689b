import { createSecretKey } from 'node:crypto';
import { createPolicySeals } from '../../src/secrets/policy-seals.ts';

/** Seals of policies for a store that no gateway with a master secret of its own opens. */
export const POLICY_SEALS = createPolicySeals([createSecretKey(Buffer.alloc(32, 9))]);
