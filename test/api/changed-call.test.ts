import { afterAll, beforeAll, expect, it } from 'vitest';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { ApprovalRequirement } from '../../src/effects/model/verdict.ts';
import type { EffectPorts } from '../../src/effects/ports.ts';
import { allowanceOf } from '../../src/effects/run/allow-alike.ts';
import { changeCall } from '../../src/effects/run/change-call.ts';
import { standingOf } from '../../src/effects/run/standing.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { refund, type Rig, startRig } from './rig.ts';

let rig: Rig;
let approval: ApprovalRecord;
beforeAll(async () => {
  rig = await startRig();
  const params = { payment_id: 'pay_2', amount: 60_000, currency: 'EUR', reason: 'two' };
  const run = await rig.send('POST', '/v1/workspaces/demo/effects', { body: refund({ params }) });
  const asked = await rig.core.store.effect('demo', String(run.json['effect_id']));
  if (asked?.life.state !== 'pending_approval') throw new Error(`it waits: ${run.text}`);
  const found = await rig.core.store.approval('demo', asked.life.approvalId);
  if (found === null) throw new Error('it is on record');
  approval = found;
});
afterAll(() => rig.close());

/** The request as it would stand if the policy had asked differently: of the rule that lets the currency be changed, and of the other. */
function asking(large: Partial<ApprovalRequirement>, byTwo: Partial<ApprovalRequirement> = {}): ApprovalRecord {
  const requirements = approval.requirements.map((one) => ({
    ...one,
    ...(one.rule === 'rig/refund-large' ? large : byTwo),
  }));
  return { ...approval, requirements };
}
const at = (rule: string): number => approval.requirements.findIndex((one) => one.rule === rule);
const ofLarge = () => [at('rig/refund-large')];
const ofTwo = () => [at('rig/refund-by-two')];

/** A call as its record would stand if its tool had been another then. */
const byAnotherTool = (effect: EffectRecord | null): EffectRecord | null =>
  effect === null ? null : { ...effect, action: { ...effect.action, toolDigest: 'of before' } };

const changing = (
  changes: JsonObject,
  requirements = ofLarge(),
  of = approval,
  ports: Partial<EffectPorts> = {},
): ReturnType<typeof changeCall> => changeCall({ ...rig.core, ...ports }, rig.people, of, requirements, changes);

it('what is named, within its bounds, becomes the question', async () => {
  expect(approval.requirements.map(({ rule }) => rule).toSorted()).toEqual(['rig/refund-by-two', 'rig/refund-large']);
  const { change } = { change: null, ...(await changing({ currency: 'CHF' })) };
  expect(change).toMatchObject({ params: ['currency'], requester: approval.requester });
  expect(change?.digest).not.toBe(approval.digest);
});

it('a call that was changed is judged, and changed again, as it stands since', async () => {
  const { change } = { change: null, ...(await changing({ currency: 'CHF' })) };
  if (change === null) throw new Error('it was changed');
  const { digest, requirements, params, sealed } = change;
  const made = { by: 'maria', at: 0, params, sealed, askedDigest: approval.digest };
  const changed: ApprovalRecord = { ...approval, digest, requirements, changed: made };
  expect(await standingOf(rig.core, rig.people, changed)).toMatchObject({ kind: 'asked' });
  expect(await changing({ currency: 'CHF' }, ofLarge(), changed)).toEqual({ kind: 'change', change: null });
  expect(await changing({ currency: 'EUR' }, ofLarge(), changed)).toMatchObject({
    problem: { detail: expect.stringContaining('what the agent asked before') },
  });
});

it('a call whose tool is gone is not approved by the way as it was asked', async () => {
  const catalog = () => ({ ...rig.core.catalog(), tool: () => null });
  expect(await changing({ currency: 'CHF' }, ofLarge(), approval, { catalog })).toMatchObject({
    kind: 'problem',
    problem: { code: 'change_refused' },
  });
});

it('nothing is changed by what stands there, by who decides by no rule, and after the decision', async () => {
  const nothing = { kind: 'change', change: null };
  expect(await changing({ currency: 'EUR' })).toEqual(nothing);
  expect(await changing({ currency: 'CHF' }, [])).toEqual(nothing);
  expect(await changing({ currency: 'CHF' }, ofLarge(), { ...approval, status: 'granted' })).toEqual(nothing);
});

it.each<[what: string, JsonObject, () => readonly number[], () => ApprovalRecord, message: RegExp]>([
  ['a param that no rule names', { amount: 1 }, ofLarge, () => approval, /is not named by the policy/],
  [
    'a param that only a rule of others names',
    { currency: 'CHF' },
    ofTwo,
    () => approval,
    /is not named by the policy/,
  ],
  ['a value beyond its bounds', { currency: 'x'.repeat(81) }, ofLarge, () => approval, /80/],
  [
    'a value beyond the bounds that a rule of others sets',
    { currency: 'FRANC' },
    ofLarge,
    () => asking({}, { editable: { currency: { kind: 'text', maxLength: 3 } } }),
    /3/,
  ],
])('%s is refused by its name', async (_, changes, requirements, of, message) => {
  const [name = ''] = Object.keys(changes);
  expect(await changing(changes, [...requirements()], of())).toMatchObject({
    kind: 'problem',
    problem: {
      code: 'invalid_request',
      errors: [{ path: `/changes/${name}`, message: expect.stringMatching(message) }],
    },
  });
});

it.each<[what: string, () => ApprovalRecord, () => Partial<EffectPorts>, message: RegExp]>([
  [
    'a call on another target',
    () => approval,
    () => ({ catalog: () => ({ ...rig.core.catalog(), target: () => 'payment:pay_9' }) }),
    /another target/,
  ],
  [
    'a call by a tool that was declared anew, also where policy asks as before',
    () => approval,
    () => ({
      store: { ...rig.core.store, effect: async (ws, id) => byAnotherTool(await rig.core.store.effect(ws, id)) },
    }),
    /the tool is no longer as it was/,
  ],
  ['a rule that was written anew since', () => asking({ ruleDigest: 'other' }), () => ({}), /rig\/refund-large asks/],
  [
    'a rule that asked for a limit',
    () => asking({}, { beyond: 'budget rig/day' }),
    () => ({}),
    /rig\/refund-by-two asks/,
  ],
])('what nobody was asked about is not made of it: %s', async (_, of, ports, message) => {
  expect(await changing({ currency: 'CHF' }, ofLarge(), of(), ports())).toMatchObject({
    kind: 'problem',
    problem: { code: 'change_refused', detail: expect.stringMatching(message) },
  });
});

it('a changed call that does not fit its tool is refused, with what does not fit', async () => {
  const misfit = { path: '/params/currency', message: 'must be one that the bank takes' };
  const catalog = () => ({ ...rig.core.catalog(), check: () => [misfit] });
  expect(await changing({ currency: 'CHF' }, ofLarge(), approval, { catalog })).toMatchObject({
    kind: 'problem',
    problem: {
      code: 'invalid_request',
      detail: expect.stringContaining('does not fit the tool payments.refund'),
      errors: [misfit],
    },
  });
});

it.each<[what: string, times: number | null, untilMs: number | null, message: RegExp]>([
  ['more calls than the policy lets', 4, null, /^The policy lets the next 3 be allowed at most\./],
  ['until a moment that is over', 3, 0, /^The time until which they would be allowed is over\./],
  [
    'for longer than the policy lets',
    3,
    3_600_000 + 120_000,
    /^The policy lets them be allowed for 60 minutes at most/,
  ],
  // A page says until when some time before it is sent.
  ['what the policy let when it was asked', 3, 3_600_000 + 30_000, /no longer as it was when this was asked\..*ask/i],
])('the next calls are not allowed ahead: %s', async (_what, times, untilMs, message) => {
  const allowAlike = { times: 3, forMs: 3_600_000 };
  const requirements = approval.requirements.map((one) => ({ ...one, quorum: 1, allowAlike }));
  const until = untilMs === null ? null : rig.core.store.now() + untilMs;
  const by = { user: 'maria', keyId: 'key_1' };
  const decided = requirements.map((_one, index) => index);
  const asked = { ...approval, requirements };
  expect(await allowanceOf(rig.core, rig.people, asked, by, decided, { times, until }, false)).toMatchObject({
    problem: { code: 'allowance_refused', detail: expect.stringMatching(message) },
  });
});
