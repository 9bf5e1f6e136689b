import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeApiKey, send } from '../system/gateway.ts';
import { refund, startWorld, type World, worldFiles } from '../system/world.ts';
import { faultsOf, openBrowser } from './browser.ts';

const WIDE = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
/** What an agent may put into names and params. Nothing of it may become more than text. */
const MARKUP = [
  '<img src=x onerror="window.owned=1">',
  '<script>window.owned=1</script>',
  '<a href="javascript:window.owned=1">click</a>',
  '<style>*{display:none}</style>',
  '"><svg onload=window.owned=1>',
  '\u202Egnp.exe',
];

/** Where pictures of the screens are put; none are taken where it is not said. */
const PICTURES = process.env['SVC_SCREENSHOTS'];

let world: World;
let browser: Browser;
let page: Page;
let context: BrowserContext;
/** Several large refunds wait at once. */
const withRoom = (url: string): ReturnType<typeof worldFiles> => {
  const { config, policies } = worldFiles(url);
  return {
    config,
    policies: { 'world.yaml': (policies['world.yaml'] ?? '').replace('limit: 100000 }', 'limit: 100000000 }') },
  };
};
/** Another key of maria's, for pages beside the one that all tests share: of more than 20 sessions of a key the oldest ends. */
let others: string;
/** Whatever a page complains of, or asks of another host. */
const complaints: string[] = [];

beforeAll(async () => {
  [world, browser] = await Promise.all([startWorld({ files: withRoom }), openBrowser()]);
  others = await makeApiKey(world.gateway, 'maria', { kind: 'account', workspace: 'demo' });
  await world.run(refund({ payment_id: 'pay_1', amount: 1250, reason: MARKUP.join(' ') }));
  await world.run(refund({ payment_id: 'pay_2', currency: 'CHF' }));
  await world.run({ ...refund(), tool: MARKUP[0] });
  ({ page, context } = await signedInBy());
});
afterAll(async () => {
  await browser?.close();
  await world?.close();
});

/** A browser of its own, signed in by a link, as `svc console` prints one. */
async function signedIn(
  viewport: typeof WIDE,
  colorScheme: 'light' | 'dark',
  key = others,
): Promise<{ readonly page: Page; readonly context: BrowserContext }> {
  const opened = await browser.newContext({ viewport, colorScheme, baseURL: world.gateway.url });
  const own = await opened.newPage();
  own.on('pageerror', (error) => complaints.push(`error: ${error.message}`));
  own.on('console', (message) => {
    const isRefusal = /status of (?:40[01349]|503)/.test(message.text());
    if (message.type() === 'error' && !isRefusal) complaints.push(`console: ${message.text()}`);
  });
  own.on('request', (request) => {
    if (!request.url().startsWith(world.gateway.url) && !request.url().startsWith('data:'))
      complaints.push(`asks ${request.url()}`);
  });
  const { body } = await send(world.gateway.url, key, 'POST', '/v1/beta/console/links', {});
  await own.goto(body.url);
  await own.waitForSelector('.shell');
  return { page: own, context: opened };
}

/** Puts other policies in force. @returns what puts those of before back */
async function withPolicy(change: (text: string) => string): Promise<() => Promise<void>> {
  const file = join(world.gateway.policyFolder, 'world.yaml');
  const text = readFileSync(file, 'utf8');
  const version = async (): Promise<unknown> => (await world.get('/policies')).body.version;
  const written = async (next: string): Promise<void> => {
    const before = await version();
    writeFileSync(file, next);
    await expect.poll(version, { timeout: 20_000 }).not.toBe(before);
  };
  await written(change(text));
  return () => written(text);
}

/** The same by a key: such a session has shown who is there. */
async function signedInBy(
  key = world.keys.approver,
  viewport = WIDE,
): Promise<{ readonly page: Page; readonly context: BrowserContext }> {
  const opened = await signedIn(viewport, 'light', key);
  await opened.context.clearCookies();
  await opened.page.goto('/console/sign-in');
  await opened.page.getByLabel('Your API key').fill(key);
  await opened.page.keyboard.press('Enter');
  await opened.page.waitForSelector('.shell');
  return opened;
}

async function open(path: string, ready: string, of = page): Promise<void> {
  await of.goto(`/console/demo/${path}`);
  await of.waitForSelector(ready);
}

/** A call that waits for maria. */
async function asked(amount: number, payment = 'pay_1'): Promise<string> {
  const { body } = await world.run(refund({ payment_id: payment, amount }));
  return body.effect_id;
}

async function stateOf(id: string): Promise<string> {
  return (await world.get(`/effects/${id}`)).body.effect.state;
}

/** The stream of a page is what the test puts into it, by `push`, until `end`; `followed` is aborted by who leaves it. */
async function streamOfTheTest(of: Page): Promise<void> {
  await of.addInitScript(() => {
    const asked = globalThis.fetch;
    globalThis.fetch = (at, options) => {
      if (typeof at !== 'string' || !at.endsWith('/effects/stream')) return asked(at, options);
      const start = (stream: ReadableStreamDefaultController<Uint8Array>): void => {
        const push = (text: string): void => stream.enqueue(new TextEncoder().encode(text));
        Object.assign(globalThis, { push, end: () => stream.close(), followed: options?.signal });
      };
      return Promise.resolve(new Response(new ReadableStream({ start })));
    };
  });
}

describe('what is sent to a browser', () => {
  it('is at most 90 kB on first load, compressed', () => {
    const folder = join(process.cwd(), 'dist', 'src', 'console', 'pages');
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.gz'));
    expect(files.length).toBeGreaterThan(2);
    const bytes = files.reduce((sum, name) => sum + readFileSync(join(folder, name)).length, 0);
    expect(bytes).toBeLessThan(90_000);
  });

  it('is named by its content, allows nothing of others, and is asked for once', async () => {
    const first = await fetch(`${world.gateway.url}/console/demo/effects`);
    expect(first.headers.get('content-security-policy')).toMatch(/^default-src 'none'; script-src 'self';/);
    expect(first.headers.get('content-security-policy')).toMatch(
      /; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'$/,
    );
    // What is built next has the same address.
    expect(first.headers.get('cache-control')).toBe('no-cache');
    expect(first.headers.get('vary')).toBe('accept-encoding');
    expect(first.headers.get('x-content-type-options')).toBe('nosniff');
    expect(first.headers.get('x-frame-options')).toBe('DENY');
    for (const policy of ['opener', 'resource'])
      expect(first.headers.get(`cross-origin-${policy}-policy`)).toBe('same-origin');
    const etag = first.headers.get('etag') ?? '';
    const again = await fetch(`${world.gateway.url}/console`, { headers: { 'if-none-match': etag } });
    expect(again.status).toBe(304);
    const [script = ''] = /\/console\/assets\/[\w-]+\.js/.exec(await first.text()) ?? [];
    const asset = await fetch(`${world.gateway.url}${script}`);
    expect(asset.headers.get('cache-control')).toContain('immutable');
    expect(asset.headers.get('content-encoding')).toBe('gzip');
    const plain = await fetch(`${world.gateway.url}${script}`, { headers: { 'accept-encoding': 'identity' } });
    expect([plain.headers.get('content-encoding'), await plain.text()]).toEqual([null, await asset.text()]);
    expect((await fetch(`${world.gateway.url}/console/assets/..%2findex.html`)).status).toBe(404);
  });
});

describe('effects', () => {
  it('appear as they happen, and lead to why they were decided so', async () => {
    await open('effects', 'a.cells');
    await page.getByText('Live', { exact: true }).waitFor();
    const { body } = await world.run(refund({ payment_id: 'pay_9', amount: 4_200 }));
    await page.locator(`a[href$="${body.effect_id}"]`).click();
    await page.getByText('Holds', { exact: true }).waitFor();
    const text = await page.innerText('main');
    for (const shown of ['Happened', '€42.00', 'payment:pay_9', 'world/refund-small', 'world.yaml:', 'admission'])
      expect(text).toContain(shown);
  });

  it('are filtered, and the address says by what', async () => {
    await open('effects', 'a.cells');
    await page.getByLabel('Decision').selectOption('denied_policy');
    await expect.poll(() => page.locator('a.cells').count()).toBe(2);
    expect(page.url()).toContain('decision=denied_policy');
    await page.getByLabel('Rule').selectOption('world/currency');
    await expect.poll(() => page.locator('a.cells').count()).toBe(1);
    await page.reload();
    await page.waitForSelector('a.cells');
    expect(await page.getByLabel('Decision').inputValue()).toBe('denied_policy');
    await expect.poll(() => page.locator('a.cells').count()).toBe(1);
  });

  it('of filters that the reader has left do not come late', async () => {
    const own = await signedIn(WIDE, 'light');
    let late = (): void => undefined;
    const answered = new Promise<void>((resolve) => {
      late = resolve;
    });
    await own.page.route('**/effects?decision=denied_policy*', async (route) => {
      const answer = await route.fetch();
      await answered;
      await route.fulfill({ response: answer });
    });
    await open('effects', 'a.cells', own.page);
    const decision = own.page.getByLabel('Decision');
    const asked = own.page.waitForRequest((request) => request.url().includes('decision=denied_policy'));
    await decision.selectOption('denied_policy');
    await asked;
    // Those of before are not shown as if they fitted.
    await expect.poll(() => own.page.locator('a.cells').count()).toBe(0);
    await decision.selectOption('committed');
    await own.page.locator('a.cells', { hasText: 'pay_1' }).first().waitFor();
    const shown = await own.page.locator('a.cells').allTextContents();
    const come = own.page.waitForResponse((response) => response.url().includes('decision=denied_policy'));
    late();
    await (await come).finished();
    await own.page.evaluate('new Promise((drawn) => setTimeout(drawn, 200))');
    expect((await own.page.locator('a.cells').allTextContents()).length).toBe(shown.length);
    expect(await own.page.locator('a.cells', { hasText: 'CHF' }).count()).toBe(0);
    await own.context.close();
  });

  it('are filtered by who approved them', async () => {
    const id = await asked(77_000);
    const { body } = await world.get('/approvals');
    const approval = body.approvals.find((one: { effect_id: string }) => one.effect_id === id);
    await open('effects?approver=maria', '.empty');
    await send(world.gateway.url, world.keys.approver, 'POST', `/v1/workspaces/demo/approvals/${approval.id}/approve`);
    await page.locator(`a[href$="${id}"]`).waitFor();
    expect(await page.locator('a.cells').count()).toBe(1);
    expect(await page.getByLabel('Approver').inputValue()).toBe('maria');
    await expect.poll(() => page.innerText('a.cells .tool')).toBe('Approved €770.00 refund');
    const decided = (await world.get(`/approvals/${approval.id}`)).body.votes[0].at;
    expect(await page.locator('a.cells time').getAttribute('datetime')).toBe(decided);
    await page.setViewportSize(PHONE);
    await open('effects?approver=maria', 'a.cells');
    expect(await page.getByLabel('Approver').isVisible()).toBe(false);
    await page.setViewportSize(WIDE);
  });

  it('that happened while the stream was away are read as soon as it is back', async () => {
    const own = await signedIn(WIDE, 'light');
    let away = (): void => undefined;
    const isAway = new Promise<void>((resolve) => {
      away = resolve;
    });
    // It tells nothing, breaks, and tells nothing after that: only the list can have it.
    let streams = 0;
    await own.page.route('**/effects/stream', async (route) => {
      streams += 1;
      if (streams > 1) return;
      await isAway;
      await route.fulfill({ status: 503 });
    });
    await open('effects', 'a.cells', own.page);
    await expect.poll(() => streams).toBe(1);
    const { body } = await world.run(refund({ payment_id: 'pay_away' }));
    away();
    await own.page.locator(`a[href$="${body.effect_id}"]`).waitFor();
    await own.context.close();
  });

  it('of a page that is left open are no more than it can show, and nothing is missing from the list', async () => {
    const own = await signedIn(WIDE, 'light');
    const [shown] = (await world.get('/effects?limit=1')).body.effects;
    await streamOfTheTest(own.page);
    await open('effects', 'a.cells', own.page);
    let count = 0;
    const changed = (): string => {
      count += 1;
      const effect = {
        ...shown,
        id: `${shown.id}${count}`,
        target: 'payment:flood',
        created_at: '2999-01-01T00:00:00Z',
      };
      return `event: effect\ndata: ${JSON.stringify(effect)}\n\n`;
    };
    const push = async (many: number): Promise<void> => {
      await own.page.evaluate(`push(${JSON.stringify(Array.from({ length: many }, changed).join(''))})`);
    };
    const flood = own.page.locator('a.cells', { hasText: 'flood' });
    const some = own.page.getByText('900 new effects', { exact: true });
    const many = own.page.getByText('Many new effects', { exact: true });

    await push(900);
    await flood.first().waitFor();
    // Further down they are counted, up to a number. Back at the top the list is read again, and has no gap.
    await own.page.evaluate('scrollTo(0, 5000)');
    await push(900);
    await some.waitFor();
    await push(900);
    await many.waitFor();
    await own.page.evaluate('scrollTo(0, 0)');
    await push(1);
    await many.waitFor({ state: 'detached' });
    await expect.poll(() => flood.count()).toBe(0);
    // At the top it begins anew.
    for (const length of [900, 900, 900]) {
      await push(length);
      await flood.first().waitFor();
    }
    await expect.poll(() => flood.count()).toBe(0);
    // A page that nobody sees draws no frames.
    await own.page.evaluate(`{
      const draw = requestAnimationFrame;
      globalThis.requestAnimationFrame = (one) => (globalThis.waiting = one, 1);
      globalThis.again = () => { globalThis.requestAnimationFrame = draw; draw(waiting); };
    }`);
    for (const length of [900, 900]) await push(length);
    await own.page.evaluate('again()');
    await own.page.evaluate('new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 100)))');
    expect(await flood.count()).toBe(0);
    await own.context.close();
  });

  it('stand newest first, however late they come, and one that changes keeps its place', async () => {
    const own = await signedIn(WIDE, 'light');
    const [shown] = (await world.get('/effects?limit=1')).body.effects;
    await streamOfTheTest(own.page);
    await open('effects', 'a.cells', own.page);
    const push = async (
      ...made: readonly (readonly [id: string, second: string, target?: string])[]
    ): Promise<void> => {
      const told = made.map(([id, second, target = id]) => {
        const effect = { ...shown, id: `eff_${id}`, target: `row:${target}/`, created_at: `${second}Z` };
        return `event: effect\ndata: ${JSON.stringify(effect)}\n\n`;
      });
      await own.page.evaluate(`push(${JSON.stringify(told.join(''))})`);
    };
    const rows = async (): Promise<readonly string[]> => {
      const texts = await own.page.locator('a.cells').allTextContents();
      return texts.slice(0, 5).map((text) => /row:(\w+)\//.exec(text)?.[1] ?? 'of before');
    };
    await push(['b', '2999-01-01T00:00:03'], ['d', '2999-01-01T00:00:01']);
    await expect.poll(rows).toEqual(['b', 'd', 'of before', 'of before', 'of before']);
    await push(['c', '2999-01-01T00:00:02'], ['a', '2999-01-01T00:00:04']);
    await expect.poll(rows).toEqual(['a', 'b', 'c', 'd', 'of before']);
    // What is older than all that was read comes when the reader asks for it.
    await push(['old', '2000-01-01T00:00:00'], ['c', '2999-01-01T00:00:02', 'changed']);
    await expect.poll(rows).toEqual(['a', 'b', 'changed', 'd', 'of before']);
    expect(await own.page.locator('a.cells', { hasText: 'row:old' }).count()).toBe(0);
    await own.context.close();
  });

  it('are those that fit, also as they come; one that no longer does goes', async () => {
    const own = await signedIn(WIDE, 'light');
    const [fits] = (await world.get('/effects?target=payment:pay_1&decision=committed&limit=1')).body.effects;
    await streamOfTheTest(own.page);
    const { tool, agent_id, target, decision, policy } = fits;
    const query = new URLSearchParams({ tool, agent_id, target, decision, rule: policy.matched[0] });
    await open(`effects?${query.toString()}`, 'a.cells', own.page);
    const push = (...some: readonly object[]): Promise<unknown> => {
      const text = some.map((one) => `event: effect\ndata: ${JSON.stringify({ ...fits, ...one })}\n\n`).join('');
      return own.page.evaluate(`push(${JSON.stringify(text)})`);
    };
    const at = '2999-01-01T00:00:00Z';
    const others = {
      tool: { tool: 'payments.charge' },
      agent: { agent_id: 'other-bot' },
      target: { target: 'payment:pay_2' },
      decision: { decision: 'failed' },
      rule: { policy: { ...policy, matched: ['world/other'] } },
    };
    const isThere = own.page.locator('a.cells[href$=eff_fits]');
    await push(...Object.entries(others).map(([name, one]) => ({ ...one, id: `eff_${name}`, created_at: at })), {
      id: 'eff_fits',
      created_at: at,
    });
    await isThere.waitFor();
    const ids = await own.page.locator('a.cells').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
    expect(ids.filter((href) => /eff_(?:tool|agent|target|decision|rule)$/.test(href ?? ''))).toEqual([]);
    await push({ id: 'eff_fits', created_at: at, decision: 'failed' });
    await isThere.waitFor({ state: 'detached' });
    await own.context.close();
  });

  it('come by a stream that is followed while they are looked at, in pieces too, and taken up again where it ends', async () => {
    const own = await signedIn(WIDE, 'light');
    const [shown] = (await world.get('/effects?limit=1')).body.effects;
    await streamOfTheTest(own.page);
    await open('effects', 'a.cells', own.page);
    const live = own.page.getByText('Live', { exact: true });
    await live.waitFor();
    const effect = { ...shown, id: 'eff_pieces', created_at: '2999-01-01T00:00:00Z' };
    const text = `event: effect\ndata: ${JSON.stringify(effect)}\n\n`;
    for (const piece of [text.slice(0, 40), text.slice(40, -1), text.slice(-1)])
      await own.page.evaluate(`push(${JSON.stringify(piece)})`);
    await own.page.locator('a.cells[href$=eff_pieces]').waitFor();
    // So much happened that only the list has it.
    const read = own.page.waitForRequest(/\/effects\?limit=100$/);
    await own.page.evaluate(String.raw`push('event: more\ndata: {}\n\n')`);
    await read;
    await own.page.evaluate('end()');
    await own.page.getByText('Not live', { exact: true }).waitFor();
    await live.waitFor();
    await own.page.getByRole('link', { name: /^Inbox/ }).click();
    await expect.poll(() => own.page.evaluate('followed.aborted')).toBe(true);
    await own.context.close();
  });

  it('of before are read page after page, each once, and stand one below the other', async () => {
    const own = await signedIn(WIDE, 'light');
    const [shown] = (await world.get('/effects?limit=1')).body.effects;
    const page = (from: number, many: number): readonly object[] =>
      Array.from({ length: many }, (_, n) => ({ ...shown, id: `eff_${from + n}`, target: `row:${from + n}/` }));
    const asked: (string | null)[] = [];
    const pages: Readonly<Record<string, readonly [readonly object[], string | null]>> = {
      first: [page(0, 12), 'c1'],
      c1: [page(11, 6), 'c2'],
      c2: [page(17, 5), null],
    };
    let isRefused = false;
    await own.page.route('**/effects?*limit=100*', (route) => {
      const cursor = new URL(route.request().url()).searchParams.get('cursor');
      asked.push(cursor);
      if (isRefused && cursor !== null)
        return route.fulfill({ status: 403, json: { code: 'insufficient_scope', detail: 'No more of it.' } });
      const [effects, next] = pages[cursor ?? 'first'] ?? [[], null];
      return route.fulfill({ json: { effects, next_cursor: next } });
    });
    await streamOfTheTest(own.page);
    await open('effects', 'a.cells', own.page);
    await own.page.locator('a.cells[href$=eff_21]').waitFor();
    const rows = await own.page.locator('a.cells').allTextContents();
    expect(rows.map((text) => Number(/row:(\d+)/.exec(text)?.[1]))).toEqual(Array.from({ length: 22 }, (_, n) => n));
    expect(asked).toEqual([null, 'c1', 'c2']);
    const tops = await own.page
      .locator('ol.virtual li')
      .evaluateAll((all) => all.map((one) => one.getAttribute('style')));
    expect(tops.slice(0, 2)).toEqual(['top: 0px; height: 44px;', 'top: 44px; height: 44px;']);
    // That there is no more of it is told.
    isRefused = true;
    await open('effects', 'a.cells', own.page);
    await own.page.getByRole('alert').filter({ hasText: 'No more of it.' }).waitFor();
    await own.context.close();
  });

  it('that came while the reader was further down are counted where they fit, and shown when asked for', async () => {
    const own = await signedIn(WIDE, 'light');
    const [shown] = (await world.get('/effects?limit=1')).body.effects;
    await streamOfTheTest(own.page);
    await open('effects?target=payment:flood&last=1h', '.empty', own.page);
    let count = 0;
    const effect = (more: object = {}): string => {
      count += 1;
      const at = { target: 'payment:flood', created_at: '2999-01-01T00:00:00Z' };
      return `event: effect\ndata: ${JSON.stringify({ ...shown, ...at, id: `eff_${count}`, ...more })}\n\n`;
    };
    const push = (...events: readonly string[]) => own.page.evaluate(`push(${JSON.stringify(events.join(''))})`);
    // Of an hour: not one of before that has changed.
    await push(effect({ id: 'eff_old', created_at: '2000-01-01T00:00:00Z' }), effect());
    await own.page.locator('a.cells').first().waitFor();
    expect(await own.page.locator('a.cells').count()).toBe(1);
    await push(...Array.from({ length: 300 }, () => effect()));
    await expect.poll(() => own.page.locator('a.cells').count()).toBeGreaterThan(20);
    await own.page.evaluate('scrollTo(0, 5000)');
    // The rows of where the reader is now are there.
    const middle = 'document.elementFromPoint(innerWidth / 2, innerHeight / 2)?.closest("a.cells") != null';
    await expect.poll(() => own.page.evaluate(middle)).toBe(true);
    await push(effect({ target: 'payment:other' }), effect());
    // As the list has it then, and from its beginning.
    const effects = Array.from({ length: 60 }, (_, n) => ({ ...shown, id: `eff_read_${n}` }));
    await own.page.route('**/effects?*limit=100*', (route) => route.fulfill({ json: { effects, next_cursor: null } }));
    await own.page.getByRole('button', { name: '1 new effect', exact: true }).click();
    await own.page.locator('a.cells[href$=eff_read_0]').waitFor();
    await expect.poll(() => own.page.evaluate('scrollY')).toBe(0);
    await expect.poll(() => own.page.getByRole('button', { name: /new effect/ }).count()).toBe(0);
    // What is missed is read also after the filters were changed while it was about to be.
    const more = (): Promise<unknown> => own.page.evaluate(String.raw`push('event: more\ndata: {}\n\n')`);
    const read = (): Promise<unknown> => own.page.waitForRequest(/\/effects\?decision=committed.*limit=100$/);
    await more();
    await Promise.all([read(), own.page.getByLabel('Decision').selectOption('committed')]);
    await Promise.all([read(), more()]);
    await own.context.close();
  });

  it('whose stream is away are asked for after a second, then ever more seldom; one that held begins anew', async () => {
    const own = await signedIn(WIDE, 'light');
    await own.page.clock.install();
    await own.page.addInitScript(() => {
      const asked = globalThis.fetch;
      const times: number[] = [];
      Object.assign(globalThis, { times });
      globalThis.fetch = (at, options) => {
        if (typeof at !== 'string' || !at.endsWith('/effects/stream')) return asked(at, options);
        times.push(Date.now());
        if (times.length !== 8) return Promise.reject(new TypeError('away'));
        const start = (stream: ReadableStreamDefaultController<Uint8Array>): void =>
          void setTimeout(() => stream.close(), 16_000);
        return Promise.resolve(new Response(new ReadableStream({ start })));
      };
    });
    await own.page.goto('/console/demo/effects');
    await own.page.getByText('Not live', { exact: true }).waitFor();
    await expect
      .poll(async () => {
        await own.page.clock.runFor(5_000);
        return own.page.evaluate('times.length');
      })
      .toBeGreaterThan(10);
    const gaps = await own.page.evaluate('times.slice(1, 11).map((one, at) => Math.round((one - times[at]) / 1000))');
    expect(gaps).toEqual([1, 2, 4, 8, 15, 15, 15, 17, 2, 4]);
    await own.context.close();
  });

  it('have a receipt that is theirs: that of another does not hold, whoever says it does', async () => {
    const of = async (payment: string): Promise<string> =>
      (await world.run(refund({ payment_id: payment }))).body.effect_id;
    const [one, other] = [await of('pay_own'), await of('pay_other')];
    const path = `**/effects/${one}/receipt`;
    await page.route(path, async (route) =>
      route.fulfill({ json: (await world.get(`/effects/${other}/receipt`)).body }),
    );
    await open(`effects/${one}`, '#receipt');
    await page.getByText('Does not hold', { exact: true }).waitFor();
    expect(await page.locator('.checks .not').count()).toBe(1);
    await page.unroute(path);
    await open(`effects/${one}`, '#receipt');
    await page.getByText('Holds', { exact: true }).waitFor();
  });

  it('of agents are text, whatever they hold', async () => {
    await open('effects', 'a.cells');
    await page.locator('a.cells', { hasText: 'pay_1' }).last().click();
    await page.getByText('Holds', { exact: true }).waitFor();
    const text = await page.innerText('main');
    for (const markup of MARKUP.slice(0, 5)) expect(text).toContain(markup);
    expect(text).toContain('\\u202egnp.exe');
    expect(await page.evaluate(() => 'owned' in globalThis)).toBe(false);
    expect(await page.locator('main img, main script, main a[href^="javascript"]').count()).toBe(0);
  });
});

describe('shortcuts', () => {
  const dialog = () => page.getByRole('dialog', { name: 'Shortcuts' });

  it('are listed for ?, or by their button, and single keys can be switched off', async () => {
    await asked(60_000, 'pay_keys');
    await asked(60_001, 'pay_keys');
    await open('inbox', 'button[data-key=a]');
    await page.keyboard.press('?');
    await dialog().waitFor();
    expect(await faultsOf(page)).toEqual([]);
    expect(await dialog().innerText()).toContain('Go to Approve');
    if (PICTURES !== undefined) await page.screenshot({ path: join(PICTURES, 'shortcuts-1280-light.png') });
    await dialog().getByLabel('Single keys act').uncheck();
    await page.keyboard.press('Escape');
    await dialog().waitFor({ state: 'hidden' });
    const before = page.url();
    for (const key of ['j', '?']) await page.keyboard.press(key);
    expect(page.url()).toBe(before);
    expect(await dialog().isVisible()).toBe(false);
    await page.getByRole('button', { name: 'Shortcuts' }).click();
    await dialog().getByLabel('Single keys act').check();
    await dialog().getByRole('button', { name: 'Close' }).click();
    await page.keyboard.press('j');
    await expect.poll(() => page.url()).not.toBe(before);
    for (const { id } of (await world.get('/approvals?status=pending')).body.approvals)
      await world.post(`/approvals/${id}/reject`, { comment: 'of no use any more' }, world.keys.approver);
  });
});

describe('the inbox, by keyboard', () => {
  /** Presses the key of an answer once the question is there: before, a key has nothing to go to. */
  async function choose(on: Page, key: 'a' | 'r', question: string): Promise<void> {
    await expect.poll(() => on.innerText('#question')).toContain(question);
    const answer = on.locator(`[data-key=${key}]`);
    await answer.waitFor();
    await on.keyboard.press(key);
    await expect.poll(() => answer.evaluate((of) => of.matches(':focus'))).toBe(true);
  }

  it('asks whoever came by a link for the key once, and then decides', async () => {
    const own = await signedIn(WIDE, 'light');
    const first = await asked(60_000);
    const second = await asked(70_000, 'pay_2');
    await open('inbox', '#question', own.page);
    expect(await own.page.innerText('#question')).toContain('Refund 60000 cents');
    await own.page.keyboard.press('j');
    // In the list it stands all the time.
    await expect.poll(() => own.page.innerText('#question')).toContain('Refund 70000 cents');
    await own.page.keyboard.press('k');
    await choose(own.page, 'a', 'Refund 60000 cents');
    await own.page.keyboard.press('Enter');
    await own.page.getByRole('heading', { name: 'Show who you are once' }).waitFor();
    expect(await stateOf(first)).toBe('pending_approval');
    const field = own.page.getByLabel('Your API key');
    await expect.poll(() => field.evaluate((of) => of.matches(':focus'))).toBe(true);
    await own.page.keyboard.type(world.keys.approver);
    await expect.poll(() => field.inputValue()).toBe(world.keys.approver);
    await own.page.keyboard.press('Enter');
    // Where it says something else, the log of the test has what.
    await expect.poll(() => own.page.innerText('body')).toContain('Approved, and sent: committed');
    expect(await stateOf(first)).toBe('committed');
    await choose(own.page, 'r', 'Refund 70000 cents');
    await own.page.keyboard.press('Enter');
    await own.page.getByText('Rejected. Nothing is sent', { exact: false }).first().waitFor();
    expect(await stateOf(second)).toBe('rejected');
    await own.page.getByText('Nothing waits').waitFor();
    await own.context.close();
  });

  it('decides several that are alike at once', async () => {
    const ids = [await asked(51_000, 'pay_5'), await asked(52_000, 'pay_6'), await asked(53_000, 'pay_7')];
    await open('inbox', '#question');
    for (const key of ['x', 'j', 'x']) await page.keyboard.press(key);
    await page.getByRole('button', { name: 'Reject 2' }).waitFor();
    await page.getByRole('button', { name: 'Approve 2: €1,030.00' }).waitFor();
    await page.keyboard.press('r');
    await page.keyboard.press('Enter');
    await expect.poll(async () => Promise.all(ids.map(stateOf))).toEqual(['rejected', 'rejected', 'pending_approval']);
  });

  it('asks whoever came by a link once for all that are decided together', async () => {
    const ids = [await asked(57_000, 'pay_57'), await asked(58_000, 'pay_58'), await asked(59_000, 'pay_59')];
    const own = await signedIn(WIDE, 'light');
    let shown = 0;
    own.page.on('request', (request) => {
      if (request.method() === 'POST' && request.url().endsWith('/console/session')) shown += 1;
    });
    await open('inbox', '#question', own.page);
    for (const amount of ['57000', '58000', '59000'])
      await own.page.locator('li', { hasText: amount }).locator('input').check();
    await own.page.getByRole('link', { name: 'Refund 57000', exact: false }).click();
    await own.page.getByRole('button', { name: 'Approve 3: €1,740.00' }).click();
    const dialog = own.page.getByRole('dialog', { name: 'Show who you are once' });
    await dialog.getByLabel('Your API key').fill(world.keys.approver);
    expect(await Promise.all(ids.map(stateOf))).toEqual(ids.map(() => 'pending_approval'));
    await own.page.keyboard.press('Enter');
    await expect.poll(() => Promise.all(ids.map(stateOf))).toEqual(ids.map(() => 'committed'));
    expect([shown, await dialog.count()]).toEqual([1, 0]);
    await own.context.close();
  });

  it('shows a long param to its end for who asks for the rest', async () => {
    const { body } = await world.run(
      refund({ payment_id: 'pay_60', amount: 56_000, reason: `${'x'.repeat(5_000)} the end` }),
    );
    await open(`inbox?approval=${body.approval.id}`, '#question');
    const rest = page.locator('main details', { hasText: 'more characters' });
    expect(await rest.getByText('the end').isVisible()).toBe(false);
    await rest.getByText('Show all: 3,008 more characters').click();
    await rest.getByText('the end').waitFor();
    await world.post(`/approvals/${body.approval.id}/reject`, {}, world.keys.approver);
  });

  it('says how many requests ended without a decision', async () => {
    const expired = async (): Promise<number> => (await world.get('/approvals?status=expired')).body.approvals.length;
    const before = await expired();
    const restore = await withPolicy((policy) => policy.replace('expires: 1h', 'expires: 1s'));
    await asked(61_000, 'pay_61');
    await asked(62_000, 'pay_62');
    await restore();
    await expect.poll(expired, { timeout: 20_000 }).toBe(before + 2);
    await open('inbox', 'main h1');
    await page.getByText(`${before + 2} requests ended without a decision in the last 24 h: nothing`).waitFor();
  });

  it('decides those of several agents one by one', async () => {
    await asked(54_000, 'pay_15');
    await world.run(refund({ payment_id: 'pay_16', amount: 55_000 }), world.keys.otherBot);
    await open('inbox', '#question');
    for (const amount of ['54000', '55000']) await page.locator('li', { hasText: amount }).locator('input').check();
    await page.getByRole('link', { name: 'Refund 54000', exact: false }).click();
    await page.getByText('They are not alike (same agent, tool and rule)', { exact: false }).waitFor();
    expect(await page.getByRole('button', { name: /^(?:Approve|Reject) \d/ }).count()).toBe(0);
  });

  it('has no buttons for who asked, and says why', async () => {
    const own = await signedIn(
      PHONE,
      'dark',
      await makeApiKey(world.gateway, 'olga', { kind: 'account', workspace: 'demo' }),
    );
    await open('inbox', '#question', own.page);
    expect(await own.page.getByRole('button', { name: /Approve|Reject/ }).count()).toBe(0);
    await own.page.getByText('It is your own request', { exact: false }).waitFor();
    await own.context.close();
  });
});

describe('budgets', () => {
  it('are money where their unit or their bucket names the currency, and counts elsewhere', async () => {
    const restore = await withPolicy((policy) =>
      policy
        .replace('budgets:', 'budgets:\n  cents: { unit: cent, by: [params.currency], per: year, limit: 500000 }')
        .replace('claim: { on:', 'budget: { use: cents, amount: params.amount }\n      - claim: { on:'),
    );
    expect((await world.run(refund({ payment_id: 'pay_63', currency: 'USD', amount: 1_250 }))).body.decision).toBe(
      'committed',
    );
    expect((await world.run({ ...refund(), tool: 'payments.charge', params: { amount: 1 } })).body.decision).toBe(
      'committed',
    );
    await open('budgets', 'li.card');
    const card = (name: string): Promise<string> => page.locator('li.card', { hasText: name }).innerText();
    expect(await card('world/cents')).toMatch(
      /\$12\.50 of \$5,000\.00[^]*\$12\.50 spent, \$0\.00 set aside, \$4,987\.50 left/,
    );
    expect(await card('world/agent-day bot')).toMatch(/€[\d,]+\.\d\d of €1,000,000\.00/);
    expect(await page.innerText('main')).not.toContain('cents of');
    const lowered = await withPolicy((policy) => policy.replace('limit: 500000 }', 'limit: 1000 }'));
    // More was spent than may be now: nothing is left, and nobody owes anything.
    await expect.poll(() => card('world/cents')).toMatch(/\$12\.50 of \$10\.00[^]*, \$0\.00 left/);
    await lowered();
    await restore();
  });
});

describe('what is unknown', () => {
  it('is settled by keyboard, several at once', async () => {
    const ids: string[] = [];
    for (const payment of ['pay_11', 'pay_12']) {
      const { body } = await world.run(refund({ payment_id: payment, reason: 'mode:drop_after' }));
      ids.push(body.effect_id);
    }
    expect(await Promise.all(ids.map(stateOf))).toEqual(['unknown', 'unknown']);
    await open('unknown', '.unknown input');
    for (const box of await page.locator('.unknown input').all()) {
      await box.focus();
      await page.keyboard.press('Space');
    }
    // What tells these calls from others, for who looks in the upstream.
    const key = (await world.get(`/effects/${ids[0]}`)).body.effect.idempotency_key;
    const settle = page.locator('section', { has: page.locator('#settle') });
    for (const part of [
      key,
      'pay_11',
      'pay_12',
      'May still arrive until',
      'Holds of world/agent-day',
      'mode:drop_after',
    ])
      await settle.filter({ hasText: part }).waitFor();
    await page.getByLabel('It happened', { exact: false }).focus();
    await page.keyboard.press('Space');
    await page.getByLabel('How do you know', { exact: false }).focus();
    await page.keyboard.type('Both stand in the books');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByText('Nothing is unknown').waitFor();
    expect(await Promise.all(ids.map(stateOf))).toEqual(['committed', 'committed']);
  });
});

describe('what is unknown, and may still arrive', () => {
  it('is not called one that did not happen, whatever the clock of the reader says', async () => {
    // Signed in first: the call may still arrive for some seconds only.
    const ahead = await signedInBy(others);
    await ahead.page.addInitScript('const now = Date.now; Date.now = () => now() + 3_600_000;');
    const { body } = await world.run(refund({ payment_id: 'pay_17', reason: 'mode:drop_after' }));
    await open('unknown', '.unknown input');
    await page.locator('.unknown input').first().check();
    await page.getByLabel('It did not happen', { exact: false }).check();
    await page.getByText('Something may still be under way', { exact: false }).waitFor();
    expect(await page.getByRole('button', { name: 'Settle it' }).isDisabled()).toBe(true);
    // A clock that is ahead lets it be asked: the gateway refuses it, and the console says so.
    await open(`effects/${body.effect_id}`, '#unsettled', ahead.page);
    await ahead.page.getByLabel('It did not happen', { exact: false }).check();
    await ahead.page.getByRole('button', { name: 'Settle it' }).click();
    await ahead.page.getByRole('alert').filter({ hasText: 'under way' }).waitFor();
    expect(await stateOf(body.effect_id)).toBe('unknown');
    await ahead.context.close();
    await world.post(`/effects/${body.effect_id}/resolve`, { outcome: 'happened' }, world.keys.approver);
  });
});

describe('what is unknown, to whoever came by a link', () => {
  it('is settled once they have shown the key', async () => {
    const { body } = await world.run(refund({ payment_id: 'pay_16', reason: 'mode:drop_after' }));
    const own = await signedIn(WIDE, 'light');
    await open('unknown', '.unknown input', own.page);
    await own.page.locator('.unknown input').first().check();
    // What to look for comes a moment later, and moves what is below it.
    await own.page
      .locator('section', { has: own.page.locator('#settle') })
      .filter({ hasText: 'pay_16' })
      .waitFor();
    await own.page.getByLabel('It happened', { exact: false }).check();
    await own.page.getByRole('button', { name: 'Settle it' }).click();
    await own.page.getByRole('heading', { name: 'Show who you are once' }).waitFor();
    expect(await stateOf(body.effect_id)).toBe('unknown');
    await own.page.keyboard.type(world.keys.approver);
    await own.page.keyboard.press('Enter');
    await own.page.getByText('Nothing is unknown').waitFor();
    expect(await stateOf(body.effect_id)).toBe('committed');
    await own.context.close();
  });
});

describe('what somebody has found out of one call', () => {
  it('is not said of another that is chosen after it', async () => {
    const ids: string[] = [];
    for (const payment of ['pay_13', 'pay_14']) {
      const { body } = await world.run(refund({ payment_id: payment, reason: 'mode:drop_after' }));
      ids.push(body.effect_id);
    }
    await open('unknown', '.unknown input');
    const boxes = page.locator('.unknown input');
    await expect.poll(() => boxes.count()).toBe(2);
    const happened = page.getByLabel('It happened', { exact: false });
    await boxes.first().check();
    await happened.check();
    await page.getByLabel('How do you know', { exact: false }).fill('pay_13 stands in the books');
    await boxes.last().check();
    await page.getByRole('button', { name: 'Settle 2' }).waitFor();
    expect(await happened.isChecked()).toBe(false);
    expect(await page.getByLabel('How do you know', { exact: false }).inputValue()).toBe('');
    expect(await page.getByRole('button', { name: 'Settle 2' }).isDisabled()).toBe(true);
    for (const id of ids) await world.post(`/effects/${id}/resolve`, { outcome: 'happened' }, world.keys.approver);
  });

  it('is not taken where somebody else was first, and it is told that it was not', async () => {
    const { body } = await world.run(refund({ payment_id: 'pay_15', reason: 'mode:drop_after' }));
    await open('unknown', '.unknown input');
    await page.locator('.unknown input').first().check();
    await page.getByLabel('It happened', { exact: false }).check();
    const resolve = `/effects/${body.effect_id}/resolve`;
    await page.route(`**${resolve}`, async (route) => {
      await world.post(resolve, { outcome: 'happened' }, world.keys.approver);
      const { status, body: json } = await world.post(resolve, { outcome: 'not_happened' }, world.keys.approver);
      await route.fulfill({ status, json });
    });
    await page.getByRole('button', { name: 'Settle it' }).click();
    await page.getByRole('alert').filter({ hasText: 'The outcome was settled the other way before.' }).waitFor();
    expect(await stateOf(body.effect_id)).toBe('committed');
    await page.unroute(`**${resolve}`);
  });
});

describe('claims, overview and health', () => {
  it('a claim of an agent is shown, and released for others', async () => {
    const claims = '/v1/workspaces/demo/claims';
    const target = 'payment:pay_7';
    const { status } = await send(world.gateway.url, world.keys.bot, 'POST', claims, { target, ttl_s: 600 });
    expect(status).toBe(201);
    await open('claims', '.card header');
    expect(await page.innerText('main')).toContain(target);
    const card = page.locator('li.card', { hasText: target });
    const release = async (): Promise<void> => {
      await card.getByRole('button', { name: 'Release' }).click();
      await card.getByRole('button', { name: 'Yes, others may have it' }).click();
    };
    await page.route(`**${claims}/*`, async (route) => {
      const refused = await send(world.gateway.url, world.keys.approver, 'DELETE', `${claims}/clm_none`);
      await route.fulfill({ status: refused.status, json: refused.body });
    });
    await release();
    await card.getByRole('alert').filter({ hasText: 'There is no such claim here' }).waitFor();
    await page.unroute(`**${claims}/*`);
    await release();
    await card.waitFor({ state: 'detached' });
    const { body } = await send(world.gateway.url, world.keys.bot, 'GET', claims);
    expect(JSON.stringify(body.claims)).not.toContain(target);
  });

  it('the overview counts what became of actions, and what refused them', async () => {
    await world.run({ ...refund(), tool: 'nobody.knows_it' });
    const { approval_id: id } = (await world.get(`/effects/${await asked(61_000, 'pay_over')}`)).body.effect;
    await world.post(`/approvals/${id}/reject`, { comment: 'not this one' }, world.keys.approver);
    const { body } = await world.get('/effects?decision=denied_policy&limit=200');
    const rejected = body.effects.filter(({ state }: { readonly state: string }) => state === 'rejected').length;
    await open('overview', '.bar');
    const count = (name: string) => page.locator('.rate', { hasText: name }).first().locator('.num').innerText();
    // What people rejected is no denial by policy, and no rule refused it.
    await expect.poll(() => count('Rejected')).toBe(String(rejected));
    // Nor is what nobody decided on in time.
    const late = body.effects.filter(
      (effect: { readonly reason: { readonly code: string } }) => effect.reason.code === 'approval_expired',
    ).length;
    expect(late).toBeGreaterThan(0);
    expect(await count('Nobody decided')).toBe(String(late));
    expect(await count('Denied by policy')).toBe(String(body.effects.length - rejected - late));
    expect(await page.innerText('main')).toContain('What refused them');
    expect(await page.innerText('main')).not.toMatch(/approval (rejected|expired)/);
    await open('effects?decision=denied_policy', 'a.cells');
    await page.locator('a.cells', { hasText: 'Nobody decided' }).first().click();
    await page.getByText('Nobody decided before the request', { exact: false }).first().waitFor();
  });

  it('health says that calls are taken, and how durable they are', async () => {
    await open('health', '.banner.ok');
    expect(await page.innerText('main')).toContain('Each write is on the disk before it is answered');
  });

  it('health names the command that goes on, and since when', async () => {
    // As svc restore leaves it.
    const note = join(world.gateway.dataFolder, 'last-restore.json');
    writeFileSync(note, JSON.stringify({ at: Date.parse('2026-11-27T03:04:05Z'), clean: false }));
    await open('health', '.banner.ok');
    const card = page.locator('li.card', { hasText: 'restore' });
    await card.waitFor();
    expect(await card.innerText()).toContain('svc store accept-loss --config gateway.yaml');
    expect(await card.locator('time').getAttribute('datetime')).toBe('2026-11-27T03:04:05.000Z');
    rmSync(note);
  });

  it('the overview keeps the time of a person apart from that of the upstream', async () => {
    const { approval, effect_id: id } = (await world.run(refund({ amount: 60_000 }))).body;
    expect((await world.post(`/approvals/${approval.id}/approve`, {}, world.keys.approver)).status).toBe(200);
    const { effects } = (await world.get('/effects?limit=200')).body;
    const waited = effects.find((effect: { readonly id: string }) => effect.id === id);
    const answered = effects.filter(
      ({ settled_by: by }: { readonly settled_by?: { readonly by: string } }) => by?.by === 'owner',
    );
    const most = (from: string, to: string): string => {
      const ms = Math.max(
        ...answered.map(
          (effect: Record<string, string>) => Date.parse(effect[to] ?? '') - Date.parse(effect[from] ?? ''),
        ),
      );
      return ms < 10_000 ? `${ms} ms` : `${Math.round(ms / 1000)} s`;
    };
    await open('overview', '.bar');
    const told = (title: RegExp) => page.getByLabel(title).locator('dd').last().innerText();
    await expect.poll(() => told(/people who were asked/)).toBe(most('created_at', 'first_dispatch_at'));
    expect(await told(/to the answer/)).toBe(most('first_dispatch_at', 'settled_at'));
    expect(answered).toContain(waited);
  });
});

describe('pauses and keys', () => {
  it('a pause is set, stands on every screen, and is lifted', async () => {
    // To lift one, a session has to have shown who is there.
    const { page: at, context: opened } = await signedInBy(world.keys.approver);
    await open('pauses', 'h1', at);
    await at.getByRole('button', { name: 'Pause something' }).click();
    await at.getByLabel('Which').fill('bot');
    await at.getByLabel('Why?', { exact: false }).fill('It repeats itself');
    await at.getByLabel('How long').selectOption('30 minutes');
    const from = Date.now() + 30 * 60_000;
    await at.getByRole('button', { name: 'Pause', exact: true }).click();
    await at.getByRole('button', { name: 'Lift' }).waitFor();
    const [set] = (await world.get('/pauses')).body.pauses;
    expect(Date.parse(set.until)).toBeGreaterThanOrEqual(from);
    expect(Date.parse(set.until)).toBeLessThanOrEqual(Date.now() + 30 * 60_000);
    expect((await world.run(refund())).body.decision).toBe('denied_paused');
    await open('effects', '.banner', at);
    expect(await at.innerText('.banner')).toContain('It repeats itself');
    await open('pauses', 'h1', at);
    await at.getByRole('button', { name: 'Lift' }).click();
    await at.getByRole('button', { name: 'Yes, let calls run again' }).click();
    await at.getByText('Nothing is paused').waitFor();
    await opened.close();
  });

  it('a key is made, shown once, rotated and revoked', async () => {
    const admin = await signedIn(WIDE, 'dark', world.gateway.administrativeKey);
    const { page: at } = admin;
    await open('agents', '#keys', at);
    await at.getByRole('button', { name: 'Make a key' }).click();
    await at.locator('select[name=agent]').selectOption('bot');
    await at.getByLabel('Name, for people').fill('made in the console');
    await at.getByLabel('User who answers for it').fill('olga');
    await at.getByRole('button', { name: 'Make it' }).click();
    await at.getByLabel('Your API key').fill(world.gateway.administrativeKey);
    await at.getByRole('button', { name: 'Go on' }).click();
    const key = await at.locator('.card .copies code').first().innerText();
    expect((await world.run(refund(), key)).body.decision).toBe('committed');
    const row = at.locator('.keys li', { hasText: 'made in the console' });
    await row.first().getByRole('button', { name: 'Revoke' }).click();
    await row.first().getByRole('button', { name: 'Yes, revoke' }).click();
    await expect.poll(() => row.count()).toBe(0);
    await expect.poll(async () => (await world.run(refund(), key)).status).toBe(401);
    expect(await faultsOf(at)).toEqual([]);
    await admin.context.close();
  });
});

describe('policies and the company brain', () => {
  it('a call is tried without being run, and says what it would get and by which rule', async () => {
    const before = await world.upstream.counts();
    await open('policies', '#try');
    await page.getByLabel('Tool').fill('payments.refund');
    await page.getByLabel('Agent').fill('bot');
    await page.getByLabel('Params').fill('{"payment_id": "pay_9"');
    await page.getByRole('button', { name: 'Try', exact: true }).click();
    await page.getByText('Params are a JSON object').waitFor();
    await page
      .getByLabel('Params')
      .fill(JSON.stringify({ payment_id: 'pay_9', amount: 80_000, currency: 'EUR', reason: MARKUP.join(' ') }));
    await page.getByRole('button', { name: 'Try', exact: true }).click();
    const verdict = page.locator('section[aria-labelledby=try] [role=status]');
    await verdict.getByText('Waits for approval').waitFor();
    expect(await verdict.innerText()).toContain('world/refund-large');
    expect(await verdict.innerText()).toContain('finance-lead');
    expect(await world.upstream.counts()).toEqual(before);
    expect(await page.evaluate('window.owned')).toBeUndefined();
  });

  it('others are put in force from the files, and those of before by who may, after a look at the key', async () => {
    const admin = await signedIn(WIDE, 'light', world.gateway.administrativeKey);
    const { page: at } = admin;
    const key = world.gateway.administrativeKey;
    const inForce = async () =>
      (await send(world.gateway.url, key, 'GET', '/v1/beta/policies/activations')).body.in_force;
    const before = await inForce();
    const file = join(world.gateway.policyFolder, 'world.yaml');
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, text.replace('limit: 100000000', 'limit: 100000001'));
    await expect.poll(inForce, { timeout: 30_000 }).not.toBe(before);
    await open('policies', '#history', at);
    const activations = at.locator('section[aria-labelledby=history] li');
    await activations.first().waitFor();
    const earlier = await activations.count();
    await at.getByRole('button', { name: 'Roll back' }).click();
    await at.getByRole('button', { name: /^Yes, put/ }).click();
    await at.getByLabel('Your API key').fill(key);
    await at.getByRole('button', { name: 'Go on' }).click();
    await expect.poll(inForce).toBe(before);
    await at.getByText('The files of this gateway say something else').waitFor();
    // The list is read anew some time after the vote: what was first before would be opened.
    await activations.nth(earlier).waitFor();
    const latest = activations.first();
    await latest.locator('summary').click();
    await latest.locator('ins', { hasText: 'limit: 100000000 }' }).waitFor();
    expect(await latest.locator('del').innerText()).toContain('- ');
    expect(await latest.locator('pre').innerText()).toMatch(/… \d+ lines are the same/);
    await latest.getByLabel('The whole text').check();
    await latest.getByText('kind: PolicySet').waitFor();
    expect(await faultsOf(at)).toEqual([]);
    writeFileSync(file, text);
    await admin.context.close();
    await open('policies', '#try');
    expect(await page.getByRole('button', { name: 'Roll back' }).count()).toBe(0);
  });

  it('entities are listed, searched and followed by their links, and are text whatever they hold', async () => {
    const put = await send(
      world.gateway.url,
      world.gateway.administrativeKey,
      'PUT',
      '/v1/workspaces/demo/brain/entities',
      {
        entities: [
          { type: 'account', id: 'acc-1', name: 'Account of Acme', attributes: { open: true } },
          {
            type: 'customer',
            id: 'acme',
            name: `Acme ${MARKUP[0] ?? ''}`,
            attributes: { tier: 'gold', note: MARKUP.join(' ') },
            links: [{ rel: 'pays_by', type: 'account', id: 'acc-1' }],
          },
          { type: 'customer', id: 'zenith', name: 'Zenith' },
        ],
      },
    );
    expect(put.status).toBe(200);
    await open('brain', 'li.card');
    expect(await page.innerText('main')).toContain('Zenith');
    await page.getByLabel('Type').fill('customer');
    await page.getByLabel('Words, or an id').fill('acme');
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByText('Zenith').waitFor({ state: 'detached' });
    expect(page.url()).toContain('type=customer&query=acme');
    await page.getByRole('link', { name: 'account acc-1' }).click();
    await page.getByRole('heading', { name: 'Account of Acme' }).waitFor();
    expect(await page.evaluate('window.owned')).toBeUndefined();
    expect(await page.locator('main img, main script, main style').count()).toBe(0);
  });
});

describe('a param that a rule names as editable', () => {
  it('is changed in the inbox, and what was changed is what runs', async () => {
    const restore = await withPolicy((policy) =>
      policy.replace('expires: 1h, summary', 'expires: 1h, editable: { amount: { max: asked } }, summary'),
    );
    const effect = await asked(91_000, 'pay_8');
    const { approval_id: id } = (await world.get(`/effects/${effect}`)).body.effect;
    const maria = await signedInBy(world.keys.approver);
    const { page: at } = maria;
    await open(`inbox?approval=${id}`, '.ask', at);
    const amount = at.getByLabel(/^amount in EUR: at most €910\.00/);
    expect(await amount.inputValue()).toBe('910.00');
    expect(await at.locator('button.yes').innerText()).toContain('Approve €910.00 refund');
    expect(await at.innerText('main')).toContain('€910.00, sent as 91000');
    await amount.fill('1.000,00');
    await at.getByText('amount has to be an amount such as 1234.56, with nothing between thousands.').waitFor();
    expect(await at.locator('button.yes').isDisabled()).toBe(true);
    await amount.fill('910.01');
    await at.getByText('amount may be at most €910.00.').waitFor();
    await amount.fill('400,00');
    expect(await at.locator('button.yes').innerText()).toContain('Approve €400.00 refund');
    await amount.fill('400');
    await at.getByLabel(/^Comment/).fill(`see ${world.keys.bot}`);
    await at.locator('button.yes').click();
    // What is refused stays open, with what was written in it.
    await at.locator('.banner.bad').waitFor();
    expect(await amount.inputValue()).toBe('400');
    expect(await stateOf(effect)).toBe('pending_approval');
    await at.getByLabel(/^Comment/).fill('Less will do');
    await at.locator('button.yes').click();
    await at.getByText('amount €400.00 in place of €910.00', { exact: false }).waitFor();
    expect(await stateOf(effect)).toBe('committed');
    expect((await world.get(`/effects/${effect}`)).body.effect).toMatchObject({
      params: { amount: 40_000 },
      asked_params: { amount: 91_000 },
    });
    expect(await faultsOf(at)).toEqual([]);
    await maria.context.close();
    await restore();
  });
});

describe('a cost that nobody knows', () => {
  it('is not said to be none', async () => {
    const id = await asked(61_000);
    // As after another approver has written a fraction where whole cents are counted.
    await page.route(/\/approvals\b/, async (route) => {
      const answered = await route.fetch();
      const text = (await answered.text()).replaceAll(/"amount":61000,"limit"/g, '"amount":null,"limit"');
      await route.fulfill({ response: answered, body: text });
    });
    await open('inbox', '#question');
    await page.getByRole('link', { name: 'Refund 61000', exact: false }).click();
    await page.getByText('an amount that is not known').first().waitFor();
    await page.unrouteAll({ behavior: 'wait' });
    const { approval_id: approval } = (await world.get(`/effects/${id}`)).body.effect;
    await world.post(`/approvals/${approval}/reject`, {}, world.keys.approver);
  });
});

describe('a rejection that has to say why', () => {
  it('is asked for its reason where it is written, by a key and by the button', async () => {
    const restore = await withPolicy((policy) => policy.replace('expires: 1h,', 'expires: 1h, require_reason: true,'));
    const ids = [await asked(96_000, 'pay_15'), await asked(96_000, 'pay_15')];
    const { approval_id: id } = (await world.get(`/effects/${ids[0]}`)).body.effect;
    await open(`inbox?approval=${id}`, '.ask');
    await page.getByText('One more like this is waiting.').waitFor();
    const why = page.getByLabel(/^Why you reject: needed for that/);
    await page.keyboard.press('r');
    await expect.poll(() => why.evaluate((field) => field.matches(':focus'))).toBe(true);
    expect(await why.inputValue()).toBe('');
    await page.getByRole('button', { name: /^Reject/ }).click();
    await page.getByText('Say here why', { exact: false }).waitFor();
    await expect.poll(() => why.evaluate((field) => field.matches(':focus'))).toBe(true);
    expect(await faultsOf(page)).toEqual([]);
    await why.fill('Not twice');
    await page.getByRole('button', { name: /^Reject/ }).click();
    await expect.poll(() => stateOf(ids[0] ?? '')).toBe('rejected');
    // No policy has denied it.
    await open(`effects/${ids[0]}`, '.mark');
    expect(await page.locator('.mark').first().innerText()).toBe('Rejected');
    await restore();
    for (const { id: left } of (await world.get('/approvals?status=pending')).body.approvals)
      await world.post(`/approvals/${left}/reject`, { comment: 'of no use any more' }, world.keys.approver);
  });
});

describe('what another approver has changed', () => {
  it('is what one votes on who comes after', async () => {
    const byTwo = '{ roles: [finance-lead], users: [tom] }, quorum: 2, editable: { amount: { max: asked } },';
    const rest = /\{ roles: \[finance-lead\] \}, quorum: 1,(.*?) summary: "Refund \$\{params\.amount\} cents of/;
    const restore = await withPolicy((policy) =>
      policy.replace(rest, `${byTwo} summary: "Refund \${params.amount} cents of`),
    );
    const maria = await signedInBy(world.keys.approver);
    const effect = await asked(93_000, 'pay_10');
    const { approval_id: id } = (await world.get(`/effects/${effect}`)).body.effect;
    const voted = await world.post(`/approvals/${id}/approve`, { changes: { amount: 30_000 } });
    expect(voted.body).toMatchObject({ became: { what: 'waiting' }, changed: { by: 'tom' } });
    await open(`inbox?approval=${id}`, '.ask', maria.page);
    await maria.page.getByText('amount €300.00 in place of €930.00', { exact: false }).waitFor();
    const amount = maria.page.getByLabel(/^amount in EUR: at most €930\.00/);
    for (const [text, fault] of [
      ['930.01', 'amount may be at most €930.00.'],
      ['930', null],
      ['300.005', 'amount has to be an amount such as 1234.56, with nothing between thousands.'],
      ['300', null],
    ] as const) {
      await amount.fill(text);
      const said = maria.page.getByRole('alert').filter({ hasText: /^amount/ });
      await expect.poll(() => said.allInnerTexts()).toEqual(fault === null ? [] : [fault]);
      expect(await maria.page.locator('button.yes').isDisabled()).toBe(fault !== null);
    }
    await maria.page.locator('button.yes').click();
    await maria.page.getByText('Approved, and sent: committed', { exact: false }).waitFor();
    expect((await world.get(`/effects/${effect}`)).body.effect.params).toMatchObject({ amount: 30_000 });
    await maria.context.close();
    await restore();
  });
});

describe('what an approver should know of before', () => {
  it('the same was made shortly before, and is told of beside the answers', async () => {
    const { approval_id: made } = (await world.get(`/effects/${await asked(62_000, 'pay_twice')}`)).body.effect;
    await world.post(`/approvals/${made}/approve`, {}, world.keys.approver);
    const idOf = async (amount: number): Promise<string> =>
      (await world.get(`/effects/${await asked(amount, 'pay_twice')}`)).body.effect.approval_id;
    const [same, other] = [await idOf(62_000), await idOf(62_100)];
    await open(`inbox?approval=${same}`, '.ask');
    await page.getByText(/The same refund was made .+ ago\./).waitFor();
    await open(`inbox?approval=${other}`, '.ask');
    await page.getByText('left of', { exact: false }).first().waitFor();
    await page.waitForLoadState('networkidle');
    expect(await page.innerText('main')).not.toContain('The same refund');
    for (const id of [same, other]) await world.post(`/approvals/${id}/reject`, { comment: 'no' }, world.keys.approver);
  });
});

describe('what keeps a call from being sent', () => {
  const boxOf = (of: Page): Promise<unknown> => of.locator('button.yes').boundingBox();
  const atOnce = (of: Page): Promise<unknown> => of.evaluate("window.dispatchEvent(new Event('visibilitychange'))");

  it.each([
    ['wide', WIDE, 63_000],
    ['as wide as a phone', PHONE, 63_001],
  ])('stands there before the vote, and what comes later moves no button: %s', async (_what, viewport, amount) => {
    const own = await signedInBy(others, viewport);
    const approval = (await world.get(`/effects/${await asked(amount, 'pay_paused')}`)).body.effect.approval_id;
    await open(`inbox?approval=${approval}`, 'button.yes', own.page);
    await own.page.waitForLoadState('networkidle');
    await own.page.locator('button.yes').scrollIntoViewIfNeeded();
    const before = await boxOf(own.page);
    const { body: pause } = await world.post('/pauses', { scope: { agent: 'bot' }, reason: 'stock-take' });
    const paused = own.page.getByText('Paused: Stock-take. If you approve, it waits until somebody lifts the pause;');
    const banner = own.page.getByRole('link', { name: 'Look at it' });
    await expect.poll(() => atOnce(own.page).then(() => paused.count()), { interval: 500, timeout: 20_000 }).toBe(1);
    await banner.waitFor({ timeout: 20_000 });
    expect(await boxOf(own.page)).toEqual(before);
    expect(await faultsOf(own.page)).toEqual([]);
    // Who opens it now reads that before the buttons, which stay where they are when it is over.
    await own.page.reload();
    await own.page.waitForSelector('button.yes');
    await own.page.waitForLoadState('networkidle');
    await own.page.locator('button.yes').scrollIntoViewIfNeeded();
    const isBefore =
      'document.querySelector(".card .banner").compareDocumentPosition(document.querySelector("button.yes"))';
    expect(await own.page.evaluate(isBefore)).toBe(4);
    const then = await boxOf(own.page);
    await send(world.gateway.url, world.keys.account, 'DELETE', `/v1/workspaces/demo/pauses/${pause.id}`);
    await expect
      .poll(() => atOnce(own.page).then(() => paused.isVisible()), { interval: 500, timeout: 20_000 })
      .toBe(false);
    await banner.waitFor({ state: 'detached', timeout: 20_000 });
    expect(await boxOf(own.page)).toEqual(then);
    await world.post(`/approvals/${approval}/reject`, {}, world.keys.approver);
    await own.context.close();
  });

  it('is said in the words of the page of the request', async () => {
    const approval = (await world.get(`/effects/${await asked(64_000, 'pay_stale')}`)).body.effect.approval_id;
    const restore = await withPolicy((policy) => policy.replace('expires: 1h', 'expires: 2h'));
    const { foreseen } = (await world.get(`/approvals/${approval}`)).body;
    expect(foreseen).toContain('Policy or the tool was changed since this was asked. If you approve, nothing is sent,');
    await open(`inbox?approval=${approval}`, 'button.yes');
    await page.getByText(foreseen).waitFor();
    await world.post(`/approvals/${approval}/reject`, {}, world.keys.approver);
    await restore();
  });
});

describe('the next calls alike', () => {
  it('nothing is decided for one that is not among those that are chosen', async () => {
    const ids: string[] = [];
    for (const amount of [93_000, 94_000, 95_000]) {
      const effect = await asked(amount, `pay_${amount}`);
      ids.push((await world.get(`/effects/${effect}`)).body.effect.approval_id);
    }
    await open(`inbox?approval=${ids[2]}`, '.ask');
    await page.getByText('left of', { exact: false }).first().waitFor();
    for (const amount of ['93000', '94000']) await page.locator('li', { hasText: amount }).locator('input').check();
    await page.getByText('not among those that you chose', { exact: false }).waitFor();
    expect(await page.locator('button.yes').count()).toBe(0);
    await page.locator('li', { hasText: '95000' }).locator('input').check();
    await page.getByRole('button', { name: 'Reject 3' }).click();
    const statusOf = async (id: string): Promise<string> => (await world.get(`/approvals/${id}`)).body.status;
    const all = (): Promise<readonly string[]> => Promise.all(ids.map(statusOf));
    await expect.poll(all, { timeout: 20_000 }).toEqual(ids.map(() => 'rejected'));
  });

  it('are allowed in the inbox, told of on the effect, and revoked where they are listed', async () => {
    const restore = await withPolicy((policy) =>
      policy.replace('expires: 1h, summary', 'expires: 1h, allow_alike: { times: 5, for: 2h }, summary'),
    );
    const again = async (): Promise<{ readonly decision: string; readonly effect_id: string }> =>
      (await world.run(refund({ amount: 92_000, payment_id: 'pay_9' }))).body;
    const effect = await asked(92_000, 'pay_9');
    const { approval_id: id } = (await world.get(`/effects/${effect}`)).body.effect;
    await open(`inbox?approval=${id}`, '.ask');
    // So long, and to the end of it.
    const [given, from] = [page.getByLabel('If you approve: the next calls like it, for 2 h'), Date.now()];
    await given.selectOption('2');
    await page.locator('button.yes').click();
    await expect.poll(() => stateOf(effect)).toBe('committed');
    const next = await again();
    expect(next.decision).toBe('committed');
    const { allowances } = (await world.get('/allowances')).body;
    const ends = Date.parse(
      allowances.find((one: { readonly effect_id: string }) => one.effect_id === effect).expires_at,
    );
    expect([ends >= from + 7_200_000, ends <= Date.now() + 7_200_000]).toEqual([true, true]);
    await open(`effects/${next.effect_id}`, '.banner');
    expect(await page.innerText('main')).toMatch(
      /Nobody was asked: maria had allowed calls like it\. This was number 1/,
    );
    await open('inbox', '#allowed');
    const listed = page.locator('li.card', { hasText: 'payment:pay_9' });
    expect(await listed.innerText()).toContain('1 of 2 used');
    expect(await faultsOf(page)).toEqual([]);
    await listed.getByRole('button', { name: 'Revoke' }).click();
    await listed.getByRole('button', { name: 'Yes, ask about the next one' }).click();
    await listed.waitFor({ state: 'detached' });
    expect((await again()).decision).toBe('pending_approval');
    await restore();
  });
});

describe('every screen', () => {
  const SCREENS = [
    'effects',
    'inbox',
    'unknown',
    'pauses',
    'budgets',
    'policies',
    'brain',
    'agents',
    'overview',
    'claims',
    'servers',
    'health',
    'passkeys',
  ];

  it.each([
    ['wide and light', WIDE, 'light'],
    ['as wide as a phone, and dark, down to 320 px', PHONE, 'dark'],
  ] as const)('fits and can be used by everybody: %s', async (_what, viewport, scheme) => {
    const other = await signedIn(viewport, scheme);
    const { page: at } = other;
    const faults: string[] = [];
    const look = async (name: string): Promise<void> => {
      if (PICTURES !== undefined)
        await at.screenshot({ path: join(PICTURES, `${name}-${viewport.width}-${scheme}.png`) });
      faults.push(...(await faultsOf(at)).map((fault) => `${name}: ${fault}`));
      // What is narrower than a phone has the same elements.
      for (const width of viewport === PHONE ? [viewport.width, 320] : [viewport.width]) {
        await at.setViewportSize({ ...viewport, width });
        const isTooWide = await at.evaluate('document.documentElement.scrollWidth > innerWidth');
        if (isTooWide) faults.push(`${name} is wider than ${width} px`);
      }
      await at.setViewportSize(viewport);
    };
    for (const screen of SCREENS) {
      await open(screen, 'main h1', at);
      await at.locator('main[aria-busy="false"]').waitFor();
      await expect.poll(() => at.innerText('body')).not.toContain('Loading');
      await look(screen);
    }
    await open('effects?decision=committed', 'a.cells', at);
    await at.locator('a.cells').first().click();
    await at.getByText('Holds', { exact: true }).waitFor();
    await at.getByText('Just before it was set aside', { exact: true }).waitFor();
    await look('effect');
    expect(faults).toEqual([]);
    await other.context.close();
  });
});

describe('a key that is refused', () => {
  it('leaves the form open for another', async () => {
    const own = await browser.newContext({ viewport: WIDE, baseURL: world.gateway.url });
    const form = await own.newPage();
    await form.goto('/console/sign-in');
    await form.getByLabel('Your API key').fill('svc_acct_mistyped');
    await form.keyboard.press('Enter');
    await form.getByRole('alert').waitFor();
    await form.getByLabel('Your API key').fill(others);
    await form.keyboard.press('Enter');
    await form.waitForSelector('.shell');
    await own.close();
  });
});

describe('a link', () => {
  it('is taken out of the address at once; who comes with it again is told so, and may show a key', async () => {
    const { body } = await send(world.gateway.url, others, 'POST', '/v1/beta/console/links', {});
    const own = await browser.newContext({ viewport: WIDE, baseURL: world.gateway.url });
    const first = await own.newPage();
    let go = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    await first.route('**/console/session', async (route) => {
      if (route.request().method() === 'POST') await held;
      await route.continue();
    });
    await first.goto(body.url);
    await first.getByText('Signing in…').waitFor();
    expect(new URL(first.url()).hash).toBe('');
    go();
    await first.waitForSelector('.shell');
    await own.clearCookies();
    const again = await own.newPage();
    await again.goto(body.url);
    await again.getByRole('alert').filter({ hasText: /\S/ }).waitFor();
    await again.getByLabel('Your API key').fill(`  ${others} `);
    await again.keyboard.press('Enter');
    await again.waitForSelector('.shell');
    await own.close();
  });
});

describe('leaving', () => {
  it('ends the session at the gateway, and the sign-in page is there', async () => {
    const cookies = await context.cookies();
    const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
    expect(cookies.every(({ httpOnly, sameSite }) => httpOnly && sameSite === 'Strict')).toBe(true);
    await page.getByRole('button', { name: 'Leave' }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(await page.title()).toBe('Sign in · svc');
    expect(await faultsOf(page)).toEqual([]);
    const headers = { cookie, 'svc-console': '1' };
    expect((await fetch(`${world.gateway.url}/v1/workspaces/demo/effects`, { headers })).status).toBe(401);
    // Nobody reads it who looks at the screen as well.
    expect(await page.getByLabel('Your API key').getAttribute('type')).toBe('password');
    await page.getByLabel('Your API key').fill(world.keys.approver);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.shell');
  });

  it('and all that while no page complained, or asked another host for anything', () => {
    expect(complaints).toEqual([]);
  });
});
