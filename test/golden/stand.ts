import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import { makeApiKey, startGateway, type TestGateway } from '../system/gateway.ts';
import { lockOf, startLenientServer, TOOLS } from '../system/mcp/lenient-server.ts';
import { seededRandom, seedFor } from '../torture/random.ts';
import { Client } from './client.ts';
import { ageing } from './ageing.ts';
import { play } from './play.ts';
import type { CallRecord } from './record.ts';
import { type KeyName, Segment, type SegmentParts } from './segment.ts';
import { type Arrived, type GoldenUpstream, sortedHeaders, startGoldenUpstream } from './upstream.ts';
import { configOf, MASTER, POLICY } from './world-files.ts';

export type StoreName = 'embedded' | 'redis';

export const STORES: readonly StoreName[] = ['embedded', 'redis'];

/** All calls are drawn from it. */
const SEED = 20_261_123;

/** Where syncs cost nothing: what is recorded does not depend on the medium. */
const MEMORY = '/dev/shm';

const KEYS: readonly (readonly [KeyName, string, Readonly<Record<string, unknown>>])[] = [
  ['bot', 'olga', { kind: 'agent', agent_id: 'bot' }],
  ['other', 'olga', { kind: 'agent', agent_id: 'other-bot' }],
  ['cat', 'olga', { kind: 'agent', agent_id: 'cat' }],
  ['intern', 'olga', { kind: 'agent', agent_id: 'intern' }],
  ['tom', 'tom', { kind: 'account' }],
  ['maria', 'maria', { kind: 'account' }],
  ['ada', 'ada', { kind: 'account' }],
  ['limited', 'olga', { kind: 'agent', agent_id: 'bot', allowed_tools: ['notes.add', 'crm.echo'] }],
  ['readonly', 'tom', { profile: 'mcp_readonly' }],
  ['runner', 'tom', { profile: 'runner' }],
];

/** Each is a hundred calls. */
const SEGMENTS = 100;

export const ALL_SEGMENTS: readonly number[] = Array.from({ length: SEGMENTS }, (_, index) => index);

function workspaceOf(segment: number): string {
  return `w${String(segment).padStart(3, '0')}`;
}

/** A real gateway on a store, with a real upstream and MCP server in this process, so that what they got is at hand. */
class Stand {
  readonly #upstream: GoldenUpstream;
  readonly #mcp: Awaited<ReturnType<typeof startLenientServer>>;
  readonly #redis: RedisServer | null;
  readonly #folder: string;
  readonly #first: TestGateway;
  #gateway: TestGateway;
  #client: Client;
  #stranger = '';

  private constructor(parts: {
    upstream: GoldenUpstream;
    mcp: Awaited<ReturnType<typeof startLenientServer>>;
    redis: RedisServer | null;
    folder: string;
    gateway: TestGateway;
  }) {
    this.#upstream = parts.upstream;
    this.#mcp = parts.mcp;
    this.#redis = parts.redis;
    this.#folder = parts.folder;
    this.#first = parts.gateway;
    this.#gateway = parts.gateway;
    this.#client = new Client(parts.gateway.url);
  }

  static async open(store: StoreName): Promise<Stand> {
    if (existsSync(MEMORY)) process.env['TMPDIR'] = MEMORY;
    const folder = await mkdtemp(join(tmpdir(), 'svc-golden-'));
    const [upstream, mcp] = await Promise.all([startGoldenUpstream(), startLenientServer()]);
    const redis = store === 'redis' ? await startRedis() : null;
    const pins = join(folder, 'crm.lock.json');
    await writeFile(pins, lockOf('crm', TOOLS, { server: 'lenient' }));
    await mkdir(join(folder, 'secrets'));
    await writeFile(join(folder, 'secrets', 'master'), MASTER, { mode: 0o600 });
    const section =
      redis === null
        ? 'store: { kind: embedded, path: "${SVC_TEST_DATA}" }'
        : `store: { kind: redis, url: "${redis.url}", journal: "\${SVC_TEST_DATA}/journal", max_freeze: 1s }`;
    const workspaces = ALL_SEGMENTS.map(workspaceOf);
    const config = configOf({ http: upstream.url, mcp: mcp.url, pins }, section, [...workspaces, 'elsewhere']);
    const gateway = await startGateway(
      { config, policies: { 'golden.yaml': POLICY } },
      { env: { SVC_GOLDEN_SECRETS: join(folder, 'secrets') } },
    );
    const stand = new Stand({ upstream, mcp, redis, folder, gateway });
    stand.#stranger = await makeApiKey(gateway, 'olga', { kind: 'agent', agent_id: 'bot', workspace: 'elsewhere' });
    return stand;
  }

  async close(): Promise<void> {
    const { repeats } = this.#client;
    if (repeats > 0) console.error(`asked again ${repeats} times, because the machine was busy`);
    this.#client.close();
    await this.#first.dispose();
    await Promise.all([this.#upstream.close(), this.#mcp.close(), this.#redis?.stop()]);
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** Stops the gateway, at once or orderly, and starts it again at the same address. */
  async restart(how: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    if (how === 'SIGKILL') this.#gateway.kill('SIGKILL');
    else await this.#gateway.stop();
    this.#gateway = await this.#gateway.restart();
    await until(async () => (await fetch(`${this.#gateway.url}/readyz`)).ok);
  }

  async record(segment: number, take: (record: CallRecord) => void): Promise<void> {
    const workspace = workspaceOf(segment);
    const ages = segment % 25 === 1;
    const keys = new Map<KeyName, string>([
      ['none', ''],
      ['admin', this.#gateway.administrativeKey],
      ['elsewhere', this.#stranger],
    ]);
    for (const [name, user, body] of KEYS)
      keys.set(name, await makeApiKey(this.#gateway, user, { ...body, workspace }));
    this.#upstream.begin();
    this.#mcp.forget();
    const parts: SegmentParts = {
      number: segment,
      workspace,
      client: this.#client,
      upstream: this.#upstream,
      mcp: this.#mcp,
      mcpTaken: () => this.#mcpTaken(),
      addresses: new Map([
        [new URL(this.#gateway.url).host, 'GATEWAY'],
        [new URL(this.#upstream.url).host, 'UPSTREAM'],
        [new URL(this.#mcp.url).host, 'MCP'],
      ]),
      hasReads: segment % 5 === 2,
      isCounted: !ages && segment % 5 !== 2,
      random: seededRandom(seedFor(SEED, segment)),
      keys,
      take,
    };
    const made = new Segment(parts);
    if (ages) await ageing(made, (how) => this.restart(how));
    await play(made);
  }

  #mcpTaken(): readonly Arrived[] {
    const seen = this.#mcp.seen.splice(0);
    return seen.map(({ method, url, headers, body }) => ({
      method,
      url,
      headers: sortedHeaders(Object.entries(headers).flatMap(([name, value]) => [name, String(value)])),
      body: Buffer.from(body),
    }));
  }
}

/** Makes the calls of segments on a store, one after the other. */
export async function recordOn(
  store: StoreName,
  segments: readonly number[],
  take: (record: CallRecord) => void,
): Promise<void> {
  const stand = await Stand.open(store);
  try {
    for (const segment of segments) {
      await stand.record(segment, take);
    }
  } finally {
    await stand.close();
  }
}
