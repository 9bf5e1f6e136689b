import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { startRedis } from '../redis/servers.ts';
import { type Rig, trouble } from './rigs.ts';

/** A gateway built around an idempotency library, with its keys in Redis; killed at random. */
export async function peerRig(library: string, upstreamUrl: string): Promise<Rig> {
  const redis = await startRedis();
  const entry = join(process.cwd(), 'test', 'torture', 'peer-gateway.mjs');
  const start = async (port: string) => {
    const words = ['--library', library, '--upstream', upstreamUrl, '--redis', redis.url, '--port', port];
    const child = spawn(process.execPath, [entry, ...words], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = await once(createInterface({ input: child.stdout }), 'line');
    const { url } = JSON.parse(String(line)) as { readonly url: string };
    return { url, child };
  };
  let peer = await start('0');
  let kills = 0;
  const kill = async (): Promise<void> => {
    const gone = once(peer.child, 'exit');
    peer.child.kill('SIGKILL');
    await gone;
  };
  return {
    url: () => peer.url,
    agentKeys: { rich: 'none', poor: 'none' },
    accountKey: null,
    troubles: [
      trouble('gateway_kill', 1, 1, async () => {
        kills += 1;
        await kill();
        peer = await start(new URL(peer.url).port);
      }),
    ],
    kills: () => kills,
    complaints: () => [],
    differences: () => Promise.resolve(0),
    async dispose() {
      await kill();
      await redis.stop();
    },
  };
}
