import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json, JsonObject } from '../../src/json/value.ts';
import type { FormLists } from '../../src/effects/model/tool.ts';
import { isFile } from '../../src/effects/model/files.ts';
import { multipartMisfit, opaqueMisfit, writeMultipart } from '../../src/upstreams/http/multipart-body.ts';
import { takeFiles } from '../../src/upstreams/http/given-files.ts';
import { readBoundary } from '../../src/upstreams/http/part-headers.ts';
import { readMultipart } from '../../src/upstreams/http/read-multipart.ts';
import { sentBody } from '../../src/upstreams/http/sent-body.ts';
import { IN_MEMORY, openSpool, type Spool, SpoolFull, type Upload } from '../../src/upstreams/http/spool.ts';
import '../property-seed.ts';
import { makeTool } from './tool.ts';

let folder: string;
let spool: Spool;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-spool-'));
  await writeFile(join(folder, 'left-by-a-crash'), 'x');
  spool = await openSpool(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const LIMITS = { file: 10_000_000, all: 20_000_000 };

/** Reads a body that arrives in pieces of a size. */
async function read(
  body: Buffer | string,
  more: { lists?: FormLists; schema?: JsonObject; size?: number; upload?: Upload } = {},
) {
  const bytes = Buffer.from(body);
  const upload = more.upload ?? spool.begin(LIMITS, 'bot');
  async function* source(): AsyncGenerator<Buffer> {
    const size = more.size ?? 65_536;
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
  }
  const form = await readMultipart(source(), {
    boundary: 'b',
    lists: more.lists ?? 'indices',
    schema: more.schema ?? null,
    limits: { depth: 64, values: 1000 },
    fieldBytes: 100_000,
    openFile: () => upload.open(),
  });
  return { form, upload };
}

const lines = (...all: string[]): string => all.join('\r\n');
const disposition = (rest: string): string => `Content-Disposition: form-data; ${rest}`;
/** A body of one part. */
const part = (head: string, content = 'x'): string => lines('--b', head, '', content, '--b--', '');
const sha = (bytes: Buffer | string): string => createHash('sha256').update(bytes).digest('hex');

describe('multipart is read into params', () => {
  test('fields, nested names and files, wherever the chunks are cut', async () => {
    const body = lines(
      '--b',
      disposition('name="purpose"'),
      '',
      'fine-tune',
      '--b',
      disposition('name="expires_after[anchor]"'),
      'Content-Type: text/plain; charset=utf-8',
      '',
      'created\r\n--not a boundary\r\n-',
      '--b',
      disposition('name="file"; filename="größe.bin"'),
      'Content-Type: image/png',
      'Content-Transfer-Encoding: binary',
      'Content-Length: 5',
      '',
      '\r\n-\r\n',
      '--b',
      disposition("name=other; filename=a.txt; filename*=utf-8''a.txt"),
      '',
      '',
      '--b',
      disposition("NAME=third; filename*=UTF-8''%C3%A4.txt"),
      'Content-Transfer-Encoding: BINARY',
      '',
      '',
      '--b--',
      '',
    );
    for (const size of [1, 2, 3, 7, 1000]) {
      const { form, upload } = await read(body, { size });
      expect(form, String(size)).toEqual({
        ok: true,
        members: {
          purpose: 'fine-tune',
          expires_after: { anchor: 'created\r\n--not a boundary\r\n-' },
          file: { filename: 'größe.bin', content_type: 'image/png', bytes: 5, sha256: sha('\r\n-\r\n') },
          other: { filename: 'a.txt', content_type: 'application/octet-stream', bytes: 0, sha256: sha('') },
          third: { filename: 'ä.txt', content_type: 'application/octet-stream', bytes: 0, sha256: sha('') },
        },
      });
      await upload.discard();
    }
    expect(spool.used()).toBe(0);
  });

  test('the schema says which texts are numbers; lists of files', async () => {
    const body = lines(
      '--b',
      disposition('name="n"'),
      '',
      '7',
      '--b',
      disposition('name="image[]"; filename="a"'),
      '',
      'A',
      '--b',
      disposition('name="image[]"; filename="b"'),
      '',
      'B',
      '--b--',
    );
    const { form, upload } = await read(body, { schema: { properties: { n: { type: 'integer' } } } });
    await upload.discard();
    expect(form).toMatchObject({ ok: true, members: { n: 7, image: [{ filename: 'a' }, { filename: 'b' }] } });
  });

  test('undici reads what is written as it was meant', async () => {
    const name = fc.stringMatching(/^[a-z][a-z0-9 é.]{0,5}[a-z]$/);
    const file = fc.record({
      filename: fc.stringMatching(/^[a-z0-9 é€.-]{0,8}[a-z]$/),
      content_type: fc.constantFrom('image/png', 'text/plain', 'application/json'),
      bytes: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
    });
    const field = fc.string({ unit: 'grapheme', maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(fc.dictionary(name, fc.oneof(field, file), { minKeys: 1, maxKeys: 5 }), async (members) => {
        const contents = new Map<string, Buffer>();
        const params: Record<string, Json> = {};
        const folded = new Set<string>();
        for (const [key, value] of Object.entries(members)) {
          folded.add(key.toLowerCase().replaceAll(/[. ]/g, '_'));
          if (typeof value === 'string') params[key] = value;
          else {
            const sha256 = sha(value.bytes);
            contents.set(sha256, value.bytes);
            const { filename, content_type } = value;
            params[key] = { filename, content_type, bytes: value.bytes.byteLength, sha256 };
          }
        }
        if (folded.size < Object.keys(members).length) return;
        for (const [key, value] of Object.entries(params))
          if (multipartMisfit(key, value, { lists: 'indices', schema: null }) !== null) return;
        const body = writeMultipart(params, 'indices');
        if (body === null) throw new Error('nothing was written');
        const bytes = Buffer.concat(
          body.pieces.map((piece) =>
            Buffer.isBuffer(piece) ? piece : (contents.get(piece.sha256) ?? Buffer.alloc(0)),
          ),
        );
        expect(bytes.byteLength).toBe(body.length);
        const type = body.contentType ?? '';
        const theirs = await new Response(new Uint8Array(bytes), { headers: { 'content-type': type } }).formData();
        for (const [key, value] of Object.entries(params)) {
          const got = theirs.get(key);
          if (isFile(value) && got instanceof File)
            expect([got.name, got.type, sha(Buffer.from(await got.arrayBuffer()))]).toEqual([
              value.filename,
              value.content_type,
              value.sha256,
            ]);
          else expect(got).toBe(value);
        }
        expect([...theirs.keys()]).toHaveLength(Object.keys(params).length);
        // And we read our own writing.
        const named = readBoundary(type);
        if ('message' in named) throw new Error(named.message);
        const upload = spool.begin(LIMITS, 'bot');
        const again = await readMultipart(
          (async function* () {
            yield bytes;
          })(),
          {
            boundary: named.boundary,
            lists: 'indices',
            schema: null,
            limits: { depth: 64, values: 1000 },
            fieldBytes: 100_000,
            openFile: () => upload.open(),
          },
        );
        expect(again).toEqual({ ok: true, members: params });
        await upload.discard();
      }),
    );
  });
});

describe('what servers read in different ways is refused, with its place', () => {
  const field = disposition('name="a"');
  test.each<[string, string, string]>([
    ['nothing', '', ''],
    ['text before the first boundary', `preamble\r\n${part(field)}`, ''],
    ['a line end before it', `\r\n${part(field)}`, ''],
    ['line ends of one character', part(field).replaceAll('\r\n', '\n'), ''],
    ['one line end of one character', part(field).replace('\r\n\r\nx', '\n\nx'), ''],
    ['another boundary', part(field).replaceAll('--b', '--c'), ''],
    ['a boundary that goes on', part(field).replace('x\r\n--b', 'x\r\n--bb'), ''],
    ['a boundary with padding', part(field).replace('--b\r\n', '--b \r\n'), ''],
    ['a boundary inside a line', part(field, 'x--b'), '/a'],
    ['a boundary behind a bare line end', part(field, 'x\n--b\ny'), '/a'],
    ['no line end before the boundary', lines('--b', field, '', '--b--', ''), '/a'],
    ['no last boundary', part(field).replace('--b--', ''), ''],
    ['half of the last boundary', part(field).replace('--b--\r\n', '--b-'), ''],
    ['something behind the last boundary', `${part(field)}more`, ''],
    ['half of its last line end', part(field).slice(0, -1), ''],
    ['two bytes in place of its last line end', `${part(field).slice(0, -2)}xx`, ''],
    ['another body behind it', `${part(field)}${part(disposition('name="c"'))}`, ''],
    ['a name twice', lines('--b', field, '', '1', '--b', field, '', '2', '--b--', ''), '/a'],
    ['a name in two cases', lines('--b', field, '', '1', '--b', disposition('name="A"'), '', '2', '--b--', ''), '/A'],
    [
      'a field and a file of one name',
      lines('--b', field, '', '1', '--b', disposition('name="a"; filename="f"'), '', '2', '--b--', ''),
      '/a',
    ],
    ['no headers', lines('--b', '', 'x', '--b--', ''), ''],
    ['no Content-Disposition', part('Content-Type: text/plain'), ''],
    ['an attachment', part('Content-Disposition: attachment; name="a"'), ''],
    ['two Content-Dispositions', part(lines(field, disposition('name="c"'))), ''],
    ['a header twice', part(lines(field, 'Content-Type: text/plain', 'content-type: text/html')), ''],
    ['a folded header', part(lines('Content-Disposition: form-data;', ' name="a"')), ''],
    ['a folded parameter', part(lines(field, ' ; filename="f"')), ''],
    ['a space before the colon', part('Content-Disposition : form-data; name="a"'), ''],
    ['a header that would not go on', part(lines(field, 'X-Role: admin')), ''],
    ['a line that is no header', part(lines(field, 'oops')), ''],
    ['a bare CR in a header', part('Content-Disposition: form-data; name="a\rb"'), ''],
    ['a NUL in a name', part(disposition('name="a\u0000b"')), ''],
    ['no name', part(disposition('filename="f"')), ''],
    ['an empty name', part(disposition('name=""')), ''],
    ['two names', part(disposition('name="a"; name="b"')), ''],
    ['two filenames', part(disposition('name="a"; filename="f"; filename="g"')), ''],
    ['an escaped quote', part(disposition('name="a\\"; filename=\\"x"')), ''],
    ['an encoded quote', part(disposition('name="a%22"')), ''],
    ['an encoded line break, in capitals', part(disposition('name="a%0D%0Ab"')), ''],
    ['a name without a quote at its end', part(disposition('name="a')), ''],
    ['something behind a name', part(disposition('name="a"x')), ''],
    ['another parameter', part(disposition('name="a"; size=3')), ''],
    ['an empty filename', part(disposition('name="a"; filename=""')), '/a'],
    ['a path', part(disposition('name="a"; filename="../f"')), '/a'],
    ['a path of Windows', part(disposition('name="a"; filename="C:\\f"')), '/a'],
    ['two different filenames', part(disposition('name="a"; filename="f"; filename*=utf-8\'\'g')), '/a'],
    ['a filename in another charset', part(disposition('name="a"; filename*=iso-8859-1\'\'f')), '/a'],
    ['a path of one dot', part(disposition('name="a"; filename="."')), '/a'],
    ['a parameter inside a name', part(disposition('name="a; filename=f"')), ''],
    ['base64', part(lines(field, 'Content-Transfer-Encoding: base64')), '/a'],
    ['quoted-printable', part(lines(field, 'Content-Transfer-Encoding: quoted-printable')), '/a'],
    ['another charset', part(lines(field, 'Content-Type: text/plain; charset=utf-16')), '/a'],
    ['a field of another type', part(lines(field, 'Content-Type: application/json')), '/a'],
    ['a field of another kind of text', part(lines(field, 'Content-Type: text/html')), '/a'],
    ['a field within a field', part(lines(field, 'Content-Type: multipart/mixed; boundary=c')), '/a'],
    ['a wrong length', part(lines(field, 'Content-Length: 2')), '/a'],
    ['a length that is none', part(lines(field, 'Content-Length: +1')), '/a'],
    ['__proto__', part(disposition('name="__proto__"')), '/__proto__'],
    [
      'fields that look like a file',
      lines(
        '--b',
        disposition('name="f[bytes]"'),
        '',
        '1',
        '--b',
        disposition('name="f[sha256]"'),
        '',
        'a'.repeat(64),
        '--b--',
        '',
      ),
      '',
    ],
    ['long headers', part(`${field}\r\nContent-Type: text/plain`.padEnd(8_193, ' ')), ''],
    ['a field and its headers of 100,001 bytes', part(field, 'x'.repeat(100_001 - field.length)), ''],
    ['a long filename', part(disposition(`name="a"; filename="${'f'.repeat(1025)}"`)), '/a'],
  ])('%s', async (_name, body, path) => {
    const schema: JsonObject = { properties: { f: { properties: { bytes: { type: 'integer' } } } } };
    for (const size of [1, 65_536]) {
      const { form, upload } = await read(body, { size, schema });
      expect(form).toMatchObject({ ok: false, path });
      await upload.discard();
    }
    expect(spool.used()).toBe(0);
  });

  test('half a line end, or more than one, behind the last boundary', async () => {
    for (const [end, isOk] of [
      ['\r\n', true],
      ['', true],
      ['\r', false],
      ['\n', false],
      ['\r\n\r\n', false],
    ] as const) {
      const { form, upload } = await read(`${part(field).slice(0, -2)}${end}`, { size: 1 });
      await upload.discard();
      expect([end, form.ok]).toEqual([end, isOk]);
    }
  });

  test('headers that do not end are not waited for', async () => {
    const { form, upload } = await read(`--b\r\n${field}`.padEnd(9_000, 'x'), { size: 1_000 });
    await upload.discard();
    expect(form).toMatchObject({ ok: false, message: expect.stringContaining('headers of more than 8192 bytes') });
  });

  test.each([
    ['a field and its headers of 100,000 bytes', part(field, 'x'.repeat(100_000 - field.length))],
    ['headers of 8,192 bytes', part(`${field}\r\nContent-Type: text/plain`.padEnd(8_192, ' '))],
    ['a filename of 1,024 characters', part(disposition(`name="a"; filename="${'f'.repeat(1024)}"`))],
  ])('but %s is what may be', async (_, body) => {
    const { form, upload } = await read(body);
    await upload.discard();
    expect(form.ok).toBe(true);
  });

  test('bytes that are not UTF-8, in a field and in a name', async () => {
    for (const text of [part(field, 'ÿ'), part(disposition('name="ÿ"'))])
      expect((await read(Buffer.from(text, 'latin1'))).form.ok).toBe(false);
  });

  test.each<[string]>([
    ['multipart/form-data'],
    ['multipart/form-data; boundary='],
    ['multipart/form-data; boundary=a; boundary=b'],
    ['multipart/form-data; boundary=a; charset=utf-16'],
    ['multipart/form-data; boundary=a; x=y'],
    ['multipart/form-data; boundary="a'],
    ['multipart/form-data; boundary="a "'],
    [`multipart/form-data; boundary=${'a'.repeat(71)}`],
    ['multipart/form-data; boundary=a b'],
    ['multipart/form-data; boundary="a;b"'],
  ])('the boundary of %s', (type) => {
    expect(readBoundary(type)).toHaveProperty('message');
  });
});

describe('files that come through the effects API', () => {
  const bytes = { bytes: 1, sha256: sha('x') };
  const file = { filename: 'f', content_type: 'a/b', ...bytes };
  const misfit = (name: string, value: Json) => multipartMisfit(name, value, { lists: 'indices', schema: null });

  test.each<[string, string, JsonObject, RegExp]>([
    ['without a filename', 'a', { content_type: 'a/b', ...bytes }, /without a filename/],
    ['with an empty filename', 'a', { ...file, filename: '' }, /without a filename/],
    ['with a quote in its filename', 'a', { ...file, filename: 'f"' }, /a quote or a backslash/],
    ['with a slash in its filename', 'a', { ...file, filename: 'a/f' }, /a slash/],
    ['with an encoded quote in its filename', 'a', { ...file, filename: 'f%22' }, /%22/],
    ['with a line break in its filename', 'a', { ...file, filename: 'f\r\nX-Role: admin' }, /a control character/],
    ['with a path of two dots for its filename', 'a', { ...file, filename: '..' }, /a filename that is a path/],
    ['of a type that is none', 'a', { ...file, content_type: 'a' }, /no media type/],
    ['under a name with a quote', 'a"', file, /a quote or a backslash/],
    ['in a part that has a quote in its name', 'a', { 'b"': file }, /a quote or a backslash/],
  ])('one %s is refused as in a body', (_, name, value, message) => {
    expect(misfit('a', file)).toBeNull();
    expect(misfit(name, value)).toMatch(message);
  });

  test('have their bytes taken out: what remains is what a request with the same files has', () => {
    const request = {
      method: 'POST',
      path: '/f',
      query: ['q'],
      headers: {},
      body: '*',
      bodyType: 'multipart',
    } as const;
    const taken = (params: JsonObject, tool = makeTool({ request })) => {
      const found = takeFiles(tool, params);
      return { ...found, faults: found.faults.map(({ path }) => path) };
    };
    const given = { filename: 'f', data: 'eA==' };
    const known = { filename: 'f', content_type: 'application/octet-stream', ...bytes };
    expect(taken({ a: given, b: [{ c: { ...given, content_type: 'a/b' } }] })).toMatchObject({
      params: { a: known, b: [{ c: { ...known, content_type: 'a/b' } }] },
      faults: [],
      files: { bytes: 1 },
    });
    // Another spelling, other members, another place: no file, or none that is taken.
    expect(taken({ a: [{ 'b/c': [given, { ...given, data: '!' }] }] }).faults).toEqual(['/params/a/0/b~1c/1/data']);
    expect(taken({ a: { ...given, data: 'eA' }, b: { ...given, data: 'eB==' }, c: file }).faults).toEqual([
      '/params/a/data',
      '/params/b/data',
      '/params/c',
    ]);
    for (const other of [{ a: { ...given, more: 1 } }, { q: given }, { a: { ...given, filename: 1 } }])
      expect(taken(other)).toMatchObject({ params: other, faults: [], files: { bytes: 0 } });
    const opaque = makeTool({ request: { ...request, body: [], bodyAs: 'a', bodyType: 'opaque' } });
    expect(taken({ a: { data: 'eA==' } }, opaque).params).toEqual({ a: bytes });
    expect(taken({ a: { data: 'eA==', content_type: 'a/b' } }, opaque).params).toEqual({
      a: { content_type: 'a/b', ...bytes },
    });
    expect(taken({ a: given }, opaque).params).toEqual({ a: given });
  });

  test.each<[string, Json, RegExp | null]>([
    ['bytes and a type', { content_type: 'a/b', ...bytes }, null],
    ['bytes without a type', bytes, null],
    ['bytes with a filename', file, /no filename/],
    ['bytes of a type that is none', { content_type: 'a', ...bytes }, /no media type/],
    ['bytes of a type with a parameter', { content_type: 'a/b; c="d e"', ...bytes }, null],
    ['bytes of a type with a line end', { content_type: 'a/b; c\r\nx-role: admin', ...bytes }, /no media type/],
    ['bytes of a type beyond ASCII', { content_type: 'a/b; c=é', ...bytes }, /no media type/],
    ['bytes of a type of 255 characters', { content_type: `a/${'b'.repeat(253)}`, ...bytes }, null],
    ['bytes of a type of 256 characters', { content_type: `a/${'b'.repeat(254)}`, ...bytes }, /no media type/],
    ['a text', 'x', /the bytes of the body/],
    ['a JSON object', { a: 1 }, /the bytes of the body/],
  ])('a body of any type is bytes, with a type where one is known: %s', (_, value, message) => {
    expect(opaqueMisfit(value) ?? '').toMatch(message ?? /^$/);
  });
});

describe('the spool', () => {
  test('has removed what a crash left, keeps small files in memory and large ones without a name', async () => {
    expect(await readdir(folder)).toEqual([]);
    const upload = spool.begin(LIMITS, 'bot');
    const contents = [Buffer.alloc(100, 1), Buffer.alloc(IN_MEMORY, 2), Buffer.alloc(300_000, 3), Buffer.alloc(0)];
    const digests: string[] = [];
    for (const content of contents) {
      const file = upload.open();
      for (let at = 0; at < content.length; at += 10_000) await file.write(content.subarray(at, at + 10_000));
      digests.push(file.end().sha256);
    }
    await upload.kept();
    expect(digests).toEqual(contents.map(sha));
    expect(spool.used()).toBe(100 + IN_MEMORY + 300_000);
    expect(await readdir(folder)).toEqual([]);
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
    for (const [index, content] of contents.entries()) {
      if (content.length === 0) continue;
      const pieces: Buffer[] = [];
      for await (const piece of upload.files.read(digests[index] ?? '')) pieces.push(piece);
      expect(Buffer.concat(pieces).equals(content)).toBe(true);
    }
    await upload.discard();
    await upload.discard();
    expect(spool.used()).toBe(0);
    // What still arrives of a request that is over takes no room.
    expect(() => upload.open().write(Buffer.alloc(1))).toThrow('the request is over');
    expect(spool.used()).toBe(0);
    await expect(
      upload.files
        .read(digests[0] ?? '')
        [Symbol.asyncIterator]()
        .next(),
    ).rejects.toThrow('not there');
  });

  test('takes as much as there is room for', async () => {
    const limits = { file: 100, all: 100 };
    const mine = spool.begin(limits, 'bot');
    await mine.open().write(Buffer.alloc(75));
    const other = spool.begin(limits, 'other');
    await other.open().write(Buffer.alloc(18));
    const last = spool.begin(limits, 'last');
    await last.open().write(Buffer.alloc(5));
    expect(spool.used()).toBe(98);
    for (const upload of [mine, other, last]) await upload.discard();
  });

  test('takes no more than there is room for, and no file that is too large', async () => {
    const limits = { file: 100, all: 150 };
    const first = spool.begin(limits, 'bot');
    expect(() => first.open().write(Buffer.alloc(101))).toThrow('more than 100 bytes');
    await first.open().write(Buffer.alloc(100));
    const second = spool.begin(limits, 'other');
    expect(() => second.open().write(Buffer.alloc(60))).toThrow(SpoolFull);
    await first.discard();
    await second.open().write(Buffer.alloc(60));
    await second.discard();
    expect(spool.used()).toBe(0);
  });

  test('one agent cannot take the room of all: others get theirs, whatever it sends', async () => {
    const limits = { file: 1000, all: 1600 };
    const mine = Array.from({ length: 3 }, () => spool.begin(limits, 'greedy'));
    for (const upload of mine) await upload.open().write(Buffer.alloc(400));
    const more = spool.begin(limits, 'greedy');
    expect(() => more.open().write(Buffer.alloc(1))).toThrow('its share of the room');
    const other = spool.begin(limits, 'modest');
    await other.open().write(Buffer.alloc(300));
    const third = spool.begin(limits, 'third');
    await third.open().write(Buffer.alloc(75));
    // What others took, it does not get back before they are done.
    await mine[0]?.discard();
    expect(() => more.open().write(Buffer.alloc(119))).toThrow(SpoolFull);
    await more.open().write(Buffer.alloc(118));
    for (const upload of [...mine, more, other, third]) await upload.discard();
    expect(spool.used()).toBe(0);
    await spool.begin(limits, 'greedy').open().write(Buffer.alloc(1000));
  });

  test('what goes to the disk is readable by nobody else, and has no name', async () => {
    const own = join(folder, 'own');
    const upload = (await openSpool(own)).begin(LIMITS, 'bot');
    await upload.open().write(Buffer.alloc(IN_MEMORY + 1));
    expect([(await stat(own)).mode & 0o777, await readdir(own)]).toEqual([0o700, []]);
    const open = '/proc/self/fd';
    const links = (await readdir(open)).map(async (fd) => ({
      fd,
      to: await readlink(join(open, fd)).catch(() => ''),
    }));
    const spooled = (await Promise.all(links)).filter(({ to }) => to.startsWith(own));
    const modes = await Promise.all(spooled.map(async ({ fd }) => (await stat(join(open, fd))).mode & 0o777));
    expect(modes).toEqual([0o600]);
    await upload.discard();
    // Nor does it stay, held open by this process.
    const left = await Promise.all(spooled.map(({ fd }) => readlink(join(open, fd)).catch(() => '')));
    expect(left.filter((to) => to.startsWith(own))).toEqual([]);
  });

  test('a disk that does not take the files is said as such', async () => {
    const gone = await mkdtemp(join(tmpdir(), 'svc-spool-'));
    const broken = await openSpool(gone);
    await rm(gone, { recursive: true });
    const upload = broken.begin(LIMITS, 'bot');
    await expect(upload.open().write(Buffer.alloc(IN_MEMORY + 1))).rejects.toThrow(SpoolFull);
    await upload.discard();
    // What is kept in memory needs no disk.
    const small = broken.begin(LIMITS, 'bot');
    await small.open().write(Buffer.alloc(IN_MEMORY));
    await small.kept();
    await small.discard();
    expect(broken.used()).toBe(0);
  });
});

test('an empty file is sent as nothing, and nobody asks for its bytes', async () => {
  const empty = { filename: 'f', content_type: 'a/b', bytes: 0, sha256: sha('') };
  const body = writeMultipart({ f: empty, a: 'x' }, 'indices');
  if (body === null) throw new Error('nothing was written');
  const noFiles = {
    bytes: 0,
    // eslint-disable-next-line require-yield -- nothing is there
    async *read(): AsyncGenerator<Buffer> {
      throw new Error('the bytes of a file of the call are not there');
    },
  };
  const pieces: Buffer[] = [];
  let isWhole = false;
  const sent = sentBody(
    body,
    noFiles,
    () => undefined,
    () => (isWhole = true),
  );
  for await (const piece of sent.pieces()) pieces.push(piece);
  expect([Buffer.concat(pieces).byteLength, isWhole]).toEqual([body.length, true]);
  expect(writeMultipart({}, 'indices')).toBeNull();
});

test('who writes a part cannot know the boundary, which all parts together make', () => {
  const boundaryOf = (params: JsonObject) => writeMultipart(params, 'indices')?.contentType;
  const file = { filename: 'f', content_type: 'a/b', bytes: 1, sha256: sha(Buffer.from('x')) };
  const first = boundaryOf({ a: 'x', f: file });
  expect(boundaryOf({ a: 'x', f: { ...file } })).toBe(first);
  expect(boundaryOf({ a: 'y', f: file })).not.toBe(first);
  expect(boundaryOf({ a: 'x', f: { ...file, sha256: sha(Buffer.from('y')) } })).not.toBe(first);
});

test.each(['multipart', 'opaque'])(
  'a file in a body that is %s, and is not what policy saw, is never sent whole',
  async (kind) => {
    const right = Buffer.alloc(150_000, 1);
    const file = { bytes: right.length, sha256: sha(right) };
    const body =
      kind === 'opaque'
        ? { contentType: 'a/b', length: right.length, pieces: [file] }
        : writeMultipart({ f: { filename: 'f', content_type: 'a/b', ...file } }, 'indices');
    if (body === null) throw new Error('nothing was written');
    const sending = async (stored: Buffer) => {
      let isWhole = false;
      let length = 0;
      async function* read(): AsyncGenerator<Buffer> {
        for (let at = 0; at < stored.length; at += 65_536) yield stored.subarray(at, at + 65_536);
      }
      const sent = sentBody(
        body,
        { bytes: stored.length, read },
        () => undefined,
        () => {
          isWhole = true;
        },
      );
      try {
        for await (const piece of sent.pieces()) length += piece.byteLength;
      } catch (error) {
        expect(String(error)).toContain('not what it was');
      }
      return { isWhole, missing: body.length - length > 0 };
    };
    expect(await sending(right)).toEqual({ isWhole: true, missing: false });
    const other = Buffer.from(right);
    other[149_999] = 2;
    for (const stored of [other, right.subarray(0, 149_999), Buffer.concat([right, right])])
      expect(await sending(stored)).toEqual({ isWhole: false, missing: true });
  },
);
