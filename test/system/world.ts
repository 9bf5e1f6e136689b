import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expectSilentFsckIn } from '../silent-fsck.ts';
import { type LedgerUpstream, startLedgerUpstream } from '../upstream/start.ts';
import { type Answer, makeApiKey, send, startGateway, type TestFiles, type TestGateway } from './gateway.ts';

/**
 * Configuration of the tests: one upstream that keeps a ledger, and a tool for each thing that can go wrong. Its time-outs
 * are longer than a busy machine takes to answer; what is to be under way for a while is `held` at the upstream.
 */
export function worldFiles(upstreamUrl: string): TestFiles {
  return { config: config(upstreamUrl), policies: { 'world.yaml': POLICY } };
}

/**
 * The same with more tools and rules.
 * @param more.tools in the place of the line `routes:`, which they end with or go on from
 * @param more.routes rules of the route to the upstream, in the place of the line `pools:`, which they end with
 */
export function worldFilesWith(more: {
  readonly tools: string;
  readonly routes: string;
  readonly policy: string;
}): (upstreamUrl: string) => TestFiles {
  return (upstreamUrl) => ({
    config: config(upstreamUrl).replace('\npools:', more.routes).replace('\nroutes:', more.tools),
    policies: { 'world.yaml': `${POLICY}${more.policy}` },
  });
}

function config(upstreamUrl: string): string {
  return `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: maria, roles: [finance-lead] }, { id: tom, roles: [finance] }, { id: olga, roles: [] } ]
roles: { finance-lead: { includes: [finance] }, finance: {} }
workspaces:
  - id: demo
    agents:
      - { id: bot, team: support, owner: olga }
      - { id: other-bot, team: support, owner: olga }
  - { id: elsewhere, agents: [ { id: stranger, team: support } ] }
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: payments, url: "${upstreamUrl}", timeout: 10s } ]
tools:
  - name: payments.refund
    title: Refund
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/payments/{payment_id}/refunds", body: [amount, currency, reason] }
    params_schema: { type: object, required: [payment_id, amount, currency], properties: { payment_id: { type: string }, amount: { type: integer }, currency: { type: string }, reason: { type: string } }, additionalProperties: false }
    target: "payment:{payment_id}"
    timeout: 3s
    max_processing: 500ms
    state: { request: { method: GET, path: "/v1/payments/{payment_id}" } }
    outcomes: { failed: [503] }
  - name: payments.charge
    title: Charge
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/charges, body: [amount, reason] }
    params_schema: { type: object, required: [amount], properties: { amount: { type: integer }, reason: { type: string } }, additionalProperties: false }
    timeout: 3s
    max_processing: 500ms
    idempotent: { header: Idempotency-Key, for: 1h }
  - name: payments.get
    title: Get
    upstream: payments
    kind: read
    request: { method: GET, path: "/v1/payments/{payment_id}" }
    params_schema: { type: object, required: [payment_id], properties: { payment_id: { type: string } }, additionalProperties: false }
    target: "payment:{payment_id}"
  - name: deploy.start
    title: Deploy
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/deployments, body: [service] }
    params_schema: { type: object, required: [service], properties: { service: { type: string } }, additionalProperties: false }
    target: "service:{service}"
    timeout: 20s
  - name: notes.add
    title: Note
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/notes, body: [text] }
    params_schema: { type: object, required: [text], properties: { text: { type: string } }, additionalProperties: false }
    timeout: 20s
  - name: notes.secret
    title: Secret note
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/secrets, body: [text] }
    params_schema: { type: object, required: [text], properties: { text: { type: string } }, additionalProperties: false }
routes:
  - upstream: payments
    prefix: /payments
    rules:
      - { match: "POST /v1/payments/:payment_id/refunds", tool: payments.refund, idempotency: required }
      - { match: "GET /v1/payments/:payment_id", tool: payments.get }
      - { match: "POST /v1/notes", tool: notes.add, idempotency: required, on_duplicate: replay }
      - { match: "POST /v1/charges", tool: payments.charge, idempotency: required }
      - { match: "POST /v1/deployments", tool: deploy.start, idempotency: required }
pools: [ { id: deploy-slot, units: 1 } ]
`;
}

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: world
owner: team-test
lists: { currencies: [EUR, USD] }
budgets:
  agent-day: { unit: EUR-cent, by: [agent.id], per: year, limit: 100000 }
  charges: { unit: call, by: [], per: year, limit: 9007199254740991 }
rules:
  - id: refund-small
    effect: allow
    match: { tools: [payments.refund], agents: { team: [support] } }
    when: { params.amount: { lte: 50000 } }
    obligations:
      - budget: { use: agent-day, amount: params.amount }
      - claim: { on: "payment:\${params.payment_id}", hold: call }
  - id: refund-large
    effect: require_approval
    match: { tools: [payments.refund] }
    when: { params.amount: { gt: 50000 } }
    obligations: [ { budget: { use: agent-day, amount: params.amount } } ]
    approval: { approvers: { roles: [finance-lead] }, quorum: 1, expires: 1h, summary: "Refund \${params.amount} cents of \${params.payment_id}" }
  - { id: currency, effect: deny, match: { tools: [payments.refund] }, unless: { params.currency: { in: $currencies } }, reason: "Only EUR and USD" }
  - { id: charge, effect: allow, match: { tools: [payments.charge] } }
  - { id: read, effect: allow, match: { tools: [payments.get] } }
  - { id: note, effect: allow, match: { tools: [notes.add] } }
  - { id: deploy, effect: allow, match: { tools: [deploy.start] }, obligations: [ { reserve: { pool: deploy-slot, units: 1 } } ] }
`;

export interface World {
  readonly upstream: LedgerUpstream;
  readonly gateway: TestGateway;
  readonly keys: {
    readonly account: string;
    readonly bot: string;
    readonly otherBot: string;
    readonly approver: string;
    readonly stranger: string;
    readonly readonly: string;
  };
  /** Runs an effect through the effects API as `bot`. */
  run(body: Record<string, unknown>, key?: string): Promise<Answer>;
  get(path: string, key?: string): Promise<Answer>;
  post(path: string, body: unknown, key?: string): Promise<Answer>;
  /** Ledger kinds of an effect, in order. */
  kinds(effectId: string): Promise<readonly string[]>;
  close(): Promise<void>;
}

/** Starts upstream and gateway as processes of their own, with keys of every kind. */
export async function startWorld(
  options: {
    readonly files?: (upstreamUrl: string) => TestFiles;
    readonly dedupe?: string;
    readonly env?: Record<string, string>;
    readonly entry?: string;
    readonly openFiles?: number;
    /** The test damages the store: nothing is looked for in it afterwards. */
    readonly lost?: true;
  } = {},
): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-up-'));
  const upstream = await startLedgerUpstream({
    ledger: join(folder, 'ledger.jsonl'),
    ...(options.dedupe === undefined ? {} : { dedupe: options.dedupe }),
  });
  const gateway = await startGateway((options.files ?? worldFiles)(upstream.url), options);
  const demo = { workspace: 'demo' };
  const keys = {
    account: await makeApiKey(gateway, 'tom', { kind: 'account', ...demo }),
    bot: await makeApiKey(gateway, 'olga', { kind: 'agent', agent_id: 'bot', ...demo }),
    otherBot: await makeApiKey(gateway, 'olga', { kind: 'agent', agent_id: 'other-bot', ...demo }),
    approver: await makeApiKey(gateway, 'maria', { kind: 'account', ...demo }),
    stranger: await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'elsewhere', agent_id: 'stranger' }),
    readonly: await makeApiKey(gateway, 'tom', { profile: 'mcp_readonly', ...demo }),
  };
  const base = '/v1/workspaces/demo';
  const get = (path: string, key = keys.account): Promise<Answer> => send(gateway.url, key, 'GET', `${base}${path}`);
  return {
    upstream,
    gateway,
    keys,
    run: (body, key = keys.bot) => send(gateway.url, key, 'POST', `${base}/effects`, body),
    get,
    post: (path, body, key = keys.account) => send(gateway.url, key, 'POST', `${base}${path}`, body),
    async kinds(effectId) {
      const { body } = await get(`/effects/${effectId}`);
      return body.ledger.map((event: { kind: string }) => event.kind);
    },
    async close() {
      try {
        await gateway.dispose(options.lost === true ? undefined : () => expectSilentFsckIn(gateway.dataFolder));
      } finally {
        await upstream.stop();
        await rm(folder, { recursive: true, force: true });
      }
    },
  };
}

let counter = 0;

/** A key that no other test uses. */
export function freshKey(): string {
  counter += 1;
  return `key-${process.pid}-${counter}`;
}

/** A refund that the policy of the tests allows. */
export function refund(over: Record<string, unknown> = {}, key = freshKey()): Record<string, unknown> {
  return {
    action_type: 'mcp.tool_call',
    tool: 'payments.refund',
    params: { payment_id: `pay_${key}`, amount: 1000, currency: 'EUR', ...over },
    idempotency_key: key,
  };
}
