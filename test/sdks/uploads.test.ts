import { createReadStream } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebClient } from '@slack/web-api';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { makeApiKey, send, startGateway, type TestGateway } from '../system/gateway.ts';
import { type FakeApi, type Seen, startFakeApi } from './fake-api.ts';

let api: FakeApi;
let gateway: TestGateway;
let key: string;
let reader: string;
let folder: string;

function answer({ url }: Seen): { status?: number; headers?: Record<string, string>; json: unknown } {
  if (url === '/v1/files') return { json: { id: 'file-1', object: 'file', purpose: 'fine-tune' } };
  if (url === '/v1/images/edits') return { json: { created: 1, data: [{ b64_json: 'AA==' }] } };
  if (url === '/v1/audio/transcriptions') return { json: { text: 'hello' } };
  if (url === '/api/files.upload') return { json: { ok: true, file: { id: 'F1' } } };
  return { status: 404, json: { error: { message: 'no such path' } } };
}

const config = (url: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: api, url: "${url}", timeout: 10s, credentials: { header: authorization, value: "Bearer sk_upstream" } } ]
tools:
  - { name: openai.upload, upstream: api, kind: write, request: { method: POST, path: /v1/files, body: "*", body_type: multipart } }
  - { name: openai.edit, upstream: api, kind: write, request: { method: POST, path: /v1/images/edits, body: "*", body_type: multipart, form_lists: brackets } }
  - { name: openai.transcribe, upstream: api, kind: write, request: { method: POST, path: /v1/audio/transcriptions, body: "*", body_type: multipart, form_lists: brackets } }
  - { name: slack.upload, upstream: api, kind: write, request: { method: POST, path: /api/files.upload, body: "*", body_type: multipart } }
routes:
  - { upstream: api, prefix: /openai, error_format: openai, pending_status: 409, rules: [ { match: "POST /v1/files", tool: openai.upload, idempotency: derive }, { match: "POST /v1/images/edits", tool: openai.edit, idempotency: derive }, { match: "POST /v1/audio/transcriptions", tool: openai.transcribe, idempotency: derive } ] }
  - { upstream: api, prefix: /slack, pending_status: 409, rules: [ { match: "POST /api/files.upload", tool: slack.upload, idempotency: none } ] }
`;
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: uploads
owner: team
rules:
  - { id: uploads, effect: allow, match: { tools: [openai.upload, openai.edit, openai.transcribe, slack.upload] } }
  - { id: no-secrets, effect: deny, match: { tools: [openai.upload] }, when: { params.file.filename: secret.txt }, reason: "Not this file" }
  - { id: no-channel, effect: deny, match: { tools: [slack.upload] }, when: { params.channels: C_SECRET }, reason: "Not this channel" }
`;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-sdk-'));
  api = await startFakeApi(answer);
  gateway = await startGateway({ config: config(api.url), policies: { 'uploads.yaml': POLICY } });
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
  reader = await makeApiKey(gateway, 'olga', { kind: 'account', workspace: 'demo' });
});
afterAll(async () => {
  await gateway.dispose();
  await api.close();
  await rm(folder, { recursive: true, force: true });
});
beforeEach(() => {
  api.seen.length = 0;
});

/** What the fake got, read by another parser than the gateway's. */
async function arrived(): Promise<Record<string, unknown>> {
  const [seen] = api.seen;
  const form = await new Response(new Uint8Array(seen?.body ?? []), {
    headers: { 'content-type': seen?.headers['content-type'] ?? '' },
  }).formData();
  const members: Record<string, unknown> = {};
  for (const [name, value] of form.entries())
    members[name] = value instanceof File ? [value.name, value.type, await value.text()] : value;
  return members;
}

async function thrown(call: Promise<unknown>): Promise<unknown> {
  try {
    await call;
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

const openai = (): OpenAI => new OpenAI({ apiKey: key, baseURL: `${gateway.url}/openai/v1`, maxRetries: 2 });

// docs/upstreams/openai.md: "A file passes with its name, type, length and SHA-256 before policy, as `params.file`."
it('openai: files.create uploads what it was given, from memory and from disk, and policy saw it', async () => {
  const file = await toFile(Buffer.from('{"a":1}\n'), 'train.jsonl', { type: 'application/jsonl' });
  const made = await openai().files.create({
    file,
    purpose: 'fine-tune',
    expires_after: { anchor: 'created_at', seconds: 3600 },
  });
  expect(made.id).toBe('file-1');
  expect(await arrived()).toEqual({
    file: ['train.jsonl', 'application/jsonl', '{"a":1}\n'],
    purpose: 'fine-tune',
    'expires_after[anchor]': 'created_at',
    'expires_after[seconds]': '3600',
  });
  expect(api.seen[0]?.headers.authorization).toBe('Bearer sk_upstream');
  const { body } = await send(gateway.url, reader, 'GET', '/v1/workspaces/demo/effects?params=true');
  expect(body.effects[0].params.file).toMatchObject({ filename: 'train.jsonl', bytes: 8 });
  api.seen.length = 0;
  const path = join(folder, 'large.txt');
  const text = 'line\n'.repeat(100_000);
  await writeFile(path, text);
  await openai().files.create({ file: createReadStream(path), purpose: 'assistants' });
  expect((await arrived())['file']).toMatchObject(['large.txt', expect.anything(), text]);
});

it('openai: lists of files and of texts', async () => {
  const image = (name: string) => toFile(Buffer.from(name), name, { type: 'image/png' });
  await openai().images.edit({ image: [await image('a.png'), await image('b.png')], prompt: 'a & b', n: 2 });
  expect(api.seen).toHaveLength(1);
  expect(api.seen[0]?.body.toString().match(/name="image\[\]"; filename="[ab]\.png"/g)).toHaveLength(2);
  api.seen.length = 0;
  const told = await openai().audio.transcriptions.create({
    file: await toFile(Buffer.from('RIFF'), 'a.wav', { type: 'audio/wav' }),
    model: 'whisper-1',
    response_format: 'verbose_json',
    timestamp_granularities: ['word', 'segment'],
  });
  expect(told.text).toBe('hello');
  expect(api.seen[0]?.body.toString().match(/name="timestamp_granularities\[\]"/g)).toHaveLength(2);
});

it('openai: a denial is its own error, once, and nothing is sent', async () => {
  const file = await toFile(Buffer.from('x'), 'secret.txt');
  const error = await thrown(openai().files.create({ file, purpose: 'assistants' }));
  expect(error).toBeInstanceOf(OpenAI.PermissionDeniedError);
  expect(error).toMatchObject({ code: 'rule_denied', message: expect.stringContaining('Not this file') });
  expect(api.seen).toEqual([]);
});

it('@slack/web-api: an upload passes as the multipart that it is, and a denial is an error', async () => {
  const client = new WebClient(key, { slackApiUrl: `${gateway.url}/slack/api/`, retryConfig: { retries: 0 } });
  const answered = await client.apiCall('files.upload', {
    channels: 'C1',
    title: 'a & "b"',
    file: Buffer.from('bytes'),
  });
  expect(answered.ok).toBe(true);
  expect(await arrived()).toEqual({
    channels: 'C1',
    title: 'a & "b"',
    file: ['Untitled', 'application/octet-stream', 'bytes'],
  });
  api.seen.length = 0;
  const error = await thrown(client.apiCall('files.upload', { channels: 'C_SECRET', file: Buffer.from('bytes') }));
  expect(error).toMatchObject({ code: 'slack_webapi_http_error', statusCode: 403 });
  expect(api.seen).toEqual([]);
});
