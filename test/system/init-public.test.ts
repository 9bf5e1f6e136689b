import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, test } from 'vitest';
import { PUBLISHED, type PublishedName } from '../public-documents.ts';
import { CALLED, initChecked } from './init-checked.ts';

const folders: string[] = [];

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Those whose tools are called are checked there. */
const called: ReadonlySet<PublishedName> = new Set(CALLED.map(([name]) => name));
const NAMES = Object.keys(PUBLISHED).filter((name): name is PublishedName => name in PUBLISHED);
const OTHERS = NAMES.filter((name) => !called.has(name));

test.each(OTHERS)('%s becomes a configuration that loads, in under 20 s and 1 GB', async (name) => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-init-'));
  folders.push(folder);
  // Some name no server.
  await initChecked(name, folder, '--upstream', 'http://127.0.0.1:9');
});
