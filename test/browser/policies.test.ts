import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeApiKey, send } from '../system/gateway.ts';
import { startWorld, type World, worldFiles } from '../system/world.ts';
import { faultsOf, openBrowser } from './browser.ts';

/* Policies behind which two people have to stand. */

const MARKUP = '<img src=x onerror="window.owned=1">';
let world: World;
let browser: Browser;
const keys = { maria: '', tom: '' };

beforeAll(async () => {
  const ofTwo = (url: string): ReturnType<typeof worldFiles> => {
    const files = worldFiles(url);
    return { ...files, config: files.config.replace(/^policies: \{/m, 'policies: { second_person: true,') };
  };
  [world, browser] = await Promise.all([startWorld({ files: ofTwo }), openBrowser()]);
  for (const user of ['maria', 'tom'] as const)
    keys[user] = await makeApiKey(world.gateway, user, { kind: 'administrative' });
});
afterAll(async () => {
  await browser?.close();
  await world?.close();
});

async function signedIn(user: keyof typeof keys, width = 1280): Promise<Page> {
  const { body } = await send(world.gateway.url, keys[user], 'POST', '/v1/beta/console/links', {});
  const page = await browser.newPage({ baseURL: world.gateway.url, viewport: { width, height: 800 } });
  await page.goto(body.url);
  await page.waitForSelector('.shell');
  await page.goto('/console/demo/policies');
  await page.waitForSelector('#proposed');
  return page;
}

async function showKey(page: Page, user: keyof typeof keys): Promise<void> {
  await page.getByLabel('Your API key').fill(keys[user]);
  await page.getByRole('button', { name: 'Go on' }).click();
}

const inForce = async (): Promise<string> =>
  (await send(world.gateway.url, keys.maria, 'GET', '/v1/beta/policies/activations')).body.in_force;

it('edited files wait for two people, who read what would change before they confirm it', async () => {
  const before = await inForce();
  const file = join(world.gateway.policyFolder, 'world.yaml');
  writeFileSync(
    file,
    readFileSync(file, 'utf8').replace('Only EUR and USD', `Only euros ${MARKUP.replaceAll('"', '')}`),
  );
  const proposals = async (): Promise<unknown[]> =>
    (await send(world.gateway.url, keys.maria, 'GET', '/v1/beta/policies/proposals')).body.proposals;
  await expect.poll(async () => (await proposals()).length, { timeout: 30_000 }).toBe(1);

  const maria = await signedIn('maria');
  const card = maria.locator('section[aria-labelledby=proposed]');
  expect(await card.innerText()).toContain('Nobody stands behind it yet; 2 people have to.');
  // Nobody confirms what they have not seen.
  expect(await card.getByRole('button', { name: 'Confirm' }).count()).toBe(0);
  // A list that the gateway could not read is not shown as one that is empty.
  await maria.route(/\/policies\/versions\//, async (route) => {
    if (route.request().url().endsWith(before)) return route.continue();
    const response = await route.fetch();
    const version: { files: object[] } = await response.json();
    const [first, ...others] = version.files;
    await route.fulfill({
      response,
      json: { ...version, files: [{ ...first, lists: [{ name: 'away', text: null }] }, ...others] },
    });
  });
  await card.getByRole('button', { name: 'What would change' }).press('Enter');
  await card.locator('del', { hasText: 'Only EUR and USD' }).waitFor();
  await expect
    .poll(() => card.locator('ins').allInnerTexts())
    .toEqual([expect.stringContaining('Only euros <img'), expect.stringContaining('It could not be read.')]);
  await maria.unrouteAll({ behavior: 'wait' });
  expect(await maria.evaluate('window.owned')).toBeUndefined();
  expect(await faultsOf(maria)).toEqual([]);
  await card.getByRole('button', { name: 'Confirm' }).press('Enter');
  await card.getByRole('button', { name: 'Yes, I stand behind it' }).press('Enter');
  await showKey(maria, 'maria');
  await card.getByText('maria stands behind it; one more person has to.').waitFor();
  expect(await card.getByRole('button', { name: 'Confirm' }).count()).toBe(0);
  expect(await inForce()).toBe(before);

  const tom = await signedIn('tom', 390);
  const onPhone = tom.locator('section[aria-labelledby=proposed]');
  await onPhone.getByRole('button', { name: 'What would change' }).click();
  await onPhone.locator('ins').waitFor();
  expect(await faultsOf(tom)).toEqual([]);
  expect(await tom.evaluate('document.documentElement.scrollWidth > innerWidth')).toBe(false);
  await onPhone.getByRole('button', { name: 'Confirm' }).click();
  await onPhone.getByRole('button', { name: 'Yes, on all gateways' }).click();
  await showKey(tom, 'tom');
  await onPhone.waitFor({ state: 'detached' });
  expect(await inForce()).not.toBe(before);
  expect(await tom.locator('section[aria-labelledby=history]').innerText()).toContain('confirmed by maria and tom');

  // And the way back is proposed, and turned down.
  await tom.getByRole('button', { name: 'Roll back' }).click();
  await tom.getByRole('button', { name: /^Yes, put/ }).click();
  await onPhone.getByText('tom stands behind it; one more person has to.').waitFor();
  await onPhone.getByRole('button', { name: 'Withdraw' }).click();
  await onPhone.getByRole('button', { name: 'Yes, it is over' }).click();
  await onPhone.waitFor({ state: 'detached' });
});
