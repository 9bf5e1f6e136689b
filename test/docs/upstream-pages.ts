import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

const FOLDER = 'docs/upstreams';

/** Names of the pages about upstreams. */
export async function upstreamPages(): Promise<readonly string[]> {
  return (await readdir(FOLDER)).filter((name) => name !== 'README.md').map((name) => name.replace(/\.md$/, ''));
}

/** Blocks of one language on a page. */
export async function blocksOf(page: string, language: string): Promise<readonly string[]> {
  const text = await readFile(join(FOLDER, `${page}.md`), 'utf8');
  return [...text.matchAll(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 'gs'))].map(([, block = '']) => block);
}

/** The files of a page by their names, as a reader would copy them; none where `svc init` makes them. */
export async function filesOf(page: string): Promise<ReadonlyMap<string, string>> {
  const text = await readFile(join(FOLDER, `${page}.md`), 'utf8');
  const named = text.matchAll(/^`([\w./-]+\.yaml)`:\n\n```yaml\n(.*?)```/gms);
  return new Map([...named].map(([, name = '', block = '']) => [name, block]));
}

/** Writes the files of a page into a folder, with a credential for each upstream that wants one. */
export async function writePage(page: string, folder: string): Promise<void> {
  for (const [name, text] of await filesOf(page)) {
    const credentials = [...text.matchAll(/file: (credentials\/\w+)/g)].map(([, file = '']) => file);
    for (const file of [name, ...credentials]) await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, name), text);
    for (const file of credentials) await writeFile(join(folder, file), 'Bearer of-the-api', { mode: 0o600 });
  }
}
