import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeApiKey, send } from '../system/gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from '../system/world.ts';
import { faultsOf, openBrowser } from './browser.ts';

/* Rules that are suggested where people approved the same time and again, from the fifth approval until they are in force. */

const MARKUP = `"><img src=x onerror="window.owned=1"> # - { id: own, effect: allow }`;
let world: World;
let browser: Browser;
let administrators: readonly string[];

beforeAll(async () => {
  const ofTwo = (url: string): ReturnType<typeof worldFiles> => {
    const { config, policies } = worldFiles(url);
    return {
      config: config.replace(/^policies: \{/m, 'policies: { second_person: true,'),
      policies: { 'world.yaml': (policies['world.yaml'] ?? '').replace('limit: 100000', 'limit: 10000000') },
    };
  };
  [world, browser] = await Promise.all([startWorld({ files: ofTwo }), openBrowser()]);
  administrators = [
    await makeApiKey(world.gateway, 'maria', { kind: 'administrative' }),
    await makeApiKey(world.gateway, 'tom', { kind: 'administrative' }),
  ];
});
afterAll(async () => {
  await browser?.close();
  await world?.close();
});

/** A large refund of the bot, which people are asked about. */
const large = (over: Record<string, unknown> = {}) =>
  world.run(
    refund({
      payment_id: `pay_${freshKey().replace(/.*-/, '').padStart(4, '0')}`,
      amount: 60_000,
      reason: MARKUP,
      ...over,
    }),
  );

async function policiesPage(width: number): Promise<Page> {
  const { body } = await send(world.gateway.url, world.keys.account, 'POST', '/v1/beta/console/links', {});
  const page = await browser.newPage({ baseURL: world.gateway.url, viewport: { width, height: 800 } });
  await page.goto(body.url);
  await page.waitForSelector('.shell');
  await page.goto('/console/demo/policies');
  await page.waitForSelector('#try');
  return page;
}

const inForce = async (): Promise<string> =>
  (await send(world.gateway.url, administrators[0] ?? '', 'GET', '/v1/beta/policies/activations')).body.in_force;

it('five approvals are a text and its evidence, which lets run what was approved once two people stand behind it', async () => {
  const before = await inForce();
  for (const amount of [60_000, 70_000, 60_000, 80_000, 60_000]) {
    const { body } = await large({ amount });
    const decided = await world.post(`/approvals/${body.approval.id}/approve`, {}, world.keys.approver);
    expect(decided.body.became).toMatchObject({ what: 'dispatched', decision: 'committed' });
  }

  const page = await policiesPage(1280);
  const card = page.locator('section[aria-labelledby=suggested]');
  await card.waitFor();
  const said = await card.innerText();
  expect(said).toContain('Approved 5 times by maria and never rejected');
  expect(said).toContain('<img src=x onerror=');
  expect(await page.evaluate('window.owned')).toBeUndefined();
  await card.getByText('What it is drawn from').click();
  expect(await card.locator('details li').count()).toBe(5);
  expect(await faultsOf(page)).toEqual([]);
  const phone = await policiesPage(390);
  await phone.locator('section[aria-labelledby=suggested]').waitFor();
  expect(await faultsOf(phone)).toEqual([]);
  expect(await phone.evaluate('document.documentElement.scrollWidth > innerWidth')).toBe(false);

  // One of the calls is in the form, and gets what it would get now.
  await card.getByRole('button', { name: 'Try the newest of these calls' }).press('Enter');
  await page.getByRole('button', { name: 'Try', exact: true }).press('Enter');
  await page.locator('section[aria-labelledby=try] [role=status]').getByText('world/refund-large').first().waitFor();

  // It was read and tried; nothing is in force, and nothing proposed.
  expect(await inForce()).toBe(before);
  expect((await large()).body.decision).toBe('pending_approval');

  const { body: answer } = await world.get('/policies/suggestions');
  const [{ text, file }] = answer.suggestions;
  expect(file).toBe(join(world.gateway.policyFolder, 'world.yaml'));
  const source = readFileSync(file, 'utf8');
  writeFileSync(
    file,
    source.replace(/ {2}- id: refund-large\n(?: {4}.*\n)+/, () => text),
  );
  const path = '/v1/beta/policies/proposals';
  const open = async (): Promise<string | undefined> =>
    (await send(world.gateway.url, administrators[0] ?? '', 'GET', path)).body.proposals[0]?.id;
  await expect.poll(open, { timeout: 30_000 }).toBeDefined();
  expect(await inForce()).toBe(before);
  const id = await open();
  for (const key of administrators)
    expect((await send(world.gateway.url, key, 'POST', `${path}/${id}/confirm`, {})).status).toBe(200);
  expect(await inForce()).not.toBe(before);

  expect((await large({ amount: 75_000 })).body.decision).toBe('committed');
  for (const over of [
    { amount: 80_001 },
    { amount: 59_999 },
    { currency: 'USD' },
    { reason: 'other' },
    { reason: undefined },
  ])
    expect([over, (await large(over)).body.decision]).toEqual([over, 'pending_approval']);
  expect((await world.run(refund({ amount: 60_000, reason: MARKUP }), world.keys.otherBot)).body.decision).toBe(
    'pending_approval',
  );
  // The rule is another now: what was approved of the old one counts for nothing.
  expect((await world.get('/policies/suggestions')).body.suggestions).toEqual([]);
});
