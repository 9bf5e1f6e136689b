import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { type ClientRequest, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type FakeApi, startFakeApi } from '../sdks/fake-api.ts';
import { type Answer, makeApiKey, send, startGateway, type TestGateway } from '../system/gateway.ts';
import { freshKey } from '../system/world.ts';
import { seededRandom } from '../torture/random.ts';

const config = (url: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: maria, roles: [lead] }, { id: olga, roles: [] } ]
roles: { lead: {} }
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: api, url: "${url}", timeout: 10s } ]
limits: { upload_file: 3MiB, upload: 4MiB, spool: 6MiB }
tools:
  - name: files.create
    upstream: api
    kind: write
    request: { method: POST, path: "/v1/{kind}/files", query: [dry], body: "*", body_type: multipart }
    params_schema: { type: object, required: [kind], properties: { kind: { type: string }, purpose: { type: string }, n: { type: integer }, file: { type: object, properties: { bytes: { type: integer, maximum: 2500000 } } }, images: { type: array, items: { type: object } } } }
    idempotent: { header: Idempotency-Key, for: 1h }
  - name: blobs.put
    upstream: api
    kind: write
    request: { method: PUT, path: "/v1/blobs/{id}", body_as: body, body_type: opaque }
routes:
  - { upstream: api, prefix: /api, rules: [ { match: "POST /v1/:kind/files", tool: files.create }, { match: "PUT /v1/blobs/:id", tool: blobs.put } ] }
`;
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: files
owner: team
rules:
  - { id: all, effect: allow, match: { tools: [files.create, blobs.put] } }
  - { id: no-exe, effect: deny, match: { tools: [files.create] }, when: { all: [ { params.file: { exists: true } }, { params.file.filename: { glob: "*.exe" } } ] }, reason: "No programs" }
  - { id: no-large-blob, effect: deny, match: { tools: [blobs.put] }, when: { params.body.bytes: { gt: 2000000 } }, reason: "Too large" }
  - { id: ask, effect: require_approval, match: { tools: [files.create] }, when: { all: [ { params.purpose: { exists: true } }, { params.purpose: secret } ] }, approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: "Upload of \${params.file.filename}" } }
`;

let api: FakeApi;
let gateway: TestGateway;
let key: string;
let lead: string;
beforeAll(async () => {
  api = await startFakeApi(() => ({ json: { id: 'file_1' } }));
  gateway = await startGateway({ config: config(api.url), policies: { 'files.yaml': POLICY } });
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
  lead = await makeApiKey(gateway, 'maria', { kind: 'account', workspace: 'demo' });
});
afterAll(async () => {
  await gateway.dispose();
  await api.close();
});
beforeEach(() => {
  api.seen.length = 0;
});

interface Said {
  readonly status: number;
  readonly decision: string | null;
  readonly body: Answer['body'];
}

async function pass(
  method: string,
  path: string,
  body: FormData | Uint8Array<ArrayBuffer> | string,
  headers: Record<string, string> = {},
): Promise<Said> {
  const response = await fetch(`${gateway.url}/api${path}`, {
    method,
    headers: { 'x-api-key': key, 'idempotency-key': freshKey(), ...headers },
    body,
  });
  // A busy machine makes the gateway say so; nothing was looked at then.
  if (response.status === 503) return pass(method, path, body, headers);
  return {
    status: response.status,
    decision: response.headers.get('svc-decision'),
    body: JSON.parse(await response.text()),
  };
}

const run = (body: Record<string, unknown>): Promise<Answer> =>
  send(gateway.url, key, 'POST', '/v1/workspaces/demo/effects', { idempotency_key: freshKey(), ...body });

function form(members: Record<string, string | File | readonly (string | File)[]>): FormData {
  const data = new FormData();
  for (const [name, value] of Object.entries(members)) {
    if (typeof value === 'string' || value instanceof File) data.append(name, value);
    else for (const item of value) data.append(`${name}[]`, item);
  }
  return data;
}

const sha = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
/** All that is to be the same, whichever door a call came through. */
const last = () => {
  const { method, url, headers, body } = api.seen.at(-1) ?? { method: '', url: '', headers: {}, body: Buffer.alloc(0) };
  return {
    method,
    url,
    type: headers['content-type'],
    length: headers['content-length'],
    body: body.toString('base64'),
  };
};
const spooled = (): Promise<string[]> => readdir(join(gateway.dataFolder, 'uploads'));

describe('multipart', () => {
  it('is governed: files are params, the fingerprint covers their bytes, the bytes go on as they came', async () => {
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, index) => (index * 7) % 256));
    const file = new File([bytes], 'größe.png', { type: 'image/png' });
    const same = freshKey();
    const first = await pass('POST', '/v1/images/files?dry=1', form({ purpose: 'vision', n: '3', file }), {
      'idempotency-key': same,
    });
    expect(first).toMatchObject({ status: 200, decision: 'committed' });
    const [seen] = api.seen;
    const theirs = await new Response(new Uint8Array(seen?.body ?? []), {
      headers: { 'content-type': seen?.headers['content-type'] ?? '' },
    }).formData();
    const got = theirs.get('file');
    if (!(got instanceof File)) throw new Error('no file arrived');
    expect([theirs.get('purpose'), theirs.get('n'), got.name, got.type]).toEqual([
      'vision',
      '3',
      'größe.png',
      'image/png',
    ]);
    expect(sha(Buffer.from(await got.arrayBuffer()))).toBe(sha(bytes));
    const again = await pass('POST', '/v1/images/files?dry=1', form({ file, n: '3', purpose: 'vision' }), {
      'idempotency-key': same,
    });
    expect(again.body.decision).toBe('duplicate_blocked');
    bytes[299_999] = 1 + (bytes[299_999] ?? 0);
    const other = await pass(
      'POST',
      '/v1/images/files?dry=1',
      form({ purpose: 'vision', n: '3', file: new File([bytes], 'größe.png', { type: 'image/png' }) }),
      { 'idempotency-key': same },
    );
    expect(other.body.decision).toBe('idempotency_conflict');
    expect(api.seen).toHaveLength(1);
    const { body } = await send(gateway.url, lead, 'GET', `/v1/workspaces/demo/effects/${again.body.effect_id}`);
    expect(body.effect.params).toMatchObject({
      kind: 'images',
      n: 3,
      file: { filename: 'größe.png', content_type: 'image/png', bytes: 300_000 },
    });
    expect(await spooled()).toEqual([]);
  });

  it('rules see filename, type and size', async () => {
    const denied = await pass('POST', '/v1/x/files', form({ file: new File(['MZ'], 'virus.exe') }));
    expect(denied.body).toMatchObject({ decision: 'denied_policy', reason: { rule: 'files/no-exe' } });
    const large = await pass('POST', '/v1/x/files', form({ file: new File([new Uint8Array(2_500_001)], 'large') }));
    expect([large.status, large.body.errors?.[0]?.path]).toEqual([400, '/params/file/bytes']);
    expect(api.seen).toEqual([]);
  });

  it('a call that waits has its files when it is approved, and one with larger files is refused', async () => {
    const bytes = Buffer.alloc(200_000, 'é');
    const asked = await pass('POST', '/v1/x/files', form({ purpose: 'secret', file: new File([bytes], 'plan.txt') }));
    expect(asked.body.decision).toBe('pending_approval');
    expect([await spooled(), api.seen]).toEqual([[], []]);
    await send(gateway.url, lead, 'POST', `/v1/workspaces/demo/approvals/${asked.body.approval.id}/approve`, {});
    await expect.poll(() => api.seen.length).toBe(1);
    expect(api.seen[0]?.body.includes(bytes)).toBe(true);
    const large = await pass(
      'POST',
      '/v1/x/files',
      form({ purpose: 'secret', file: new File([new Uint8Array(900_000)], 'x') }),
    );
    expect(large.body).toMatchObject({ decision: 'denied_policy', reason: { code: 'files_too_large_to_wait' } });
    expect(api.seen).toHaveLength(1);
  });

  it.each<[string, FormData, number, string]>([
    ['a file where a field belongs', form({ purpose: new File(['x'], 'x') }), 400, '/params/purpose'],
    ['a field where a file belongs', form({ file: 'x' }), 400, '/params/file'],
    [
      'a name twice',
      (() => {
        const twice = form({ purpose: 'a' });
        twice.append('purpose', 'b');
        return twice;
      })(),
      400,
      '/body/purpose',
    ],
    ['a param of the path in the body', form({ kind: 'y' }), 400, '/body/kind'],
    ['another method', form({ _method: 'DELETE' }), 400, '/body/_method'],
  ])('%s is refused with its place, and nothing is sent or kept', async (_name, body, status, path) => {
    const answer = await pass('POST', '/v1/x/files', body);
    expect([answer.status, answer.body.errors?.[0]?.path]).toEqual([status, path]);
    expect([await spooled(), api.seen]).toEqual([[], []]);
  });

  it('what is too large, of another type, compressed or holds the key is refused, and nothing is sent or kept', async () => {
    const file = (size: number): File => new File([new Uint8Array(size)], 'f');
    const large = await pass('POST', '/v1/x/files', form({ a: file(3_200_000) }));
    const whole = await pass('POST', '/v1/x/files', form({ a: file(2_500_000), b: file(2_500_000) }));
    const json = await pass('POST', '/v1/x/files', '{}', { 'content-type': 'application/json' });
    const packed = await pass('POST', '/v1/x/files', form({ a: 'b' }), { 'content-encoding': 'gzip' });
    const filler = 'x'.repeat(65_500);
    const leak = await pass('POST', '/v1/x/files', form({ a: new File([`${filler}${key}`], 'f') }));
    expect([large.status, whole.status, json.status, packed.status, leak.status]).toEqual([413, 413, 415, 415, 400]);
    expect(json.body.detail).toContain('body_type: json');
    expect([await spooled(), api.seen]).toEqual([[], []]);
  });

  it('a key that comes in two pieces goes no further than one in a piece', async () => {
    const { outgoing, answer } = inPieces();
    // Less stays in memory, where nobody sees that it was read.
    const filler = 'x'.repeat(500_000);
    outgoing.write(`--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n${filler}${key.slice(0, 20)}`);
    // The first piece is read.
    await expect.poll(openSpoolFiles).toBe(1);
    outgoing.end(`${key.slice(20)}\r\n--b--\r\n`);
    expect(await answer).toBe(400);
    expect([await spooled(), api.seen]).toEqual([[], []]);
  });

  it('a body that does not say how long it is has the same limit', async () => {
    const { outgoing, answer } = inPieces();
    for (const name of ['a', 'b'])
      outgoing.write(
        `--b\r\nContent-Disposition: form-data; name="${name}"; filename="f"\r\n\r\n${'x'.repeat(2_200_000)}\r\n`,
      );
    outgoing.end('--b--\r\n');
    expect(await answer).toBe(413);
    expect([await spooled(), api.seen]).toEqual([[], []]);
  });

  it('a caller that goes away in the middle leaves nothing behind', async () => {
    const outgoing = httpRequest(`${gateway.url}/api/v1/x/files`, {
      method: 'POST',
      headers: {
        'x-api-key': key,
        'idempotency-key': freshKey(),
        'content-type': 'multipart/form-data; boundary=b',
        'content-length': 1_000_000,
      },
    });
    outgoing.on('error', () => undefined);
    outgoing.write(`--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n${'x'.repeat(500_000)}`);
    await expect.poll(async () => (await openSpoolFiles()) > 0).toBe(true);
    outgoing.destroy();
    await expect.poll(openSpoolFiles).toBe(0);
    expect(api.seen).toEqual([]);
  });
});

/** A form that is sent piece by piece, without its length, and the status that answers it. */
function inPieces(): { readonly outgoing: ClientRequest; readonly answer: Promise<number | undefined> } {
  const outgoing = httpRequest(`${gateway.url}/api/v1/x/files`, {
    method: 'POST',
    headers: {
      'x-api-key': key,
      'idempotency-key': freshKey(),
      'content-type': 'multipart/form-data; boundary=b',
    },
  });
  const answer = new Promise<number | undefined>((resolve, reject) => {
    outgoing.once('error', reject);
    outgoing.once('response', (response) => {
      response.resume();
      resolve(response.statusCode);
    });
  });
  return { outgoing, answer };
}

/** Spooled files have no name; the process that has them open has them among its descriptors. */
async function openSpoolFiles(): Promise<number> {
  const { readlink } = await import('node:fs/promises');
  const folder = `/proc/${gateway.pid}/fd`;
  const links = await Promise.all((await readdir(folder)).map((fd) => readlink(join(folder, fd)).catch(() => '')));
  return links.filter((link) => link.includes('/uploads/')).length;
}

describe('a body of any type', () => {
  it('that ends before its length is no whole one, and nothing is sent', async () => {
    const outgoing = httpRequest(`${gateway.url}/api/v1/blobs/b1`, {
      method: 'PUT',
      headers: {
        'x-api-key': key,
        'idempotency-key': freshKey(),
        'content-type': 'image/webp',
        'content-length': 1_000_000,
      },
    });
    outgoing.on('error', () => undefined);
    outgoing.write('x'.repeat(500_000));
    await expect.poll(openSpoolFiles).toBe(1);
    outgoing.destroy();
    await expect.poll(openSpoolFiles).toBe(0);
    expect(api.seen).toEqual([]);
  });

  it('is one param with type, size and digest, and goes on as it came', async () => {
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => (index * 31) % 256));
    const put = await pass('PUT', '/v1/blobs/b1', bytes, { 'content-type': 'image/webp' });
    expect(put.decision).toBe('committed');
    expect(last()).toEqual({
      method: 'PUT',
      url: '/v1/blobs/b1',
      type: 'image/webp',
      length: '100000',
      body: bytes.toString('base64'),
    });
    const denied = await pass('PUT', '/v1/blobs/b1', Buffer.alloc(2_000_001), { 'content-type': 'image/webp' });
    expect(denied.body.reason.rule).toBe('files/no-large-blob');
    const odd = await pass('PUT', '/v1/blobs/b1', bytes, { 'content-type': 'nonsense' });
    expect(odd.status).toBe(415);
    expect([await spooled(), api.seen.length]).toEqual([[], 1]);
  });
});

describe('through the effects API', () => {
  it.each<[string, Record<string, unknown>, string]>([
    [
      'a digest without bytes',
      { file: { filename: 'f', content_type: 'a/b', bytes: 1, sha256: 'a'.repeat(64) } },
      '/params/file',
    ],
    ['bytes that are not base64', { file: { filename: 'f', data: 'a?' } }, '/params/file/data'],
    ['another spelling of base64', { file: { filename: 'f', data: 'YQ' } }, '/params/file/data'],
    ['a filename that could be read otherwise', { file: { filename: 'a"b', data: 'YQ==' } }, '/params/file'],
    ['a path', { file: { filename: '../a', data: 'YQ==' } }, '/params/file'],
    ['a type that is none', { file: { filename: 'a', content_type: 'a\r\nb', data: 'YQ==' } }, '/params/file'],
    ['a name that could be read otherwise', { 'a"b': 'x' }, '/params/a"b'],
  ])('%s is refused', async (_name, params, path) => {
    const { status, body } = await run({ tool: 'files.create', params: { kind: 'x', ...params } });
    expect([status, body.errors[0].path]).toEqual([400, path]);
    expect(api.seen).toEqual([]);
  });

  it('what has other members than a file is none: all of it goes on, and nothing is dropped', async () => {
    const file = { filename: 'a', contenttype: 'a/b', data: 'YQ==' };
    expect((await run({ tool: 'files.create', params: { kind: 'x', file } })).body.decision).toBe('committed');
    const sent = String(api.seen[0]?.body);
    for (const value of Object.values(file)) expect(sent).toContain(value);
  });
});

const random = seededRandom(20_261_123);
function text(): string {
  const letters = ['a', 'B', '7', ' ', '&', '=', '[', '%', 'é', '€', '"', '\\', '\r\n', '--', ';', '😀', '\n'];
  return Array.from({ length: Math.floor(random() * 9) }, () => letters[Math.floor(random() * letters.length)]).join(
    '',
  );
}
function bytes(): Buffer {
  const size = Math.floor(random() * (random() < 0.1 ? 120_000 : 300));
  return Buffer.from(Array.from({ length: size }, () => Math.floor(random() * 256)));
}
const TYPES = ['image/png', 'text/plain', 'application/json', 'application/octet-stream', 'text/plain; charset=utf-16'];
const pick = <T>(values: readonly [T, ...T[]]): T => values[Math.floor(random() * values.length)] ?? values[0];

it('proxy and effects API send the same bytes for 260 generated calls with files', async () => {
  const makeFile = () => {
    const content = bytes();
    const type = pick(['image/png', 'text/plain', 'application/json', 'application/octet-stream']);
    const filename = `f${Math.floor(random() * 99)} é€.bin`;
    return {
      file: new File([new Uint8Array(content)], filename, { type }),
      given: { filename, content_type: type, data: content.toString('base64') },
    };
  };
  for (let index = 0; index < 260; index += 1) {
    const same = freshKey();
    let proxied: Said;
    let call: Record<string, unknown>;
    if (index % 3 === 2) {
      const content = bytes();
      const type = pick(TYPES as [string, ...string[]]);
      const id = `b ${index}`;
      proxied = await pass('PUT', `/v1/blobs/${encodeURIComponent(id)}`, new Uint8Array(content), {
        'content-type': type,
        'idempotency-key': same,
      });
      const body = content.byteLength === 0 ? {} : { body: { content_type: type, data: content.toString('base64') } };
      call = { tool: 'blobs.put', params: { id, ...body } };
    } else {
      const members: Record<string, string | File | File[]> = {};
      const params: Record<string, unknown> = { kind: 'k', dry: '1' };
      const put = (name: string, value: string | File | File[], given: unknown): void => {
        members[name] = value;
        params[name] = given;
      };
      const n = Math.floor(random() * 100);
      if (random() < 0.5) put('n', String(n), n);
      const purpose = text();
      if (random() < 0.5) put('purpose', purpose, purpose.replaceAll(/\r\n|\r|\n/g, '\r\n'));
      const one = makeFile();
      put('file', one.file, one.given);
      if (random() < 0.4) {
        const two = [makeFile(), makeFile()];
        put(
          'images',
          two.map(({ file }) => file),
          two.map(({ given }) => given),
        );
      }
      const note = text();
      if (random() < 0.5) {
        members['meta[note]'] = note;
        params['meta'] = { note: note.replaceAll(/\r\n|\r|\n/g, '\r\n') };
      }
      proxied = await pass('POST', '/v1/k/files?dry=1', form(members), { 'idempotency-key': same });
      call = { tool: 'files.create', params };
    }
    const which = `${index}: ${JSON.stringify([call, proxied.body]).slice(0, 600)}`;
    expect(proxied.decision, which).toBe('committed');
    const atProxy = last();
    const ran = await run(call);
    expect(ran.body.decision, JSON.stringify(ran.body)).toBe('committed');
    expect(last(), which).toEqual(atProxy);
    const twin = await run({ ...call, idempotency_key: same });
    expect(twin.body.decision, which).toBe('duplicate_blocked');
    api.seen.length = 0;
  }
  expect(await spooled()).toEqual([]);
});
