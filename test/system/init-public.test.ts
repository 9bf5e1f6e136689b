import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import type { Configuration } from '../../src/config/configuration.ts';
import { loadConfiguration } from '../../src/config/load.ts';
import { createRouteTable } from '../../src/proxy/route-table.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { PUBLISHED, type PublishedName } from '../public-documents.ts';
import { CALLED, initChecked, withProposedProbes } from './init-checked.ts';

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
  const { configuration } = await loadConfiguration(join(folder, 'gateway.yaml'));
  // Whatever servers its operations name: nothing goes elsewhere.
  expect(configuration.upstreams.map(({ url }) => url)).toEqual(['http://127.0.0.1:9']);
  if (name === 'github.json' || name === 'kubernetes.json') {
    const probed = (await withProposedProbes(folder)).map(({ name }) => name);
    console.log(`${name}: ${probed.length} probes are proposed`);
    expect(probed.length).toBeGreaterThan(30);
  }
  if (name === 'kubernetes.json') expect(configuration.tools.length).toBe(839);
  if (name !== 'github.json') return;
  const match = matcher(configuration);
  expect(match('GET', '/repos/o/r/issues/7/comments')).toMatch(/issues_list_comments$/);
  expect(match('GET', '/repos/o/r/issues/comments/7')).toMatch(/issues_get_comment$/);
  expect(match('PATCH', '/repos/o/r/pulls/comments/7')).toMatch(/pulls_update_review_comment$/);
  // Two fit the same requests, and no param of theirs is a number.
  expect(configuration.tools.length).toBe(1221);
});

function matcher({ routes, tools }: Configuration): (method: string, path: string) => string | null {
  const prefix = routes[0]?.prefix ?? '';
  const table = createRouteTable(routes, createCatalog(tools));
  return (method, path) => {
    const located = table.locate(`${prefix}${path}`, { kind: 'own' });
    const found = located === null ? null : table.match(located.route, method, path.slice(1).split('/'));
    return found?.kind === 'rule' ? found.tool.name : null;
  };
}
