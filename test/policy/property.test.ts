import { expect, test } from 'vitest';
import type { Finding } from '../../src/diagnostics/finding.ts';
import { compileCondition, holds, unknownFacts } from '../../src/policy/compiled-condition.ts';
import { parseCondition } from '../../src/policy/condition.ts';
import { noSymbols, toEngineForm } from '../../src/policy/engine-form.ts';
import { namesOf } from '../../src/policy/names.ts';
import { collectInto } from '../../src/policy/reporter.ts';
import type { PolicyFile } from '../../src/policy/schema.ts';
import { engineTruth } from '../../src/policy/second-opinion.ts';
import { DEEP } from '../deep.ts';
import { BOT, call, GET, REFUND } from './fixtures.ts';
import { seeded } from './random.ts';
import { hostileParams, NAMES, randomBlock } from './random-conditions.ts';
import { referenceTruth } from './reference.ts';

const SEED = Number(process.env['SVC_TEST_SEED'] ?? 20_260_101);
/** A condition is small, and faults are in their combinations: more of them than of other properties. */
const CONDITIONS = DEEP ? 100_000 : 10_000;

const FILE: PolicyFile = {
  apiVersion: 'svc-gateway/v1',
  kind: 'PolicySet',
  name: 's',
  lists: { currencies: ['EUR', 'USD'], sizes: [1, 2, 900], nobody: [] },
  values: {
    auto: { by: 'env', of: { prod: 500, staging: 5 }, else: 900 },
    home: { by: 'agent.team', of: { support: 'EUR' }, else: 'USD' },
    kinds: { by: 'tool.kind', of: { read: ['EUR', 'CHF'] }, else: ['USD'] },
  },
  conditions: {
    small: { 'params.amount': { lte: 500 } },
    odd: { any: [{ not: { condition: 'small' } }, { 'params.currency': { nin: '$currencies' } }] },
  },
  rules: [],
};

test(`${CONDITIONS} random conditions on hostile facts: walk, three-valued reference and json-rules-engine agree`, {
  timeout: 240_000,
}, async () => {
  const random = seeded(SEED);
  const findings: Finding[] = [];
  const report = collectInto(findings, () => null);
  const names = namesOf(FILE, new Map(), report);
  const seen = new Map<boolean | undefined, number>();
  for (let run = 0; run < CONDITIONS; run += 1) {
    const block = randomBlock(random);
    const agent = {
      ...BOT,
      team: random.pick(['support', 'EUR', null]),
      roles: random.pick([[], ['EUR'], ['admin', 'USD']]),
    };
    const input = call({
      agent: { ...agent, attributes: random.pick([{}, { trust: 2 }, { trust: 'high' }]) },
      tool: random.pick([REFUND, GET]),
      env: random.pick(['prod', 'staging', 'dev']),
      requestIp: random.pick([null, '10.0.0.1']),
      params: hostileParams(random),
    });
    const where = (): string => `seed ${SEED}, run ${run}: ${JSON.stringify(block)} on ${JSON.stringify(input)}`;
    const expression = parseCondition(block, [], names, report);
    const errors = findings.filter(({ severity }) => severity === 'error');
    if (expression === null || errors.length > 0) throw new Error(`${errors[0]?.message} ${where()}`);
    findings.length = 0;

    const truth = referenceTruth(block, input, NAMES);
    seen.set(truth, (seen.get(truth) ?? 0) + 1);
    for (const unknownIs of [true, false]) {
      const symbols = noSymbols();
      const form = toEngineForm(expression, unknownIs, symbols);
      const compiled = compileCondition(form, symbols);
      const walked = holds(compiled, input, undefined, unknownIs);
      if (walked !== (truth ?? unknownIs)) expect(walked, where()).toBe(truth ?? unknownIs);
      if (truth === undefined && unknownFacts(compiled, input).length === 0)
        expect.fail(`unknown without a fact that is: ${where()}`);
      // The engine takes most of the time: each condition with one polarity, in turns.
      if (unknownIs !== (run % 2 === 0)) continue;
      const engine = await engineTruth(form, symbols, input);
      if (engine !== walked) expect(engine, where()).toBe(walked);
    }
  }
  // A generator that finds only one kind of truth would prove nothing.
  for (const truth of [true, false, undefined]) expect(seen.get(truth)).toBeGreaterThan(CONDITIONS / 10);
});
