import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { RequestTemplate } from '../../src/effects/model/tool.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { readQuery } from '../../src/proxy/arrival.ts';
import { contentFault } from '../../src/proxy/read-content.ts';
import { readRequest } from '../../src/proxy/governed.ts';
import type { UploadLimits } from '../../src/proxy/ports.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { openSpool, type Spool } from '../../src/upstreams/http/spool.ts';
import { TinyPieces } from '../../src/bytes/gathered.ts';
import { PIECES_A_TURN } from '../../src/bytes/pieces-a-turn.ts';
import { makeTool } from '../upstreams/tool.ts';
import { BOT } from './principal.ts';
import { NO_SPOOL, UPLOADS } from './uploads.ts';
import { planOf } from '../../src/upstreams/http/request-template.ts';

const FORM = 'application/x-www-form-urlencoded';

interface Asked {
  readonly kind?: 'read' | 'write';
  readonly query?: string;
  readonly body?: string | Buffer;
  readonly type?: string | null;
  readonly coding?: string;
  readonly mode?: 'enforce' | 'observe';
  readonly route?: 'refuse' | 'pass' | null;
  readonly schema?: JsonObject;
  readonly spool?: Spool;
  readonly limits?: UploadLimits;
  /** Whether the request says how long its body is. */
  readonly declared?: boolean;
  /** What it says, where that is not so. */
  readonly length?: number;
  /** What comes behind the body, each part in a turn of its own. */
  readonly later?: readonly string[];
  /** The caller goes before the body is whole. */
  readonly leaves?: boolean;
}

/** What becomes of a request by a tool. */
async function read(request: Partial<RequestTemplate>, asked: Asked) {
  const { query, body, type = 'application/json', coding, mode = 'enforce', route = null } = asked;
  const template = { method: 'POST', path: '/x', query: [], headers: {}, body: [], ...request };
  const tool = makeTool({
    kind: asked.kind ?? 'write',
    request: template,
    paramsSchema: asked.schema ?? null,
    target: null,
  });
  const catalog = createCatalog([tool]);
  const incoming = new IncomingMessage(new Socket());
  incoming.headers = {
    ...(body === undefined
      ? {}
      : asked.declared === false
        ? { 'transfer-encoding': 'chunked' }
        : { 'content-length': String(asked.length ?? Buffer.byteLength(body)) }),
    ...(type === null ? {} : { 'content-type': type }),
    ...(coding === undefined ? {} : { 'content-encoding': coding }),
  };
  incoming.push(body ?? null);
  const later = [...(asked.later ?? [])];
  const goOn = (): void => {
    const part = later.shift();
    incoming.complete = part === undefined && asked.leaves !== true;
    if (part !== undefined) setImmediate(goOn);
    else if (asked.leaves === true) return void incoming.destroy();
    incoming.push(part ?? null);
  };
  if (body === undefined) incoming.complete = true;
  else if (later.length === 0 && asked.leaves !== true) goOn();
  else setImmediate(goOn);
  const found = await readRequest(
    {
      catalog: () => catalog,
      policyMode: () => mode,
      spool: asked.spool ?? NO_SPOOL,
      settings: () => ({
        publicUrl: '',
        queryKey: 'allow',
        bodyLimit: 100_000,
        jsonLimits: { depth: 10, values: 100 },
        uploads: asked.limits ?? UPLOADS,
      }),
    },
    { key: 'the key', principal: BOT, query: readQuery(query ?? null), workspace: 'demo' },
    { tool, plan: planOf(tool.call.request), pathParams: {}, route: { undeclaredQuery: route } },
    incoming,
  );
  if (found.kind === 'problem') {
    const { code, detail, errors, retryAfterMs } = found.problem;
    return { code, detail, retryAfterMs, paths: errors.map(({ path }) => path) };
  }
  if (found.kind === 'read') await found.upload?.discard();
  return found.kind === 'gone'
    ? found
    : {
        params: found.params,
        query: found.query,
        body: Buffer.isBuffer(found.body) ? found.body.toString() : found.body,
      };
}

describe('what is sent', () => {
  const request = { query: ['a', 'b'], body: ['x'] };
  const asked = { query: 'b=1&a=x+y', body: '{ "x" : 1 }' };

  test('a write is written anew, in one spelling', async () => {
    expect(await read(request, asked)).toEqual({
      params: { a: 'x y', b: '1', x: 1 },
      query: 'a=x%20y&b=1',
      body: '{"x":1}',
    });
  });

  test('while policy only observes, it goes on as it came, and rules see what no tool declares', async () => {
    const more = { ...asked, query: `${asked.query}&strange=2` };
    expect(await read(request, more)).toMatchObject({ code: 'invalid_request', paths: ['/query/strange'] });
    expect(await read(request, { ...more, mode: 'observe' })).toEqual({
      params: { a: 'x y', b: '1', strange: '2', x: 1 },
      query: null,
      body: asked.body,
    });
    // Lists and objects too, which are written anew otherwise.
    const listed = { ...request, queryStyles: { a: 'brackets' } } as const;
    const lists = { ...asked, query: 'a[1]=y&a[0]=x' };
    expect(await read(listed, lists)).toMatchObject({ query: 'a%5B%5D=x&a%5B%5D=y' });
    expect(await read(listed, { ...lists, mode: 'observe' })).toMatchObject({ params: { a: ['x', 'y'] }, query: null });
  });

  test('a read of single values and of JSON goes on as it came; its lists, objects and forms are written anew', async () => {
    expect(await read(request, { ...asked, kind: 'read' })).toMatchObject({ query: null, body: asked.body });
    const listed = { ...request, queryStyles: { a: 'brackets' } } as const;
    expect(await read(listed, { ...asked, query: 'a[0]=x', kind: 'read' })).toMatchObject({ query: 'a%5B%5D=x' });
    const form = await read({ ...request, bodyType: 'form' }, { type: FORM, body: 'x=a+b', kind: 'read' });
    expect(form).toMatchObject({ body: 'x=a%20b' });
  });
});

describe('what no tool declares in the query', () => {
  const rest = { query: ['a'], queryRest: 'more' };

  test.each([
    ['is refused, and the line is said that would take it', {}, null, ['/query/b', 'add it to query of its request']],
    ['is a group of params where the tool has one', rest, null, null],
    ['is refused where its route says so, whatever the tool says', rest, 'refuse', ['/query/b', 'refuse']],
  ] as const)('%s', async (_, request, route, refused) => {
    const found = await read({ query: ['a'], ...request }, { query: 'a=1&b=2', route });
    if (refused === null) expect(found).toMatchObject({ params: { a: '1', more: { b: '2' } }, query: 'a=1&b=2' });
    else expect(found).toMatchObject({ code: 'invalid_request', paths: [refused[0]] });
  });

  test('is told up to a hundred names that are at fault', async () => {
    const many = (name: string, count: number): string[] => Array.from({ length: count }, (_, at) => `${name}${at}`);
    const body = JSON.stringify(Object.fromEntries(many('b', 80).map((name) => [name, 1])));
    const query = many('q', 60)
      .map((name) => `${name}=1`)
      .join('&');
    expect(await read({ query: many('b', 80), body: ['x'] }, { query, body })).toMatchObject({
      paths: [...many('/query/q', 60), ...many('/body/b', 40)],
    });
  });

  test('has as many members in a fault as it has names', async () => {
    const found = await read(rest, { query: 'b=2&c[d]=3&c[e]=4', route: 'refuse' });
    expect(found).toMatchObject({ paths: ['/query/b', '/query/c'] });
  });
});

describe('a body of another kind is refused with the line that would take it', () => {
  test.each([
    ['JSON', {}, FORM, 'application/json, not application/x-www-form-urlencoded', 'body_type: form '],
    [
      'JSON',
      {},
      'multipart/form-data; boundary=b',
      'application/json, not multipart/form-data',
      'body_type: multipart ',
    ],
    ['JSON', {}, 'Image/PNG', 'application/json, not image/png', 'body_type: opaque and body_as: body '],
    ['JSON', {}, null, 'not a body without Content-Type', 'body_type: opaque and body_as: body '],
    ['a form', { bodyType: 'form' }, 'application/json', `${FORM}, not application/json`, 'body_type: json '],
    ['multipart', { bodyType: 'multipart' }, FORM, 'multipart/form-data, not', 'body_type: form '],
  ] as const)('%s', async (_, request, type, what, line) => {
    const found = await read({ body: '*', ...request }, { type, body: 'x' });
    expect(found).toMatchObject({ code: 'unsupported_media_type', detail: expect.stringContaining(what) });
    expect(found).toMatchObject({ detail: expect.stringContaining(`add ${line}to its request.`) });
  });

  test.each([
    ['application/merge-patch+json', true],
    ['application/json; charset="UTF-8"', true],
    ['application/json; charset=utf-16', false],
    ['application/json; Charset=utf-16', false],
    ['application/json;charset=utf-8 ;profile=x', true],
    ['application/json; profile=x', true],
    ['text/json', false],
  ])('JSON as %s is read: %s', async (type, isRead) => {
    const found = await read({ body: ['x'] }, { type, body: '{"x":1}' });
    expect('params' in found).toBe(isRead);
  });

  test('of a type that has no end, a hundred characters are said', async () => {
    const found = await read({ body: ['x'] }, { type: `a/${'b'.repeat(200)}`, body: 'x' });
    expect(found).toMatchObject({ detail: expect.stringMatching(/not a\/b{98}\. /) });
  });

  test('JSON that is none is named with its place', async () => {
    expect(await read({ body: ['x'] }, { body: '{"x":1,\n "y":}' })).toMatchObject({
      code: 'invalid_json',
      detail: expect.stringMatching(/line 2, column 6/),
    });
  });

  test('a body is bounded by what it is once it is decoded, and one that is not in its coding is named', async () => {
    const found = (body: string | Buffer) => read({ body: ['x'] }, { coding: 'gzip', body });
    const ofLength = (length: number): Buffer => gzipSync(JSON.stringify({ x: 'y'.repeat(length - 8) }));
    expect(await found(ofLength(100_000))).toHaveProperty('params');
    expect(await found(ofLength(100_001))).toMatchObject({
      code: 'too_large',
      detail: 'The body is larger than the 100000 bytes that are inspected once it is decoded.',
    });
    expect(await found('{"x":"y"}')).toMatchObject({ code: 'invalid_request', paths: ['/body'] });
  });

  test.each([
    ['gzip', gzipSync],
    ['x-gzip', gzipSync],
    [' GZip ', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
    ['Identity', String],
    [' ', String],
  ] as const)('a body in the coding %j is read, and goes on without it', async (coding, packed) => {
    expect(await read({ body: ['x'] }, { coding, body: packed('{"x":"y"}') })).toMatchObject({
      params: { x: 'y' },
      body: '{"x":"y"}',
    });
  });

  test('another coding is refused with those that are taken, also where the same type came plain before', async () => {
    const ours = 'This route inspects bodies: send them without Content-Encoding';
    const tool = makeTool({ request: { method: 'POST', path: '/x', query: [], headers: {}, body: ['x'] } });
    const plain = { 'content-type': 'application/json' };
    expect(contentFault({ tool, plan: planOf(tool.call.request) }, plain)).toBeNull();
    for (const coding of ['zstd', 'gzip, gzip'])
      expect(
        contentFault({ tool, plan: planOf(tool.call.request) }, { ...plain, 'content-encoding': coding }),
      ).toMatchObject({
        code: 'unsupported_media_type',
        detail: `${ours}, or with gzip, deflate or br.`,
      });
    expect(contentFault({ tool, plan: planOf(tool.call.request) }, { ...plain, 'content-encoding': 'br' })).toBeNull();
    expect(await read({ body: ['x'] }, { coding: 'br', body: '{"x":"y"}' })).toMatchObject({
      code: 'invalid_request',
      detail: 'The body is not br.',
    });
    const file = { body: [], bodyType: 'opaque', bodyAs: 'x' } as const;
    expect(await read(file, { type: 'a/b', coding: 'br', body: 'x' })).toMatchObject({ detail: `${ours}.` });
  });

  test.each(['multipart', 'opaque'] as const)('%s has no Content-Encoding', async (bodyType) => {
    const request = bodyType === 'opaque' ? { bodyType, bodyAs: 'x' } : { bodyType };
    const type = 'multipart/form-data; boundary=b';
    const found = await read({ body: [], ...request }, { type, coding: 'gzip', body: 'x' });
    expect(found).toMatchObject({ code: 'unsupported_media_type' });
  });
});

describe('files', () => {
  let folder = '';
  let spool: Spool;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'svc-read-request-'));
    spool = await openSpool(folder);
  });
  afterAll(() => rm(folder, { recursive: true }));

  const opaque = { bodyType: 'opaque', bodyAs: 'file' } as const;
  const limits = { file: 100, request: 150, all: 200, fields: 100 };
  const multipart = (...files: readonly string[]) =>
    `${files.map((text, at) => `--b\r\nContent-Disposition: form-data; name="f${at}"; filename="f"\r\n\r\n${text}\r\n`).join('')}--b--\r\n`;

  test('are params by what is known of them; a body of any type has no filename, and a type where it came with one', async () => {
    const sha256 = createHash('sha256').update('x').digest('hex');
    const type = 'multipart/form-data; boundary=b';
    expect(await read({ body: '*', bodyType: 'multipart' }, { type, body: multipart('x'), spool })).toMatchObject({
      params: { f0: { filename: 'f', content_type: 'application/octet-stream', bytes: 1, sha256 } },
    });
    for (const sent of ['image/webp', null]) {
      const found = await read(opaque, { type: sent, body: 'x', spool });
      const known = { ...(sent === null ? {} : { content_type: sent }), bytes: 1, sha256 };
      expect('params' in found && found.params).toEqual({ file: known });
    }
    expect(await read(opaque, { type: 'nonsense', body: 'x', spool })).toMatchObject({ code: 'invalid_request' });
  });

  test('are refused by their own limit, by that of all of a body, and for now where there is no room', async () => {
    const uploads = { limits, spool };
    const refused = (body: string) => read(opaque, { type: 'a/b', body, ...uploads });
    expect(await refused('x'.repeat(100))).toHaveProperty('params');
    expect(await refused('x'.repeat(101))).toMatchObject({
      code: 'too_large',
      detail: 'A file is larger than the 100 bytes that are taken.',
    });
    for (const declared of [true, false])
      expect(await read(opaque, { type: 'a/b', body: 'x'.repeat(151), declared, ...uploads })).toMatchObject({
        code: 'too_large',
        detail: 'The body is larger than the 150 bytes that are taken.',
      });
    const other = spool.begin(limits, 'other');
    await other.open().write(Buffer.alloc(90));
    await other.open().write(Buffer.alloc(60));
    const busy = await refused('x'.repeat(60));
    expect(busy).toMatchObject({
      code: 'busy',
      retryAfterMs: 1000,
      detail: expect.stringMatching(/now: the files of .* take up .*\. Nothing was sent; send it again\.$/),
    });
    await other.discard();
    // A body that says that it is too long is not waited for.
    expect(await read(opaque, { type: 'a/b', body: 'x', length: 151, leaves: true, ...uploads })).toMatchObject({
      code: 'too_large',
    });
    // What was refused has left nothing behind, not of the files before it either.
    const type = 'multipart/form-data; boundary=b';
    const second = await read(
      { body: '*', bodyType: 'multipart' },
      {
        type,
        body: multipart('x'.repeat(50), 'y'.repeat(101)),
        spool,
        limits: { ...limits, request: 1000, fields: 1000 },
      },
    );
    expect(second).toMatchObject({ code: 'too_large' });
    expect(spool.used()).toBe(0);
  });

  test.each([
    ['in one piece', 'begin the key end', []],
    ['in two', 'begin the k', ['ey end']],
    ['a byte at a time', 'begin t', ['h', 'e', ' ', 'k', 'e', 'y', ' end']],
  ])('with the key of the caller in them go nowhere: %s', async (_how, body, later) => {
    const sent = { type: 'a/b', body, later, declared: false, spool };
    expect(await read(opaque, sent)).toMatchObject({ code: 'invalid_request', detail: expect.stringContaining('key') });
    expect(spool.used()).toBe(0);
    expect(await read(opaque, { ...sent, body: body.replace('t', 'T') })).toHaveProperty('params');
  });

  test('count with all pieces of a body, up to what is taken and no further', async () => {
    // Each is large enough to come as a piece of its own.
    const [body, rest] = ['x'.repeat(20_000), 'y'.repeat(20_000)];
    const room = { file: 50_000, request: 40_000, all: 100_000, fields: 100 };
    const taken = (...later: string[]) =>
      read(opaque, { type: 'a/b', body, later, declared: false, spool, limits: room });
    expect(await taken(rest)).toHaveProperty('params');
    expect(await taken(`${rest}y`)).toMatchObject({ code: 'too_large' });
  });

  test.each([
    ['a file', opaque, 'a/b'],
    ['JSON', { body: '*' }, 'application/json'],
  ] as const)('a body in tiny pieces is refused for that: %s', async (_what, request, type) => {
    const later = Array.from({ length: 2 * PIECES_A_TURN }, () => 'x');
    expect(await read(request, { type, body: 'x', later, declared: false, spool })).toMatchObject({
      code: 'invalid_request',
      detail: TinyPieces.DETAIL,
    });
  });

  test('the fields beside them are bounded by themselves, in bytes and in number', async () => {
    const field = (name: string, text: string) =>
      `--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${text}\r\n`;
    const form = (...fields: readonly string[]) =>
      read(
        { body: '*', bodyType: 'multipart' },
        {
          type: 'multipart/form-data; boundary=b',
          body: `${fields.join('')}--b--\r\n`,
          spool,
          limits: { file: 1e6, request: 1e6, all: 1e7, fields: 10_000 },
        },
      );
    expect(await form(field('a', 'x'.repeat(9_000)))).toHaveProperty('params');
    expect(await form(field('a', 'x'.repeat(10_001)))).toMatchObject({ code: 'invalid_request', paths: ['/body'] });
    const fields = Array.from({ length: 101 }, (_, at) => field(`f${at}`, 'x'));
    expect(await form(...fields.slice(0, 100))).toHaveProperty('params');
    expect(await form(...fields)).toMatchObject({ code: 'invalid_request', paths: ['/body'] });
  });

  test('of a caller that goes before they are whole are nobody’s', async () => {
    const type = 'multipart/form-data; boundary=b';
    for (const [request, sent] of [
      [opaque, { type: 'a/b', body: 'half' }],
      [
        { body: '*', bodyType: 'multipart' },
        { type, body: multipart('half').slice(0, -10) },
      ],
    ] as const)
      expect(await read(request, { ...sent, declared: false, leaves: true, spool })).toEqual({ kind: 'gone' });
    expect(spool.used()).toBe(0);
  });

  test('in a form that is none, or names no boundary, are refused with what is wrong', async () => {
    const form = { body: '*', bodyType: 'multipart' } as const;
    const type = 'multipart/form-data';
    expect(await read(form, { type, body: multipart('x'), spool })).toMatchObject({
      code: 'invalid_request',
      detail: expect.stringContaining('boundary'),
    });
    expect(await read(form, { type: `${type}; boundary=b`, body: 'no form', spool })).toMatchObject({
      code: 'invalid_request',
    });
    expect(spool.used()).toBe(0);
  });
});

test.each(['_method', '_METHOD', '_charset_', '$httpMethod'])(
  'a form has no %s, which changes what a request is, unless its tool names it',
  async (name) => {
    const form = { type: FORM, body: `a=1&${name}=x` };
    expect(await read({ body: '*', bodyType: 'form' }, form)).toMatchObject({
      code: 'invalid_request',
      paths: [`/body/${name}`],
    });
    expect(await read({ body: ['a', name], bodyType: 'form' }, form)).toMatchObject({
      params: { a: '1', [name]: 'x' },
    });
  },
);
