import type { JsonObject } from '../../src/json/value.ts';
import type { Agent } from '../../src/effects/model/principal.ts';
import type { Tool } from '../../src/effects/model/tool.ts';
import type { Verdict } from '../../src/effects/model/verdict.ts';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import { evaluatePolicies, type CompiledPolicies, type PolicyInput } from '../../src/policy/evaluate.ts';
import { compilePolicies } from '../../src/policy/load.ts';

/** A declared tool with params by name; `closed` schemas list all params there can be. */
export function tool(name: string, overrides: Partial<Tool> = {}, params: readonly string[] | null = null): Tool {
  return {
    name,
    title: name,
    upstream: name.split('.')[0] ?? name,
    kind: 'write',
    actionType: 'mcp.tool_call',
    tags: [],
    risk: null,
    env: null,
    call: {
      kind: 'http',
      request: { method: 'POST', path: '/', query: [], headers: {}, body: '*' },
      outcomes: { committed: [], failed: [], unknown: [], body: [] },
      state: null,
    },
    paramsSchema:
      params === null
        ? null
        : {
            type: 'object',
            properties: Object.fromEntries(params.map((param) => [param, {}])),
            additionalProperties: false,
          },
    target: null,
    timeoutMs: 1000,
    maxProcessingMs: 1000,
    idempotent: { kind: 'none' },
    digest: name,
    ...overrides,
  };
}

export const REFUND = tool('payments.refund', { tags: ['money'], risk: 'high' });
export const GET = tool('payments.get', { kind: 'read' });
export const CREATE = tool('payments.create', { tags: ['money'] });
export const MAIL = tool('mail.send', { actionType: 'mail.message' });
export const TOOLS: readonly Tool[] = [REFUND, GET, CREATE, MAIL];

export const BOT: Agent = {
  id: 'support-bot',
  workspace: 'demo',
  disabled: false,
  team: 'support',
  owner: 'maria',
  roles: ['refunder'],
  attributes: { trust: 2, tenant: 'acme' },
};

const SURROUNDINGS = {
  tools: TOOLS,
  upstreams: ['payments', 'mail'],
  pools: new Map([
    ['refund-desk', 4],
    ['desk-eu', 2],
  ]),
  roles: ['finance-lead', 'oncall', 'nobodys'],
  rolesOf: new Map([
    ['ada', ['finance-lead', 'oncall']],
    ['tom', ['oncall']],
  ]),
};

/** The head of a policy file, for texts that show only what a test is about. */
export const HEAD = 'apiVersion: svc-gateway/v1\nkind: PolicySet\nname: s\n';

export function compileText(text: string, tools: readonly Tool[] = TOOLS): CompiledPolicies {
  return compileAll([text], tools).set;
}

export function compileAll(
  texts: readonly string[],
  tools: readonly Tool[] = TOOLS,
  lists: ReadonlyMap<string, string | null> = new Map(),
  pools: ReadonlyMap<string, number> = SURROUNDINGS.pools,
): ReturnType<typeof compilePolicies> {
  const files = texts.map((text, index) => ({ file: `p${index}.yaml`, text, lists }));
  return compilePolicies(files, { ...SURROUNDINGS, tools, pools });
}

/** Rules in YAML flow style, one text for each. */
export function rules(...lines: readonly string[]): CompiledPolicies {
  return compileText(`${HEAD}rules:\n${lines.map((line) => `  - ${line}\n`).join('')}`);
}

/** Findings of texts that must not load, as `line:column code message`. */
export function faultsOf(...texts: readonly string[]): readonly string[] {
  try {
    compileAll(texts);
  } catch (error) {
    if (error instanceof InvalidFiles)
      return error.findings
        .filter(({ severity }) => severity === 'error')
        .map(({ at, code, message }) => `${at?.line ?? 0}:${at?.column ?? 0} ${code} ${message}`);
    throw error;
  }
  return [];
}

export function call(overrides: Partial<PolicyInput> = {}): PolicyInput {
  return {
    agent: BOT,
    key: { id: 'key_1', kind: 'agent', profile: null, user: 'maria' },
    tool: REFUND,
    env: 'prod',
    workspace: 'demo',
    target: 'payment:p_1',
    params: {},
    headers: {},
    requestIp: '10.0.0.1',
    now: Date.UTC(2026, 5, 15, 12),
    mode: 'enforce',
    ...overrides,
  };
}

export function judge(set: CompiledPolicies, overrides: Partial<PolicyInput> = {}): Verdict {
  return evaluatePolicies(set, call(overrides));
}

export function judgeParams(set: CompiledPolicies, params: JsonObject): Verdict {
  return judge(set, { params });
}

/** A verdict in a word: `permit`, or the decision of the refusal. */
export function outcome(verdict: Verdict): string {
  if (verdict.kind === 'deny') return verdict.decision;
  return verdict.approvals.length > 0 ? 'approval' : 'permit';
}
