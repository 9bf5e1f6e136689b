import type { JsonObject } from '../json/value.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { Verdict } from '../effects/model/verdict.ts';
import { evaluatePolicies } from './evaluate.ts';
import { compilePolicies } from './load.ts';
import type { CompiledPolicies } from './policies.ts';
import { inputOfTool } from './tool-index.ts';

/** A tool that no configuration declares: its name has a space. */
const FORBIDDEN: Tool = {
  name: 'self test.forbidden',
  title: 'Self-test',
  upstream: 'self test',
  kind: 'write',
  actionType: 'mcp.tool_call',
  tags: [],
  risk: null,
  env: null,
  call: { kind: 'mcp', name: 'forbidden', pinned: {}, isError: 'unknown', onClientClose: 'finish' },
  paramsSchema: null,
  target: null,
  timeoutMs: 1,
  maxProcessingMs: 1,
  idempotent: { kind: 'none' },
  digest: '',
};

const SYNTHETIC = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: self-test
rules:
  - { id: allow, effect: allow, match: { upstreams: ["self test"] } }
  - { id: deny, effect: deny, match: { upstreams: ["self test"] }, when: { params.amount: { gt: 10 } } }
`;

/**
 * Proves at start-up that this process refuses what is forbidden. With the loaded set, it tries a call of a tool that
 * no rule can name. With a synthetic set, it tries amounts that are too large, mistyped or absent, and a small amount
 * that must be permitted.
 * @throws Error naming the call with the wrong verdict
 */
export function proveDenial(set: CompiledPolicies): void {
  proveUndeclaredDenied(set);
  const { set: synthetic } = compilePolicies([{ file: 'self-test', text: SYNTHETIC, lists: new Map() }], {
    tools: [FORBIDDEN],
    upstreams: [FORBIDDEN.upstream],
    pools: new Map(),
    roles: [],
    rolesOf: new Map(),
  });
  expectVerdict('an amount within the bound', 'permit', judge(synthetic, { amount: 10 }));
  for (const params of [{ amount: 11 }, { amount: '5' }, { amount: null }, { amount: [5] }, {}])
    expectVerdict(`the params ${JSON.stringify(params)}`, 'deny', judge(synthetic, params));
}

/** The part of the proof that needs only the loaded set. @throws Error */
export function proveUndeclaredDenied(set: CompiledPolicies): void {
  expectVerdict('a tool that is not declared', 'deny', judge(set, {}));
}

function judge(set: CompiledPolicies, params: JsonObject): Verdict {
  return evaluatePolicies(set, { ...inputOfTool(FORBIDDEN), params });
}

function expectVerdict(what: string, expected: Verdict['kind'], { kind }: Verdict): void {
  if (kind !== expected) throw new Error(`Policy self-test failed: ${what} should be a ${expected} and is a ${kind}`);
}
