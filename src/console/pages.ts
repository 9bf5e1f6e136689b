import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface Page {
  readonly type: string;
  readonly bytes: Buffer;
  /** The same, compressed when the console was built. */
  readonly gzip: Buffer | null;
  readonly etag: string;
}

const FOLDER = fileURLToPath(new URL('pages/', import.meta.url));
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** The built files of the console by their names; empty where it was not built. They are read once. */
export async function readPages(folder = FOLDER): Promise<ReadonlyMap<string, Page>> {
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  const pages = new Map<string, Page>();
  for (const name of names) {
    const type = TYPES[extname(name)];
    if (type === undefined) continue;
    const bytes = await readFile(join(folder, name));
    const gzip = await readFile(join(folder, `${name}.gz`)).catch(() => null);
    const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`;
    pages.set(name, { type, bytes, gzip, etag });
  }
  return pages;
}
