import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { AllowanceDraft, AllowanceRecord } from '../../src/effects/model/allowance.ts';
import { openedAllowance, sealedAllowance } from '../../src/gateway/sealed-store.ts';
import { openSecrets, type Secrets } from '../../src/secrets/vault.ts';

const draft: AllowanceDraft = {
  id: 'alw_1',
  workspace: 'demo',
  likeness: 'refunds',
  approvalId: 'apr_1',
  effectId: 'eff_1',
  agentId: 'support-bot',
  tool: 'payments.refund',
  target: 'payment:42',
  rules: ['payments/large'],
  varies: { amount: { kind: 'range', min: 1, max: 1000 } },
  by: { user: 'maria', keyId: 'key_1' },
  times: 3,
  until: 1_000,
};

let folder = '';
let secrets: Secrets;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'allowance-seals-'));
  secrets = await openSecrets({ masterFile: join(folder, 'master'), previous: [] });
});
afterAll(() => rmSync(folder, { recursive: true }));

/** As the store keeps it. */
function stored(): AllowanceRecord {
  const { until, ...sealed } = sealedAllowance(draft, secrets);
  return { ...sealed, used: 0, givenAt: 0, expiresAt: until, epoch: 1 };
}

it('an allowance is read as a gateway gave it, used or ended or for a shorter time than was asked', () => {
  const { seal: _, ...plain } = stored();
  expect(openedAllowance(stored(), secrets)).toEqual(plain);
  expect(openedAllowance({ ...stored(), used: 2, expiresAt: 999 }, secrets).isForged).toBeUndefined();
  const ended = { why: 'revoked', at: 1, by: 'omar' } as const;
  expect(openedAllowance({ ...stored(), ended }, secrets)).toEqual({ ...plain, ended });
});

it.each<readonly [string, Partial<AllowanceRecord>]>([
  ['what is alike', { likeness: 'others' }],
  ['for whom', { agentId: 'other-bot' }],
  ['the tool', { tool: 'payments.void' }],
  ['the target', { target: 'payment:43' }],
  ['by whom', { by: { user: 'omar', keyId: 'key_1' } }],
  ['by which key', { by: { user: 'maria', keyId: 'key_2' } }],
  ['how often', { times: 100 }],
  ['until when', { expiresAt: 1_001 }],
  ['the bounds', { varies: { amount: { kind: 'range', min: 1, max: 9999 } } }],
  ['the rules', { rules: [] }],
  ['which vote', { approvalId: 'apr_2' }],
  ['which call', { effectId: 'eff_2' }],
  ['its id', { id: 'alw_2' }],
  ['the workspace', { workspace: 'other' }],
  ['its seal', { seal: 'x' }],
])('one in which something else than a gateway changed %s is marked', (_what, more) => {
  expect(openedAllowance({ ...stored(), ...more }, secrets).isForged).toBe(true);
});

it('one without a seal is marked, and so is one with a mark of its own that says otherwise', () => {
  const { seal: _, ...plain } = stored();
  expect(openedAllowance(plain, secrets).isForged).toBe(true);
  expect(openedAllowance({ ...stored(), isForged: true }, secrets).isForged).toBeUndefined();
});
