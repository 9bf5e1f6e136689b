import { expect, it, vi } from 'vitest';
import { createLive } from '../../src/identity/live.ts';
import type { Principal } from '../../src/effects/model/principal.ts';
import { BOT } from '../proxy/principal.ts';

it('what is open is cut where nobody can tell whether its key still holds', async () => {
  let changed: () => void = () => undefined;
  const live = createLive({
    identify: () => Promise.reject(new Error('the store is away')),
    onAccessChanged(listener) {
      changed = listener;
      return () => undefined;
    },
  });
  let cuts = 0;
  const cut = new Promise<void>((resolve) => {
    live.add({
      key: 'k',
      address: '127.0.0.1',
      mayStay: () => true,
      isAdmitted: false,
      stands: () => false,
      cut: () => {
        cuts += 1;
        resolve();
      },
    });
  });
  changed();
  await cut;
  // What was cut is not cut again.
  live.close();
  expect(cuts).toBe(1);
});

it('when the gateway stops, what stands is cut at once, other reads after 20 s, and what was admitted never', () => {
  vi.useFakeTimers();
  try {
    const live = createLive({
      identify: () => Promise.resolve({ kind: 'principal', principal: BOT }),
      onAccessChanged: () => () => undefined,
    });
    const cut: string[] = [];
    let isEvents = false;
    const add = (name: string, isAdmitted: boolean, stands: () => boolean): void =>
      live.add({
        key: 'k',
        address: '127.0.0.1',
        mayStay: () => true,
        isAdmitted,
        stands,
        cut: () => void cut.push(name),
      });
    add('events', false, () => true);
    add('a download', false, () => false);
    add('what turns out to be events', false, () => isEvents);
    add('a governed stream', true, () => false);
    live.stop();
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
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

/** What is open while what its key may do changes. */
function watched() {
  const state = { mayStay: true, isValid: true, subscribed: 0 };
  const judged: Principal[] = [];
  const live = createLive({
    identify: async (key, address) =>
      state.isValid
        ? { kind: 'principal', principal: { ...BOT, keyId: `now ${key} from ${address}` } }
        : { kind: 'problem', problem: { code: 'invalid_key', detail: 'no', errors: [], retryAfterMs: null } },
    onAccessChanged: () => {
      state.subscribed += 1;
      return () => (state.subscribed -= 1);
    },
  });
  const cut: string[] = [];
  const mayStay = (principal: Principal): boolean => {
    judged.push(principal);
    return state.mayStay;
  };
  const open = (key: string) => {
    const ends = { stands: () => false, cut: () => void cut.push(key) };
    const connection = { key, address: '127.0.0.1', mayStay, isAdmitted: false, ...ends };
    live.add(connection);
    return connection;
  };
  return { state, judged, live, cut, open };
}

it('every two seconds what is open is judged again by what its key may do now, once it is over no more', async () => {
  vi.useFakeTimers();
  try {
    const { state, judged, live, cut, open } = watched();
    open('read');
    live.remove(open('over'));
    await vi.advanceTimersByTimeAsync(1_999);
    expect(judged).toHaveLength(0);
    await vi.advanceTimersByTimeAsync(1);
    expect(judged.map(({ keyId }) => keyId)).toEqual(['now read from 127.0.0.1']);
    expect(cut).toEqual([]);
    state.isValid = false;
    await vi.advanceTimersByTimeAsync(2_000);
    expect(cut).toEqual(['read']);
    await vi.advanceTimersByTimeAsync(4_000);
    expect([cut, judged.length]).toEqual([['read'], 1]);
    open('read');
    live.close();
    expect([cut.length, state.subscribed, vi.getTimerCount()]).toEqual([2, 0, 0]);
  } finally {
    vi.useRealTimers();
  }
});

it('what may stay open no more is cut, and only that: not what has ended while it was judged', async () => {
  vi.useFakeTimers();
  try {
    const { state, live, cut, open } = watched();
    open('read');
    const over = open('over');
    state.mayStay = false;
    vi.advanceTimersByTime(2_000);
    live.remove(over);
    await vi.advanceTimersByTimeAsync(0);
    expect(cut).toEqual(['read']);
    live.close();
  } finally {
    vi.useRealTimers();
  }
});
