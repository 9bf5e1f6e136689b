import { generateKeyPairSync } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfiguration } from '../../src/config/load.ts';
import { createReading } from '../../src/diagnostics/file-reading.ts';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import { makeCa } from '../upstream/certificates.ts';

const DAY_MS = 86_400_000;
const folder = mkdtempSync(join(tmpdir(), 'svc-tls-config-'));
afterAll(() => rmSync(folder, { recursive: true }));

const at = (days: number): Date => new Date(Date.now() + days * DAY_MS);
const put = (name: string, text: string): void => writeFileSync(join(folder, name), text);

beforeAll(() => {
  const ca = makeCa('root');
  const one = ca.issue('one');
  const old = ca.issue('old', { from: at(-9), to: at(-2) });
  const early = ca.issue('early', { from: at(2), to: at(9) });
  put('root.pem', ca.cert);
  put('second.pem', makeCa('second').cert);
  put('most.pem', ca.cert.repeat(32));
  put('many.pem', ca.cert.repeat(33));
  put('torn.pem', `${ca.cert}${ca.cert.replace(/MI/, '!!')}${ca.cert}`);
  put('halved.pem', ca.cert.slice(0, 200));
  put('text.pem', 'no certificate');
  for (const [name, pair] of Object.entries({ one, old, early, two: ca.issue('two') })) {
    put(`${name}.pem`, pair.cert);
    put(`${name}.key`, pair.key);
  }
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  put('rsa.key', String(privateKey.export({ type: 'pkcs8', format: 'pem' })));
  put('locked.pem', ca.cert);
  mkdirSync(join(folder, 'folder.pem'));
});

/** What is said of an upstream with this `tls`: `field code message`. `F` stands for the folder of the files. */
async function load(tls: string, url = 'https://api.internal', reading = createReading()) {
  const path = join(folder, 'gateway.yaml');
  const yaml = `upstreams:\n  - id: api\n    url: "${url}"\n    tls: ${tls.replaceAll('F/', `${folder}/`)}\n`;
  writeFileSync(path, yaml);
  const said = (findings: InvalidFiles['findings']) =>
    findings.map(({ severity, code, message, at: place }) => {
      const where = yaml.split('\n')[(place?.line ?? 0) - 1]?.slice((place?.column ?? 0) - 1) ?? '';
      return `${severity} ${code} | ${message.replaceAll(`${folder}/`, 'F/')} | ${where.replaceAll(`${folder}/`, 'F/')}`;
    });
  try {
    const { configuration, files, warnings } = await loadConfiguration(path, { environment: {} }, reading);
    return { tls: configuration.upstreams[0]?.tls, digest: configuration.digest, files, said: said(warnings) };
  } catch (error) {
    if (!(error instanceof InvalidFiles)) throw error;
    return { tls: undefined, digest: '', files: [], said: said(error.findings) };
  }
}

test('all of it is read, and every file is watched', async () => {
  const { tls, files, said } = await load(
    '{ ca: [F/root.pem, F/second.pem], cert: F/one.pem, key: F/one.key, server_name: DB.internal, min_version: TLSv1.3 }',
  );
  expect(said).toEqual([]);
  expect(tls).toMatchObject({ serverName: 'db.internal', minVersion: 'TLSv1.3' });
  expect(tls?.ca?.match(/BEGIN CERTIFICATE/g)).toHaveLength(2);
  expect(tls?.client?.key).toContain('PRIVATE KEY');
  const names = ['gateway.yaml', 'root.pem', 'second.pem', 'one.pem', 'one.key'];
  expect(files).toEqual(names.map((name) => join(folder, name)));
});

test('the certificates behind that of a client, or of the gateway, are shown with it', async () => {
  const [own, intermediate] = [readFileSync(join(folder, 'one.pem'), 'utf8'), makeCa('intermediate').cert];
  put('chain.pem', own + intermediate);
  const pair = '{ cert: F/chain.pem, key: F/one.key }';
  expect((await load(pair)).tls?.client?.cert).toBe(own + intermediate);
  const path = join(folder, 'server.yaml');
  writeFileSync(path, `server: { tls: ${pair.replaceAll('F/', `${folder}/`)} }\n`);
  expect((await loadConfiguration(path)).configuration.server.tls?.cert).toBe(own + intermediate);
});

test('what docs/upstreams/tls.md shows', async () => {
  const page = readFileSync('docs/upstreams/tls.md', 'utf8');
  const shown = /```yaml\n([^]*?)```/.exec(page)?.[1] ?? '';
  const files = { 'tls/internal-ca.pem': 'root.pem', 'tls/gateway.pem': 'one.pem', 'tls/gateway.key': 'one.key' };
  const yaml = Object.entries(files).reduce((text, [name, here]) => text.replace(name, join(folder, here)), shown);
  const path = join(folder, 'page.yaml');
  writeFileSync(path, yaml);
  const { configuration, warnings } = await loadConfiguration(path);
  expect(warnings).toEqual([]);
  expect(configuration.upstreams[0]?.tls).toMatchObject({ serverName: 'ledger.internal', minVersion: 'TLSv1.3' });
});

test('nothing, one CA, defaults; a file with other content is another configuration', async () => {
  const { tls, digest } = await load('{ ca: F/root.pem }');
  expect(tls).toMatchObject({ client: null, serverName: null, minVersion: 'TLSv1.2' });
  expect((await load('{ ca: F/most.pem }')).tls?.ca?.match(/BEGIN CERTIFICATE/g)).toHaveLength(32);
  expect((await load('{}')).tls).toEqual({ ca: null, client: null, serverName: null, minVersion: 'TLSv1.2' });
  put('root.pem', makeCa('another root').cert);
  expect((await load('{ ca: F/root.pem }')).digest).not.toBe(digest);
});

describe('what is wrong is said, with the file', () => {
  test.each([
    ['{ ca: F/none.pem }', 'error file_missing | There is no file F/none.pem | F/none.pem }'],
    ['{ ca: [F/root.pem, F/none.pem] }', 'error file_missing | There is no file F/none.pem | F/none.pem] }'],
    ['{ ca: F/folder.pem }', 'error file_missing | F/folder.pem is a folder | F/folder.pem }'],
    ['{ ca: F/text.pem }', 'error file_missing | F/text.pem holds no PEM | F/text.pem }'],
    ['{ ca: F/one.key }', 'error bad_certificate | F/one.key holds no certificate | F/one.key }'],
    ['{ ca: F/halved.pem }', 'error bad_certificate | F/halved.pem holds no certificate | F/halved.pem }'],
    ['{ ca: F/torn.pem }', 'error bad_certificate | Certificate 2 in F/torn.pem cannot be used | F/torn.pem }'],
    ['{ ca: F/many.pem }', 'error too_many_cas | tls.ca names 33 certificates; 32 is the most | F/many.pem }'],
    ['{ ca: F/old.pem }', 'warning certificate_expired | The certificate in F/old.pem has expired | F/old.pem }'],
    [
      '{ cert: F/one.pem, key: F/two.key }',
      'error key_differs | F/two.key is not the key of the certificate in F/one.pem | F/two.key }',
    ],
    [
      '{ cert: F/one.pem, key: F/rsa.key }',
      'error key_differs | F/rsa.key is not the key of the certificate in F/one.pem | F/rsa.key }',
    ],
    [
      '{ cert: F/one.key, key: F/one.key }',
      'error bad_certificate | F/one.key holds no certificate that can be used | F/one.key, key: F/one.key }',
    ],
    [
      '{ cert: F/old.pem, key: F/old.key }',
      'warning certificate_expired | The certificate in F/old.pem has expired | F/old.pem, key: F/old.key }',
    ],
    [
      '{ cert: F/early.pem, key: F/early.key }',
      'warning certificate_not_yet_valid | The certificate in F/early.pem is not valid yet | F/early.pem, key: F/early.key }',
    ],
    ['{ cert: F/one.pem }', "error missing_field | tls has 'cert' and no 'key' | F/one.pem }"],
    ['{ key: F/one.key }', "error missing_field | tls has 'key' and no 'cert' | F/one.key }"],
    ['{ server_name: 10.0.0.1 }', 'error bad_server_name | An address cannot be a server_name | 10.0.0.1 }'],
    ['{ verify: false }', "error unknown_field | 'verify' is not a field of tls of an upstream | verify: false }"],
    [
      '{ min_version: TLSv1.1 }',
      "error wrong_value | upstreams[0].tls.min_version has to be one of TLSv1.2, TLSv1.3, not 'TLSv1.1' | TLSv1.1 }",
    ],
  ])('%s', async (tls, finding) => {
    expect((await load(tls)).said).toEqual([finding]);
  });

  test('a file that this user may not read', async () => {
    const files = createReading();
    // Whoever runs the tests may be allowed to read everything.
    const bytes: typeof files.bytes = (path) =>
      path.endsWith('locked.pem')
        ? Promise.reject(Object.assign(new Error('denied'), { code: 'EACCES' }))
        : files.bytes(path);
    expect((await load('{ ca: F/locked.pem }', 'https://api.internal', { ...files, bytes })).said).toEqual([
      'error file_missing | F/locked.pem may not be read by this user | F/locked.pem }',
    ]);
  });

  test('an upstream that is spoken to in clear', async () => {
    expect((await load('{ ca: F/root.pem }', 'http://api.internal')).said).toEqual([
      expect.stringContaining('error tls_without_https | tls of an upstream needs an https URL'),
    ]);
  });
});
