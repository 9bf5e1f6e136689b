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

const PAGES = ['README.md', 'CHANGELOG.md', ...pages('docs')];

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
