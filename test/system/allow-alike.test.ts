import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { svc } from '../cli/run.ts';
import { type RedisServer, startRedis } from '../redis/servers.ts';
import type { LedgerUpstream } from '../upstream/start.ts';
import { approverAt } from './approver.ts';
import { startFleet } from './fleet.ts';
import { type Answer, makeApiKey, send, type TestFiles, type TestGateway } from './gateway.ts';
import { freshKey, refund, startWorld, worldFiles } from './world.ts';

/*
 * Allow the next alike, on real gateways and both stores: so many calls, alike as the page says, and nobody's own. On
 * Redis there are two gateways: one is asked, the other decides.
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
    approval: { approvers: { roles: [finance] } }
`;

const files = (url: string): TestFiles => {
  const { config, policies } = worldFiles(url);
  const policy = (policies['world.yaml'] ?? '')
    .replace('limit: 100000 }', 'limit: 100000000 }')
    .replace(
      'summary: "Refund ${params.amount} cents of',
      'allow_alike: { times: 5, for: 2h }, editable: { amount: { min: 50001, max: 90000 } }, summary: "Refund ${params.amount} cents of',
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

describe.each(SITES)('allow the next alike, %s', (_name, open) => {
  let site: Site;
  let folder = '';
  let keys: Record<'bot' | 'otherBot' | 'madeByMaria' | 'tom' | 'maria' | 'ada' | 'readonly', string>;
  beforeAll(async () => {
    site = await open();
    folder = await mkdtemp(join(tmpdir(), 'allow-alike-'));
    const first = at(0);
    const demo = { workspace: 'demo' };
    const account = (user: string): Promise<string> => makeApiKey(first, user, { kind: 'account', ...demo });
    keys = {
      bot: await makeApiKey(first, 'olga', { kind: 'agent', agent_id: 'bot', ...demo }),
      otherBot: await makeApiKey(first, 'olga', { kind: 'agent', agent_id: 'other-bot', ...demo }),
      madeByMaria: await makeApiKey(first, 'maria', { kind: 'agent', agent_id: 'bot', ...demo }),
      tom: await account('tom'),
      maria: await account('maria'),
      ada: await account('ada'),
      readonly: await makeApiKey(first, 'maria', { profile: 'mcp_readonly', ...demo }),
    };
  });
  afterAll(async () => {
    await site?.close();
    await rm(folder, { recursive: true, force: true });
  });

  /** What a test left waiting would count toward what an agent may have waiting. */
  afterEach(async () => {
    for (const { id } of (await get('/approvals?status=pending')).body.approvals)
      for (const key of [keys.maria, keys.ada])
        await send(at(1).url, key, 'POST', `${WS}/approvals/${id}/reject`, { comment: 'the test is over' });
  });

  const at = (index: number): TestGateway => {
    const gateway = site.gateways[index % site.gateways.length];
    if (gateway === undefined) throw new Error('there is no gateway');
    return gateway;
  };
  const WS = '/v1/workspaces/demo';
  const ask = (method: string, path: string, key = keys.maria): Promise<Answer> =>
    send(at(1).url, key, method, WS + path);
  const get = (path: string, key = keys.tom): Promise<Answer> => ask('GET', path, key);
  /** By the gateway that was not asked. */
  const approve = (id: string, body: unknown, key = keys.maria): Promise<Answer> =>
    send(at(1).url, key, 'POST', `${WS}/approvals/${id}/approve`, body);

  /** Refunds of one payment, which no other test has. */
  function payment() {
    const id = `pay_${freshKey()}`;
    const call = (params: Record<string, unknown> = {}) => refund({ amount: 60_000, payment_id: id, ...params });
    return {
      id,
      run: (params: Record<string, unknown> = {}, key = keys.bot): Promise<Answer> =>
        send(at(0).url, key, 'POST', `${WS}/effects`, {
          ...call(params),
          ...(key === keys.maria ? { agent_id: 'bot' } : {}),
        }),
      /** What the upstream got. */
      sent: async () => (await site.upstream.ledger()).requests.filter(({ path }) => path.includes(id)),
    };
  }
  type Payment = ReturnType<typeof payment>;
  async function waiting(of: Payment, params: Record<string, unknown> = {}) {
    const { body } = await of.run(params);
    if (body.decision !== 'pending_approval') throw new Error(JSON.stringify(body));
    return { ...(await get(`/approvals/${body.approval.id}`)).body, effect: body.effect_id };
  }
  /** A payment of which a refund was approved with the next ones. */
  async function given(alike: Record<string, unknown> = {}) {
    const of = payment();
    const { id, digest } = await waiting(of);
    const { status, body } = await approve(id, { digest, allow_alike: alike });
    expect([status, body.became?.what]).toEqual([200, 'dispatched']);
    return { of, approval: id, id: String(body.allowance_id) };
  }
  const shown = async (id: string, key = keys.tom) =>
    (await get('/allowances', key)).body.allowances.find((one: { id: string }) => one.id === id);

  it('lets in so many, within the bounds, and says by whose word; the receipt does, too', async () => {
    const of = payment();
    const asked = await waiting(of);
    expect(asked.allow_alike).toEqual({ times: 5, for_s: 7_200, varies: { amount: { min: 50_001, max: 90_000 } } });
    const until = new Date(Date.now() + 3_600_000).toISOString();
    const voted = (await approve(asked.id, { digest: asked.digest, allow_alike: { times: 2, until } })).body;
    const allowed = { id: voted.allowance_id, approval_id: asked.id, given_by: 'maria', use: 1 };
    expect(voted).toMatchObject({ became: { what: 'dispatched', decision: 'committed' } });
    const first = (await of.run({ amount: 90_000 })).body;
    expect(first.decision).toBe('committed');
    const there = (await get(`/effects/${first.effect_id}`)).body;
    expect(there.effect.allowance).toEqual(allowed);
    expect(there.ledger.map(({ kind }: { kind: string }) => kind)).toContain('allowance.used');
    const run = (await get(`/effects/${first.effect_id}/run`)).body;
    expect(run.stages).toContainEqual(
      expect.objectContaining({ stage: 'approval', status: 'passed', detail: allowed.id }),
    );
    const receipt = (await get(`/effects/${first.effect_id}/receipt`)).body;
    expect(receipt).toMatchObject({ approval: [], allowance: { id: allowed.id, by: 'maria', use: 1 } });
    expect(await shown(allowed.id)).toMatchObject({
      status: 'open',
      used: 1,
      times: 2,
      expires_at: until,
      rules: ['world/refund-large'],
    });
    expect((await of.run({ amount: 50_001 })).body.decision).toBe('committed');
    expect((await of.run()).body.decision).toBe('pending_approval');
    expect(await shown(allowed.id)).toMatchObject({ status: 'used_up', used: 2 });
    expect(await of.sent()).toHaveLength(3);
  });

  it('however many come at once, at both gateways', async () => {
    const { of, id } = await given();
    const body = (key: string) => ({ ...refund({ amount: 60_000, payment_id: of.id }), idempotency_key: key });
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        send(at(index).url, keys.bot, 'POST', `${WS}/effects`, body(`${of.id}-${index}`)),
      ),
    );
    const decisions = answers.map((answer) => answer.body.decision);
    expect(decisions.filter((one) => one === 'committed').length).toBe(5);
    expect(await of.sent()).toHaveLength(6);
    expect(await shown(id)).toMatchObject({ status: 'used_up', used: 5 });
  });

  it('asks about whatever is not alike', async () => {
    const { of, id } = await given();
    for (const params of [{ amount: 90_001 }, { currency: 'USD' }, { reason: 'late' }])
      expect([params, (await of.run(params)).body.decision]).toEqual([params, 'pending_approval']);
    expect((await payment().run()).body.decision).toBe('pending_approval');
    expect((await of.run({}, keys.otherBot)).body.decision).toBe('pending_approval');
    expect(await shown(id)).toMatchObject({ used: 0 });
    expect((await of.run()).body.decision).toBe('committed');
  });

  it('is for nobody’s own calls, whichever key they come with', async () => {
    const { of, id } = await given();
    expect((await of.run({}, keys.madeByMaria)).body.decision).toBe('pending_approval');
    expect((await of.run({}, keys.maria)).body.decision).toBe('pending_approval');
    expect(await shown(id)).toMatchObject({ used: 0 });
  });

  it('is for the key that asked: its giver may hold another, over keys of others', async () => {
    const administrative = { kind: 'administrative' };
    const ofMaria = await makeApiKey(at(0), 'maria', administrative);
    const ofAda = await makeApiKey({ ...at(0), administrativeKey: ofMaria }, 'ada', administrative);
    const agent = { kind: 'agent', agent_id: 'bot', workspace: 'demo' };
    const throughAda = await makeApiKey({ ...at(0), administrativeKey: ofAda }, 'olga', agent);
    const { of, id } = await given();
    expect((await of.run({}, throughAda)).body.decision).toBe('pending_approval');
    expect(await shown(id)).toMatchObject({ used: 0 });
    expect((await of.run()).body.decision).toBe('committed');
  });

  it('is refused where the policy does not let it, and nothing is decided', async () => {
    const of = payment();
    const { id, digest } = await waiting(of);
    for (const [alike, message] of [
      [{ times: 6 }, /next 5 be allowed at most/],
      [{ until: new Date(Date.now() + 3 * 3_600_000).toISOString() }, /120 minutes at most/],
      [{ until: '2020-01-01T00:00:00Z' }, /is over/],
    ] as const) {
      const { status, body } = await approve(id, { digest, allow_alike: alike });
      expect([status, body.code]).toEqual([409, 'allowance_refused']);
      expect(body.detail).toMatch(message);
    }
    for (const alike of [{ times: 0 }, { times: 1.5 }, { times: 101 }, { forever: true }, { until: 'soon' }])
      expect((await approve(id, { digest, allow_alike: alike })).status).toBe(400);
    const changed = await approve(id, { digest, changes: { amount: 70_000 }, allow_alike: {} });
    expect([changed.status, changed.body.code]).toEqual([409, 'allowance_refused']);
    const { body } = await send(at(0).url, keys.bot, 'POST', `${WS}/effects`, {
      tool: 'notes.secret',
      params: { text: 'x' },
      idempotency_key: freshKey(),
    });
    const never = await approve(body.approval.id, { allow_alike: {} }, keys.tom);
    expect([never.status, never.body.code]).toEqual([409, 'allowance_refused']);
    for (const key of [keys.tom, keys.bot, keys.otherBot, keys.readonly])
      expect((await approve(id, { digest, allow_alike: {} }, key)).status).toBe(403);
    expect((await get(`/approvals/${id}`)).body).toMatchObject({ status: 'pending', votes: [] });
    expect((await get(`/approvals/${body.approval.id}`)).body).toMatchObject({ status: 'pending', votes: [] });
    expect(await of.sent()).toEqual([]);
  });

  it('is stopped by a pause, and ends when somebody who may decide revokes it', async () => {
    const { of, id } = await given();
    const pause = await send(at(1).url, keys.maria, 'POST', `${WS}/pauses`, {
      scope: { agent: 'bot' },
      reason: 'a look first',
    });
    expect((await of.run()).body.decision).toBe('denied_paused');
    await ask('DELETE', `/pauses/${pause.body.id}`);
    for (const key of [keys.bot, keys.readonly])
      expect((await ask('DELETE', `/allowances/${id}`, key)).status).toBe(403);
    expect(await shown(id, keys.bot)).toMatchObject({ status: 'open', used: 0 });
    expect(await shown(id, keys.otherBot)).toBeUndefined();
    const revoked = await ask('DELETE', `/allowances/${id}`, keys.ada);
    expect([revoked.status, revoked.body]).toMatchObject([200, { status: 'revoked', ended: { by: 'ada' } }]);
    expect((await of.run()).body.decision).toBe('pending_approval');
    expect((await ask('DELETE', `/allowances/${id}`)).body).toMatchObject({ status: 'revoked', ended: { by: 'ada' } });
    expect((await ask('DELETE', '/allowances/alw_nothing')).status).toBe(404);
  });

  it('on the page: says what is alike, and lets nothing more in than was chosen', async () => {
    const of = payment();
    const asked = await waiting(of);
    const path = `/approve/demo/${asked.id}`;
    const maria = await approverAt(at(1).url, `${at(1).url}${path}`, keys.maria);
    const seen = await maria.look(path);
    expect(seen.text).toMatch(/<option value="">Ask about each of them<\/option>/);
    expect(seen.text).toMatch(/<option value="5">Let the next 5 in without asking<\/option>/);
    expect(seen.text).not.toMatch(/<option value="10">/);
    expect(seen.text).toContain(
      `Like it: bot calls payments.refund on “payment:${of.id}” with the same headers and the same params, but for amount: €500.01 to €900.00.`,
    );
    const end = /name="alike_until" value="([^"]+)"/.exec(seen.text)?.[1] ?? '';
    const fields = { form: seen.form, verdict: 'approve', 'money.EUR.amount': '600', alike_until: end };
    for (const [more, message] of [
      [{ alike: '6' }, /next 5 be allowed at most/],
      [{ alike: 'all' }, /how many/i],
      [{ alike: '3', alike_until: 'soon' }, /how many/i],
      [{ alike: '3', 'money.EUR.amount': '700' }, /changed is not what the agent asks/],
      [{ alike: '3', form: 'x' }, /form was not of this page/],
    ] as const) {
      const refused = await maria.send(path, { ...fields, ...more });
      expect(refused.status).toBeGreaterThanOrEqual(400);
      expect(refused.text).toMatch(message);
    }
    // To look decides nothing, whatever the address says.
    await maria.look(`${path}?alike=5&verdict=approve`);
    expect(await of.sent()).toEqual([]);
    expect(await maria.send(path, { ...fields, alike: '2' })).toMatchObject({ status: 303 });
    expect([(await of.run()).body.decision, (await of.run()).body.decision]).toEqual(['committed', 'committed']);
    expect((await of.run()).body.decision).toBe('pending_approval');
    // Who is asked and may not allow ahead is not offered it.
    const { body } = await send(at(0).url, keys.bot, 'POST', `${WS}/effects`, {
      tool: 'notes.secret',
      params: { text: freshKey() },
      idempotency_key: freshKey(),
    });
    const plain = await maria.look(`/approve/demo/${body.approval.id}`);
    expect(plain.text).not.toContain('name="alike"');
  });

  it('on the page: who gave it sees it where it is decided, and revokes it with a form of that page alone', async () => {
    const of = payment();
    const asked = await waiting(of);
    const path = `/approve/demo/${asked.id}`;
    const maria = await approverAt(at(1).url, `${at(1).url}${path}`, keys.maria);
    expect((await maria.look(path)).text).not.toContain('Your allowances');
    await approve(asked.id, { allow_alike: { times: 5 } });
    const decided = await maria.look(path);
    const own = new RegExp(
      `on “payment:${of.id}” without asking: 0 of 5 used[^]*?name="allowance" value="(alw_[^"]+)"`,
    );
    const allowance = own.exec(decided.text)?.[1] ?? '';
    const ada = await approverAt(at(0).url, `${at(0).url}${path}`, keys.ada);
    expect((await ada.look(path)).text).not.toMatch(own);
    expect((await maria.send(path, { form: 'x', allowance })).status).toBe(403);
    expect((await of.run()).body.decision).toBe('committed');
    expect(await maria.send(path, { form: decided.form, allowance })).toMatchObject({ status: 303, location: path });
    expect((await of.run()).body.decision).toBe('pending_approval');
    expect((await maria.look(path)).text).not.toMatch(own);
  });

  it('by command: approved with the next ones, listed, revoked', async () => {
    const of = payment();
    const asked = await waiting(of);
    const keyFile = join(folder, 'key');
    await writeFile(keyFile, keys.maria, { mode: 0o600 });
    const access = ['--url', at(1).url, '--workspace', 'demo', '--key-file', keyFile];
    const told = await svc('approvals', 'show', asked.id, ...access);
    expect(told.out).toMatch(/may allow +the next 5 like it, for 120 minutes at most/);
    const lonely = await svc('approvals', 'approve', asked.id, '--allow-for', '1h', ...access);
    expect([lonely.code, lonely.err]).toEqual([expect.any(Number), expect.stringContaining('--allow-next')]);
    const voted = await svc('approvals', 'approve', asked.id, '--allow-next', '2', '--allow-for', '1h', ...access);
    expect(voted.out).toMatch(/The next calls alike are let in without asking: alw_/);
    const id = /alw_[0-9a-z]+/.exec(voted.out)?.[0] ?? '';
    expect((await of.run()).body.decision).toBe('committed');
    const listed = await svc('allowances', 'list', ...access);
    expect(listed.out).toMatch(new RegExp(`${id} +open +1 of 2`));
    const revoked = await svc('allowances', 'revoke', id, ...access);
    expect(revoked.out).toBe('It lets nothing in any more (revoked); it let in 1 of 2.');
    expect((await of.run()).body.decision).toBe('pending_approval');
  });
});
