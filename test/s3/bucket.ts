import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createHash, createHmac } from 'node:crypto';
import { createServer, type IncomingHttpHeaders, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';

/** What comes of one request on the way to the bucket and back. */
export interface OnTheWay {
  readonly method: string;
  /** Without the bucket. */
  readonly key: string;
  readonly body: Buffer;
  /** Sends it on. */
  pass(): Promise<Answered>;
}

export interface Answered {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** A bucket on a real server of S3, behind a relay that a test can have fail. */
export interface Bucket {
  /** Of the bucket. */
  readonly url: string;
  /** What the server has of an object; where its files are. */
  readonly fileOf: (key: string) => string;
  /** In the place of passing each request on; `null`: the connection is cut. */
  meddle: (on: OnTheWay) => Promise<Answered | null>;
  close(): Promise<void>;
}

/** The key that the server knows. */
export const BUCKET_KEYS = { accessKey: 'S3RVER', secretKey: 'S3RVER' };

/**
 * Starts them. s3rver checks no signature of version 4 and knows no conditional writes: the relay has both for it, as
 * Amazon's S3 and MinIO do.
 * @param hasConditions `false`: as s3rver is
 */
export async function startBucket(hasConditions = true): Promise<Bucket> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-s3-'));
  const child = spawn(process.execPath, ['test/s3/server.mjs', folder], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [port] = await once(child.stdout, 'data');
  const on = { host: '127.0.0.1', port: Number(String(port)) };
  const server = createServer((incoming, response) => {
    const { method = '', url = '', headers } = incoming;
    const answer = async (): Promise<void> => {
      const body = await buffer(incoming);
      if (!isSigned({ method, url, headers, body })) {
        send403(response);
        return;
      }
      const pass = (): Promise<Answered> => {
        if (hasConditions && headers['if-none-match'] === '*' && existing.has(url)) return Promise.resolve(TAKEN);
        if (method === 'PUT') existing.add(url);
        // The server judges the time of a signature by its own clock, and gateways of tests have clocks of theirs.
        const { authorization: _, 'x-amz-date': __, ...unsigned } = headers;
        return exchange({ ...on, method, path: url, headers: unsigned }, body);
      };
      const got = await bucket.meddle({ method, key: url.replace(/^\/archive\/?/, ''), body, pass });
      if (got === null) incoming.socket.destroy();
      else response.writeHead(got.status, { ...got.headers, 'content-length': got.body.length }).end(got.body);
    };
    answer().catch(() => incoming.socket.destroy());
  });
  const existing = new Set<string>();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port: own } = server.address() as AddressInfo;
  const bucket: Bucket = {
    url: `http://127.0.0.1:${own}/archive`,
    fileOf: (key) => join(folder, 'archive', `${key}._S3rver_object`),
    meddle: ({ pass }) => pass(),
    close: () => close(server, child, folder),
  };
  return bucket;
}

/**
 * Signature Version 4, written from its specification, for the key that the server knows; all headers that say what a
 * request means have to be signed, and the body is the one whose digest is.
 */
function isSigned(of: { method: string; url: string; headers: IncomingHttpHeaders; body: Buffer }): boolean {
  const { method, url, headers, body } = of;
  const found =
    /^AWS4-HMAC-SHA256 Credential=S3RVER\/(\d{8})\/([\w-]+)\/s3\/aws4_request, SignedHeaders=([\w;-]+), Signature=(\w{64})$/.exec(
      headers.authorization ?? '',
    );
  const [, day = '', region = '', names = '', signature = ''] = found ?? [];
  const time = String(headers['x-amz-date']);
  const digest = sha(body);
  const meant = Object.keys(headers).filter((name) => /^(host|content-type|if-none-match|x-amz-.+)$/.test(name));
  if (!meant.every((name) => names.split(';').includes(name)) || !time.startsWith(day)) return false;
  if (headers['x-amz-content-sha256'] !== digest) return false;
  const [path = '', query = ''] = url.split('?');
  const canonical = [
    method,
    path,
    query.split('&').toSorted().join('&'),
    ...names.split(';').map((name) => `${name}:${String(headers[name]).trim()}`),
    '',
    names,
    digest,
  ].join('\n');
  const toSign = ['AWS4-HMAC-SHA256', time, `${day}/${region}/s3/aws4_request`, sha(Buffer.from(canonical))].join('\n');
  const key = [day, region, 's3', 'aws4_request'].reduce<Buffer>(
    (secret, part) => hmac(secret, part),
    Buffer.from(`AWS4${BUCKET_KEYS.secretKey}`),
  );
  return hmac(key, toSign).toString('hex') === signature;
}

const sha = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const hmac = (key: Buffer, text: string): Buffer => createHmac('sha256', key).update(text).digest();

function send403(response: ServerResponse): void {
  response.writeHead(403, { 'content-type': 'application/xml' });
  response.end('<Error><Code>SignatureDoesNotMatch</Code><Message>It does not</Message></Error>');
}

const TAKEN: Answered = {
  status: 412,
  headers: { 'content-type': 'application/xml' },
  body: Buffer.from(
    '<Error><Code>PreconditionFailed</Code><Message>One of the preconditions did not hold</Message></Error>',
  ),
};

function exchange(
  to: { host: string; port: number; method: string; path: string; headers: IncomingHttpHeaders },
  body: Buffer,
): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const sent = request(to, (answer) => {
      const { statusCode = 0, headers } = answer;
      delete headers['transfer-encoding'];
      buffer(answer).then((whole) => resolve({ status: statusCode, headers, body: whole }), reject);
    });
    sent.on('error', reject).end(body);
  });
}

async function close(server: Server, child: ChildProcess, folder: string): Promise<void> {
  server.close();
  server.closeAllConnections();
  child.kill();
  await once(child, 'exit');
  await rm(folder, { recursive: true, force: true });
}
