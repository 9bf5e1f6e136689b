import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { INVALID_KEY_LIMIT } from '../../src/api/invalid-key-limiter.ts';
import { ConsoleSessions } from '../../src/console/sessions.ts';
import { type Keys, type Rig, type Seen, refund, startRig } from '../api/rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

const OWN = { 'svc-console': '1' };
const COOKIE = /^svc_console=([\w-]{43}); Path=\/; Max-Age=28800; HttpOnly; SameSite=Strict$/;

/** The header of a browser that has signed in. */
async function signedIn(
  body: Record<string, unknown>,
  headers: Record<string, string> = {},
): Promise<Record<string, string>> {
  const answer = await rig.send('POST', '/console/session', { key: null, body, headers: { ...OWN, ...headers } });
  expect(answer.status).toBe(204);
  const token = COOKIE.exec(String(answer.headers['set-cookie']))?.[1] ?? '';
  expect(token).not.toBe('');
  return { ...OWN, cookie: `svc_console=${token}` };
}

async function link(key: keyof Keys): Promise<string> {
  const { status, json } = await rig.send('POST', '/v1/beta/console/links', { key: rig.keys[key] });
  expect(status).toBe(201);
  return String(json['url']).replace(/^http:\/\/127\.0\.0\.1:8080\/console\/sign-in#link=/, '');
}

const as = (
  headers: Record<string, string>,
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  path: string,
  body?: unknown,
): Promise<Seen> => rig.send(method, path, { key: null, headers, ...(body === undefined ? {} : { body }) });

const WS = '/v1/workspaces/demo';

describe('signing in', () => {
  it('a link opens once, and says who is there and what that person may do', async () => {
    const made = await rig.send('POST', '/v1/beta/console/links', { key: rig.keys.approver });
    // Nor is the link itself kept anywhere on the way.
    expect(made.headers['cache-control']).toBe('no-store');
    const left = Date.parse(String(made.json['expires_at'])) - rig.ports.store.now();
    expect(left).toBeGreaterThan(4 * 60_000);
    expect(left).toBeLessThanOrEqual(5 * 60_000);
    const token = /#link=(.+)$/.exec(String(made.json['url']))?.[1] ?? '';
    const headers = await signedIn({ link: token });
    const { json, headers: said } = await as(headers, 'GET', '/console/session');
    // Who sits at the same browser later reads it from no cache.
    expect(said['cache-control']).toBe('no-store');
    expect(json).toMatchObject({ user: 'maria', kind: 'account', workspaces: ['demo'], has_shown_key: false });
    expect(json['may']).toContain('approvals.decide');
    expect(json['may']).not.toContain('keys.manage');
    const again = await rig.send('POST', '/console/session', { key: null, body: { link: token }, headers: OWN });
    expect(again).toMatchObject({ status: 401, json: { code: 'invalid_key' } });
  });

  it('takes a key as it was copied, with spaces around it, and one proof of who is there at a time', async () => {
    await signedIn({ key: `  ${rig.keys.approver}\n` });
    const both = { key: rig.keys.approver, link: await link('approver') };
    for (const body of [both, {}]) {
      const answer = await rig.send('POST', '/console/session', { key: null, body, headers: OWN });
      expect(answer).toMatchObject({ status: 400, json: { code: 'invalid_request' } });
      expect(answer.headers['set-cookie']).toBeUndefined();
    }
    // The link was not used up by that.
    await signedIn({ link: both.link });
  });

  it('says until when it lasts, which roles its owner has, and whether the key only reads', async () => {
    const seen = async (key: keyof Keys) =>
      (await as(await signedIn({ key: rig.keys[key] }), 'GET', '/console/session')).json;
    const maria = await seen('approver');
    expect(maria).toMatchObject({ read_only: false, roles: ['finance-lead'], has_shown_key: true });
    const left = Date.parse(String(maria['expires_at'])) - rig.ports.store.now();
    expect(left).toBeGreaterThan(8 * 3_600_000 - 60_000);
    expect(left).toBeLessThanOrEqual(8 * 3_600_000);
    expect(await seen('readonly')).toMatchObject({ read_only: true, roles: [] });
    // An administrator sees all of them.
    expect((await seen('admin'))['workspaces']).toEqual(rig.ports.directory.workspaces());
  });

  it('of many who open a link at once, one gets in', async () => {
    const token = await link('approver');
    const body = { link: token };
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => rig.send('POST', '/console/session', { key: null, body, headers: OWN })),
    );
    expect(answers.map(({ status }) => String(status)).toSorted()).toEqual(['204', '401', '401', '401', '401']);
  });

  it('a link is good for five minutes, a session for eight hours, and neither without its key', async () => {
    let later = 0;
    let isValid = true;
    const kept = new Map<string, { text: string; until: number }>();
    const begun = rig.ports.store.now();
    const now = (): number => begun + later;
    const store = {
      ...rig.ports.store,
      now,
      putSession: async (id: string, session: { text: string; until: number }) => void kept.set(id, session),
      session: async (id: string) => kept.get(id)?.text ?? null,
      takeSession: async (id: string) => {
        const session = kept.get(id);
        kept.delete(id);
        return session?.text ?? null;
      },
    };
    const principal = await rig.ports.authenticate(rig.keys.approver);
    if ('failure' in principal) throw new Error('the key is good');
    let of = principal;
    const sessions = new ConsoleSessions({
      ...rig.ports,
      store,
      stillValid: async () => (isValid ? of : { failure: 'invalid_key' }),
    });
    const { token: late } = await sessions.makeLink(principal);
    const { token } = await sessions.makeLink(principal);
    later += 5 * 60_000 - 1_000;
    const cookie = (await sessions.enter(token, {}))?.split(';')[0] ?? '';
    expect(cookie).not.toBe('');
    later += 1_500;
    expect(await sessions.enter(late, {})).toBeNull();
    const headers = { ...OWN, cookie };
    expect(await sessions.visitorOf(headers)).toMatchObject({ hasShownKey: false });
    isValid = false;
    expect(await sessions.visitorOf(headers)).toBeNull();
    isValid = true;
    // The key has become somebody else's.
    of = { ...principal, user: 'tom' };
    expect(await sessions.visitorOf(headers)).toBeNull();
    of = principal;
    expect(await sessions.visitorOf(headers)).not.toBeNull();
    // To the millisecond, as the store keeps it.
    const { until = 0 } = [...kept.values()].at(-1) ?? {};
    later += until - now() - 1;
    expect(await sessions.visitorOf(headers)).toMatchObject({ until });
    later += 1;
    expect(await sessions.visitorOf(headers)).toBeNull();
  });

  it('keys of agents do not sign in, nor do bad ones; nor does a page of another origin', async () => {
    for (const [key, status] of [
      ['agent', 403],
      ['revoked', 401],
      ['expired', 401],
    ] as const)
      expect(
        await rig.send('POST', '/console/session', { key: null, body: { key: rig.keys[key] }, headers: OWN }),
      ).toMatchObject({ status });
    const body = { key: rig.keys.account };
    const attempts: readonly Record<string, string>[] = [
      {},
      { ...OWN, 'sec-fetch-site': 'cross-site' },
      { ...OWN, 'sec-fetch-site': 'none' },
      { ...OWN, origin: 'https://elsewhere.example' },
      { ...OWN, origin: 'null' },
    ];
    for (const headers of attempts)
      expect(await rig.send('POST', '/console/session', { key: null, body, headers })).toMatchObject({
        status: 403,
        json: { code: 'origin_not_allowed' },
      });
    expect(await rig.send('POST', '/v1/beta/console/links', { key: rig.keys.agent })).toMatchObject({ status: 403 });
  });

  it('over TLS the cookie is for this host alone', async () => {
    const principal = await rig.ports.authenticate(rig.keys.approver);
    if ('failure' in principal) throw new Error('the key is good');
    const settings = () => ({ ...rig.ports.settings(), publicUrl: 'https://gateway.example' });
    const sessions = new ConsoleSessions({ ...rig.ports, settings });
    const cookie = await sessions.begin(principal, {});
    expect(cookie).toMatch(/^__Host-svc_console=[\w-]{43}; Path=\/; Max-Age=28800; HttpOnly; SameSite=Strict; Secure$/);
    const [pair = ''] = cookie.split(';');
    expect(await sessions.visitorOf({ ...OWN, cookie: pair })).toMatchObject({ hasShownKey: true });
    expect(await sessions.visitorOf({ ...OWN, cookie: pair.replace('__Host-', '') })).toBeNull();
    expect(await sessions.visitorOf({ ...OWN, cookie: `${pair}; ${pair}x` })).toBeNull();
  });
});

describe('a session', () => {
  const ROUTES = [
    `${WS}/effects`,
    `${WS}/approvals`,
    `${WS}/budgets`,
    `${WS}/pauses`,
    `${WS}/claims`,
    `${WS}/reservations`,
    `${WS}/policies`,
    `${WS}/tools`,
    `${WS}/agents`,
    `${WS}/pins`,
    `${WS}/brain/entities`,
    '/v1/workspaces/elsewhere/effects',
    '/v1/workspaces/elsewhere/pauses',
    '/v1/workspaces/elsewhere/approvals',
    '/v1/beta/keys',
    '/v1/workspaces',
    '/v1/beta/policies/activations',
    '/v1/mcp/key-profiles',
  ];
  const CHANGES = [
    ['POST', `${WS}/pauses`],
    ['POST', `${WS}/claims`],
    ['POST', `${WS}/reservations`],
    ['POST', `${WS}/agents`],
    ['POST', `${WS}/effects/eff_nothing/resolve`],
    ['POST', `${WS}/approvals/apr_nothing/approve`],
    ['POST', `${WS}/approvals/apr_nothing/reject`],
    ['DELETE', `${WS}/pauses/pau_nothing`],
    ['POST', '/v1/beta/users/maria/keys'],
    ['DELETE', '/v1/beta/keys/key_nothing'],
    ['POST', '/v1/beta/policies/rollback'],
    ['POST', '/v1/workspaces'],
  ] as const;

  it.each(['account', 'approver', 'admin', 'readonly', 'operator', 'governor', 'stranger'] as const)(
    'may do what the key may that began it, and no more: %s',
    async (name) => {
      const headers = await signedIn({ key: rig.keys[name] });
      const said = ({ status, json }: Seen): string => `${status} ${String(json['code'] ?? '')}`;
      for (const path of ROUTES)
        expect(`${path} ${said(await as(headers, 'GET', path))}`).toBe(
          `${path} ${said(await rig.send('GET', path, { key: rig.keys[name] }))}`,
        );
      for (const [method, path] of CHANGES)
        expect(`${path} ${said(await as(headers, method, path, {}))}`).toBe(
          `${path} ${said(await rig.send(method, path, { key: rig.keys[name], body: {} }))}`,
        );
    },
  );

  it('runs nothing, and makes no links', async () => {
    const headers = await signedIn({ key: rig.keys.account });
    for (const path of [`${WS}/effects`, '/v1/beta/console/links'])
      expect(await as(headers, 'POST', path, path.endsWith('effects') ? refund() : {})).toMatchObject({
        status: 401,
        json: { code: 'missing_key' },
      });
  });

  it('is worth nothing to pages of others: without the header of its own pages', async () => {
    const { cookie = '' } = await signedIn({ key: rig.keys.account });
    const attempts: readonly Record<string, string>[] = [
      { cookie },
      { cookie, 'svc-console': '0' },
      { cookie, ...OWN, 'sec-fetch-site': 'same-site' },
      { cookie, ...OWN, 'sec-fetch-site': 'cross-site' },
    ];
    for (const headers of attempts) {
      expect(await as(headers, 'GET', `${WS}/effects`)).toMatchObject({ status: 401 });
      expect(await as(headers, 'POST', `${WS}/pauses`, { scope: { workspace: true }, reason: 'x' })).toMatchObject({
        status: 401,
      });
    }
    expect(await as({ cookie, ...OWN, origin: 'https://elsewhere.example' }, 'GET', `${WS}/effects`)).toMatchObject({
      status: 403,
      json: { code: 'origin_not_allowed' },
    });
  });

  it('that a link opened looks and pauses; to let something happen it shows the key once', async () => {
    const asked = await rig.send('POST', `${WS}/effects`, {
      body: refund({ params: { payment_id: 'pay_3', amount: 60_000, currency: 'EUR' } }),
    });
    const { id } = asked.json['approval'] as unknown as { id: string };
    const headers = await signedIn({ link: await link('approver') });
    const pause = await as(headers, 'POST', `${WS}/pauses`, { scope: { tool: 'deploy.*' }, reason: 'a look first' });
    expect(pause.status).toBe(201);
    const refused = { status: 403, json: { code: 'step_up_required', did_it_happen: 'no' } };
    expect(await as(headers, 'DELETE', `${WS}/pauses/${String(pause.json['id'])}`)).toMatchObject(refused);
    expect(await as(headers, 'POST', `${WS}/approvals/${id}/approve`, {})).toMatchObject(refused);
    const stepUp = (key: string): Promise<Seen> => as(headers, 'POST', '/console/session', { key, step_up: true });
    for (const other of ['account', 'admin', 'stranger'] as const)
      expect(await stepUp(rig.keys[other])).toMatchObject({ status: 403 });
    // Nor does another key of the same person that reaches something else.
    const made = await rig.send('POST', '/v1/beta/users/maria/keys', {
      key: rig.keys.admin,
      body: { name: 'elsewhere', kind: 'account', workspace: 'elsewhere' },
    });
    expect(await stepUp(String(made.json['key']))).toMatchObject({ status: 403, json: { code: 'wrong_key_kind' } });
    const shown = await signedIn({ key: rig.keys.approver, step_up: true }, headers);
    // The session before, which may be in other hands, is over.
    expect(await as(headers, 'GET', `${WS}/effects`)).toMatchObject({ status: 401 });
    expect(await as(shown, 'DELETE', `${WS}/pauses/${String(pause.json['id'])}`)).toMatchObject({ status: 200 });
    const before = await as(shown, 'GET', `${WS}/approvals/${id}`);
    expect(await as(shown, 'POST', `${WS}/approvals/${id}/approve`, { digest: 'another' })).toMatchObject({
      status: 409,
      json: { code: 'conflict' },
    });
    const { digest } = before.json as unknown as { digest: string };
    expect(await as(shown, 'POST', `${WS}/approvals/${id}/approve`, { digest })).toMatchObject({
      status: 200,
      json: { became: { what: 'dispatched', decision: 'committed' } },
    });
  });

  it('that a link opened settles, erases, registers, releases and writes nothing before it has shown the key', async () => {
    rig.loseNextAnswer();
    const lost = await rig.send('POST', `${WS}/effects`, { body: refund() });
    expect(lost.json['decision']).toBe('unknown_effect');
    const effect = `${WS}/effects/${String(lost.json['effect_id'])}`;
    const entities = { entities: [{ type: 'customer', id: 'c1', name: 'Acme', attributes: { refund_limit: 1 } }] };
    const acts: readonly [keyof Keys, 'POST' | 'PUT' | 'DELETE', string, unknown?][] = [
      ['approver', 'POST', `${effect}/resolve`, { outcome: 'happened' }],
      ['approver', 'DELETE', `${effect}/params`],
      ['approver', 'POST', `${WS}/agents`, { id: 'by-link' }],
      ['approver', 'DELETE', `${WS}/claims/clm_none`],
      ['approver', 'DELETE', `${WS}/reservations/rsv_none`],
      ['admin', 'PUT', `${WS}/brain/entities`, entities],
      ['admin', 'DELETE', `${WS}/brain/entities/customer/c1`],
      ['admin', 'POST', '/v1/workspaces', { id: 'by-link' }],
    ];
    for (const [key, method, path, body] of acts) {
      const headers = await signedIn({ link: await link(key) });
      expect([path, (await as(headers, method, path, body)).json['code']]).toEqual([path, 'step_up_required']);
      const shown = await signedIn({ key: rig.keys[key], step_up: true }, headers);
      expect((await as(shown, method, path, body)).json['code']).not.toBe('step_up_required');
    }
    expect((await rig.send('GET', effect)).json).toMatchObject({ effect: { state: 'committed' } });
  });

  it('of somebody else in the same browser ends with the link that is opened there', async () => {
    const before = await signedIn({ key: rig.keys.account });
    const headers = await signedIn({ link: await link('approver') }, before);
    expect((await as(headers, 'GET', '/console/session')).json).toMatchObject({ user: 'maria' });
    expect(await as(before, 'GET', '/console/session')).toMatchObject({ status: 401 });
  });

  it('ends when its owner leaves: the cookie is worth nothing to whoever copied it', async () => {
    const headers = await signedIn({ key: rig.keys.account });
    const left = await as(headers, 'DELETE', '/console/session');
    expect(left).toMatchObject({ status: 204 });
    expect(String(left.headers['set-cookie'])).toContain('Max-Age=0');
    for (const path of ['/console/session', `${WS}/effects`])
      expect(await as(headers, 'GET', path)).toMatchObject({ status: 401 });
  });

  it('is ended, and begun, by no page of others, though the browser sends its cookie along', async () => {
    const headers = await signedIn({ key: rig.keys.approver });
    const { cookie = '' } = headers;
    const refused = { status: 403, json: { code: 'origin_not_allowed' } };
    for (const others of [{ cookie }, { ...headers, 'sec-fetch-site': 'same-site' }]) {
      expect(await as(others, 'DELETE', '/console/session')).toMatchObject(refused);
      expect(await as(others, 'GET', '/console/session')).toMatchObject(refused);
      const again = await as(others, 'POST', '/console/session', { key: rig.keys.approver });
      expect(again).toMatchObject(refused);
      expect(again.headers['set-cookie']).toBeUndefined();
    }
    expect((await as(headers, 'GET', '/console/session')).status).toBe(200);
  });

  it('cannot be made by who can only write to the store', async () => {
    const headers = await signedIn({ key: rig.keys.account });
    const { store } = rig.ports;
    const kept = await store.session(await idOf(headers['cookie'] ?? ''));
    // A copy of another's text under an id of one's own does not open.
    const forged = 'A'.repeat(43);
    await store.putSession(await idOf(`svc_console=${forged}`), {
      text: kept ?? '',
      until: store.now() + 60_000,
      keyId: 'key_nothing',
    });
    expect(await as({ ...OWN, cookie: `svc_console=${forged}` }, 'GET', `${WS}/effects`)).toMatchObject({
      status: 401,
    });
    expect(await as(headers, 'GET', `${WS}/effects`)).toMatchObject({ status: 200 });
  });
});

/** Under which id the store has the session of a cookie. */
async function idOf(cookie: string): Promise<string> {
  const token = cookie.replace('svc_console=', '');
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(token));
  return `session_${Buffer.from(digest).toString('base64url')}`;
}

describe('the stream of effects', () => {
  async function listen(headers: Record<string, string>): Promise<{ text: () => string; ended: Promise<void> }> {
    const answer = await rig.app.inject({
      url: `${WS}/effects/stream`,
      headers: { host: '127.0.0.1:8080', ...headers },
      payloadAsStream: true,
    });
    expect(answer.headers['content-type']).toBe('text/event-stream');
    let text = '';
    const stream = answer.stream();
    stream.setEncoding('utf8').on('data', (piece: string) => {
      text += piece;
    });
    return { text: () => text, ended: new Promise((resolve) => stream.once('end', resolve).once('close', resolve)) };
  }

  it('has what happens, for each as far as it may see it, and ends with the session', async () => {
    const headers = await signedIn({ key: rig.keys.account });
    const mine = await listen(headers);
    const others = await listen({ 'x-api-key': rig.keys.otherAgent });
    const agents = await listen({ 'x-api-key': rig.keys.agent });
    // What was before is not in it: the list has that.
    await expect.poll(() => mine.text()).toContain(': open');
    let id = '';
    await expect
      .poll(async () => {
        const { json } = await rig.send('POST', `${WS}/effects`, { key: rig.keys.agent, body: refund() });
        id = String(json['effect_id']);
        return mine.text();
      })
      .toContain('event: effect');
    await expect.poll(() => mine.text()).toContain(id);
    await expect.poll(() => agents.text()).toContain(id);
    expect(mine.text()).not.toContain('"receipt":{');
    expect(others.text()).not.toContain('eff_');
    let isOver = false;
    void mine.ended.then(() => {
      isOver = true;
    });
    await as(headers, 'DELETE', '/console/session');
    await expect.poll(() => isOver).toBe(true);
  });

  it('is open twenty times at most for one key, and for others beside it', async () => {
    const own = { 'x-api-key': rig.keys.approver };
    for (let count = 0; count < 20; count += 1) await listen(own);
    const url = `${WS}/effects/stream`;
    const headers = { host: '127.0.0.1:8080', ...own };
    const beyond = await rig.app.inject({ url, headers, payloadAsStream: true });
    expect(beyond.statusCode).toBe(429);
    await listen({ 'x-api-key': rig.keys.account });
  });
});

describe('the pages', () => {
  it('say how they are made where they were not', async () => {
    const answer = await rig.send('GET', '/console', { key: null });
    expect(answer).toMatchObject({ status: 404, json: { code: 'not_found' } });
    expect(String(answer.json['detail'])).toContain('npm run build');
  });
});

describe('links that nobody made', () => {
  it('are tried by one address so many times, and then it has to wait', async () => {
    const guess = (): Promise<Seen> =>
      rig.send('POST', '/console/session', { key: null, body: { link: 'x'.repeat(43) }, headers: OWN });
    // On a busy machine as many would become free again while they are made.
    const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
    let last = await guess();
    for (let count = 0; count < 2 * INVALID_KEY_LIMIT.burst && last.status === 401; count += 100) {
      const guesses = await Promise.all(Array.from({ length: 100 }, guess));
      last = guesses.at(-1) ?? last;
    }
    clock.mockRestore();
    expect(last).toMatchObject({ status: 429, json: { code: 'too_many_requests' } });
  });
});
