import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { approverAt } from './approver.ts';
import { makeApiKey, send } from './gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from './world.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 30_000, interval: 50 } as const;

const TWO = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: two
owner: team-test
rules:
  - id: secret
    effect: require_approval
    match: { tools: [notes.secret] }
    approval: { approvers: { roles: [finance] }, quorum: 2, summary: "Note \${params.text}" }
  - id: soon-over
    effect: require_approval
    match: { tools: [notes.add] }
    when: { params.text: { eq: soon } }
    approval: { approvers: { roles: [finance] }, quorum: 1, expires: 1s, summary: "Note" }
`;

let world: World;
beforeAll(async () => {
  world = await startWorld({
    files: (url) => {
      const files = worldFiles(url);
      const policy = files.policies['world.yaml']?.replace('limit: 100000 }', 'limit: 10000000 }') ?? '';
      return { ...files, policies: { 'world.yaml': policy, 'two.yaml': TWO } };
    },
  });
});
afterAll(() => world.close());

/** A refund that waits. */
async function waiting(key = world.keys.bot) {
  const { body } = await world.run(refund({ amount: 60_000 }), key);
  expect(body).toMatchObject({ decision: 'pending_approval' });
  return { id: String(body.approval.id), effect: String(body.effect_id), url: String(body.approval.url) };
}
/** A refund that waits, of a key that expires soon after: on a busy machine a key that lived longer has to be made. */
async function waitingWithExpiring(like: Readonly<Record<string, string>>) {
  for (let lifeS = 2; ; lifeS *= 3) {
    const expiring = await makeApiKey(world.gateway, 'olga', { ...like, expires_in: lifeS });
    const { status, body } = await world.run(refund({ amount: 60_000 }), expiring);
    if (status === 401) continue;
    expect(body).toMatchObject({ decision: 'pending_approval' });
    return { expiring, id: String(body.approval.id), effect: String(body.effect_id) };
  }
}
const approve = (id: string, key = world.keys.approver) => world.post(`/approvals/${id}/approve`, {}, key);
const denials = async (effect: string) =>
  (await world.get(`/effects/${effect}`)).body.ledger
    .filter(({ kind }: { kind: string }) => kind === 'effect.denied')
    .map(({ data }: { data: { code: string } }) => data.code);

/** Admissions that the gateway has asked its store for. */
async function admissions(): Promise<number> {
  const text = await (await fetch(`${world.gateway.url}/metrics`)).text();
  return Number(/svc_store_step_seconds_count\{step="admit",result="done"\} (\d+)/.exec(text)?.[1] ?? 0);
}

it('the answer to a vote says how many of how many, and that one has voted already', async () => {
  const { body } = await world.run({ ...refund(), tool: 'notes.secret', params: { text: 'x' } });
  const { id } = body.approval;
  expect((await approve(id, world.keys.account)).body).toMatchObject({
    voted_already: false,
    became: { what: 'waiting', message: 'Your vote counts: 1 of 2 approvals.' },
    requirements: [{ approvals: 1, quorum: 2 }],
  });
  expect((await approve(id, world.keys.account)).body).toMatchObject({
    voted_already: true,
    became: { what: 'waiting', message: 'You voted already: 1 of 2 approvals.' },
  });
  const last = await approve(id);
  expect(last.body).toMatchObject({ status: 'used', became: { what: 'dispatched', decision: 'committed' } });
  expect(last.body.became.receipt_id).toMatch(/^rcp_/);
});

it('an approved call that a pause stops says so once, waits, and runs when the pause is lifted', async () => {
  const { id, effect, url } = await waiting();
  const pause = await world.post('/pauses', { scope: { tool: 'payments.refund' }, reason: 'incident' });
  const maria = await approverAt(world.gateway.url, url, world.keys.approver);
  expect((await maria.look(new URL(url).pathname)).text).toMatch(
    /Paused: Incident\. If you approve, it waits until somebody lifts the pause; if that[\s\S]*name="verdict"/,
  );
  const stopped = await approve(id);
  expect(stopped.body).toMatchObject({
    status: 'granted',
    stopped: { decision: 'denied_paused', code: 'paused' },
    effect: { state: 'pending_approval' },
    became: { what: 'stopped', code: 'paused', message: expect.stringContaining('incident') },
  });
  const before = await admissions();
  await vi.waitFor(async () => expect(await admissions()).toBeGreaterThanOrEqual(before + 2), PATIENT);
  expect(await denials(effect)).toEqual(['paused']);
  expect((await approve(id)).body).toMatchObject({ code: 'conflict', detail: expect.stringContaining('incident') });
  const lifted = await send(
    world.gateway.url,
    world.keys.account,
    'DELETE',
    `/v1/workspaces/demo/pauses/${pause.body.id}`,
  );
  expect(lifted.status).toBe(200);
  await vi.waitFor(
    async () => expect((await world.get(`/effects/${effect}`)).body.effect.state).toBe('committed'),
    PATIENT,
  );
  expect((await world.get(`/approvals/${id}`)).body).toMatchObject({ status: 'used' });
});

it('an approved call of a key that was revoked, or has expired, ends; what it held is given back', async () => {
  const demo = { kind: 'agent', agent_id: 'bot', workspace: 'demo' };
  const revoked = await makeApiKey(world.gateway, 'olga', demo);
  const held = async () =>
    (await world.get('/budgets')).body.budgets.reduce((sum: number, row: { held: number }) => sum + row.held, 0);
  const before = await held();
  const first = await waiting(revoked);
  const { expiring, ...second } = await waitingWithExpiring(demo);
  expect(await held()).toBeGreaterThan(before);
  const keyId = `key_${revoked.split('_')[2]?.slice(0, 12)}`;
  const keys = '/v1/beta/users/olga/keys';
  await send(world.gateway.url, world.gateway.administrativeKey, 'DELETE', `${keys}/${keyId}`);
  await vi.waitFor(async () => expect((await world.get('/effects', expiring)).status).toBe(401), PATIENT);
  for (const { id, effect } of [first, second]) {
    expect((await approve(id)).body).toMatchObject({
      status: 'expired',
      became: { what: 'ended', code: 'key_ended' },
      effect: { state: 'denied', decision: 'denied_permission' },
    });
    const { body } = await world.get(`/effects/${effect}`);
    expect(body.effect).toMatchObject({ hold_state: 'voided', reason: { code: 'key_ended' } });
    expect(body.ledger.at(-2)).toMatchObject({ kind: 'approval.expired', data: { code: 'key_ended' } });
  }
  expect(await held()).toBe(before);
});

it('users that the configuration names after the request do not decide it, whatever their key', async () => {
  const key = await makeApiKey(world.gateway, 'zoe', { kind: 'account', workspace: 'demo' });
  const { id } = await waiting();
  const { configFile } = world.gateway;
  const config = await readFile(configFile, 'utf8');
  await writeFile(configFile, config.replace('users: [', 'users: [ { id: zoe, roles: [finance-lead] },'));
  await vi.waitFor(
    async () =>
      expect((await approve(id, key)).body).toMatchObject({
        code: 'own_request',
        detail: expect.stringContaining('after the request'),
      }),
    PATIENT,
  );
  const later = await waiting();
  expect((await approve(later.id, key)).body).toMatchObject({ became: { what: 'dispatched' } });
  expect((await approve(id)).body).toMatchObject({ became: { what: 'dispatched', decision: 'committed' } });
});

it('people are asked anew, and told so, where what they were shown has changed in between', async () => {
  const { id } = await waiting();
  const file = join(world.gateway.policyFolder, 'world.yaml');
  const policy = await readFile(file, 'utf8');
  const version = async () => (await world.get('/policies')).body.version;
  const before = await version();
  await writeFile(file, policy.replace('summary: "Refund', 'summary: "Pay back'));
  await vi.waitFor(async () => expect(await version()).not.toBe(before), PATIENT);
  const { body } = await approve(id);
  expect(body).toMatchObject({ status: 'expired', became: { what: 'asked_anew' } });
  const anew = body.became.approval_id;
  expect(anew).not.toBe(id);
  expect((await world.get(`/approvals/${anew}`)).body).toMatchObject({ status: 'pending', votes: [] });
  expect((await approve(anew)).body).toMatchObject({ became: { what: 'dispatched', decision: 'committed' } });
});

it('on the page a vote counts for what was shown: where it has changed, what is asked now is shown', async () => {
  const { url, effect, id } = await waiting();
  const { pathname } = new URL(url);
  const maria = await approverAt(world.gateway.url, url, world.keys.approver);
  const { form } = await maria.look(pathname);
  const file = join(world.gateway.policyFolder, 'world.yaml');
  const policy = await readFile(file, 'utf8');
  await writeFile(
    file,
    policy.replace('quorum: 1, expires: 1h, summary: "', 'quorum: 1, expires: 1h, summary: "Truly: '),
  );
  const { idempotency_key: key, params } = (await world.get(`/effects/${effect}`)).body.effect;
  // Whoever asks again is told of the new request: the old one is void from then on.
  await vi.waitFor(async () => {
    const { body } = await world.run({ tool: 'payments.refund', params, idempotency_key: key });
    expect(body.approval.id).not.toBe(id);
  }, PATIENT);
  const refused = await maria.send(pathname, { form, verdict: 'approve' });
  expect(refused.status).toBe(409);
  expect(refused.text).toContain('What is asked now stands below');
  expect(refused.text).toMatch(/You saw<[\s\S]*<td>Pay back [\s\S]*<td>Truly: /);
  const anew = /action="(\/approve\/demo\/apr_[0-9a-z]+)"/.exec(refused.text)?.[1] ?? '';
  expect(anew).not.toBe(pathname);
  expect((await world.get(`/effects/${effect}`)).body.effect).toMatchObject({ state: 'pending_approval' });
  expect((await maria.look(pathname)).text).toMatch(/People are asked anew[\s\S]*<h1>No longer asked</);
  expect((await maria.send(anew, { form, verdict: 'approve' })).status).toBe(403);
  expect(await maria.send(anew, { form: refused.form, verdict: 'approve' })).toMatchObject({ status: 303 });
  expect((await maria.look(anew)).text).toMatch(/<h1>Approved, and sent<[\s\S]*maria approved at/);
});

it('on the page a request that nobody decided in time looks neither approved nor rejected', async () => {
  const { body } = await world.run({ tool: 'notes.add', params: { text: 'soon' }, idempotency_key: 'soon' });
  const maria = await approverAt(world.gateway.url, body.approval.url, world.keys.approver);
  const { pathname } = new URL(body.approval.url);
  await vi.waitFor(async () => expect((await maria.look(pathname)).text).toContain('<h1>Its time is over<'), PATIENT);
  const { text, form } = await maria.look(pathname);
  expect([form, text.includes('neither approved nor rejected')]).toEqual(['', true]);
});

it('a session on the page outlives a restart; no key is in the log', async () => {
  const { url, id } = await waiting();
  const { pathname } = new URL(url);
  const maria = await approverAt(world.gateway.url, url, world.keys.approver);
  const { form } = await maria.look(pathname);
  await world.gateway.stop();
  await world.gateway.restart();
  expect((await maria.look(pathname)).text).toContain('You are maria');
  expect(await maria.send(pathname, { form, verdict: 'reject' })).toMatchObject({ status: 303, location: pathname });
  expect((await world.get(`/approvals/${id}`)).body).toMatchObject({ status: 'rejected', votes: [{ user: 'maria' }] });
  expect(world.gateway.log()).not.toContain(world.keys.approver);
});

it('what an upstream says has no origin, and runs nothing, where a browser opens it as a page', async () => {
  const look = (headers: Record<string, string>, path = '/payments/v1/payments/pay_1') =>
    fetch(`${world.gateway.url}${path}`, { headers: { 'x-api-key': world.keys.bot, ...headers } });
  for (const dest of ['document', 'iframe', 'object'])
    expect((await look({ 'sec-fetch-dest': dest })).headers.get('content-security-policy')).toBe('sandbox');
  for (const headers of [{}, { 'sec-fetch-dest': 'empty' }] as Record<string, string>[])
    expect((await look(headers)).headers.get('content-security-policy')).toBeNull();
  const own = await look({ 'sec-fetch-dest': 'document' }, '/docs');
  expect(own.headers.get('content-security-policy')).not.toContain('sandbox');
});

/** Refunds of 60,000 through the proxy, whose callers wait: with a plain body, and with one that goes by the router. */
const WRITES = [
  ['plain', {}, (text: string) => Buffer.from(text)],
  ['compressed', { 'content-encoding': 'gzip' }, (text: string) => gzipSync(text)],
] as const;

describe.each(WRITES)('a %s write through the proxy whose caller prefers to wait', (_, headers, encode) => {
  async function held(prefer: string) {
    const key = freshKey();
    const path = `/v1/payments/pay_${key}/refunds`;
    const answering = fetch(`${world.gateway.url}/payments${path}`, {
      method: 'POST',
      headers: {
        ...headers,
        'x-api-key': world.keys.bot,
        'idempotency-key': key,
        'content-type': 'application/json',
        prefer,
      },
      body: encode(JSON.stringify({ amount: 60_000, currency: 'EUR' })),
    });
    const id = await vi.waitFor(async () => {
      const { body } = await world.get('/approvals?status=pending');
      const found = body.approvals.find(({ target }: { target: string }) => target === `payment:pay_${key}`);
      expect(found).toBeDefined();
      return String(found.id);
    }, PATIENT);
    const times = async () => (await world.upstream.ledger()).effects.filter((effect) => effect.path === path).length;
    return { id, answering, times };
  }

  it('gets the answer of the upstream once it is approved, and it was sent once', async () => {
    const { id, answering, times } = await held('wait=30');
    expect((await approve(id)).body.became).toMatchObject({ decision: 'committed' });
    const answer = await answering;
    expect([answer.status, answer.headers.get('svc-decision')]).toEqual([201, 'committed']);
    expect(answer.headers.get('preference-applied')).toBe('wait=30');
    expect(answer.headers.get('svc-receipt')).toContain('/receipt');
    expect(await answer.json()).toMatchObject({ received: { amount: 60_000 } });
    expect(await times()).toBe(1);
  });

  it('gets the reason once it is rejected', async () => {
    const { id, answering, times } = await held('wait=30');
    await world.post(`/approvals/${id}/reject`, { comment: 'not in May' }, world.keys.approver);
    const answer = await answering;
    expect([answer.status, answer.headers.get('svc-decision')]).toEqual([403, 'denied_policy']);
    expect(await answer.text()).toContain('not in May');
    expect(await times()).toBe(0);
  });

  it('is told that it waits on when its time is over', async () => {
    const { answering, times } = await held('wait=1');
    const answer = await answering;
    expect([answer.status, answer.headers.get('svc-decision')]).toEqual([202, 'pending_approval']);
    expect(answer.headers.get('preference-applied')).toBe('wait=1');
    expect(await times()).toBe(0);
  });
});
