import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { RunRequest } from '../../src/effects/model/run-request.ts';
import { verifyReport } from '../../src/receipts/verify-report.ts';
import { type Rig, refund, startRig } from './rig.ts';

const EFFECTS = '/v1/workspaces/demo/effects';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

describe('run', () => {
  it('commits, and answers a repeat with the same receipt', async () => {
    const body = refund();
    const first = await rig.send('POST', EFFECTS, { body });
    expect(first.json).toMatchObject({ decision: 'committed', agent_id: 'bot', did_it_happen: 'yes' });
    expect(first.status).toBe(200);
    expect(first.headers['svc-effect-id']).toBe(first.json['effect_id']);
    const again = await rig.send('POST', EFFECTS, { body });
    expect(again.status).toBe(409);
    expect(again.headers['x-should-retry']).toBe('false');
    expect(again.json).toMatchObject({ decision: 'duplicate_blocked', effect_id: first.json['effect_id'] });
    expect(again.json['receipt']).toEqual(first.json['receipt']);
  });

  it('takes the key from the header too, quoted or not, and refuses two that disagree', async () => {
    const { idempotency_key: key, ...body } = refund();
    const first = await rig.send('POST', EFFECTS, { body, headers: { 'idempotency-key': String(key) } });
    expect(first.json['decision']).toBe('committed');
    const again = await rig.send('POST', EFFECTS, { body, headers: { 'idempotency-key': `"${String(key)}"` } });
    expect(again.json['decision']).toBe('duplicate_blocked');
    const both = await rig.send('POST', EFFECTS, {
      body: { ...body, idempotency_key: 'another' },
      headers: { 'idempotency-key': String(key) },
    });
    expect(both.status).toBe(400);
    expect(both.json['errors']).toEqual([expect.objectContaining({ path: '/idempotency_key' })]);
  });

  it('asks for an idempotency key by a code of its own', async () => {
    const { idempotency_key: _, ...body } = refund();
    const answer = await rig.send('POST', EFFECTS, { body });
    expect(answer.status).toBe(400);
    expect(answer.json).toMatchObject({ code: 'idempotency_key_required', did_it_happen: 'no' });
  });

  it('lists every fault at once, names unknown fields and what was probably meant', async () => {
    const answer = await rig.send('POST', EFFECTS, {
      body: {
        agentid: 'bot',
        tool: '',
        params: [],
        idempotency_key: 'has space',
        state_check: { intent: 1, on_mismatch: 'stop' },
      },
    });
    expect(answer.status).toBe(400);
    const errors = answer.json['errors'] as unknown as { path: string; message: string }[];
    expect(errors.map(({ path }) => path).toSorted()).toEqual([
      '/agentid',
      '/idempotency_key',
      '/params',
      '/state_check/assumed_state',
      '/state_check/conditions',
      '/state_check/intent',
      '/state_check/on_mismatch',
      '/state_check/required_fields',
      '/tool',
    ]);
    expect(errors.find(({ path }) => path === '/agentid')?.message).toContain("did you mean 'agent_id'");
  });

  it('refuses metadata over 4 KiB and conditions with unknown operators', async () => {
    const answer = await rig.send('POST', EFFECTS, {
      body: refund({
        metadata: { note: 'x'.repeat(5000) },
        state_check: {
          intent: 'i',
          required_fields: [],
          assumed_state: {},
          conditions: { amount: { $near: 1 } },
          on_mismatch: 'replan',
        },
      }),
    });
    expect(answer.status).toBe(400);
    const errors = answer.json['errors'] as unknown as { path: string }[];
    expect(errors.map(({ path }) => path)).toEqual(['/state_check/conditions/amount/$near', '/metadata']);
  });

  it('takes metadata of 4,096 bytes, however few characters they are, and no more', async () => {
    const note = 'é'.repeat((4_096 - '{"note":""}'.length - 1) / 2);
    const status = async (more: string): Promise<number> =>
      (await rig.send('POST', EFFECTS, { body: refund({ metadata: { note: note + more } }) })).status;
    expect([await status('x'), await status('xx')]).toEqual([200, 400]);
  });

  it('takes no more than 1,000 required fields in a check of the state', async () => {
    const refused = async (count: number): Promise<boolean> => {
      const required_fields = Array.from({ length: count }, (_, index) => `f${index}`);
      const check = { intent: 'i', required_fields, assumed_state: {}, conditions: {}, on_mismatch: 'block' };
      const { json } = await rig.send('POST', EFFECTS, { body: refund({ state_check: check }) });
      return JSON.stringify(json['errors'] ?? []).includes('/state_check/required_fields');
    };
    expect([await refused(1_000), await refused(1_001)]).toEqual([false, true]);
  });

  it('refuses a check of the state where the tool declares no request that reads it', async () => {
    const check = { intent: 'i', required_fields: [], assumed_state: {}, conditions: {}, on_mismatch: 'block' };
    const answer = await rig.send('POST', EFFECTS, {
      body: refund({ tool: 'notes.add', params: { text: 'a' }, state_check: check }),
    });
    expect(answer.status).toBe(400);
    expect(answer.json['errors']).toMatchObject([{ path: '/state_check' }]);
  });

  it.each(['replan', 'block'])(
    'stops at a live state that is another one, and says to %s as the check does',
    async (next) => {
      const conditions = { amount: { $eq: -1 } };
      const check = { intent: 'i', required_fields: [], assumed_state: {}, conditions, on_mismatch: next };
      const { json } = await rig.send('POST', EFFECTS, { body: refund({ state_check: check }) });
      expect(json).toMatchObject({ did_it_happen: 'no', next, mismatches: [{ field: 'amount' }] });
    },
  );

  it('puts who asked, from where and for whom into the headers that an upstream is to get', async () => {
    const names = ['agent_id', 'client_ip', 'host', 'proto', 'request_id'];
    const set = Object.fromEntries(names.map((name) => [`x-${name.replace('_', '-')}`, `{${name}}`]));
    const headers = { forward: [], drop: [], volatile: [], set };
    const upstream = vi.spyOn(rig.ports, 'upstream').mockReturnValue({ credentials: null, headers });
    const asked: RunRequest[] = [];
    const { run } = rig.ports;
    const running = vi.spyOn(rig.ports, 'run').mockImplementation(async (request) => {
      asked.push(request);
      return run(request);
    });
    await rig.send('POST', EFFECTS, { body: refund() });
    // The key says it as well as the body.
    await rig.send('POST', EFFECTS, { key: rig.keys.agent, body: refund({ agent_id: undefined }) });
    upstream.mockRestore();
    running.mockRestore();
    const [request, byKey] = asked;
    expect(byKey?.headers.sent).toHaveProperty('x-agent-id', 'bot');
    expect(request?.requestIp).toBe('127.0.0.1');
    expect(request?.headers.sent).toMatchObject({
      'x-agent-id': 'bot',
      'x-client-ip': '127.0.0.1',
      'x-host': '127.0.0.1:8080',
      'x-proto': 'http',
      'x-request-id': expect.stringMatching(/^req_/),
    });
  });

  it('keeps no key that a caller has put where it does not belong', async () => {
    const key = rig.keys.account;
    const params = { payment_id: 'pay_1', amount: 1, currency: 'EUR', reason: `asked with ${key}` };
    for (const [call, paths] of [
      [
        refund({ idempotency_key: key, metadata: { sent: { with: key } } }),
        ['/idempotency_key', '/metadata/sent/with'],
      ],
      [refund({ params }), ['/params']],
    ] as const) {
      const answer = await rig.send('POST', EFFECTS, { body: call });
      expect(answer.status).toBe(400);
      const errors = answer.json['errors'] as unknown as { path: string }[];
      expect(errors.map(({ path }) => path)).toEqual(paths);
      expect(answer.text).not.toContain(key);
    }
    expect((await rig.send('POST', EFFECTS, { body: refund({ metadata: { by: 'key_0Q6661S01GES' } }) })).status).toBe(
      200,
    );
  });

  it.each([
    ['an administrative key', 'admin', 'wrong_key_kind'],
    ['a read-only profile', 'readonly', 'insufficient_scope'],
    ['a key of another workspace', 'stranger', 'wrong_workspace'],
    ['a key that may not call the tool', 'restricted', 'tool_not_allowed'],
  ] as const)('makes a decision of %s', async (_what, key, code) => {
    const answer = await rig.send('POST', EFFECTS, { key: rig.keys[key], body: refund() });
    expect(answer.status).toBe(403);
    expect(answer.json).toMatchObject({ decision: 'denied_permission', reason: { code }, did_it_happen: 'no' });
    expect(answer.headers['x-should-retry']).toBe('false');
  });

  it.each([
    ['bad fields', { body: { tool: 7 } }],
    ['bad JSON', { raw: '{"tool":' }],
    ['another content type', { raw: 'a=b', headers: { 'content-type': 'text/plain' } }],
    ['too much', { raw: JSON.stringify({ pad: 'x'.repeat(300_000) }) }],
  ])('judges permission before the body: %s', async (_what, options) => {
    const answer = await rig.send('POST', EFFECTS, { key: rig.keys.admin, ...options });
    expect(answer.status).toBe(403);
    expect(answer.json).toMatchObject({ decision: 'denied_permission', reason: { code: 'wrong_key_kind' } });
    // Nobody could read what it was, so nothing came of it, and nothing is recorded.
    expect(answer.json).toMatchObject({ did_it_happen: 'no', safe_to_retry: true, next: 'block' });
    expect(answer.json['links']).toEqual({ docs: 'http://127.0.0.1:8080/docs/errors/wrong_key_kind' });
    expect(answer.json).not.toHaveProperty('effect_id');
    expect([answer.headers['svc-decision'], answer.headers['x-should-retry']]).toEqual(['denied_permission', 'false']);
    expect(answer.headers).toMatchObject({ 'svc-decision': 'denied_permission', 'x-should-retry': 'false' });
  });

  it('repeats of a call that it could not read the names that are texts, and none that goes on for ever', async () => {
    const body = { tool: 'x'.repeat(1_025), target: 'payment:pay_1', agent_id: 7, idempotency_key: 'k', odd: true };
    const { json } = await rig.send('POST', EFFECTS, { key: rig.keys.admin, body });
    expect(json).toMatchObject({ decision: 'denied_permission', target: 'payment:pay_1', idempotency_key: 'k' });
    for (const name of ['tool', 'agent_id', 'effect_id', 'odd']) expect(json).not.toHaveProperty(name);
  });

  it('takes a key of 255 visible characters, and none that is longer or has others, in body and header', async () => {
    const { idempotency_key: _, ...body } = refund();
    const long = 'k'.repeat(255);
    expect((await rig.send('POST', EFFECTS, { body: { ...body, idempotency_key: long } })).status).toBe(200);
    for (const key of [`${long}k`, 'é', 'a b', '']) {
      const inBody = await rig.send('POST', EFFECTS, { body: { ...body, idempotency_key: key } });
      expect([inBody.status, inBody.json['errors']]).toMatchObject([400, [{ path: '/idempotency_key' }]]);
    }
    const inHeader = await rig.send('POST', EFFECTS, { body, headers: { 'idempotency-key': `${long}k` } });
    expect([inHeader.status, inHeader.json['errors']]).toMatchObject([400, [{ path: '/headers/idempotency-key' }]]);
  });

  it.each([
    ['the type of the body, which the gateway writes', { 'Content-Type': 'text/plain' }, '/headers/Content-Type'],
    ['spaces around a value', { 'x-note': ' a' }, '/headers/x-note'],
    ['a line end in a value', { 'x-note': 'a\r\nb' }, '/headers/x-note'],
    ['what belongs to the connection', { Connection: 'close' }, '/headers/Connection'],
    ['a key of its own for the upstream', { authorization: 'Bearer x' }, '/headers/authorization'],
    ['what it claims of itself', { 'x-forwarded-for': '192.0.2.1' }, '/headers/x-forwarded-for'],
    ['what servers read in two ways', { x_note: 'a' }, '/headers/x_note'],
  ])('refuses among the headers for the upstream %s', async (_what, headers, path) => {
    const answer = await rig.send('POST', EFFECTS, { body: refund({ headers }) });
    expect([answer.status, answer.json['errors']]).toMatchObject([400, [{ path }]]);
  });

  it.each([
    ['no agent named', { agent_id: undefined }, 400, { code: 'invalid_request' }],
    ['an unknown agent', { agent_id: 'nobody' }, 403, { decision: 'denied_identity' }],
    ['a disabled agent', { agent_id: 'retired' }, 403, { decision: 'denied_identity' }],
    ['a target that the params do not name', { target: 'payment:pay_2' }, 400, { code: 'target_mismatch' }],
    ['params that do not fit', { params: { payment_id: 'pay_1' } }, 400, { code: 'invalid_request' }],
    ['an undeclared tool', { tool: 'payments.steal' }, 403, { decision: 'denied_policy' }],
    [
      'a tool that no rule allows',
      { tool: 'deploy.start', params: { service: 'a' } },
      403,
      { decision: 'denied_policy' },
    ],
  ])('%s', async (_what, change, status, shape) => {
    const answer = await rig.send('POST', EFFECTS, { body: refund(change) });
    expect(answer.json).toMatchObject(shape);
    expect(answer.status).toBe(status);
  });

  it('takes the two common action types and none but the tool’s own beside them', async () => {
    for (const action_type of ['mcp.tool_call', 'http.request'])
      expect((await rig.send('POST', EFFECTS, { body: refund({ action_type }) })).json['decision']).toBe('committed');
    const answer = await rig.send('POST', EFFECTS, { body: refund({ action_type: 'payment' }) });
    expect([answer.status, answer.json['errors']]).toMatchObject([400, [{ path: '/action_type' }]]);
  });

  it('takes the name of the tool for a target, and acts on the one that the params name', async () => {
    const answer = await rig.send('POST', EFFECTS, { body: refund({ target: 'payments.refund' }) });
    expect(answer.json).toMatchObject({ decision: 'committed', target: 'payment:pay_1' });
  });

  it('takes a target of 1,024 characters and no more', async () => {
    const refused = async (length: number): Promise<boolean> => {
      const { json } = await rig.send('POST', EFFECTS, { body: refund({ target: 'x'.repeat(length) }) });
      return JSON.stringify(json['errors'] ?? []).includes('1024');
    };
    expect([await refused(1_024), await refused(1_025)]).toEqual([false, true]);
  });

  it('waits for a running twin where the caller prefers to', async () => {
    const body = refund();
    const headers = { prefer: 'respond-async, wait=5' };
    // Which of the two is first is not known: they are authenticated beside each other.
    const answers = await Promise.all([0, 1].map(() => rig.send('POST', EFFECTS, { body, headers })));
    expect(answers.map(({ json }) => String(json['decision'])).toSorted()).toEqual(['committed', 'duplicate_blocked']);
  });
});

describe('preview', () => {
  it('says what the call would get and writes nothing', async () => {
    const body = refund();
    const preview = await rig.send('POST', `${EFFECTS}/preview`, { body });
    expect(preview.status).toBe(200);
    expect(preview.json).toMatchObject({
      would: 'committed',
      http_status: 200,
      policies: [{ rule: 'rig/refund', effect: 'allow' }],
    });
    expect((await rig.send('POST', EFFECTS, { body })).json['decision']).toBe('committed');
    const { json } = await rig.send('POST', `${EFFECTS}/preview`, { body });
    expect(json).toMatchObject({ would: 'duplicate_blocked', http_status: 409 });
  });

  it('lists the rules that matched, also where one of them denies it', async () => {
    await rig.send('POST', '/v1/workspaces/demo/agents', { body: { id: 'barred' } });
    const { json } = await rig.send('POST', `${EFFECTS}/preview`, { body: refund({ agent_id: 'barred' }) });
    expect(json).toMatchObject({ would: 'denied_policy' });
    expect(json['policies']).toContainEqual({ rule: 'rig/barred', effect: 'deny', unknown: [] });
  });

  it('needs no idempotency key', async () => {
    const { idempotency_key: _, ...body } = refund();
    expect((await rig.send('POST', `${EFFECTS}/preview`, { body })).json['would']).toBe('committed');
  });

  it('tells an agent the figures of its own budgets, and of those that it shares a level', async () => {
    for (const key of [rig.keys.agent, rig.keys.runner]) {
      const { json } = await rig.send('POST', `${EFFECTS}/preview`, { key, body: refund() });
      const budgets = json['budgets'] as unknown as Record<string, unknown>[];
      expect(budgets.find(({ budget }) => budget === 'rig/agent-day')).toMatchObject({ limit: 100_000 });
      const shared = budgets.find(({ budget }) => budget === 'rig/team-day');
      expect(shared).toMatchObject({ level: 'ok' });
      expect(shared).not.toHaveProperty('limit');
    }
    const { json } = await rig.send('POST', `${EFFECTS}/preview`, { body: refund() });
    for (const budget of json['budgets'] as unknown as object[]) expect(budget).toHaveProperty('limit');
  });

  it('is a problem for a key that may not preview', async () => {
    const answer = await rig.send('POST', `${EFFECTS}/preview`, { key: rig.keys.readonly, body: refund() });
    expect(answer.status).toBe(403);
    expect(answer.json['code']).toBe('insufficient_scope');
    expect(answer.headers['content-type']).toContain('application/problem+json');
  });
});

describe('reading effects', () => {
  it('shows the effect, its ledger, its receipt and its stages', async () => {
    const run = await rig.send('POST', EFFECTS, { body: refund({ metadata: { ticket: 7 } }) });
    const id = String(run.json['effect_id']);
    const { json } = await rig.send('GET', `${EFFECTS}/${id}`);
    expect(json['effect']).toMatchObject({
      id,
      effect_id: id,
      state: 'committed',
      decision: 'committed',
      metadata: { ticket: 7 },
      receipt: run.json['receipt'],
    });
    const ledger = json['ledger'] as unknown as { kind: string; seq: number; effect_id: string }[];
    expect(ledger.map(({ kind }) => kind)).toContain('receipt.issued');
    expect(ledger.map(({ seq }) => seq)).toEqual(ledger.map(({ seq }) => seq).toSorted((a, b) => a - b));
    const receipt = await rig.send('GET', `${EFFECTS}/${id}/receipt`);
    expect(receipt.json).toEqual(run.json['receipt']);
    const bare = await rig.send('GET', `${EFFECTS}/${id}/receipt`, { headers: { accept: 'application/jose' } });
    expect(bare.headers['content-type']).toContain('application/jose');
    expect(bare.text).toBe(receipt.json['jws']);
    const either = { accept: 'text/plain;q=0.5, Application/JOSE' };
    expect((await rig.send('GET', `${EFFECTS}/${id}/receipt`, { headers: either })).text).toBe(bare.text);
    const stages = (await rig.send('GET', `${EFFECTS}/${id}/run`)).json['stages'] as unknown as { stage: string }[];
    expect(stages.map(({ stage }) => stage)).toEqual([
      'authenticate',
      'permission',
      'identity',
      'validate',
      'policy',
      'admission',
      'execute',
      'receipt',
      'settle',
    ]);
  });

  it('hides the effects of other agents and workspaces as if there were none', async () => {
    const run = await rig.send('POST', EFFECTS, { body: refund() });
    const id = String(run.json['effect_id']);
    for (const path of [`${EFFECTS}/${id}`, `${EFFECTS}/${id}/receipt`, `${EFFECTS}/${id}/run`]) {
      expect((await rig.send('GET', path, { key: rig.keys.agent })).status).toBe(200);
      const other = await rig.send('GET', path, { key: rig.keys.otherAgent });
      expect([other.status, other.json['code']]).toEqual([404, 'not_found']);
    }
    const probed = await rig.send('POST', `${EFFECTS}/${id}/probe`, { key: rig.keys.otherAgent });
    expect([probed.status, probed.json['code']]).toEqual([404, 'not_found']);
    const abroad = await rig.send('GET', `/v1/workspaces/elsewhere/effects/${id}`, { key: rig.keys.stranger });
    expect(abroad.status).toBe(404);
    const mine = await rig.send('GET', EFFECTS, { key: rig.keys.otherAgent });
    expect(mine.json['effects']).toEqual([]);
    const asked = await rig.send('GET', `${EFFECTS}?agent_id=bot`, { key: rig.keys.otherAgent });
    expect(asked.json).toEqual({ effects: [], next_cursor: null });
  });

  it('has no receipt for what was refused, and says so', async () => {
    const run = await rig.send('POST', EFFECTS, { body: refund({ tool: 'deploy.start', params: { service: 'a' } }) });
    const answer = await rig.send('GET', `${EFFECTS}/${String(run.json['effect_id'])}/receipt`);
    expect([answer.status, answer.json['code']]).toEqual([404, 'receipt_not_issued']);
    expect((await rig.send('GET', `${EFFECTS}/eff_nothing/receipt`)).json['code']).toBe('not_found');
  });

  it('pages through a list and filters it', async () => {
    for (let index = 0; index < 3; index += 1) await rig.send('POST', EFFECTS, { body: refund() });
    const first = await rig.send('GET', `${EFFECTS}?limit=2&state=committed&tool=payments.refund`);
    const page = first.json['effects'] as unknown as { id: string; state: string }[];
    expect(page).toHaveLength(2);
    const next = await rig.send(
      'GET',
      `${EFFECTS}?limit=2&state=committed&cursor=${String(first.json['next_cursor'])}`,
    );
    const ids = (next.json['effects'] as unknown as { id: string }[]).map(({ id }) => id);
    expect(ids.length).toBeGreaterThan(0);
    expect(page.some(({ id }) => ids.includes(id))).toBe(false);
    for (const decision of ['committed', 'denied_policy', 'denied_permission']) {
      const { json } = await rig.send('GET', `${EFFECTS}?decision=${decision}`);
      const found = json['effects'] as unknown as { decision: string }[];
      expect(found.length).toBeGreaterThan(0);
      expect(new Set(found.map((effect) => effect.decision))).toEqual(new Set([decision]));
    }
    const none = await rig.send('GET', `${EFFECTS}?since=2999-01-01T00:00:00Z`);
    expect(none.json['effects']).toEqual([]);
  });

  it.each([
    ['target=payment:pay_1', 'target=payment:pay_none'],
    ['rule=rig/refund', 'rule=rig/none'],
    ['user=ops', 'user=nobody'],
    ['agent_id=bot', 'agent_id=nobody'],
    ['until=2999-01-01T00:00:00Z', 'until=2000-01-01T00:00:00Z'],
    ['since=2000-01-01T00:00:00Z', 'approver=nobody'],
    ['tool=payments.refund', 'key_id=key_none'],
  ])('finds effects by %s, and none by %s', async (some, none) => {
    await rig.send('POST', EFFECTS, { body: refund() });
    expect((await rig.send('GET', `${EFFECTS}?limit=1&${some}`)).json['effects']).toHaveLength(1);
    expect((await rig.send('GET', `${EFFECTS}?limit=1&${none}`)).json['effects']).toEqual([]);
  });

  it.each([
    ['limit=0', '/query/limit'],
    ['limit=201', '/query/limit'],
    ['limit=ten', '/query/limit'],
    ['state=done', '/query/state'],
    ['since=yesterday', '/query/since'],
    ['until=2026-02-31T00:00:00Z', '/query/until'],
    ['stat=unknown', '/query/stat'],
    ['tool=a&tool=b', '/query/tool'],
  ])('refuses the query %s', async (query, path) => {
    const answer = await rig.send('GET', `${EFFECTS}?${query}`);
    expect(answer.status).toBe(400);
    expect((answer.json['errors'] as unknown as { path: string }[])[0]?.path).toBe(path);
  });

  it('takes no query where a route declares none', async () => {
    const answer = await rig.send('GET', `${EFFECTS}/eff_none?stat=unknown`);
    expect(answer).toMatchObject({ status: 400, json: { errors: [{ path: '/query/stat' }] } });
  });
});

describe('the next step', () => {
  it('is that of the reason where it is not that of its decision, in the answer and in the record', async () => {
    const run = await rig.send('POST', EFFECTS, { body: refund({ claim_id: 'clm_none' }) });
    expect(run.json).toMatchObject({ decision: 'denied_claim', reason: { code: 'claim_required' }, next: 'replan' });
    const { effect } = (await rig.send('GET', `${EFFECTS}/${String(run.json['effect_id'])}`)).json;
    expect(effect).toMatchObject({ decision: 'denied_claim', next: 'replan' });
    const held = await rig.send('POST', EFFECTS, { body: refund({ reservation_id: 'rsv_none' }) });
    expect(held.json).toMatchObject({ decision: 'denied_reservation', next: 'replan' });
  });
});

describe('resolve', () => {
  it('settles an unknown outcome once; too early, twice and the other way are told apart', async () => {
    rig.loseNextAnswer();
    const run = await rig.send('POST', EFFECTS, { body: refund() });
    expect(run.status).toBe(504);
    expect(run.json).toMatchObject({ decision: 'unknown_effect', safe_to_retry: false, next: 'resolve' });
    const path = `${EFFECTS}/${String(run.json['effect_id'])}/resolve`;
    const early = await rig.send('POST', path, { body: { outcome: 'not_happened' } });
    expect([early.status, early.json['code'], early.json['next']]).toEqual([409, 'too_early', 'wait']);
    expect(Number(early.headers['retry-after'])).toBeGreaterThan(0);
    expect((await rig.send('POST', path, { key: rig.keys.agent, body: { outcome: 'happened' } })).status).toBe(403);
    const bad = await rig.send('POST', path, { body: { outcome: 'perhaps' } });
    expect(bad.status).toBe(400);
    const done = await rig.send('POST', path, { body: { outcome: 'happened', comment: 'seen in the books' } });
    expect(done.json['effect']).toMatchObject({
      state: 'committed',
      settled_by: { by: 'resolve', user: 'ops', comment: 'seen in the books' },
    });
    expect((await rig.send('POST', path, { body: { outcome: 'happened' } })).status).toBe(200);
    expect((await rig.send('POST', path, { body: { outcome: 'not_happened' } })).json['code']).toBe('already_resolved');
  });

  it('the receipt says who approved what was sent', async () => {
    const asked = await rig.send('POST', EFFECTS, {
      body: refund({ params: { payment_id: 'pay_7', amount: 60_001, currency: 'EUR' } }),
    });
    expect(asked.json).toMatchObject({ decision: 'pending_approval', approval: { id: expect.any(String) } });
    const approval = asked.json['approval'] as unknown as { readonly id: string };
    rig.loseNextAnswer();
    const approved = await rig.send('POST', `/v1/workspaces/demo/approvals/${approval.id}/approve`, {
      key: rig.keys.approver,
      body: { comment: 'seen and approved' },
    });
    expect(approved.json['effect']).toMatchObject({ decision: 'unknown_effect' });
    const path = `${EFFECTS}/${String(asked.json['effect_id'])}`;
    expect((await rig.send('POST', `${path}/resolve`, { body: { outcome: 'happened' } })).status).toBe(200);
    const receipt = await rig.send('GET', `${path}/receipt`);
    expect(receipt.json['approval']).toEqual([expect.objectContaining({ id: approval.id, by: 'maria' })]);
    const words = await rig.send('GET', `${path}/receipt?disclosure=1&fields=approval.0.comment`);
    expect(words.json['disclosure']).toMatchObject({ values: { 'approval.0.comment': 'seen and approved' } });
  });

  it.each([
    ['x%252Cy', 'x,y'],
    ['x%252525', 'x%25'],
    ['x%25252C', 'x%2C'],
    // Of several, one that it does not commit to is enough.
    ['target,y', 'y'],
  ])('a field of a receipt that is asked for as %s is %s', async (asked, field) => {
    const detail = `This receipt has no commitment to ${field}.`;
    expect((await opened(asked)).json).toMatchObject({ status: 400, detail });
  });

  it('one param of several that are committed to together is refused, also beside what can be opened', async () => {
    for (const fields of ['params.amount', 'target,params.amount'])
      expect((await opened(fields)).json).toMatchObject({
        status: 400,
        detail: expect.stringContaining('commits to its params together'),
      });
    expect((await opened('target,params')).json['disclosure']).toMatchObject({
      values: { params: { amount: expect.any(Number) } },
    });
  });

  async function opened(fields: string) {
    const run = await rig.send('POST', EFFECTS, { body: refund() });
    return rig.send('GET', `${EFFECTS}/${String(run.json['effect_id'])}/receipt?disclosure=1&fields=${fields}`);
  }

  it('issues a receipt whose request can be opened, without a digest: nobody saw what was sent being sent', async () => {
    rig.loseNextAnswer();
    const run = await rig.send('POST', EFFECTS, { body: refund() });
    const path = `${EFFECTS}/${String(run.json['effect_id'])}`;
    expect((await rig.send('POST', `${path}/resolve`, { body: { outcome: 'happened' } })).status).toBe(200);
    const open = await rig.send('GET', `${path}/receipt?disclosure=1`);
    expect(open.json['disclosure']).toHaveProperty('values.request.upstream_key');
    expect(open.json['disclosure']).not.toHaveProperty('values.request.sent_sha256');
    const trust = (await rig.send('GET', '/.well-known/jwks.json', { key: null })).text;
    const verified = verifyReport({ receipt: open.text, trust, disclosure: open.text });
    expect([verified.exit, verified.text]).toEqual([0, expect.stringContaining('request is what')]);
  });

  it('is for unknown outcomes only', async () => {
    const run = await rig.send('POST', EFFECTS, { body: refund({ tool: 'deploy.start', params: { service: 'a' } }) });
    const path = `${EFFECTS}/${String(run.json['effect_id'])}/resolve`;
    expect((await rig.send('POST', path, { body: { outcome: 'happened' } })).json['code']).toBe('not_unknown');
    const none = await rig.send('POST', `${EFFECTS}/eff_none/resolve`, { body: { outcome: 'happened' } });
    expect(none.status).toBe(404);
  });

  it.each(['effects/eff_none/resolve', 'approvals/apr_none/approve', 'approvals/apr_none/reject'])(
    'takes a comment of 1,000 characters, and none that is longer: %s',
    async (path) => {
      const status = async (length: number): Promise<number> => {
        const body = { ...(path.endsWith('resolve') && { outcome: 'happened' }), comment: 'x'.repeat(length) };
        const key = path.startsWith('effects') ? {} : { key: rig.keys.approver };
        return (await rig.send('POST', `/v1/workspaces/demo/${path}`, { ...key, body })).status;
      };
      expect([await status(1_000), await status(1_001)]).toEqual([404, 400]);
    },
  );
});

describe('forgetting', () => {
  const erase = (id: unknown) => rig.send('DELETE', `${EFFECTS}/${String(id)}/params`);

  it('is refused with a conflict while the call waits, is done once it is over, and twice is the same as once', async () => {
    const params = { payment_id: 'pay_1', amount: 60_123, currency: 'EUR' };
    const held = await rig.send('POST', EFFECTS, { body: refund({ params }) });
    const id = held.json['effect_id'];
    const early = await erase(id);
    expect(early.json).toMatchObject({ status: 409, code: 'conflict', did_it_happen: 'no', next: 'replan' });
    const path = `/v1/workspaces/demo/approvals/${String(held.json['approval']?.['id'])}/reject`;
    expect((await rig.send('POST', path, { key: rig.keys.approver, body: {} })).status).toBe(200);
    for (let times = 0; times < 2; times += 1)
      expect(await erase(id)).toMatchObject({ status: 200, json: { effect_id: id, erased: true } });
    expect((await erase('eff_none')).json).toMatchObject({ status: 404, code: 'not_found' });
  });
});
