import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { makeApiKey, send } from './gateway.ts';
import { freshKey, refund, startWorld, type World } from './world.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 30_000, interval: 20 } as const;

let world: World;
beforeAll(async () => {
  world = await startWorld({ entry: join(process.cwd(), 'test', 'system', 'failpoint-gateway.mjs') });
});
afterAll(() => world.close());

const BEFORE = ['authenticate', 'permission', 'identity', 'validate', 'policy'];

async function stagesOf(effectId: string): Promise<readonly (readonly [string, string])[]> {
  const { body } = await world.get(`/effects/${effectId}/run`);
  return body.stages.map(({ stage, status }: { stage: string; status: string }) => [stage, status]);
}

async function detailOf(effectId: string, of: string): Promise<string | undefined> {
  const { body } = await world.get(`/effects/${effectId}/run`);
  return body.stages.find(({ stage }: { stage: string }) => stage === of)?.detail;
}

describe('the stages of a run', () => {
  it('are there while it executes; that it began stands at the time when it did', async () => {
    await world.upstream.mode({ mode: 'held', times: 1, path: '/v1/notes' });
    const key = freshKey();
    const running = world.run({ tool: 'notes.add', params: { text: key }, idempotency_key: key });
    const id: string = await vi.waitFor(async () => {
      const { body } = await world.get('/effects?state=executing');
      expect(body.effects).toHaveLength(1);
      return body.effects[0].id;
    }, PATIENT);
    await vi.waitFor(
      async () =>
        expect(await stagesOf(id)).toEqual([
          ...BEFORE.map((stage) => [stage, 'passed']),
          ['admission', 'passed'],
          ['execute', 'running'],
        ]),
      PATIENT,
    );
    await vi.waitFor(async () => {
      const { effects } = await world.upstream.ledger();
      expect(effects.some(({ path }) => path === '/v1/notes')).toBe(true);
    }, PATIENT);
    const answeredAfter = new Date().toISOString();
    await world.upstream.release();
    expect((await running).body.decision).toBe('committed');
    expect((await stagesOf(id)).slice(BEFORE.length).map(([stage]) => stage)).toEqual([
      'admission',
      'execute',
      'receipt',
      'settle',
    ]);
    const { body } = await world.get(`/effects/${id}`);
    const started = body.ledger.find(({ kind }: { kind: string }) => kind === 'execution.started');
    expect(started.at < answeredAfter).toBe(true);
    expect(started.recorded_at >= answeredAfter).toBe(true);
  });

  it.each([
    [
      'denied_identity',
      { agent_id: 'nobody' },
      [
        ['permission', 'passed'],
        ['identity', 'refused'],
      ],
    ],
    [
      'denied_policy',
      { tool: 'notes.none' },
      [
        ['permission', 'passed'],
        ['identity', 'passed'],
        ['validate', 'refused'],
      ],
    ],
  ])('of a refusal (%s) end with it', async (decision, members, stages) => {
    const call = { tool: 'notes.add', params: { text: 'x' }, agent_id: 'bot', idempotency_key: freshKey(), ...members };
    const { body } = await world.run(call, world.keys.account);
    expect(body.decision).toBe(decision);
    expect(await stagesOf(body.effect_id)).toEqual([['authenticate', 'passed'], ...stages]);
  });

  it('of a refusal by the budget end with the admission, and name its rule', async () => {
    const { body } = await world.run(refund({ amount: 10_000_000 }));
    expect(body.decision).toBe('denied_budget');
    expect(await stagesOf(body.effect_id)).toEqual([
      ...BEFORE.map((stage) => [stage, 'passed']),
      ['admission', 'refused'],
    ]);
    expect(await detailOf(body.effect_id, 'admission')).toBe(body.reason.rule);
  });

  it('say that no rule allows it, and not which rule matched', async () => {
    const { body } = await world.run({ tool: 'notes.secret', params: { text: 'x' }, idempotency_key: freshKey() });
    expect(body.reason.code).toBe('no_rule_allows');
    expect(await detailOf(body.effect_id, 'policy')).toBe('no_rule_allows');
  });

  it('of a key that may not call the tool end with permission', async () => {
    const limited = await makeApiKey(world.gateway, 'olga', {
      kind: 'agent',
      workspace: 'demo',
      agent_id: 'bot',
      allowed_tools: ['notes.add'],
    });
    const { body } = await world.run(refund(), limited);
    expect(body.decision).toBe('denied_permission');
    expect(await stagesOf(body.effect_id)).toEqual([
      ['authenticate', 'passed'],
      ['permission', 'refused'],
    ]);
  });
});

describe('did it happen', () => {
  it('no, where a fault of ours came before anything was sent', async () => {
    const before = await world.upstream.counts();
    const { body } = await world.run({
      ...refund({ reason: 'failpoint:state_throws' }),
      state_check: { intent: 'x', required_fields: [], assumed_state: {}, conditions: {}, on_mismatch: 'block' },
    });
    expect(body).toMatchObject({ decision: 'failed', reason: { code: 'not_dispatched' }, did_it_happen: 'no' });
    expect(await world.upstream.counts()).toEqual(before);
  });

  it.each([
    ['GET', {}, 'no'],
    ['GET', { 'idempotency-key': 'k' }, 'maybe'],
    ['POST', {}, 'maybe'],
  ])('%s with %j that nobody was let in for: %s', async (method, headers, happened) => {
    const { url } = world.gateway;
    const answer = await send(url, 'svc_agent_wrong', method, '/payments/v1/payments/pay_1', undefined, headers);
    expect([answer.status, answer.body.did_it_happen]).toEqual([401, happened]);
  });
});
