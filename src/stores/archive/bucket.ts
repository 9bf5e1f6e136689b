import { createHash } from 'node:crypto';
import { AwsV4Signer } from 'aws4fetch';
import { type ArchivePlace, MOST_BYTES } from './place.ts';

/** A bucket that speaks Amazon's S3. */
interface BucketSettings {
  /** Bucket, and what keys begin with: `https://host/bucket/prefix`, without a slash at its end. */
  readonly url: string;
  readonly region: string;
  readonly accessKey: string;
  readonly secretKey: string;
}

/** Sends one request, and reads the answer as a whole. It rejects where there is none in time. */
type BucketSend = (request: {
  readonly method: 'GET' | 'PUT';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  /** Bytes of an answer beyond which it is an error. */
  readonly mostBytes: number;
}) => Promise<{ readonly status: number; readonly body: Buffer }>;

/** Names that one look at what follows an object reads. */
const MOST_NAMES = 100;
/** How much of what a bucket says about a fault is repeated, characters. */
const MOST_SAID = 200;

/**
 * A bucket. A request may arrive long after the gateway that sent it has ended, so a segment is only ever put where none
 * is (`If-None-Match`, RFC 9110, 13.1.2): a bucket that does not heed that is refused before the first one is written.
 * What was put is read back before the store forgets it.
 */
export class ArchiveBucket implements ArchivePlace {
  readonly #settings: BucketSettings;
  readonly #send: BucketSend;
  #heedsConditions = false;

  constructor(settings: BucketSettings, send: BucketSend) {
    this.#settings = settings;
    this.#send = send;
  }

  at(workspace: string, name: string): string {
    return `${this.#settings.url}/${workspace}/${name}`;
  }

  async put(workspace: string, name: string, text: string, how: 'new' | 'replace'): Promise<void> {
    const to = this.at(workspace, name);
    if (how === 'replace') {
      const { status, body } = await this.#ask('PUT', to, text);
      if (status !== 200) throw faultOf(status, body);
      return;
    }
    await this.#checkConditions();
    if (!(await this.#putNew(to, text))) throw new Error('it is there already, and is taken in with the next round');
    const kept = await this.#read(to);
    if (kept?.toString('utf8') !== text) throw new Error('what the bucket gives back is not what was written');
  }

  get(workspace: string, name: string): Promise<Buffer | null> {
    return this.#read(this.at(workspace, name));
  }

  async hasAfter(workspace: string, name: string, isOfKind: (name: string) => boolean): Promise<boolean> {
    const { origin, pathname } = new URL(this.#settings.url);
    const [, bucket = '', ...path] = pathname.split('/');
    const prefix = [...path, workspace, ''].join('/');
    const first = { prefix, 'start-after': `${prefix}${name}`, 'max-keys': String(MOST_NAMES) };
    const list = new URLSearchParams({ 'list-type': '2', ...first });
    const { status, body } = await this.#ask('GET', `${origin}/${bucket}?${list.toString()}`, null);
    if (status !== 200) throw faultOf(status, body);
    const keys = [...body.toString('utf8').matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key = '']) => key);
    return keys.some((key) => key.startsWith(prefix) && isOfKind(key.slice(prefix.length)));
  }

  async #checkConditions(): Promise<void> {
    if (this.#heedsConditions) return;
    const to = `${this.#settings.url}/svc-archive-check`;
    if ((await this.#putNew(to, 'svc\n')) && (await this.#putNew(to, 'svc\n')))
      throw new Error(
        'the bucket takes an object in the place of another although If-None-Match forbids it, so a late request could destroy a segment; use a bucket that heeds conditional writes',
      );
    this.#heedsConditions = true;
  }

  async #read(from: string): Promise<Buffer | null> {
    const { status, body } = await this.#ask('GET', from, null);
    if (status === 200) return body;
    // A bucket that is not there says 404 too.
    if (status === 404 && codeOf(body) === 'NoSuchKey') return null;
    throw faultOf(status, body);
  }

  /** @returns `false` where there is one already */
  async #putNew(to: string, text: string): Promise<boolean> {
    const { status, body } = await this.#ask('PUT', to, text, { 'if-none-match': '*' });
    if (status === 412) return false;
    if (status !== 200) throw faultOf(status, body);
    return true;
  }

  async #ask(method: 'GET' | 'PUT', url: string, body: string | null, more: Readonly<Record<string, string>> = {}) {
    const { region, accessKey: accessKeyId, secretKey: secretAccessKey } = this.#settings;
    const headers = {
      ...more,
      ...(body === null ? {} : { 'content-type': 'application/jsonl' }),
      'x-amz-content-sha256': createHash('sha256')
        .update(body ?? '')
        .digest('hex'),
    };
    const key = { service: 's3', region, accessKeyId, secretAccessKey };
    const { url: to, headers: signed } = await new AwsV4Signer({
      method,
      url,
      headers,
      allHeaders: true,
      ...key,
    }).sign();
    return this.#send({ method, url: to.href, headers: Object.fromEntries(signed), body, mostBytes: MOST_BYTES });
  }
}

function codeOf(body: Buffer): string | null {
  return /<Code>(\w{1,64})<\/Code>/.exec(body.toString('utf8', 0, 4096))?.[1] ?? null;
}

function faultOf(status: number, body: Buffer): Error {
  const said = /<Message>([^<]*)<\/Message>/.exec(body.toString('utf8', 0, 4096))?.[1]?.slice(0, MOST_SAID);
  const code = codeOf(body);
  return new Error(
    `the bucket answers ${status}${code === null ? '' : ` ${code}`}${said === undefined ? '' : ` (${said})`}`,
  );
}
