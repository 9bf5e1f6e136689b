import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isJsonObject, type Json } from '../../../src/json/value.ts';
import { DEEP } from '../../deep.ts';
import { runSuite } from '../../mcp/official-suite.ts';
import { type RedisServer, startRedis } from '../../redis/servers.ts';
import { type Fleet, startFleet } from '../fleet.ts';
import { makeApiKey, startGateway, type TestFiles, type TestGateway } from '../gateway.ts';
import { startEverythingServer } from './everything-server.ts';
import { type KeyedDoor, openKeyedDoor } from './keyed-door.ts';
import { lockOf } from './lenient-server.ts';
import { startStatelessEverythingServer } from './stateless-everything-server.ts';
import { toolsAt } from './tools-at.ts';

/*
 * The official conformance suite, against servers on the official SDKs: what passes directly has to pass through the
 * gateway, with a key, pins, policy and receipts.
 */

type ServerName = 'sessions' | 'stateless';

/** What the suite asks for. */
interface Demands {
  readonly name: string;
  readonly server: ServerName;
  readonly run: (url: string, output: string) => Promise<void>;
  /** What passes directly only. */
  readonly missing: readonly string[];
}

/** The gateway takes a stream that the server ended up again by itself: the client gets its answer on the first one. */
const TAKEN_UP = 'server-server-sse-polling "server-sse-disconnect-resume"';

const SESSIONS: Demands = {
  name: '2025-11-25',
  server: 'sessions',
  run: (url, output) => runSuite(url, output, ['--requirements', '2025-11-25']),
  missing: [TAKEN_UP],
};
const OLDER_SUITE: Demands = {
  ...SESSIONS,
  name: 'suite 0.1',
  missing: [],
  run: (url, output) => runSuite(url, output, [], 'conformance-0.1'),
};
const STATELESS: Demands = {
  name: '2026-07-28',
  server: 'stateless',
  run: (url, output) => runSuite(url, output, ['--requirements', '2026-07-28']),
  missing: [],
};

/** The suite calls them time and again with the same arguments and no key. As writes they would be done once. */
const REPEATED = ['test_input_required_result_elicitation', 'test_trigger_tool_change'];

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: all
owner: team
rules:
  - { id: all, effect: allow, match: { upstreams: [sessions, stateless] } }
  - { id: never, effect: deny, match: { tools: [sessions.test_error_never] }, reason: "Never" }
`;

interface Pinned {
  readonly url: string;
  readonly pins: string;
}

function filesOf(sessions: Pinned, stateless: Pinned): TestFiles {
  const reads = REPEATED.map((name) => `{ name: ${name}, kind: read }`).join(', ');
  const config = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] }, { id: tom, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga }, { id: cat, team: support, owner: olga }, { id: dog, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams:
  - { id: sessions, mcp: { url: "${sessions.url}", pins: "${sessions.pins}" } }
  - { id: stateless, mcp: { url: "${stateless.url}", pins: "${stateless.pins}", tools: [ ${reads} ] } }
`;
  return { config, policies: { 'all.yaml': POLICY } };
}

let folder: string;
let running: readonly { close(): void }[];
let urls: Readonly<Record<ServerName, string>>;
let redis: RedisServer;
let fleet: Fleet;
let gateway: TestGateway;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-conformance-'));
  const [sessions, stateless] = await Promise.all([startEverythingServer(), startStatelessEverythingServer()]);
  running = [sessions, stateless];
  urls = { sessions: sessions.url, stateless: stateless.url };
  const files = filesOf(await pinned('sessions', sessions.url), await pinned('stateless', stateless.url));
  redis = await startRedis();
  [fleet, gateway] = await Promise.all([
    startFleet({ gateways: 2, store: `url: "${redis.url}"`, files: () => files }),
    startGateway(files),
  ]);
});
afterAll(async () => {
  await gateway.dispose();
  await fleet.close();
  await redis.stop();
  for (const server of running) server.close();
  await rm(folder, { recursive: true });
});

/** Calls of another agent are other calls, whatever was called before. */
function keyOf(agent: string): Promise<string> {
  return makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: agent });
}

async function pinned(id: string, url: string): Promise<Pinned> {
  const pins = join(folder, `${id}.lock.json`);
  const tools = await toolsAt(url);
  await writeFile(pins, lockOf(id, tools.filter(isJsonObject)));
  return { url, pins };
}

/** The older suite, sessions at a fleet and sessions through a kill: `npm run test:deep`. */
const SUITES = DEEP ? [SESSIONS, STATELESS, OLDER_SUITE] : [SESSIONS, STATELESS];

describe.each(SUITES)('$name: what passes directly passes through', (demands) => {
  let direct: readonly string[];
  beforeAll(async () => {
    direct = await checksOf(demands, 'direct', urls[demands.server]);
    expect(direct.length).toBeGreaterThanOrEqual(40);
  });

  async function expectSame(name: string, door: KeyedDoor): Promise<void> {
    try {
      const through = await checksOf(demands, name, `${door.url}/mcp/${demands.server}`);
      expect(direct.filter((check) => !through.includes(check))).toEqual(demands.missing);
    } finally {
      door.close();
    }
  }

  test('a gateway', async () => {
    const agent = demands === OLDER_SUITE ? 'cat' : 'bot';
    await expectSame('gateway', await openKeyedDoor([gateway.url], await keyOf(agent)));
  });

  if (demands === OLDER_SUITE || (demands === SESSIONS && !DEEP)) return;

  test('two gateways on Redis, each request at another', async () => {
    const origins = fleet.gateways.map(({ url }) => url);
    await expectSame('fleet', await openKeyedDoor(origins, fleet.keys.bot));
  });

  if (demands === STATELESS) return;

  test('a gateway that is killed in the middle of sessions', async () => {
    let begun = 0;
    let kills = 0;
    let isUp = Promise.resolve();
    const door = await openKeyedDoor([gateway.url], await keyOf('dog'), async (body) => {
      await isUp;
      if (!body.includes('notifications/initialized') || (begun += 1) % 12 !== 0) return;
      kills += 1;
      gateway.kill('SIGKILL');
      isUp = gateway.restart().then((next) => {
        gateway = next;
      });
      await isUp;
    });
    await expectSame('killed', door);
    expect(kills).toBeGreaterThan(1);
  });
});

/** The checks that pass, each with its scenario. */
async function checksOf(demands: Demands, name: string, url: string): Promise<readonly string[]> {
  const out = join(folder, `${demands.name}-${name}`);
  await mkdir(out);
  await demands.run(url, out);
  const passed: string[] = [];
  for (const scenario of await readdir(out)) {
    const checks: Json = JSON.parse(await readFile(join(out, scenario, 'checks.json'), 'utf8'));
    for (const check of Array.isArray(checks) ? checks : [])
      if (isJsonObject(check) && check['status'] === 'SUCCESS')
        passed.push(`${scenario.replace(/-\d{4}-.*$/, '')} ${JSON.stringify(check['id'])}`);
  }
  return [...new Set(passed)];
}
