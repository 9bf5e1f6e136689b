import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Rig, startRig } from './rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

const VERIFY = {
  intent: 'refund',
  required_fields: ['amount'],
  assumed_state: { amount: 1 },
  current_state: { amount: 2 },
  conditions: { amount: { $lte: 5 } },
  on_mismatch: 'block',
};
const RECONCILE = {
  action: { intent: 'refund', tool: 'payments.refund', params: { amount: 1 } },
  outcome: 'UNKNOWN',
  current_state: { status: 'paid', amount: 1 },
  conditions: { status: 'refunded' },
};

const pathsOf = (errors: unknown) => (errors as { path: string }[]).map(({ path }) => path).toSorted();

describe('POST /state/verify', () => {
  it('answers in the shape of the specification, to every kind of key', async () => {
    for (const key of [rig.keys.account, rig.keys.agent, rig.keys.admin, rig.keys.readonly]) {
      const { status, json } = await rig.send('POST', '/state/verify', { key, body: VERIFY });
      expect(status).toBe(200);
      expect(json).toEqual({
        status: 'mismatch_detected',
        decision: 'block',
        mismatches: [{ field: 'amount', assumed: 1, current: 2 }],
      });
    }
    expect((await rig.send('POST', '/state/verify', { key: null, body: VERIFY })).status).toBe(401);
  });

  it('takes 1,000 required fields, and no more', async () => {
    const asked = async (count: number) => {
      const fields = Array.from({ length: count }, (_, index) => `f${index}`);
      return (await rig.send('POST', '/state/verify', { body: { ...VERIFY, required_fields: fields } })).status;
    };
    expect([await asked(1_000), await asked(1_001)]).toEqual([200, 400]);
  });

  it('lists every fault at once, those of conditions too', async () => {
    const { status, json } = await rig.send('POST', '/state/verify', {
      body: {
        ...VERIFY,
        intent: 1,
        required_fields: 'amount',
        current_state: [],
        conditions: { a: { $foo: 1 } },
        on_mismatch: 'stop',
        extra: 1,
      },
    });
    expect([status, json['code']]).toEqual([400, 'invalid_request']);
    expect(pathsOf(json['errors'])).toEqual([
      '/conditions/a/$foo',
      '/current_state',
      '/extra',
      '/intent',
      '/on_mismatch',
      '/required_fields',
    ]);
  });

  it.each(Object.keys(VERIFY))('requires %s', async (field) => {
    const { status, json } = await rig.send('POST', '/state/verify', { body: { ...VERIFY, [field]: undefined } });
    expect(status).toBe(400);
    expect(json['errors']).toEqual([{ path: `/${field}`, message: 'is required' }]);
  });
});

describe('POST /outcomes/reconcile', () => {
  it('answers in the shape of the specification', async () => {
    const { status, json } = await rig.send('POST', '/outcomes/reconcile', { body: RECONCILE });
    expect(status).toBe(200);
    expect(json).toEqual({
      decision: 'retry_allowed',
      reason: expect.stringContaining('status'),
      status: 'reconciled',
    });
  });

  it.each(['SUCCESS', 'unknown', '', null, 1])('refuses the outcome %j by a code of its own', async (outcome) => {
    const { status, json } = await rig.send('POST', '/outcomes/reconcile', { body: { ...RECONCILE, outcome } });
    expect([status, json['code']]).toEqual([400, 'outcome_not_unknown']);
    expect(json['errors']).toContainEqual({ path: '/outcome', message: 'must be "UNKNOWN"' });
  });

  it('lists every fault at once', async () => {
    const { json } = await rig.send('POST', '/outcomes/reconcile', {
      body: {
        action: { tool: 1, params: [], also: 1 },
        outcome: 'DONE',
        current_state: 1,
        conditions: { a: { $in: 1 } },
      },
    });
    expect(json['code']).toBe('invalid_request');
    expect(pathsOf(json['errors'])).toEqual([
      '/action/also',
      '/action/intent',
      '/action/params',
      '/action/tool',
      '/conditions/a/$in',
      '/current_state',
      '/outcome',
    ]);
  });

  it('an outcome that is missing is an incomplete request', async () => {
    const { json } = await rig.send('POST', '/outcomes/reconcile', { body: { ...RECONCILE, outcome: undefined } });
    expect([json['code'], pathsOf(json['errors'])]).toEqual(['invalid_request', ['/outcome']]);
  });
});
