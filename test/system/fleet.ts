import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type LedgerUpstream, startLedgerUpstream } from '../upstream/start.ts';
import { type Answer, makeApiKey, send, startGateway, type TestFiles, type TestGateway } from './gateway.ts';
import { worldFiles } from './world.ts';

/** Several gateways before one store on Redis, with one upstream. */
export interface Fleet {
  readonly upstream: LedgerUpstream;
  /** In the order of their start; `restart` puts another in its place. */
  readonly gateways: TestGateway[];
  /** Folder of what the gateways share: keys. */
  readonly shared: string;
  readonly administrativeKey: string;
  readonly keys: { readonly account: string; readonly bot: string };
  /** Runs an effect as `bot` through one of the gateways. */
  run(gateway: number, body: Record<string, unknown>, key?: string): Promise<Answer>;
  ask(gateway: number, method: string, path: string, body?: unknown, key?: string): Promise<Answer>;
  restart(gateway: number): Promise<void>;
  close(): Promise<void>;
}

/** A configuration of tests, with its store on Redis. `store`: fields of the section, as YAML flow. */
export function onRedis(files: TestFiles, store: string): TestFiles {
  const config = files.config.replace(
    /^store:.*$/m,
    `store: { kind: redis, journal: "\${SVC_TEST_DATA}/journal", ${store} }
secrets: { master: { file: "\${SVC_TEST_SHARED}/master" } }
receipts: { keys: "\${SVC_TEST_SHARED}/receipts" }`,
  );
  return { ...files, config };
}

/** Starts the gateways, the first before the others, as processes of their own with folders of their own. */
export async function startFleet(options: {
  readonly gateways: number;
  /** Fields of the section `store` beside kind and journal, as YAML flow: `url: "redis://…"`. */
  readonly store: string;
  readonly files?: (upstreamUrl: string) => TestFiles;
  readonly entry?: string;
  /** Of each gateway's process, by its place. */
  readonly env?: (gateway: number) => Readonly<Record<string, string>>;
}): Promise<Fleet> {
  const shared = await mkdtemp(join(tmpdir(), 'svc-fleet-'));
  const upstream = await startLedgerUpstream({ ledger: join(shared, 'ledger.jsonl') });
  const files = onRedis((options.files ?? worldFiles)(upstream.url), options.store);
  const gateways: TestGateway[] = [];
  const at = (index: number): TestGateway => {
    const gateway = gateways[index];
    if (gateway === undefined) throw new Error(`there is no gateway ${index}`);
    return gateway;
  };
  async function close(): Promise<void> {
    await Promise.all(gateways.map((gateway) => gateway.dispose()));
    await upstream.stop();
    await rm(shared, { recursive: true, force: true });
  }
  try {
    const start = (n: number): Promise<TestGateway> =>
      startGateway(files, {
        env: { SVC_TEST_SHARED: shared, ...options.env?.(n) },
        ...(options.entry === undefined ? {} : { entry: options.entry }),
      });
    // The first makes what they share.
    gateways.push(await start(0));
    const others = await Promise.allSettled(Array.from({ length: options.gateways - 1 }, (_, n) => start(n + 1)));
    for (const other of others) if (other.status === 'fulfilled') gateways.push(other.value);
    for (const other of others) if (other.status === 'rejected') throw other.reason;
    const first = at(0);
    const account = await makeApiKey(first, 'tom', { kind: 'account', workspace: 'demo' });
    const bot = await makeApiKey(first, 'olga', { kind: 'agent', agent_id: 'bot', workspace: 'demo' });
    const ask: Fleet['ask'] = (gateway, method, path, body, key = account) =>
      send(at(gateway).url, key, method, path, body);
    return {
      upstream,
      shared,
      gateways,
      administrativeKey: first.administrativeKey,
      keys: { account, bot },
      ask,
      run: (gateway, body, key = bot) => ask(gateway, 'POST', '/v1/workspaces/demo/effects', body, key),
      async restart(gateway) {
        gateways[gateway] = await at(gateway).restart();
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
