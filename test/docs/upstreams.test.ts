import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkConfiguration } from '../../src/config/load.ts';
import { filesOf, upstreamPages, writePage } from './upstream-pages.ts';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-pages-'));
});
afterAll(() => rm(folder, { recursive: true }));

const pages = await upstreamPages();

test('there is a page for each kind of upstream, and the list names it', async () => {
  const list = await readFile('docs/upstreams/README.md', 'utf8');
  expect(pages.toSorted()).toEqual([
    'anthropic',
    'github',
    'graphql',
    'openai',
    'openapi',
    'rest',
    'signed',
    'slack',
    'streams',
    'stripe',
    'tls',
  ]);
  for (const page of pages) expect(list).toContain(`| [${page}.md](${page}.md) |`);
});

test.each(pages.filter((page) => !['openapi', 'tls'].includes(page)))(
  '%s: its files load without a finding',
  async (page) => {
    expect([...(await filesOf(page)).keys()]).toEqual(['gateway.yaml', 'policies/first.yaml']);
    await writePage(page, join(folder, page));
    const file = join(folder, page, 'gateway.yaml');
    // Paths are relative to the folder that the gateway is started in.
    const text = await readFile(file, 'utf8');
    await writeFile(
      file,
      text
        .replace('[policies]', JSON.stringify([join(folder, page, 'policies')]))
        .replace(
          /file: (credentials\/\w+)/,
          (_, credential) => `file: ${JSON.stringify(join(folder, page, credential))}`,
        ),
    );
    expect(await checkConfiguration(file)).toMatchObject({ exit: 0, findings: [] });
  },
);
