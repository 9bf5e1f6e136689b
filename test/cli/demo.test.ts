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
  expect(rows.slice(13).map((row) => row.split(/ {2,}/).slice(2))).toEqual([
    ['committed', 'yes', 'proceed'],
    ['already_committed', 'yes', 'proceed'],
    ['rule_denied', 'no', 'block'],
  ]);
  expect(out).toMatch(/\nVALID$/);
  // Its store was only for the tour.
  expect(readdirSync(folder)).toEqual([]);
  rmSync(folder, { recursive: true });
});

test('who tries the demo meets what an approver may do: change, allow the next alike, and say why not', () => {
  const { rules } = parse(readFileSync(join(home, 'policies', 'payments.yaml'), 'utf8'));
  const large = rules.find(({ id }: { readonly id: string }) => id === 'refund-large');
  expect(large.approval).toMatchObject({
    editable: { amount: { max: 'asked' } },
    allow_alike: { times: 5 },
    require_reason: true,
  });
});
