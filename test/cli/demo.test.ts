import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test, vi } from 'vitest';
import { parse } from 'yaml';
import { svc } from './run.ts';

const home = process.cwd();
afterAll(() => {
  process.chdir(home);
  vi.unstubAllEnvs();
});

test('the tour plays every decision it speaks of, and its receipt holds', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-demo-'));
  vi.stubEnv('TMPDIR', folder);
  const { code, out, err } = await svc('demo', '--tour');
  expect(err).toBe('');
  expect(code).toBe(0);
  const rows = out.slice(out.indexOf('call  ')).split('\n').slice(1, 17);
  expect(rows.map((row) => row.split(/ {2,}/)[1])).toEqual([
    'committed',
    'duplicate_blocked',
    'duplicate_blocked',
    'idempotency_conflict',
    'denied_policy',
    'pending_approval',
    'committed',
    'replan_required',
    'denied_paused',
    'unknown_effect',
    'unknown_effect',
    'committed',
    'denied_budget',
    'committed',
    'duplicate_blocked',
    'denied_policy',
  ]);
  // What each says of its reason, of whether it happened, and of what to do next.
  expect(rows.map((row) => row.split(/ {2,}/).slice(2))).toEqual([
    ['committed', 'yes', 'proceed'],
    ['already_committed', 'yes', 'proceed'],
    ['already_committed', 'yes', 'proceed'],
    ['key_reused', 'no', 'block'],
    ['rule_denied', 'no', 'block'],
    ['approval_required', 'no', 'wait'],
    ['committed', 'yes', 'proceed'],
    ['state_drift', 'no', 'replan'],
    ['paused', 'no', 'wait'],
    ['outcome_unknown', 'maybe', 'resolve'],
    ['outcome_unknown', 'maybe', 'resolve'],
    ['committed', 'yes', 'proceed'],
    ['budget_exceeded', 'no', 'block'],
    ['committed', 'yes', 'proceed'],
    ['already_committed', 'yes', 'proceed'],
    ['rule_denied', 'no', 'block'],
  ]);
  expect(out).toMatch(/\nVALID$/);
  // Its store was only for the tour, and so was its gateway.
  expect(readdirSync(folder)).toEqual([]);
  const [gateway = ''] = /http:\/\/127\.0\.0\.1:\d+/.exec(out) ?? [];
  await expect(fetch(`${gateway}/livez`)).rejects.toThrow('fetch failed');
  rmSync(folder, { recursive: true });
});

test('who tries the demo meets what an approver may do: change, allow the next alike, and say why not', () => {
  const approvalOf = (file: string, rule: string) =>
    parse(readFileSync(join(home, 'policies', file), 'utf8')).rules.find(
      ({ id }: { readonly id: string }) => id === rule,
    ).approval;
  const refund = approvalOf('payments.yaml', 'refund-large');
  expect(refund).toMatchObject({ editable: { amount: { max: 'asked' } }, require_reason: true });
  // The next ones like it would be the same refund again. Of deployments they are the fixes that follow.
  expect(refund).not.toHaveProperty('allow_alike');
  expect(approvalOf('platform.yaml', 'deploy')).toMatchObject({
    editable: { version: { max_length: 64 } },
    allow_alike: { times: 3 },
  });
});
