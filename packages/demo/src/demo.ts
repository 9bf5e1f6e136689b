import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Svc } from '@svc-gateway/client';
import { loadConfiguration } from '../../../src/config/load.ts';
import { storeFolder } from '../../../src/config/resolve-store.ts';
import type { CliContext } from '../../../src/cli/command.ts';
import type { DemoOptions } from '../../../src/cli/demo.ts';
import type { CliPorts, RunningGateway } from '../../../src/cli/ports.ts';
import { styled, type Terminal } from '../../../src/cli/terminal.ts';
import { HOME } from '../../../src/home.ts';
import { type PaymentsUpstream, startPaymentsUpstream } from './payments-upstream.ts';
import { playTour } from './tour.ts';

/**
 * Keys that an earlier start of the demo made. They are kept so that a command copied from the terminal still works.
 */
interface DemoKeys {
  readonly agent: string;
  /** The key of the agent's owner, who may not approve the agent's requests. */
  readonly account: string;
  /** The key of somebody who may. */
  readonly approver: string;
}

interface Demo {
  readonly gateway: RunningGateway;
  readonly upstream: PaymentsUpstream;
  readonly keys: DemoKeys;
  /** For {@link CliPorts}: the configuration and the environment variables that it uses. */
  readonly store: { readonly configFile: string; readonly environment: Readonly<Record<string, string>> };
}

const WORKSPACE = 'demo';
const AGENT = 'support-bot';
/** Where `config/demo.yaml` has the API: there `svc doctor config/demo.yaml` finds what `npm start` started. */
const CONFIGURED_PORT = 9090;

/** `svc demo`: gateway and demo upstream in one process, with keys and a line to try. */
export async function runDemo(options: DemoOptions, { ports, terminal }: CliContext): Promise<void> {
  const stopped = terminal.stopped();
  process.chdir(fileURLToPath(HOME));
  if (options.tour) return tour(ports, terminal);
  const demo = await startDemo(ports, options.port ?? null, './data', options.json ? 'warnings' : 'text');
  try {
    if (options.json) terminal.out(JSON.stringify(await asJson(demo)));
    else await introduce(demo, terminal);
    await stopped;
  } finally {
    await stopDemo(demo);
  }
}

async function startDemo(
  ports: CliPorts,
  port: number | null,
  data: string,
  log: 'warnings' | 'text' | 'none',
): Promise<Demo> {
  const upstream = await startPaymentsUpstream({ port: port === null ? CONFIGURED_PORT : 0 });
  try {
    const store = {
      configFile: join('config', 'demo.yaml'),
      environment: { DEMO_PAYMENTS_URL: upstream.url, DEMO_DATA: data },
    };
    const gateway = await ports.startGateway({ ...store, port, log, firstKey: 'file' });
    const keys = await demoKeys(ports, store, gateway.url, data);
    return { gateway, upstream, keys, store };
  } catch (error) {
    await upstream.close();
    throw error;
  }
}

async function stopDemo({ gateway, upstream }: Demo): Promise<void> {
  await gateway.close();
  await upstream.close();
}

/** The keys of an earlier start if they are still valid, otherwise new ones. Only the owner can read their file. */
async function demoKeys(ports: CliPorts, store: Demo['store'], url: string, data: string): Promise<DemoKeys> {
  const file = join(data, 'demo-keys.json');
  const known = await readKeys(file);
  if (known !== null && (await Promise.all(Object.values(known).map((key) => holds(key, url)))).every(Boolean))
    return known;
  const keys = {
    agent: await makeKey(ports, store, 'tom', AGENT),
    account: await makeKey(ports, store, 'tom', null),
    approver: await makeKey(ports, store, 'maria', null),
  };
  await writeFile(file, `${JSON.stringify(keys)}\n`, { mode: 0o600 });
  return keys;
}

async function makeKey(ports: CliPorts, store: Demo['store'], user: string, agent: string | null): Promise<string> {
  const kind: 'account' | 'agent' = agent === null ? 'account' : 'agent';
  const key = { ...store, kind, workspace: WORKSPACE, agent, user, profile: null, name: `demo ${kind} key of ${user}` };
  return (await ports.createKey(key)).key;
}

async function readKeys(file: string): Promise<DemoKeys | null> {
  try {
    const { agent, account, approver }: Record<string, unknown> = JSON.parse(await readFile(file, 'utf8'));
    return typeof agent === 'string' && typeof account === 'string' && typeof approver === 'string'
      ? { agent, account, approver }
      : null;
  } catch {
    return null; // the file is absent or incomplete: new keys are made
  }
}

async function holds(key: string, url: string): Promise<boolean> {
  const answer = await fetch(`${url}/v1/mcp/key-profiles`, { headers: { 'x-api-key': key } });
  await answer.arrayBuffer();
  return answer.ok;
}

/** A call that is allowed. Each start makes a new idempotency key for it. */
function curlLine({ gateway, keys }: Demo): string {
  const body = {
    tool: 'payments.refund',
    params: { payment_id: 'pay_1', amount: 1200, currency: 'EUR', reason: 'damaged' },
    idempotency_key: `demo-${Date.now().toString(36)}`,
  };
  const url = `${gateway.url}/v1/workspaces/${WORKSPACE}/effects`;
  return `curl -sS ${url} -H 'X-API-Key: ${keys.agent}' -H 'Content-Type: application/json' -d '${JSON.stringify(body)}'`;
}

/** Signs maria in, who sees what happens, and approves. At a name: browsers have no passkeys for an address of numbers. */
async function consoleLink({ gateway, keys }: Demo): Promise<string> {
  const svc = new Svc({ apiKey: keys.approver, baseUrl: gateway.url, workspace: WORKSPACE });
  const link = new URL((await svc.console.link()).url);
  link.hostname = 'localhost';
  return link.href;
}

function adminKeyFile({ gateway }: Demo): string | null {
  const first = gateway.administrativeKey;
  return first !== null && 'file' in first ? first.file : null;
}

async function asJson(demo: Demo): Promise<Record<string, string | null>> {
  return {
    event: 'ready',
    url: demo.gateway.url,
    proxy_url: `${demo.gateway.url}/payments`,
    console_url: await consoleLink(demo),
    upstream_url: demo.upstream.url,
    workspace: WORKSPACE,
    agent_key: demo.keys.agent,
    account_key: demo.keys.account,
    approver_key: demo.keys.approver,
    administrative_key_file: adminKeyFile(demo),
    curl: curlLine(demo),
  };
}

async function introduce(demo: Demo, terminal: Terminal): Promise<void> {
  const { configuration } = await loadConfiguration(demo.store.configFile, demo.store);
  const { url } = demo.gateway;
  const admin = adminKeyFile(demo);
  const line = (name: string, value: string): void => terminal.out(`  ${name.padEnd(13)} ${value}`);
  terminal.out(styled(terminal, 'bold', 'svc-gateway demo: a gateway and a payments API behind it, in one process'));
  terminal.out('');
  line('gateway', url);
  line('proxy', `${url}/payments   (the payments API's own paths, governed)`);
  line('MCP', `${url}/mcp/desk   (an MCP server behind the gateway: a support desk)`);
  line('console', `${await consoleLink(demo)}   (opens once, within 5 minutes, as maria)`);
  line('docs', `${url}/docs   (OpenAPI: ${url}/openapi.json)`);
  line('payments API', demo.upstream.url);
  line('workspace', `${WORKSPACE}, agent ${AGENT}`);
  line('agent key', demo.keys.agent);
  line('account key', `${demo.keys.account}   (tom, the agent's owner)`);
  line('approver key', `${demo.keys.approver}   (maria, who approves large refunds and deployments)`);
  line(
    'admin key',
    admin === null ? 'made in an earlier start' : `in the file ${relative(process.cwd(), admin) || admin}`,
  );
  line('data', `${storeFolder(configuration.store)} (delete it to begin anew)`);
  terminal.out('');
  terminal.out('Try it. The answer is "committed"; the same line again is "duplicate_blocked", with the same receipt:');
  terminal.out('');
  terminal.out(curlLine(demo));
  terminal.out('');
  terminal.out('What else can happen: npx svc demo --tour. Stop with Ctrl-C.');
}

/** The tour uses its own store and a free port, and removes everything at the end. */
async function tour(ports: CliPorts, terminal: Terminal): Promise<void> {
  const data = await mkdtemp(join(tmpdir(), 'svc-tour-'));
  try {
    const demo = await startDemo(ports, 0, data, 'none');
    try {
      const { url } = demo.gateway;
      const client = (apiKey: string): Svc => new Svc({ apiKey, baseUrl: url, workspace: WORKSPACE });
      const approver = client(demo.keys.approver);
      const operator = client(await makeKey(ports, demo.store, 'ada', null));
      const stage = {
        url,
        workspace: WORKSPACE,
        agentKey: demo.keys.agent,
        approver,
        operator,
        loseNextAnswer: () => demo.upstream.loseNextAnswer(),
      };
      await playTour(stage, terminal);
    } finally {
      await stopDemo(demo);
    }
  } finally {
    await rm(data, { recursive: true, force: true });
  }
}
