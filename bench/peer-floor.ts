import { createHmac, generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { Pool } from 'undici';
import { loadSodium } from '../src/sodium/load.ts';
import { openSecrets } from '../src/secrets/vault.ts';
import type { FloorWrite } from './floor-writer.ts';
import { commitField } from '../src/receipts/commitments.ts';
import { signBytesWith } from '../src/sodium/sign.ts';

/**
 * What no gateway can leave out that promises what this one does, and nothing else: a row that is durable before the
 * call is sent and one before it is answered, sealed params and answer, commitments, a signature. It knows no keys, no
 * policy, no schema, no budget, no limits; it checks nothing and forgives nothing. Its throughput is what is left of the
 * proxy's if all the rest were free. `peer-floor UPSTREAM`. Prints its address.
 */
const [upstream] = process.argv.slice(2);
if (upstream === undefined) throw new Error('usage: peer-floor UPSTREAM');

const folder = mkdtempSync(join(tmpdir(), 'svc-bench-floor-'));
process.once('SIGTERM', () => {
  rmSync(folder, { recursive: true, force: true });
  process.exit(0);
});
const secrets = await openSecrets({ masterFile: join(folder, 'master'), previous: [] });
const sign = signBytesWith(generateKeyPairSync('ed25519').privateKey, await loadSodium());
const pool = new Pool(upstream, { connections: 128 });
const writer = new Worker(new URL('./floor-writer.js', import.meta.url), { workerData: folder });
const fingerprintKey = secrets.fingerprintKey('bench');

const waiting = new Map<number, () => void>();
let queue: FloorWrite[] = [];
let count = 0;
writer.on('message', (numbers: readonly number[]) => {
  for (const number of numbers) {
    const done = waiting.get(number);
    waiting.delete(number);
    done?.();
  }
});

/** Resolves when the row is durable. All of one turn go to the thread together. */
function makeDurable(id: string, text: string): Promise<void> {
  return new Promise((resolve) => {
    count += 1;
    waiting.set(count, resolve);
    queue.push([count, id, text]);
    if (queue.length > 1) return;
    setImmediate(() => {
      writer.postMessage(queue);
      queue = [];
    });
  });
}

/** Stand for what a record and a receipt say beside what is sealed, committed to and signed; as long as they are. */
const FACTS = 'x'.repeat(1_200);
const CLAIMS = 'x'.repeat(800);
const HEAD = Buffer.from(JSON.stringify({ alg: 'EdDSA', kid: 'x'.repeat(43), typ: 'svc-receipt+jws' }));
const FIELDS = ['target', 'params', 'idem', 'request', 'response'] as const;
const SALTS = randomBytes(16 * 7);

async function govern(path: string, body: Buffer): Promise<readonly [number, string]> {
  const params = JSON.stringify(JSON.parse(body.toString('utf8')));
  const id = `eff_${randomBytes(16).toString('hex')}`;
  const fingerprint = createHmac('sha256', fingerprintKey).update(params).digest('base64url');
  const bound = { what: 'result', workspace: 'bench', of: id, part: 0 } as const;
  const row = `["${id}","${fingerprint}","${secrets.sealText(params, bound)}"]\n${FACTS}`;
  await makeDurable(id, row);
  const headers = { 'content-type': 'application/json', 'idempotency-key': id };
  const answer = await pool.request({ path, method: 'POST', headers, body });
  const text = await answer.body.text();
  const commitments = FIELDS.map((field) => commitField(SALTS, field, `${field}${params}`));
  const payload = JSON.stringify({ id, commitments, claims: CLAIMS });
  const signed = `${HEAD.toString('base64url')}.${Buffer.from(payload).toString('base64url')}`;
  const receipt = `${signed}.${sign(Buffer.from(signed, 'latin1')).toString('base64url')}`;
  await makeDurable(id, `${row}\n${payload}\n${receipt.slice(-86)}\n${secrets.sealText(text, bound)}`);
  return [answer.statusCode, JSON.stringify({ ...JSON.parse(text), svc: { id, receipt } })];
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece);
  const [status, text] = await govern(request.url?.replace(/^\/payments/, '') ?? '/', Buffer.concat(pieces));
  const bytes = Buffer.from(text);
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': bytes.length });
  response.end(bytes);
}

const server = createServer((request, response) => {
  handle(request, response).catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no address');
  console.log(JSON.stringify({ event: 'ready', url: `http://127.0.0.1:${address.port}` }));
});
