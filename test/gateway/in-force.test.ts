import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { PolicyActivation } from '../../src/effects/policy-store.ts';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import { activate, FilesRefused, readFiles } from '../../src/gateway/in-force.ts';
import { evaluatePolicies } from '../../src/policy/evaluate.ts';
import { call } from '../policy/fixtures.ts';

const folder = mkdtempSync(join(tmpdir(), 'svc-in-force-'));
afterAll(() => rmSync(folder, { recursive: true }));

const config = join(folder, 'gateway.yaml');
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: s
owner: team-test
rules:
  - { id: r, effect: allow, match: { tools: [payments.refund] }, obligations: [ { reserve: { pool: slots, units: 1 } } ] }
`;

async function unitsInForce(units: number): Promise<readonly unknown[]> {
  writeFileSync(
    config,
    `
store: { kind: embedded, path: "${folder}/data" }
policies: { paths: ["${folder}/policy.yaml"] }
upstreams: [ { id: payments, url: "http://127.0.0.1:1" } ]
tools: [ { name: payments.refund, title: Refund, upstream: payments, kind: write, request: { method: POST, path: /v1/refunds } } ]
pools: [ { id: slots, units: ${units} } ]
`,
  );
  const { policies, pools } = await readFiles(config, {});
  const verdict = evaluatePolicies(policies, call());
  const capacities = (verdict.kind === 'permit' ? verdict.obligations : []).map((it) =>
    it.kind === 'reserve' ? it.capacity : null,
  );
  return [pools.get('slots'), capacities];
}

it('a pool made smaller in the configuration is smaller for the rules as well, though no policy file changed', async () => {
  writeFileSync(join(folder, 'policy.yaml'), POLICY);
  expect(await unitsInForce(4)).toEqual([4, [4]]);
  expect(await unitsInForce(2)).toEqual([2, [2]]);
});

it('an upstream has the env that it says, for what no tool of it declares as well; the others have none of their own', async () => {
  const url = 'url: "http://127.0.0.1:1"';
  writeFileSync(
    config,
    `store: { kind: embedded, path: "${folder}/data" }\nupstreams: [ { id: a, ${url}, env: staging }, { id: b, ${url} } ]\n`,
  );
  const { upstreamEnv } = await readFiles(config, {});
  expect([...upstreamEnv]).toEqual([['a', 'staging']]);
});

it.each([
  ['those of the files, all of them', {}, true],
  ['others that are in force', { version: 'another' }, false],
  ['those of files that are too long to keep', { parts: [] }, false],
])('the policies are kept with a seal where they are %s', async (_which, change, isKept) => {
  writeFileSync(join(folder, 'policy.yaml'), POLICY);
  await unitsInForce(4);
  const { policies, own } = await readFiles(config, {});
  const kept: unknown[] = [];
  const store: Parameters<typeof activate>[0] = {
    async activatePolicy(version, _budgets, change) {
      kept.push(change?.bundle);
      return { kind: 'active', version };
    },
  };
  const how = { by: { type: 'gateway', id: 'g' }, how: 'files', again: 'no' } as const;
  await activate(store, { policies, own: { ...own, ...change } }, how, { seal: (version) => `seal of ${version}` });
  const { version } = policies;
  expect(kept).toEqual([isKept ? { version, seal: `seal of ${version}`, parts: own.parts } : null]);
});

describe('what the store does not put in force', () => {
  const activated = async (activation: PolicyActivation): Promise<string | null> => {
    writeFileSync(join(folder, 'policy.yaml'), POLICY);
    await unitsInForce(4);
    const inForce = await readFiles(config, {});
    const how = { by: { type: 'gateway', id: 'g' }, how: 'files', again: 'no' } as const;
    return activate({ activatePolicy: async () => activation }, inForce, how, { seal: () => '' });
  };

  it('since others are to stay: those are named', async () => {
    expect(await activated({ kind: 'active', version: 'v1' })).toBeNull();
    expect(await activated({ kind: 'superseded', version: 'v2' })).toBe('v2');
  });

  it('since the proposal is over: it is refused', async () => {
    await expect(activated({ kind: 'proposal_over' })).rejects.toThrow(
      new FilesRefused('The proposal is over, or is not as it was read.'),
    );
  });

  it('since a budget counts something else: each is an error that says what it was, and what to do', async () => {
    const budgets = [
      { budget: 'a/day', was: 'usd per day', is: 'eur per day' },
      { budget: 'b/hour', was: 'calls per hour', is: 'calls per day' },
    ];
    const refused = await activated({ kind: 'budget_redefined', budgets }).catch((error: unknown) => error);
    if (!(refused instanceof InvalidFiles)) throw refused;
    const hint = expect.stringContaining('or write reset: true to begin at zero');
    expect(refused.findings).toMatchObject([
      {
        severity: 'error',
        message: 'Budget a/day has rows counted as "usd per day"; the file says "eur per day"',
        hint,
      },
      {
        severity: 'error',
        message: expect.stringMatching(/^Budget b\/hour .*"calls per hour";.*"calls per day"$/),
        hint,
      },
    ]);
  });
});
