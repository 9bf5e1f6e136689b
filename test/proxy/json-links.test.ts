import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { finished } from 'node:stream/promises';
import { TLSSocket } from 'node:tls';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isJson, LinkRewriter, linkStream, LinksUnreadable, rewriteLinks } from '../../src/proxy/json-links.ts';
import { type LinkContext, originOfRequest, ownField } from '../../src/proxy/headers.ts';

const CONTEXT: LinkContext = {
  prefix: '/shop',
  upstreamUrl: 'https://api.example.com',
  origin: () => 'http://gateway:8080',
  foreignLinks: 'hide',
};
const FIELDS = [['next'], ['paging', 'next'], ['_links', '*', 'href'], ['items', '*', 'url'], ['@odata.next']];

/** The text in pieces of some bytes. */
function rewritten(text: string, size = 1_000_000, own = (address: string) => `<${address}>`): string {
  const bytes = Buffer.from(text);
  const rewriter = new LinkRewriter(FIELDS, own);
  const out: Buffer[] = [];
  for (let at = 0; at < bytes.byteLength; at += size) out.push(rewriter.write(bytes.subarray(at, at + size)));
  return Buffer.concat(out).toString();
}

describe('the fields', () => {
  it.each([
    ['{"next":"a"}', '{"next":"<a>"}'],
    ['{ "n" : 1.0e+2 , "next" : "a" }\n', '{ "n" : 1.0e+2 , "next" : "<a>" }\n'],
    ['{"next":null,"paging":{"next":"a","prev":"b"}}', '{"next":null,"paging":{"next":"<a>","prev":"b"}}'],
    [
      '{"_links":{"self":{"href":"a"},"x":{"href":"b","y":{"href":"c"}}}}',
      '{"_links":{"self":{"href":"<a>"},"x":{"href":"<b>","y":{"href":"c"}}}}',
    ],
    [
      '{"items":[{"url":"a"},[],{"no":"b"},{"url":"c"}],"url":"d"}',
      '{"items":[{"url":"<a>"},[],{"no":"b"},{"url":"<c>"}],"url":"d"}',
    ],
    ['{"a":{"next":"b"},"next":"c","next":"d"}', '{"a":{"next":"b"},"next":"<c>","next":"<d>"}'],
    // What another parser reads as the name is the name.
    [
      String.raw`{"ne\u0078t":"a\/b\u0022c"}`,
      String.raw`{"next":"<a/b\"c>"}`.replace('"next"', String.raw`"ne\u0078t"`),
    ],
    ['{"@odata.next":"a"}', '{"@odata.next":"<a>"}'],
    ['[{"next":"a"}]', '[{"next":"a"}]'],
    ['{"paging":"a","items":"b","_links":{"self":"c"}}', '{"paging":"a","items":"b","_links":{"self":"c"}}'],
    ['\t{\r\n\t"next":\t"a"\r\n}', '\t{\r\n\t"next":\t"<a>"\r\n}'],
    ['1234', '1234'],
    [`{"next":"${'a'.repeat(16_384)}"}`, `{"next":"<${'a'.repeat(16_384)}>"}`],
    ['['.repeat(1000) + ']'.repeat(1000), '['.repeat(1000) + ']'.repeat(1000)],
    ['"next"', '"next"'],
    ['\uFEFF{"next":"a"}', '\uFEFF{"next":"<a>"}'],
    ['{"a":"\\"next\\":\\"b","next":"ö"}', '{"a":"\\"next\\":\\"b","next":"<ö>"}'],
  ])('%s', (text, expected) => {
    for (const size of [1, 2, 3, 7, 1000]) expect(rewritten(text, size)).toBe(expected);
  });

  it('every other byte stays, and each address in its place is rewritten, however the text is cut', () => {
    const address = fc.string({ unit: 'grapheme' });
    const other = fc.jsonValue({ maxDepth: 3 });
    const answer = fc.record({
      a: other,
      next: address,
      paging: fc.record({ next: address, b: other }),
      items: fc.array(fc.record({ url: address })),
    });
    fc.assert(
      fc.property(answer, fc.integer({ min: 1, max: 40 }), fc.constantFrom(0, 2), (value, size, indent) => {
        const own = (text: string): string => `<${text}>`;
        const expected = structuredClone(value);
        expected.next = own(value.next);
        expected.paging.next = own(value.paging.next);
        for (const item of expected.items) item.url = own(item.url);
        expect(rewritten(JSON.stringify(value, null, indent), size)).toBe(JSON.stringify(expected, null, indent));
      }),
    );
  });

  it.each([
    '{"next":"a"}}',
    '{"a":1,}',
    '{"a" "b"}',
    "{'next':'a'}",
    '{next:"a"}',
    '[1,]',
    '[1,,2]',
    '[,1]',
    '["a":1]',
    '{"a"::1}',
    '{"a":1,b"next":2}',
    '{"a":$1}',
    '{"next":"a"]',
    '/*"*/{"next":"a"}',
    '{"next":"\\x"}',
    '{} {"next":"a"}',
    `{"next":"${'a'.repeat(16_385)}"}`,
    '['.repeat(1001),
  ])('fails on what has no one meaning: %.40s', (text) => {
    for (const size of [1, 1_000_000]) expect(() => rewritten(text, size)).toThrow(LinksUnreadable);
  });

  it('a name of any length costs no memory, and matches any', () => {
    const long = 'x'.repeat(100_000);
    expect(rewritten(`{"_links":{"${long}":{"href":"a"}},"${long}":1}`, 1000)).toBe(
      `{"_links":{"${long}":{"href":"<a>"}},"${long}":1}`,
    );
  });

  it('a name behind one that is too long is read again', () => {
    const long = 'x'.repeat(20_000);
    expect(rewritten(`{"${long}":{"next":"a"},"next":"b"}`, 1000)).toBe(`{"${long}":{"next":"a"},"next":"<b>"}`);
  });

  it('a large text is read a part at a time', async () => {
    const text = JSON.stringify({
      items: Array.from({ length: 40_000 }, (_, n) => ({ id: n, url: `https://api/${n}` })),
    });
    let turns = 0;
    let over = false;
    const count = (): void => {
      turns += 1;
      if (!over) setImmediate(count);
    };
    setImmediate(count);
    const out = await rewriteLinks(Buffer.from(text), FIELDS, (address) => address.replace('//api', '//me'));
    over = true;
    expect(out.toString()).toBe(text.replaceAll('//api', '//me'));
    expect(turns).toBeGreaterThan(3);
  });
});

describe('an address', () => {
  it.each([
    ['https://api.example.com/orders?page=2', 'http://gateway:8080/shop/orders?page=2'],
    ['https://api.example.com/orders{?page,size}', 'http://gateway:8080/shop/orders{?page,size}'],
    ['HTTPS://API.example.com:443/orders', 'http://gateway:8080/shop/orders'],
    ['https://api.example.com', 'http://gateway:8080/shop/'],
    ['/orders?page=2', '/shop/orders?page=2'],
    ['?page=2', '?page=2'],
    ['mailto:a@example.com', 'mailto:a@example.com'],
    ['https://api.example.com@evil.example/', 'svc-foreign:https://api.example.com@evil.example/'],
    ['https://api.example.com.evil.example/', 'svc-foreign:https://api.example.com.evil.example/'],
    ['//evil.example/', 'svc-foreign://evil.example/'],
    [String.raw`/\evil.example/`, String.raw`svc-foreign:/\evil.example/`],
    ['http://api.example.com/orders', 'svc-foreign:http://api.example.com/orders'],
    ['http://[', 'svc-foreign:http://['],
  ])('%s', (address, expected) => {
    expect(ownField(address, CONTEXT)).toBe(expected);
  });
  it('of another origin passes where the route says so', () => {
    expect(ownField('https://cdn.example/a', { ...CONTEXT, foreignLinks: 'pass' })).toBe('https://cdn.example/a');
  });
});

it.each([
  ['application/json', true],
  ['application/hal+json; charset=utf-8', true],
  ['Application/JSON;x', true],
  ['text/json', true],
  ['application/json-seq', false],
  ['text/html', false],
  ['application/x-ndjson', false],
  ['text/event-stream', false],
  [undefined, false],
])('%s is JSON: %s', (type, expected) => {
  expect(isJson(type)).toBe(expected);
});

it.each([
  ['gateway.example', 'https://gateway.example'],
  ['GATEWAY.example', 'https://gateway.example'],
  ['gateway.example:8443', 'http://gateway.example:8443'],
  ['other.example', 'http://other.example'],
])('links in an answer to %s lead to %s where the gateway is published with TLS', (host, origin) => {
  const request = new IncomingMessage(new Socket());
  request.headers.host = host;
  expect(originOfRequest(request, 'https://gateway.example')).toBe(origin);
});

it('where the gateway is published under no address, links lead to where the request came, with TLS or without', () => {
  for (const [socket, origin] of [
    [new Socket(), 'http://gateway:8080'],
    [new TLSSocket(new Socket()), 'https://gateway:8080'],
  ] as const) {
    const request = new IncomingMessage(socket);
    request.headers.host = 'gateway:8080';
    expect(originOfRequest(request, '')).toBe(origin);
  }
});

it('a stream whose links cannot be read fails, and passes on nothing of what cannot be', async () => {
  const stream = linkStream(FIELDS, (address) => address);
  const passed: Buffer[] = [];
  stream.on('data', (piece: Buffer) => passed.push(piece));
  stream.write('{"a":1,');
  stream.end('"next":http://elsewhere}');
  await expect(finished(stream)).rejects.toThrow(LinksUnreadable);
  expect(Buffer.concat(passed).toString()).toBe('{"a":1,');
});

it('links lead back over TLS where the request came over TLS', () => {
  const socket = Object.assign(new Socket(), { encrypted: true });
  const request = new IncomingMessage(socket);
  request.headers.host = 'gateway:8443';
  expect(originOfRequest(request, 'http://localhost:8080')).toBe('https://gateway:8443');
});
