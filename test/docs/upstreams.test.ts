import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
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
    'kubernetes',
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

/** What a page promises or refuses. Each such sentence is quoted beside the test that shows it. */
const CLAIM = /\b(?:passes|cannot|(?:is|are) refused)\b/;

/** Sentences of a page outside its code blocks, and cells of its tables. */
function sentencesOf(text: string): readonly string[] {
  return text
    .replace(/```.*?```/gs, '')
    .split(/\n\s*\n|\n(?=\s*(?:[-|#]|\d+\.) ?)/)
    .flatMap((block) =>
      block
        .replace(/^\s*(?:- |#+ |\d+\. )/, '')
        .replaceAll(/\s+/g, ' ')
        .split(/(?<=[.!?])\s+(?=[A-Z`*[])|\|/),
    )
    .map((sentence) => sentence.trim());
}

/** The text of a test file as one line, its comments without their marks. */
function plain(text: string): string {
  return text.replaceAll(/\n\s*\/\/ ?/g, ' ').replaceAll(/\s+/g, ' ');
}

test('each sentence about what passes, cannot be or is refused is quoted by a test', async () => {
  const names = (await readdir('test', { recursive: true })).filter((name) => name.endsWith('.test.ts'));
  const tests = await Promise.all(names.map(async (name) => plain(await readFile(join('test', name), 'utf8'))));
  const claims: string[] = [];
  for (const page of ['README', ...pages])
    for (const sentence of sentencesOf(await readFile(`docs/upstreams/${page}.md`, 'utf8')))
      if (CLAIM.test(sentence)) claims.push(`"${sentence}"`);
  expect(claims.length).toBeGreaterThan(12);
  expect(claims.filter((claim) => !tests.some((text) => text.includes(claim)))).toEqual([]);
});
