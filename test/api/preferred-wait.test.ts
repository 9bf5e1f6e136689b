import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createEffectWatch, PreferredWait } from '../../src/api/preferred-wait.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { EFFECT } from '../effects/records.ts';
import { refund, type Rig, startRig } from './rig.ts';

/* `Prefer: wait=n` on a call that waits for people: its connection is held until they have decided, or the time is over. */

const WS = '/v1/workspaces/demo';
const USERS = '/v1/beta/users/olga/keys';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

const requests = async (): Promise<readonly Record<string, unknown>[]> => {
  const { json } = await rig.send('GET', `${WS}/approvals?limit=100`, { key: rig.keys.approver });
  return json['approvals'] as unknown as readonly Record<string, unknown>[];
};

let amount = 51_000;

/** A call whose caller waits, and its request for approval. */
async function held(prefer = 'wait=30', key = rig.keys.account, more: Readonly<Record<string, string>> = {}) {
  amount += 1;
  const body = refund({ params: { payment_id: 'pay_2', amount, currency: 'EUR', ...more } });
  const answering = rig.send('POST', `${WS}/effects`, { key, body, headers: { prefer } });
  const asked = await vi.waitFor(
    async () => {
      const found = (await requests()).find(({ summary }) => summary === `Refund ${amount}`);
      if (found === undefined) throw new Error('it has not asked yet');
      return { id: String(found['id']), effectId: String(found['effect_id']) };
    },
    { timeout: 20_000, interval: 20 },
  );
  return { ...asked, body, answering, summary: `Refund ${amount}` };
}

const decide = (id: string, verb: 'approve' | 'reject', comment?: string) =>
  rig.send('POST', `${WS}/approvals/${id}/${verb}`, {
    key: rig.keys.approver,
    body: comment === undefined ? {} : { comment },
  });

describe('a held call whose caller prefers to wait', () => {
  it('is answered with what became of it once it is approved', async () => {
    const { id, effectId, answering, body } = await held();
    expect((await decide(id, 'approve')).json['became']).toMatchObject({ decision: 'committed' });
    const answer = await answering;
    expect(answer.status).toBe(200);
    expect(answer.headers['preference-applied']).toBe('wait=30');
    expect(answer.json).toMatchObject({
      decision: 'committed',
      effect_id: effectId,
      did_it_happen: 'yes',
      receipt: { effect: { id: effectId } },
      result: expect.anything(),
    });
    expect((await rig.send('POST', `${WS}/effects`, { body })).json['decision']).toBe('duplicate_blocked');
  });

  it('is answered with the reason once it is rejected', async () => {
    const { id, answering } = await held();
    await decide(id, 'reject', 'not in May');
    const answer = await answering;
    expect(answer.status).toBe(403);
    expect(answer.json).toMatchObject({ decision: 'denied_policy', reason: { code: 'approval_rejected' } });
    expect(answer.text).toContain('not in May');
  });

  it('waits no longer than it said, and is told how the request stands then', { timeout: 20_000 }, async () => {
    const { id, answering } = await held('wait=1');
    const answer = await answering;
    expect(answer.status).toBe(202);
    expect(answer.headers['preference-applied']).toBe('wait=1');
    expect(answer.json).toMatchObject({ decision: 'pending_approval', approval: { id, status: 'pending' } });
    expect((await decide(id, 'approve')).json['became']).toMatchObject({ decision: 'committed' });
  });

  it('waits 30 s at most, however long it would', async () => {
    const { id, answering } = await held('wait=600');
    await decide(id, 'approve');
    expect((await answering).headers['preference-applied']).toBe('wait=30');
  });

  it('waits with the same key also where it did not wait before', async () => {
    const { id, answering, body } = await held('respond-async');
    expect((await answering).headers).not.toHaveProperty('preference-applied');
    const again = await rig.send('POST', `${WS}/effects`, { body, headers: { prefer: 'wait=1' } });
    expect(again.headers['preference-applied']).toBe('wait=1');
    expect(again.json).toMatchObject({ decision: 'pending_approval', approval: { id } });
  });

  it('that two have to approve is told of the one who did, when its time is over', async () => {
    const { id, answering } = await held('wait=2', rig.keys.account, { reason: 'two' });
    await decide(id, 'approve');
    const answer = await answering;
    expect(answer.json).toMatchObject({ decision: 'pending_approval', approval: { id, approvals: 1 } });
  });

  it('is answered at once where the gateway stops', async () => {
    const own = await startRig();
    const body = refund({ params: { payment_id: 'pay_2', amount: 60_000, currency: 'EUR' } });
    const answering = own.send('POST', `${WS}/effects`, { body, headers: { prefer: 'wait=30' } });
    await vi.waitFor(async () => {
      const { json } = await own.send('GET', `${WS}/approvals?limit=100`, { key: own.keys.approver });
      expect(json['approvals']).toHaveLength(1);
    });
    const [answer] = await Promise.all([answering, own.close()]);
    expect(answer.json).toMatchObject({ decision: 'pending_approval' });
  }, 15_000);

  it.each([
    { of: 'its key, whatever agents it names', kind: 'account', keys: 1, agents: ['bot', 'other-bot'] },
    { of: 'its agent, whichever of its keys it shows', kind: 'agent', keys: 2, agents: ['bot'] },
  ])(
    'has 16 places for $of',
    async ({ kind, keys, agents }) => {
      const own = await startRig();
      const shown: string[] = [];
      while (shown.length < keys) {
        const body = { name: 'waits', kind, workspace: 'demo', ...(kind === 'agent' ? { agent_id: 'bot' } : {}) };
        const made = await own.send('POST', USERS, { key: own.keys.admin, body });
        shown.push(String(made.json['key']));
      }
      const call = (index: number) =>
        own.send('POST', `${WS}/effects`, {
          key: shown[index % shown.length] ?? null,
          body: refund({
            agent_id: agents[index % agents.length],
            params: { payment_id: 'pay_2', amount: 70_000 + index, currency: 'EUR' },
          }),
          headers: { prefer: 'wait=30' },
        });
      const answering = Array.from({ length: 17 }, (_, index) => call(index));
      const first = await Promise.race(answering);
      expect([first.status, first.headers['preference-applied']]).toEqual([202, undefined]);
      await own.close();
      const applied = (await Promise.all(answering)).map(({ headers }) => headers['preference-applied']);
      expect(applied.filter((one) => one === 'wait=30')).toHaveLength(16);
    },
    30_000,
  );

  it('gives its place back when its caller has gone', async () => {
    const own = await startRig();
    const url = await own.app.listen({ host: '127.0.0.1', port: 0 });
    const body = JSON.stringify(refund({ params: { payment_id: 'pay_2', amount: 70_000, currency: 'EUR' } }));
    const headers = { 'content-type': 'application/json', 'x-api-key': own.keys.account };
    const call = (prefer: string, signal: AbortSignal | null): Promise<Response> =>
      fetch(`${url}${WS}/effects`, { method: 'POST', headers: { ...headers, prefer }, body, signal });
    const leave = new AbortController();
    const held = Array.from({ length: 17 }, () => call('wait=30', leave.signal));
    // There is no place for one of them.
    expect((await Promise.race(held)).headers.has('preference-applied')).toBe(false);
    leave.abort();
    await Promise.allSettled(held);
    const isHeld = async (): Promise<boolean> => (await call('wait=1', null)).headers.has('preference-applied');
    // Long before they would have waited to the end.
    await expect.poll(isHeld, { timeout: 15_000 }).toBe(true);
    await own.close();
  });

  it.each([
    ['wait=99', 'wait=30'],
    ['respond-async, wait=5', 'wait=5'],
    ['wait="7"', 'wait=7'],
    ['Wait = 9', 'wait=9'],
  ])('that says %s waits as the gateway answers: %s', async (prefer, applied) => {
    const { id, answering } = await held(prefer);
    await decide(id, 'reject');
    expect((await answering).headers['preference-applied']).toBe(applied);
  });

  it('waits for nobody where it did not ask to', async () => {
    const { answering } = await held('respond-async');
    const answer = await answering;
    expect([answer.status, answer.headers['preference-applied']]).toEqual([202, undefined]);
  });

  it('asks nobody anew when its request is over', async () => {
    const { id, answering, summary } = await held();
    const { store } = rig.core;
    const approval = await store.approval('demo', id);
    if (approval === null) throw new Error('it waits');
    const voter = {
      user: 'maria',
      keyId: 'key_of_maria',
      voterSince: 0,
      actor: { type: 'user', id: 'maria' },
    } as const;
    const { digest } = approval;
    const by = {
      ...voter,
      workspace: 'demo',
      approvalId: id,
      digest,
      change: null,
      comment: null,
      requirements: [0],
      escalated: [],
    };
    await store.vote({ ...by, verdict: 'approve' });
    const reason = { code: 'approval_expired', message: 'Nobody sent it in time.' } as const;
    const actor = { type: 'gateway', id: 'sweeper' } as const;
    await store.giveUp({ workspace: 'demo', approvalId: id, decision: 'denied_policy', reason, actor });
    expect((await answering).json).toMatchObject({ decision: 'denied_policy', reason });
    expect((await requests()).filter((one) => one['summary'] === summary)).toHaveLength(1);
  });

  it('tells a key that was revoked meanwhile nothing', async () => {
    const made = await rig.send('POST', USERS, {
      key: rig.keys.admin,
      body: { name: 'waits', kind: 'account', workspace: 'demo' },
    });
    const { id, answering } = await held('wait=30', String(made.json['key']));
    await rig.send('DELETE', `${USERS}/${String(made.json['id'])}`, { key: rig.keys.admin });
    await decide(id, 'reject', 'for its owner alone');
    const answer = await answering;
    expect([answer.status, answer.json['code']]).toEqual([401, 'invalid_key']);
    expect(answer.text).not.toContain('for its owner alone');
  });

  it('tells a key nothing that may not run actions any more', async () => {
    const owner = await rig.ports.authenticate(rig.keys.account);
    if ('failure' in owner) throw new Error(owner.failure);
    const waits = new PreferredWait({ ...rig.ports, stillValid: async () => ({ ...owner, readOnly: true }) });
    const hold = vi.spyOn(rig.ports.preferredWait, 'hold').mockImplementation((...of) => waits.hold(...of));
    const { id, answering } = await held();
    await decide(id, 'reject', 'for those who may run it');
    const answer = await answering;
    hold.mockRestore();
    expect([answer.status, answer.json['code']]).toEqual([401, 'invalid_key']);
    expect(answer.text).not.toContain('for those who may run it');
  });
});

it('a call whose store is away is told how it stood before it waited', async () => {
  const away = async (): Promise<never> => {
    throw new StoreUnavailable('away');
  };
  const store = { effect: away, approval: away };
  const waits = new PreferredWait({ ...rig.ports, store });
  const hold = vi.spyOn(rig.ports.preferredWait, 'hold').mockImplementation((...of) => waits.hold(...of));
  const { id, answering } = await held('wait=1');
  const answer = await answering;
  hold.mockRestore();
  expect([answer.status, answer.headers['preference-applied']]).toEqual([202, 'wait=1']);
  expect(answer.json).toMatchObject({ decision: 'pending_approval', approval: { id } });
});

describe('the watch over effects', () => {
  const at = (effectId: string) => ({ workspace: 'demo', effectId });
  /** A watch over effects that never come to an end. */
  const endless = () => {
    let reads = 0;
    const watch = createEffectWatch(() => {
      reads += 1;
      return new Promise(() => {});
    });
    const refused = (id: string, of = 'another'): boolean =>
      watch.left(['pending_approval'], at(id), of, 600_000, new AbortController().signal) === null;
    const wait = (id: string, of: string) => {
      const gone = new AbortController();
      const left = watch.left(['pending_approval'], at(id), of, 600_000, gone.signal);
      if (left === null) throw new Error('too many wait');
      return { gone, left };
    };
    return { watch, refused, wait, reads: () => reads };
  };
  const many = <T>(of: (index: number) => T): readonly T[] => Array.from({ length: 64 }, (_, index) => of(index));

  it('lets 64 callers wait, and reads once for all who wait for the same effect', async () => {
    const { watch, refused, wait, reads } = endless();
    const waiting = many((index) => wait(`eff_${index % 8}`, `agent ${index % 4}`).left);
    expect(refused('eff_0')).toBe(true);
    expect(reads()).toBe(8);
    watch.end();
    expect(new Set(await Promise.all(waiting))).toEqual(new Set([false]));
    // The gateway stops: nobody begins to wait.
    expect(refused('eff_0')).toBe(true);
  });

  it('lets 16 callers of one agent wait: there is room for others, and for it again when one has gone', async () => {
    const { watch, refused, wait } = endless();
    const [first, ...waiting] = Array.from({ length: 16 }, (_, index) => wait(`eff_${index}`, 'one'));
    expect([refused('eff_0', 'one'), refused('eff_16', 'one')]).toEqual([true, true]);
    waiting.push(wait('eff_0', 'another'));
    first?.gone.abort();
    expect(await first?.left).toBe(false);
    expect([refused('eff_17', 'one'), refused('eff_18', 'one')]).toEqual([false, true]);
    watch.end();
    await Promise.all(waiting.map(({ left }) => left));
  });

  it('looks soon at first, and then twice a second', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const fence = { epoch: 1, n: 1, nonce: '' };
    const lease = { fence, owner: '', admittedAt: 0, dispatchBy: 0, leaseEnd: 0, quiesceUntil: 0 };
    let reads = 0;
    const watch = createEffectWatch(async () => {
      reads += 1;
      return { ...EFFECT, life: { state: 'executing', lease } };
    });
    const left = watch.left(['executing'], at('eff_1'), 'one', 600_000, new AbortController().signal);
    // At once, after 25 ms, and after twice as long each time, up to half a second.
    for (const [ms, sum] of [
      [0, 1],
      [25, 2],
      [50, 3],
      [100, 4],
      [200, 5],
      [400, 6],
      [10_000, 26],
    ] as const) {
      await vi.advanceTimersByTimeAsync(ms);
      expect(reads).toBe(sum);
    }
    watch.end();
    expect(await left).toBe(false);
  });

  it('goes on while the store cannot be read, and hears of the end when it can be', async () => {
    let reads = 0;
    const watch = createEffectWatch(() => {
      reads += 1;
      return reads < 3 ? Promise.reject(new Error('away')) : Promise.resolve(null);
    });
    const effect = { workspace: 'demo', effectId: 'eff_1' };
    expect(await watch.left(['executing'], effect, 'one', 600_000, new AbortController().signal)).toBe(true);
    expect(reads).toBe(3);
  });

  it('keeps nothing of callers that have gone: there is room for others', async () => {
    const { watch, refused, wait } = endless();
    const waiting = many((index) => wait(`eff_${index}`, `agent ${index % 4}`));
    for (const { gone } of waiting) gone.abort();
    // Nor of one that has gone before it began to wait.
    expect(watch.left(['pending_approval'], at('eff_0'), 'late', 600_000, AbortSignal.abort())).toBeNull();
    expect(many((index) => refused(`eff_${index}`, `agent ${index % 4}`))).not.toContain(true);
    expect(new Set(await Promise.all(waiting.map(({ left }) => left)))).toEqual(new Set([false]));
    watch.end();
  });
});
