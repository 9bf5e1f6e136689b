import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refund, startWorld, type World } from '../system/world.ts';
import { faultsOf, openBrowser } from './browser.ts';

/* Passkeys in a real browser, with an authenticator that the browser itself makes. */

const PHONE = { width: 390, height: 844 };

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
  [world, browser] = await Promise.all([startWorld(), openBrowser()]);
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

/** Gives a page an authenticator of its own, which asks nobody. */
async function addAuthenticator(of: BrowserContext, where: Page): Promise<void> {
  const debug = await of.newCDPSession(where);
  await debug.send('WebAuthn.enable');
  await debug.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
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
    await page.getByRole('button', { name: 'Sign in with a passkey' }).click();
    await page.waitForSelector('.shell');
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

  it('and nothing complained, or asked another host for anything', () => {
    expect(complaints).toEqual([]);
  });
});
