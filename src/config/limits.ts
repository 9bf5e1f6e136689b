/** A limit of the product. */
export interface Limit {
  /** What is limited, in words. */
  readonly what: string;
  /** The value as an operator would write it: a size, a duration, or a count. */
  readonly value: string | number;
  /** What happens beyond it. */
  readonly beyond: string;
  /**
   * `configuration`: the setting `limits.<name>` of `gateway.yaml`. Other limits are fixed. For those it names the
   * constant, as `file#NAME` or `file#NAME.field` (a test compares the two), or is `null` where the form of a field
   * sets the limit.
   */
  readonly source: 'configuration' | `${string}#${string}` | null;
}

/** Every limit of the product in one table. `docs/operating/limits.md` is rendered from it. */
export const LIMITS = {
  body: {
    what: 'Body of a request to the gateway and, on write routes, through it',
    value: '1MiB',
    beyond: '413 `too_large`; nothing ran',
    source: 'configuration',
  },
  upload: {
    what: 'Body of a proxied request of a tool with `body_type: multipart` or `opaque`',
    value: '256MiB',
    beyond: '413 `too_large`; nothing ran',
    source: 'configuration',
  },
  upload_file: {
    what: 'One file in it',
    value: '256MiB',
    beyond: '413 `too_large`; nothing ran',
    source: 'configuration',
  },
  spool: {
    what: 'Files of all requests that are under way; of it, one agent gets three quarters of what the others leave',
    value: '2GiB',
    beyond: '429 `busy`; nothing ran',
    source: 'configuration',
  },
  upload_in_memory: {
    what: 'Files of one request that are kept in memory; larger ones are in `uploads/` beside the store while the call runs',
    value: 65_536,
    beyond: 'they are on disk',
    source: 'src/upstreams/http/spool.ts#IN_MEMORY',
  },
  part_headers: {
    what: 'Headers of one part of a multipart body, bytes',
    value: 8192,
    beyond: '400 `invalid_request`',
    source: 'src/upstreams/http/read-multipart.ts#MAX_HEAD',
  },
  filename: {
    what: 'Length of the name of a file, characters',
    value: 1024,
    beyond: '400 `invalid_request`',
    source: 'src/upstreams/http/multipart-body.ts#MAX_FILENAME',
  },
  params_depth: {
    what: 'Nesting of a JSON body',
    value: 64,
    beyond: '400 `invalid_json`; nothing ran',
    source: 'configuration',
  },
  params_values: {
    // In the worst case this many values hold the event loop for 25 ms, half of the 50 ms that a request may take:
    // test/hostile/loop-held.test.ts.
    what: 'Values in a JSON body: members, elements and what holds them',
    value: 10_000,
    beyond: '400 `invalid_json`; nothing ran',
    source: 'configuration',
  },
  params_name: {
    what: 'Length of a name in a JSON body, characters',
    value: 1024,
    beyond: '400 `invalid_json`; nothing ran',
    source: 'src/json/strict.ts#MAX_NAME',
  },
  response_values: {
    what: "Values in the JSON of an upstream's answer",
    value: 20_000,
    beyond: 'it is kept as text; for `outcomes.body` and `state_check` it counts as unreadable',
    source: 'src/upstreams/http/answer.ts#LIMITS.values',
  },
  mcp_values: {
    what: 'Values in one message of an MCP server',
    value: 200_000,
    beyond: 'it does not go on: a write is `unknown_effect`, what is no call 503 `not_ready`',
    source: 'src/upstreams/mcp/whole-answer.ts#SAID.values',
  },
  mcp_members: {
    // To ask an object for so many names takes 10 ms.
    what: 'Members of one object in it',
    value: 20_000,
    beyond: 'the same',
    source: 'src/upstreams/mcp/whole-answer.ts#SAID.members',
  },
  mcp_event_lines: {
    what: 'Lines of one event in a stream of an MCP server',
    value: 10_000,
    beyond: 'the stream is cut',
    source: 'src/upstreams/mcp/server-events.ts#MOST_LINES',
  },
  mcp_tools: {
    what: 'Tools that one MCP server lists',
    value: 10_000,
    beyond: 'the gateway cannot look at them: calls are refused as `tool_unseen`',
    source: 'src/mcp-protocol/read-server.ts#MOST_TOOLS',
  },
  mcp_tool: {
    what: 'The definition of an MCP tool as JSON, characters',
    value: 1_048_576,
    beyond: 'it cannot be pinned; one that was is quarantined',
    source: 'src/pins/digest.ts#MAX_TOOL',
  },
  response_kept: {
    what: "Part of an upstream's answer that is kept for duplicates",
    value: '64KiB',
    beyond: 'the rest is not kept; the kept result says so',
    source: 'configuration',
  },
  response: {
    what: "Part of an upstream's answer to a governed call that is read; of an MCP server, an answer in JSON to anything, and one event of a stream",
    value: '8MiB',
    beyond:
      'a success stays `committed`, with `response_truncated`; what is no call is 503 `not_ready`, and a stream is cut',
    source: 'configuration',
  },
  stream: {
    what: 'Part of the answer to a governed call that is passed on as it comes (`response: stream`)',
    value: '256MiB',
    beyond: 'the stream is cut: `unknown_effect`',
    source: 'configuration',
  },
  stream_event: {
    what: 'Part of a server-sent event that is held back until the event is complete',
    value: '64KiB',
    beyond: 'it is passed on in pieces; a stream that is cut inside it cannot say so in an event',
    source: 'src/proxy/passing-answer.ts#MOST_HELD',
  },
  connections: {
    what: 'Connections of callers at once; fewer where the process may open few files (`ulimit -n`)',
    value: 10_000,
    beyond: 'the longest idle one is closed; where none is idle, the new one',
    source: 'configuration',
  },
  headers_time: {
    what: 'Time in which the headers of a request have to arrive, from the connection or the first byte on',
    value: '10s',
    beyond: '408; the connection is closed',
    source: 'src/api/server.ts#HEADERS_TIMEOUT_MS',
  },
  request_time: {
    what: 'Time in which a request has to arrive whole',
    value: '60s',
    beyond: '408; the connection is closed',
    source: 'src/api/server.ts#REQUEST_TIMEOUT_MS',
  },
  idle_time: {
    what: 'Time that a connection may be idle between two requests',
    value: '72s',
    beyond: 'it is closed',
    source: 'src/api/server.ts#KEEP_ALIVE_MS',
  },
  idempotency_key: {
    what: 'Length of an idempotency key, visible ASCII characters',
    value: 255,
    beyond: '400 `invalid_request`',
    source: null,
  },
  target: {
    what: 'Length of a target, sent or computed from params, characters',
    value: 1024,
    beyond: '400 `invalid_request`',
    source: 'src/effects/model/tool.ts#MAX_TARGET',
  },
  placed_param: {
    what: 'Length of a param that goes into the path, the query or a header, characters',
    value: 4096,
    beyond: '400 `invalid_request`',
    source: 'src/upstreams/http/request-template.ts#MAX_PLACED',
  },
  query_param: {
    what: 'Length of a list or an object in the query, as it is sent, characters',
    value: 8192,
    beyond: '400 `invalid_request`',
    source: 'src/upstreams/http/query.ts#MAX_WRITTEN',
  },
  schema_steps: {
    what: 'Steps of the patterns and formats of a `params_schema` on one call: the size of the pattern (of a format: 16) for each character',
    value: 500_000,
    beyond: '400 `invalid_request`',
    source: 'src/upstreams/params-schema.ts#TEXT_STEPS.most',
  },
  metadata: {
    what: '`metadata` of a call, as JSON',
    value: '4KiB',
    beyond: '400 `invalid_request`',
    source: 'src/api/run-body.ts#METADATA_BYTES',
  },
  wait: {
    what: 'Time that `Prefer: wait=n` may ask for',
    value: '30s',
    beyond: 'the answer comes after this time',
    source: 'src/api/effects.ts#MAX_WAIT_S',
  },
  page: {
    what: 'Items on a page of a list',
    value: 200,
    beyond: '400 `invalid_request`',
    source: 'src/api/paging.ts#MAX_PAGE',
  },
  page_bytes: {
    what: 'Records on a page of effects or approvals, as they are kept (params and answers sealed); one item at least',
    value: '1MiB',
    beyond: 'the page is short; `next_cursor` goes on',
    source: 'src/effects/store.ts#PAGE_BYTES',
  },
  lists_at_once: {
    what: 'Lists that are made at once for one key; 30 more wait',
    value: 2,
    beyond: '429 `too_many_requests` with `Retry-After`',
    source: 'src/api/lists.ts#LISTS_AT_ONCE',
  },
  mcp_page: {
    what: 'Items on a page of a tool of the MCP control plane',
    value: 50,
    beyond: 'the arguments are refused',
    source: 'src/mcp/control/schemas.ts#MAX_PAGE',
  },
  mcp_receipt: {
    what: 'Length of a receipt that `svc.receipts.verify` takes, characters',
    value: 65_536,
    beyond: 'the arguments are refused',
    source: 'src/mcp/control/receipts.ts#MAX_RECEIPT',
  },
  approver_session: {
    what: 'Time for which a key that was shown on the approver’s page counts there',
    value: '10m',
    beyond: 'the page asks for the key again',
    source: 'src/api/approver/session.ts#SESSION_MS',
  },
  approver_comment: {
    what: 'Length of a comment with a vote, characters',
    value: 1000,
    beyond: '400 `invalid_request`',
    source: 'src/effects/model/approval.ts#MOST_COMMENT',
  },
  approver_form: {
    what: 'Body of a form of the approver’s page',
    value: '32KiB',
    beyond: '413 `too_large`; nothing was decided',
    source: 'src/api/approver/routes.ts#MOST_FORM',
  },
  mcp_summary: {
    what: 'Effects that `svc.observability.summary` counts, the newest of its window',
    value: 1_000,
    beyond: '`complete: false`',
    source: 'src/mcp/control/observability.ts#MOST_EFFECTS',
  },
  faults: {
    what: 'Faults listed in one answer',
    value: 100,
    beyond: 'no more are looked for',
    source: 'src/diagnostics/stop-at.ts#MOST_FAULTS',
  },
  invalid_keys: {
    what: 'Invalid keys that one address may show at once; 10 a second come back',
    value: 500,
    beyond: '429 `too_many_requests` with `Retry-After`',
    source: 'src/api/invalid-key-limiter.ts#INVALID_KEY_LIMIT.burst',
  },
  event_loop_delay: {
    what: 'Delay of the event loop',
    value: '750ms',
    beyond: '503 `not_ready` with `Retry-After`, until it is below again',
    source: 'src/api/overload.ts#MAX_EVENT_LOOP_DELAY_MS',
  },
  dispatch_window: {
    what: 'Time between the admission of a call and its first byte to the upstream',
    value: '2s',
    beyond: '`failed`, `not_dispatched`; nothing was sent',
    source: 'src/gateway/core-ports.ts#DISPATCH_WINDOW_MS',
  },
  connect: {
    what: 'Time to connect to an upstream',
    value: '3s',
    beyond: '`failed`, `connect_failed`; nothing was sent',
    source: 'src/upstreams/http/connections.ts#CONNECT_TIMEOUT_MS',
  },
  attempts: {
    what: 'Attempts of one effect that may have sent something',
    value: 10,
    beyond: '`denied_policy`, `attempts_exhausted`',
    source: 'src/effects/steps/lifecycle.ts#MAX_ATTEMPTS',
  },
  pending_approvals: {
    what: 'Effects of one agent that wait for approval',
    value: 20,
    beyond: '`denied_policy`, `too_many_pending`',
    source: 'src/effects/steps/admission.ts#MAX_PENDING',
  },
  rejection_cooldown: {
    what: 'Time for which a rejected action is refused under any key',
    value: '24h',
    beyond: 'approval may be asked for again',
    source: 'src/effects/steps/voting.ts#REJECTION_COOLDOWN_MS',
  },
  claims: {
    what: 'Claims that one agent asked for, at a time; those that calls take for themselves do not count',
    value: 20,
    beyond: '409 `too_many_claims`',
    source: 'src/effects/steps/claims-and-reservations.ts#MAX_CLAIMS',
  },
  claims_of_key: {
    what: 'Claims that one key took at a time, for whichever agents',
    value: 100,
    beyond: '409 `too_many_claims`',
    source: 'src/effects/steps/claims-and-reservations.ts#MAX_CLAIMS_OF_KEY',
  },
  reservations_of_key: {
    what: 'Reservations that one key made at a time, for whichever agents',
    value: 100,
    beyond: '409 `too_many_reservations`',
    source: 'src/effects/steps/claims-and-reservations.ts#MAX_RESERVATIONS_OF_KEY',
  },
  claim_ttl: {
    what: 'Time that a claim or a reservation may be asked for',
    value: '1h',
    beyond: '400 `invalid_request`; renew it instead',
    source: 'src/api/claims.ts#MAX_TTL_S',
  },
  budget_rows: {
    what: 'Rows of one budget, over all its windows',
    value: 10_000,
    beyond: '`denied_budget`, `too_many_rows`',
    source: 'src/effects/steps/obligations.ts#MAX_BUDGET_ROWS',
  },
  amount: {
    what: 'Amount of one call, and limit of a budget',
    value: 9_007_199_254_740_991,
    beyond: '`denied_budget`, `amount_invalid`',
    source: null,
  },
  check_fields: {
    what: 'Required fields of one request to `/state/verify` or of one `state_check`',
    value: 1000,
    beyond: '400 `invalid_request`',
    source: 'src/effects/checks/state-fields.ts#CHECK_LIMITS.fields',
  },
  check_conditions: {
    what: 'Conditions of one request to `/state/verify` or `/outcomes/reconcile`, or of one `state_check`',
    value: 1000,
    beyond: '400 `invalid_request`',
    source: 'src/effects/checks/state-fields.ts#CHECK_LIMITS.conditions',
  },
  check_field: {
    what: 'Length of the name or path of a field of a state, characters',
    value: 1000,
    beyond: '400 `invalid_request`',
    source: 'src/effects/checks/state-fields.ts#CHECK_LIMITS.field',
  },
  check_segments: {
    what: 'Segments of the path of a field of a state',
    value: 100,
    beyond: '400 `invalid_request`',
    source: 'src/effects/checks/state-fields.ts#CHECK_LIMITS.segments',
  },
  check_effort: {
    what: 'Steps of all look-ups and comparisons of one check',
    value: 100_000,
    beyond: '400 `invalid_request`; as `state_check`: `denied_claim`, `state_unreadable`, nothing ran',
    source: 'src/effects/checks/state-fields.ts#CHECK_LIMITS.effort',
  },
  check_shown: {
    what: 'Value of a mismatch that is shown, characters of JSON; 32,768 for all mismatches of one answer',
    value: 1024,
    beyond: 'its beginning as a text, or null, and `truncated: true`',
    source: 'src/effects/checks/mismatches.ts#SHOWN_VALUES.one',
  },
  check_expressions: {
    what: '`$regex` conditions in one request to `/state/verify` or `/outcomes/reconcile`',
    value: 16,
    beyond: '400 `invalid_request`',
    source: 'src/effects/checks/conditions.ts#REGEX_LIMITS.perRequest',
  },
  check_programs: {
    what: 'Size of all compiled `$regex` of one request together',
    value: 500,
    beyond: '400 `invalid_request`',
    source: 'src/effects/checks/conditions.ts#REGEX_LIMITS.programSize',
  },
  check_regex_steps: {
    what: 'Steps of all `$regex` of one request: the size of each for each character of its text',
    value: 100_000,
    beyond: 'the condition does not hold',
    source: 'src/effects/checks/conditions.ts#REGEX_LIMITS.steps',
  },
  check_subject: {
    what: 'Text that a `$regex` condition looks at, characters',
    value: 4096,
    beyond: 'the condition does not hold',
    source: 'src/effects/checks/conditions.ts#REGEX_LIMITS.subjectLength',
  },
  brain_entities: {
    what: 'Entities of the company brain in one workspace',
    value: 100_000,
    beyond: '409 `conflict`; nothing was put',
    source: 'configuration',
  },
  brain_size: {
    what: 'All of them as JSON: names, attributes and links, without type and id. The index of a workspace takes about three times as much memory',
    value: '64MiB',
    beyond: '409 `conflict`; nothing was put',
    source: 'configuration',
  },
  brain_entity: {
    what: 'Length of one entity as JSON, characters',
    value: 16_384,
    beyond: '400 `invalid_request`; nothing was put',
    source: 'src/brain/check-entity.ts#MAX_ENTITY',
  },
  brain_links: {
    what: 'Links of one entity',
    value: 100,
    beyond: '400 `invalid_request`; nothing was put',
    source: 'src/brain/check-entity.ts#MAX_LINKS',
  },
  brain_depth: {
    what: 'Nesting of the attributes of an entity',
    value: 8,
    beyond: '400 `invalid_request`; nothing was put',
    source: 'src/brain/check-entity.ts#MAX_DEPTH',
  },
  brain_batch: {
    what: 'Entities in one request',
    value: 100,
    beyond: '400 `invalid_request`; nothing was put',
    source: 'src/brain/writer.ts#MOST_AT_ONCE',
  },
  brain_query: {
    what: 'Length of a search in the company brain, characters',
    value: 256,
    beyond: '400 `invalid_request`',
    source: 'src/brain/brain.ts#MAX_QUERY',
  },
  brain_query_words: {
    what: 'Words of a search that count',
    value: 8,
    beyond: 'the others are not looked for',
    source: 'src/brain/search-index.ts#WORDS_OF_QUERY',
  },
  brain_places: {
    what: 'Places of words that one search looks at, rare words first',
    value: 10_000,
    beyond: 'very common words only rank what the others found',
    source: 'src/brain/search-index.ts#LOOKED_AT',
  },
  brain_joined: {
    what: 'Linked entities in the answer to one search',
    value: 100,
    beyond: '`truncated: true`',
    source: 'src/brain/brain.ts#JOINED',
  },
  policy_pattern: {
    what: 'Length of a pattern (`glob`, `regex`) in a policy',
    value: 256,
    beyond: 'the policy is not loaded',
    source: 'src/policy/glob.ts#MAX_PATTERN',
  },
  policy_subject: {
    what: 'Text that a pattern of a policy looks at, characters',
    value: 65_536,
    beyond: 'the condition is unknown',
    source: 'src/policy/glob.ts#MAX_SUBJECT',
  },
  policy_steps: {
    what: 'Steps of all patterns of policy on one call: the size of each compiled pattern (of `email_in` and `domain_in`: 4) for each character of its text',
    value: 1_000_000,
    beyond: 'the condition is unknown',
    source: 'src/policy/pattern-steps.ts#PATTERN_STEPS',
  },
  policy_elements: {
    what: 'Elements of a list that a policy looks at',
    value: 10_000,
    beyond: 'the condition is unknown',
    source: 'src/policy/operators.ts#MAX_ELEMENTS',
  },
  file_text: {
    what: 'Size of a configuration or policy file, characters',
    value: 16_777_216,
    beyond: 'the file is not used',
    source: 'src/diagnostics/yaml-source.ts#MAX_TEXT',
  },
  file_depth: {
    what: 'Nesting of a configuration or policy file',
    value: 64,
    beyond: 'the file is not used',
    source: 'src/diagnostics/yaml-source.ts#MAX_DEPTH',
  },
  settle: {
    what: 'Time without changes after which changed files are read again',
    value: '100ms',
    beyond: 'they are read again',
    source: 'src/config/watch.ts#SETTLE_MS',
  },
} as const satisfies Readonly<Record<string, Limit>>;

/** Renders `docs/operating/limits.md`. */
export function limitsMarkdown(): string {
  const rows = Object.entries<Limit>(LIMITS).map(([name, { what, value, beyond, source }]) => {
    const set = source === 'configuration' ? `\`limits.${name}\`` : 'fixed';
    return `| ${what} | ${String(value)} | ${set} | ${beyond} |`;
  });
  return `# Limits

Every limit of the gateway. Those that can be set stand under \`limits\` of \`gateway.yaml\`; the value here is their
default. This page is made from \`src/config/limits.ts\`, and a test holds the two together.

| what | limit | set by | beyond it |
|---|---|---|---|
${rows.join('\n')}
`;
}
