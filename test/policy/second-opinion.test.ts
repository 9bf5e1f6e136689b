import { join } from 'node:path';
import { Writable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import * as core from '../../src/gateway/core-ports.ts';
import { readFiles } from '../../src/gateway/in-force.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import type { CompiledPolicies } from '../../src/policy/evaluate.ts';
import * as product from '../../src/policy/second-opinion.ts';
import { plantedIn } from '../planted-faults.ts';
import { call, HEAD, compileText } from './fixtures.ts';

const POLICY = compileText(
  `${HEAD}rules:\n  - { id: large, effect: deny, when: { params.amount: { gt: 5 } } }\n  - { id: rest, effect: allow }\n  - { id: lines, effect: deny, when: { params.lines: { every: { item: { glob: "a*" } } } } }\n`,
);

interface World {
  readonly opinion: product.SecondOpinion;
  readonly found: product.Difference[];
  readonly failed: unknown[];
  /** What waits for other work to have its turn. */
  readonly waiting: (() => void)[];
  /** Lets the sample run to its end. */
  end(): Promise<void>;
}

function world(made: typeof product, everyMs: number | null = 1000, elapsed: () => number = () => 0): World {
  const found: product.Difference[] = [];
  const failed: unknown[] = [];
  const waiting: (() => void)[] = [];
  const opinion = new made.SecondOpinion({
    everyMs: () => everyMs,
    elapsed,
    later: (run) => waiting.push(run),
    found: (difference) => found.push(difference),
    failed: (error) => failed.push(error),
  });
  const end = async (): Promise<void> => {
    for (let turn = 0; turn < 50; turn += 1) {
      waiting.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  return { opinion, found, failed, waiting, end };
}

const at = (now: number, params: Parameters<typeof call>[0] = {}) => call({ now, ...params });

describe('a second opinion', () => {
  test('agrees with what decides, whatever the params are', async () => {
    const { opinion, found, failed, end } = world(product);
    for (const [index, amount] of [1, 6, '9', null, undefined, [9]].entries()) {
      const params = amount === undefined ? { lines: ['a', 'ab'] } : { amount, lines: ['b'] };
      opinion.offer('call', POLICY, at(1000 * (index + 1), { params }));
      await end();
    }
    expect({ found, failed }).toEqual({ found: [], failed: [] });
  });

  test('is asked again after the engine itself has failed', async () => {
    let isBroken = true;
    const { opinion, failed, waiting, end } = world(product, 1000, () => {
      if (isBroken) throw new Error('broken');
      return 0;
    });
    opinion.offer('call', POLICY, at(1000));
    await end();
    expect(failed).toEqual([new Error('broken')]);
    isBroken = false;
    opinion.offer('call', POLICY, at(2000));
    expect(waiting).toHaveLength(1);
    await end();
    expect(failed).toHaveLength(1);
  });

  test('names the rule that a fault in what decides gets wrong: once for a version, and it stays noted', async () => {
    const faulty = await plantedIn(product, 'src/policy/second-opinion.ts', 'unknown-does-not-restrict');
    const { opinion, found, end } = world(faulty);
    for (const now of [1000, 2000, 3000]) {
      opinion.offer('simulation', POLICY, at(now, { params: { lines: ['b'] } }));
      await end();
    }
    const large = {
      rule: 's/large',
      tool: 'payments.refund',
      policyVersion: POLICY.version,
      here: false,
      engine: true,
    };
    expect(found).toEqual([large]);
    expect(opinion.differences(POLICY.version)).toEqual([large]);
    expect(opinion.differences('another')).toEqual([]);
  });

  test('keeps 64 differences at most: a set that is wrong everywhere fills no memory', async () => {
    const faulty = await plantedIn(product, 'src/policy/second-opinion.ts', 'unknown-does-not-restrict');
    const noted = async (rules: number) => {
      const wrong = Array.from(
        { length: rules },
        (_, n) => `  - { id: r${n}, effect: deny, when: { params.amount: { gt: 5 } } }\n`,
      );
      const set = compileText(`${HEAD}rules:\n${wrong.join('')}`);
      const { opinion, end } = world(faulty);
      opinion.offer('call', set, at(1000, { params: {} }));
      await end();
      return opinion.differences(set.version).length;
    };
    expect([await noted(64), await noted(65)]).toEqual([64, 1]);
  });

  test('is asked of one decision a second of each kind, one at a time, and outside the call', async () => {
    const { opinion, waiting, end } = world(product);
    opinion.offer('call', POLICY, at(1000));
    expect(waiting).toHaveLength(1);
    opinion.offer('call', POLICY, at(1500));
    opinion.offer('simulation', POLICY, at(1600));
    expect(waiting).toHaveLength(1);
    await end();
    opinion.offer('call', POLICY, at(1999));
    expect(waiting).toHaveLength(0);
    opinion.offer('call', POLICY, at(2000));
    expect(waiting).toHaveLength(1);
    await end();
    opinion.offer('simulation', POLICY, at(2600));
    expect(waiting).toHaveLength(1);
  });

  test('is asked of none where the configuration says never', () => {
    const { opinion, waiting } = world(product, null);
    opinion.offer('call', POLICY, at(1000));
    expect(waiting).toHaveLength(0);
  });

  test('gives other work its turn, and leaves off after its time; the next sample goes on with other rules', async () => {
    const many = Array.from(
      { length: 100 },
      (_, n) => `  - { id: r${n}, effect: deny, when: { params.amount: ${n + 10} } }\n`,
    );
    const set = compileText(`${HEAD}rules:\n${many.join('')}`);
    let now = 0;
    const asked = new Set<string>();
    const spied: CompiledPolicies = {
      ...set,
      rules: set.rules.map((rule) => ({
        ...rule,
        get conditions() {
          asked.add(rule.id);
          return rule.conditions;
        },
      })),
    };
    const { opinion, end } = world(product, 1000, () => (now += 1));
    opinion.offer('call', spied, at(1000, { params: { amount: 1 } }));
    await end();
    const first = asked.size;
    expect(first).toBeGreaterThan(5);
    expect(first).toBeLessThan(20);
    opinion.offer('call', spied, at(2000, { params: { amount: 1 } }));
    await end();
    expect(asked.size).toBeGreaterThan(first + 5);
  });

  test('leaves out what would take too long: large params, large rules, long lists of elements', async () => {
    const list = Array.from({ length: 3000 }, (_, n) => n);
    const set = compileText(
      `${HEAD}rules:\n  - { id: a, effect: deny, when: { params.amount: { in: [${list.join()}] } } }\n`,
    );
    const { opinion, found, failed, end } = world(product);
    opinion.offer('call', set, at(1000, { params: { amount: 1 } }));
    await end();
    opinion.offer('call', POLICY, at(2000, { params: { text: 'x'.repeat(20_000) } }));
    await end();
    opinion.offer('call', POLICY, at(3000, { params: { lines: list.map(() => 'a') } }));
    await end();
    expect({ found, failed }).toEqual({ found: [], failed: [] });
  });

  test('a difference is an alert in the log, a metric, and a note for /readyz, each with the rule', async () => {
    const faulty = await plantedIn(core, 'src/gateway/core-ports.ts', 'unknown-does-not-restrict');
    let log = '';
    const sink = new Writable({
      write(chunk: Buffer, _encoding, done) {
        log += chunk.toString();
        done();
      },
    });
    const notAsked = () => Promise.reject(new Error('not asked'));
    const store = {
      health: () => ({ ready: true, problem: null, durability: 'fsync' as const, epoch: 1 }),
      now: () => 0,
      commits: () => ({ done: 0, moved: 0, givenUp: 0 }),
      effects: notAsked,
      approvals: notAsked,
    };
    const metrics = createMetrics({ store, workspaces: () => [], swept: () => null });
    const config = join(import.meta.dirname, '..', '..', 'config', 'demo.yaml');
    const held = { inForce: { ...(await readFiles(config, {})), policies: POLICY } };
    const opinion = faulty.secondOpinionOf(held, metrics, createLogger({ level: 'info', sink }));
    let now = 0;
    const next = (): string => {
      opinion.offer('call', POLICY, at((now += 1000), { params: { lines: ['b'] } }));
      return log;
    };
    // On a busy machine one sample has time for few rules.
    await expect.poll(next).toContain('"alert":"policy_difference"');
    expect(log).toContain('"rule":"s/large"');
    expect(log).toMatch(/"level":"?(error|50)"?,[^\n]*"alert":"policy_difference"/);
    expect((await metrics.render()).text).toContain('svc_policy_differences_total{rule="s/large"} 1');
    expect(faulty.opinionNotes(held, opinion)).toEqual([
      {
        part: 'policies',
        message: expect.stringContaining('The rule s/large did not match a call of payments.refund'),
      },
    ]);
  });
});
