import { expect, test, vi } from 'vitest';
import { createUpstreams } from '../../src/upstreams/upstreams.ts';
import { startLedgerUpstream } from '../upstream/start.ts';
import { makeDispatch, makeTool } from './tool.ts';

vi.mock('../../src/upstreams/http/http-upstream.ts', async (original) => {
  const { planted } = await import('../planted-faults.ts');
  return planted(await original<typeof import('../../src/upstreams/http/http-upstream.ts')>(), 'follow-a-redirect');
});

test('a gateway that follows a redirect is noticed: what must arrive once arrives twice', async () => {
  const service = await startLedgerUpstream();
  const limits = { responseBytes: 1000, responseKeptBytes: 1000 };
  const settings = { id: 'payments', url: service.url, timeoutMs: 10_000, connections: 4, network: 'any' } as const;
  const upstreams = createUpstreams([{ ...settings, credentials: null }], limits);
  const params = { payment_id: 'p1', amount: 100, note: 'mode:redirect' };
  await upstreams.send(makeDispatch({ tool: makeTool(), params }));
  expect(await service.counts()).toEqual({ requests: 2, effects: 2 });
  await upstreams.close();
  await service.stop();
});
