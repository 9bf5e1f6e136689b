/** A fixed master secret: fingerprints are then the same in every run, and are compared as they are. */
export const MASTER = Buffer.from('golden calls: a master secret 32').toString('base64url');

export interface Addresses {
  /** Origin of the upstream over HTTP. */
  readonly http: string;
  /** Of the MCP server, with its path. */
  readonly mcp: string;
  /** The lock file of the MCP server's tools. */
  readonly pins: string;
}

export function configOf({ http, mcp, pins }: Addresses, store: string, workspaces: readonly string[]): string {
  return `
server: { host: 127.0.0.1, port: 0 }
${store}
receipts: { issuer: "urn:golden", keys: "\${SVC_GOLDEN_SECRETS}/receipts" }
secrets: { master: { file: "\${SVC_GOLDEN_SECRETS}/master" } }
telemetry: { log_level: warn }
users: [ { id: maria, roles: [lead] }, { id: ada, roles: [lead] }, { id: tom, roles: [clerk] }, { id: olga, roles: [] } ]
roles: { lead: { includes: [clerk] }, clerk: {} }
auth: { profiles: [ { name: runner, scopes: ["effects:run", "effects:preview", "traces:read", "claims:write", "approvals:decide"] } ] }
workspaces:
${workspaces.map(workspace).join('\n')}
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
limits: { upload_file: 256KiB, upload: 512KiB, response_kept: 16KiB, response: 512KiB, stream: 512KiB }
upstreams:
  - { id: payments, url: "${http}", timeout: 30s, headers: { volatile: [x-try], forward: [referer], set: { x-by: "{agent_id}" } } }
  - { id: vault, url: "${http}", timeout: 30s, env: staging, credentials: { header: Authorization, value: "Bearer of-the-upstream" } }
  - id: crm
    timeout: 30s
    credentials: { header: x-server-key, value: of the server }
    mcp:
      url: "${mcp}"
      pins: "${pins}"
      trust_annotations: true
      tools:
        - { name: strict, risk: high, key_from: n }
        - { name: fail, is_error: failed }
        - { name: typed, target: "typed:{id}" }
tools:
${TOOLS}
routes:
${ROUTES}
pools: [ { id: slot, units: 1 }, { id: desk, units: 5 } ]
`;
}

function workspace(id: string): string {
  const bots = ['bot', 'other-bot', 'cat'].map((bot) => `{ id: ${bot}, team: support, owner: olga }`);
  const others = [
    '{ id: intern, team: interns, attributes: { region: eu } }',
    '{ id: off, team: support, disabled: true }',
  ];
  return `  - { id: ${id}, agents: [ ${[...bots, ...others].join(', ')} ] }`;
}

const LIST_PARAMS = `{ type: object, required: [id], properties: { id: { type: string }, dry: { type: boolean }, ids: { type: array, items: { type: integer } }, expand: { type: array, items: { type: string } }, tags: { type: array, items: { type: string } }, created: { anyOf: [ { type: integer }, { type: object, properties: { gte: { type: integer }, lt: { type: integer } } } ] }, filter: { type: object }, note: { type: string } }, additionalProperties: false }`;
const LIST_QUERY =
  'query: [dry, ids, expand, tags, created, filter], query_styles: { ids: comma, expand: indices, tags: brackets }';

const TOOLS = `
  - name: payments.refund
    title: Refund
    upstream: payments
    kind: write
    risk: high
    tags: [money]
    request: { method: POST, path: "/v1/payments/{payment_id}/refunds", body: [amount, currency, reason, card] }
    params_schema: { type: object, required: [payment_id, amount, currency], properties: { payment_id: { type: string }, amount: { type: integer }, currency: { type: string }, reason: { type: string, maxLength: 200 }, card: { type: string } }, additionalProperties: false }
    target: "payment:{payment_id}"
    max_processing: 0s
    state: { request: { method: GET, path: "/v1/payments/{payment_id}" } }
    outcomes: { failed: [503] }
  - name: payments.charge
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/charges, body: [amount, reason] }
    params_schema: { type: object, required: [amount], properties: { amount: { type: integer }, reason: { type: string } }, additionalProperties: false }
    idempotent: { header: Idempotency-Key, for: 1h }
    outcomes: { committed: [404], unknown: [409], body: [ { path: result.status, equals: declined, outcome: failed } ] }
  - name: payments.slow
    upstream: payments
    kind: write
    timeout: 400ms
    max_processing: 0s
    request: { method: POST, path: /v1/slow, body: [text] }
  - name: payments.get
    upstream: payments
    kind: read
    request: { method: GET, path: "/v1/payments/{payment_id}", query: [fields] }
    target: "payment:{payment_id}"
  - name: deploy.start
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/deployments, body: [service] }
    params_schema: { type: object, required: [service], properties: { service: { type: string } }, additionalProperties: false }
    target: "service:{service}"
  - { name: desk.use, upstream: payments, kind: write, request: { method: POST, path: /v1/desks, body: [units] } }
  - { name: notes.add, upstream: payments, kind: write, request: { method: POST, path: /v1/notes, body: "*", headers: { lang: X-Note-Language } } }
  - { name: notes.limited, upstream: payments, kind: write, action_type: http.request, request: { method: POST, path: /v1/limited, body: [text] } }
  - { name: notes.held, upstream: payments, kind: write, request: { method: PUT, path: "/v1/held/{id}", body: [text] }, target: "held:{id}" }
  - { name: notes.secret, upstream: payments, kind: write, request: { method: POST, path: /v1/secrets, body: [text] } }
  - { name: notes.expiring, upstream: payments, kind: write, request: { method: POST, path: /v1/expiring, body: [text] } }
  - { name: notes.frozen, upstream: payments, kind: write, request: { method: POST, path: /v1/frozen, body: [text] } }
  - name: notes.batch
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/batches, body_as: items }
    params_schema: { type: object, required: [items], properties: { items: { type: array, maxItems: 5 } } }
  - { name: things.put, upstream: payments, kind: write, request: { method: PUT, path: "/v1/things/{id}", query: [dry], body: "*" } }
  - { name: things.drop, upstream: payments, kind: write, request: { method: DELETE, path: "/v1/things/{id}" }, target: "thing:{id}" }
  - name: stripe.refund
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/refunds, body: "*", body_type: form }
    params_schema: { type: object, required: [charge], properties: { charge: { type: string }, amount: { type: integer }, metadata: { type: object, additionalProperties: { type: string } }, expand: { type: array, items: { type: string } }, items: { type: array, items: { type: object, properties: { price: { type: string }, quantity: { type: integer } } } }, live: { type: boolean } }, additionalProperties: false }
    target: "charge:{charge}"
    idempotent: { header: Idempotency-Key, for: 1h }
  - { name: people.tag, upstream: payments, kind: write, request: { method: POST, path: "/v1/people/{id}", query: [dry], body: [tags, name], body_type: form, form_lists: brackets } }
  - name: files.create
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/uploads/{kind}/files", query: [dry], body: "*", body_type: multipart }
    params_schema: { type: object, required: [kind], properties: { kind: { type: string }, purpose: { type: string }, n: { type: integer }, file: { type: object, properties: { bytes: { type: integer, maximum: 200000 } } }, images: { type: array, items: { type: object } } } }
  - { name: blobs.put, upstream: payments, kind: write, request: { method: PUT, path: "/v1/blobs/{id}", body_as: body, body_type: opaque } }
  - { name: lists.write, upstream: payments, kind: write, request: { method: POST, path: "/v1/lists/{id}", ${LIST_QUERY}, query_rest: more, body: [note] }, params_schema: ${LIST_PARAMS}, target: "list:{id}" }
  - { name: lists.read, upstream: payments, kind: read, request: { method: GET, path: "/v1/lists/{id}", ${LIST_QUERY}, query_rest: more }, params_schema: ${LIST_PARAMS.replace(', note: { type: string }', '')} }
  - { name: passed.write, upstream: payments, kind: write, request: { method: POST, path: /v1/passed, query: [a], body: "*" } }
  - { name: model.chat, upstream: payments, kind: write, response: stream, request: { method: POST, path: /chat, body: "*" }, actual: { token: usage.total_tokens } }
  - { name: model.whole, upstream: payments, kind: write, request: { method: POST, path: /whole, body: "*" }, actual: { token: [usage.input, usage.output] } }
  - { name: events.read, upstream: payments, kind: read, request: { method: GET, path: "/events/{topic}" }, target: "topic:{topic}" }
  - { name: counted.read, upstream: payments, kind: read, request: { method: GET, path: "/v1/counted/{id}" } }
  - { name: vault.put, upstream: vault, kind: write, request: { method: POST, path: /v1/vault, body: "*" } }
  - { name: brain.pay, upstream: payments, kind: write, request: { method: POST, path: /v1/brain, body: [customer, amount] } }
`;

const ROUTES = `
  - upstream: payments
    prefix: /payments
    headers: { drop: [x-internal-*] }
    links: [next, _links.*.href]
    rules:
      - { match: "POST /v1/payments/:payment_id/refunds", tool: payments.refund }
      - { match: "GET /v1/payments/:payment_id", tool: payments.get }
      - { match: "POST /v1/charges", tool: payments.charge, idempotency: required }
      - { match: "POST /v1/slow", tool: payments.slow }
      - { match: "POST /v1/deployments", tool: deploy.start }
      - { match: "POST /v1/notes", tool: notes.add, on_duplicate: replay }
      - { match: "POST /v1/limited", tool: notes.limited }
      - { match: "POST /v1/secrets", tool: notes.secret }
      - { match: "POST /v1/batches", tool: notes.batch }
      - { match: "PUT /v1/held/:id", tool: notes.held }
      - { match: "PUT /v1/things/:id", tool: things.put, idempotency: { derive: 10m } }
      - { match: "DELETE /v1/things/:id", tool: things.drop, idempotency: none }
      - { match: "POST /v1/refunds", tool: stripe.refund }
      - { match: "POST /v1/people/:id", tool: people.tag }
      - { match: "POST /v1/uploads/:kind/files", tool: files.create }
      - { match: "PUT /v1/blobs/:id", tool: blobs.put }
      - { match: "POST /v1/lists/:id", tool: lists.write }
      - { match: "GET /v1/lists/:id", tool: lists.read }
      - { match: "POST /v1/passed", tool: passed.write }
      - { match: "POST /chat", tool: model.chat }
      - { match: "POST /whole", tool: model.whole }
      - { match: "GET /events/:topic", tool: events.read }
      - { match: "GET /v1/counted/:id", tool: counted.read }
  - { upstream: payments, prefix: /strict, undeclared_query: refuse, rules: [ { match: "POST /v1/lists/:id", tool: lists.write } ] }
  - { upstream: payments, prefix: /open, undeclared: passthrough_reads, undeclared_query: pass, set_cookie: true, rules: [ { match: "POST /v1/passed", tool: passed.write } ] }
  - { upstream: payments, prefix: /stripe, error_format: stripe, pending_status: 409, keys: [x-api-key, bearer, basic], rules: [ { match: "POST /v1/refunds", tool: stripe.refund, idempotency: { derive: 1h } } ] }
  - { upstream: payments, prefix: /github, error_format: github, rules: [ { match: "POST /v1/payments/:payment_id/refunds", tool: payments.refund } ] }
  - { upstream: payments, prefix: /openai, error_format: openai, final_status: 422, rules: [ { match: "POST /chat", tool: model.chat, idempotency: none } ] }
  - { upstream: payments, prefix: /slack, error_format: slack, rules: [ { match: "POST /v1/notes", tool: notes.add } ] }
  - { upstream: vault, prefix: /vault, rules: [ { match: "POST /v1/vault", tool: vault.put } ] }
`;

export const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: golden
owner: team-test
lists: { currencies: [EUR, USD] }
budgets:
  agent-year: { unit: cent, by: [agent.id], per: year, limit: 100000 }
  all-year: { unit: cent, by: [], per: year, limit: 5000000 }
  tokens: { unit: token, by: [agent.id], per: year, limit: 1000000 }
  few-tokens: { unit: token, by: [agent.id], per: year, limit: 50 }
entities: { customer: { type: customer, id: params.customer } }
rules:
  - id: refund-small
    effect: allow
    match: { tools: [payments.refund], agents: { team: [support] } }
    when: { params.amount: { lte: 50000 } }
    obligations:
      - budget: { use: agent-year, amount: params.amount }
      - budget: { use: all-year, amount: params.amount }
      - claim: { on: "payment:\${params.payment_id}", hold: call }
  - id: refund-large
    effect: require_approval
    match: { tools: [payments.refund], agents: { team: [support] } }
    when: { params.amount: { gt: 50000 } }
    obligations: [ { budget: { use: all-year, amount: params.amount } }, { redact: { params: [card] } } ]
    approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: "Refund \${params.amount} cents of \${params.payment_id}" }
  - id: refund-huge
    effect: constrain
    match: { tools: [payments.refund] }
    when: { params.amount: { gt: 90000 } }
    approval: { approvers: { roles: [lead] }, quorum: 2, expires: 2h }
  - { id: currency, effect: deny, match: { tools: [payments.refund] }, unless: { params.currency: { in: $currencies } }, reason: "Only EUR and USD, not \${params.currency}" }
  - { id: account, effect: deny, match: { tools: [payments.refund] }, when: { all: [ { request.headers.stripe-account: { exists: true } }, { request.headers.stripe-account: acct_closed } ] }, reason: "Closed" }
  - { id: charge, effect: allow, match: { tools: [payments.charge, payments.slow, payments.get, things.*, people.tag, passed.write, vault.put, events.read, notes.batch] } }
  - { id: note, effect: allow, match: { tools: [notes.add] } }
  - { id: note-shadow, effect: deny, mode: shadow, match: { tools: [notes.add] }, when: { params.text: shadowed } }
  - { id: frozen, effect: pause, match: { tools: [notes.frozen] }, reason: "Until the audit is over" }
  - { id: expiring, effect: require_approval, match: { tools: [notes.expiring] }, approval: { approvers: { roles: [lead] }, quorum: 1, expires: 2s } }
  - { id: limited, effect: allow, match: { tools: [notes.limited] }, obligations: [ { rate_limit: { by: [agent.id], limit: 3, per: hour } } ] }
  - { id: held, effect: allow, match: { tools: [notes.held] }, obligations: [ { claim: { on: "held:\${params.id}", hold: existing } } ] }
  - { id: deploy, effect: allow, match: { tools: [deploy.start] }, obligations: [ { reserve: { pool: slot, units: 1 } } ] }
  - { id: desk, effect: allow, match: { tools: [desk.use] }, obligations: [ { reserve: { pool: desk, units: 2 } } ] }
  - { id: forms, effect: allow, match: { tools: [stripe.refund] }, when: { any: [ { params.amount: { lte: 1000 } }, { not: { params.amount: { exists: true } } } ] } }
  - { id: forms-ask, effect: require_approval, match: { tools: [stripe.refund] }, when: { params.charge: ch_ask }, approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: "Refund" } }
  - { id: files, effect: allow, match: { tools: [files.create, blobs.put] } }
  - { id: no-exe, effect: deny, match: { tools: [files.create] }, when: { all: [ { params.file: { exists: true } }, { params.file.filename: { glob: "*.exe" } } ] }, reason: "No programs" }
  - { id: files-ask, effect: require_approval, match: { tools: [files.create] }, when: { all: [ { params.purpose: { exists: true } }, { params.purpose: secret } ] }, approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: "Upload of \${params.file.filename}" } }
  - { id: lists, effect: allow, match: { tools: [lists.write, lists.read] } }
  - { id: late, effect: deny, match: { tools: [lists.write, lists.read] }, when: { all: [ { params.created.lt: { exists: true } }, { params.created.lt: { gt: 1000 } } ] } }
  - { id: forced, effect: deny, match: { tools: [lists.write, lists.read] }, when: { params.more.force: { exists: true } } }
  - { id: chat, effect: allow, match: { tools: [model.chat] }, obligations: [ { budget: { use: tokens, amount: 1000 } } ] }
  - { id: whole, effect: allow, match: { tools: [model.whole] }, obligations: [ { budget: { use: few-tokens, amount: 20 } } ] }
  - { id: counted, effect: allow, match: { tools: [counted.read] }, obligations: [ { rate_limit: { by: [agent.id], limit: 2, per: hour } } ] }
  - { id: open, effect: allow, match: { tools: ["payments.(undeclared)"] } }
  - { id: brain, effect: allow, match: { tools: [brain.pay] }, when: { brain.customer.status: active, params.amount: { lte: { fact: brain.customer.limit } } } }
  - { id: crm, effect: allow, match: { upstreams: [crm] } }
  - { id: crm-never, effect: deny, match: { tools: [crm.forbidden] }, reason: "Never" }
  - { id: crm-secrets, effect: deny, match: { tools: ["crm.(resources/read)"] }, when: { params.uri: "file:///secret" }, reason: "Secret" }
  - { id: crm-ask, effect: require_approval, match: { tools: [crm.ask] }, approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: "May it?" } }
`;
