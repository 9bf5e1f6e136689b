import { expect, it } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import { createBundleStory } from '../../src/receipts/bundle-story.ts';

/* What `svc verify --explain` tells of a bundle: who approved and rejected what, and which policies were in force when. */

function told(...lines: readonly JsonObject[]) {
  const story = createBundleStory();
  for (const line of lines) story.take(line);
  return story.end();
}

const vote = (kind: string, data: JsonObject, more: JsonObject = {}): JsonObject => {
  const at = '2026-06-01T00:00:00.000Z';
  return { type: 'event', kind, at, effect_id: 'eff_1', data: { user: 'maria', key_id: 'key_1', ...data }, ...more };
};

it('a vote has who, with what and which words, and what became of the call', () => {
  const effect = {
    type: 'effect',
    effect_id: 'eff_1',
    tool: 'payments.refund',
    target: 'payment:1',
    state: 'committed',
  };
  const words = { comment: 'too much', comment_salt: 's' };
  const { votes } = told(
    vote('approval.granted', { passkey_id: 'psk_1', changed: ['amount', 'note'] }),
    vote('approval.rejected', { comment: 'sc1:x' }, { words, effect_id: 'eff_2' }),
    vote('approval.rejected', { comment: 'sc1:x' }, { effect_id: 'eff_3' }),
    vote('approval.requested', {}),
    vote('approval.granted', { void: true }, { effect_id: 'eff_4' }),
    effect,
    { ...effect, effect_id: 'eff_9' },
  );
  const by = {
    at: '2026-06-01T00:00:00.000Z',
    who: 'maria',
    with: 'key_1',
    request: '',
    call: '',
    became: '',
    changed: '',
    words: '',
  };
  const approved = { verdict: 'approved', with: 'key_1 psk_1', effect: 'eff_1', changed: 'amount note' };
  expect(votes).toEqual([
    { ...by, ...approved, call: 'payments.refund payment:1', became: 'committed' },
    { ...by, verdict: 'rejected', effect: 'eff_2', words: 'too much' },
    { ...by, verdict: 'rejected', effect: 'eff_3', words: '(not in the bundle)' },
    // Also where the bundle does not reach to what was asked in its place.
    { ...by, verdict: 'approved', effect: 'eff_4', became: 'not used' },
  ]);
});

it('an approval that nothing was sent by says so, and what was asked in its place; allowances stand there with their uses', () => {
  const of = (approval: string, more: JsonObject = {}) => vote('approval.granted', { approval_id: approval, ...more });
  const allowance = (kind: string, data: JsonObject, effect_id = 'eff_1'): JsonObject => ({
    ...vote(`allowance.${kind}`, {}, { effect_id, actor: { type: 'user', id: 'maria' } }),
    data: { allowance_id: 'alw_1', given_by: 'maria', ...data },
  });
  const { votes, allowances } = told(
    of('apr_1', { void: true }),
    vote('approval.renewed', { approval_id: 'apr_2' }),
    of('apr_2'),
    vote('approval.renewed', { approval_id: 'apr_3' }),
    of('apr_3'),
    allowance('given', { times: 2, expires_at: '2026-06-02T00:00:00.000Z' }),
    allowance('used', { used: 1 }, 'eff_2'),
    vote('approval.granted', { approval_id: 'apr_9' }, { effect_id: 'eff_3' }),
    vote('approval.expired', { approval_id: 'apr_9', code: 'key_ended' }, { effect_id: 'eff_3' }),
    { type: 'effect', effect_id: 'eff_1', tool: 'payments.refund', target: 'payment:1', state: 'committed' },
    { type: 'effect', effect_id: 'eff_2', tool: 'payments.refund', target: 'payment:2', state: 'committed' },
    { type: 'effect', effect_id: 'eff_3', tool: 'payments.refund', target: 'payment:3', state: 'denied' },
  );
  expect(votes.map(({ request }) => request)).toEqual(['apr_1', 'apr_2', 'apr_3', 'apr_9']);
  expect(votes.map(({ became }) => became)).toEqual([
    'not used, asked anew as apr_2',
    'not used, asked anew as apr_3',
    'committed',
    'not used, key_ended',
  ]);
  const at = '2026-06-01T00:00:00.000Z';
  const row = { at, by: 'maria', allowance: 'alw_1', given_by: 'maria' };
  const until = '2026-06-02T00:00:00.000Z';
  expect(allowances).toEqual([
    { ...row, what: 'given', calls: 'the next 2', until, effect: 'eff_1', call: 'payments.refund payment:1' },
    { ...row, what: 'used', calls: '1 used', until: '', effect: 'eff_2', call: 'payments.refund payment:2' },
  ]);
});

it('policies are told in the order in which they came in force, each time once, with who said so and why', () => {
  const [june, july, august] = ['2026-06-01', '2026-07-01', '2026-08-01'];
  const maria = { type: 'user', id: 'maria' };
  const files = { at: july, how: 'files', by: { type: 'gateway', id: 'gw_1' }, files: ['a.yaml', 'b.yaml'] };
  const activated = { how: 'activate', by: maria, why: 'limits' };
  const { policies } = told(
    { type: 'policy', version: 'v2', part: 1, parts: 2, in_force: [files] },
    { type: 'policy', version: 'v2', part: 2, parts: 2, in_force: [files] },
    {
      type: 'policy',
      version: 'v1',
      in_force: [
        { ...activated, at: august, confirmed_by: ['ada', 'tom'] },
        { ...activated, at: june },
      ],
    },
  );
  expect(policies).toEqual([
    { since: june, version: 'v1', how: 'activate', by: 'user maria', confirmed_by: '', why: 'limits' },
    { since: july, version: 'v2', how: 'files', by: 'gateway gw_1', confirmed_by: '', why: 'a.yaml b.yaml' },
    { since: august, version: 'v1', how: 'activate', by: 'user maria', confirmed_by: 'ada tom', why: 'limits' },
  ]);
});
