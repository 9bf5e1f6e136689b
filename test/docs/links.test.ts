import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';

function pages(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) return pages(path);
    return name.endsWith('.md') ? [path] : [];
  });
}

const PAGES = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'client/README.md', ...pages('docs')];

test('there are pages', () => {
  expect(PAGES.length).toBeGreaterThan(60);
});

test.each(PAGES)('%s: every link leads somewhere', (file) => {
  const text = readFileSync(file, 'utf8').replace(/```.*?```/gs, '');
  const broken = [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !/^(https?:|#)/.test(target))
    .filter((target) => !existsSync(join(dirname(file), target.split('#')[0] ?? '')));
  expect(broken).toEqual([]);
});

test('the glossary has at most 20 words of the house', () => {
  const words = readFileSync('docs/glossary.md', 'utf8').match(/^\| \*\*.*?\*\*/gm) ?? [];
  expect(words.length).toBeGreaterThan(10);
  expect(words.length).toBeLessThanOrEqual(20);
});

test('paths of the code that CONTRIBUTING.md names are there', () => {
  const named = [...readFileSync('CONTRIBUTING.md', 'utf8').matchAll(/`((?:src|test|docs)\/[^`\s<*]*)`/g)].map(
    ([, path = '']) => path,
  );
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter((path) => !existsSync(path))).toEqual([]);
});
