import { afterAll, beforeAll } from 'vitest';
import { closeWorld, openWorld } from './shared-world.ts';
// First: it looks at a budget that nothing was spent of.
import './committed.ts';
import './denied_claim.ts';
import './denied_identity.ts';
import './denied_paused.ts';
import './denied_permission.ts';
import './denied_policy.ts';
import './denied_reservation.ts';
import './failed.ts';
import './idempotency_conflict.ts';
import './in_progress.ts';
import './pending_approval.ts';
import './unknown_effect.ts';

beforeAll(openWorld);
afterAll(closeWorld);
