import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, expect, test } from 'vitest';
import { loadConfiguration } from '../../src/config/load.ts';
import { isJsonObject, type Json } from '../../src/json/value.ts';
import { publishedDocument } from '../public-documents.ts';
import { makeKey } from '../../src/identity/key-format.ts';
import { send } from './gateway.ts';
import { CALLED, initChecked } from './init-checked.ts';
import { formOf, type MockOperation, nameOf, type SampleCall, startMock } from './openapi-mock.ts';
import { httpCall } from '../config/http-call.ts';
import { DEEP } from '../deep.ts';

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
async function start(folder: string): Promise<{ readonly url: string; readonly administrativeKey: string }> {
  const { key } = makeKey('administrative');
  const keyFile = join(folder, 'admin.key');
  writeFileSync(keyFile, key, { mode: 0o600 });
  const child = spawn(process.execPath, [launcher, 'start', '--config', 'gateway.yaml', '--port', '0'], {
    cwd: folder,
    env: { ...process.env, SVC_BOOTSTRAP_ADMIN_KEY_FILE: keyFile },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  stops.push(async () => {
    child.kill('SIGTERM');
    if (child.exitCode === null) await once(child, 'exit');
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const said: { readonly event?: string; readonly url?: string } = JSON.parse(line);
    if (said.event === 'ready' && said.url !== undefined) return { url: said.url, administrativeKey: key };
  }
  throw new Error('the gateway ended before it was ready');
}

/** Calls that are under way at once. */
const AT_ONCE = 4;

function byOperation(one: { readonly operation: string }, other: { readonly operation: string }): number {
  return one.operation < other.operation ? -1 : Number(one.operation > other.operation);
}

/** A path with its params without names: tools may call them otherwise than the document. */
function shapeOf(method: string, path: string): string {
  return `${method} ${path
    .split('/')
    .map((segment) => (segment.includes('{') ? '{}' : segment))
    .join('/')}`;
}

/** Of a document, one tool in so many is called. */
const STRIDE = DEEP ? 1 : 8;

/** Forms with brackets, and JSON. The others take minutes, and find the same. */
const DOCUMENTS = CALLED.filter(([name]) => DEEP || ['stripe.json', 'asana.json'].includes(name));

test.each(DOCUMENTS)(
  `%s: ${STRIDE === 1 ? 'every tool' : `one tool in ${STRIDE}`} is called once through the proxy, and what arrives is as the document wants it`,
  async (name, most) => {
    const document = publishedDocument(name);
    const mock = await startMock(readFileSync(document, 'utf8'));
    stops.push(mock.close);
    const folder = mkdtempSync(join(tmpdir(), 'svc-init-'));
    folders.push(folder);
    await initChecked(name, folder, '--upstream', mock.url, '--name', 'it');
    const [gateway, { configuration }] = await Promise.all([
      start(folder),
      loadConfiguration(join(folder, 'gateway.yaml')),
    ]);
    const tools = new Map(
      configuration.tools
        .filter(({ upstream }) => upstream === 'it')
        .map((tool) => [shapeOf(httpCall(tool).request.method, httpCall(tool).request.path), tool]),
    );
    const { url, administrativeKey } = gateway;
    const made = await send(url, administrativeKey, 'POST', '/v1/beta/users/operator/keys', {
      name: 'calls',
      kind: 'agent',
      agent_id: 'agent',
      workspace: 'default',
    });
    expect(made.status).toBe(201);
    const key: string = made.body.key;

    // Of two operations that the same requests fit, one is a tool.
    const byShape = new Map(mock.operations.map((operation) => [shapeOf(operation.method, operation.path), operation]));
    const declared = [...byShape].filter(([shape]) => tools.has(shape)).map(([, operation]) => operation);
    expect(declared).toHaveLength(tools.size);
    const unsampled: MockOperation[] = [];
    const refused: string[] = [];
    const called: SampleCall[] = [];
    for (const operation of declared.filter((_, place) => place % STRIDE === 0)) {
      const sample = mock.sample(operation);
      if (sample === null) unsampled.push(operation);
      else called.push(sample);
    }
    expect(unsampled.map(nameOf).slice(most)).toEqual([]);
    const call = async ({ operation, path, headers, body }: SampleCall): Promise<void> => {
      const answer = await fetch(`${url}/it${path}`, {
        method: operation.method,
        headers: {
          ...headers,
          'x-api-key': key,
          ...(body !== null && formOf(operation) === null && { 'content-type': 'application/json' }),
        },
        ...(body !== null && { body: bodyOf(operation, body) }),
      });
      const text = await answer.text();
      if (answer.status !== 200)
        refused.push(`${nameOf(operation)} → ${path} ${JSON.stringify(body)}: ${answer.status} ${text.slice(0, 400)}`);
    };
    // Some at once: while the gateway has one, the mock checks another.
    const waiting = called.values();
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        for (const one of waiting) await call(one);
      }),
    );
    expect(refused).toEqual([]);
    const sound = called.map(({ operation }) => ({ operation: nameOf(operation), fault: null }));
    expect(mock.came.toSorted(byOperation)).toEqual(sound.toSorted(byOperation));
  },
);

/** A body as client libraries of the operation write it: `a[b]=1`, `a[0]=1` in a form, a file for bytes. */
function bodyOf(operation: MockOperation, body: Json): string | URLSearchParams | FormData {
  switch (formOf(operation)) {
    case null:
      return JSON.stringify(body);
    case 'multipart/form-data': {
      const form = new FormData();
      const properties = operation.bodySchema?.['properties'];
      for (const [name, value] of fieldsOf(body)) {
        const property = isJsonObject(properties) ? properties[name] : undefined;
        if (isJsonObject(property) && property['format'] === 'binary')
          form.append(name, new Blob([value]), `${name}.txt`);
        else form.append(name, value);
      }
      return form;
    }
    default:
      return new URLSearchParams([...fieldsOf(body)]);
  }
}

function fieldsOf(body: Json, at = ''): readonly [name: string, value: string][] {
  if (typeof body !== 'object' || body === null) return [[at, String(body)]];
  return Object.entries(body).flatMap(([name, value]) => fieldsOf(value, at === '' ? name : `${at}[${name}]`));
}
