import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { svc } from '../system/command-line.ts';
import { send } from '../system/gateway.ts';
import { startWorld, type World, worldFiles } from '../system/world.ts';
import { faultsOf, openBrowser } from './browser.ts';

/* Policies behind which two people have to stand, as both of them see it in the console. */

let world: World;
let browser: Browser;
const keys = new Map<string, string>();

beforeAll(async () => {
  const files = (url: string): ReturnType<typeof worldFiles> => {
    const { config, policies } = worldFiles(url);
    const paths = 'paths: ["${SVC_TEST_POLICIES}"]';
    return { config: config.replace(paths, `${paths}, second_person: true`), policies };
  };
  [world, browser] = await Promise.all([startWorld({ files }), openBrowser()]);
  for (const user of ['maria', 'tom']) {
    const made = await svc(
      world.gateway.folder,
      {},
      'keys',
      'create',
      '--kind',
      'administrative',
      '--user',
      user,
      '--json',
    );
    const { key }: { readonly key: string } = JSON.parse(made.out);
    keys.set(user, key);
  }
});
afterAll(async () => {
  await browser?.close();
  await world?.close();
});

/** The screen of policies, as somebody who was signed in by a link sees it. */
async function screenOf(user: string): Promise<Page> {
  const context = await browser.newContext({ baseURL: world.gateway.url, viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  const { body } = await send(world.gateway.url, keys.get(user) ?? '', 'POST', '/v1/beta/console/links', {});
  await page.goto(body.url);
  await page.waitForSelector('.shell');
  await page.goto('/console/demo/policies');
  await page.waitForSelector('#history');
  return page;
}

/** Presses a button twice, and shows the key where it is asked for. */
async function confirm(page: Page, user: string, label: string, sure: string): Promise<void> {
  await page.getByRole('button', { name: label, exact: true }).first().click();
  await page.getByRole('button', { name: sure }).click();
  await page.getByLabel('Your API key').fill(keys.get(user) ?? '');
  await page.getByRole('button', { name: 'Go on' }).click();
}

it('edited files wait for two people; each reads what differs, and nobody confirms twice', async () => {
  const inForce = async (): Promise<unknown> =>
    (await send(world.gateway.url, keys.get('maria') ?? '', 'GET', '/v1/beta/policies/activations')).body.in_force;
  const before = await inForce();
  const file = join(world.gateway.policyFolder, 'world.yaml');
  writeFileSync(file, readFileSync(file, 'utf8').replace('limit: 100000 }', 'limit: 90000 }'));
  const [maria, tom] = [await screenOf('maria'), await screenOf('tom')];
  for (const page of [maria, tom]) await page.locator('#proposals').waitFor({ timeout: 30_000 });
  const waits = maria.locator('section[aria-labelledby=proposals]');
  expect(await waits.innerText()).toContain('2 people');
  await waits.getByText('What they say').click();
  await waits.locator('ins', { hasText: 'limit: 90000' }).waitFor();
  expect(await faultsOf(maria)).toEqual([]);
  await confirm(maria, 'maria', 'Confirm', 'Yes, I have read what differs');
  await waits.getByText('You stand behind it already').waitFor();
  expect(await waits.innerText()).toContain('One more person');
  expect(await waits.getByRole('button', { name: 'Confirm' }).count()).toBe(0);
  expect(await inForce()).toBe(before);
  await confirm(tom, 'tom', 'Confirm', 'Yes, I have read what differs');
  await tom.locator('#proposals').waitFor({ state: 'detached' });
  expect(await inForce()).not.toBe(before);
});
