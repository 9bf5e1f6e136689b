import { afterEach, expect, it, vi } from 'vitest';
import type { LedgerDraft } from '../../src/effects/model/ledger.ts';
import { type Arrived, readQuery } from '../../src/proxy/arrival.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { createRefusals } from '../../src/proxy/refusals.ts';
import { BOT } from './principal.ts';

afterEach(() => vi.useRealTimers());

function arrivedOf(keyId: string, workspace = 'demo'): Arrived {
  return {
    kind: 'arrived',
    principal: { ...BOT, keyId },
    key: 'the key',
    carriedIn: [],
    authorization: null,
    viaQuery: false,
    workspace,
    agentId: null,
    match: { kind: 'none' },
    path: '/v1/nothing',
    query: readQuery(null),
    address: '10.0.0.1',
    requestId: 'req_1',
    authenticatedAt: 0,
    authenticatedInMs: 0,
  };
}

it('refusals of one key and code are counted from the eleventh in a second on, those of others have their events', async () => {
  const written: (readonly [string, LedgerDraft])[] = [];
  const refusals = createRefusals({
    append: async (workspace, events) => void written.push(...events.map((event) => [workspace, event] as const)),
    newId: (prefix) => `${prefix}_${written.length}`,
  });
  const refuse = (arrived: Arrived, code: 'no_rule_allows' | 'paused' = 'no_rule_allows') =>
    refusals.refuse(arrived, 'POST', { decision: 'denied_policy', reason: { code, message: 'no' } });
  for (let times = 0; times < 25; times += 1) await refuse(arrivedOf('key_loud'));
  await refuse(arrivedOf('key_loud'), 'paused');
  await refuse(arrivedOf('key_quiet'));
  await refuse(arrivedOf('key_loud', 'other'));
  await refusals.close();
  const shown = written.map(([workspace, { data }]) => [workspace, data['key_id'], data['code'], data['count'] ?? 1]);
  expect(shown).toEqual([
    ...Array.from({ length: 10 }, () => ['demo', 'key_loud', 'no_rule_allows', 1]),
    ['demo', 'key_loud', 'paused', 1],
    ['demo', 'key_quiet', 'no_rule_allows', 1],
    ['other', 'key_loud', 'no_rule_allows', 1],
    ['demo', 'key_loud', 'no_rule_allows', 15],
  ]);
  expect(written.at(-1)?.[1].effectId).toBeNull();
});

it('a refusal is an event of whom the key belongs to, and of no agent that a request only names', async () => {
  const written: (readonly [string, LedgerDraft])[] = [];
  const refusals = createRefusals({
    append: async (workspace, events) => void written.push(...events.map((event) => [workspace, event] as const)),
    newId: (prefix) => `${prefix}_${written.length + 1}`,
  });
  const refusal = { decision: 'denied_policy', reason: { code: 'no_rule_allows', message: 'no' } } as const;
  const ofAgent = arrivedOf('key_bot');
  const { user, madeBy, keyCreatedAt, readOnly, allowedTools } = BOT;
  const ofKey = { user, madeBy, keyCreatedAt, readOnly, allowedTools, keyId: 'key_account' };
  const ofAccount: Arrived = {
    ...arrivedOf('key_account'),
    agentId: 'boss',
    principal: { ...ofKey, kind: 'account', workspace: 'demo' },
  };
  const result = await refusals.refuse(ofAgent, 'DELETE', refusal);
  expect(result).toMatchObject({
    kind: 'outcome',
    outcome: {
      ...refusal,
      workspace: 'demo',
      effectId: 'eff_1',
      agentId: 'bot',
      target: 'DELETE /v1/nothing',
      tool: '',
      retryAfterMs: null,
      repeat: false,
    },
  });
  expect(await refusals.refuse(ofAccount, 'POST', refusal)).toMatchObject({
    outcome: { agentId: '', effectId: 'eff_2' },
  });
  const bound = { kind: 'profile', profile: 'p', workspace: 'demo', agentId: 'bound', scopes: [] } as const;
  const ofProfile = { ...ofAccount, principal: { ...ofKey, ...bound } };
  expect(await refusals.refuse(ofProfile, 'POST', refusal)).toMatchObject({ outcome: { agentId: 'bound' } });
  expect(written.pop()?.[1].actor).toEqual({ type: 'agent', id: 'bound' });
  const data = { decision: 'denied_policy', code: 'no_rule_allows', path: '/v1/nothing', upstream: null, tool: '' };
  expect(written).toEqual([
    [
      'demo',
      {
        kind: 'effect.denied',
        effectId: 'eff_1',
        actor: { type: 'agent', id: 'bot' },
        data: { ...data, method: 'DELETE', key_id: 'key_bot' },
      },
    ],
    [
      'demo',
      {
        kind: 'effect.denied',
        effectId: 'eff_2',
        actor: { type: 'key', id: 'key_account' },
        data: { ...data, method: 'POST', key_id: 'key_account' },
      },
    ],
  ]);
  await refusals.close();
  expect(written).toHaveLength(2);
});

it('what was only counted is written after a second, and then each refusal has its event again', async () => {
  vi.useFakeTimers();
  const counts: unknown[] = [];
  const refusals = createRefusals({
    append: async (_workspace, events) => void counts.push(...events.map(({ data }) => data['count'] ?? 1)),
    newId: () => 'eff_1',
  });
  const refuse = () =>
    refusals.refuse(arrivedOf('key_1'), 'POST', {
      decision: 'denied_policy',
      reason: { code: 'no_rule_allows', message: 'no' },
    });
  for (let times = 0; times < 12; times += 1) await refuse();
  await vi.advanceTimersByTimeAsync(999);
  expect(counts).toEqual(Array.from({ length: 10 }, () => 1));
  await vi.advanceTimersByTimeAsync(1);
  expect(counts.slice(10)).toEqual([2]);
  await refuse();
  expect(counts.slice(11)).toEqual([1]);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(counts.slice(12)).toEqual([]);
  // So it is in each second that follows, and at the end what was counted until then.
  for (let times = 0; times < 13; times += 1) await refuse();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(counts.slice(12 + 10)).toEqual([3]);
  for (let times = 0; times < 14; times += 1) await refuse();
  await refusals.close();
  expect(counts.slice(12 + 10 + 1 + 10)).toEqual([4]);
  expect(vi.getTimerCount()).toBe(0);
});

it('a refusal that cannot be written is answered as one of the store, and any other fault is no refusal', async () => {
  const faults: Error[] = [new StoreUnavailable('a primary is down'), new Error('broken')];
  const refusals = createRefusals({
    append: () => Promise.reject(faults.shift() ?? new Error('once more')),
    newId: () => 'eff_1',
  });
  const refuse = () =>
    refusals.refuse(arrivedOf('key_1'), 'POST', {
      decision: 'denied_policy',
      reason: { code: 'no_rule_allows', message: 'no' },
    });
  expect(await refuse()).toMatchObject({
    kind: 'problem',
    problem: { code: 'store_unavailable', retryAfterMs: 1_000 },
  });
  await expect(refuse()).rejects.toThrow('broken');
  await refusals.close();
});
