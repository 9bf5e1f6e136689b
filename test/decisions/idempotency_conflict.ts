import { describe, expect, it } from 'vitest';
import { refund } from '../system/world.ts';
import { world } from './shared-world.ts';

async function alerts(): Promise<number> {
  const text = await (await fetch(`${world.gateway.url}/metrics`)).text();
  return Number(/^svc_alerts_total\{what="foreign_key_reuse"\} (\d+)$/m.exec(text)?.[1] ?? 0);
}

describe('idempotency_conflict', () => {
  it('409 when the key belongs to another action, or to another agent’s; nothing of the first is shown', async () => {
    const call = refund();
    const first = await world.run(call);
    expect(first.status).toBe(200);
    const before = await world.upstream.counts();
    const alertsBefore = await alerts();
    const other = await world.run({ ...call, params: { ...(call['params'] as object), amount: 1001 } });
    expect(other.status).toBe(409);
    expect(other.body).toMatchObject({
      decision: 'idempotency_conflict',
      did_it_happen: 'no',
      reason: { code: 'key_reused' },
    });
    expect(other.body.effect_id).not.toBe(first.body.effect_id);
    expect(JSON.stringify(other.body)).not.toContain(first.body.effect_id);
    expect(await alerts()).toBe(alertsBefore);
    const foreign = await world.run(call, world.keys.otherBot);
    expect(foreign.status).toBe(409);
    expect(foreign.body.decision).toBe('idempotency_conflict');
    expect(await world.kinds(foreign.body.effect_id)).toEqual(['effect.conflict']);
    // Somebody has to look only where two agents use one key.
    expect(await alerts()).toBe(alertsBefore + 1);
    expect((await world.upstream.counts()).requests).toBe(before.requests);
    expect(await world.kinds(other.body.effect_id)).toEqual(['effect.conflict']);
    expect((await world.get(`/effects/${first.body.effect_id}`)).body.effect.state).toBe('committed');
  });
});
