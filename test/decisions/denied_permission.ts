import { describe, expect, it } from 'vitest';
import { freshKey, refund } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('denied_permission', () => {
  it.each([
    ['a read-only profile', () => world.keys.readonly, 'insufficient_scope'],
    ['an administrative key', () => world.gateway.administrativeKey, 'wrong_key_kind'],
    ['a key of another workspace', () => world.keys.stranger, 'wrong_workspace'],
  ])('403 for %s; nothing is sent; the key stays free', async (_name, key, code) => {
    const before = await world.upstream.counts();
    const call = refund({}, freshKey());
    const answer = await world.run({ ...call, ...(code === 'wrong_key_kind' ? { agent_id: 'bot' } : {}) }, key());
    expect(answer.status).toBe(403);
    expect(answer.body).toMatchObject({ decision: 'denied_permission', did_it_happen: 'no', reason: { code } });
    expect((await world.upstream.counts()).requests).toBe(before.requests);
    if (code === 'insufficient_scope') {
      const { body } = await world.get(`/effects/${answer.body.effect_id}`);
      expect(body.effect).toMatchObject({ state: 'denied', decision: 'denied_permission', reason: { code } });
      expect(await world.kinds(answer.body.effect_id)).toEqual(['effect.denied']);
    } else {
      // Who is of no workspace, or of another, leaves nothing in this one.
      expect((await world.get(`/effects/${answer.body.effect_id}`)).status).toBe(404);
    }
    expect((await world.run(call)).body.decision).toBe('committed');
  });
});
