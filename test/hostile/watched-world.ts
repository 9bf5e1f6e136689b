import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestFiles } from '../system/gateway.ts';
import { startWorld, type World, worldFiles } from '../system/world.ts';

/** What a gateway's event loop, memory and descriptors did since it was last asked. */
export interface Watched {
  /** Longest time for which the event loop was held, CPU ms of the main thread. */
  readonly held: number;
  /** Bytes of the process, those of its threads and what was given back to nobody among them. */
  readonly rss: number;
  /** Bytes that the main thread holds: heap, buffers and what hangs on them. Settled: with those of the other threads. */
  readonly used: number;
  /** Settled: bytes that each other thread holds. */
  readonly threads: readonly number[];
  /** Descriptors open now. */
  readonly open: number;
}

export interface WatchedWorld {
  readonly world: World;
  watched(): Promise<Watched>;
  /** The same, once garbage is collected. */
  settled(): Promise<Watched>;
  close(): Promise<void>;
}

/**
 * A world whose gateway says how long its event loop was held; unless said otherwise, with tools and rules that look into
 * all that they get.
 */
export async function startWatchedWorld(
  files: (upstreamUrl: string) => TestFiles = watchedFiles,
): Promise<WatchedWorld> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-watch-'));
  const socket = join(folder, 'loop');
  const watch = join(import.meta.dirname, 'loop-watch.mjs');
  const world = await startWorld({
    files,
    env: { SVC_TEST_LOOP: socket, NODE_OPTIONS: `${process.env['NODE_OPTIONS'] ?? ''} --import=${watch}` },
  });
  return {
    world,
    watched: () => ask(socket, '/'),
    settled: () => ask(socket, '/settled'),
    async close() {
      await world.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function ask(socketPath: string, path: string): Promise<Watched> {
  const outgoing = httpRequest({ socketPath, path, agent: false });
  outgoing.end();
  const [incoming] = await once(outgoing, 'response');
  let text = '';
  for await (const chunk of incoming) text += String(chunk);
  return JSON.parse(text) as Watched;
}

/** The largest `limits.params_values` that may be configured. */
export const MOST_VALUES = 10_000;

/** Tools whose schemas and rules look into all that comes, and a policy with patterns over texts and lists. */
function watchedFiles(upstreamUrl: string): TestFiles {
  const { config, policies } = worldFiles(upstreamUrl);
  return {
    config: `${config.replace('routes:\n', `${TOOLS}routes:\n`).replace('    rules:\n', `    rules:\n${RULES}`)}limits: { params_values: ${MOST_VALUES} }\n`,
    policies: { ...policies, 'looking.yaml': POLICY },
  };
}

const TOOLS = `  - name: look.free
    title: Free params
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/free, body: "*" }
    params_schema: { type: object }
  - name: look.sent
    title: Free params, which are sent
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/sent, body: "*" }
    params_schema: { type: object, properties: { list: { type: array, items: true } } }
  - name: look.asked
    title: Free params, which somebody approves
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/sent, body: "*" }
    params_schema: { type: object }
  - name: look.deep
    title: A schema with everything
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/deep, body: [list, text, tree, unique, uris, choice] }
    params_schema:
      type: object
      additionalProperties: false
      properties:
        list: { type: array, items: { type: integer } }
        text: { type: string, pattern: "^[a-z ]*[0-9]{0,3}[a-z ]+$", maxLength: 2000000 }
        tree: { $ref: "#/$defs/node" }
        unique: { type: array, uniqueItems: true }
        uris: { type: array, items: { type: string, format: uri } }
        choice: { type: array, items: { anyOf: [ { type: integer }, { type: object, required: [a, b], properties: { a: {}, b: {} } }, { type: string, pattern: "^[0-9]+$" } ] } }
      $defs: { node: { type: object, properties: { value: { type: integer } }, additionalProperties: { $ref: "#/$defs/node" } } }
  - name: look.query
    title: Params in the query
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/query/{id}", query: [q], headers: { h: x-looked }, body: [b] }
    params_schema: { type: object, required: [id], properties: { id: { type: string }, q: { type: string }, h: { type: string }, b: {} }, additionalProperties: false }
    target: "looked:{id}"
`;

const RULES = `      - { match: "POST /v1/free", tool: look.free, idempotency: required }
      - { match: "POST /v1/sent", tool: look.sent, idempotency: required }
      - { match: "POST /v1/deep", tool: look.deep, idempotency: required }
      - { match: "POST /v1/query/:id", tool: look.query, idempotency: required }
`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: looking
owner: team-test
rules:
  - id: texts
    effect: deny
    match: { tools: [look.free, look.deep, look.query] }
    when: { any: [ { params.text: { glob: "**secret:*/??.{a,b}" } }, { params.text: { regex: "[a-z]+(ab|cd)*[0-9]{2,5}x" } }, { params.list: { some: { item: { glob: "*.internal" } } } } ] }
    reason: "Not \${params.text}"
  - id: mail
    effect: deny
    match: { tools: [look.free] }
    when: { params.list: { some: { item: { email_in: "*@evil.example" } } } }
    reason: "Not there"
  - id: sent
    effect: allow
    match: { tools: [look.sent] }
    unless: { any: [ { params.list: { some: { item: { glob: "*.internal" } }, if_absent: false } } ] }
  - id: people
    effect: require_approval
    match: { tools: [look.free, look.asked, look.deep, look.query] }
    approval: { approvers: { roles: [finance-lead] }, quorum: 1, expires: 1h, summary: "Look at \${params.text} and \${params.list}" }
`;
