import { expect, it } from 'vitest';
import type { LedgerDraft } from '../../src/effects/model/ledger.ts';
import { type Arrived, readQuery } from '../../src/proxy/arrival.ts';
import { createRefusals } from '../../src/proxy/refusals.ts';
import { BOT } from './principal.ts';

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
