import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { startRedis, until } from '../redis/servers.ts';
import { onRedis } from '../system/fleet.ts';
import { makeApiKey, send } from '../system/gateway.ts';
import { startLedgerUpstream } from '../upstream/start.ts';
import { startVictim } from './victim.ts';
import { workloadFiles } from './workload.ts';

it.skipIf(process.getuid?.() !== 0)(
  'the disk of a gateway’s journal is full: 503, nothing is sent, /readyz says so until there is room',
  { timeout: 240_000 },
  async (context) => {
    const shared = mkdtempSync(join(tmpdir(), 'svc-full-'));
    const redis = await startRedis();
    const upstream = await startLedgerUpstream();
    const files = onRedis(
      workloadFiles(upstream.url, { all: 1000, poor: 1000 }),
      `url: "${redis.url}", max_freeze: 1s`,
    );
    const victim = await startVictim(files, shared);
    try {
      const { disk } = victim;
      if (disk.fill === null) return context.skip('this machine lets nobody mount a file system');
      const key = await makeApiKey(victim.gateway(), 'tess', { kind: 'agent', workspace: 'demo', agent_id: 'rich' });
      const run = (op: string) =>
        send(victim.url, key, 'POST', '/v1/workspaces/demo/effects', {
          tool: 'ledger.book',
          params: { op, amount: 1 },
          idempotency_key: op,
        });
      const ready = () => send(victim.url, key, 'GET', '/readyz');
      expect((await run('before')).body.decision).toBe('committed');

      disk.fill(0);
      // Room is left in the journal's last block: a step or two may still be written there, and count.
      let tried = 0;
      await until(async () => {
        tried += 1;
        return (await run(`meanwhile-${tried}`)).status === 503;
      });
      const refused = `meanwhile-${tried}`;
      const { effects } = await upstream.counts();
      expect(effects).toBeLessThanOrEqual(tried);
      for (let more = 0; more < 5; more += 1) expect((await run(`more-${more}`)).status).toBe(503);
      // It does not come and go with each look at it.
      for (let looks = 0; looks < 15; looks += 1, await pause(100)) {
        const { status, body } = await ready();
        expect([status, JSON.stringify(body.parts)]).toEqual([503, expect.stringContaining('journal')]);
      }
      expect((await upstream.counts()).effects).toBe(effects);

      disk.empty();
      await until(async () => (await ready()).status === 200);
      await until(async () => (await run(refused)).body.decision === 'committed');
      expect((await upstream.counts()).effects).toBe(effects + 1);
    } finally {
      await victim.dispose();
      await upstream.stop();
      await redis.stop();
      rmSync(shared, { recursive: true, force: true });
    }
  },
);
