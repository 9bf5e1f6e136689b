import { describe, expect, it } from 'vitest';
import { refund } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('denied_identity', () => {
  it('403 for an agent key that names another agent, and an account key that names an unknown one', async () => {
    const before = await world.upstream.counts();
    const other = await world.run({ ...refund(), agent_id: 'other-bot' });
    expect(other.status).toBe(403);
    expect(other.body).toMatchObject({
      decision: 'denied_identity',
      did_it_happen: 'no',
      reason: { code: 'agent_mismatch' },
    });
    // It is the refusal of the agent whose key it was, and nothing that the one it named gets to see.
    expect(other.body.agent_id).toBe('bot');
    expect(await world.kinds(other.body.effect_id)).toEqual(['effect.denied']);
    const own = await world.get(`/effects/${other.body.effect_id}`, world.keys.bot);
    expect(own.body.effect).toMatchObject({ state: 'denied', agent_id: 'bot' });
    expect(own.body.ledger[0].actor).toEqual({ type: 'agent', id: 'bot' });
    expect((await world.get(`/effects/${other.body.effect_id}`, world.keys.otherBot)).status).toBe(404);
    const unknown = await world.run({ ...refund(), agent_id: 'nobody' }, world.keys.account);
    expect(unknown.status).toBe(403);
    expect(unknown.body).toMatchObject({ decision: 'denied_identity', reason: { code: 'unknown_agent' } });
    expect(await world.kinds(unknown.body.effect_id)).toEqual(['effect.denied']);
    // A key that may not have that agent act was refused itself.
    const refused = await world.get(`/effects/${unknown.body.effect_id}`);
    expect(refused.body.effect).toMatchObject({ state: 'denied', agent_id: '' });
    expect(refused.body.ledger[0].actor).toMatchObject({ type: 'key', id: expect.stringMatching(/^key_/) });
    expect((await world.upstream.counts()).requests).toBe(before.requests);
  });
});
