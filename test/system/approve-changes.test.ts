import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type RedisServer, startRedis } from '../redis/servers.ts';
import type { LedgerUpstream } from '../upstream/start.ts';
import { approverAt } from './approver.ts';
import { startFleet } from './fleet.ts';
import { type Answer, makeApiKey, send, type TestFiles, type TestGateway } from './gateway.ts';
import { refund, startWorld, worldFiles } from './world.ts';

/*
 * Approve with changes, on real gateways and both stores: what runs is what the approver saw, and nothing that was not
 * voted on runs. On Redis there are two gateways: one is asked, the other decides.
 */

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: two
owner: team-test
rules:
  - id: secret
    effect: require_approval
    match: { tools: [notes.secret] }
    approval: { approvers: { roles: [finance] }, quorum: 2, summary: "Note \${params.text}", editable: { text: { max_length: 12 } } }
  - id: unlucky
    effect: deny
    match: { tools: [payments.refund] }
    when: { params.amount: { eq: 66600 } }
    reason: Never this one
  - id: audited
    effect: require_approval
    match: { tools: [payments.refund] }
    when: { params.amount: { eq: 77700 } }
    approval: { approvers: { users: [ada] }, summary: "Audit \${params.amount}" }
`;

const files = (url: string): TestFiles => {
  const { config, policies } = worldFiles(url);
  const policy = (policies['world.yaml'] ?? '')
    .replace('limit: 100000 }', 'limit: 1000000 }')
    .replace(
      'summary: "Refund ${params.amount} cents of',
      'require_reason: true, editable: { amount: { min: 100, max: asked }, reason: { max_length: 30 }, currency: { one_of: [EUR, CHF] } }, summary: "Refund ${params.amount in params.currency} of',
    );
  return {
    config: config.replace(
      '{ id: tom, roles: [finance] }',
      '{ id: tom, roles: [finance] }, { id: ada, roles: [finance-lead] }',
    ),
    policies: { 'world.yaml': policy, 'two.yaml': POLICY },
  };
};

interface Site {
  readonly gateways: readonly TestGateway[];
  readonly upstream: LedgerUpstream;
  close(): Promise<void>;
}

const SITES: readonly (readonly [string, () => Promise<Site>])[] = [
  [
    'embedded',
    async () => {
      const world = await startWorld({ files });
      return { gateways: [world.gateway], upstream: world.upstream, close: () => world.close() };
    },
  ],
  [
    'Redis',
    async () => {
      const redis: RedisServer = await startRedis();
      const fleet = await startFleet({ gateways: 2, store: `url: "${redis.url}", max_freeze: 1s`, files });
      const close = async (): Promise<void> => {
        await fleet.close();
        await redis.stop();
      };
      return { gateways: fleet.gateways, upstream: fleet.upstream, close };
    },
  ],
];

describe.each(SITES)('approve with changes, %s', (_name, open) => {
  let site: Site;
  let keys: Record<'bot' | 'otherBot' | 'madeByAda' | 'tom' | 'maria' | 'ada' | 'readonly', string>;
  beforeAll(async () => {
    site = await open();
    const first = at(0);
    const demo = { workspace: 'demo' };
    const account = (user: string): Promise<string> => makeApiKey(first, user, { kind: 'account', ...demo });
    keys = {
      bot: await makeApiKey(first, 'olga', { kind: 'agent', agent_id: 'bot', ...demo }),
      otherBot: await makeApiKey(first, 'olga', { kind: 'agent', agent_id: 'other-bot', ...demo }),
      madeByAda: await makeApiKey(first, 'ada', { kind: 'agent', agent_id: 'bot', ...demo }),
      tom: await account('tom'),
      maria: await account('maria'),
      ada: await account('ada'),
      readonly: await makeApiKey(first, 'maria', { profile: 'mcp_readonly', ...demo }),
    };
  });
  afterAll(() => site?.close());

  const at = (index: number): TestGateway => {
    const gateway = site.gateways[index % site.gateways.length];
    if (gateway === undefined) throw new Error('there is no gateway');
    return gateway;
  };
  const WS = '/v1/workspaces/demo';
  const get = (path: string, key = keys.tom): Promise<Answer> => send(at(0).url, key, 'GET', WS + path);
  /** By the gateway that was not asked. */
  const vote = (id: string, body: unknown, key = keys.maria, verb = 'approve'): Promise<Answer> =>
    send(at(1).url, key, 'POST', `${WS}/approvals/${id}/${verb}`, body);
  const run = (body: unknown, key = keys.bot): Promise<Answer> => send(at(0).url, key, 'POST', `${WS}/effects`, body);

  /** A refund that waits. */
  async function waiting(params: Record<string, unknown> = {}) {
    const body = refund({ amount: 80_000, ...params });
    const { body: answer } = await run(body);
    if (answer.decision !== 'pending_approval') throw new Error(JSON.stringify(answer));
    const { id } = answer.approval;
    const { digest } = (await get(`/approvals/${id}`)).body;
    return { id, digest, effect: answer.effect_id, body, url: `${at(1).url}/approve/demo/${id}` };
  }
  const state = async (effect: string): Promise<string> => (await get(`/effects/${effect}`)).body.effect.state;
  /** What the upstream got for a payment. */
  const sent = async (body: Record<string, unknown>): Promise<readonly unknown[]> => {
    const { payment_id: payment } = body['params'] as { payment_id: string };
    const { requests } = await site.upstream.ledger();
    return requests.filter(({ path }) => path.includes(payment)).map((request) => request.body);
  };

  it('runs what the approver made of it; the agent is told, and the receipt holds both', async () => {
    const asked = await waiting();
    // What is set aside for it stands in the budget, and is its own to take.
    const { costs } = (await get(`/approvals/${asked.id}`)).body;
    const { budgets } = (await get('/budgets')).body;
    expect(costs).toMatchObject([{ amount: 80_000, held: budgets[0].held - 80_000 }]);
    const answer = await vote(asked.id, { digest: asked.digest, changes: { amount: 20_000 } });
    expect(answer.body).toMatchObject({
      became: { what: 'dispatched', decision: 'committed' },
      changed: { by: 'maria', params: ['amount'] },
      summary: expect.stringContaining('€200.00'),
    });
    expect(await sent(asked.body)).toEqual([{ amount: 20_000, currency: 'EUR' }]);
    const { effect } = (await get(`/effects/${asked.effect}`)).body;
    expect(effect).toMatchObject({
      state: 'committed',
      changed: { approval_id: asked.id, params: ['amount'] },
      params: { amount: 20_000 },
      asked_params: { amount: 80_000 },
      holds: [{ amount: 20_000 }],
    });
    // No rule asks about what it was changed to; who approved it is on record all the same.
    const { effects } = (await get('/effects?approver=maria')).body;
    expect(effects.map(({ id }: { readonly id: string }) => id)).toContain(asked.effect);
    // The agent's own repeat gets the result, with the same key and the params that it asked.
    const again = await run(asked.body);
    expect(again.body).toMatchObject({
      decision: 'duplicate_blocked',
      changed: { params: ['amount'] },
      reason: { message: expect.stringContaining('An approver changed amount before it ran') },
      result: expect.anything(),
    });
    const opened = (await get(`/effects/${asked.effect}/receipt?disclosure=1`)).body;
    expect(opened.disclosure.values).toMatchObject({ params: { amount: 20_000 }, asked_params: { amount: 80_000 } });
    expect(opened.receipt.action.asked).toMatch(/^sc1:/);
    expect(opened.receipt.approval[0].params).toBe(opened.receipt.action.params);
    expect(opened.receipt.budget).toMatchObject([{ posted: 20_000 }]);
    expect(await sent(asked.body)).toHaveLength(1);
  });

  it('answers a caller that prefers to wait with what the approver made of it, also from another gateway', async () => {
    const payment = `pay_waits_${_name}`;
    const body = refund({ amount: 80_000, payment_id: payment });
    const answering = send(at(0).url, keys.bot, 'POST', `${WS}/effects`, body, { prefer: 'wait=30' });
    const asked = await vi.waitFor(
      async () => {
        const { approvals } = (await get('/approvals?status=pending')).body;
        const found = approvals.find(({ target }: { target: string }) => target === `payment:${payment}`);
        if (found === undefined) throw new Error('it has not asked yet');
        return found;
      },
      { timeout: 20_000, interval: 50 },
    );
    await vote(asked.id, { digest: (await get(`/approvals/${asked.id}`)).body.digest, changes: { amount: 20_000 } });
    const { status, headers, body: answer } = await answering;
    expect([status, headers.get('preference-applied')]).toEqual([200, 'wait=30']);
    expect(answer).toMatchObject({ decision: 'committed', changed: { params: ['amount'] }, result: expect.anything() });
    expect(await sent(body)).toEqual([{ amount: 20_000, currency: 'EUR' }]);
  });

  it('an edit beyond its bounds, or of what is not named, is refused with a sentence, and nothing is decided', async () => {
    const asked = await waiting();
    for (const [changes, message] of [
      [{ amount: 99 }, /amount.* no less than 100/],
      [{ amount: 80_001 }, /amount.* no more than 80000, which was asked/],
      [{ amount: '20000' }, /amount.*has to be a number/],
      [{ currency: 'USD' }, /currency.* one of EUR, CHF/],
      [{ reason: 'x'.repeat(31) }, /reason.* no more than 30 characters/],
      [{ payment_id: 'pay_of_others' }, /payment_id.*is not named by the policy/],
      [{ constructor: 1 }, /constructor.*is not named by the policy/],
      [{ amount: 150.5 }, /amount/],
    ] as const) {
      const { status, body } = await vote(asked.id, { digest: asked.digest, changes });
      expect([status, body.code], JSON.stringify(body)).toEqual([400, 'invalid_request']);
      expect(JSON.stringify(body.errors)).toMatch(message);
    }
    const nested = await vote(asked.id, { digest: asked.digest, changes: { amount: { gt: 1 } } });
    expect(nested.status).toBe(400);
    const rejecting = await vote(asked.id, { comment: 'no', changes: { amount: 200 } }, keys.maria, 'reject');
    expect(rejecting.status).toBe(400);
    expect((await get(`/approvals/${asked.id}`)).body).toMatchObject({
      status: 'pending',
      votes: [],
      digest: asked.digest,
    });
    expect(await sent(asked.body)).toEqual([]);
  });

  it('makes no call that policy refuses, and none that others would have to agree to', async () => {
    const asked = await waiting();
    for (const [changes, message] of [
      [{ amount: 66_600 }, /The policy refuses the changed call: Never this one/],
      [{ currency: 'CHF' }, /The policy refuses the changed call: Only EUR and USD/],
      [{ amount: 77_700 }, /two\/audited asks people who were not asked/],
    ] as const) {
      const { status, body } = await vote(asked.id, { digest: asked.digest, changes });
      expect([status, body.code]).toEqual([409, 'change_refused']);
      expect(body.detail).toMatch(message);
    }
    expect(await state(asked.effect)).toBe('pending_approval');
  });

  it('is by the people whom policy names, and no others', async () => {
    const asked = await waiting();
    const change = { digest: asked.digest, changes: { amount: 20_000 } };
    for (const [key, status] of [
      [keys.tom, 403],
      [keys.bot, 403],
      [keys.otherBot, 403],
      [keys.readonly, 403],
    ] as const)
      expect((await vote(asked.id, change, key)).status).toBe(status);
    expect((await get(`/approvals/${asked.id}`)).body).toMatchObject({ status: 'pending', votes: [] });
  });

  it('is no way for who asked, although an approver: what is within its bounds is not told either', async () => {
    const { body } = await run(refund({ amount: 80_000 }), keys.madeByAda);
    const { id } = body.approval;
    const { digest } = (await get(`/approvals/${id}`)).body;
    for (const amount of [99, 66_600, 20_000]) {
      const answer = await vote(id, { digest, changes: { amount } }, keys.ada);
      expect([answer.status, answer.body.code]).toEqual([403, 'own_request']);
    }
    expect((await get(`/approvals/${id}`)).body).toMatchObject({ status: 'pending', votes: [], digest });
  });

  it('voids earlier votes: who votes next votes on the change, with its digest; replays and the older question count for nothing', async () => {
    const key = `two-${_name}`;
    const body = { tool: 'notes.secret', params: { text: 'as asked' }, idempotency_key: key };
    const { id } = (await run(body)).body.approval;
    const first = (await get(`/approvals/${id}`)).body.digest;
    expect((await vote(id, { digest: first }, keys.tom)).body).toMatchObject({ became: { what: 'waiting' } });
    const change = { digest: first, changes: { text: 'as changed' } };
    expect((await vote(id, change, keys.maria)).body).toMatchObject({ became: { what: 'waiting' }, approvals: 1 });
    const changed = (await get(`/approvals/${id}`)).body;
    expect(changed).toMatchObject({
      votes: [{ user: 'maria' }],
      changed: { by: 'maria', params: ['text'] },
      params: { text: 'as changed' },
      asked_params: { text: 'as asked' },
      summary: 'Note "as changed"',
    });
    // The older digest, the same change again, and a vote that does not say what it is for.
    for (const [replay, who] of [
      [{ digest: first }, keys.tom],
      [change, keys.maria],
      [change, keys.ada],
      [{}, keys.tom],
      [{ digest: first }, keys.ada],
    ] as const)
      expect((await vote(id, replay, who)).body.code).toBe('conflict');
    expect((await get(`/approvals/${id}`)).body).toEqual(changed);
    // The agent that asks again joins it, and does not bring back what it asked.
    expect((await run(body)).body).toMatchObject({ decision: 'pending_approval', approval: { id } });
    expect((await get(`/approvals/${id}`)).body.digest).toBe(changed.digest);
    expect((await vote(id, { digest: changed.digest }, keys.maria)).body.voted_already).toBe(true);
    expect((await vote(id, { digest: changed.digest }, keys.tom)).body).toMatchObject({
      became: { what: 'dispatched', decision: 'committed' },
    });
    const { requests } = await site.upstream.ledger();
    expect(requests.filter(({ path }) => path.includes('secrets')).map((one) => one.body)).toEqual([
      { text: 'as changed' },
    ]);
    expect((await vote(id, { digest: changed.digest }, keys.ada)).status).toBe(409);
  });

  it('on the page: what stands in the fields is what is approved; the form of before a change decides nothing', async () => {
    const asked = await waiting({ reason: 'late' });
    const { pathname } = new URL(asked.url);
    const maria = await approverAt(at(1).url, asked.url, keys.maria);
    const seen = await maria.look(pathname);
    expect(seen.text).toMatch(/name="money\.EUR\.amount" inputmode="decimal" value="800\.00"/);
    expect(seen.text).toContain('Why you reject: needed for that');
    const fields = {
      form: seen.form,
      verdict: 'approve',
      'money.EUR.amount': '800.00',
      'param.reason': 'late',
    };
    for (const [more, message] of [
      [{ 'money.EUR.amount': '900' }, /amount may be .*€800\.00; €900\.00 is not/],
      [{ 'money.EUR.amount': '9007199254740993' }, /amount has to be an amount such as 1234\.56/],
      [{ 'money.EUR.amount': 'all' }, /amount has to be an amount/],
      [{ 'money.EUR.amount': '666' }, /policy refuses the changed call/],
      // The amount stands in it, so it has no field.
      [{ 'param.currency': '1' }, /another shape/],
      [{ verdict: 'reject' }, /rejection to say why[^]*id="comment-fault">Say here why you reject/],
    ] as const) {
      const refused = await maria.send(pathname, { ...fields, ...more });
      expect(refused.status).toBeGreaterThanOrEqual(400);
      expect(refused.text).toMatch(message);
    }
    expect((await maria.send(pathname, { ...fields, 'param.payment_id': 'x' })).status).toBe(400);
    const ada = await approverAt(at(0).url, asked.url, keys.ada);
    const older = await ada.look(pathname);
    expect(await maria.send(pathname, { ...fields, 'money.EUR.amount': '300' })).toMatchObject({ status: 303 });
    expect((await maria.look(pathname)).text).toMatch(
      /maria changed amount[\s\S]*<td>€800\.00<\/td><td>€300\.00<\/td>/,
    );
    expect((await ada.send(pathname, { ...fields, form: older.form })).status).toBe(409);
    expect(await sent(asked.body)).toEqual([{ amount: 30_000, currency: 'EUR', reason: 'late' }]);
  });

  /** The policies with a text in the place of another, in force at every gateway. */
  const rewritten = (name: string, from: string, to: string): Promise<unknown> =>
    Promise.all(
      site.gateways.map(async ({ policyFolder, url }) => {
        const file = join(policyFolder, name);
        const version = async (): Promise<unknown> => (await send(url, keys.tom, 'GET', `${WS}/policies`)).body.version;
        const before = await version();
        await writeFile(file, (await readFile(file, 'utf8')).replace(from, to));
        await vi.waitFor(async () => expect(await version()).not.toBe(before), { timeout: 30_000, interval: 50 });
      }),
    );

  it('a rejection says why where the policy wants it, and the agent hears it', async () => {
    const asked = await waiting();
    expect((await vote(asked.id, {}, keys.maria, 'reject')).body).toMatchObject({ code: 'reason_required' });
    expect((await vote(asked.id, { comment: ' ' }, keys.maria, 'reject')).body).toMatchObject({
      code: 'reason_required',
    });
    expect(await state(asked.effect)).toBe('pending_approval');
    await vote(asked.id, { comment: 'Ask the customer first' }, keys.maria, 'reject');
    expect((await run(asked.body)).body.reason.message).toContain('Ask the customer first');
  });

  it('is refused where the policy changed before it: the page says so before, and nothing is sent until people see what is asked now', async () => {
    const asked = await waiting();
    const path = `/approve/demo/${asked.id}`;
    const maria = await approverAt(at(1).url, asked.url, keys.maria);
    const before = await maria.look(path);
    expect(before.text).not.toContain('If you approve, nothing is sent');
    await rewritten('world.yaml', 'summary: "Refund ', 'summary: "Really refund ');
    const refused = await vote(asked.id, { digest: asked.digest, changes: { amount: 20_000 } });
    expect(refused.body).toMatchObject({
      code: 'change_refused',
      detail: expect.stringMatching(
        /Nothing was decided\. Approve it as it stands: nothing is sent by that, and people/,
      ),
    });
    // By a form of before that change, too; what is shown then has no field, and says what an approval does.
    const form = { form: before.form, verdict: 'approve', 'money.EUR.amount': '200.00' };
    const again = await maria.send(path, form);
    expect([again.status, again.text.includes('Approve it as it stands: nothing is sent')]).toEqual([409, true]);
    expect(again.text).toMatch(
      /If you approve, nothing is sent, and people are asked anew[\s\S]*>Approve €800\.00 refund</,
    );
    expect(again.text).not.toContain('name="money.EUR.amount"');
    const voted = await maria.send(path, { form: again.form, verdict: 'approve' });
    expect(voted.location).toMatch(new RegExp(`\\?instead_of=${asked.id}$`));
    const { text } = await maria.look(voted.location ?? '');
    expect(text).toMatch(/What would run now is not what you approved, so nothing was sent\.[\s\S]*<td>Really refund/);
    // A key that may not call the tool reads of neither request what a rule made of its params.
    const key = await makeApiKey(at(0), 'maria', {
      kind: 'account',
      workspace: 'demo',
      allowed_tools: ['notes.secret'],
    });
    const limited = await (await approverAt(at(1).url, asked.url, key)).look(voted.location ?? '');
    expect(limited.text).toMatch(/People are asked anew[\s\S]*\(not shown: it is made of params/);
    expect(limited.text).not.toMatch(/(Really r|R)efund €/);
    expect([await state(asked.effect), await sent(asked.body)]).toEqual(['pending_approval', []]);
    const { ledger, effect } = (await get(`/effects/${asked.effect}`)).body;
    const told = ledger.filter(({ kind }: { kind: string }) => /^approval\.(granted|renewed)$/.test(kind));
    expect(told).toMatchObject([{ data: { complete: true, void: true } }, { data: { instead_of: asked.id } }]);
    const { digest } = (await get(`/approvals/${effect.approval_id}`)).body;
    await vote(effect.approval_id, { digest, changes: { amount: 20_000 } });
    expect(await sent(asked.body)).toMatchObject([{ amount: 20_000 }]);
  });

  it('ends where the policy changes before the last vote, and the agent may ask anew', async () => {
    const { id } = (await run({ tool: 'notes.secret', params: { text: 'then' }, idempotency_key: `later-${_name}` }))
      .body.approval;
    const { digest } = (await get(`/approvals/${id}`)).body;
    await vote(id, { digest, changes: { text: 'now' } }, keys.maria);
    const changed = (await get(`/approvals/${id}`)).body;
    await rewritten('two.yaml', 'max_length: 12', 'max_length: 2');
    expect((await vote(id, { digest: changed.digest }, keys.tom)).body).toMatchObject({
      became: { what: 'ended', message: expect.stringContaining('no longer as it was') },
    });
    const again = await run({ tool: 'notes.secret', params: { text: 'then' }, idempotency_key: `later-${_name}` });
    expect(again.body).toMatchObject({ decision: 'pending_approval' });
    expect((await get(`/approvals/${again.body.approval.id}`)).body.params).toEqual({ text: 'then' });
  });
});
