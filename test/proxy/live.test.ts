import { it } from 'vitest';
import { createLive } from '../../src/proxy/live.ts';
import type { ReadCall } from '../../src/proxy/ports.ts';
import { makeTool } from '../upstreams/tool.ts';
import { BOT } from './principal.ts';

const CALL: ReadCall = {
  principal: BOT,
  tool: makeTool({ kind: 'read' }),
  workspace: 'demo',
  agentId: 'bot',
  upstream: 'shop',
  target: 'shop',
  params: {},
  headers: {},
  requestIp: '127.0.0.1',
};

it('what is open is cut where nobody can tell whether its key still holds', async () => {
  let changed: () => void = () => undefined;
  const live = createLive({
    identify: () => Promise.reject(new Error('the store is away')),
    evaluateRead: () => ({ kind: 'stream', agentId: 'bot', policyVersion: '', rule: null, observed: null, shadow: [] }),
    onAccessChanged(listener) {
      changed = listener;
      return () => undefined;
    },
  });
  const cut = new Promise<void>((resolve) => {
    live.add({ key: 'k', address: '127.0.0.1', call: CALL, isAdmitted: false, cut: resolve });
  });
  changed();
  await cut;
  live.close();
});
