import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { makeApiKey, send } from '../system/gateway.ts';
import { refund, startWorld, type World, worldFiles } from '../system/world.ts';
import { openBrowser } from './browser.ts';

/* What docs/console promises of each screen. Where a state is long in the making, the gateway's answer is put in its place. */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const ago = (ms: number): string => new Date(Date.now() - ms).toISOString();

/** Several large refunds wait at once. */
const withRoom = (url: string): ReturnType<typeof worldFiles> => {
  const { config, policies } = worldFiles(url);
  return {
    config,
    policies: { 'world.yaml': (policies['world.yaml'] ?? '').replace('limit: 100000 }', 'limit: 100000000 }') },
  };
};
let world: World;
let browser: Browser;
let page: Page;
/** What the session of the page seems to be allowed, made of what it is allowed. */
let may = (all: readonly string[]): readonly string[] => all;
let [unknown, waiting, happened] = ['', '', ''];

beforeAll(async () => {
  [world, browser] = await Promise.all([startWorld({ files: withRoom }), openBrowser()]);
  happened = (await world.run(refund({ payment_id: 'pay_1', amount: 1_250 }))).body.effect_id;
  unknown = (await world.run(refund({ payment_id: 'pay_2', reason: 'mode:drop_after' }))).body.effect_id;
  waiting = (await world.run(refund({ payment_id: 'pay_3', amount: 60_000 }))).body.approval.id;
  await world.post('/claims', { target: 'payment:pay_4', ttl_s: 3_000 }, world.keys.bot);
  await world.post('/reservations', { pool: 'deploy-slot', units: 1, ttl_s: 3_000 }, world.keys.bot);
  const pause = { scope: { tool: 'nothing.like.this' }, reason: 'Stock-take', until: ago(-HOUR) };
  expect((await world.post('/pauses', pause)).status).toBe(201);
  page = await signedIn(world.keys.approver);
});
afterEach(async () => {
  may = (all) => all;
  await page.unrouteAll({ behavior: 'ignoreErrors' });
});
afterAll(async () => {
  await browser?.close();
  await world?.close();
});

async function signedIn(key: string): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, baseURL: world.gateway.url });
  await context.route('**/console/session', async (route) => {
    if (route.request().method() !== 'GET') return route.continue();
    const response = await route.fetch();
    const session = await response.json();
    await route.fulfill({ response, ...(response.ok() ? { json: { ...session, may: may(session.may) } } : {}) });
  });
  const own = await context.newPage();
  await own.goto('/console/sign-in');
  await own.getByLabel('Your API key').fill(key);
  await own.keyboard.press('Enter');
  await own.waitForSelector('.shell');
  return own;
}

async function open(path: string, ready = 'main h1', of = page): Promise<void> {
  await of.goto(`/console/demo/${path}`);
  await of.waitForSelector(ready);
}

/** What the gateway answers from now on, in the place of what it would say. */
async function answered(path: string | RegExp, json: unknown, status = 200): Promise<void> {
  await page.route(path, (route) => route.fulfill({ status, json }));
}

/** How a command ends without a key, and without the file that it names: with 64, where its words are none of svc's. */
function statusOf(command: string): number | null {
  const program = join(import.meta.dirname, '../../bin/svc.mjs');
  return spawnSync(process.execPath, [program, ...command.split(' ').slice(1)], { cwd: tmpdir(), env: {} }).status;
}

const timesIn = (of: Locator): Promise<unknown> =>
  of.locator('time').evaluateAll((all) => all.map((one) => one.getAttribute('datetime')));
const card = (text: string): Locator => page.locator('li.card', { hasText: text });

const HISTORY = {
  in_force: 'B'.repeat(43),
  files_version: 'C'.repeat(43),
  activations: [
    {
      version: 'B'.repeat(43),
      at: ago(HOUR),
      by: { type: 'user', id: 'maria' },
      how: 'activate',
      why: 'Limits of June',
      files: ['limits.yaml'],
      confirmed_by: ['maria', 'tom'],
    },
    { version: 'A'.repeat(43), at: ago(2 * HOUR), by: { type: 'gateway', id: 'gw' }, how: 'files' },
  ],
};
const PROPOSALS = {
  proposals: [
    {
      id: 'ppl_1',
      version: 'D'.repeat(43),
      instead_of: 'B'.repeat(43),
      status: 'open',
      how: 'files',
      by: { type: 'gateway', id: 'gw' },
      people: [],
      still_needs: 2,
      at: ago(HOUR),
      expires_at: ago(-HOUR),
    },
  ],
};
const SUGGESTIONS = {
  suggestions: [
    {
      rule: 'world/refund-large',
      tool: 'payments.refund',
      file: 'world.yaml',
      line: 12,
      text: '  - id: refund-alike\n    effect: allow\n',
      people: ['maria'],
      since: ago(HOUR),
      until: ago(MINUTE),
      approvals: [],
      example: { agent_id: 'bot', params: {} },
    },
  ],
};
const PASSKEYS = ['phone', 'laptop'].map((name, n) => ({
  id: `psk_${name}`,
  name: `My ${name}`,
  synced: n === 0,
  created_at: ago(HOUR),
  last_used_at: n === 0 ? null : ago(MINUTE),
}));
const VERSION = { version: 'D', proven: true, files: [] };

/** What an account key does not see, and what takes long to come to be. */
async function asAnAdministratorSeesIt(): Promise<void> {
  await answered('**/v1/beta/policies/activations', HISTORY);
  await answered('**/v1/beta/policies/proposals', PROPOSALS);
  await answered('**/v1/beta/policies/versions/*', VERSION);
  await answered('**/policies/suggestions', SUGGESTIONS);
  await answered('**/users/*/passkeys', { passkeys: PASSKEYS });
  await answered('**/v1/beta/keys', { keys: [] });
}

describe('what a right opens', () => {
  const README = readFileSync('docs/console/README.md', 'utf8');
  const SCREENS = [...README.matchAll(/^\| \*\*(?!An effect)([^*]+)\*\* \|.*\| ([^|]+) \|$/gm)].map(
    ([, name = '', needs = '']) => ({ name, needs: /^`([^`]+)`/.exec(needs)?.[1] ?? 'effects.read' }),
  );

  it.each([...new Set(SCREENS.map(({ needs }) => needs))])('%s: its screens are in the navigation', async (right) => {
    may = () => [right];
    await page.goto('/console/demo');
    const links = page.getByRole('navigation', { name: 'Screens' }).getByRole('link');
    await links.first().waitFor();
    const names = await links.allInnerTexts();
    expect(names.map((name) => name.replace(/\s*\d+\+?$/, '')).toSorted()).toEqual(
      SCREENS.filter(({ needs }) => needs === right)
        .map(({ name }) => name)
        .toSorted(),
    );
  });

  const button = (name: string): Locator => page.getByRole('button', { name, exact: true });
  const OFFERED: readonly (readonly [right: string, path: () => string, what: () => Locator])[] = [
    ['claims.write', () => 'claims', () => card('payment:pay_4').getByRole('button', { name: 'Release' })],
    ['reservations.write', () => 'claims', () => card('deploy-slot').getByRole('button', { name: 'Release' })],
    ['reservations.read', () => 'claims', () => card('deploy-slot')],
    ['approvals.decide', () => 'inbox', () => page.locator('button.yes')],
    ['effects.resolve', () => 'unknown', () => page.locator('.unknown input')],
    ['effects.resolve', () => `effects/${unknown}`, () => page.getByRole('radio', { name: /^It happened/ })],
    ['pauses.write', () => 'pauses', () => button('Pause something')],
    ['pauses.write', () => 'pauses', () => button('Lift')],
    ['passkeys.write', () => 'passkeys', () => button('Add a passkey')],
    ['passkeys.write', () => 'passkeys', () => card('My phone').getByRole('button', { name: 'Remove' })],
    ['effects.preview', () => 'policies', () => page.locator('#try')],
    ['policies.suggest', () => 'policies', () => page.locator('#suggested')],
    ['policies.history', () => 'policies', () => page.locator('#history')],
    ['policies.history', () => 'policies', () => page.locator('#proposed')],
    ['policies.activate', () => 'policies', () => button('Put the files in force')],
    ['policies.activate', () => 'policies', () => button('Roll back')],
    ['policies.activate', () => 'policies', () => button('Turn down')],
    ['keys.manage', () => 'agents', () => button('Make a key')],
  ];

  it.each(OFFERED)('%s: nobody else is offered what needs it', async (right, path, what) => {
    await asAnAdministratorSeesIt();
    const rights = OFFERED.map(([name]) => name);
    may = (all) => [...new Set([...all, ...rights])];
    await open(path());
    await what().waitFor();
    may = (all) => [...all, ...rights].filter((one) => one !== right);
    await open(path());
    await page.waitForLoadState('networkidle');
    expect(await what().count()).toBe(0);
    expect(await page.getByRole('alert').filter({ hasText: /\S/ }).allInnerTexts()).toEqual([]);
  });

  it('who may look at the inbox alone is told so', async () => {
    may = (all) => all.filter((one) => one !== 'approvals.decide');
    await open('inbox', '#question');
    await page.getByText('Your key may look, and not decide.').waitFor();
  });
});

describe('beside every screen', () => {
  /** The session of the page is another from now on. */
  const sessionIs = (more: object) =>
    page.route('**/console/session', async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), ...more } });
    });

  it('stands what is paused, why, and how much more, with the way there', async () => {
    const [pause] = (await world.get('/pauses')).body.pauses;
    const banner = page.locator('header .banner');
    for (const [scope, words] of [
      [{ workspace: true }, 'All calls of the workspace'],
      [{ tool: 'payments.**' }, 'Tools payments.**'],
      [{ agent: 'bot' }, 'The agent bot'],
      [{ upstream: 'payments' }, 'The upstream payments'],
      [{ key: 'key_1' }, 'The key key_1'],
    ] as const) {
      const others = 'agent' in scope ? [pause, pause] : [];
      await answered('**/workspaces/demo/pauses', { pauses: [{ ...pause, scope }, ...others] });
      await open('budgets', 'header .banner');
      expect(await banner.locator('span').innerText()).toBe(
        `Paused: ${words}, Stock-take${others.length === 2 ? ', and 2 more' : ''}`,
      );
      await page.unrouteAll({ behavior: 'ignoreErrors' });
    }
    await banner.getByRole('link', { name: 'Look at it' }).click();
    await page.waitForURL('**/console/demo/pauses');
    expect(await page.title()).toBe('Pauses · svc');
  });

  it('stands how much waits, is unknown and is paused; nothing where that is nothing', async () => {
    const { body } = await world.get(`/approvals/${waiting}`);
    const { effect } = (await world.get(`/effects/${unknown}`)).body;
    const link = (name: string): Promise<string> =>
      page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name }).innerText();
    await answered(/approvals\?status=pending/, { approvals: [body, { ...body, id: 'apr_2' }] });
    await answered(/effects\?state=unknown/, { effects: [effect], next_cursor: 'more' });
    await answered('**/workspaces/demo/pauses', { pauses: [] });
    await open('budgets', '.nav .count');
    await expect.poll(() => link('Inbox')).toMatch(/^Inbox\s*2$/);
    await expect.poll(() => link('Unknown outcomes')).toMatch(/^Unknown outcomes\s*1\+$/);
    expect(await link('Pauses')).toBe('Pauses');
    expect(await page.locator('.nav [aria-current=page]').allInnerTexts()).toEqual(['Budgets']);
  });

  it('stands who is there, and in which workspace; who sees several changes between them', async () => {
    const who = page.locator('header .who');
    await sessionIs({ read_only: true });
    await open('budgets');
    expect(await who.innerText()).toMatch(/^maria\s+account key, read-only in demo\b/);
    expect(await page.getByLabel('Workspace').count()).toBe(0);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await sessionIs({ user: null, workspaces: ['demo', 'lab'], may: ['budgets.read', 'pauses.read'] });
    await answered('**/workspaces/lab/pauses', { pauses: [] });
    await answered('**/workspaces/lab/budgets', { budgets: [] });
    await open('budgets');
    expect(await who.innerText()).toMatch(/^No user\s+account key\s/);
    await page.getByLabel('Workspace').selectOption('lab');
    // To the first screen that the key may see.
    await page.waitForURL('**/console/lab/budgets');
    await page.getByText('Nothing was spent in any budget that runs now').waitFor();
  });

  it('stands nothing for a key that sees no workspace, but the way out', async () => {
    await sessionIs({ workspaces: [] });
    await page.goto('/console/demo/budgets');
    await page.getByText('This key sees no workspace.').waitFor();
    await page.getByRole('button', { name: 'Leave' }).waitFor();
  });
});

describe('each screen, for a terminal', () => {
  it.each([
    'effects',
    'inbox',
    'unknown',
    'overview',
    'agents',
    'passkeys',
    'budgets',
    'claims',
    'pauses',
    'policies',
    'brain',
    'servers',
    'health',
  ])('%s has the operation of the API, and a command', async (screen) => {
    await open(screen);
    const copies = page.locator('main > details', { hasText: 'As curl and svc' });
    await copies.waitFor();
    const [curl = '', cli = ''] = await copies.locator('code').allTextContents();
    const [, path = ''] = /'(http[^']+)'$/.exec(curl) ?? [];
    const key = { 'x-api-key': world.keys.approver };
    // Of the inbox it is the vote on what is open, which nobody casts here.
    if (curl.includes('-X POST')) expect(path).toMatch(/\/approvals\/apr_\w+\/approve$/);
    else expect((await fetch(path, { headers: key })).status).toBe(200);
    expect([cli, statusOf(cli)]).toEqual([cli, 2]);
  });
});

describe('effects', () => {
  it('are filtered by tool, agent, target and time, which stand in the address', async () => {
    await world.run({ ...refund(), tool: 'payments.charge', params: { amount: 7 } }, world.keys.otherBot);
    await open('effects', 'a.cells');
    const rows = page.locator('a.cells');
    const choice = (name: string): Locator =>
      page.locator('form.filters label', { has: page.getByText(name, { exact: true }) }).locator('select');
    const [all, query] = [await rows.count(), () => new URL(page.url()).search];
    expect(all).toBeGreaterThan(3);
    for (const [name, value, search] of [
      ['Tool', 'payments.charge', '?tool=payments.charge'],
      ['Agent', 'other-bot', '?agent_id=other-bot'],
    ] as const) {
      await choice(name).selectOption(value);
      await expect.poll(() => rows.count()).toBe(1);
      expect(query()).toBe(search);
      await choice(name).selectOption('Any');
      await expect.poll(() => rows.count()).toBe(all);
    }
    await page.getByLabel('Target').fill('payment:pay_1');
    await page.keyboard.press('Enter');
    await expect.poll(() => rows.count()).toBe(1);
    expect(query()).toBe('?target=payment%3Apay_1');
    await page.getByLabel('Target').fill('');
    await page.keyboard.press('Enter');
    await expect.poll(() => rows.count()).toBe(all);
    for (const [name, span, ms] of [
      ['Last 15 minutes', '15m', 15 * MINUTE],
      ['Last hour', '1h', HOUR],
      ['Last day', '1d', 24 * HOUR],
      ['Last 7 days', '7d', 168 * HOUR],
    ] as const) {
      const asked = page.waitForRequest((request) => request.url().includes('/effects?since='));
      await choice('Time').selectOption(name);
      const since = Date.now() - Date.parse(new URL((await asked).url()).searchParams.get('since') ?? '');
      // To the minute.
      expect([span, since >= ms - 1_000, since <= ms + MINUTE + 10_000]).toEqual([span, true, true]);
      expect(query()).toBe(`?last=${span}`);
    }
  });

  it('are gone through by j and k', async () => {
    await open('effects', 'a.cells');
    const isAt = (row: number): Promise<boolean> =>
      page
        .locator('a.cells')
        .nth(row)
        .evaluate((of) => of.matches(':focus'));
    await page.locator('a.cells').first().focus();
    for (const [key, row] of [
      ['j', 1],
      ['j', 2],
      ['k', 1],
    ] as const) {
      await page.keyboard.press(key);
      expect([key, await isAt(row)]).toEqual([key, true]);
    }
  });

  it('have their rule with its place, each stage with its time, their answer, their events and what they took', async () => {
    const { effect, ledger } = (await world.get(`/effects/${happened}`)).body;
    const { rules } = (await world.get('/policies')).body;
    const { stages } = (await world.get(`/effects/${happened}/run`)).body;
    await open(`effects/${happened}`, '#receipt');
    await page.getByText('Just before it was set aside', { exact: true }).waitFor();
    const section = (name: string): Promise<string> => page.locator(`section[aria-labelledby=${name}]`).innerText();
    const rule = rules.find(({ id }: { readonly id: string }) => id === 'world/refund-small');
    expect(await section('why')).toContain(`${rule.file}:${rule.line}`);
    const lines = await page.locator('section[aria-labelledby=stages] li').allInnerTexts();
    expect(lines).toHaveLength(stages.length);
    for (const [at, { stage, status, duration_ms: ms }] of stages.entries())
      expect(lines[at]?.split('\n').filter(Boolean)).toEqual([
        stage.replaceAll('_', ' '),
        ms === null ? status : `${ms.toFixed(ms < 10 ? 2 : 0)} ms`,
      ]);
    expect(JSON.parse(await page.locator('section[aria-labelledby=answered] pre').innerText())).toEqual(effect.result);
    expect(await section('answered')).toContain(`HTTP ${effect.upstream_status}`);
    expect(await page.locator('section[aria-labelledby=ledger] li').count()).toBe(ledger.length);
    for (const { kind } of ledger) expect(await section('ledger')).toContain(kind.replaceAll(/[._]/g, ' '));
    expect(await section('budgets')).toMatch(
      /It took\s+€12\.50 spent\s+Just before it was set aside\s+€0\.00 spent, €0\.00 set aside\s+Just after it was spent\s+€12\.50 spent, €0\.00 set aside/,
    );
    for (const asked of ['payment:pay_1', effect.agent_id, effect.upstream, effect.key_id, effect.idempotency_key])
      expect(await section('asked')).toContain(asked);
  });
});

describe('an effect', () => {
  /** Its screen, where the gateway says something else of it. */
  async function shown(more: object, ready = '#why', ledger: readonly object[] = []): Promise<string> {
    const { effect } = (await world.get(`/effects/${happened}`)).body;
    await answered(`**/v1/workspaces/demo/effects/${happened}`, { effect: { ...effect, ...more }, ledger });
    await open(`effects/${happened}`, ready);
    return (await page.innerText('main')).replaceAll(/\s+/g, ' ');
  }

  it('says what is not shown of it, and what there is not', async () => {
    const without = await shown({ params: undefined, params_omitted: 'your key may not call the tool', attempt: 3 });
    expect(without).toContain('Its params are not shown: your key may not call the tool.');
    expect(without).toMatch(/Attempt 3\b/);
    const cut = await shown({ params_truncated: true, receipt_id: null, holds: [], upstream_status: undefined });
    expect(cut).toContain('Some are cut: they are longer than is shown here.');
    expect(cut).toContain('Only what happened has a receipt.');
    expect(cut).not.toMatch(/What it took of budgets|HTTP \d|Attempt/);
  });

  it('says why: no rule, what differed, what policy would have done, and that it was another policy', async () => {
    const reason = { code: 'state_drift', message: 'The live state is another.' };
    const mismatches = [{ field: 'amount', assumed: 2000, current: '2500' }];
    const observed = { would: 'denied_policy', rule: null };
    const told = await shown({ reason, mismatches, observed, policy: { matched: [], version: 'of before' } });
    expect(told).toContain('No rule matched, so no rule decided. The live state is another.');
    expect(told).toContain('amount assumed 2000, found 2500');
    expect(told).toContain('Policy only observes: it would have been denied_policy (no rule).');
    expect(told).toContain('It was judged by an earlier version of the policies; lines may have moved.');
    const { version } = (await world.get('/policies')).body;
    const matched = ['world/refund-small', 'world/currency'];
    const own = await shown({ reason: { ...reason, rule: matched[0] }, policy: { matched, version } });
    expect(own).not.toContain('earlier version');
    const decided = page.locator('section[aria-labelledby=why] li', { hasText: 'decided' });
    expect(await decided.locator('bdi.mono').allInnerTexts()).toEqual([matched[0]]);
    expect(await page.locator('section[aria-labelledby=why] li').count()).toBe(2);
  });

  it('leads to its request while it waits, and says who let it go beyond what', async () => {
    const beyond = [{ limit: 'budget:world/day', by: 'apr_1' }];
    const told = await shown({ state: 'pending_approval', approval_id: 'apr_9', beyond }, 'main .banner');
    expect(told).toContain('Approvers let it go beyond budget world/day, by apr_1.');
    expect(await page.getByRole('link', { name: 'Open it in the inbox' }).getAttribute('href')).toBe(
      '/console/demo/inbox?approval=apr_9',
    );
  });

  it('whose outcome is unknown says where to look, whether it may be sent again, and who may not settle it', async () => {
    const state = { state: 'unknown', evidence: null };
    const told = await shown({ ...state, safe_to_retry: true }, '#unsettled');
    expect(told).toContain('The answer was lost. Look at payments itself: is it there? The agent may also send');
    may = (all) => all.filter((one) => one !== 'effects.resolve');
    const barred = await shown({ ...state, safe_to_retry: false }, '#unsettled');
    expect(barred).not.toContain('removes duplicates');
    expect(barred).toContain('Your key may not settle it.');
  });

  it('says what it gave back, that a window is over, and where nobody knows how it stood', async () => {
    const [{ unit }] = (await world.get(`/effects/${happened}`)).body.effect.holds;
    const taken = { budget: 'world/day', unit, bucket: 'b', window: 'w', amount: 1250, spent: 0 };
    const budgets = [
      { ...taken, now: null },
      { ...taken, budget: 'world/sliding', unknown: 'rolling', now: { spent: 5, held: 7, limit: 900 } },
    ];
    await answered(/\/effects\/[^/]+\/budgets$/, { budgets });
    await shown({ hold_state: 'voided' }, '#budgets');
    const told = () => page.locator('section[aria-labelledby=budgets]').innerText();
    await expect.poll(told).toMatch(/world\/day\s+It took\s+€12\.50 given back\s+Now\s+Its window is over/);
    expect(await told()).toMatch(/Now\s+€0\.05 spent, €0\.07 set aside\s+Limit now\s+€9\.00\s+How it stood then/);
  });

  it('has a receipt that holds as it was signed, and not where a word of it, its kind or the key is another', async () => {
    const { jws } = (await world.get(`/effects/${happened}/receipt`)).body;
    const published = await fetch(`${world.gateway.url}/.well-known/jwks.json`);
    const { keys }: { readonly keys: readonly object[] } = JSON.parse(await published.text());
    const parts: readonly string[] = jws.split('.');
    const changed = (part: 0 | 1, from: string, to: string): string => {
      const text = Buffer.from(parts[part] ?? '', 'base64url')
        .toString()
        .replace(from, to);
      return parts.with(part, Buffer.from(text).toString('base64url')).join('.');
    };
    const held = async (said: string, jwks: unknown = keys): Promise<unknown> => {
      await answered('**/receipt', { jws: said });
      await answered('**/.well-known/jwks.json', { keys: jwks });
      await open(`effects/${happened}`, '#receipt');
      const card = page.locator('section[aria-labelledby=receipt]');
      await card.locator('.checks').waitFor();
      return [
        await card.locator('header .mark').innerText(),
        ...(await card.locator('.checks li .vh').allTextContents()).map((is) => is.startsWith('Yes')),
      ];
    };
    expect(await held(jws)).toEqual(['Holds', true, true, true, true]);
    // The gateway would say that these are its receipts.
    expect(await held(changed(1, '"committed"', '"Committed"'))).toEqual(['Does not hold', true, true, false, true]);
    expect(await held(changed(0, 'svc-receipt+jws', 'JWT'))).toEqual(['Does not hold', false, true, false, true]);
    const forged = keys.map((key) => ({ ...key, x: Buffer.alloc(32, 7).toString('base64url') }));
    expect(await held(jws, forged)).toEqual(['Does not hold', true, false, false, true]);
    await answered('**/receipt', { code: 'store_unavailable', detail: 'Not now.' }, 500);
    await open(`effects/${happened}`, '#receipt');
    await page.getByText('It could not be checked in this browser.').waitFor();
  });

  it('that runs is looked at again until it is over; what was waited for does not shrink its stages', async () => {
    const stage = (name: string, ms: number | null, status = 'done') => ({
      stage: name,
      status,
      started_at: ago(HOUR),
      duration_ms: ms,
      detail: null,
    });
    await answered('**/effects/*/run', {
      stages: [stage('approval', HOUR), stage('dispatch', 30), stage('sign', 10, 'failed'), stage('notify', 1, 'done')],
    });
    const { effect } = (await world.get(`/effects/${happened}`)).body;
    let looks = 0;
    await page.route(`**/v1/workspaces/demo/effects/${happened}`, (route) => {
      looks += 1;
      const now = looks === 1 ? { ...effect, state: 'executing', decision: 'in_progress' } : effect;
      return route.fulfill({ json: { effect: now, ledger: [] } });
    });
    await open(`effects/${happened}`, '#stages');
    expect(await page.locator('.head .mark').innerText()).toBe('Running');
    await page.locator('.head .mark', { hasText: 'Happened' }).waitFor();
    const bars = await page
      .locator('section[aria-labelledby=stages] rect')
      .evaluateAll((all) =>
        all.map((one) => [
          one.getAttribute('class'),
          ...['x', 'width'].map((name) => Number(one.getAttribute(name)).toFixed(1)),
        ]),
      );
    expect(bars).toEqual([
      ['fill-spent', '0.0', '0.0'],
      ['fill-spent', '0.0', '73.2'],
      ['fill-stop', '73.2', '24.4'],
      ['fill-spent', '97.6', '2.4'],
    ]);
    expect(await page.locator('section[aria-labelledby=stages] li').first().innerText()).toContain('1 h');
  });

  it('says who did what to it, but for the gateway itself', async () => {
    const event = (seq: number, kind: string, type: string) => ({
      seq,
      at: ago(HOUR),
      kind,
      actor: { type, id: 'x\u202e' },
    });
    await shown({}, '#ledger', [event(1, 'approval.granted', 'user'), event(2, 'state.drifted', 'gateway')]);
    const lines = await page.locator('section[aria-labelledby=ledger] li').allInnerTexts();
    expect(lines.map((line) => line.split(/\n+/).slice(1))).toEqual([
      ['approval granted', 'by user x\\u202e'],
      ['state drifted'],
    ]);
  });
});

describe('what a gateway answers', () => {
  const path = '**/workspaces/demo/budgets';
  const alert = (text: string): Promise<void> => page.getByRole('alert').filter({ hasText: text }).waitFor();

  it('is said in its words, with each param that is wrong; and that it does not answer, so that nobody knows', async () => {
    const errors = [
      { path: '/changes/amount', message: 'is too large' },
      { path: '/reason', message: 'is missing' },
    ];
    await answered(path, { code: 'invalid_request', detail: 'Two faults.', errors }, 400);
    await open('budgets');
    await alert('amount is too large; reason is missing');
    await answered(path, { code: 'insufficient_scope', detail: 'This key may not.' }, 403);
    await open('budgets');
    await alert('This key may not.');
    await page.route(path, (route) => route.fulfill({ status: 502, body: '<html>' }));
    await open('budgets');
    await alert('The gateway answered 502.');
    // What is asked for is tried again; what was to be done is not, and may have been done.
    await page.route('**/workspaces/demo/pauses/*', (route) => route.abort());
    await open('pauses', 'li.card');
    await page.getByRole('button', { name: 'Lift' }).click();
    await page.getByRole('button', { name: 'Yes, let calls run again' }).click();
    await alert('The gateway does not answer. Look whether it was done before you repeat it.');
  });

  it('is asked for again where the gateway sheds load', async () => {
    let times = 0;
    // These are read once, and not every few seconds.
    await page.route('**/workspaces/demo/agents', async (route) => {
      times += 1;
      if (times > 2) return route.fulfill({ json: { agents: [] } });
      await route.fulfill({ status: 503, json: { code: 'not_ready', detail: 'Overloaded.' } });
    });
    await open('agents', '.empty');
    expect(times).toBe(3);
    // What it says is told in the end: nobody waits for ever.
    await answered('**/workspaces/demo/agents', { code: 'not_ready', detail: 'Overloaded.' }, 503);
    await open('agents');
    await alert('Overloaded.');
  });

  it('leads to signing in where the session is over', async () => {
    await answered(path, { code: 'missing_key', detail: 'Nobody is signed in.' }, 401);
    await page.goto('/console/demo/budgets');
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  });

  it('is not said to be live where its stream is away', async () => {
    await page.route('**/effects/stream', (route) => route.abort());
    await open('effects?decision=denied_claim&tool=nothing.like', '.empty');
    expect(await page.locator('.head .mark').innerText()).toBe('Not live');
    expect(await page.locator('details.folded > summary').textContent()).toBe('Filters (2)');
    await page.getByText('No effect fits these filters').waitFor();
    await page.getByRole('button', { name: 'Clear the filters' }).click();
    await page.locator('a.cells').first().waitFor();
    expect(new URL(page.url()).search).toBe('');
  });
});

describe('the inbox', () => {
  it('sends with each vote the question that it counts for', async () => {
    const ids = [waiting, (await world.run(refund({ payment_id: 'pay_5', amount: 60_100 }))).body.approval.id];
    const digests: unknown[] = [];
    await page.route('**/approve', (route) => {
      digests.push(route.request().postDataJSON().digest);
      return route.fulfill({ json: { became: { what: 'waiting', message: 'It waits for others.' } } });
    });
    await open('inbox', '#question');
    for (const box of await page.locator('li input[type=checkbox]').all()) await box.check();
    await page.getByRole('button', { name: /^Approve 2/ }).click();
    const asked = await Promise.all(ids.map(async (id) => (await world.get(`/approvals/${id}`)).body.digest));
    await expect.poll(() => digests).toEqual(asked);
    await world.post(`/approvals/${ids[1]}/reject`, {}, world.keys.approver);
  });

  it('counts as ended without a decision what nobody decided on, of the last 24 h', async () => {
    const { body } = await world.get(`/approvals/${waiting}`);
    const ended = (ms: number, more: object = {}) => ({ ...body, decided_at: null, expires_at: ago(ms), ...more });
    await answered(/approvals\?status=expired/, {
      approvals: [
        ended(HOUR),
        ended(24 * HOUR - MINUTE),
        ended(24 * HOUR + MINUTE),
        ended(HOUR, { stopped: { at: ago(2 * HOUR) } }),
        ended(HOUR, { decided_at: ago(2 * HOUR) }),
      ],
    });
    await open('inbox', '#question');
    await page.getByText('2 requests ended without a decision in the last 24 h: nothing of that happened.').waitFor();
  });

  /** Opens an inbox in which these wait: each as one that does, but for what it says. */
  async function waits(...some: readonly object[]): Promise<readonly unknown[]> {
    const { body } = await world.get(`/approvals/${waiting}`);
    const approvals = some.map((more, n) => ({
      ...body,
      id: `apr_${n}`,
      digest: `digest ${n}`,
      summary: `Question ${n}`,
      created_at: ago(HOUR - n * MINUTE),
      ...more,
    }));
    await answered(/\/approvals\?status=pending/, { approvals });
    await page.route(/\/approvals\/apr_\d$/, (route) =>
      route.fulfill({ json: approvals.find(({ id }) => route.request().url().endsWith(id)) }),
    );
    await open('inbox');
    await page.waitForLoadState('networkidle');
    return approvals;
  }

  /** Goes to another of them. */
  async function question(n: number): Promise<Locator> {
    await page.getByRole('link', { name: `Question ${n}` }).click();
    await page.locator('#question', { hasText: `Question ${n}` }).waitFor();
    await page.waitForLoadState('networkidle');
    return page.locator('section[aria-labelledby=question]');
  }

  const factIn = (of: Locator, name: string): Locator =>
    of.locator('dt', { hasText: name }).locator('xpath=following-sibling::dd[1]');

  it('has the oldest first, without those whose time is over; one that is chosen twice is not chosen', async () => {
    await waits({ created_at: ago(MINUTE) }, { created_at: ago(3 * HOUR) }, { expires_at: ago(1_000) });
    expect(await page.locator('main ol.list li').allInnerTexts()).toEqual([
      expect.stringMatching(/^Question 1\s+3 h$/),
      expect.stringMatching(/^Question 0\s+1 min$/),
    ]);
    expect(await page.innerText('#question')).toBe('Question 1');
    expect(await page.innerText('#waiting')).toBe('2 wait');
    await page.keyboard.press('x');
    await expect.poll(() => page.innerText('#waiting')).toBe('2 wait · 1 chosen');
    await page.keyboard.press('x');
    await expect.poll(() => page.innerText('#waiting')).toBe('2 wait');
    await waits({ expires_at: ago(1_000) });
    await page.getByText('Nothing waits').waitFor();
  });

  it('puts no other question in the place of one that was decided elsewhere, and opens the next that comes', async () => {
    const [first, second, third] = await waits({}, {}, {});
    const left = (approvals: readonly unknown[]): Promise<void> =>
      answered(/\/approvals\?status=pending/, { approvals });
    expect(await page.innerText('#question')).toBe('Question 0');
    await left([second, third]);
    await page.getByText('This waits no more').waitFor();
    expect(await page.locator('#question').count()).toBe(0);
    await page.keyboard.press('j');
    await page.locator('#question', { hasText: 'Question 1' }).waitFor();
    await left([]);
    await page.getByText('Nothing waits').waitFor();
    await left([first]);
    await page.locator('#question', { hasText: 'Question 0' }).waitFor();
  });

  it('says whom a rule asks, and why somebody else does not decide', async () => {
    const { body } = await world.get(`/approvals/${waiting}`);
    const [one] = body.requirements;
    const others = { roles: ['auditor'], users: [] };
    const escalates = (at: string) => ({
      requirements: [{ ...one, approvers: others, escalates: { at, to: { roles: [], users: ['maria'] } } }],
    });
    const vote = (user: string, verdict: string) => ({ votes: [{ user, verdict, at: ago(MINUTE), comment: null }] });
    const [over, ahead] = [ago(1_000), ago(-HOUR)];
    const named = 'The policy names others to decide.';
    const cases: readonly (readonly [more: object, why: string | null])[] = [
      [{}, null],
      [{ requested_by: { ...body.requested_by, user: 'maria' } }, 'It is your own request, or your agent’s.'],
      [vote('maria', 'approve'), 'You have approved it. It waits for others.'],
      [vote('tom', 'approve'), null],
      [{ requirements: [{ ...one, approvers: others }] }, named],
      [{ requirements: [{ ...one, approvers: { ...others, users: ['maria'] } }] }, null],
      [escalates(ahead), named],
      [escalates(over), null],
    ];
    await waits(...cases.map(([more]) => more));
    for (const [n, [, why]] of cases.entries()) {
      const asked = await question(n);
      await expect.poll(() => asked.locator('button.yes').count()).toBe(why === null ? 1 : 0);
      const banners = await asked.locator('.banner').allInnerTexts();
      expect([n, ...banners]).toEqual(why === null ? [n] : [n, expect.stringContaining(why)]);
    }
    const by = factIn(await question(6), `Asked by rule ${one.rule}`);
    expect(await by.innerText()).toMatch(/^0 of 1 from auditor; from .+ on also maria$/);
    expect(await timesIn(by)).toEqual([ahead]);
    expect(await (await question(3)).innerText()).toMatch(/tom approved at /);
  });

  it('says beyond which limit it would go, what it takes, and where there is no sum', async () => {
    const { body } = await world.get(`/approvals/${waiting}`);
    const [one] = body.requirements;
    const cost = { budget: 'world/day', unit: 'EUR-cent', amount: 60_000, limit: 100_000, spent: 30_000, held: 20_000 };
    const beyond = (limit: string) => ({ costs: [cost], requirements: [{ ...one, beyond: limit }] });
    await waits(
      beyond('budget:world/day'),
      { costs: [{ ...cost, unit: 'CHF-cent' }] },
      { ...beyond('rate:world/burst'), tool: 'payments.charge' },
      { costs: [], tool: 'payments.charge' },
    );
    const budget = await question(0);
    expect(await budget.locator('.banner').allInnerTexts()).toEqual([
      'Beyond a limit: budget world/day has €500.00 left of €1,000.00, and this takes €600.00.',
    ]);
    expect(await factIn(budget, 'Takes from world/day').innerText()).toBe('€600.00; €500.00 left of €1,000.00');
    expect(await (await question(2)).locator('.banner').allInnerTexts()).toEqual([
      'Beyond a limit: rate world/burst is used up.',
    ]);
    expect(await (await question(3)).locator('button.yes').innerText()).toMatch(/^Approve payments\.charge/);
    for (const n of [0, 1]) await page.getByLabel(`Choose Question ${n}`).check();
    const both = await question(0);
    await both.getByText('There is no sum: their amounts are not known, or not all of one currency.').waitFor();
    expect(await both.locator('button.yes').innerText()).toMatch(/^Approve 2\s+a$/);
  });

  it('says what became of the last three votes, as good only where it is, and goes on to the next', async () => {
    const became = [
      { what: 'dispatched', decision: 'unknown_effect', message: 'Nobody knows whether it happened.' },
      { what: 'dispatched', decision: 'committed', message: 'It happened.' },
      { what: 'waiting', message: 'It waits for others.' },
      { what: 'rejected', message: 'Nothing is sent.' },
    ];
    const votes: unknown[] = [];
    await page.route(/\/(?:approve|reject)$/, (route) => {
      const request = route.request();
      votes.push([request.url().replace(/.*\/approvals\//, ''), request.postDataJSON()]);
      return route.fulfill({ json: { became: became[votes.length - 1] } });
    });
    await waits({}, {}, {}, {});
    const said = page.locator('.said .banner');
    for (const [n, { message }] of became.entries()) {
      await page.locator('#question', { hasText: `Question ${n}` }).waitFor();
      await page.getByLabel(/^Comment/).fill(n === 1 ? '  Seen  ' : '');
      await page.getByRole('button', { name: n === 3 ? /^Reject/ : /^Approve/ }).click();
      await said.first().getByText(message).waitFor();
      expect(await said.first().getAttribute('class')).toBe(n === 0 ? 'banner ' : 'banner ok');
    }
    // After the last there is the one before it.
    await page.locator('#question', { hasText: 'Question 2' }).waitFor();
    expect(await said.locator('span').allInnerTexts()).toEqual([
      'Question 3: Nothing is sent.',
      'Question 2: It waits for others.',
      'Question 1: It happened.',
    ]);
    expect(votes).toEqual([
      ['apr_0/approve', { digest: 'digest 0' }],
      ['apr_1/approve', { digest: 'digest 1', comment: 'Seen' }],
      ['apr_2/approve', { digest: 'digest 2' }],
      ['apr_3/reject', { digest: 'digest 3' }],
    ]);
  });

  it('lets params be changed by the rules that ask its reader, each within its bounds and as what it is', async () => {
    const { body } = await world.get(`/approvals/${waiting}`);
    const [one] = body.requirements;
    const editable = {
      amount: { min: 100, max: 'asked' },
      currency: { one_of: ['EUR', 'USD'] },
      urgency: { one_of: [2, 1] },
      note: { max_length: 20 },
      days: { min: 1 },
      until: { max: 9 },
    };
    const others = { ...one, approvers: { roles: ['auditor'], users: [] }, editable: { reason: { max_length: 5 } } };
    const params = { ...body.params, urgency: 1, days: 3, until: null, reason: 'lost' };
    const changed: unknown[] = [];
    await page.route('**/approve', (route) => {
      changed.push(route.request().postDataJSON().changes);
      return route.fulfill({ status: 409, json: { code: 'not_pending', detail: 'It is over.' } });
    });
    await waits({ params, requirements: [{ ...one, editable }, others] });
    const asked = await question(0);
    const fields = asked.locator('label:has(input, select)');
    expect((await fields.locator('> span').allInnerTexts()).slice(0, -1)).toEqual([
      'amount in EUR: at least €1.00, at most €600.00',
      'urgency: one of these',
      'note: at most 20 characters',
      'days: at least 1',
      'until: at most 9',
    ]);
    const [days, until] = [asked.getByLabel(/^days/), asked.getByLabel(/^until/)];
    const yes = asked.locator('button.yes');
    for (const [text, fault] of [
      ['0', 'days may be at least 1.'],
      ['1e999', 'days has to be a number.'],
      [' ', 'days has to be a number.'],
      ['3', null],
    ] as const) {
      await days.fill(text);
      await expect.poll(() => asked.getByRole('alert').allInnerTexts()).toEqual(fault === null ? [] : [fault]);
      expect([text, await yes.isDisabled()]).toEqual([text, fault !== null]);
    }
    await until.fill('9');
    await until.fill('');
    // All stands as it stood.
    expect(await yes.innerText()).toMatch(/^Approve €600\.00 refund/);
    await days.fill('5');
    await asked.getByLabel(/^note/).fill('7');
    await asked.getByLabel(/^urgency/).selectOption('2');
    expect(await yes.innerText()).toMatch(/^Approve as changed/);
    await yes.click();
    await page.getByRole('alert').filter({ hasText: 'It is over.' }).waitFor();
    await asked.getByLabel(/^urgency/).selectOption('1, as it stands');
    await asked.getByLabel(/^amount/).fill('1,00');
    expect(await yes.innerText()).toMatch(/^Approve €1\.00 refund/);
    await yes.click();
    await expect
      .poll(() => changed)
      .toEqual([
        { days: 5, note: '7', urgency: 2 },
        { days: 5, note: '7', amount: 100 },
      ]);
  });

  it('offers to let calls alike in only to who decides alone, and only for the call as it was asked', async () => {
    const { body } = await world.get(`/approvals/${waiting}`);
    const [one] = body.requirements;
    const own = { ...one, editable: { amount: { max: 'asked' } } };
    const others = { ...one, rule: 'world/other', approvers: { roles: ['auditor'], users: [] } };
    const sent: unknown[] = [];
    await page.route('**/approve', (route) => {
      sent.push(route.request().postDataJSON());
      return route.fulfill({ json: { became: { what: 'waiting', message: 'It waits.' } } });
    });
    const allow_alike = { times: 4, for_s: 7_200, varies: {} };
    await waits(
      { allow_alike, requirements: [own] },
      { allow_alike, requirements: [own, others] },
      { allow_alike, requirements: [own] },
    );
    const alike = page.locator('select[name=alike]');
    await question(1);
    expect(await alike.count()).toBe(0);
    const asked = await question(0);
    expect(await alike.locator('option').allInnerTexts()).toEqual([
      'Ask about each of them',
      'Let the next one in without asking',
      'Let the next 2 in without asking',
      'Let the next 3 in without asking',
      'Let the next 4 in without asking',
    ]);
    await alike.selectOption('3');
    // Another amount is another call.
    await asked.getByLabel(/^amount/).fill('1.00');
    await alike.waitFor({ state: 'detached' });
    await asked.locator('button.yes').click();
    await expect.poll(() => sent).toEqual([{ digest: 'digest 0', changes: { amount: 100 } }]);
    for (const n of [0, 2]) await page.getByLabel(`Choose Question ${n}`).check();
    await question(0);
    await page.getByRole('button', { name: /^Approve 2/ }).waitFor();
    expect([await alike.count(), await page.getByLabel(/^amount in/).count()]).toEqual([0, 0]);
  });
});

describe('what is unknown', () => {
  it('stands there oldest first, since when, why, where to look, and when it was sent', async () => {
    const { effects } = (await world.get('/effects?state=unknown')).body;
    const [real] = effects;
    const at = (target: string, asked: number, sent: number) => ({
      ...real,
      target,
      created_at: ago(asked),
      evidence: { ...real.evidence, started_at: ago(sent) },
    });
    const [older, newer] = [at('payment:older', 9 * HOUR, 3.01 * HOUR), at('payment:newer', 2.5 * HOUR, 1.01 * HOUR)];
    await answered(/effects\?state=unknown/, { effects: [newer, { ...older, id: 'eff_older' }], next_cursor: null });
    const [hold] = real.holds;
    const holds = [hold, { ...hold, budget: 'payments/team-month', amount: 7 }];
    await answered(`**/effects/${real.id}`, { effect: { ...newer, holds }, ledger: [] });
    await open('unknown', '.unknown input');
    const rows = page.locator('.unknown ol > li');
    expect(await rows.locator('.since').allInnerTexts()).toEqual(['3 h', '1 h']);
    expect(await rows.first().innerText()).toContain('payment:older');
    expect(await rows.first().innerText()).toContain(real.evidence.message);
    expect(await rows.first().innerText()).toContain('Look in payments.');
    await rows.last().locator('input').check();
    const sent = page.locator('section[aria-labelledby=settle] dt', { hasText: /^Sent$/ });
    await sent.waitFor();
    expect(await timesIn(sent.locator('xpath=following-sibling::dd[1]'))).toEqual([newer.evidence.started_at]);
    const held = page.locator('section[aria-labelledby=settle] dt', { hasText: /^Holds of / });
    expect(await held.allInnerTexts()).toEqual([`Holds of ${hold.budget}`, 'Holds of payments/team-month']);
  });

  it('is settled for those that are chosen then, and says what would settle it besides', async () => {
    const { effects } = (await world.get('/effects?state=unknown')).body;
    const many = Array.from({ length: 7 }, (_, n) => ({ ...effects[0], id: `eff_${n}`, target: `row:${n}` }));
    const [first, ...others] = many;
    await answered(/effects\?state=unknown/, { effects: [{ ...first, safe_to_retry: true }, ...others] });
    for (const one of many) await answered(`**/effects/${one.id}`, { effect: one, ledger: [] });
    const settled: unknown[] = [];
    await page.route('**/resolve', (route) => {
      const request = route.request();
      settled.push([request.url().replace(/.*\/effects\//, ''), request.postDataJSON()]);
      return route.fulfill({ status: 409, json: { code: 'not_unknown', detail: 'Somebody else was first.' } });
    });
    await open('unknown', '.unknown input');
    const rows = page.locator('.unknown ol > li');
    const last = await rows.last().locator('.why').innerText();
    expect(last).toContain('Or the agent sends it again: the upstream removes duplicates.');
    expect(last).not.toContain('Look in');
    for (let n = 0; n < 7; n += 1) await page.getByLabel(`Choose payments.refund on row:${n}`).check();
    const settle = page.locator('section[aria-labelledby=settle]');
    await settle.getByText('Settle 7 of 7').waitFor();
    // Of five of them it is said what to look for.
    await expect.poll(() => settle.locator('dt', { hasText: 'Idempotency key' }).count()).toBe(5);
    for (let n = 2; n < 7; n += 1) await page.getByLabel(`Choose payments.refund on row:${n}`).uncheck();
    await settle.getByText('Settle 2 of 7').waitFor();
    expect(await page.locator('main > details code').last().textContent()).toBe(
      'svc effects resolve eff_1 --outcome happened --workspace demo',
    );
    await settle.getByLabel('It happened', { exact: false }).check();
    await settle.getByLabel('How do you know', { exact: false }).fill('  It stands in the books ');
    await settle.getByRole('button', { name: 'Settle 2' }).click();
    await page.getByRole('alert').filter({ hasText: 'Somebody else was first.' }).waitFor();
    const said = { outcome: 'happened', comment: 'It stands in the books' };
    expect(settled).toEqual([
      ['eff_1/resolve', said],
      ['eff_0/resolve', said],
    ]);
    await settle.getByText('Choose what you looked at').waitFor();
    expect(await page.locator('.unknown input:checked').count()).toBe(0);
  });
});

describe('the overview', () => {
  it('says of the 200 newest, how many are unknown and how much waits, and since when', async () => {
    const long = 3 * HOUR + MINUTE / 4;
    const { body } = await world.get(`/approvals/${waiting}`);
    const { effect } = (await world.get(`/effects/${unknown}`)).body;
    await answered(/effects\?state=unknown/, {
      effects: [MINUTE, long].map((ms) => ({ ...effect, settled_at: ago(ms) })),
      next_cursor: 'more',
    });
    await answered(/approvals\?status=pending/, {
      approvals: [2 * HOUR + MINUTE / 4, MINUTE, 2 * MINUTE].map((ms) => ({ ...body, created_at: ago(ms) })),
    });
    const newest = page.waitForRequest(/\/effects\?limit=200$/);
    await open('overview', '.bar');
    await newest;
    const told = (name: string): Promise<string> => page.locator('main section', { hasText: name }).first().innerText();
    await expect.poll(() => told('Unknown outcomes')).toMatch(/2\+\s+The oldest for 3 h\./);
    await expect.poll(() => told('Requests for approval')).toMatch(/3\s+The oldest for 2 h\./);
  });

  it('names what refused most of them first: the rule, or what else it was', async () => {
    const { effect } = (await world.get(`/effects/${happened}`)).body;
    const of = (decision: string, reason: object) => ({ ...effect, state: 'denied', decision, reason });
    const full = of('denied_budget', { code: 'budget_exceeded', message: 'm' });
    const denied = of('denied_policy', { code: 'rule_denied', message: 'm', rule: 'world/currency' });
    await answered(/\/effects\?limit=200$/, { effects: [full, denied, effect, denied], next_cursor: null });
    await open('overview', '.bar');
    const refused = page.locator('section', { has: page.getByRole('heading', { name: 'What refused them' }) });
    const lines = await refused.locator('li').allInnerTexts();
    expect(lines.map((line) => line.replaceAll(/\s+/g, ' '))).toEqual(['2 world/currency', '1 budget exceeded']);
    expect(await refused.getByRole('link').getAttribute('href')).toBe('/console/demo/effects?rule=world%2Fcurrency');
  });
});

describe('the overview of few and of many', () => {
  it('names eight rules, says over how long it looked, and that nothing was tried', async () => {
    const { effect } = (await world.get(`/effects/${happened}`)).body;
    const denied = (n: number) => ({
      ...effect,
      created_at: ago(n === 9 ? 2 * HOUR + MINUTE / 4 : MINUTE),
      decision: 'denied_policy',
      state: 'denied',
      settled_by: null,
      reason: { code: 'rule_denied', message: 'm', rule: `world/${n}` },
    });
    await answered(/\/effects\?limit=200$/, {
      effects: Array.from({ length: 10 }, (_, n) => denied(n)),
      next_cursor: null,
    });
    await open('overview', '.bar');
    const refused = page.locator('section', { has: page.getByRole('heading', { name: 'What refused them' }) });
    expect(await refused.locator('li').count()).toBe(8);
    await page.getByText('10 in 2 h', { exact: true }).waitFor();
    await page.getByText('None of them was answered.').waitFor();
    expect(await page.locator('.rate a').getAttribute('href')).toBe('/console/demo/effects?decision=denied_policy');
    await answered(/\/effects\?limit=200$/, { effects: [], next_cursor: null });
    await open('overview');
    await page.getByText('Nothing was tried yet').waitFor();
  });

  it('says of half of them, of most and of all how long they took', async () => {
    const { effect } = (await world.get(`/effects/${happened}`)).body;
    const at = Date.parse('2026-11-27T03:04:05.000Z');
    const took = (ms: number, by = 'owner') => ({
      ...effect,
      settled_by: { by },
      created_at: new Date(at - 7).toISOString(),
      first_dispatch_at: new Date(at).toISOString(),
      settled_at: new Date(at + ms).toISOString(),
    });
    const lasted = [90, 10, 20, 11_000, 30];
    // What a person settled later says nothing of the upstream.
    const effects = [...lasted.map((ms) => took(ms)), took(99_000, 'user')];
    await answered(/\/effects\?limit=200$/, { effects, next_cursor: null });
    await open('overview', '.bar');
    const told = (title: RegExp) => page.getByLabel(title).locator('dd').allInnerTexts();
    expect(await told(/to the answer/)).toEqual(['30 ms', '90 ms', '11 s']);
    expect(await told(/people who were asked/)).toEqual(['7 ms', '7 ms', '7 ms']);
  });
});

describe('pauses, claims and passkeys', () => {
  it('a pause says who, why and until when', async () => {
    const [pause] = (await world.get('/pauses')).body.pauses;
    await open('pauses', 'li.card');
    expect(await card('nothing.like.this').innerText()).toMatch(/Stock-take\s+By tom since .+, until /);
    expect(await timesIn(card('nothing.like.this'))).toEqual([pause.created_at, pause.until]);
  });

  it('a pause that nobody ends says so, and by which key it was set where that has no user', async () => {
    const [pause] = (await world.get('/pauses')).body.pauses;
    const by = { ...pause.by, user: null };
    await answered('**/workspaces/demo/pauses', { pauses: [{ ...pause, by, until: null }] });
    await open('pauses', 'li.card');
    expect(await card('nothing.like.this').innerText()).toMatch(
      new RegExp(`By ${by.key_id} since .+, until somebody lifts it`),
    );
  });

  it('a pause is of what was chosen, and as long', async () => {
    const sent: unknown[] = [];
    await page.route('**/workspaces/demo/pauses', async (route) => {
      if (route.request().method() === 'GET') return route.fallback();
      sent.push(route.request().postDataJSON());
      await route.fulfill({ status: 201, json: {} });
    });
    const form = page.getByRole('form', { name: 'Pause something' });
    for (const [what, which] of [
      ['Everything in this workspace', null],
      ['An upstream', ' payments '],
    ] as const) {
      await open('pauses');
      await page.getByRole('button', { name: 'Pause something' }).click();
      await form.locator('select').first().selectOption(what);
      if (which === null) expect(await form.getByLabel('Which').count()).toBe(0);
      else await form.getByLabel('Which').fill(which);
      await form.getByLabel('Why?', { exact: false }).fill(' Stock-take ');
      await form.getByRole('button', { name: 'Pause' }).click();
      await form.waitFor({ state: 'detached' });
    }
    const reason = 'Stock-take';
    expect(sent).toEqual([
      { scope: { workspace: true }, reason },
      { scope: { upstream: 'payments' }, reason },
    ]);
  });

  it('a claim says until when, and what runs under it; units of a pool are released', async () => {
    const { claims } = (await world.get('/claims')).body;
    const claim = claims.find(({ target }: { readonly target: string }) => target === 'payment:pay_4');
    expect(claim.running_effects).toEqual([]);
    const [extended, at] = [ago(-2 * HOUR), '**/workspaces/demo/claims'];
    await answered(at, { claims: [{ ...claim, running_effects: ['eff_1'], extended_until: extended }] });
    await open('claims', 'li.card');
    expect(await card(claim.target).innerText()).toContain('1 call runs under it. It lasts until they are settled');
    expect(await timesIn(card(claim.target))).toEqual([claim.created_at, claim.expires_at, extended]);
    const units = card('1 of deploy-slot');
    await units.getByRole('button', { name: 'Release' }).click();
    await units.getByRole('button', { name: 'Yes, others may have it' }).click();
    await units.waitFor({ state: 'detached' });
    expect((await world.get('/reservations')).body.reservations).toEqual([]);
    await world.post('/reservations', { pool: 'deploy-slot', units: 1, ttl_s: 3_000 }, world.keys.bot);
  });

  it('of two passkeys that one is removed that was chosen', async () => {
    const removed: string[] = [];
    await answered('**/users/*/passkeys', { passkeys: PASSKEYS });
    await page.route('**/users/*/passkeys/*', (route) => {
      removed.push(`${route.request().method()} ${new URL(route.request().url()).pathname}`);
      return route.fulfill({ status: 204 });
    });
    await open('passkeys', 'li.card');
    expect(await card('My phone').innerText()).toContain('never used, on several devices');
    expect(await card('My laptop').innerText()).toContain(', on one device');
    expect(await timesIn(card('My laptop'))).toEqual([PASSKEYS[1]?.created_at, PASSKEYS[1]?.last_used_at]);
    await card('My laptop').getByRole('button', { name: 'Remove' }).click();
    await card('My laptop').getByRole('button', { name: 'Yes, remove it' }).click();
    await expect.poll(() => removed).toEqual(['DELETE /v1/beta/users/maria/passkeys/psk_laptop']);
  });
});

describe('budgets', () => {
  it('say when they begin anew, and how they end at this pace', async () => {
    const [now, end] = [Date.now(), ago(-12 * HOUR)];
    const [row] = (await world.get('/budgets')).body.budgets;
    // As the gateway names a window: both ends, in ms.
    expect(row.window).toBe(`c:${Date.parse(row.resets_at) - 365 * 24 * HOUR}:${Date.parse(row.resets_at)}`);
    const window = `c:${now - 12 * HOUR}:${now + 12 * HOUR}`;
    const day = { ...row, unit: 'call', bucket: '["bot"]', window, spent: 15, held: 5, resets_at: end };
    const budgets = [
      { ...day, budget: 'world/short', limit: 30 },
      { ...day, budget: 'world/enough', limit: 50 },
      { ...day, budget: 'world/sliding', limit: 50, window: 'r:86400000', resets_at: null },
      { ...day, budget: 'world/begun', window: `c:${now - HOUR}:${now + 23 * HOUR}` },
    ];
    await answered('**/workspaces/demo/budgets', { budgets });
    await open('budgets', 'li.card');
    const told = (name: string): Promise<string> => card(name).innerText();
    expect(await told('world/short')).toMatch(
      /Begins anew at .+, in 1[12] h.*\.\s+At this pace it runs out before: 40 calls/,
    );
    expect(await timesIn(card('world/short'))).toEqual([end]);
    // The fullest first, each with whose it is.
    expect(await page.locator('li.card h2').allInnerTexts()).toEqual([
      'world/short bot',
      'world/enough bot',
      'world/sliding bot',
      'world/begun bot',
    ]);
    expect(await told('world/enough')).toMatch(
      /20 calls of 50 calls\s+15 calls spent, 5 calls set aside, 30 calls left\./,
    );
    expect(await told('world/enough')).toContain('At this pace: 40 calls by then.');
    expect(await told('world/sliding')).toMatch(/Counted over a rolling window\.$/);
    // Too little of it is over to say.
    expect(await told('world/begun')).not.toContain('At this pace');
  });

  it('that others use as well have no more than their level for the key of one agent', async () => {
    const shared = { budget: 'world/team', unit: 'call', level: 'low', resets_at: ago(-HOUR) };
    await answered('**/workspaces/demo/budgets', { budgets: [shared] });
    await open('budgets', 'li.card');
    expect(await card('world/team').innerText()).toBe('world/team, which others use as well: low');
  });
});

describe('policies', () => {
  it('are listed with file and line, with who put them in force and why, and are put in force from there', async () => {
    await asAnAdministratorSeesIt();
    may = (all) => [...all, 'policies.history', 'policies.activate'];
    const done: unknown[] = [];
    await page.route(/\/policies\/(?:activations|rollback)$/, (route) => {
      const request = route.request();
      if (request.method() === 'GET') return route.fallback();
      done.push([new URL(request.url()).pathname.replace(/.*\//, ''), request.postDataJSON()]);
      return route.fulfill({ json: {} });
    });
    await open('policies', '#history');
    const { rules } = (await world.get('/policies')).body;
    const listed = await page.locator('section.rules').allInnerTexts();
    for (const { id, file, line } of rules)
      expect(listed.join('\n')).toMatch(new RegExp(`${id}\\s[^]*${file.replaceAll('.', '\\.')}:${line}\\b`));
    const [latest, first] = await page.locator('section[aria-labelledby=history] ol > li').allInnerTexts();
    for (const told of ['activate by user maria', 'confirmed by maria and tom', 'limits.yaml', '“Limits of June”'])
      expect(latest).toContain(told);
    expect(first).toContain('from the files');
    for (const [name, sure] of [
      ['Put the files in force', 'Yes, on all gateways'],
      ['Roll back', 'Yes, put AAAAAAAAAAAA in force on all gateways'],
    ] as const) {
      await page.getByRole('button', { name, exact: true }).click();
      await page.getByRole('button', { name: sure, exact: true }).click();
      await page.getByRole('button', { name, exact: true }).waitFor();
    }
    expect(done).toEqual([
      ['activations', {}],
      ['rollback', {}],
    ]);
  });

  it('say where they are only observed, where there are none, and where their files cannot be used', async () => {
    await asAnAdministratorSeesIt();
    may = (all) => [...all, 'policies.history', 'policies.activate'];
    const rule = { id: 's/one', set: 's', effect: 'deny', mode: 'observe', description: 'No refunds' };
    const policies = '**/workspaces/demo/policies';
    await answered(policies, { version: 'V'.repeat(43), mode: 'observe', rules: [rule] });
    await answered('**/v1/beta/policies/activations', { ...HISTORY, in_force: 'E'.repeat(43), files_version: null });
    await open('policies', '#history');
    expect(await page.locator('.head .mark').innerText()).toBe('Only observed');
    expect(await page.locator('section.rules li').innerText()).toMatch(/^s\/one\s+deny\s+No refunds\s+\(observe\)$/);
    const history = page.locator('section[aria-labelledby=history]');
    expect(await history.innerText()).toContain('The files of this gateway cannot be used: its log says why.');
    expect(await page.getByRole('button', { name: 'Put the files in force' }).count()).toBe(0);
    // What was put there last is not what is in force.
    expect(await history.getByText('In force', { exact: true }).count()).toBe(0);
    await answered('**/v1/beta/policies/activations', HISTORY);
    await answered(policies, { version: 'V'.repeat(43), mode: 'enforce', rules: [] });
    await open('policies', '#history');
    await page.getByText('Nothing is allowed.').waitFor();
    expect(await page.locator('.head .mark').innerText()).toBe('Enforced');
    expect(await history.locator('ol > li', { hasText: 'In force' }).locator('code').allInnerTexts()).toEqual([
      'B'.repeat(12),
    ]);
  });

  it('that are proposed say what, by whom, why and until when; who stands behind one takes it back, others end it', async () => {
    await asAnAdministratorSeesIt();
    may = (all) => [...all, 'policies.history', 'policies.activate'];
    const [one] = PROPOSALS.proposals;
    const by = { type: 'user', id: 'tom' };
    const [rollback, own] = [
      { ...one, how: 'rollback', by, why: 'Too strict', files: ['a.yaml', 'b.yaml'], people: ['tom'], still_needs: 1 },
      { ...one, id: 'ppl_2', how: 'activate', by: { ...by, id: 'maria' }, people: ['maria'], still_needs: 1 },
    ];
    await answered('**/v1/beta/policies/proposals', {
      proposals: [rollback, own, { ...own, id: 'ppl_3', status: 'confirmed' }],
    });
    const ended: string[] = [];
    await page.route('**/proposals/*', (route) => {
      const request = route.request();
      ended.push(`${request.method()} ${request.url().replace(/.*\//, '')}`);
      return route.fulfill({ status: 204 });
    });
    await open('policies', '#proposed');
    const items = page.locator('section[aria-labelledby=proposed] > ul > li');
    expect(await items.count()).toBe(2);
    const told = await items.first().innerText();
    for (const text of [
      'Roll back',
      'by tom, ',
      'Too strict',
      'a.yaml, b.yaml',
      'tom stands behind it; one more person',
    ])
      expect(told).toContain(text);
    expect(await timesIn(items.first())).toEqual([one?.at, one?.expires_at]);
    expect(await items.last().innerText()).toContain('Put in force');
    for (const item of await items.all()) await item.getByRole('button', { name: 'What would change' }).click();
    await items.first().getByRole('button', { name: 'Confirm' }).waitFor();
    const offered = async (n: number): Promise<readonly string[]> =>
      (await items.nth(n).locator('button').allInnerTexts()).filter(Boolean);
    expect(await offered(0)).toEqual(['Close', 'Confirm', 'Turn down']);
    expect(await offered(1)).toEqual(['Close', 'Withdraw']);
    await items.first().getByRole('button', { name: 'Turn down' }).click();
    await items.first().getByRole('button', { name: 'Yes, it is over' }).click();
    await expect.poll(() => ended).toEqual(['DELETE ppl_1']);
  });

  it('say of a call that is tried all that it has to hold, and what is not known; what is no object is not asked', async () => {
    const obligations = [
      { kind: 'budget', budget: 'world/day', unit: 'EUR-cent', amount: 1_250, limit: 100_000 },
      { kind: 'budget', budget: 'world/calls', unit: 'call', amount: null },
      { kind: 'rate_limit', id: 'world/burst', window_ms: 60_000, limit: 5 },
      { kind: 'claim', target: 'payment:pay_1', hold: 'call' },
      { kind: 'reserve', pool: 'deploy-slot', units: 1 },
      {
        kind: 'approval',
        approvers: { roles: ['finance-lead'], users: ['tom'] },
        quorum: 2,
        expires_ms: HOUR,
      },
    ];
    const policies = [{ rule: 'world/a', effect: 'require_approval', unknown: ['params.amount', 'state.status'] }];
    const got = { would: 'dispatched', reason: { code: 'x', message: 'It would be sent.' }, target: 'payment:pay_1' };
    const asked: unknown[] = [];
    await page.route('**/effects/preview', (route) => {
      asked.push(route.request().postDataJSON());
      if (asked.length > 1)
        return route.fulfill({ status: 404, json: { code: 'x', detail: 'There is no such tool.' } });
      return route.fulfill({ json: { ...got, obligations, policies, policy_version: 'V' } });
    });
    await open('policies', '#try');
    const form = page.locator('section[aria-labelledby=try]');
    const attempt = async (tool: string, params: string): Promise<void> => {
      await form.getByLabel('Tool').fill(tool);
      await form.getByLabel('Agent').fill('bot');
      await form.getByLabel('Params').fill(params);
      await form.getByRole('button', { name: 'Try', exact: true }).click();
    };
    await attempt(' payments.refund ', ' ');
    const verdict = form.locator('[role=status]');
    expect(await verdict.locator('.mark').innerText()).toBe('dispatched');
    const command = await verdict.locator('details code').last().textContent();
    expect([command, statusOf(command ?? '')]).toEqual(['svc policy show V', 2]);
    expect(await verdict.locator('dt').allInnerTexts()).toEqual([
      'Target',
      'require approval',
      'budget',
      'budget',
      'rate limit',
      'claim',
      'reserve',
      'approval',
    ]);
    expect(await verdict.locator('dd').allInnerTexts()).toEqual([
      'payment:pay_1',
      'world/a not known: params.amount, state.status',
      '€12.50 of world/day, whose limit is €1,000.00',
      'what it costs of world/calls',
      '5 calls in 1 min (world/burst)',
      'payment:pay_1 (call)',
      '1 of deploy-slot',
      '2 of finance-lead, tom, within 1 h',
    ]);
    await attempt('payments.refund', '[1]');
    await page.getByText('Params are a JSON object').waitFor();
    // What another call would get is not said of this one.
    expect(await verdict.innerText()).toBe('');
    await attempt('payments.none', '{"a": 1}');
    await form.getByRole('alert').filter({ hasText: 'There is no such tool.' }).waitFor();
    expect(await form.getByText('Params are a JSON object').count()).toBe(0);
    const call = { action_type: 'mcp.tool_call', agent_id: 'bot' };
    expect(asked).toEqual([
      { ...call, tool: 'payments.refund', params: {} },
      { ...call, tool: 'payments.none', params: { a: 1 } },
    ]);
  });

  it('a suggested text is copied as it stands there', async () => {
    await asAnAdministratorSeesIt();
    await open('policies', '#suggested');
    await page.evaluate('navigator.clipboard.writeText = async (text) => { globalThis.copied = text; }');
    await page.getByRole('button', { name: 'Copy the text for payments.refund' }).click();
    await page.getByRole('button', { name: 'Copy the text for payments.refund' }).getByText('Copied').waitFor();
    expect(await page.evaluate('globalThis.copied')).toBe(SUGGESTIONS.suggestions[0]?.text);
  });
});

describe('the company brain', () => {
  it('has first what changed last, each with its version and where it comes from', async () => {
    const path = '/v1/workspaces/demo/brain/entities';
    const put = (...ids: readonly string[]) => {
      const entities = ids.map((id) => ({ type: 'team', id, name: `Team ${id}`, attributes: { of: ids.length } }));
      return send(world.gateway.url, world.gateway.administrativeKey, 'PUT', path, { entities });
    };
    await put('red', 'blue');
    await put('red');
    const entities = (await world.get('/brain/entities')).body.entities;
    await open('brain', 'li.card');
    expect(await page.locator('li.card h2').allInnerTexts()).toEqual(['Team red', 'Team blue']);
    const by = entities[0].source.by;
    expect(await card('Team red').innerText()).toMatch(new RegExp(`Version 2, .+, put by ${by.type} ${by.id}$`));
    expect(await timesIn(card('Team red'))).toEqual([entities[0].updated_at]);
    await open('brain?query=red', '.banner');
    expect(await page.innerText('main .banner')).toBe('A search is for entities of one type: name it.');
    await answered('**/brain/search?*', { entities: [entities[0]], truncated: true });
    await open('brain?query=red&type=team', 'li.card');
    await page.getByText('There are more. More words find fewer.').waitFor();
    const asked: (string | null)[] = [];
    await page.route('**/brain/entities?*', (route) => {
      const cursor = new URL(route.request().url()).searchParams.get('cursor');
      asked.push(cursor);
      const [entity, next] = cursor === null ? [entities[0], 'c/2'] : [entities[1], null];
      return route.fulfill({ json: { entities: [entity], next_cursor: next } });
    });
    await open('brain', 'li.card');
    await page.getByRole('button', { name: 'Show more' }).click();
    await expect.poll(() => page.locator('li.card h2').allInnerTexts()).toEqual(['Team red', 'Team blue']);
    expect(asked).toEqual([null, 'c/2']);
    expect(await page.getByRole('button', { name: 'Show more' }).count()).toBe(0);
    const source = { kind: 'file', file: 'teams.yaml', line: 7 };
    await answered('**/brain/entities?*', { entities: [{ ...entities[1], source }], next_cursor: null });
    await open('brain', 'li.card');
    expect(await card('Team blue').innerText()).toMatch(/Version 1, .+, from teams\.yaml:7$/);
  });
});

describe('keys', () => {
  it('are rotated, say when they were used last, and a new one is shown once', async () => {
    const admin = await signedIn(world.gateway.administrativeKey);
    const user = 'olga';
    const made = await makeApiKey(world.gateway, user, { kind: 'account', workspace: 'demo', name: 'to be rotated' });
    await open('agents', '.keys li', admin);
    const row = admin.locator('.keys li', { hasText: 'to be rotated' });
    expect(await row.innerText()).toContain('never used');
    await row.getByRole('button', { name: 'Rotate' }).click();
    await row.getByRole('button', { name: 'Yes, rotate' }).click();
    const next = await admin.locator('.card .copies code').first().innerText();
    expect(next).not.toBe(made);
    expect((await world.get('/effects', next)).status).toBe(200);
    // The one before is good for a while longer.
    expect((await world.get('/effects', made)).status).toBe(200);
    await admin.getByRole('button', { name: 'I have kept it' }).click();
    await expect.poll(() => admin.getByText(next).count()).toBe(0);
    const used = (json: Record<string, unknown>) => ({ ...json, last_used_at: ago(3 * HOUR + MINUTE / 4) });
    await admin.route('**/v1/beta/keys', async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { keys: (await response.json()).keys.map(used) } });
    });
    await open('agents', '.keys li', admin);
    await row.first().getByText('used 3 h ago').waitFor();
    await admin.context().close();
  });
});

describe('agents and keys', () => {
  it('an agent says its team, its owner, its roles, and that it is disabled', async () => {
    const agent = { id: 'bot/1', team: 'refunds', owner: 'tom', roles: ['payer', 'reader'], disabled: true };
    const plain = { id: 'plain', team: null, owner: null, roles: [], disabled: false };
    await answered('**/workspaces/demo/agents', { agents: [agent, plain] });
    await open('agents', '.agents li');
    const [first = '', second] = await page.locator('.agents li').allInnerTexts();
    expect(first.split(/\n+/)).toEqual(['bot/1', 'disabled', 'team refunds', 'of tom', 'payer, reader']);
    expect(second?.trim()).toBe('plain');
    expect(await page.getByRole('link', { name: 'bot/1' }).getAttribute('href')).toBe(
      '/console/demo/effects?agent_id=bot%2F1',
    );
    await page.getByText('Keys are made, rotated and revoked with an administrative key.').waitFor();
  });

  it('keys stand there newest first, those that have ended where they are asked for; nobody revokes the own one', async () => {
    const { key_id: own } = await (
      await page.request.get('/console/session', { headers: { 'svc-console': '1' } })
    ).json();
    const key = (name: string, more: object = {}) => ({
      id: `key_${name}`,
      name,
      kind: 'account',
      profile: null,
      workspace: 'demo',
      agent_id: null,
      user_id: 'maria',
      created_at: ago(HOUR),
      expires_at: null,
      last_used_at: null,
      revoked_at: null,
      replaced_by: null,
      ...more,
    });
    const keys = [
      key('own', { id: own }),
      key('of the bot', { kind: 'agent', agent_id: 'bot', expires_at: ago(-HOUR) }),
      key('of an administrator', { workspace: null, user_id: null, profile: 'auditor' }),
      key('of the lab', { workspace: 'lab' }),
      key('taken away', { revoked_at: ago(HOUR), expires_at: ago(HOUR) }),
      key('too old', { expires_at: ago(MINUTE) }),
      key('rotated', { expires_at: ago(MINUTE), replaced_by: 'key_own' }),
    ];
    await answered('**/v1/beta/keys', { keys });
    may = (all) => [...all, 'keys.manage'];
    await open('agents', '.keys li');
    const rows = page.locator('.keys li');
    const told = async (): Promise<unknown> =>
      (await rows.allInnerTexts()).map((row) =>
        row
          .replaceAll(/\s+/g, ' ')
          .replace(/, until [^R]+/, ', until … ')
          .trim(),
      );
    const inForce = [
      'of an administrator key_of an administrator account (auditor) no user never used Rotate Revoke',
      'of the bot key_of the bot agent bot, of maria never used, until … Rotate Revoke',
      `own ${own} account maria never used Rotate`,
    ];
    expect(await told()).toEqual(inForce);
    await page.getByLabel('Also those that have ended').check();
    await expect.poll(() => rows.count()).toBe(6);
    expect(await told()).toEqual([
      'rotated key_rotated account maria never used replaced',
      'too old key_too old account maria never used expired',
      'taken away key_taken away account maria never used revoked',
      ...inForce,
    ]);
  });

  it('a key is made for what was chosen, and for as many days', async () => {
    await answered('**/v1/beta/keys', { keys: [] });
    may = (all) => [...all, 'keys.manage'];
    const sent: unknown[] = [];
    await page.route('**/v1/beta/users/*/keys', (route) => {
      sent.push([new URL(route.request().url()).pathname, route.request().postDataJSON()]);
      return route.fulfill({ status: 201, json: { key: 'svc_1', id: 'key_1' } });
    });
    await open('agents', '#keys');
    const form = page.getByRole('form', { name: 'Make a key' });
    const make = async (what: string, days: string): Promise<void> => {
      await page.getByRole('button', { name: 'Make a key' }).click();
      await form.getByLabel('What for').selectOption(what);
      if (what.startsWith('For an agent')) await form.locator('select[name=agent]').selectOption('bot');
      await form.getByLabel('Name, for people').fill(' new ');
      // Whoever makes it answers for it, if nobody else is named.
      if (days === 'A day') await form.getByLabel('User who answers for it').fill('o/ga');
      if (days !== '') await form.getByLabel('How long it is good').selectOption(days);
      await form.getByRole('button', { name: 'Make it' }).click();
      await page.getByText('The key new. It is shown this once: keep it now.').waitFor();
      await page.getByRole('button', { name: 'I have kept it' }).click();
    };
    await make('For an agent: it acts as itself', '');
    await make('For an MCP client: looks only', 'A day');
    await make('For an administrator: keys, workspaces, policies', 'As the configuration says');
    const [maria, name] = ['/v1/beta/users/maria/keys', 'new'];
    expect(sent).toEqual([
      [maria, { name, kind: 'agent', workspace: 'demo', agent_id: 'bot', expires_in: 90 * 86_400 }],
      ['/v1/beta/users/o%2Fga/keys', { name, profile: 'mcp_readonly', workspace: 'demo', expires_in: 86_400 }],
      [maria, { name, kind: 'administrative' }],
    ]);
  });
});

describe('MCP servers', () => {
  const pin = (name: string, state: string) => ({ tool: `crm.${name}`, upstream: 'crm', name, state });
  const look = async (server: object, more: object = {}): Promise<void> => {
    await answered('**/workspaces/demo/pins', {
      pins: [pin('kept', 'pinned'), pin('lost', 'gone'), pin('new', 'unseen')],
      servers: [{ upstream: 'crm', failure: null, unapproved: [], unapproved_count: 0, ...server }],
    });
    await answered('**/workspaces/demo/pins/crm', { unchanged: false, about: [], tools: [], ...more });
    await open('servers', 'li.card');
  };

  it('say what could not be looked at, what nobody has approved, and what is no longer there', async () => {
    const unapproved = Array.from({ length: 21 }, (_, n) => `tool${n}`);
    await look({ failure: 'It does not answer.', unapproved, unapproved_count: 30 });
    const told = (await card('crm').innerText()).replaceAll(/\s+/g, ' ');
    expect(told).toContain('It could not be looked at: It does not answer.');
    expect(told).toContain('30 of its tools nobody has approved');
    expect(told).toContain('tool19 and others');
    expect(told).not.toContain('tool20');
    expect(told).toMatch(/Not listed any more lost Not looked at yet new$/);
    await look({ unapproved: ['one'], unapproved_count: 1 });
    expect(await card('crm').innerText()).toMatch(/do not see them:\s+one$/m);
  });

  it('are compared: with what is said of all tools first, and without what is as it was', async () => {
    const differences = [{ path: '/description', before: 'old', after: 'new' }];
    await look(
      {},
      {
        about: differences,
        tools: [
          { name: 'kept', state: 'unchanged' },
          { name: 'moved', state: 'renamed', from: 'before', why: 'its schema is the same', differences },
          { name: null, state: 'unusable' },
        ],
      },
    );
    await page.getByRole('button', { name: 'What it says now' }).click();
    const changes = page.locator('li.card h3');
    await changes.first().waitFor();
    expect((await changes.allInnerTexts()).map((text) => text.trim())).toEqual([
      'Of all its tools changed',
      'moved renamed from before: its schema is the same',
      'A tool without a name unusable',
    ]);
    expect(await page.locator('dl.diff').first().innerText()).toMatch(/\/description\s+old\s+new/);
    await look({}, { unchanged: true });
    await page.getByRole('button', { name: 'What it says now' }).click();
    await page.getByText('It says what was approved.').waitFor();
  });
});

describe('health', () => {
  it('calls nothing a gateway that refuses but what says so, and nothing done where it does', async () => {
    // As where health has a port of its own.
    await answered('**/readyz', { title: 'Not found', status: 404 }, 404);
    await open('health');
    await page.getByRole('alert').filter({ hasText: 'Something went wrong in this page.' }).waitFor();
    expect(await page.locator('main .banner[role=status]').count()).toBe(0);
    const parts = [{ part: 'other', message: 'Not yet.' }];
    await answered('**/readyz', { ready: false, parts }, 503);
    await open('health', '.banner.bad');
    expect(await card('Not yet.').innerText()).toContain('svc status');
    expect(await page.getByText('Nothing to do').count()).toBe(0);
    await answered('**/readyz', { ready: true, store: { durability: 'quorum', epoch: 3 } });
    await open('health', '.banner.ok');
    await page.getByText('Nothing to do').waitFor();
    expect(await card('Store').innerText()).toContain('quorum (quorum, epoch 3)');
  });

  it('says that no calls are taken, what keeps it from them, since when, and the command that goes on', async () => {
    const since = ago(HOUR);
    await answered(
      '**/readyz',
      {
        ready: false,
        parts: [{ part: 'store', code: 'store_unavailable', message: 'The store does not answer.', since }],
        notes: [{ part: 'notifications', message: 'Nobody is told by ops.' }],
      },
      503,
    );
    await open('health', '.banner.bad');
    expect(await page.innerText('.banner.bad')).toContain('It takes no calls, because of what stands below.');
    expect(await card('The store does not answer.').innerText()).toContain('svc doctor gateway.yaml');
    expect(await timesIn(card('The store does not answer.'))).toEqual([since]);
    expect(await card('Nobody is told by ops.').innerText()).toContain('svc notifications list');
  });

  it('names commands that there are, each for what its part says', async () => {
    const commands = {
      store: 'svc doctor gateway.yaml',
      upstream: 'svc doctor gateway.yaml',
      archive: 'svc doctor gateway.yaml',
      backup: 'svc backup FOLDER --config gateway.yaml',
      fsck: 'svc fsck --config gateway.yaml',
      restore: 'svc store accept-loss --config gateway.yaml',
      configuration: 'svc config check gateway.yaml',
      brain: 'svc config check gateway.yaml',
      policies: 'svc policy history',
      notifications: 'svc notifications list',
      tools: 'svc tools diff --config gateway.yaml --upstream ID',
      retention: 'svc effects list --state unknown',
      unknown_outcomes: 'svc effects list --state unknown',
      probes: 'svc effects list --state unknown',
    };
    const notes = Object.keys(commands).map((part) => ({ part, message: `Look at ${part}.` }));
    await answered('**/readyz', { ready: true, notes });
    await open('health', '.banner.ok');
    expect(await page.getByText('Nothing to do').count()).toBe(0);
    for (const [part, command] of Object.entries(commands))
      expect([part, await card(`Look at ${part}.`).locator('code').innerText()]).toEqual([part, command]);
    const all = [...new Set(Object.values(commands))];
    expect(all.map((command) => [command, statusOf(command)])).toEqual(
      all.map((command) => [command, command.startsWith('svc doctor') ? 1 : 2]),
    );
  });
});
