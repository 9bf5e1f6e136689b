import { rmSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { ArchiveBucket } from '../../src/stores/archive/bucket.ts';
import type { ArchivePlace } from '../../src/stores/archive/place.ts';
import { readOnce } from '../../src/upstreams/http/request-once.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { RETENTION } from '../contract/fixture.ts';
import { dispatched } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { type Bucket, BUCKET_KEYS, startBucket } from '../s3/bucket.ts';

let bucket: Bucket;
beforeAll(async () => {
  bucket = await startBucket();
});
afterAll(() => bucket.close());
beforeEach(() => {
  bucket.meddle = ({ pass }) => pass();
});

const TIMEOUT_MS = 2_000;

function placeIn(url: string, keys = BUCKET_KEYS): ArchivePlace {
  return new ArchiveBucket({ url, region: 'us-east-1', ...keys }, ({ mostBytes, ...request }) =>
    readOnce({ ...request, network: 'any', timeoutMs: TIMEOUT_MS }, mostBytes),
  );
}

let made = 0;
/** A part of the bucket for each test. */
const place = (): ArchivePlace => placeIn(`${bucket.url}/svc/${(made += 1)}`);

const text = async (from: ArchivePlace, name: string) => (await from.get('demo', name))?.toString('utf8') ?? null;

describe('an object of an archive in a bucket', () => {
  it('is put, and read back byte for byte; what is not there is not there', async () => {
    const here = place();
    expect(await text(here, '1.jsonl')).toBeNull();
    await here.put('demo', '1.jsonl', 'ünïcode\n"\\', 'new');
    expect(await text(here, '1.jsonl')).toBe('ünïcode\n"\\');
    expect(here.at('demo', '1.jsonl')).toBe(`${bucket.url}/svc/${made}/demo/1.jsonl`);
  });

  it('never takes the place of another, but for the mark', async () => {
    const here = place();
    await here.put('demo', '1.jsonl', 'first', 'new');
    await expect(here.put('demo', '1.jsonl', 'second', 'new')).rejects.toThrow('it is there already');
    expect(await text(here, '1.jsonl')).toBe('first');
    await here.put('demo', 'head.json', 'one', 'new');
    await here.put('demo', 'head.json', 'two', 'replace');
    expect(await text(here, 'head.json')).toBe('two');
  });

  it('is followed by another or not, of its workspace and kind alone', async () => {
    const here = place();
    const isSegment = (name: string): boolean => name.endsWith('.jsonl');
    const after = (name: string) => here.hasAfter('demo', name, isSegment);
    expect(await after('000000001.jsonl')).toBe(false);
    await here.put('demo', '000000002.jsonl', 'x', 'new');
    await here.put('demo', 'head.json', 'x', 'new');
    await here.put('demo2', '000000009.jsonl', 'x', 'new');
    expect(await after('000000001.jsonl')).toBe(true);
    expect(await after('000000002.jsonl')).toBe(false);
  });

  it('is refused where the bucket gives back something else than was written', async () => {
    const here = place();
    bucket.meddle = async ({ method, pass }) => {
      const answer = await pass();
      return method === 'GET' ? { ...answer, body: answer.body.subarray(1) } : answer;
    };
    await expect(here.put('demo', '1.jsonl', 'text', 'new')).rejects.toThrow('is not what was written');
  });

  it.each<[string, Bucket['meddle'], RegExp]>([
    [
      'an error',
      async () => ({ status: 503, headers: {}, body: Buffer.from('<Code>SlowDown</Code>') }),
      /answers 503 SlowDown/,
    ],
    ['nothing', () => Promise.resolve(null), /other side closed|ECONNRESET|socket/i],
    ['no end', () => new Promise(() => undefined), /timeout/i],
    [
      'more than a segment ever is',
      async () => ({ status: 200, headers: {}, body: Buffer.alloc(9 * 1024 * 1024) }),
      /more than 8388608 bytes/,
    ],
  ])('fails in words where the bucket answers %s', async (_, meddle, words) => {
    const here = place();
    await here.put('demo', '1.jsonl', 'x', 'new');
    bucket.meddle = meddle;
    await expect(here.get('demo', '1.jsonl')).rejects.toThrow(words);
    if (words.source !== '/more than 8388608 bytes/'.slice(1, -1))
      await expect(here.put('demo', '2.jsonl', 'x', 'new')).rejects.toThrow(words);
  });

  it('fails in words for a bucket that is not there, and a key that it does not know; nothing of the key is said', async () => {
    const gone = placeIn(bucket.url.replace('/archive', '/another'));
    await expect(gone.get('demo', '1.jsonl')).rejects.toThrow(/404 NoSuchBucket/);
    const secretKey = 'a-canary-of-a-key';
    const stranger = placeIn(bucket.url, { ...BUCKET_KEYS, secretKey });
    await place().put('demo', '1.jsonl', 'x', 'new');
    const fault = await stranger.put('demo', '1.jsonl', 'x', 'replace').catch(String);
    expect(fault).toMatch(/403 SignatureDoesNotMatch/);
    expect(fault).not.toContain(secretKey);
  });
});

it('a bucket that does not heed conditions is refused before anything of an archive is in it', async () => {
  const careless = await startBucket(false);
  try {
    const here = placeIn(`${careless.url}/svc`);
    await expect(here.put('demo', '1.jsonl', 'x', 'new')).rejects.toThrow('although If-None-Match forbids it');
    expect(await here.get('demo', '1.jsonl')).toBeNull();
  } finally {
    await careless.close();
  }
});

it('what the server keeps is the text itself', async () => {
  const here = place();
  await here.put('demo', '1.jsonl', 'kept', 'new');
  const file = bucket.fileOf(`svc/${made}/demo/1.jsonl`);
  expect(await readFile(file, 'utf8')).toBe('kept');
  await writeFile(file, 'lost');
  expect(await text(here, '1.jsonl')).toBe('lost');
});

it('each request is signed for the region that was set', async () => {
  const signed: (string | undefined)[] = [];
  const settings = { url: 'https://s3.example.com/bucket/svc', region: 'eu-central-1', ...BUCKET_KEYS };
  const here = new ArchiveBucket(settings, async ({ headers }) => {
    signed.push(headers['authorization']);
    return { status: 404, body: Buffer.from('<Code>NoSuchKey</Code>') };
  });
  expect(await text(here, '1.jsonl')).toBeNull();
  expect(signed).toEqual([expect.stringMatching(/Credential=S3RVER\/\d{8}\/eu-central-1\/s3\/aws4_request/)]);
});

it('a store uses a bucket at a private address only where nobody has said that it has to be public', async () => {
  const admitted = async (network: 'any' | 'public'): Promise<string> => {
    const path = storeFolder();
    const archive = { kind: 'bucket', url: `${bucket.url}/svc`, region: 'us-east-1', ...BUCKET_KEYS, network } as const;
    const options = { path, lockWaitMs: 0, retention: RETENTION, keySeals: KEY_SEALS, worker: 'never' } as const;
    const store = await openEmbeddedStore({ ...options, archive });
    try {
      return await dispatched(store).then(({ effect }) => effect.life.state, String);
    } finally {
      await store.close();
      rmSync(path, { recursive: true });
    }
  };
  expect(await admitted('any')).toBe('executing');
  expect(await admitted('public')).toMatch(/archive cannot be read: .*address/);
});
