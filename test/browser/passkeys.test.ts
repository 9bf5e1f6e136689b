import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeApiKey, send } from '../system/gateway.ts';
import { refund, startWorld, type World, worldFiles } from '../system/world.ts';
import { faultsOf, openBrowser } from './browser.ts';

/* Passkeys in a real browser, with an authenticator that the browser itself makes. */

const PHONE = { width: 390, height: 844 };

/** Several large refunds wait at once. */
const withRoom = (upstream: string): ReturnType<typeof worldFiles> => {
  const { config, policies } = worldFiles(upstream);
  return {
    config,
    policies: { 'world.yaml': (policies['world.yaml'] ?? '').replace('limit: 100000 }', 'limit: 100000000 }') },
  };
};

let world: World;
let browser: Browser;
let context: BrowserContext;
let page: Page;
/** The gateway under the name that browsers have passkeys for. */
let url: string;
/** The path of a request for approval. */
let asked: string;
const complaints: string[] = [];

beforeAll(async () => {
  [world, browser] = await Promise.all([startWorld({ files: withRoom }), openBrowser()]);
  url = world.gateway.url.replace('127.0.0.1', 'localhost');
  context = await browser.newContext({ viewport: PHONE, baseURL: url });
  page = await context.newPage();
  page.on('pageerror', (error) => complaints.push(`error: ${error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/status of (?:40[13]|503)/.test(message.text())) complaints.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) complaints.push(`asks ${request.url()}`);
  });
  await addAuthenticator(context, page);
});
afterAll(async () => {
  await browser?.close();
  await world?.close();
});

/** Gives a page an authenticator of its own, which asks nobody. @returns what makes it refuse, and let in again */
async function addAuthenticator(of: BrowserContext, where: Page): Promise<(isRefusing: boolean) => Promise<void>> {
  const debug = await of.newCDPSession(where);
  await debug.send('WebAuthn.enable');
  const { authenticatorId } = await debug.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  return async (isRefusing) => {
    await debug.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified: !isRefusing });
  };
}

let links = 0;

/** Signs in by a key and adds a passkey, and comes again by a link, which proves nothing of who is there. */
async function cameByLink(key: string) {
  // One that is there already says nothing of whether this one is.
  const device = `Of link ${(links += 1)}`;
  const opened = await browser.newContext({ viewport: PHONE, baseURL: url });
  const own = await opened.newPage();
  const refuse = await addAuthenticator(opened, own);
  await own.goto('/console/sign-in');
  await own.getByLabel('Your API key').fill(key);
  await own.getByRole('button', { name: 'Sign in', exact: true }).click();
  await own.waitForSelector('.shell');
  await own.goto('/console/demo/passkeys');
  await own.getByLabel('Name of the device').fill(device);
  await own.getByRole('button', { name: 'Add a passkey' }).click();
  await own.getByRole('heading', { name: device }).waitFor();
  await opened.clearCookies();
  const { body } = await send(world.gateway.url, key, 'POST', '/v1/beta/console/links', {});
  await own.goto(String(body.url).replace('127.0.0.1', 'localhost'));
  await own.waitForSelector('.shell');
  const shown: string[] = [];
  own.on('request', (request) => {
    if (request.method() === 'POST' && request.url().endsWith('/console/session')) shown.push(request.url());
  });
  return { page: own, refuse, shown, close: () => opened.close() };
}

describe('a passkey', () => {
  it('is added on the console after showing a key', async () => {
    await page.goto('/console/sign-in');
    await page.getByLabel('Your API key').fill(world.keys.approver);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await page.waitForSelector('.shell');
    await page.goto('/console/demo/passkeys');
    await page.getByText('You have no passkey').waitFor();
    await page.getByLabel('Name of the device').fill('My phone');
    await page.getByRole('button', { name: 'Add a passkey' }).click();
    await page.getByRole('heading', { name: 'My phone' }).waitFor();
    expect(await page.innerText('main')).toContain('never used');
    expect(await faultsOf(page)).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
  });

  it('of the same device is there already, and the page says so', async () => {
    await page.getByLabel('Name of the device').fill('Again');
    await page.getByRole('button', { name: 'Add a passkey' }).click();
    await page.getByText('This device has a passkey of yours already.').waitFor();
  });

  it('signs in without a key', async () => {
    await page.getByRole('button', { name: 'Menu' }).click();
    await page.getByRole('button', { name: 'Leave' }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.evaluate(`{
      const get = navigator.credentials.get.bind(navigator.credentials);
      navigator.credentials.get = (of) => get(globalThis.asked = of);
    }`);
    await page.getByRole('button', { name: 'Sign in with a passkey' }).click();
    await page.waitForSelector('.shell');
    // A device that may leave out who holds it would be refused.
    expect(await page.evaluate('asked.publicKey.userVerification')).toBe('required');
    await page.goto('/console/demo/passkeys');
    await page.getByText('last used', { exact: false }).waitFor();
  });

  it('that a browser does not give leaves the key, and says so', async () => {
    const { body } = await world.run(refund({ payment_id: 'pay_1', amount: 80_000, reason: 'Came too late' }));
    asked = new URL(body.approval.url).pathname;
    const other = await browser.newContext({ viewport: PHONE, baseURL: url });
    const empty = await other.newPage();
    await addAuthenticator(other, empty);
    await empty.goto(asked);
    await empty.getByRole('button', { name: 'Use a passkey' }).click();
    await empty.getByText('No passkey was used. Try again, or show your key.').waitFor();
    await empty.getByLabel('Your API key').fill(world.keys.approver);
    await empty.getByRole('button', { name: 'Go on', exact: true }).click();
    await empty.getByText('You are maria').waitFor();
    await other.close();
  });

  it('takes a person from the address of a request to its receipt, on a phone, without a key', async () => {
    await context.clearCookies();
    await page.goto(asked);
    expect(await faultsOf(page)).toEqual([]);
    await page.getByRole('button', { name: 'Use a passkey' }).click();
    await page.getByText('You are maria').waitFor();
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByText('It happened.', { exact: false }).waitFor();
    await page.getByText('The signed receipt, for svc verify').waitFor();
  });

  it('stands for whoever came by a link: once for several that are ticked, and what is refused or cancelled loses nothing', async () => {
    const ids: string[] = [];
    for (const amount of [61_000, 62_000, 63_000])
      ids.push((await world.run(refund({ payment_id: `pay_${amount}`, amount }))).body.effect_id);
    const states = () => Promise.all(ids.map(async (id) => (await world.get(`/effects/${id}`)).body.effect.state));
    const maria = await cameByLink(world.keys.approver);
    const { page: at } = maria;
    await at.goto('/console/demo/inbox');
    for (const amount of ['61000', '62000', '63000'])
      await at.locator('li', { hasText: amount }).locator('input').check();
    await at.getByRole('link', { name: 'Refund 61000', exact: false }).click();
    const comment = at.getByLabel(/^Comment/);
    await comment.fill('Looked at all three');
    const approve = at.getByRole('button', { name: 'Approve 3: €1,860.00' });
    const dialog = at.getByRole('dialog', { name: 'Show who you are once' });
    const isAsBefore = async () => {
      await dialog.waitFor({ state: 'hidden' });
      expect(await states()).toEqual(ids.map(() => 'pending_approval'));
      expect(await comment.inputValue()).toBe('Looked at all three');
      expect(await at.locator('li input:checked').count()).toBe(3);
    };
    await approve.click();
    expect(await faultsOf(at)).toEqual([]);
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await isAsBefore();
    await maria.refuse(true);
    await approve.click();
    await dialog.getByRole('button', { name: 'Use a passkey' }).click();
    await dialog.getByText('No passkey was used', { exact: false }).waitFor();
    await expect.poll(() => dialog.getByRole('button', { name: 'Use a passkey' }).isEnabled()).toBe(true);
    await at.keyboard.press('Escape');
    await isAsBefore();
    expect(maria.shown).toEqual([]);
    await maria.refuse(false);
    await approve.click();
    await dialog.getByRole('button', { name: 'Use a passkey' }).click();
    await expect.poll(states, { timeout: 20_000 }).toEqual(ids.map(() => 'committed'));
    expect([maria.shown.length, await dialog.count()]).toEqual([1, 0]);
    const { approvals } = (await world.get('/approvals?status=used')).body;
    const ofFirst = approvals.find(({ effect_id: of }: { readonly effect_id: string }) => of === ids[0]);
    expect(ofFirst.votes).toMatchObject([{ comment: 'Looked at all three' }]);
    await maria.close();
  });

  it('stands for whoever came by a link and lifts a pause, or makes a key', async () => {
    await world.post('/pauses', { scope: { agent: 'bot' }, reason: 'incident' });
    const maria = await cameByLink(world.keys.approver);
    await maria.page.goto('/console/demo/pauses');
    await maria.page.getByRole('button', { name: 'Lift' }).click();
    await maria.page.getByRole('button', { name: 'Yes, let calls run again' }).click();
    await maria.page.getByRole('button', { name: 'Use a passkey' }).click();
    await maria.page.getByText('Nothing is paused').waitFor();
    expect(maria.shown).toHaveLength(1);
    await maria.close();
    const operator = await cameByLink(await makeApiKey(world.gateway, 'tom', { kind: 'administrative' }));
    await operator.page.goto('/console/demo/agents');
    await operator.page.getByRole('button', { name: 'Make a key' }).click();
    await operator.page.locator('select[name=agent]').selectOption('bot');
    await operator.page.getByLabel('Name, for people').fill('by passkey');
    await operator.page.getByRole('button', { name: 'Make it' }).click();
    await operator.page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    expect(await operator.page.getByLabel('Name, for people').inputValue()).toBe('by passkey');
    await operator.page.getByRole('button', { name: 'Make it' }).click();
    await operator.page.getByRole('button', { name: 'Use a passkey' }).click();
    const key = await operator.page.locator('.card .copies code').first().innerText();
    expect((await world.run(refund({ payment_id: 'pay_key' }), key)).body.decision).toBe('committed');
    await operator.close();
  });

  it('and nothing complained, or asked another host for anything', () => {
    expect(complaints).toEqual([]);
  });
});
