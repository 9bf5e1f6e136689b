import { join } from 'node:path';
import type { Browser, BrowserContext, BrowserContextOptions, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeApiKey, type TestFiles } from '../system/gateway.ts';
import { refund, startWorld, type World, worldFiles } from '../system/world.ts';
import { faultsOf, openBrowser } from './browser.ts';

/* The approver's page in a real browser: what fits a phone, what everybody can use, and what goes on without scripts. */

const WIDE = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
/** Where pictures of the pages are put; none are taken where it is not said. */
const PICTURES = process.env['SVC_SCREENSHOTS'];

const files = (url: string): TestFiles => {
  const { config, policies } = worldFiles(url);
  const policy = (policies['world.yaml'] ?? '')
    .replace('limit: 100000 }', 'limit: 100000000 }')
    .replace(
      'expires: 1h, summary',
      'expires: 1h, require_reason: true, allow_alike: { times: 5, for: 2h }, editable: { amount: { min: 100, max: asked } }, summary',
    )
    .replace('summary: "Refund ${params.amount} cents of', 'summary: "Refund ${params.amount in params.currency} of')
    .replace(
      'effect: require_approval\n',
      'effect: require_approval\n    description: Refunds above €500.00 are looked at\n',
    );
  return { config, policies: { 'world.yaml': policy } };
};

let world: World;
let browser: Browser;
let owner: string;
const complaints: string[] = [];
beforeAll(async () => {
  [world, browser] = await Promise.all([startWorld({ files }), openBrowser()]);
  owner = await makeApiKey(world.gateway, 'olga', { kind: 'account', workspace: 'demo' });
  await world.run(refund({ payment_id: 'pay_1', amount: 12_50, reason: 'A cup was broken' }));
});
afterAll(async () => {
  await browser?.close();
  await world?.close();
});

let unique = 0;
/** A refund that waits for maria, and the address of its page. */
async function asked(more: Record<string, unknown> = {}): Promise<{ readonly url: string; readonly effect: string }> {
  unique += 1;
  const params = { payment_id: 'pay_1', amount: 80_000 + unique, reason: 'The whole order came too late', ...more };
  const { body } = await world.run(refund(params));
  return { url: `${world.gateway.url}${new URL(body.approval.url).pathname}`, effect: body.effect_id };
}

async function signedIn(
  url: string,
  options: BrowserContextOptions = {},
  key = world.keys.approver,
): Promise<{ readonly page: Page; readonly context: BrowserContext }> {
  const context = await browser.newContext({ viewport: PHONE, timezoneId: 'America/New_York', ...options });
  const page = await context.newPage();
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/status of 40/.test(message.text())) complaints.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(world.gateway.url)) complaints.push(`asks ${request.url()}`);
  });
  await page.goto(url);
  await page.getByLabel('Your API key').fill(key);
  await page.getByRole('button', { name: 'Go on' }).click();
  await page.getByText('You are').waitFor();
  return { page, context };
}

/** The button that approves, whatever it says of the amount. */
function approveOn(page: Page): Locator {
  return page.getByRole('button', { name: /^Approve/ });
}

async function picture(page: Page, name: string): Promise<void> {
  if (PICTURES !== undefined)
    await page.screenshot({ path: join(PICTURES, `${name}.png`), fullPage: name.includes('wide') });
}

describe('the page', () => {
  it.each([
    ['phone-light', PHONE, 'light'],
    ['phone-dark', PHONE, 'dark'],
    ['wide-light', WIDE, 'light'],
    ['wide-dark', WIDE, 'dark'],
    ['narrow', { width: 320, height: 640 }, 'light'],
  ] as const)(
    'can be used by everybody, and has the question and both answers at once: %s',
    async (name, viewport, colorScheme) => {
      const { url } = await asked();
      const faults: string[] = [];
      const look = async (page: Page, what: string): Promise<void> => {
        faults.push(...(await faultsOf(page)).map((fault) => `${what}: ${fault}`));
        if (await page.evaluate('document.documentElement.scrollWidth > innerWidth'))
          faults.push(`${what} is too wide`);
        await picture(page, `approver-${what}-${name}`);
      };
      const without = await browser.newContext({ viewport, colorScheme });
      const key = await without.newPage();
      await key.goto(url);
      await look(key, 'key');
      await without.close();
      const { page, context } = await signedIn(url, { viewport, colorScheme });
      for (const part of [
        '€800.',
        'Agent bot of olga asks',
        'Refunds above €500.00 are looked at',
        'Its last call like this',
      ])
        expect(await page.innerText('main')).toContain(part);
      for (const answer of [/^Approve €800\.\d\d refund$/, /^Reject$/]) {
        const box = await page.getByRole('button', { name: answer }).boundingBox();
        if (viewport !== WIDE && viewport !== PHONE) continue;
        expect((box?.y ?? Infinity) + (box?.height ?? 0), String(answer)).toBeLessThan(viewport.height);
        expect(box?.height).toBeGreaterThanOrEqual(44);
      }
      await look(page, 'question');
      await page.getByLabel(/^amount in EUR: €1\.00 to €800/).fill('200');
      await approveOn(page).click();
      await page.getByText('It happened.').waitFor();
      for (const part of [/Receipt\s+rcp_/, /Refund €200\.00/, /maria changed amount/])
        expect(await page.innerText('main')).toMatch(part);
      await look(page, 'approved');
      await context.close();
      expect(faults).toEqual([]);
    },
  );

  it('says times in the zone of its reader; without scripts in UTC, and decides all the same', async () => {
    const { url, effect } = await asked();
    const { page, context } = await signedIn(url);
    const until = page.locator('.card time').first();
    expect(await until.innerText()).toMatch(/E[SD]T$/);
    expect(await until.getAttribute('title')).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d UTC$/);
    await context.close();
    const plain = await signedIn(url, { javaScriptEnabled: false });
    expect(await plain.page.locator('.card time').first().innerText()).toMatch(/ UTC$/);
    await plain.page.getByLabel(/^Why you reject/).fill('Not this one');
    await plain.page.getByRole('button', { name: 'Reject' }).click();
    await plain.page.getByRole('heading', { name: 'Rejected' }).waitFor();
    expect((await world.get(`/effects/${effect}`)).body.effect.state).toBe('rejected');
    await plain.context.close();
  });

  it('keeps what was written in it where a change is refused, and approves no other amount', async () => {
    const { url, effect } = await asked();
    const { page, context } = await signedIn(url, { javaScriptEnabled: false });
    const amount = page.getByLabel(/^amount in EUR/);
    expect(await amount.inputValue()).toMatch(/^800\.\d\d$/);
    await page.getByLabel(/^Why you reject/).fill('Half of it\nis enough');
    for (const [wrong, why] of [
      ['900', 'amount may be €1.00 to €800'],
      ['1.000,50', 'amount has to be an amount such as 1234.56, with nothing between thousands.'],
      ['400.505', 'amount has to be an amount such as 1234.56, with nothing between thousands.'],
    ] as const) {
      await amount.fill(wrong);
      await approveOn(page).click();
      expect(await page.getByRole('alert').innerText()).toContain(why);
      const said = page.locator(`#${(await amount.getAttribute('aria-describedby')) ?? 'nothing'}`);
      expect(await said.innerText()).toContain(why);
      expect(await amount.getAttribute('aria-invalid')).toBe('true');
      await expect.poll(() => amount.evaluate((field) => field.matches(':focus'))).toBe(true);
      expect(await amount.inputValue()).toBe(wrong);
      expect(await page.getByLabel(/^Why you reject/).inputValue()).toBe('Half of it\nis enough');
    }
    await amount.fill('400,5');
    await approveOn(page).click();
    await page.getByText('It happened.').waitFor();
    expect((await world.get(`/effects/${effect}`)).body.effect.params.amount).toBe(40_050);
    await context.close();
  });

  it('decides nothing where a key ends what was written', async () => {
    const { url, effect } = await asked();
    const { page, context } = await signedIn(url, { viewport: PHONE });
    const amount = page.getByLabel(/^amount in EUR/);
    expect(await approveOn(page).innerText()).toMatch(/^Approve €800\.\d\d refund$/);
    await amount.fill('150');
    // The button never names an amount that is not the one in the field.
    expect(await approveOn(page).innerText()).toBe('Approve refund with amount in EUR 150');
    await amount.fill('150,$& and so on, and on');
    expect(await approveOn(page).innerText()).toBe('Approve refund as written above');
    await amount.fill('150');
    await amount.press('Enter');
    await page.getByRole('button', { name: 'Reject', exact: true }).waitFor();
    expect(await amount.inputValue()).toBe('150');
    expect((await world.get(`/effects/${effect}`)).body.effect.state).toBe('pending_approval');
    await amount.fill('1,000');
    await approveOn(page).click();
    await page.locator('.fault').waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await picture(page, 'approver-fault-phone-light');
    await context.close();
  });

  it('has no answers any more once the time of the question is over', async () => {
    const { url } = await asked();
    const { page, context } = await signedIn(url);
    await page.clock.install();
    await page.reload();
    const approve = approveOn(page);
    await page.clock.fastForward('59:00');
    expect(await approve.isVisible()).toBe(true);
    await page.clock.fastForward('02:00');
    expect(await approve.isVisible()).toBe(false);
    expect(await page.innerText('main')).toContain('The time to decide is over.');
    await context.close();
  });

  it('lets the next calls like it in, without scripts, and no more', async () => {
    const params = { amount: 85_000, reason: 'Three parcels were lost' };
    const { url } = await asked(params);
    const { page, context } = await signedIn(url, { javaScriptEnabled: false });
    expect(await page.innerText('form')).toContain('with the same headers and the same params, all of them');
    await page.getByLabel(/^If you approve/).selectOption('2');
    await approveOn(page).click();
    await page.getByText('It happened.').waitFor();
    expect(await page.innerText('main')).toContain('maria let the next 2 calls like it in without asking');
    const again = async (): Promise<string> =>
      (await world.run(refund({ payment_id: 'pay_1', ...params }))).body.decision;
    expect([await again(), await again(), await again()]).toEqual(['committed', 'committed', 'pending_approval']);
    await page.reload();
    expect(await page.innerText('main')).not.toContain('Your allowances');
    await context.close();
  });

  it('ends what somebody allowed, on the page of the request that it was allowed with', async () => {
    const params = { amount: 86_000, reason: 'Two parcels were lost' };
    const { url } = await asked(params);
    const { page, context } = await signedIn(url);
    await page.getByLabel(/^If you approve/).selectOption('5');
    await approveOn(page).click();
    await page.getByRole('heading', { name: 'Your allowances' }).waitFor();
    const again = async (): Promise<string> =>
      (await world.run(refund({ payment_id: 'pay_1', ...params }))).body.decision;
    expect(await again()).toBe('committed');
    await page.reload();
    expect(await page.innerText('main')).toContain(
      'bot calls payments.refund on “payment:pay_1” without asking: 1 of 5 used',
    );
    expect(await faultsOf(page)).toEqual([]);
    await picture(page, 'approver-allowances-wide');
    await page.getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('heading', { name: 'Your allowances' }).waitFor({ state: 'detached' });
    expect(await again()).toBe('pending_approval');
    await context.close();
  });

  it('has no buttons for who may not decide, and says why', async () => {
    const { url } = await asked();
    const { page, context } = await signedIn(url, {}, owner);
    expect(await page.getByRole('button').allInnerTexts()).toEqual(['Leave']);
    expect(await page.innerText('main')).toContain('It is your own request');
    expect(await faultsOf(page)).toEqual([]);
    await picture(page, 'approver-own-phone-light');
    await context.close();
  });

  it('shows what differs from the last call like this, and what was done on the target before', async () => {
    const { url } = await asked({ reason: `See ${'x'.repeat(180)}` });
    const { page, context } = await signedIn(url);
    const alike = page.locator('section', { has: page.getByRole('heading', { name: 'Its last call like this' }) });
    const text = await alike.innerText();
    expect(text).toMatch(/amount\s+€\d+\.\d\d\s+€\d+\.\d\d/);
    expect(text).not.toContain('currency');
    // However long a value is, the words beside it stand.
    for (const cell of await alike.locator('tr:nth-child(2) > *').all())
      expect((await cell.boundingBox())?.width).toBeGreaterThan(80);
    const before = page.locator('section', { has: page.getByRole('heading', { name: 'Before on this target' }) });
    expect(await before.innerText()).toMatch(/E[SD]T: payments\.refund, happened/);
    await context.close();
  });

  it('and all that while nothing complained, or asked another host for anything', () => {
    expect(complaints).toEqual([]);
  });
});
