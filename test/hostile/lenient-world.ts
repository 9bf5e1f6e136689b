import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { makeApiKey, startGateway, type TestGateway } from '../system/gateway.ts';

/** A gateway before the lenient upstream, which shows what each of its parsers made of a request. */
export interface LenientWorld {
  readonly gateway: TestGateway;
  /** Of the agent `bot`. */
  readonly key: string;
  /** Of an account, which sees all effects. */
  readonly reader: string;
  /** How many requests have come to the upstream. */
  arrivals(): Promise<number>;
  close(): Promise<void>;
}

/** Starts both, with tools `lenient.NAME` that everybody may call, and the rules of a route at `/l`; as YAML. */
export async function startLenientWorld(declared: {
  readonly tools: readonly string[];
  readonly rules: readonly string[];
  readonly names: readonly string[];
}): Promise<LenientWorld> {
  const upstream = spawn(process.execPath, [join(import.meta.dirname, 'lenient-upstream.mjs')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [url] = (await once(createInterface({ input: upstream.stdout }), 'line')) as [string];
  const config = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: lenient, url: "${url}", timeout: 10s } ]
tools:
${declared.tools.map((tool) => `  - ${tool}\n`).join('')}routes:
  - { upstream: lenient, prefix: /l, rules: [ ${declared.rules.join(', ')} ] }
`;
  const policy = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: lenient
owner: team
rules: [ { id: all, effect: allow, match: { tools: [${declared.names.map((name) => `lenient.${name}`).join(', ')}] } } ]
`;
  const gateway = await startGateway({ config, policies: { 'lenient.yaml': policy } });
  return {
    gateway,
    key: await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' }),
    reader: await makeApiKey(gateway, 'olga', { kind: 'account', workspace: 'demo' }),
    async arrivals() {
      const { count }: { readonly count: number } = JSON.parse(await (await fetch(`${url}/count`)).text());
      return count;
    },
    async close() {
      await gateway.dispose();
      upstream.kill();
    },
  };
}
