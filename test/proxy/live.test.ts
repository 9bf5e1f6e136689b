import { expect, it, vi } from 'vitest';
import { createLive } from '../../src/proxy/live.ts';
import type { DeniedDecision } from '../../src/effects/model/decision.ts';
import type { ReadCall, ReadVerdict } from '../../src/proxy/ports.ts';
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

/** What is open while what its key may do, and what is said of its call, changes. */
function watched() {
  const state: { verdict: ReadVerdict; isValid: boolean; subscribed: number } = {
    verdict: {
      kind: 'stream',
      agentId: 'bot',
      policyVersion: '',
      rule: null,
      observed: null,
      shadow: [],
    },
    isValid: true,
    subscribed: 0,
  };
  const judged: ReadCall[] = [];
  const live = createLive({
    identify: async (key) =>
      state.isValid
        ? { kind: 'principal', principal: { ...BOT, keyId: `now ${key}` } }
        : { kind: 'problem', problem: { code: 'invalid_key', detail: 'no', errors: [], retryAfterMs: null } },
    evaluateRead: (call) => {
      judged.push(call);
      return state.verdict;
    },
    onAccessChanged: () => {
      state.subscribed += 1;
      return () => (state.subscribed -= 1);
    },
  });
  const cut: string[] = [];
  const open = (name: string, isAdmitted: boolean) => {
    const connection = {
      key: name,
      address: '127.0.0.1',
      call: CALL,
      isAdmitted,
      stands: () => false,
      cut: () => void cut.push(name),
    };
    live.add(connection);
    return connection;
  };
  return { state, judged, live, cut, open };
}

const denied = (decision: DeniedDecision): ReadVerdict => ({
  kind: 'govern',
  denied: { decision, reason: { code: 'no_rule_allows', message: 'no' } },
});

it('every two seconds what is open is judged again by what its key may do now, once it is over no more', async () => {
  vi.useFakeTimers();
  try {
    const { state, judged, live, cut, open } = watched();
    open('read', false);
    live.remove(open('over', false));
    await vi.advanceTimersByTimeAsync(1_999);
    expect(judged).toHaveLength(0);
    await vi.advanceTimersByTimeAsync(1);
    expect(judged.map(({ principal }) => principal.keyId)).toEqual(['now read']);
    expect(cut).toEqual([]);
    state.isValid = false;
    await vi.advanceTimersByTimeAsync(2_000);
    expect(cut).toEqual(['read']);
    await vi.advanceTimersByTimeAsync(4_000);
    expect([cut, judged.length]).toEqual([['read'], 1]);
    open('read', false);
    live.close();
    expect([cut.length, state.subscribed, vi.getTimerCount()]).toEqual([2, 0, 0]);
  } finally {
    vi.useRealTimers();
  }
});

it.each<[string, ReadVerdict, string[]]>([
  ['a policy that denies', denied('denied_policy'), ['read']],
  ['a budget that is over', denied('denied_budget'), ['read']],
  ['obligations', { kind: 'govern', denied: null }, ['read']],
  ['a pause', denied('denied_paused'), ['read', 'admitted']],
  ['a tool that the key may not call', denied('denied_permission'), ['read', 'admitted']],
  ['an agent that may not act', denied('denied_identity'), ['read', 'admitted']],
  [
    'a view of keys that is too old',
    { kind: 'problem', problem: { code: 'not_ready', detail: 'no', errors: [], retryAfterMs: 1 } },
    ['read', 'admitted'],
  ],
])('of what is open, %s ends what it must', async (_, verdict, ended) => {
  vi.useFakeTimers();
  try {
    const { state, live, cut, open } = watched();
    open('read', false);
    open('admitted', true);
    state.verdict = verdict;
    await vi.advanceTimersByTimeAsync(2_000);
    expect(cut).toEqual(ended);
    live.close();
  } finally {
    vi.useRealTimers();
  }
});
