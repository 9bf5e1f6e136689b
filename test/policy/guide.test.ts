import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { compileAll, HEAD, judgeParams, outcome } from './fixtures.ts';

/** The YAML of the guide, block by block. */
async function blocks(): Promise<readonly string[]> {
  const guide = await readFile('docs/policies/README.md', 'utf8');
  return [...guide.matchAll(/```yaml\n([\s\S]*?)```/g)].map((found) => found[1] ?? '');
}

const indented = (text: string): string => text.replace(/^/gm, '    ');

test('what the guide shows loads, and decides as it says', async () => {
  const [set = '', conditions = '', obligations = ''] = await blocks();
  const { set: compiled, warnings } = compileAll([set]);
  expect(warnings).toEqual([]);
  expect(outcome(judgeParams(compiled, { amount: 50_000, currency: 'EUR' }))).toBe('permit');
  expect(outcome(judgeParams(compiled, { amount: 50_001, currency: 'EUR' }))).toBe('denied_policy');

  const [short = '', long = ''] = conditions.trim().split('\n');
  for (const line of [short, long]) {
    const { set: one } = compileAll([`${HEAD}rules:\n  - id: a\n    effect: allow\n    ${line}\n`]);
    const judged = (amount: number, currency: string) => outcome(judgeParams(one, { amount, currency }));
    expect([judged(501, 'EUR'), judged(500, 'EUR'), judged(501, 'USD')]).toEqual([
      'permit',
      'denied_policy',
      'denied_policy',
    ]);
  }

  const budgets = 'budgets: { agent-day: { unit: cent, by: [agent.id], per: day, limit: 5 } }\n';
  const { set: constrained } = compileAll([
    `${HEAD}${budgets}rules:\n  - id: a\n    effect: require_approval\n${indented(obligations)}`,
  ]);
  expect(judgeParams(constrained, { amount: 3, payment_id: 'p_1' })).toMatchObject({
    obligations: [{ kind: 'budget' }, { kind: 'rate_limit' }, { kind: 'claim' }, { kind: 'reserve' }],
    approvals: [{ quorum: 2, expiresMs: 14_400_000 }],
  });
});
