import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  type EarlierCall,
  earlierOnTarget,
  paramsThatDiffer,
  repeatText,
  whatChanged,
  whyAnew,
} from '../../src/api/approver/earlier.ts';
import { alikeHtml, alikeIn, allowedHtml } from '../../src/api/approver/alike.ts';
import { changesIn, fieldsHtml } from '../../src/api/approver/fields.ts';
import { htmlText } from '../../src/api/approver/html.ts';
import { spanText } from '../../src/api/approver/layout.ts';
import { approvalPage, overtakenText } from '../../src/api/approver/page.ts';
import { shownTo } from '../../src/api/approver/shown.ts';
import type { JsonObject } from '../../src/json/value.ts';
import type { Principal } from '../../src/effects/model/principal.ts';
import type { AllowanceRecord } from '../../src/effects/model/allowance.ts';
import { readCalls } from '../../src/effects/wire/calls.ts';
import { approverOf, begin, type SessionPorts } from '../../src/api/approver/session.ts';
import { ALLOWANCE } from '../effects/records.ts';
import { refund, type Rig, type Seen, startRig } from './rig.ts';

/* The page for approvers: what it shows to whom, and by what it decides. */

const WS = '/v1/workspaces/demo';
const ORIGIN = 'http://127.0.0.1:8080';

let rig: Rig;
/** A request that is looked at, and not decided on: an agent may have only so many at a time. */
let asked: Awaited<ReturnType<typeof waiting>>;
beforeAll(async () => {
  rig = await startRig();
  asked = await waiting();
});
afterAll(() => rig.close());

let unique = 0;
/** A refund that waits, and the path of its page. */
async function waiting(params: Record<string, unknown> = {}, agent = 'bot') {
  unique += 1;
  const own = { payment_id: 'pay_1', amount: 60_000 + unique, currency: 'EUR', ...params };
  const body = refund({ agent_id: agent, params: own });
  const run = await rig.send('POST', `${WS}/effects`, { body, key: rig.keys.account });
  if (run.json['decision'] !== 'pending_approval') throw new Error(run.text);
  const { id, url } = run.json['approval'] as unknown as { id: string; url: string };
  return { id, path: new URL(url).pathname, effect: String(run.json['effect_id']), body };
}

const look = (path: string, headers: Record<string, string> = {}): Promise<Seen> =>
  rig.send('GET', path, { key: null, headers });
const post = (path: string, fields: Record<string, string> | string, headers: Record<string, string> = {}, to = rig) =>
  to.send('POST', path, {
    key: null,
    raw: typeof fields === 'string' ? fields : new URLSearchParams(fields).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded', origin: ORIGIN, ...headers },
  });

/** Shows a key; the cookie as a browser would send it. */
async function enter(path: string, key: string): Promise<{ readonly cookie: string }> {
  const { status, headers, text } = await post(`${path}/key`, { key });
  expect([status, headers['location']], text).toEqual([303, path]);
  const [cookie = ''] = String(headers['set-cookie']).split(';');
  return { cookie };
}
/** A key of a person, through the API. */
async function made(user: string): Promise<{ readonly key: string; readonly id: string }> {
  const body = { name: 'page', kind: 'account', workspace: 'demo' };
  const { json, text } = await rig.send('POST', `/v1/beta/users/${user}/keys`, { key: rig.keys.admin, body });
  const { key, id } = json as unknown as { key?: string; id?: string };
  if (key === undefined || id === undefined) throw new Error(text);
  return { key, id };
}
async function shownToMaria() {
  const principal = await rig.ports.authenticate(rig.keys.approver);
  if ('failure' in principal) throw new Error('the key is not valid');
  const shown = await shownTo(rig.ports, { principal, user: 'maria', session: 's' }, 'demo', asked.id);
  if (shown === null) throw new Error('there is no request');
  return shown;
}
const formIn = ({ text }: Seen): string => /name="form" value="([^"]+)"/.exec(text)?.[1] ?? '';
const state = async (effect: string): Promise<unknown> =>
  (await rig.send('GET', `${WS}/effects/${effect}`)).json['effect'];

describe('the address alone', () => {
  it('shows nothing of a request, and not whether there is one', async () => {
    const { path, id } = asked;
    const [there, absent] = [await look(path), await look('/approve/demo/apr_01m7xyhnyt4aekr6z1aapwyy7a')];
    expect([there.status, absent.status]).toEqual([200, 200]);
    const shape = ({ text }: Seen): string => text.replaceAll(/apr_[0-9a-z]+/g, 'apr_');
    expect(shape(there)).toBe(shape(absent));
    for (const part of ['payments', 'refund', 'pay_1', '6000', 'olga', 'finance-lead', 'pending'])
      expect(there.text.replaceAll(id, '')).not.toContain(part);
  });

  it('is what agents get as approval.url, and never decides, whoever looks', async () => {
    const { path, effect } = asked;
    const browser = await enter(path, rig.keys.approver);
    for (const method of ['GET', 'HEAD'] as const)
      for (const query of ['', '?verdict=approve', `?api_key=${rig.keys.approver}&verdict=approve`])
        expect((await rig.send(method, path + query, { key: rig.keys.approver, headers: browser })).status).toBe(200);
    expect(await state(effect)).toMatchObject({ state: 'pending_approval', approval: { approvals: 0 } });
  });

  it('with a key in a header or the query, shows as little: only a session shows something', async () => {
    const { path } = asked;
    for (const seen of [
      await rig.send('GET', path, { key: rig.keys.approver }),
      await rig.send('GET', `${path}?api_key=${rig.keys.approver}`, { key: null }),
    ])
      expect(seen.text).toContain('Your API key');
  });

  it.each(['/approve/demo/x', '/approve/Demo/apr_1', '/approve/demo/apr_%2e%2e', '/approve/demo%3b/apr_1'])(
    'is a page that is not found: %s',
    async (path) => {
      const { status, headers } = await look(path);
      expect([status, headers['content-type']]).toEqual([404, 'text/html; charset=utf-8']);
    },
  );

  it('has headers that keep it out of frames, caches and referrers, and lets nothing run', async () => {
    const { path } = asked;
    const browser = await enter(path, rig.keys.approver);
    for (const seen of [
      await look(path),
      await look(path, browser),
      await look('/approve/demo/x'),
      await post(`${path}/key`, { key: 'no' }),
      await post(path, {}, { ...browser, 'content-type': 'text/plain' }),
      await post(path, {}, { origin: 'https://evil.example' }),
    ]) {
      expect(seen.headers).toMatchObject({
        'cache-control': 'no-store',
        'referrer-policy': 'same-origin',
        'x-content-type-options': 'nosniff',
        'x-frame-options': 'DENY',
        'cross-origin-resource-policy': 'same-origin',
        'x-robots-tag': 'noindex',
        'content-type': 'text/html; charset=utf-8',
      });
      const policy = String(seen.headers['content-security-policy']);
      expect(policy).toMatch(
        /^default-src 'none'; style-src 'sha256-[\w+/]+='; script-src 'sha256-[\w+/]+=' 'sha256-[\w+/]+='; form-action 'self'; base-uri 'none'; frame-ancestors 'none'$/,
      );
      // The one script is the one that the policy names, and reads nothing but times.
      const [script = '', ...more] = [...seen.text.matchAll(/<script>([^<]*)<\/script>/g)].map(([, text]) => text);
      expect(more).toEqual([]);
      expect(policy).toContain(`script-src 'sha256-${createHash('sha256').update(script).digest('base64')}'`);
      expect(script).not.toMatch(/fetch|XMLHttp|innerHTML|location|cookie|import/);
      expect(seen.text.replace(`<script>${script}</script>`, '')).not.toMatch(/<script|\son\w+=|style="|src=|https?:/i);
    }
  });
});

describe('who may look', () => {
  it.each([
    ['agent', 403, /may not do this/],
    ['runner', 403, /scope/],
    ['governingAgent', 403, /scope/],
    ['admin', 403, /may not do this/],
    ['readonly', 403, /scope/],
    ['stranger', 403, /another|belong to the workspace/],
    ['revoked', 401, /malformed, unknown, expired or revoked/],
    ['expired', 401, /malformed, unknown, expired or revoked/],
  ] as const)('not the key %s', async (name, status, why) => {
    const { path } = asked;
    const seen = await post(`${path}/key`, { key: rig.keys[name] });
    expect([seen.status, seen.headers['set-cookie']]).toEqual([status, undefined]);
    expect(seen.text).toMatch(why);
    expect(seen.text).not.toContain(rig.keys[name]);
  });

  it('not who sends too many invalid keys; whose key was valid here still may', async () => {
    // A gateway of its own: keys that were not seen yet wait there for a while.
    const own = await startRig();
    const show = (key: string): Promise<Seen> => post('/approve/demo/apr_1/key', { key }, {}, own);
    const { check, failed } = own.ports.invalidKeys;
    expect((await show(own.keys.approver)).status).toBe(303);
    // An address earns an attempt every 100 ms, and a busy machine may be slower than that.
    await expect
      .poll(async () => {
        while (check('127.0.0.1', null) === null) failed('127.0.0.1');
        const seen = await show('svc_acct_guess');
        return [seen.status, seen.headers['retry-after']];
      })
      .toEqual([429, '1']);
    expect((await show(own.keys.approver)).status).toBe(303);
    await own.close();
  });

  it('whose key was pasted with what stood around it; not by a passkey where browsers have none', async () => {
    const { path } = asked;
    expect((await post(`${path}/key`, { key: ` ${rig.keys.approver}\n` })).status).toBe(303);
    const { status, text } = await post(`${path}/passkey`, {});
    expect([status, text]).toEqual([409, expect.stringContaining('no passkeys for this address. Show your key.')]);
  });

  it('keys are in no answer and no line of the log', async () => {
    const { path } = asked;
    const browser = await enter(path, rig.keys.approver);
    const { text } = await look(path, browser);
    for (const key of Object.values(rig.keys)) {
      expect(text).not.toContain(key);
      expect(rig.logs()).not.toContain(key);
    }
    const [, sealed = ''] = browser.cookie.split('=');
    expect(Buffer.from(sealed, 'base64url').toString('latin1')).not.toContain('svc_');
  });
});

describe('what is shown', () => {
  it('is what the API shows: summary, where it goes, every param, cost, who asks, who may decide, until when', async () => {
    const { path } = await waiting({ reason: 'canary-of-the-reason' });
    const { text } = await look(path, await enter(path, rig.keys.approver));
    for (const part of [
      `<title>Waits for a decision: Refund ${60_000 + unique}</title>`,
      `€${((60_000 + unique) / 100).toFixed(2)}`,
      'Agent bot of olga asks. Why you: Large refunds are looked at.',
      'Refund (payments.refund)',
      'payment:pay_1',
      'payments POST /v1/payments/pay_1/refunds',
      'rig/team-day',
      'of €10,000.00',
      'agent bot',
      'olga',
      '0 of 1 for rig/refund-large: role finance-lead',
      'Large refunds are looked at',
      '(redacted)',
      'ends by itself in 60 min',
      `<dd>€${((60_000 + unique) / 100).toFixed(2)} <span class="faint">sent as ${60_000 + unique}</span></dd>`,
      'You are maria',
    ])
      expect(text).toContain(part);
    expect(text).toMatch(/On record as<\/dt><dd><a href="[^"]+">€[\d.]+ refund<\/a> <span class="faint">eff_/);
    expect(text).not.toContain('canary');
  });

  it('says in whole what the policy has to say, however long that is', async () => {
    const shown = await shownToMaria();
    const summary = `Refund, ${'with a reason that goes on and on, '.repeat(20)}to the customer`;
    const requirements = shown.approval.requirements.map((one) => ({ ...one, summary }));
    const page = approvalPage(
      { ...shown, approval: { ...shown.approval, requirements } },
      { user: 'maria', form: 'f', path: asked.path, notice: null },
    );
    expect(page).toContain(`<p class="what">${summary}</p>`);
  });

  it('is no question any more from the moment on at which its time is over, also where nobody has noted that', async () => {
    const shown = await shownToMaria();
    const at = (now: number) =>
      approvalPage({ ...shown, now }, { user: 'maria', form: 'f', path: asked.path, notice: null });
    const { expiresAt } = shown.approval;
    expect(at(expiresAt - 1)).toMatch(/<h1>Waits for a decision<[\s\S]*name="verdict"/);
    expect(at(expiresAt)).toContain('neither approved nor rejected');
    expect(at(expiresAt)).not.toMatch(/name="verdict"|<h1>(?:Approved|Rejected)/);
  });

  it('says on the button what is approved: the amount, or the tool where no budget counts it', async () => {
    const shown = await shownToMaria();
    const button = (more: Partial<typeof shown>, entered = {}): string =>
      /<button class="yes"[^>]*>[^<]*/.exec(
        approvalPage(
          { ...shown, mayChange: {}, ...more },
          { user: 'maria', form: 'f', path: asked.path, notice: null, entered },
        ),
      )?.[0] ?? '';
    expect(button({})).toMatch(/>Approve €600\.01 refund$/);
    const free = { ...shown.approval, costs: [] };
    expect(button({ approval: free })).toMatch(/>Approve payments\.refund$/);
    const long = { ...free, tool: `payments.${'refund_of_the_whole_order_'.repeat(4)}` };
    expect(button({ approval: long })).toMatch(/>Approve refund_of_the_whole_order_ref…$/);
    // Without scripts the button would go on naming an amount that was changed above it.
    const mayChange = { amount: { kind: 'range', min: 1, max: 'asked' } } as const;
    expect(button({ mayChange })).toMatch(/data-asked="Approve €600\.01 refund">Approve refund as written above$/);
    expect(button({ mayChange }, { 'money.EUR.amount': '1' })).not.toContain('data-asked');
  });

  it('warns above the buttons where the same was made shortly before, or waits as well', async () => {
    const { approval, now } = await shownToMaria();
    const params = { payment_id: 'pay_1', amount: 60_001, currency: 'EUR', reason: 'one' };
    const call = (minutes: number, more: Partial<EarlierCall> = {}): EarlierCall => ({
      id: 'eff_1',
      tool: 'payments.refund',
      at: now - minutes * 60_000,
      decision: 'committed',
      params: { ...params, reason: 'another' },
      costs: [],
      ...more,
    });
    const text = (...onTarget: EarlierCall[]): string => repeatText(approval.tool, onTarget, params, now);
    const waits = { decision: 'pending_approval' } as const;
    expect(text(call(2))).toBe('The same refund was made 2 min ago.');
    expect(text(call(1, { decision: 'in_progress' }))).toBe('The same refund was sent 1 min ago.');
    expect(text(call(180, { decision: 'unknown_effect' }), call(200))).toBe(
      'The same refund may have been made 3 h ago.',
    );
    expect(text(call(0, waits), call(1, waits), call(3))).toBe(
      'The same refund was made 3 min ago. 2 more like this are waiting.',
    );
    for (const other of [
      call(2, { tool: 'payments.get' }),
      call(2, { params: { ...params, amount: 1 } }),
      call(2, { params: { ...params, currency: 'CHF' } }),
      call(2, { params: { ...params, parts: 2 } }),
      call(2, { params: null }),
      call(2, { decision: 'failed' }),
      call(24 * 60),
    ])
      expect(text(other), JSON.stringify(other)).toBe('');
    // Where nothing is counted, the same is what has the same params.
    const mail = { to: 'a@example.com', text: 'one' };
    const of = (before: JsonObject): string => repeatText(approval.tool, [call(0, { params: before })], mail, now);
    expect([of(mail), of({ ...mail, text: 'two' })]).toEqual(['The same refund was made 1 min ago.', '']);
  });

  it('reads that warning from what the agent did on the target', async () => {
    const params = { amount: 70_000 };
    const first = await waiting(params);
    const browser = await enter(first.path, rig.keys.approver);
    const seen = await look(first.path, browser);
    expect(seen.text).not.toContain('class="notice repeat"');
    await post(first.path, { form: formIn(seen), verdict: 'approve' }, browser);
    const [second] = [await waiting(params), await waiting(params)];
    expect((await look(second.path, browser)).text).toMatch(
      /repeat">The same refund was made 1 min ago\. One more like this is waiting\.<\/p><div class="both">/,
    );
    const read = async (key: string) => (await rig.send('GET', `${WS}/approvals/${second.id}`, { key })).json;
    expect(await read(rig.keys.approver)).toMatchObject({
      repeat: 'The same refund was made 1 min ago. One more like this is waiting.',
    });
    const body = { name: 'decides, and reads no effects', profile: 'decider', workspace: 'demo' };
    const made = await rig.send('POST', '/v1/beta/users/nora/keys', { key: rig.keys.admin, body });
    const asked = await read(String(made.json['key']));
    expect(asked).toMatchObject({ id: second.id, params });
    expect(asked).not.toHaveProperty('repeat');
    await post(second.path, { form: formIn(await look(second.path, browser)), verdict: 'reject' }, browser);
    expect(await read(rig.keys.approver)).not.toHaveProperty('repeat');
  });

  it('says nothing of what another agent did there', async () => {
    const params = { payment_id: 'pay_2', amount: 72_000 };
    const first = await waiting(params);
    const browser = await enter(first.path, rig.keys.approver);
    await post(first.path, { form: formIn(await look(first.path, browser)), verdict: 'approve' }, browser);
    const others = await waiting(params, 'other-bot');
    const { text } = await look(others.path, browser);
    expect(text).toContain('Agent other-bot asks.');
    expect(text).not.toContain('class="notice repeat"');
    expect(text).toContain('Nothing of this agent is on record.');
    const again = await waiting(params);
    expect((await look(again.path, browser)).text).toContain('repeat">The same refund was made');
    for (const { path } of [others, again])
      await post(path, { form: formIn(await look(path, browser)), verdict: 'reject' }, browser);
  });

  it('looks for it among the last 20 calls on the target', async () => {
    const { approval } = await shownToMaria();
    const effect = await rig.core.store.effect('demo', asked.effect);
    const principal = await rig.ports.authenticate(rig.keys.approver);
    if (effect === null || 'failure' in principal) throw new Error('there is no call, or no key');
    const life = { ...effect.life, state: 'committed', at: effect.createdAt + 1 } as typeof effect.life;
    const others = Array.from({ length: 29 }, (_, n) => ({ ...effect, id: `eff_${n}` }));
    const calls = [...others.slice(0, 1), { ...effect, id: 'eff_happened', life }, ...others.slice(1)];
    const store: typeof rig.ports.store = {
      ...rig.ports.store,
      effects: async (_, { limit }) => ({ items: calls.slice(0, limit), next: null }),
    };
    const found = await earlierOnTarget({ store }, approval, readCalls(rig.ports, principal, 'page'));
    expect(found.map(({ id }) => id)).toEqual(calls.slice(0, 20).map(({ id }) => id));
    // When it was asked, and where it is known when it happened.
    expect(found.slice(0, 2).map(({ at }) => at - effect.createdAt)).toEqual([0, 1]);
  });

  it('says what the tool says about undoing it, where it says something', async () => {
    const shown = await shownToMaria();
    const { tool } = shown;
    if (tool === null) throw new Error('there is no tool');
    const undone = (annotations: JsonObject): string => {
      const call = {
        kind: 'mcp',
        name: 'refund',
        pinned: { annotations },
        isError: 'failed',
        onClientClose: 'finish',
      } as const;
      const said = approvalPage(
        { ...shown, tool: { ...tool, call } },
        { user: 'maria', form: 'f', path: asked.path, notice: null },
      );
      return /Can it be undone\?<\/dt><dd>([^<]*)/.exec(said)?.[1] ?? '';
    };
    expect(undone({ destructiveHint: true })).toContain('may destroy or overwrite');
    expect(undone({ destructiveHint: false })).toContain('only adds, and destroys nothing');
    expect(undone({ readOnlyHint: true, destructiveHint: true })).toContain('changes nothing');
    expect(undone({})).toBe('');
  });

  it('offers to let the next calls in as often and as long as the policy lets, and neither that nor a field where the question is stale', async () => {
    const shown = await shownToMaria();
    const hour = 3_600_000;
    const now = shown.now + hour;
    const alike = { times: 7, forMs: hour, varies: {} };
    const mayChange = { currency: { kind: 'text', maxLength: 9 } } as const;
    const of = (kind: 'asked' | 'stale'): string =>
      approvalPage(
        {
          ...shown,
          now,
          approval: { ...shown.approval, expiresAt: now + hour },
          alike,
          mayChange,
          standing: { kind, reason: null, pausedBy: null },
        },
        { user: 'maria', form: 'f', path: asked.path, notice: null },
      );
    const open = of('asked');
    expect([...open.matchAll(/<option value="(\d+)">Let/g)].map(([, times]) => times)).toEqual([
      '1',
      '2',
      '3',
      '5',
      '7',
    ]);
    expect(open).toContain(`name="alike_until" value="${new Date(now + hour).toISOString()}"`);
    expect(open).toContain('name="param.currency"');
    const stale = of('stale');
    expect(stale).toContain('name="verdict" value="approve"');
    expect(stale).not.toMatch(/name="(?:alike|param\.)/);
  });

  it('has the allowances that this person gave and that are still open, once the request is decided', async () => {
    const principal = await rig.ports.authenticate(rig.keys.approver);
    if ('failure' in principal) throw new Error('the key is not valid');
    const now = rig.ports.store.now();
    const given = (id: string, user: string, more: Partial<AllowanceRecord> = {}): AllowanceRecord => ({
      ...ALLOWANCE,
      id,
      likeness: id,
      approvalId: 'apr_other',
      effectId: 'eff_other',
      by: { user, keyId: 'k' },
      times: 3,
      used: 1,
      givenAt: now,
      expiresAt: now + 60_000,
      epoch: rig.ports.store.health().epoch,
      ...more,
    });
    const items = [
      given('alw_own', 'maria'),
      given('alw_of_tom', 'tom'),
      given('alw_revoked', 'maria', { ended: { why: 'revoked', at: now, by: 'maria' } }),
      given('alw_used_up', 'maria', { used: 3 }),
      given('alw_over', 'maria', { expiresAt: now }),
      given('alw_forged', 'maria', { isForged: true }),
    ];
    const of = async (status: 'pending' | 'rejected') => {
      const store: typeof rig.ports.store = {
        ...rig.ports.store,
        approval: async (workspace, id) => {
          const approval = await rig.ports.store.approval(workspace, id);
          return approval && { ...approval, status };
        },
        allowances: async () => ({ items, next: null }),
      };
      const shown = await shownTo(
        { ...rig.ports, store },
        { principal, user: 'maria', session: 's' },
        'demo',
        asked.id,
      );
      return shown?.allowances.map(({ id }) => id);
    };
    expect([await of('pending'), await of('rejected')]).toEqual([[], ['alw_own']]);
  });

  it('says to whoever registered the agent that they do not decide, before they try', async () => {
    const principal = await rig.ports.authenticate(rig.keys.approver);
    const bot = rig.ports.directory.agent('demo', 'bot');
    if ('failure' in principal || bot === null) throw new Error('there is no key, or no agent');
    const obstacle = async (registeredBy: string) => {
      const directory: typeof rig.ports.directory = {
        ...rig.ports.directory,
        rolesOf: (user) => rig.ports.directory.rolesOf(user),
        agent: () => ({ ...bot, registeredBy }),
      };
      const approver = { principal, user: 'maria', session: 's' };
      return (await shownTo({ ...rig.ports, directory }, approver, 'demo', asked.id))?.obstacle;
    };
    expect([await obstacle('tom'), await obstacle('maria')]).toEqual([null, expect.stringMatching(/^It is your own/)]);
  });

  it('shows the headers that are a part of the call beside its params', async () => {
    const shown = await shownToMaria();
    const params = { params: { amount: 5 }, headers: { 'x-account': 'acme-eu' } };
    const of = (more: Partial<typeof shown>): string =>
      approvalPage({ ...shown, ...more }, { user: 'maria', form: 'f', path: asked.path, notice: null });
    expect(of({ params })).toMatch(/<h2>Headers<\/h2>[\s\S]*x-account[\s\S]*acme-eu/);
    expect(of({})).not.toContain('Headers');
  });

  it('says of a budget what was left before, and once it is decided what is left now', async () => {
    const shown = await shownToMaria();
    const of = (status: 'pending' | 'used' | 'rejected' | 'expired'): string =>
      approvalPage(
        { ...shown, approval: { ...shown.approval, status } },
        { user: 'maria', form: 'f', path: asked.path, notice: null },
      );
    expect(of('pending')).toContain('Left before this');
    expect(of('pending')).toContain('>Takes<');
    for (const status of ['used', 'rejected', 'expired'] as const) expect(of(status)).toContain('Left now');
    for (const status of ['rejected', 'expired'] as const) expect(of(status)).toContain('>Would have taken<');
  });

  it('says from when on others may decide as well, and who', async () => {
    const shown = await shownToMaria();
    const { approval } = shown;
    const escalate = { afterMs: 600_000, to: { roles: ['head'], users: ['tom'] } };
    const requirements = approval.requirements.map((one) => ({ ...one, escalate }));
    const text = approvalPage(
      { ...shown, approval: { ...approval, requirements } },
      { user: 'maria', form: 'f', path: asked.path, notice: null },
    );
    const from = new Date(approval.createdAt + 600_000).toISOString();
    expect(text).toMatch(
      new RegExp(`role finance-lead; from <time datetime="${from}"[^>]*>[^<]*</time> on also role head, tom`),
    );
  });

  it('is told to people over the API as well, in the same words', async () => {
    const { id, path } = await waiting({ amount: 71_000 });
    const key = rig.keys.account;
    const scope = { tool: 'payments.refund' };
    // It has the form of a time, and is none.
    const body = { scope, reason: 'stock-take 2026-99-99T99:99:99.999Z', until: '2030-01-01T00:00:00.000Z' };
    const { id: pause } = (await rig.send('POST', `${WS}/pauses`, { key, body })).json;
    const foreseen =
      /^Paused: Stock-take 2026-99-99T99:99:99\.999Z\. If you approve, it waits until 2030-01-01T00:00:00\.000Z; if that/;
    const read = async (by: string) => (await rig.send('GET', `${WS}/approvals/${id}`, { key: by })).json;
    expect(await read(rig.keys.approver)).toMatchObject({ foreseen: expect.stringMatching(foreseen) });
    // Whoever asked decides nothing, and is not told by what.
    expect((await read(rig.keys.agent))['status']).toBe('pending');
    expect(await read(rig.keys.agent)).not.toHaveProperty('foreseen');
    const browser = await enter(path, rig.keys.approver);
    expect((await look(path, browser)).text).toMatch(
      /repeat">Paused: Stock-take 2026-99-99T99:99:99\.999Z\. If you approve, it waits until <time datetime="2030-01-01T/,
    );
    await rig.send('DELETE', `${WS}/pauses/${String(pause)}`, { key });
    expect(await read(rig.keys.approver)).not.toHaveProperty('foreseen');
  });

  it('shows a long text to its end for who asks for the rest, and says by how much what is longer still is cut', async () => {
    const text = `${'a'.repeat(2_500)}<b>${'z'.repeat(10)}`;
    const { path } = await waiting({ currency: text });
    const { text: seen } = await look(path, await enter(path, rig.keys.approver));
    expect(seen).toMatch(/<summary>Show all: 515 more characters<\/summary><pre>a+&lt;b&gt;z{10}&quot;<\/pre>/);
    expect(seen).not.toContain('Some are cut');
    // With its quotes as long as what is shown at once.
    const whole = await waiting({ currency: 'c'.repeat(1_998) });
    const { text: apart } = await look(whole.path, await enter(whole.path, rig.keys.approver));
    const [params = '', others = ''] = apart.split('What it costs');
    expect(params).not.toContain('Show all');
    // Beside the value of before less has room.
    expect(others).toMatch(
      /<pre>c{200}…<\/pre><details><summary>Show all: 1,798 more characters<\/summary><pre>c{1798}</,
    );
    const longer = await waiting({ currency: 'b'.repeat(21_000) });
    const { text: cut } = await look(longer.path, await enter(longer.path, rig.keys.approver));
    expect(cut).toContain('… (1000 more characters)');
    expect(cut).toContain('of a text, 20,000 characters are shown');
  });

  it('says who was faster, with what and when', async () => {
    const shown = await shownToMaria();
    const at = shown.now;
    const vote = { user: 'tom', keyId: 'k', verdict: 'reject', at, comment: null, requirements: [0] } as const;
    const of = (more: Partial<typeof shown.approval>, replacedBy: string | null = null): string => {
      const late = overtakenText({ ...shown, replacedBy, approval: { ...shown.approval, ...more } }, 'maria');
      return late === null ? '' : htmlText(late).replaceAll(/<[^>]+>/g, '');
    };
    const changed = { by: 'tom', at, params: ['amount'], sealed: null, askedDigest: 'd' };
    expect(of({})).toBe('');
    expect(of({ status: 'rejected', votes: [vote] })).toMatch(/^tom rejected it at .* UTC, before your answer came\./);
    expect(of({ status: 'used', votes: [{ ...vote, user: 'maria', verdict: 'approve' }] })).toMatch(/^You approved it/);
    expect(of({ changed })).toMatch(/^tom changed amount at .* UTC, before your answer came/);
    expect(of({ status: 'expired', decidedAt: at }, 'apr_2')).toMatch(
      /^Policy or the tool was changed, and people are asked anew/,
    );
    expect(of({ status: 'expired', decidedAt: shown.approval.expiresAt })).toMatch(/^The time to decide was over/);
  });

  it('says of a change that did not run which values are those', async () => {
    const shown = await shownToMaria();
    const changed = { by: 'tom', at: shown.now, params: ['amount'], sealed: null, askedDigest: 'd' };
    const of = (status: 'expired' | 'used'): string =>
      approvalPage(
        { ...shown, approval: { ...shown.approval, status, changed } },
        { user: 'maria', form: 'f', path: asked.path, notice: null },
      );
    expect(of('expired')).toContain(
      'what stands above is as it was changed, and the params below are as the agent asked',
    );
    expect(of('used')).not.toContain('did not run');
  });

  it('says how many have to approve where one vote is not enough', async () => {
    const shown = await shownToMaria();
    const of = (quorum: number) => {
      const requirements = shown.approval.requirements.map((one) => ({ ...one, quorum }));
      const approval = { ...shown.approval, requirements };
      return approvalPage({ ...shown, approval }, { user: 'maria', form: 'f', path: asked.path, notice: null });
    };
    expect(of(2)).toMatch(/So far 0 of 2 approvals; nothing is sent before\.[\s\S]*value="approve"/);
    expect(of(1)).not.toContain('nothing is sent before');
  });

  it('counts what other calls hold of a budget as gone', async () => {
    const shown = await shownToMaria();
    const left = (spent: number, held: number): string => {
      const costs = shown.costs.map(({ cost }) => {
        const { budget, unit } = cost;
        const row = { budget, unit, bucket: 'b', window: 'w', limit: 1_000_000, spent, held, resetsAt: null };
        return { cost, row };
      });
      return approvalPage({ ...shown, costs }, { user: 'maria', form: 'f', path: asked.path, notice: null });
    };
    expect(left(0, 0)).toContain('€10,000.00 of €10,000.00');
    expect(left(100_000, 0)).toContain('€9,000.00 of €10,000.00');
    expect(left(100_000, 250_000)).toContain('€6,500.00 of €10,000.00');
    expect(left(800_000, 250_000)).toContain('€0.00 of €10,000.00');
  });

  it('has no field for what would come back as another value of a form in which nothing was changed', async () => {
    const shown = await shownToMaria();
    const range = { kind: 'range', min: 1, max: null } as const;
    const text = { kind: 'text', maxLength: 9 } as const;
    const mayChange = { number: range, digits: range, flag: range, absent: range, words: text, count: text };
    const params = { params: { number: 5, digits: '5', flag: true, words: 'w', count: 5 } };
    const edited = { ...shown, mayChange, params };
    const names = [...htmlText(fieldsHtml(edited, {})).matchAll(/ name="([^"]+)"/g)].map(([, name]) => name);
    expect(names).toEqual(['param.number', 'param.absent', 'param.words']);
    const untouched = { number: '5', absent: '', words: 'w' };
    const form = Object.fromEntries(Object.entries(untouched).map(([name, value]) => [`param.${name}`, value]));
    expect(changesIn(edited, form)).toBeNull();
    expect(changesIn(edited, { ...form, 'param.number': '4', 'param.absent': '3' })).toEqual({ number: 4, absent: 3 });
  });

  it('says what may stand in a field, takes nothing else, and has none for what is too long or has parts', async () => {
    const shown = await shownToMaria();
    const bounds = { kind: 'text', maxLength: 9_000 } as const;
    const mayChange = {
      least: { kind: 'range', min: 1, max: null },
      most: { kind: 'range', min: null, max: 'asked' },
      one: { kind: 'choice', of: ['EUR', 'USD'] },
      long: bounds,
      longer: bounds,
      parts: { kind: 'choice', of: ['a'] },
    } as const;
    const own = { least: 5, most: 6, one: 'EUR', long: 'x'.repeat(2_000), longer: 'x'.repeat(2_001), parts: ['a'] };
    const edited = { ...shown, mayChange, params: { params: own, asked_params: { ...own, most: 8 } } };
    const html = htmlText(fieldsHtml(edited, {}, { least: 'least is none.' }));
    expect([...html.matchAll(/<label for="f\d">([^<]*)</g)].map(([, label]) => label)).toEqual([
      'least: at least 1',
      'most: at most 8',
      'one: one of these',
      'long: at most 9000 characters',
    ]);
    expect(html).toContain(' aria-invalid="true" aria-describedby="f0-fault" autofocus');
    expect(html).toContain('<p class="fault" id="f0-fault">least is none.</p>');
    for (const [name, text, why] of [
      ['least', '', 'least has to be a number'],
      ['least', 'five', 'least has to be a number'],
      ['one', '2', 'one may be one of EUR, USD. Nothing was decided.'],
      ['one', 'USD', 'one may be one of EUR, USD'],
      ['longer', 'x', 'another shape'],
    ] as const)
      expect(() => changesIn(edited, { [`param.${name}`]: text }), `${name} ${text}`).toThrow(why);
    expect(changesIn(edited, { 'param.one': '', 'param.least': '5' })).toBeNull();
    expect(changesIn(edited, { 'param.one': '0' })).toBeNull();
    expect(changesIn(edited, { 'param.one': '1' })).toEqual({ one: 'USD' });
  });

  it.each([
    [1, '1 min'],
    [60_000, '1 min'],
    [60_001, '2 min'],
    [119 * 60_000, '119 min'],
    [120 * 60_000, '2 h'],
    [150 * 60_000, '2 h 30 min'],
    [48 * 3_600_000 - 60_000, '47 h 59 min'],
    [48 * 3_600_000 + 60_000, '48 h'],
  ])('writes %i ms as %s', (ms, text) => expect(spanText(ms)).toBe(text));

  it('a text of several lines that nobody touched is no change; one that cannot be shown as it is has no field', async () => {
    const shown = await shownToMaria();
    const text = { kind: 'text', maxLength: 200 } as const;
    const params = { params: { body: '\nOne\n\nTwo', tabs: 'a\tb', returns: 'a\r\nb', hidden: 'a\u202eb' } };
    const edited = { ...shown, mayChange: { body: text, tabs: text, returns: text, hidden: text }, params };
    const field = htmlText(fieldsHtml(edited, {}));
    expect([...field.matchAll(/ name="([^"]+)"/g)].map(([, name]) => name)).toEqual(['param.body']);
    // A browser leaves out the line break after the tag.
    expect(field).toContain('>\n\nOne\n\nTwo</textarea>');
    expect(changesIn(edited, { 'param.body': '\r\nOne\r\n\r\nTwo' })).toBeNull();
    expect(changesIn(edited, { 'param.body': 'One\r\nThree' })).toEqual({ body: 'One\nThree' });
  });

  it('has no field for the currency of an amount that stands in it', async () => {
    const shown = await shownToMaria();
    const range = { kind: 'range', min: 1, max: null } as const;
    const choice = { kind: 'choice', of: ['EUR', 'JPY'] } as const;
    const of = (unit: string) => {
      const costs = shown.approval.costs.map((one) => ({ ...one, unit, amount: 2500 }));
      const params = { params: { amount: 2500, currency: 'EUR' } };
      const edited = { ...shown, mayChange: { amount: range, currency: choice }, params };
      const fields = htmlText(fieldsHtml({ ...edited, approval: { ...shown.approval, costs } }, {}));
      return [...fields.matchAll(/ name="([^"]+)"/g)].map(([, name]) => name);
    };
    expect(of('cent')).toEqual(['money.EUR.amount']);
    expect(of('call')).toEqual(['param.amount', 'param.currency']);
  });

  it('has a field in money for the one param that a budget of money takes, and for no other', async () => {
    const shown = await shownToMaria();
    const range = { kind: 'range', min: 1, max: 'asked' } as const;
    const mayChange = { amount: range, parts: range };
    const of = (more: JsonObject, cost: { readonly unit: string; readonly amount: number }) => {
      const costs = shown.approval.costs.map((one) => ({ ...one, ...cost }));
      const params = { params: { amount: 2500, parts: 3, currency: 'EUR', ...more } };
      return { ...shown, mayChange, params, approval: { ...shown.approval, costs } };
    };
    const fields = (edited: ReturnType<typeof of>) =>
      [...htmlText(fieldsHtml(edited, {})).matchAll(/ name="([^"]+)"[^>]* value="([^"]+)"/g)].map((found) =>
        found.slice(1),
      );
    const money = of({}, { unit: 'cent', amount: 2500 });
    expect(fields(money)).toEqual([
      ['money.EUR.amount', '25.00'],
      ['param.parts', '3'],
    ]);
    expect(changesIn(money, { 'money.EUR.amount': '25.00', 'param.parts': '3' })).toBeNull();
    expect(changesIn(money, { 'money.EUR.amount': '25', 'param.parts': '3' })).toBeNull();
    expect(changesIn(money, { 'money.EUR.amount': '1.05' })).toEqual({ amount: 105 });
    // To the digit, also where a division would round.
    const most = of({ amount: Number.MAX_SAFE_INTEGER - 1 }, { unit: 'cent', amount: Number.MAX_SAFE_INTEGER - 1 });
    expect(fields(most)[0]).toEqual(['money.EUR.amount', '90071992547409.90']);
    expect(changesIn(most, { 'money.EUR.amount': '90071992547409.90', 'param.parts': '3' })).toBeNull();
    for (const text of ['25.01', '0', '0.001', '1e1', '-1', '1,000', '1.000,05', ''])
      expect(() => changesIn(money, { 'money.EUR.amount': text }), text).toThrow(/amount/);
    for (const [text, amount] of [
      ['1,05', 105],
      ['1,5', 150],
      [' 12.3 ', 1230],
    ] as const)
      expect(changesIn(money, { 'money.EUR.amount': text }), text).toEqual({ amount });
    expect(() => changesIn(money, { 'param.amount': '1' })).toThrow('another shape');
    expect(fields(of({ currency: 'JPY' }, { unit: 'cent', amount: 2500 }))[0]).toEqual(['money.JPY.amount', '2500']);
    for (const [more, unit, amount] of [
      [{ parts: 2500 }, 'cent', 2500],
      [{}, 'cent', 100],
      [{}, 'call', 2500],
      [{ currency: 'xyz' }, 'cent', 2500],
    ] as const)
      expect(fields(of(more, { unit, amount }))[0], JSON.stringify([more, unit])).toEqual(['param.amount', '2500']);
  });

  it('names each limit that the call would go beyond, with what is left of it, whichever rule asks first', async () => {
    const shown = await shownToMaria();
    const [first, cost] = [shown.approval.requirements[0], shown.costs[0]?.cost];
    if (first === undefined || cost === undefined) throw new Error('nothing is asked');
    const row = { ...cost, limit: 100_000, spent: 30_000, held: 20_000, resetsAt: null };
    const requirements = [
      first,
      { ...first, beyond: `budget:${cost.budget}` },
      { ...first, beyond: 'rate:world/calls' },
    ];
    const of = (status: 'pending' | 'rejected') =>
      approvalPage(
        { ...shown, costs: [{ cost, row }], approval: { ...shown.approval, requirements, status } },
        { user: 'maria', form: 'f', path: asked.path, notice: null },
      );
    expect(of('pending')).toContain(
      `Beyond a limit: budget ${cost.budget} has €500.00 left of €1,000.00, and this takes €600.01.`,
    );
    expect(of('pending')).toContain('Beyond a limit: rate world/calls is used up.');
    expect(of('rejected')).not.toContain('Beyond a limit');
  });

  it('says what has changed since this person saw the question, and nothing where it is the same', async () => {
    const now = await rig.ports.store.approval('demo', asked.id);
    if (now === null) throw new Error('there is no request');
    expect(whatChanged(now, now, 'EUR')).toEqual([]);
    const [requirement] = now.requirements;
    if (requirement === undefined) throw new Error('nobody is asked');
    const before = { ...now, requirements: [{ ...requirement, quorum: 2, summary: 'Another <b>text</b>' }] };
    const changed = whatChanged(before, now, 'EUR');
    expect(changed.map(({ name }) => name)).toEqual(['What will happen', 'Who may decide']);
    const [cost] = now.costs;
    if (cost === undefined) throw new Error('it costs nothing');
    const other = {
      ...now,
      requirements: [{ ...requirement, rule: 'rig/other' }],
      costs: [{ ...cost, amount: null, limit: 5_000 }],
    };
    expect(whatChanged(other, now, 'EUR')).toEqual([
      { name: 'Asked by', before: 'rig/other', now: 'rig/refund-large' },
      {
        name: 'Takes from budgets',
        before: '? of rig/team-day, of €50.00 in all',
        now: '€600.01 of rig/team-day, of €10,000.00 in all',
      },
    ]);
    const to = { roles: ['cfo'], users: ['nora'] };
    const later = { ...now, requirements: [{ ...requirement, escalate: { afterMs: 1, at: 1, to } }] };
    expect(whatChanged(now, later, 'EUR')).toMatchObject([
      { name: 'Who may decide', now: '1 of finance-lead, later also cfo, nora' },
    ]);
    const shown = await shownToMaria();
    const text = approvalPage(shown, { user: 'maria', form: 'f', path: asked.path, notice: null, changed });
    expect(text).toMatch(
      /role="alert">What is asked has changed[\s\S]*<td>Another &lt;b&gt;text[\s\S]*2 of finance-lead/,
    );
  });

  it('offers the next calls once each, and says in what they may differ, and what was allowed', async () => {
    const shown = await shownToMaria();
    const offered = (times: number, varies: object = {}) => {
      const alike = { times, forMs: 3_600_000, varies: JSON.parse(JSON.stringify(varies)) };
      return htmlText(alikeHtml({ ...shown, alike }, {}));
    };
    const counts = (times: number) =>
      [...offered(times).matchAll(/<option value="(\d+)"/g)].map(([, count]) => Number(count));
    expect([counts(1), counts(5), counts(7)]).toEqual([[1], [1, 2, 3, 5], [1, 2, 3, 5, 7]]);
    expect(offered(2)).toMatch(/>Let the next one in without asking<.*>Let the next 2 in without asking</s);
    expect(offered(2)).toContain('the same params, all of them. Budgets');
    const choice = { currency: { kind: 'choice', of: ['EUR', 'USD'] } };
    expect(offered(2, choice)).toContain('the same params, but for currency: EUR or USD. Budgets');
    const range = { amount: { kind: 'range', min: 1, max: 60_001 } };
    expect(offered(2, range)).toContain('but for amount: €0.01 to €600.01. Budgets');
    const chosen = alikeHtml({ ...shown, alike: { times: 7, forMs: 1, varies: {} } }, { alike: '5' });
    expect(htmlText(chosen).match(/<option[^>]* selected>/g)).toEqual(['<option value="5" selected>']);
    const allowed = (times: number) => htmlText(allowedHtml({ ...shown, allowed: { ...ALLOWANCE, times } }));
    expect([allowed(1), allowed(3)]).toEqual([
      expect.stringContaining('maria let the next call like it in'),
      expect.stringContaining('maria let the next 3 calls like it in'),
    ]);
    expect(allowed(1)).toContain(`until <time datetime="${new Date(ALLOWANCE.expiresAt).toISOString()}"`);
  });

  it.each([
    [{}, undefined],
    [
      { alike: '3', alike_until: '2026-01-02T03:04:05.000Z' },
      { times: 3, until: Date.UTC(2026, 0, 2, 3, 4, 5) },
    ],
    [{ alike: '0', alike_until: '2026-01-02T03:04:05.000Z' }, null],
    [{ alike: '1e3', alike_until: '2026-01-02T03:04:05.000Z' }, null],
    [{ alike: '1000', alike_until: '2026-01-02T03:04:05.000Z' }, null],
    [{ alike: '3' }, null],
    [{ alike: '3', alike_until: 'tomorrow' }, null],
  ])('of a form with %j takes the next calls as the page gives them, and nothing else', (fields, asked) => {
    expect(alikeIn(fields)).toEqual(asked);
  });

  it('says why people are asked anew, and to who approved that nothing was sent', async () => {
    const { approval: now } = await shownToMaria();
    const [requirement] = now.requirements;
    if (requirement === undefined) throw new Error('nobody is asked');
    const vote = { user: 'maria', keyId: 'k', verdict: 'approve', at: 0, comment: null, requirements: [0] } as const;
    const before = { ...now, id: 'apr_0', votes: [vote], requirements: [{ ...requirement, ruleDigest: 'of before' }] };
    expect(whyAnew(before, now, 'maria', false)).toBe(
      'What would run now is not what you approved, so nothing was sent. People are asked anew. Written anew: rule rig/refund-large. Decide on what stands below.',
    );
    const same = { ...before, requirements: now.requirements };
    expect(whyAnew(same, now, 'nora', false)).toMatch(
      /^Policy or the tool was changed .* payments\.refund was declared anew/,
    );
    expect(whyAnew(same, now, 'nora', true)).not.toContain('Nothing differs');
  });

  it('says when the agent asked, and apart from that when people were asked anew', async () => {
    const shown = await shownToMaria();
    const of = (createdAt: number): string =>
      approvalPage(
        { ...shown, approval: { ...shown.approval, createdAt } },
        { user: 'maria', form: 'f', path: '/', notice: null },
      );
    const { createdAt = 0 } = shown.effect ?? {};
    const times = (text: string) => [...text.matchAll(/<dt>(Asked [\w ]*at)<\/dt><dd>.*?datetime="([^"]+)"/g)];
    const iso = (at: number): string => new Date(at).toISOString();
    expect(times(of(createdAt)).map(([, ...found]) => found)).toEqual([['Asked at', iso(createdAt)]]);
    expect(times(of(createdAt + 60_000)).map(([, ...found]) => found)).toEqual([
      ['Asked at', iso(createdAt)],
      ['Asked anew at', iso(createdAt + 60_000)],
    ]);
  });

  it('says before the vote what keeps the call from being sent', async () => {
    const shown = await shownToMaria();
    expect(shown.standing).toEqual({ kind: 'asked', reason: null, pausedBy: null });
    const of = (standing: Partial<NonNullable<typeof shown.standing>>): string => {
      const foreseen = { kind: 'asked', reason: null, pausedBy: null, ...standing } as const;
      const text = approvalPage(
        { ...shown, standing: foreseen },
        { user: 'maria', form: 'f', path: '/', notice: null },
      );
      return text.slice(0, text.indexOf('<form')).replaceAll(/<[^>]+>/g, '');
    };
    expect(of({})).not.toContain('If you approve');
    expect(of({ kind: 'stale' })).toContain('If you approve, nothing is sent, and people are asked anew');
    const reason = { code: 'agent_disabled', message: 'There is no account.' } as const;
    expect(of({ kind: 'refused', reason })).toMatch(
      /Policy refuses it now: There is no account\. If you approve, nothing is/,
    );
    expect(of({ kind: 'gone' })).toContain('no longer there. If you approve, nothing is sent.');
    const pausedBy = { id: 'pau_1', reason: 'stock-take', until: shown.now + 60_000 };
    expect(of({ pausedBy })).toMatch(
      /Paused: Stock-take\. If you approve, it waits until .* UTC; if that is not before/,
    );
    // Whoever waits for one of two to end learns of the other.
    expect(of({ kind: 'refused', reason, pausedBy })).toMatch(/There is no account\..*Paused: Stock-take\./);
  });

  it('says what a call did that failed, and that it took nothing', async () => {
    const shown = await shownToMaria();
    if (shown.effect === null) throw new Error('there is no call');
    const evidence = {
      code: 'http_422',
      message: 'the upstream answered 422',
      answered: null,
      startedAt: 0,
      endedAt: 0,
    };
    const life = { state: 'failed', at: 0, settledBy: { by: 'owner' }, evidence, result: null } as const;
    const fence = { epoch: 1, n: 1, nonce: '' };
    const lease = { fence, owner: '', admittedAt: 0, dispatchBy: 0, leaseEnd: 0, quiesceUntil: 0 };
    const approval = { ...shown.approval, status: 'used' } as const;
    const of = (effect: typeof shown.effect): string =>
      approvalPage({ ...shown, approval, effect }, { user: 'maria', form: 'f', path: '/', notice: null });
    expect(of({ ...shown.effect, life })).toMatch(/>The upstream answered 422\.<[\s\S]*Would have taken/);
    expect(of({ ...shown.effect, life: { state: 'unknown', at: 0, lease, evidence } })).toContain('>Takes<');
  });

  describe('opened again', () => {
    const EVIDENCE = { code: 'http_422', message: 'no', answered: null, startedAt: 0, endedAt: 0 };
    const FENCE = { epoch: 1, n: 1, nonce: '' };
    const LEASE = { fence: FENCE, owner: '', admittedAt: 0, dispatchBy: 0, leaseEnd: 0, quiesceUntil: 0 };
    const AT = Date.parse('2026-06-15T10:00:00Z');
    type Shown = Awaited<ReturnType<typeof shownToMaria>>;
    type Life = NonNullable<Shown['effect']>['life'];
    const COMMITTED: Life = {
      state: 'committed',
      at: AT,
      settledBy: { by: 'owner' },
      evidence: EVIDENCE,
      receipt: { id: 'rcp_7', jws: 'signed.receipt.text' },
      result: null,
      accepted: false,
      responseTruncated: false,
    };
    const DENIED: Life = {
      state: 'denied',
      at: AT,
      decision: 'denied_policy',
      reason: { code: 'rule_denied', message: 'Frozen for the night.' },
      mismatches: [],
    };
    const pageOf = (shown: Shown): string =>
      approvalPage(shown, { user: 'maria', form: 'f', path: '/', notice: null }).replaceAll(/<time[^>]*>/g, '');
    /** What became of a request that was approved and used, by how its call stands. */
    async function became(life: Life | null, more: Partial<Shown> = {}): Promise<string> {
      const shown = await shownToMaria();
      const { approval, effect } = shown;
      const then = effect === null || life === null ? null : { ...effect, life };
      return pageOf({ ...shown, approval: { ...approval, status: 'used' }, effect: then, ...more });
    }
    async function standing(change: Partial<Shown['approval']>): Promise<string> {
      const shown = await shownToMaria();
      return pageOf({ ...shown, approval: { ...shown.approval, ...change } });
    }

    /** Of this call; what is said of those before it begins alike. */
    const HAPPENED = /It happened\. The gateway recorded/;
    it.each<[string, Life | null, RegExp, RegExp]>([
      ['runs', { state: 'executing', lease: LEASE }, /<h1>Approved, and sent<[\s\S]*It is running/, HAPPENED],
      ['happened', COMMITTED, /<h1>Approved, and sent<[\s\S]*It happened/, /did not happen/],
      ['is unknown', { state: 'unknown', at: AT, lease: LEASE, evidence: EVIDENCE }, /Nobody knows/, /did not happen/],
      ['was stopped', DENIED, /<h1>Approved, and not sent<[\s\S]*Frozen for the night\./, HAPPENED],
      ['waits anew', { state: 'pending_approval', approvalId: 'apr_2' }, /waits for another decision/, HAPPENED],
      ['was rejected later', { state: 'rejected', at: AT, approvalId: 'a', until: AT }, /rejected later/, HAPPENED],
      ['is on record no more', null, /Its record is gone/, HAPPENED],
    ])('says of a call that %s how it stands, and not more', async (_what, life, says, never) => {
      const page = await became(life);
      expect(page).toMatch(says);
      expect(page).not.toMatch(never);
      expect(page).not.toContain('name="verdict"');
    });

    it('has the signed receipt for who may read effects, and for nobody else', async () => {
      expect(await became(COMMITTED)).toMatch(/rcp_7[\s\S]*signed\.receipt\.text/);
      expect(await became(COMMITTED, { mayReadEffects: false })).not.toMatch(/rcp_7|signed\.receipt/);
    });

    it('says why an approved call is not sent yet, until when it is tried, and why one never was', async () => {
      const stopped = { at: AT, decision: 'denied_paused', reason: DENIED.reason } as const;
      const granted = await standing({ status: 'granted', expiresAt: AT, stopped });
      expect(granted).toMatch(/<h1>Approved, and not sent yet<[\s\S]*until [^.]*2026[^.]*\. Frozen for the night\./);
      const never = await standing({ status: 'expired', decidedAt: AT, stopped });
      expect(never).toMatch(/<h1>Approved, and not sent<[\s\S]*Nothing was sent\. Frozen for the night\./);
    });

    it('tells a request that is void, because what is asked has changed, from one whose time is over', async () => {
      const expiresAt = AT;
      const ended = (decidedAt: number) => standing({ status: 'expired', expiresAt, decidedAt, stopped: null });
      expect(await ended(AT - 1)).toMatch(/<h1>No longer asked</);
      expect(await ended(AT)).toMatch(/<h1>Its time is over</);
    });

    it('says to who has approved that others have to, and has no second button for it', async () => {
      const shown = await shownToMaria();
      const [one] = shown.approval.requirements;
      if (one === undefined) throw new Error('nobody is asked');
      const vote = {
        user: 'maria',
        keyId: 'k',
        verdict: 'approve',
        at: AT,
        comment: 'Fine',
        requirements: [0],
      } as const;
      const requirements = [one, { ...one, rule: 'rig/second' }];
      const of = (votes: Shown['approval']['votes']) =>
        pageOf({ ...shown, mayChange: {}, approval: { ...shown.approval, requirements, votes } });
      expect(of([])).toMatch(
        /So far 0 of 1 for rig\/refund-large, 0 of 1 for rig\/second; nothing is sent[\s\S]*value="approve"/,
      );
      expect(of([vote])).toContain('You have approved it. It waits for others.');
      expect(of([vote])).not.toContain('value="approve"');
      expect(of([vote])).toMatch(/value="reject"[\s\S]*maria approved at [\s\S]*<pre>Fine<\/pre>/);
    });

    it('names what a rule could not judge, a tool that is gone, the risk, and whose key it was', async () => {
      const shown = await shownToMaria();
      const { approval, why, tool } = shown;
      const requester = { ...approval.requester, user: 'olga-of-the-key' };
      const page = pageOf({
        ...shown,
        approval: { ...approval, requester },
        why: why.map((one) => ({ ...one, unknown: ['params.amount'] })),
        tool: tool && { ...tool, risk: 'critical' },
      });
      expect(page).toContain('(could not judge: params.amount)');
      expect(page).toContain('<dt>Risk</dt><dd>critical</dd>');
      expect(page).toContain('<dt>User of the key</dt><dd>olga-of-the-key</dd>');
      expect(pageOf({ ...shown, tool: null })).toContain('payments.refund (not declared any more)');
    });

    it('says what a call goes to, whose agent asks, and what is on record no more', async () => {
      const shown = await shownToMaria();
      const page = pageOf({ ...shown, action: { upstream: 'mail', name: 'send' }, effect: null });
      expect(page).toContain('<dt>Is sent to</dt><dd>mail send</dd>');
      expect(page).toContain('<dt>Owner of the agent</dt><dd>olga</dd>');
      expect(page).toContain('<dt>On record as</dt><dd>nothing any more</dd>');
      const gone = pageOf({ ...shown, params: { params_omitted: 'the record of the call is gone' } });
      expect(gone).toContain('They are not shown: the record of the call is gone.');
      expect(pageOf({ ...shown, params: { params: {} } })).toContain('<h2>Params</h2><p>None.</p>');
    });

    it('says of an amount in the currency that the call names, and of one that is not known', async () => {
      const shown = await shownToMaria();
      const { approval } = shown;
      const counted = approval.costs.map((cost) => ({ ...cost, unit: 'cent' }));
      const named = { params: { amount: 60_001, currency: 'GBP' } };
      expect(pageOf({ ...shown, params: named, approval: { ...approval, costs: counted } })).toContain(
        '<p class="amount">£600.01</p>',
      );
      const requirements = approval.requirements.map((one) => ({ ...one, beyond: 'budget:rig/team-day' }));
      const costs = shown.costs.map(({ cost }) => ({ cost: { ...cost, amount: null }, row: null }));
      const page = pageOf({ ...shown, costs, approval: { ...approval, requirements } });
      expect(page).toContain('has €10,000.00 left of €10,000.00, and this takes an amount that is not known.');
      expect(page).toContain('<td class="num">? EUR-cent</td>');
    });

    it('compares with the last call like it, then and now', async () => {
      const shown = await shownToMaria();
      const call = { id: 'eff_0', tool: 'payments.refund', at: AT, decision: 'committed', costs: [] } as const;
      const params = { payment_id: 'pay_1', parts: 5 };
      const of = (before: JsonObject | null): string =>
        pageOf({ ...shown, params: { params }, earlier: { onTarget: [], alike: { ...call, params: before } } });
      expect(of({ payment_id: 'pay_1', note: 'x' })).toMatch(
        /It happened at 2026-06-15 10:00 UTC[\s\S]*>Then<\/th><th scope="col">Now<[\s\S]*<td>parts<\/td><td>\(absent\)<\/td><td>5<\/td>[\s\S]*<td>note<\/td><td>x<\/td><td>\(absent\)</,
      );
      expect(of(params)).toContain('Nothing differs in what is shown of both.');
      expect(of(null)).toContain('Its params are not shown.');
      expect(pageOf({ ...shown, earlier: { onTarget: [], alike: null } })).toContain(
        'No earlier one of this tool is on record that happened.',
      );
    });

    it('leads to the record of the call, and to what this person decided who may read effects', async () => {
      const id = asked.effect;
      for (const life of [COMMITTED, DENIED])
        expect(await became(life)).toContain(`<a href="/console/demo/effects/${id}">Everything about this call</a>`);
      const decided = '<a href="/console/demo/effects?approver=maria">What you decided</a>';
      expect(await became(DENIED)).toContain(decided);
      expect(await became(DENIED, { mayReadEffects: false })).not.toContain(decided);
    });

    it('takes the answers away once the time is over', async () => {
      const shown = await shownToMaria();
      const page = pageOf({ ...shown, now: shown.approval.expiresAt - 5_000 });
      expect(page).toMatch(/data-left="5000">[\s\S]*<\/form><p class="notice" role="alert" hidden>The time to decide/);
    });

    it('says of what was allowed ahead how much of it is used, beside the button that ends it', async () => {
      const shown = await shownToMaria();
      const page = pageOf({ ...shown, allowances: [{ ...ALLOWANCE, id: 'alw_7', times: 3, used: 1 }] });
      expect(page).toMatch(/<p id="alw_7">[^<]*without asking: 1 of 3 used, until /);
      expect(page).toContain('name="allowance" value="alw_7" aria-describedby="alw_7">Revoke<');
    });

    it('lists five calls of before on the target, in the words of people', async () => {
      const shown = await shownToMaria();
      const call = { tool: 'payments.refund', at: AT, decision: 'unknown_effect', params: null, costs: [] } as const;
      const onTarget = Array.from({ length: 7 }, (_, n) => ({ ...call, id: `eff_before${n}` }));
      const page = pageOf({ ...shown, earlier: { onTarget, alike: null } });
      expect(page.match(/eff_before\d/g)).toEqual(['0', '1', '2', '3', '4'].map((n) => `eff_before${n}`));
      expect(page).toContain(': payments.refund, outcome unknown');
    });

    it('has the reason of the agent to its two hundredth character, and one that is masked not at all', async () => {
      const shown = await shownToMaria();
      const withReason = (reason: string) => pageOf({ ...shown, params: { params: { reason } } });
      expect(withReason('r'.repeat(400))).not.toMatch(/Its reason: “r{201}/);
      expect(withReason('wrong size')).toContain('Its reason: “wrong size”');
      expect(withReason('(redacted)')).not.toContain('Its reason');
    });
  });

  it('has the agent’s own reason beside the question, and that of a rejection before its button where it is needed', async () => {
    const shown = await shownToMaria();
    const [requirement] = shown.approval.requirements;
    if (requirement === undefined) throw new Error('nobody is asked');
    const of = (more: Partial<typeof requirement>): string =>
      approvalPage(
        {
          ...shown,
          params: { params: { amount: 60_001, currency: 'EUR', reason: 'wrong size' } },
          approval: { ...shown.approval, requirements: [{ ...requirement, ...more }] },
        },
        { user: 'maria', form: 'f', path: '/', notice: null },
      );
    expect(of({})).toMatch(
      /of olga asks\. Its reason: “wrong size”\. Why you: Large refunds are looked at\.<[\s\S]*<form/,
    );
    expect(of({})).toMatch(/>Reject<[\s\S]*<textarea id="comment"/);
    expect(of({ requireReason: true })).toMatch(/<textarea id="comment"[\s\S]*>Reject</);
    // Who approves says nothing: the browser asks for a reason with the other button alone.
    expect(of({ requireReason: true })).toMatch(/<textarea[^>]* required>[\s\S]*value="approve" formnovalidate/);
    expect(of({})).not.toMatch(/<textarea[^>]* required|formnovalidate/);
  });

  it('writes the amount of an earlier call in the currency of that call', async () => {
    const shown = await shownToMaria();
    const [cost] = shown.approval.costs;
    if (cost === undefined) throw new Error('it costs nothing');
    const of = (amount: number, currency: string) => ({
      params: { payment_id: 'pay_1', amount, currency },
      costs: [{ ...cost, unit: 'cent', amount }],
    });
    const [then, now] = [of(65_000, 'EUR'), of(60_001, 'USD')];
    const alike = { id: 'eff_1', tool: 'payments.refund', at: 0, decision: 'committed', ...then } as const;
    const text = approvalPage(
      {
        ...shown,
        params: { params: now.params },
        approval: { ...shown.approval, costs: now.costs },
        earlier: { onTarget: [], alike },
      },
      { user: 'maria', form: 'f', path: '/', notice: null },
    );
    expect(text).toContain('<td>amount</td><td>€650.00</td><td>$600.01</td>');
    // Of what an approver changed the costs of before are not known.
    expect(paramsThatDiffer(then.params, now.params, () => 'USD')[0]).toMatchObject({
      before: '65000',
      now: '$600.01',
    });
  });

  it('is not compared with a request for another effect, whatever the address says', async () => {
    const [one, other] = [await waiting(), await waiting({ currency: 'CHF' })];
    const browser = await enter(one.path, rig.keys.approver);
    const { text } = await look(`${one.path}?instead_of=${other.id}`, browser);
    expect(text).toContain('payment:pay_1');
    expect(text).not.toMatch(/has changed|asked anew|What will happen|CHF/);
  });

  it('compares a call that ran with the one before it, and not with itself', async () => {
    const others = rig;
    // Budgets are for one call more in that of the others.
    rig = await startRig();
    const calls = [await waiting(), await waiting()] as const;
    const [before, last] = calls;
    const browser = await enter(before.path, rig.keys.approver);
    for (const { path } of calls)
      await post(path, { form: formIn(await look(path, browser)), verdict: 'approve' }, browser, rig);
    const asked = vi.spyOn(rig.ports.store, 'effects');
    const [, alike = ''] = (await look(last.path, browser)).text.split('Its last call like this</h2>');
    await rig.close();
    rig = others;
    expect(/^.*?<\/section>/s.exec(alike)?.[0]).toContain(before.effect);
    // Of the same agent and tool, and one that happened.
    const like = { agentId: 'bot', tool: 'payments.refund', decision: 'committed' };
    expect(asked).toHaveBeenCalledWith('demo', expect.objectContaining(like));
  });

  it('says what the agent did before, and shows a receipt, only to a key that may read effects', async () => {
    const principal = await rig.ports.authenticate(rig.keys.approver);
    if ('failure' in principal) throw new Error('the key is not valid');
    const { keyId, user, madeBy, keyCreatedAt, readOnly, allowedTools } = principal;
    const deciding = { keyId, user, madeBy, keyCreatedAt, readOnly, allowedTools, kind: 'profile' } as const;
    const { path, id } = await waiting();
    const browser = await enter(path, rig.keys.approver);
    await post(path, { form: formIn(await look(path, browser)), verdict: 'approve' }, browser);
    const pageFor = async (who: Principal): Promise<string> => {
      const shown = await shownTo(rig.ports, { principal: who, user: 'maria', session: 's' }, 'demo', id);
      if (shown === null) throw new Error('there is no request');
      return approvalPage(shown, { user: 'maria', form: 'f', path, notice: null });
    };
    expect(await pageFor(principal)).toMatch(/Receipt<[\s\S]*Its last call like this[\s\S]*Before on this target/);
    const scopes = ['approvals:read', 'approvals:decide'] as const;
    const text = await pageFor({ ...deciding, profile: 'decider', workspace: 'demo', agentId: null, scopes });
    expect(text).toContain('Approved, and sent');
    expect(text).not.toMatch(/Receipt<|Its last call like this|Before on this target/);
  });

  it('has no text that a rule made of params for a key that may not call the tool, nor has the answer to its vote', async () => {
    const body = { name: 'limited', kind: 'account', workspace: 'demo', allowed_tools: ['deploy.start'] };
    const { json } = await rig.send('POST', '/v1/beta/users/maria/keys', { key: rig.keys.admin, body });
    const key = String(json['key']);
    const { id, path } = await waiting({ reason: 'two' });
    const read = await rig.send('GET', `${WS}/approvals/${id}`, { key });
    expect(read.json['summary']).toBe('(not shown: it is made of params, which this key does not read)');
    const limited = await enter(path, key);
    const seen = await look(path, limited);
    expect(seen.text).toContain('(not shown: it is made of params, which this key does not read)');
    expect(seen.text).not.toContain('Refund 60');
    const voted = await rig.send('POST', `${WS}/approvals/${id}/approve`, { key, body: {} });
    expect(voted.status, voted.text).toBe(200);
    expect(voted.text).not.toContain('Refund 60');
    expect((await look(path, await enter(path, rig.keys.approver))).text).toContain('Refund 60');
  });

  it('escapes what agents write: tags, attributes, and what nobody can see', async () => {
    const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>' onfocus='x\u202Egnp.exe\u0007\u200B</pre></textarea>`;
    const { path } = await waiting({ payment_id: `pay_"><img src=x onerror=alert(1)>`, currency: hostile });
    const { text } = await look(path, await enter(path, rig.keys.approver));
    expect(text.match(/<script/g)).toHaveLength(1);
    expect(text).not.toMatch(/<script[^>]+>|<script>alert|<img|onerror=alert\(1\)>|' onfocus='/);
    for (const hidden of ['\u202E', '\u0007', '\u200B']) expect(text).not.toContain(hidden);
    expect(text).toContain('&lt;script&gt;alert(1)&lt;/script&gt;');
    expect(text).toContain(String.raw`\u{202e}gnp.exe`);
    // No value has closed what it stands in.
    for (const tag of ['main', 'dl', 'ul', 'form', 'textarea', 'pre', 'td', 'table', 'p'])
      expect(text.match(new RegExp(`<${tag}[ >]`, 'g'))?.length, tag).toBe(
        text.match(new RegExp(`</${tag}>`, 'g'))?.length,
      );
  });

  it('to whom a script, a frame or another site asks for, is nothing', async () => {
    const { path } = asked;
    const browser = await enter(path, rig.keys.approver);
    for (const dest of ['empty', 'iframe', 'embed', 'script'])
      expect((await look(path, { ...browser, 'sec-fetch-dest': dest })).text).toContain('Your API key');
    expect((await look(path, { ...browser, 'sec-fetch-dest': 'document' })).text).toContain('payment:pay_1');
  });
});

describe('a session', () => {
  it('has a cookie for this page alone, that no script and no other site gets', async () => {
    const { path } = asked;
    const seen = await post(`${path}/key`, { key: rig.keys.approver });
    expect(String(seen.headers['set-cookie'])).toMatch(
      /^svc_approver=[\w-]+; Path=\/approve\/demo; Max-Age=600; HttpOnly; SameSite=Strict$/,
    );
    const left = await post(`${path}/leave`, {});
    expect(String(left.headers['set-cookie'])).toMatch(/^svc_approver=; Path=\/approve\/demo; Max-Age=0;/);
  });

  it('is no session where the cookie was changed, stands twice, or is of another workspace', async () => {
    const { path } = asked;
    const { cookie } = await enter(path, rig.keys.approver);
    const elsewhere = '/approve/elsewhere/apr_1';
    const { cookie: strangers } = await enter(elsewhere, rig.keys.stranger);
    const flipped = cookie.slice(0, -8) + (cookie.at(-8) === 'A' ? 'B' : 'A') + cookie.slice(-7);
    for (const bad of [flipped, `${cookie}; ${cookie}`, `${cookie};${strangers}`, strangers, 'svc_approver=', 'x=y'])
      expect((await look(path, { cookie: bad })).text).toContain('Your API key');
    expect((await look(elsewhere, { cookie })).text).toContain('Your API key');
    expect((await look(path, { cookie: `a=b; ${cookie}; c=d` })).text).toContain('payment:pay_1');
  });

  it('ends for whoever has a copy of the cookie when it is left', async () => {
    const { path, effect } = asked;
    const browser = await enter(path, rig.keys.approver);
    const other = await enter(path, rig.keys.approver);
    const form = formIn(await look(path, browser));
    await post(`${path}/leave`, {}, browser);
    const vote = await post(path, { form, verdict: 'approve' }, browser);
    expect([vote.status, vote.text.includes('Your API key')]).toEqual([401, true]);
    expect(await state(effect)).toMatchObject({ state: 'pending_approval' });
    // Another session of the same key goes on.
    expect((await look(path, other)).text).toContain('payment:pay_1');
  });

  it('ends with its key at once, and after its time', async () => {
    // A key that is younger than the request would not decide on it.
    const { key, id } = await made('maria');
    const { path, effect } = await waiting();
    const browser = await enter(path, key);
    const form = formIn(await look(path, browser));
    expect(form).not.toBe('');
    const revoked = await rig.send('DELETE', `/v1/beta/users/maria/keys/${id}`, { key: rig.keys.admin });
    expect(revoked.status, revoked.text).toBeLessThan(300);
    expect((await look(path, browser)).text).toContain('Your API key');
    const vote = await post(path, { form, verdict: 'approve' }, browser);
    expect([vote.status, vote.text.includes('Your API key')]).toEqual([401, true]);
    expect(await state(effect)).toMatchObject({ state: 'pending_approval' });
  });

  it('shows and decides nothing once its key may not: profiles change while somebody looks', async () => {
    const { keys, ports } = rig;
    const body = { name: 'of before', kind: 'profile', profile: 'governor', workspace: 'demo' };
    const { id } = (await rig.send('POST', '/v1/beta/users/maria/keys', { key: keys.admin, body })).json;
    const of = { keyId: String(id), user: 'maria', passkey: null };
    const [cookie = ''] = begin({ ...ports, now: () => ports.store.now() }, 'demo', of, false).split(';');
    const { path, effect } = await waiting();
    const seen = await look(path, { cookie });
    expect([seen.status, seen.text.includes('pay_1')]).toEqual([403, false]);
    const vote = await post(path, { form: 'of before', verdict: 'approve' }, { cookie });
    expect([vote.status, vote.text.includes('pay_1')]).toEqual([403, false]);
    expect(await state(effect)).toMatchObject({ state: 'pending_approval' });
  });

  it('ends after ten minutes, and with the user that its key was of', async () => {
    const { keys, ports } = rig;
    let now = 1_000;
    let user: string | null = 'maria';
    const sessions: SessionPorts = {
      seals: ports.seals,
      store: ports.store,
      now: () => now,
      stillValid: async () => {
        const principal = await ports.authenticate(keys.approver);
        return 'failure' in principal ? principal : { ...principal, user };
      },
    };
    const maria = { keyId: 'key_1', user: 'maria', passkey: null };
    const [cookie = ''] = begin(sessions, 'demo', maria, true).split(';');
    expect(begin(sessions, 'demo', maria, true)).toMatch(/; Secure$/);
    now += 600_000 - 1;
    expect(await approverOf(sessions, 'demo', cookie)).toMatchObject({ user: 'maria' });
    user = 'tom';
    expect(await approverOf(sessions, 'demo', cookie)).toBeNull();
    user = 'maria';
    now += 1;
    expect(await approverOf(sessions, 'demo', cookie)).toBeNull();
  });
});

describe('a vote', () => {
  it('by the API against another question than the one that was shown decides nothing', async () => {
    const { id, effect } = await waiting();
    const vote = (verdict: 'approve' | 'reject', digest: string) =>
      rig.send('POST', `${WS}/approvals/${id}/${verdict}`, { key: rig.keys.approver, body: { digest } });
    for (const verdict of ['approve', 'reject'] as const)
      expect(await vote(verdict, 'another')).toMatchObject({ status: 409, json: { code: 'conflict' } });
    expect(await state(effect)).toMatchObject({ state: 'pending_approval' });
    const { digest } = (await rig.send('GET', `${WS}/approvals/${id}`, { key: rig.keys.approver })).json;
    expect((await vote('reject', String(digest))).status).toBe(200);
    expect(await state(effect)).toMatchObject({ state: 'rejected' });
  });

  it('approves and runs; a second look shows who decided, and the form again decides nothing', async () => {
    const { path, effect } = await waiting();
    const browser = await enter(path, rig.keys.approver);
    const form = formIn(await look(path, browser));
    const vote = { form, verdict: 'approve', comment: 'Looked at it\r\n<b>twice</b>' };
    const voted = await post(path, vote, browser);
    expect([voted.status, voted.headers['location']]).toEqual([303, path]);
    expect(await state(effect)).toMatchObject({ state: 'committed' });
    const { text } = await look(path, browser);
    for (const part of ['Approved, and sent', 'It happened.', 'maria approved at', 'Looked at it\n&lt;b&gt;twice'])
      expect(text).toContain(part);
    expect(formIn({ text } as Seen)).toBe('');
    const again = await post(path, vote, browser);
    expect(again.status).toBe(409);
    expect(again.text).toMatch(/You approved it at <time[^>]*>[^<]+<\/time>, before your answer came/);
  });

  it('that rejects is one, whatever stands in the fields and was chosen for the next calls', async () => {
    const { path, effect } = await waiting();
    const browser = await enter(path, rig.keys.approver);
    const form = formIn(await look(path, browser));
    const fields = { 'param.currency': 'x'.repeat(81), alike: 'all of them' };
    const approved = await post(path, { form, verdict: 'approve', ...fields }, browser);
    expect([approved.status, await state(effect)]).toMatchObject([400, { state: 'pending_approval' }]);
    expect((await post(path, { form, verdict: 'reject', ...fields }, browser)).status).toBe(303);
    expect(await state(effect)).toMatchObject({ state: 'rejected' });
  });

  it('rejects', async () => {
    const { path, effect } = await waiting();
    const browser = await enter(path, rig.keys.approver);
    await post(path, { form: formIn(await look(path, browser)), verdict: 'reject', comment: 'No <b>' }, browser);
    expect(await state(effect)).toMatchObject({ state: 'rejected' });
    const { text } = await look(path, browser);
    expect(text).toMatch(
      /<h1>Rejected<\/h1>[^]*maria rejected it at .*: “No &lt;b&gt;”\. Nothing was sent[^]*Would have taken/,
    );
    for (const place of ['inbox', 'effects?approver=maria']) expect(text).toContain(`href="/console/demo/${place}"`);
  });

  it('is by the rules of the API: not of who asked, and of those alone whom policy names', async () => {
    const { path, effect } = asked;
    const owner = await made('olga');
    for (const [key, why] of [
      [owner.key, /It is your own request/],
      [rig.keys.account, /It is your own request/],
      [(await made('maria')).key, /Your key was made after the request/],
    ] as const) {
      const browser = await enter(path, key);
      const seen = await look(path, browser);
      expect(seen.text).toMatch(why);
      expect(seen.text).not.toContain('name="verdict"');
      const vote = await post(path, { form: formIn(seen), verdict: 'approve' }, browser);
      expect(vote.status).toBe(403);
    }
    // A form of one's own does not help: the vote itself is judged.
    const principal = await rig.ports.authenticate(owner.key);
    if ('failure' in principal) throw new Error('the key is not valid');
    const { id: approvalId } = asked;
    const vote = {
      principal,
      workspace: 'demo',
      approvalId,
      verdict: 'approve',
      comment: null,
      changes: null,
      digest: null,
    } as const;
    expect(await rig.ports.decideApproval(vote)).toMatchObject({ kind: 'problem', problem: { code: 'own_request' } });
    expect(await state(effect)).toMatchObject({ state: 'pending_approval', approval: { approvals: 0 } });
  });

  it('is not given by a key that the requester made for somebody: the page says so before', async () => {
    const rights = { kind: 'account', profile: null, workspace: 'demo', agentId: null } as const;
    const rest = { scopes: null, allowedTools: null, expiresInMs: null };
    const forMaria = rig.ports.keys.create({ user: 'maria', madeBy: 'ops', name: 'page', ...rights, ...rest });
    if (forMaria.kind === 'refused') throw new Error(JSON.stringify(forMaria.faults));
    await rig.ports.store.putKey(forMaria.record, { type: 'gateway', id: 'test' });
    const { path } = await waiting();
    const seen = await look(path, await enter(path, forMaria.key));
    expect(seen.text).toContain('Your key was made by ops');
    expect(seen.text).not.toContain('name="verdict"');
  });

  it('comes from the page that this person was shown: no other page, session, request or site has its form', async () => {
    const { path, effect } = asked;
    const other = await waiting();
    const browser = await enter(path, rig.keys.approver);
    const later = await enter(path, rig.keys.approver);
    const form = formIn(await look(path, browser));
    const forms: readonly [string, Record<string, string>, Record<string, string>][] = [
      ['no form', { verdict: 'approve' }, browser],
      ['a form of nobody', { form: 'x', verdict: 'approve' }, browser],
      ['the form of another request', { form: formIn(await look(other.path, browser)), verdict: 'approve' }, browser],
      ['the form of another session', { form, verdict: 'approve' }, later],
      ['the cookie as a form', { form: browser.cookie.split('=')[1] ?? '', verdict: 'approve' }, browser],
      ['another site', { form, verdict: 'approve' }, { ...browser, origin: 'https://evil.example' }],
      ['nowhere', { form, verdict: 'approve' }, { ...browser, origin: 'null' }],
      ['a site beside this', { form, verdict: 'approve' }, { ...browser, 'sec-fetch-site': 'same-site' }],
    ];
    for (const [what, fields, headers] of forms) expect((await post(path, fields, headers)).status, what).toBe(403);
    const lost = await post(path, { form, verdict: 'approve' });
    expect([lost.status, lost.text]).toEqual([401, expect.stringContaining('what you wrote is not kept. Show again')]);
    expect((await post(`${path}/key`, { key: rig.keys.approver }, { 'sec-fetch-site': 'cross-site' })).status).toBe(
      403,
    );
    expect(await state(effect)).toMatchObject({ state: 'pending_approval', approval: { approvals: 0 } });
  });

  it('is refused with a comment that is too long, or holds a key, and in another form', async () => {
    const { path, effect } = await waiting();
    const browser = await enter(path, rig.keys.approver);
    const form = formIn(await look(path, browser));
    const whole = (bytes: number): string => `form=${form}&verdict=approve&comment=`.padEnd(bytes, 'x');
    const cases: readonly [number, Record<string, string> | string, Record<string, string>][] = [
      [400, { form, verdict: 'approve', comment: 'x'.repeat(1001) }, {}],
      // Of 32 KiB it is read, and is none of the page's; of more it is not.
      [400, whole(32_768), {}],
      [413, whole(32_769), {}],
      [400, { form, verdict: 'approve', comment: `see ${rig.keys.stranger}` }, {}],
      [400, { form, verdict: 'approve', 'param.currency': rig.keys.stranger }, {}],
      [400, { form, verdict: 'maybe' }, {}],
      [400, { form, verdict: 'approve', more: '1' }, {}],
      [400, `form=${form}&verdict=reject&verdict=approve`, {}],
      [415, JSON.stringify({ form, verdict: 'approve' }), { 'content-type': 'application/json' }],
      [415, `form=${form}&verdict=approve`, { 'content-type': 'text/plain' }],
      [400, `form=${form}&verdict=approve`, { 'transfer-encoding': 'chunked' }],
    ];
    for (const [status, fields, headers] of cases) {
      const seen = await post(path, fields, { ...browser, ...headers });
      expect([seen.status, seen.headers['content-type']]).toEqual([status, 'text/html; charset=utf-8']);
      expect(seen.text).not.toContain(rig.keys.stranger);
    }
    expect(await state(effect)).toMatchObject({ state: 'pending_approval', approval: { approvals: 0 } });
    // As many characters as it may have, each of three bytes, and ends of lines as browsers send them.
    const most = `${'語'.repeat(499)}\r\n${'語'.repeat(500)}`;
    expect((await post(path, { form, verdict: 'reject', comment: most }, browser)).status).toBe(303);
  });

  it('counts for what was shown, and for nothing else', async () => {
    const { id } = await waiting();
    const principal = await rig.ports.authenticate(rig.keys.approver);
    if ('failure' in principal) throw new Error('the key is not valid');
    const vote = {
      principal,
      workspace: 'demo',
      approvalId: id,
      verdict: 'approve',
      comment: null,
      changes: null,
    } as const;
    expect(await rig.ports.decideApproval({ ...vote, digest: 'another' })).toMatchObject({
      problem: { code: 'conflict', detail: expect.stringContaining('has changed since it was shown') },
    });
    const before = await rig.ports.store.approval('demo', id);
    expect(before).toMatchObject({ status: 'pending', votes: [] });
    expect(await rig.ports.decideApproval({ ...vote, digest: before?.digest ?? '' })).toMatchObject({
      kind: 'decided',
    });
  });
});
