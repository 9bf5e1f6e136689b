import { describe, expect, it } from 'vitest';
import { freshKey, refund } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('denied_paused', () => {
  it('423 while paused, by tool glob, agent or workspace; lifted, the same call runs', async () => {
    for (const scope of [{ tool: 'payments.*' }, { agent: 'bot' }, { workspace: true }, { upstream: 'payments' }]) {
      const pause = await world.post('/pauses', { scope, reason: 'incident 7' });
      expect(pause.status).toBe(201);
      const before = await world.upstream.counts();
      const call = refund({}, freshKey());
      const answer = await world.run(call);
      expect(answer.status).toBe(423);
      expect(answer.body).toMatchObject({ decision: 'denied_paused', did_it_happen: 'no', reason: { code: 'paused' } });
      expect(answer.body.reason.message).toContain('incident 7');
      expect((await world.upstream.counts()).requests).toBe(before.requests);
      expect((await world.get(`/effects/${answer.body.effect_id}`)).body.effect.state).toBe('denied');
      expect(await world.kinds(answer.body.effect_id)).toEqual(['effect.denied']);
      const lifted = await fetch(`${world.gateway.url}/v1/workspaces/demo/pauses/${pause.body.id}`, {
        method: 'DELETE',
        headers: { 'x-api-key': world.keys.account },
      });
      expect(lifted.status).toBeLessThan(300);
      expect((await world.run(call)).body.decision).toBe('committed');
    }
  });
});
