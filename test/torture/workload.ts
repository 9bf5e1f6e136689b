import type { TestFiles } from '../system/gateway.ts';

/** 40 % of the upstream's answers are faulty: each misbehaviour with its chance. */
export const FAULTS: Readonly<Record<string, number>> = {
  drop_after: 0.08,
  error_after: 0.08,
  late: 0.04,
  late_effect: 0.02,
  unavailable: 0.06,
  reset_reused: 0.04,
  half: 0.04,
  redirect: 0.02,
  drop_before: 0.02,
};

/** What is declared of the upstream: it does nothing later than this after a call has left, ms. */
export const MAX_PROCESSING_MS = 1500;

/** How late the upstream is when it is late, ms: later than a call waits, sooner than `max_processing`. */
export const LATE_MS = 1000;

/** One of the agents has a budget that does not reach for all it asks for. */
export type AgentName = 'rich' | 'poor';

export interface Op {
  readonly key: string;
  readonly agent: AgentName;
  readonly amount: number;
  /** Whether the client sends the call again after `failed`. */
  readonly retriesFailed: boolean;
  readonly duplicates: number;
  /** Whether a person looks at an unknown outcome, says what is true, and the client goes on from there. */
  readonly resolves: boolean;
}

/** What the budgets allow. */
export interface Limits {
  readonly all: number;
  readonly poor: number;
}

/** The calls of a run. Keys are of one length: none begins like another. */
export function makeOps(count: number, random: () => number): readonly Op[] {
  return Array.from({ length: count }, (_, index) => ({
    key: `op-${String(index).padStart(7, '0')}`,
    agent: random() < 0.2 ? 'poor' : 'rich',
    amount: 1 + Math.floor(random() * 100),
    retriesFailed: random() < 0.5,
    duplicates: random() < 0.3 ? 1 + Math.floor(random() * 3) : 0,
    resolves: random() < 0.4,
  }));
}

/** The poor agent may spend half of what its calls come to; together they may spend all. */
export function limitsFor(ops: readonly Op[]): Limits {
  const sum = (of: readonly Op[]): number => of.reduce((total, { amount }) => total + amount, 0);
  return { all: sum(ops), poor: Math.floor(sum(ops.filter(({ agent }) => agent === 'poor')) / 2) };
}

/** Path at the upstream of an operation's effect. */
export function pathOf(op: Op): string {
  return `/v1/bookings/${op.key}`;
}

/** Configuration and policy of the gateways: one tool, two budgets. */
export function workloadFiles(upstreamUrl: string, limits: Limits): TestFiles {
  return {
    config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
workspaces: [ { id: demo, agents: [ { id: rich, team: support }, { id: poor, team: support } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: ledger, url: "${upstreamUrl}", timeout: 10s } ]
tools:
  - name: ledger.book
    title: Book
    upstream: ledger
    kind: write
    request: { method: POST, path: "/v1/bookings/{op}", body: [amount] }
    params_schema: { type: object, required: [op, amount], properties: { op: { type: string }, amount: { type: integer } }, additionalProperties: false }
    timeout: 300ms
    max_processing: ${MAX_PROCESSING_MS}ms
    outcomes: { failed: [503] }
telemetry: { log_level: error }
`,
    policies: {
      'torture.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: torture
budgets:
  all: { unit: coin, by: [], per: year, limit: ${limits.all} }
  poor: { unit: coin, by: [agent.id], per: year, limit: ${limits.poor} }
rules:
  - { id: book, effect: allow, match: { tools: [ledger.book] }, obligations: [ { budget: { use: all, amount: params.amount } } ] }
  - { id: poor, effect: constrain, match: { tools: [ledger.book], agents: { id: [poor] } }, obligations: [ { budget: { use: poor, amount: params.amount } } ] }
`,
    },
  };
}
