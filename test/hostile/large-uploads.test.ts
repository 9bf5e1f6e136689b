import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { verifyReport } from '../../src/receipts/verify-report.ts';
import { shortest } from '../shortest.ts';
import { freshKey, worldFiles } from '../system/world.ts';
import { startWatchedWorld, type Watched, type WatchedWorld } from './watched-world.ts';

const MIB = 1024 * 1024;

/** 100 MiB. */
function* pieces(): Generator<Buffer> {
  for (let index = 0; index < 100; index += 1) yield Buffer.alloc(MIB, index);
}

/** What the upstream got: it keeps no more than digests. */
interface Got {
  readonly length: number;
  /** Of the whole request, as receipts have it. */
  readonly sent: string;
}

let sink: Server;
let got: Got | null = null;
let watched: WatchedWorld;
let trust = '';

beforeAll(async () => {
  sink = createServer((request, response) => {
    if (request.method === 'GET') {
      response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': 100 * MIB });
      Readable.from(pieces()).pipe(response);
      return;
    }
    const hash = createHash('sha256').update(`${request.method} ${request.url}\n`);
    let length = 0;
    request.on('data', (chunk: Buffer) => {
      length += chunk.byteLength;
      hash.update(chunk);
    });
    request.on('end', () => {
      got = { length, sent: hash.digest('base64url') };
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"ok":true}');
    });
  });
  sink.listen(0, '127.0.0.1');
  await once(sink, 'listening');
  const { port } = sink.address() as AddressInfo;
  watched = await startWatchedWorld((url) => {
    const { config, policies } = worldFiles(url);
    return {
      config: config
        .replace('upstreams: [', `upstreams: [ { id: sink, url: "http://127.0.0.1:${port}", timeout: 60s },`)
        .replace(
          'tools:\n',
          'tools:\n  - { name: files.create, upstream: sink, kind: write, request: { method: POST, path: /v1/files, body: "*", body_type: multipart } }\n  - { name: blobs.put, upstream: sink, kind: write, request: { method: PUT, path: /v1/blob, body_as: body, body_type: opaque } }\n  - { name: blobs.get, upstream: sink, kind: read, request: { method: GET, path: /v1/blob } }\n',
        )
        .replace(
          'routes:\n',
          'routes:\n  - { upstream: sink, prefix: /sink, rules: [ { match: "POST /v1/files", tool: files.create }, { match: "PUT /v1/blob", tool: blobs.put }, { match: "GET /v1/blob", tool: blobs.get } ] }\n',
        ),
      policies: {
        'world.yaml': `${String(policies['world.yaml'])}  - { id: files, effect: allow, match: { tools: [files.create, blobs.put, blobs.get] } }\n`,
      },
    };
  });
  trust = await (await fetch(`${watched.world.gateway.url}/.well-known/jwks.json`)).text();
});
afterAll(async () => {
  await watched.close();
  sink.closeAllConnections();
  sink.close();
});

const HEAD =
  '--b\r\nContent-Disposition: form-data; name="file"; filename="large.bin"\r\nContent-Type: video/mp4\r\n\r\n';
const END = '\r\n--b--\r\n';

/** Sends so many MiB, a piece at a time. */
async function upload(
  mib: number,
  kind: 'multipart' | 'opaque',
): Promise<{ readonly status: number; readonly effectId: string; readonly sha256: string }> {
  const isMultipart = kind === 'multipart';
  const outgoing = httpRequest(`${watched.world.gateway.url}/sink/v1/${isMultipart ? 'files' : 'blob'}`, {
    method: isMultipart ? 'POST' : 'PUT',
    headers: {
      'x-api-key': watched.world.keys.bot,
      'idempotency-key': freshKey(),
      'content-type': isMultipart ? 'multipart/form-data; boundary=b' : 'video/mp4',
    },
  });
  const answered = once(outgoing, 'response');
  const hash = createHash('sha256');
  if (isMultipart) outgoing.write(HEAD);
  for (let index = 0; index < mib; index += 1) {
    const piece = Buffer.alloc(MIB, index);
    hash.update(piece);
    if (!outgoing.write(piece)) await once(outgoing, 'drain');
  }
  outgoing.end(isMultipart ? END : '');
  const [incoming] = await answered;
  incoming.resume();
  await once(incoming, 'end');
  return {
    status: incoming.statusCode,
    effectId: String(incoming.headers['svc-effect-id']),
    sha256: hash.digest('hex'),
  };
}

/** No more is left behind, bytes. */
const MOST_KEPT = 10 * MIB;

/** Bytes outside the heap go some time after what held them. What is kept stays, however often one looks. */
async function settledBelow(used: number): Promise<Watched> {
  let seen = await watched.settled();
  for (let time = 0; time < 10 && seen.used >= used; time += 1) seen = await watched.settled();
  return seen;
}

test.each(['multipart', 'opaque'] as const)(
  '100 MB of %s go through at constant memory, and the event loop is never held for 50 ms',
  async (kind) => {
    expect((await upload(10, kind)).status).toBe(200);
    let before = await watched.settled();
    let most = 0;
    const pass = async () => {
      let longest = 0;
      let isOver = false;
      const looking = (async () => {
        while (!isOver) {
          const seen = await watched.watched();
          most = Math.max(most, seen.rss);
          longest = Math.max(longest, seen.held);
        }
      })();
      const { status } = await upload(100, kind);
      isOver = true;
      await looking;
      expect(status).toBe(200);
      return longest;
    };
    let held = await shortest(50, pass);
    expect(got?.length).toBeGreaterThanOrEqual(100 * MIB);
    let after = await settledBelow(before.used + MOST_KEPT);
    // A thread that has come or gone since (one waits for the next files) is no growth.
    for (let time = 0; time < 3 && after.threads.length !== before.threads.length; time += 1) {
      before = after;
      held = Math.min(held, await pass());
      after = await settledBelow(before.used + MOST_KEPT);
    }
    expect(after.threads.length).toBe(before.threads.length);
    const figures = { grownMiB: (most - before.rss) / MIB, keptMiB: (after.used - before.used) / MIB, held };
    expect(figures.grownMiB, JSON.stringify(figures)).toBeLessThan(50);
    expect(figures.keptMiB, JSON.stringify(figures)).toBeLessThan(MOST_KEPT / MIB);
    expect(figures.held, JSON.stringify(figures)).toBeLessThan(50);
    expect(after.open).toBeLessThanOrEqual(before.open + 1);
  },
  120_000,
);

test('100 MB come back at constant memory', async () => {
  const download = async (): Promise<string> => {
    const answer = await fetch(`${watched.world.gateway.url}/sink/v1/blob`, {
      headers: { 'x-api-key': watched.world.keys.bot },
    });
    const hash = createHash('sha256');
    for await (const piece of answer.body ?? []) hash.update(piece);
    return hash.digest('hex');
  };
  const whole = createHash('sha256');
  for (const piece of pieces()) whole.update(piece);
  const sha256 = whole.digest('hex');
  expect(await download()).toBe(sha256);
  const before = await watched.settled();
  let most = 0;
  let isOver = false;
  const looking = (async () => {
    while (!isOver) most = Math.max(most, (await watched.watched()).rss);
  })();
  expect(await download()).toBe(sha256);
  isOver = true;
  await looking;
  expect((most - before.rss) / MIB).toBeLessThan(50);
}, 120_000);

test('a write of 50 MB is governed: its digest, and that of all that was sent, stand in the receipt', async () => {
  const { status, effectId, sha256 } = await upload(50, 'multipart');
  expect(status).toBe(200);
  const { body } = await watched.world.get(`/effects/${effectId}/receipt?disclosure=1`);
  expect(body.disclosure.values).toMatchObject({
    params: { file: { filename: 'large.bin', content_type: 'video/mp4', bytes: 50 * MIB, sha256 } },
    request: { sent_sha256: got?.sent },
  });
  const file = JSON.stringify(body);
  const report = verifyReport({ receipt: file, trust, disclosure: file });
  expect(report.exit, report.text).toBe(0);
});
