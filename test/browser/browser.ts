import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import axe from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';

const APT = '/usr/bin/apt-get';
const NAMES = ['chromium', 'chromium-browser', 'google-chrome'] as const;

/** A real browser: `CHROMIUM`, the one on the PATH, or, for root on Debian, installed. It asks nobody for anything. */
export function openBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: find(),
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

function find(): string {
  const named = process.env['CHROMIUM'];
  if (named !== undefined && named !== '') return named;
  const folders = (process.env['PATH'] ?? '').split(':');
  const found = folders.flatMap((folder) => NAMES.map((name) => join(folder, name))).find((path) => existsSync(path));
  if (found !== undefined) return found;
  if (process.getuid?.() !== 0 || !existsSync(APT))
    throw new Error('chromium is needed: install it (apt-get install chromium), or name it in CHROMIUM');
  const options = { env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }, stdio: 'ignore' } as const;
  execFileSync(APT, ['update', '-qq'], options);
  execFileSync(APT, ['install', '-y', '-qq', '--no-install-recommends', 'chromium', 'fonts-dejavu-core'], options);
  return '/usr/bin/chromium';
}

const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** What is wrong with a page for people with disabilities (WCAG 2.2 AA), in short. */
export async function faultsOf(page: Page): Promise<readonly string[]> {
  // The page allows no script of others; this one comes by the debugger.
  await page.evaluate(axe.source);
  const found: readonly string[] = await page.evaluate(`
    axe.run(document, { runOnly: ${JSON.stringify(RULES)} }).then(({ violations }) =>
      violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html.slice(0, 160)).join(' | ')),
    )
  `);
  return found;
}
