import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startGateway } from '../../src/gateway/start.ts';
import type { RunningGateway } from '../../src/cli/ports.ts';
import { type LedgerUpstream, startLedgerUpstream } from '../upstream/start.ts';

export interface ProxiedWorld {
  readonly url: string;
  readonly gateway: RunningGateway;
  readonly upstream: LedgerUpstream;
  readonly keys: { readonly bot: string; readonly account: string; readonly readonly: string };
  /** Ids of the keys, by the same names. */
  readonly keyIds: { readonly bot: string };
  readonly administrativeKey: string;
  /** A request with `bot`'s key unless the headers carry another. */
  call(method: string, path: string, options?: CallOptions): Promise<ProxiedAnswer>;
  close(): Promise<void>;
}

export interface CallOptions {
  readonly key?: string | null;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

export interface ProxiedAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly body: Record<string, never> & { readonly [name: string]: unknown };
}

const CONFIG = (upstream: string, folder: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "${folder}/data" }
users: [ { id: tom, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: tom } ] } ]
policies: { paths: ["${folder}/policies"] }
upstreams:
  - { id: shop, url: "${upstream}", timeout: 2s, credentials: { header: x-upstream-token, value: "\${SHOP_TOKEN}" } }
  - { id: open, url: "${upstream}", timeout: 2s }
tools:
  - name: orders.create
    title: Create
    upstream: shop
    kind: write
    request: { method: POST, path: "/v1/shops/{shop}/orders", query: [dry], headers: { tenant: x-tenant }, body: [amount, note] }
    params_schema: { type: object, required: [shop, amount], properties: { shop: { type: string }, amount: { type: integer }, note: { type: string }, dry: { type: boolean }, tenant: { type: string } }, additionalProperties: false }
    target: "shop:{shop}"
    timeout: 1s
  - name: orders.get
    title: Get
    upstream: shop
    kind: read
    request: { method: GET, path: "/v1/orders/{order}", query: [mode, limit] }
    params_schema: { type: object, required: [order], properties: { order: { type: string }, mode: { type: string }, limit: { type: integer } }, additionalProperties: false }
  - name: orders.search
    title: Search
    upstream: shop
    kind: read
    request: { method: POST, path: "/v1/search", body: "*" }
  - name: orders.secret
    title: Secret
    upstream: shop
    kind: read
    request: { method: GET, path: "/v1/secret" }
  - name: orders.counted
    title: Counted
    upstream: shop
    kind: read
    request: { method: GET, path: "/v1/counted" }
  - name: orders.stream
    title: Stream
    upstream: shop
    kind: read
    request: { method: GET, path: "/v1/stream" }
  - { name: notes.add, title: Note, upstream: shop, kind: write, request: { method: POST, path: /v1/notes, body: [text] }, timeout: 1s }
  - { name: notes.derive, title: Note, upstream: shop, kind: write, request: { method: POST, path: /v1/derived, body: [text] }, timeout: 1s }
  - { name: notes.free, title: Note, upstream: shop, kind: write, request: { method: POST, path: /v1/free, body: [text] }, timeout: 1s }
routes:
  - upstream: shop
    prefix: /shop
    rules:
      - { match: "POST /v1/shops/:shop/orders", tool: orders.create, idempotency: required }
      - { match: "GET /v1/orders/:order", tool: orders.get }
      - { match: "POST /v1/search", tool: orders.search }
      - { match: "GET /v1/secret", tool: orders.secret }
      - { match: "GET /v1/counted", tool: orders.counted }
      - { match: "GET /v1/stream", tool: orders.stream, frames: ungoverned }
      - { match: "POST /v1/notes", tool: notes.add, idempotency: required, on_duplicate: replay }
      - { match: "POST /v1/derived", tool: notes.derive, idempotency: derive }
      - { match: "POST /v1/free", tool: notes.free, idempotency: none }
  - { upstream: open, prefix: /open, undeclared: passthrough_reads, set_cookie: true, rules: [] }
limits: { body: 64KiB }
`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: proxied
owner: team-test
rules:
  - { id: all, effect: allow, match: { tools: ["orders.**", "notes.**"], except: [orders.secret] } }
  - { id: counted, effect: constrain, match: { tools: [orders.counted] }, obligations: [ { rate_limit: { by: [agent.id], per: 1h, limit: 2 } } ] }
  - { id: dear, effect: deny, match: { tools: [orders.create] }, when: { params.amount: { gt: 1000 } }, reason: "too dear" }
`;

/** The secret that the gateway puts on requests to the upstream. */
export const SHOP_TOKEN = 'shop-token-7';

/** Starts the whole gateway in this process, before an upstream that is a process of its own. */
export async function startProxiedWorld(): Promise<ProxiedWorld> {
  const upstream = await startLedgerUpstream({ lateMs: 1500 });
  const folder = await mkdtemp(join(tmpdir(), 'svc-proxy-'));
  await mkdir(join(folder, 'policies'));
  await writeFile(join(folder, 'gateway.yaml'), CONFIG(upstream.url, folder));
  await writeFile(join(folder, 'policies', 'proxied.yaml'), POLICY);
  const gateway = await startGateway({
    configFile: join(folder, 'gateway.yaml'),
    environment: { SHOP_TOKEN },
    port: 0,
    log: 'none',
    firstKey: 'shown',
  });
  const { administrativeKey } = gateway;
  if (administrativeKey === null || !('key' in administrativeKey)) throw new Error('no administrative key was made');
  const admin = administrativeKey.key;
  const makeKey = async (body: Record<string, string>): Promise<{ key: string; id: string }> => {
    const answer = await fetch(`${gateway.url}/v1/beta/users/tom/keys`, {
      method: 'POST',
      headers: { 'x-api-key': admin, 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'test', ...body }),
    });
    if (answer.status !== 201) throw new Error(await answer.text());
    return (await answer.json()) as { key: string; id: string };
  };
  const bot = await makeKey({ kind: 'agent', workspace: 'demo', agent_id: 'bot' });
  const account = await makeKey({ kind: 'account', workspace: 'demo' });
  const readonly = await makeKey({ profile: 'mcp_readonly', workspace: 'demo' });
  return {
    url: gateway.url,
    gateway,
    upstream,
    keys: { bot: bot.key, account: account.key, readonly: readonly.key },
    keyIds: { bot: bot.id },
    administrativeKey: admin,
    call: async (method, path, { key = bot.key, headers = {}, body } = {}) => {
      const answer = await fetch(`${gateway.url}${path}`, {
        method,
        redirect: 'manual',
        headers: {
          ...(key === null ? {} : { 'x-api-key': key }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { body }),
      });
      const text = await answer.text();
      let parsed: unknown = null;
      try {
        parsed = JSON.parse(text);
      } catch {
        // Not every answer is JSON.
      }
      return { status: answer.status, headers: answer.headers, text, body: parsed as ProxiedAnswer['body'] };
    },
    close: async () => {
      await gateway.close();
      await upstream.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Writes bytes on a fresh connection and reads until the other side ends, or an answer is there. */
export function rawExchange(url: string, bytes: string | Buffer, waitMs = 3000): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    let got = '';
    const finish = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(got);
    };
    const timer = setTimeout(finish, waitMs);
    socket.setEncoding('latin1');
    socket.on('data', (chunk) => {
      got += String(chunk);
      const head = got.indexOf('\r\n\r\n');
      if (head === -1) return;
      const length = /content-length: (\d+)/i.exec(got.slice(0, head))?.[1];
      if (length !== undefined && got.length >= head + 4 + Number(length)) finish();
    });
    socket.on('error', finish);
    socket.on('close', finish);
    socket.write(bytes);
  });
}
