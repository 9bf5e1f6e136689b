import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkConfiguration, loadConfiguration } from '../../src/config/load.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-routes-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** A file whose one route, or routes, say this. */
function written(...routes: readonly string[]): string {
  const file = join(folder, 'gateway.yaml');
  writeFileSync(
    file,
    [
      'upstreams: [{ id: a, url: "http://127.0.0.1:1" }]',
      'routes:',
      ...routes.map((route) => `  - { upstream: a, ${route} }`),
    ].join('\n'),
  );
  return file;
}

async function loaded(route: string) {
  const { configuration } = await loadConfiguration(written(`prefix: /a, ${route}`));
  const [first] = configuration.routes;
  if (first === undefined) throw new Error('there is no route');
  return first;
}

async function errors(...routes: readonly string[]): Promise<readonly string[]> {
  const { findings } = await checkConfiguration(written(...routes));
  return findings.filter(({ severity }) => severity === 'error').map(({ code }) => code);
}

describe('a route', () => {
  test('refuses what no rule names, and answers a call that waits with 202, unless it says otherwise', async () => {
    expect(await loaded('rules: []')).toMatchObject({ undeclared: 'deny', pendingStatus: 202, finalStatus: null });
    const said = await loaded('undeclared: passthrough_reads, pending_status: 409');
    expect(said).toMatchObject({ undeclared: 'passthrough_reads', pendingStatus: 409 });
  });

  test('for the libraries of GitHub, which repeat final answers by their status, answers these with 422, unless it says otherwise', async () => {
    for (const [more, finalStatus] of [
      ['error_format: github', 422],
      ['error_format: github, final_status: 409', 409],
      ['error_format: stripe', null],
      ['final_status: 422', 422],
    ] as const)
      expect((await loaded(more)).finalStatus, more).toBe(finalStatus);
  });

  test('for the libraries of Slack, which send their token where a file goes, knows that address, beside those that it names', async () => {
    expect((await loaded('error_format: slack')).links).toEqual([['upload_url']]);
    expect((await loaded('error_format: slack, links: [next]')).links).toEqual([['upload_url'], ['next']]);
    expect((await loaded('error_format: github, links: [next]')).links).toEqual([['next']]);
  });

  test('names fields with addresses by their path: * for any member or element, and a dot in a name behind a backslash', async () => {
    const { links } = await loaded(String.raw`links: [next, paging.next, "_links.*.href", '@odata\.nextLink']`);
    expect(links).toEqual([['next'], ['paging', 'next'], ['_links', '*', 'href'], ['@odata.nextLink']]);
  });

  test('takes keys where it says, and nowhere else', async () => {
    expect((await loaded('rules: []')).keys).toEqual({
      headers: ['x-api-key'],
      schemes: ['bearer'],
      query: ['api_key'],
    });
    const said = await loaded('keys: [api-key, token, basic, "header:X-Own", "query:k"]');
    expect(said.keys).toEqual({ headers: ['api-key', 'x-own'], schemes: ['token', 'basic'], query: ['k'] });
  });

  test('shares no address with another, whichever stands first', async () => {
    for (const [one, other] of [
      ['/a', '/a/b'],
      ['/a/b', '/a'],
      ['/a', '/a'],
    ])
      expect(await errors(`prefix: ${one}`, `prefix: ${other}`), `${one} ${other}`).toEqual(['overlapping_prefixes']);
    expect(await errors('prefix: /a', 'prefix: /ab')).toEqual([]);
    // By a host name or a listener of its own it is apart.
    expect(await errors('prefix: /a', 'prefix: /a, host: a.example', 'prefix: /, listen: "127.0.0.1:0"')).toEqual([]);
  });
});
