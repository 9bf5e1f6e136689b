import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeApiKey, send } from './gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from './world.ts';

/* A budget and a rate that ask people where a call would go beyond them, at a real gateway. */

const BUDGET = 'budget:world/agent-day';
const run = promisify(execFile);

let world: World;
beforeAll(async () => {
  world = await startWorld({
    files: (url) => {
      const files = worldFiles(url);
      const world = files.policies['world.yaml'] ?? '';
      const asking = 'or_ask: { approvers: { users: [tom, olga] }, expires: 1h, summary: "Refund ${params.amount}" }';
      const policy = world
        .replace('limit: 100000 }', 'limit: 1000 }')
        .replace('use: agent-day, amount: params.amount }', `use: agent-day, amount: params.amount, ${asking} }`)
        .replace(
          '{ id: note, effect: allow, match: { tools: [notes.add] } }',
          '{ id: note, effect: allow, match: { tools: [notes.add] }, obligations: [ { rate_limit: { by: [agent.id], limit: 1, per: day, or_ask: { approvers: { users: [maria] } } } } ] }',
        )
        .replace(
          '  - { id: charge',
          `  - id: changed
    effect: constrain
    on_unknown: skip
    match: { tools: [payments.refund] }
    when: { params.reason: { eq: change } }
    approval: { approvers: { users: [maria] }, summary: "Change", editable: { amount: { min: 1, max: asked } } }
  - { id: charge`,
        );
      return { ...files, policies: { 'world.yaml': policy } };
    },
  });
});
afterAll(() => world.close());

const approve = (id: string, key: string, more: object = {}) => world.post(`/approvals/${id}/approve`, more, key);
const row = async () => {
  const { body } = await world.get('/budgets');
  const [first] = body.budgets;
  return { spent: first.spent, held: first.held, limit: first.limit };
};

it('asks about what a budget does not have left, and the approved call alone goes beyond it, on record', async () => {
  expect((await world.run(refund({ amount: 900 }))).body).toMatchObject({ decision: 'committed' });
  const call = refund({ amount: 300 });
  const preview = await world.post('/effects/preview', call, world.keys.bot);
  expect(preview.body).toMatchObject({ would: 'pending_approval', http_status: 202 });
  expect(preview.body.obligations).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ kind: 'budget', or_ask: true }),
      expect.objectContaining({ kind: 'approval', beyond: BUDGET }),
    ]),
  );
  const asked = await world.run(call);
  expect([asked.status, asked.body]).toMatchObject([
    202,
    {
      decision: 'pending_approval',
      reason: { code: 'approval_required', message: 'Beyond the limit of budget world/agent-day: Refund 300' },
    },
  ]);
  const { id } = asked.body.approval;
  expect((await world.run(call)).body).toMatchObject({ decision: 'pending_approval', approval: { id } });
  expect(await row()).toEqual({ spent: 900, held: 0, limit: 1000 });
  expect((await world.get(`/approvals/${id}`)).body).toMatchObject({
    requirements: [{ rule: 'world/refund-small', beyond: BUDGET }],
    costs: [{ amount: 300, limit: 1000, spent: 900, held: 0 }],
  });

  // The limit names the owner of the agent, too.
  const olga = await makeApiKey(world.gateway, 'olga', { kind: 'account', workspace: 'demo' });
  expect((await approve(id, olga)).body).toMatchObject({ code: 'own_request' });
  expect((await approve(id, world.keys.approver)).body).toMatchObject({ code: 'not_an_approver' });
  expect((await approve(id, world.keys.account)).body).toMatchObject({ became: { decision: 'committed' } });

  expect(await row()).toEqual({ spent: 1200, held: 0, limit: 1000 });
  const { effect, ledger } = (await world.get(`/effects/${asked.body.effect_id}`)).body;
  expect(effect.beyond).toEqual([{ limit: BUDGET, by: 200 }]);
  const dataOf = (kind: string) => ledger.find((one: { kind: string }) => one.kind === kind).data;
  expect(dataOf('approval.requested').beyond).toEqual([BUDGET]);
  expect(dataOf('effect.admitted')).toMatchObject({ approval_id: id, beyond: [{ limit: BUDGET, by: 200 }] });
  const { body: receipt } = await world.get(`/effects/${asked.body.effect_id}/receipt`);
  expect(receipt).toMatchObject({
    policy: { beyond: [{ by: 200, limit: BUDGET }] },
    approval: [{ by: 'tom', id }],
    budget: [{ posted: 300 }],
  });
  // Nobody else got more.
  expect((await world.run(refund({ amount: 1 }))).body).toMatchObject({ decision: 'pending_approval' });
  expect((await world.run(call)).body).toMatchObject({ decision: 'duplicate_blocked' });
});

it('asks about a call beyond a rate, through the proxy too, whose caller waits for the decision', async () => {
  const note = (key: string, prefer: Record<string, string> = {}) =>
    send(
      world.gateway.url,
      world.keys.otherBot,
      'POST',
      '/payments/v1/notes',
      { text: 'x' },
      {
        'idempotency-key': key,
        ...prefer,
      },
    );
  expect((await note(freshKey())).status).toBeLessThan(300);
  const key = freshKey();
  const asked = await note(key);
  expect([asked.status, asked.body.decision]).toEqual([202, 'pending_approval']);
  const answering = note(key, { prefer: 'wait=30' });
  expect((await approve(asked.body.approval.id, world.keys.approver)).body).toMatchObject({
    became: { decision: 'committed' },
  });
  expect((await answering).status).toBeLessThan(300);
  const { effect } = (await world.get(`/effects/${asked.body.effect_id}`)).body;
  expect(effect.beyond).toEqual([{ limit: 'rate:world/note', by: 1 }]);
  const rejected = await note(freshKey());
  await world.post(`/approvals/${rejected.body.approval.id}/reject`, {}, world.keys.approver);
  expect((await world.get(`/effects/${rejected.body.effect_id}`)).body.effect.state).toBe('rejected');
  // No rule asks about either, and they are found by who decided all the same.
  const decided = (await world.get('/effects?approver=maria')).body.effects;
  const ids = decided.map((one: { effect_id: string }) => one.effect_id);
  expect(ids).toEqual(expect.arrayContaining([asked.body.effect_id, rejected.body.effect_id]));
});

it('lets one approver change the call and another let it go beyond: what runs is what both have agreed to', async () => {
  const asked = await world.run(refund({ amount: 400, reason: 'change' }));
  const { id } = asked.body.approval;
  const shown = (await world.get(`/approvals/${id}`)).body;
  expect(shown.requirements).toMatchObject([{ rule: 'world/changed' }, { rule: 'world/refund-small', beyond: BUDGET }]);
  const { stdout } = await run(process.execPath, ['bin/svc.mjs', 'approvals', 'show', id, '--workspace', 'demo'], {
    env: { ...process.env, SVC_BASE_URL: world.gateway.url, SVC_API_KEY: world.keys.approver },
  });
  expect(stdout).toMatch(/^beyond +the limit of budget world\/agent-day$/m);
  expect(stdout).toMatch(/world\/changed +maria +0 of 1/);
  expect(stdout).toMatch(/^amount +€4\.00 \(400\)$/m);
  expect(stdout).toMatch(/^budget +amount +limit +spent +held\nworld\/agent-day +€4\.00( +€\d+\.\d\d){3}$/m);
  const changed = await approve(id, world.keys.approver, { digest: shown.digest, changes: { amount: 150 } });
  expect(changed.body).toMatchObject({ status: 'pending', became: { what: 'waiting' } });
  const now = (await world.get(`/approvals/${id}`)).body;
  expect(now.requirements[1].summary).toBe('Beyond the limit of budget world/agent-day: Refund 150');
  const before = await row();
  const last = await approve(id, world.keys.account, { digest: now.digest });
  expect(last.body).toMatchObject({ became: { decision: 'committed' } });
  expect(await row()).toEqual({ ...before, spent: before.spent + 150 });
  expect((await world.get(`/effects/${asked.body.effect_id}`)).body.effect).toMatchObject({
    beyond: [{ limit: BUDGET, by: 150 }],
    changed: { params: ['amount'] },
  });
});

it('tells agents which limits ask, and whom', async () => {
  const { body } = await send(
    world.gateway.url,
    world.keys.readonly,
    'POST',
    '/v1/mcp',
    {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'svc.tools.describe', arguments: { tool: 'payments.refund' } },
    },
    { accept: 'application/json, text/event-stream' },
  );
  expect(body.result.structuredContent.approvals).toEqual(
    expect.arrayContaining([
      { rule: 'world/refund-large', roles: ['finance-lead'], users: [], quorum: 1 },
      { rule: 'world/refund-small', roles: [], users: ['tom', 'olga'], quorum: 1, beyond: BUDGET },
    ]),
  );
});
