import { expect, it, vi } from 'vitest';
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
    live.add({ key: 'k', address: '127.0.0.1', call: CALL, isAdmitted: false, stands: () => false, cut: resolve });
  });
  changed();
  await cut;
  live.close();
});

it('when the gateway stops, what stands is cut at once, other reads after 20 s, and what was admitted never', () => {
  vi.useFakeTimers();
  try {
    const live = createLive({
      identify: () => Promise.resolve({ kind: 'principal', principal: BOT }),
      evaluateRead: () => ({
        kind: 'stream',
        agentId: 'bot',
        policyVersion: '',
        rule: null,
        observed: null,
        shadow: [],
      }),
      onAccessChanged: () => () => undefined,
    });
    const cut: string[] = [];
    let isEvents = false;
    const add = (name: string, isAdmitted: boolean, stands: () => boolean): void =>
      live.add({ key: 'k', address: '127.0.0.1', call: CALL, isAdmitted, stands, cut: () => void cut.push(name) });
    add('events', false, () => true);
    add('a download', false, () => false);
    add('what turns out to be events', false, () => isEvents);
    add('a governed stream', true, () => false);
    live.stop();
    expect(cut).toEqual(['events']);
    isEvents = true;
    vi.advanceTimersByTime(100);
    expect(cut).toEqual(['events', 'what turns out to be events']);
    vi.advanceTimersByTime(19_800);
    expect(cut).toHaveLength(2);
    vi.advanceTimersByTime(200);
    expect(cut.slice(2)).toEqual(['a download']);
    vi.advanceTimersByTime(600_000);
    expect(cut).toHaveLength(3);
    live.close();
  } finally {
    vi.useRealTimers();
  }
});
