import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { untilSent } from '../system/gateway.ts';
import { worldFiles, freshKey, refund, startWorld, type World } from '../system/world.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld({
    files: (url) => {
      const { config, policies } = worldFiles(url);
      // So many at once are answered when their turn comes, on a busy machine as well.
      return {
        config: config.replace('timeout: 3s', 'timeout: 30s'),
        policies: { 'world.yaml': String(policies['world.yaml']).replace(/^.*claim: .*\n/m, '') },
      };
    },
  });
});
afterAll(() => world.close());

describe('many at once', () => {
  it('256 concurrent calls against a budget that allows 100: exactly 100 run', async () => {
    const before = await world.upstream.counts();
    const calls = Array.from({ length: 256 }, () => refund({ amount: 1000 }, freshKey()));
    const answers = await Promise.all(calls.map((call) => untilSent(() => world.run(call))));
    const committed = answers.filter((answer) => answer.body.decision === 'committed');
    const refused = answers.filter((answer) => answer.body.decision === 'denied_budget');
    expect([committed.length, refused.length]).toEqual([100, 156]);
    expect((await world.upstream.counts()).effects).toBe(before.effects + 100);
  });

  it('10,000 duplicates of one key at once, from a process of its own: one call upstream', async () => {
    const before = await world.upstream.counts();
    const call = { tool: 'notes.add', params: { text: 'mode:late' }, idempotency_key: freshKey() };
    await world.upstream.mode({ late_ms: 300 });
    const child = spawn(
      process.execPath,
      [join(process.cwd(), 'test/system/flood.mjs'), `${world.gateway.url}/v1/workspaces/demo/effects`, '10000'],
      {
        stdio: ['pipe', 'pipe', 'inherit'],
      },
    );
    child.stdin.end(JSON.stringify({ key: world.keys.bot, body: call }));
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString('utf8');
    });
    await once(child, 'exit');
    const counts: Record<string, number> = JSON.parse(output);
    expect(counts['committed']).toBe(1);
    expect((counts['in_progress'] ?? 0) + (counts['duplicate_blocked'] ?? 0)).toBe(9999);
    expect((await world.upstream.counts()).effects).toBe(before.effects + 1);
  });
});
