import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterAll, afterEach, expect, test } from 'vitest';
import { loadConfiguration } from '../../src/config/load.ts';
import { type PublishedName, publishedDocument } from '../public-documents.ts';
import { type MockOperation, nameOf, type SampleCall, startMock } from './openapi-mock.ts';

const run = promisify(execFile);
const launcher = join(process.cwd(), 'bin', 'svc.mjs');
const folders: string[] = [];
const stops: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Starts the gateway that `svc init` wrote. */
async function start(folder: string): Promise<string> {
  const child = spawn(process.execPath, [launcher, 'start', '--config', 'gateway.yaml', '--port', '0'], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  stops.push(async () => {
    child.kill('SIGTERM');
    if (child.exitCode === null) await once(child, 'exit');
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const said: { readonly event?: string; readonly url?: string } = JSON.parse(line);
    if (said.event === 'ready' && said.url !== undefined) return said.url;
  }
  throw new Error('the gateway ended before it was ready');
}

/** A path with its params without names: tools may call them otherwise than the document. */
function shapeOf(method: string, path: string): string {
  return `${method} ${path
    .split('/')
    .map((segment) => (segment.includes('{') ? '{}' : segment))
    .join('/')}`;
}

/** Documents, with how many operations have bodies that the mock finds no example of: schemas that exclude one another. */
const CALLED: readonly (readonly [name: PublishedName, unsampled: number])[] = [
  ['stripe.json', 0],
  ['twilio.json', 0],
  ['slack.json', 0],
  ['asana.json', 0],
  ['digitalocean.json', 11],
];

test.each(CALLED)(
  '%s: every tool is called once through the proxy, and what arrives is as the document wants it',
  async (name, most) => {
    const document = publishedDocument(name);
    const mock = await startMock(readFileSync(document, 'utf8'));
    stops.push(mock.close);
    const folder = mkdtempSync(join(tmpdir(), 'svc-init-'));
    folders.push(folder);
    const svc = (...words: readonly string[]) => run(process.execPath, [launcher, ...words], { cwd: folder });
    await svc('init', '--openapi', document, '--upstream', mock.url, '--name', 'it', '--yes');
    const { configuration } = await loadConfiguration(join(folder, 'gateway.yaml'));
    const tools = new Map(
      configuration.tools
        .filter(({ upstream }) => upstream === 'it')
        .map((tool) => [shapeOf(tool.request.method, tool.request.path), tool]),
    );
    const url = await start(folder);
    const made = await svc(
      'keys',
      'create',
      '--config',
      'gateway.yaml',
      '--kind',
      'agent',
      '--workspace',
      'default',
      '--agent',
      'agent',
      '--user',
      'operator',
      '--json',
    );
    const { key }: { readonly key: string } = JSON.parse(made.stdout);

    // Of two operations that the same requests fit, one is a tool.
    const byShape = new Map(mock.operations.map((operation) => [shapeOf(operation.method, operation.path), operation]));
    const declared = [...byShape].filter(([shape]) => tools.has(shape)).map(([, operation]) => operation);
    expect(declared).toHaveLength(tools.size);
    const unsampled: MockOperation[] = [];
    const refused: string[] = [];
    const called: SampleCall[] = [];
    for (const operation of declared) {
      const sample = mock.sample(operation);
      if (sample === null) unsampled.push(operation);
      else called.push(sample);
    }
    expect(unsampled.map(nameOf).slice(most)).toEqual([]);
    for (const { operation, path, headers, body } of called) {
      const isForm = operation.media?.startsWith('application/x-www-form-urlencoded') === true;
      const answer = await fetch(`${url}/it${path}`, {
        method: operation.method,
        headers: {
          ...headers,
          'x-api-key': key,
          ...(body !== null && { 'content-type': isForm ? 'application/x-www-form-urlencoded' : 'application/json' }),
        },
        ...(body !== null && { body: isForm ? formOf(body) : JSON.stringify(body) }),
      });
      const text = await answer.text();
      if (answer.status !== 200)
        refused.push(`${nameOf(operation)} → ${path} ${JSON.stringify(body)}: ${answer.status} ${text.slice(0, 400)}`);
    }
    expect(refused).toEqual([]);
    expect(mock.came).toEqual(called.map(({ operation }) => ({ operation: nameOf(operation), fault: null })));
  },
);

/** A form as Stripe writes it: `a[b]=1`, `a[0]=1`. */
function formOf(body: unknown, at = ''): string {
  if (typeof body !== 'object' || body === null) return `${at}=${encodeURIComponent(String(body))}`;
  return Object.entries(body)
    .map(([name, value]) =>
      formOf(value, at === '' ? encodeURIComponent(name) : `${at}%5B${encodeURIComponent(name)}%5D`),
    )
    .filter((pair) => pair !== '')
    .join('&');
}
