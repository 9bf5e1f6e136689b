import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { send } from '../system/gateway.ts';
import { refund, startWorld, type World, worldFiles } from '../system/world.ts';
import { openBrowser } from './browser.ts';

/** What agents, upstreams and people put into texts. In none of the screens may it be more than a text. */
const ELEMENTS = [
  '<img src=x onerror="owned=1">',
  '<svg onload=owned=1>',
  '<script>owned=1</script>',
  '<a href="javascript:owned=1">look here</a>',
  '<style>*{display:none}</style>',
  '<iframe srcdoc="<script>parent.owned=1</script>"></iframe>',
  '<link rel="stylesheet" href="//evil.example/x.css">',
  '<meta http-equiv="refresh" content="0;url=//evil.example/">',
  '<base href="//evil.example/">',
  '<form action="//evil.example/"><button>Approve</button></form>',
] as const;
/** What an element stands behind, so that it would begin where a text or an attribute is not closed off. */
const BEFORE = ['', '">', "'>", '</textarea>', '</script>', '-->', ']]>', '</title>', '\u202e', '\u0000<'] as const;
const CORPUS = BEFORE.flatMap((before) => ELEMENTS.map((element) => `${before}${element}`));
/** So many of the corpus stand in one text. */
const TOGETHER = 10;
const TEXTS = Array.from({ length: CORPUS.length / TOGETHER }, (_, n) =>
  CORPUS.slice(n * TOGETHER, (n + 1) * TOGETHER).join(' '),
);
const FOREIGN = [
  ...['img', 'svg[onload]', 'script:not([src])', 'style', 'iframe', 'link', 'meta', 'base'].map((tag) => `main ${tag}`),
  'a[href^="javascript"]',
  'form[action*="evil"]',
  '[onerror]',
  '[onload]',
].join(', ');
const SCREENS = ['effects', 'inbox', 'unknown', 'overview', 'agents', 'budgets', 'claims', 'pauses', 'policies'];
const OTHERS = ['brain', 'servers', 'health', 'passkeys'];

let world: World;
let browser: Browser;
let context: BrowserContext;
let page: Page;
const effects: string[] = [];
/** Requests to another host, and what the policy of the page had to stop. */
const complaints: string[] = [];

beforeAll(async () => {
  const files = (url: string): ReturnType<typeof worldFiles> => {
    const { config, policies } = worldFiles(url);
    const text = (policies['world.yaml'] ?? '').replace('limit: 100000 }', 'limit: 100000000 }');
    return { config, policies: { 'world.yaml': text } };
  };
  [world, browser] = await Promise.all([startWorld({ files }), openBrowser()]);
  const run = async (call: Record<string, unknown>): Promise<void> => {
    const { body } = await world.run(call);
    effects.push(body.effect_id);
  };
  for (const [n, text] of TEXTS.entries()) {
    await run(refund({ payment_id: `pay_${n}`, amount: 100, reason: text }));
    // It waits for somebody.
    await run(refund({ payment_id: `pay_${n}`, amount: 60_000, reason: text }));
    await run({ tool: 'deploy.start', params: { service: text }, idempotency_key: `deploy-${n}` });
    await run({ ...refund(), tool: text.slice(0, 120) });
    await world.post('/pauses', { scope: { tool: `none.${n}` }, reason: text.slice(0, 400) }, world.keys.approver);
  }
  await run(refund({ payment_id: 'pay_lost', amount: 100, reason: `mode:drop_after ${TEXTS[0] ?? ''}` }));
  context = await browser.newContext({ baseURL: world.gateway.url });
  page = await context.newPage();
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (/Content Security Policy|Refused/.test(message.text())) complaints.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(world.gateway.url)) complaints.push(`asks ${request.url()}`);
  });
  page.on('dialog', (dialog) => void dialog.dismiss().then(() => complaints.push('a dialog')));
  const { body } = await send(world.gateway.url, world.keys.approver, 'POST', '/v1/beta/console/links', {});
  await page.goto(body.url);
  await page.waitForSelector('.shell');
});
afterAll(async () => {
  await browser?.close();
  await world?.close();
});

/** What of the corpus has become more than a text on the page that is open. */
async function foreign(): Promise<readonly string[]> {
  await expect.poll(() => page.innerText('main')).not.toMatch(/Loading|^\s*$/);
  await page.evaluate('new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))');
  const found = await page.locator(FOREIGN).evaluateAll((all) => all.map(({ outerHTML }) => outerHTML.slice(0, 120)));
  const isOwned = await page.evaluate(() => 'owned' in globalThis);
  return [...found, ...(isOwned ? ['a script of others ran'] : []), ...complaints.splice(0)];
}

it(`a corpus of ${CORPUS.length} is text on every screen of the console`, async () => {
  expect(CORPUS.length).toBe(100);
  for (const screen of [...SCREENS, ...OTHERS]) {
    await page.goto(`/console/demo/${screen}`);
    await page.waitForSelector('h1');
    expect(await foreign(), screen).toEqual([]);
  }
});

it('and on the screen of each effect, with all that was asked', async () => {
  for (const id of effects) {
    await page.goto(`/console/demo/effects/${id}`);
    await page.waitForSelector('h1');
    expect(await foreign(), id).toEqual([]);
  }
  expect(await page.innerText('main')).toContain('onerror="owned=1"');
});

it('and in the question to an approver, in the inbox and on its own page', async () => {
  const { approvals } = (await world.get('/approvals?status=pending&limit=50')).body;
  expect(approvals.length).toBeGreaterThan(5);
  // The page asks for a key once.
  await page.goto(`/approve/demo/${approvals[0].id}`);
  await page.getByLabel('Your API key').fill(world.keys.approver);
  await page.getByRole('button', { name: 'Go on' }).click();
  await page.getByRole('button', { name: 'Reject' }).waitFor();
  for (const { id } of approvals) {
    await page.goto(`/console/demo/inbox?approval=${id}`);
    await page.waitForSelector('#question');
    expect(await foreign(), `${id} in the inbox`).toEqual([]);
    await page.goto(`/approve/demo/${id}`);
    await page.getByRole('button', { name: 'Reject' }).waitFor();
    expect(await page.innerText('main')).toContain('onerror="owned=1"');
    expect(await foreign(), `the page of ${id}`).toEqual([]);
  }
});
