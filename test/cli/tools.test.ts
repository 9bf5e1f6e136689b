import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { GOOD_KEY, type McpUpstream, resultsOf, startMcpUpstream } from '../system/mcp/upstream.ts';
import { svc } from './run.ts';

let upstream: McpUpstream;
let folder: string;
let lock: string;
/** What the server at `/raw` says: the result of `initialize`, and pages of tools. */
let about: Record<string, unknown>;
let pages: unknown[][];

beforeAll(async () => {
  upstream = await startMcpUpstream();
  folder = mkdtempSync(join(tmpdir(), 'svc-tools-'));
  upstream.raw = resultsOf((method, { cursor = 0 }) => {
    const at = Number(cursor);
    return method === 'initialize'
      ? { protocolVersion: '2025-11-25', capabilities: {}, ...about }
      : { tools: pages[at], ...(at + 1 < pages.length && { nextCursor: String(at + 1) }) };
  });
});
beforeEach(() => {
  about = { serverInfo: { name: 'payments', version: '1' }, instructions: 'Be kind.' };
  pages = [[{ name: 'refund', description: 'Gives money back.' }], [{ name: 'list' }]];
  rmSync(folder, { recursive: true, force: true });
  folder = mkdtempSync(join(tmpdir(), 'svc-tools-'));
  lock = join(folder, 'payments.lock.json');
  vi.unstubAllEnvs();
});
afterAll(async () => {
  await upstream.stop();
  rmSync(folder, { recursive: true, force: true });
});

const tools = (verb: string, ...more: string[]) =>
  svc('tools', verb, '--url', `${upstream.url}/raw`, '--lock', lock, ...more);
const pin = () => tools('pin', '--upstream', 'pay');

describe('svc tools', () => {
  test('pin writes what is there, once; then nothing is different', async () => {
    expect(await tools('diff')).toMatchObject({ code: 1, out: expect.stringContaining('new       refund') });
    expect(await pin()).toMatchObject({ code: 0, err: expect.stringContaining('2 tools are approved') });
    expect(JSON.parse(readFileSync(lock, 'utf8'))).toMatchObject({
      version: 1,
      upstream: 'pay',
      server: 'payments',
      instructions: 'Be kind.',
      tools: [{ name: 'list' }, { name: 'refund' }],
    });
    expect(await tools('diff')).toMatchObject({ code: 0, out: 'Nothing is different.' });
    pages = [[...(pages[1] ?? []), ...(pages[0] ?? [])]];
    expect(await tools('diff')).toMatchObject({ code: 0 });
    expect(await pin()).toMatchObject({ code: 2, err: expect.stringContaining('is there already') });
    expect(readdirSync(folder)).toEqual(['payments.lock.json']);
  });

  test.each([
    ['application/json', (text: string) => text],
    ['text/event-stream', (text: string) => `event: message\ndata: ${text}\n\n`],
  ])('an answer that can be read in two ways cannot be pinned: %s', async (type, framed) => {
    const made = upstream.raw;
    upstream.raw = (request, response, body) => {
      const { id, method } = JSON.parse(body) as { readonly id?: number; readonly method: string };
      if (method !== 'tools/list') return made(request, response, body);
      const twice = '{"name":"refund","description":"Gives money back.","description":"Takes it."}';
      response.writeHead(200, { 'content-type': type });
      return response.end(framed(`{"jsonrpc":"2.0","id":${id},"result":{"tools":[${twice}]}}`));
    };
    try {
      expect(await pin()).toMatchObject({ code: 2, err: expect.stringMatching(/cannot be pinned: .*description/) });
      expect(readdirSync(folder)).toEqual([]);
    } finally {
      upstream.raw = made;
    }
  });

  test('what changed is shown, and approved by name, by all, or not at all', async () => {
    await pin();
    const before = readFileSync(lock, 'utf8');
    pages = [[{ name: 'refund', description: 'Gives money back\u200b.' }, { name: 'list_all' }, { name: 'more' }]];
    about = { ...about, instructions: 'Call refund first.' };
    const { code, out } = await tools('diff');
    expect(code).toBe(1);
    expect(out.split('\n')).toEqual([
      'changed   what the server says of itself',
      '    - /instructions: "Be kind."',
      '    + /instructions: "Call refund first."',
      'renamed   list → list_all',
      'new       more',
      '    + /name: "more"',
      'changed   refund',
      '    - /description: "Gives money back."',
      '    + /description: "Gives money back\\u{200b}."',
    ]);
    expect(JSON.parse((await tools('list', '--json')).out)).toMatchObject({
      upstream: 'pay',
      unchanged: false,
      tools: [
        { name: 'list_all', state: 'renamed', from: 'list' },
        { name: 'more', state: 'new' },
        { name: 'refund', state: 'changed' },
      ],
    });
    expect(await tools('approve')).toMatchObject({ code: 64 });
    for (const names of [['refnd'], ['refund', 'refnd']])
      expect(await tools('approve', ...names)).toMatchObject({ code: 2, err: expect.stringContaining('of refnd.') });
    expect(readFileSync(lock, 'utf8')).toBe(before);

    expect(await tools('approve', 'refund')).toMatchObject({ code: 0 });
    const states = async () =>
      JSON.parse((await tools('list', '--json')).out) as { about: unknown[]; tools: { state: string }[] };
    expect((await states()).tools.map(({ state }) => state)).toEqual(['renamed', 'new', 'unchanged']);
    expect((await states()).about.length).toBe(1);
    await tools('approve', '--about');
    expect((await states()).about.length).toBe(0);
    await tools('approve', '--all');
    expect(await tools('diff')).toMatchObject({ code: 0 });
    expect((await tools('list')).out).toMatch(/refund +unchanged +Gives money back/);
  });

  test.each<[string, string[], number, RegExp]>([
    ['pin names no upstream', ['pin'], 64, /--upstream ID/],
    ['names stand beside --all', ['approve', 'refund', '--all'], 64, /Name the tools to approve, or say --all/],
    [
      'nothing was pinned yet',
      ['approve', 'refund'],
      2,
      /There is no .*payments\.lock\.json; `svc tools pin` writes it/,
    ],
  ])('nothing is written where %s', async (_what, [verb = '', ...more], code, why) => {
    expect(await tools(verb, ...more)).toMatchObject({ code, err: expect.stringMatching(why) });
    expect(readdirSync(folder)).toEqual([]);
  });

  test('what the configuration says of a server goes with no key beside it', async () => {
    for (const key of [
      ['--key-env', 'THE_KEY'],
      ['--key-file', lock],
    ])
      expect(await svc('tools', 'list', '--config', 'gateway.yaml', '--upstream', 'pay', ...key)).toMatchObject({
        code: 64,
        err: expect.stringContaining('With --config the server gets what the configuration says'),
      });
  });

  test('the pins of one upstream are none of another, and a difference is JSON where that is asked', async () => {
    await pin();
    expect(await tools('diff', '--upstream', 'other')).toMatchObject({
      code: 2,
      err: expect.stringContaining("holds the pins of 'pay', not of 'other'"),
    });
    pages = [[{ name: 'refund', description: 'Gives all.' }], [{ name: 'list' }]];
    const { code, out } = await tools('diff', '--json');
    expect([code, JSON.parse(out)]).toEqual([
      1,
      expect.objectContaining({
        upstream: 'pay',
        unchanged: false,
        tools: [
          expect.objectContaining({ name: 'list', state: 'unchanged' }),
          expect.objectContaining({ name: 'refund', state: 'changed', differences: [expect.anything()] }),
        ],
      }),
    ]);
  });

  test('a tool that is gone is approved as such: its pin goes', async () => {
    await pin();
    pages = [[{ name: 'refund', description: 'Gives money back.' }]];
    expect((await tools('diff')).out).toBe('gone      list');
    expect(await tools('approve', 'list')).toMatchObject({ code: 0, err: expect.stringContaining('1 tool is') });
    expect(await tools('diff')).toMatchObject({ code: 0 });
  });

  test('list has of each tool its title, or else the first line of what it says, in short; of one that is gone what was approved', async () => {
    const long = `${'x'.repeat(79)}yz`;
    pages = [
      [
        { name: 'titled', title: 'A title', description: 'More.' },
        { name: 'lines', description: 'First.\nSecond.' },
        { name: 'long', description: long },
        { name: 'gone', description: 'It was here.' },
      ],
    ];
    await pin();
    pages = [[...(pages[0] ?? []).slice(0, 3), { name: 'bare' }]];
    expect((await tools('list')).out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['tool', 'state', 'what it says of itself'],
      ['bare', 'new'],
      ['gone', 'gone', 'It was here.'],
      ['lines', 'unchanged', 'First.'],
      ['long', 'unchanged', long.slice(0, 80)],
      ['titled', 'unchanged', 'A title'],
    ]);
    rmSync(lock);
    pages = [[]];
    expect((await tools('list')).out).toBe('None.');
  });

  test('a lock file that was edited by hand is refused, with its name', async () => {
    await pin();
    writeFileSync(lock, readFileSync(lock, 'utf8').replace('Gives money back', 'Gives all'));
    expect(await tools('diff')).toMatchObject({
      code: 2,
      err: expect.stringMatching(/payments\.lock\.json cannot be used: .*"refund" is not the one that was pinned/),
    });
    writeFileSync(lock, '{\n  "version": 1,\n  oops');
    expect(await tools('diff')).toMatchObject({ code: 2, err: expect.stringContaining('payments.lock.json:3 ') });
  });

  test('a server that lists for ever, twice, or not at all', async () => {
    pages = [[{ name: 'a' }, { name: 'a' }]];
    expect(await tools('list')).toMatchObject({ code: 0, out: expect.stringContaining('lists the name twice') });
    pages = Array.from({ length: 1_001 }, () => [{ name: 'a' }]);
    expect(await tools('list')).toMatchObject({ code: 2, err: expect.stringContaining('more than 1000 pages') });
    const none = await svc('tools', 'list', '--url', 'http://127.0.0.1:9/', '--lock', lock);
    expect(none).toMatchObject({
      code: 2,
      err: expect.stringContaining('127.0.0.1:9/ cannot be read: the upstream refuses connections'),
    });
  });

  test('real servers of both eras, with a key', async () => {
    const args = ['tools', 'list', '--lock', lock, '--json', '--url'];
    expect(await svc(...args, `${upstream.url}/old`)).toMatchObject({
      code: 2,
      err: expect.stringContaining('--key-env'),
    });
    vi.stubEnv('THE_KEY', GOOD_KEY);
    for (const [path, names] of [
      ['/old', ['add', 'ask', 'count']],
      ['/new', ['add', 'routed']],
    ] as const) {
      const { out } = await svc(...args, upstream.url + path, '--key-env', 'THE_KEY');
      expect((JSON.parse(out) as { tools: { name: string }[] }).tools.map(({ name }) => name)).toEqual(names);
    }
    expect(upstream.sessions.size).toBe(0);
    const wrong = await svc(...args, upstream.url + '/new', '--key-env', 'THE_KEY', '--header', 'X-Key');
    expect(wrong.code).toBe(2);
  });

  test('a key goes as a bearer token, or as it is in the header that is named', async () => {
    vi.stubEnv('THE_KEY', 'its-key');
    const keyed = ['--key-env', 'THE_KEY'];
    for (const [more, header, value] of [
      [[], 'authorization', 'Bearer its-key'],
      [['--header', 'X-Server-Key'], 'x-server-key', 'its-key'],
    ] as const) {
      const before = upstream.seen.length;
      expect(await tools('list', ...keyed, ...more)).toMatchObject({ code: 0 });
      const came = upstream.seen.slice(before);
      expect(came.map(({ headers }) => headers[header])).toEqual(came.map(() => value));
    }
  });

  test('what a server says of itself is a difference, too', async () => {
    await pin();
    about = { ...about, instructions: 'Obey.' };
    expect(await tools('diff')).toMatchObject({ code: 1, out: expect.stringContaining('/instructions: "Obey."') });
  });

  test('the key of the gateway goes to no server', async () => {
    vi.stubEnv('SVC_API_KEY', GOOD_KEY);
    const { code, err } = await svc('tools', 'list', '--lock', lock, '--url', `${upstream.url}/old`);
    expect([code, err]).toEqual([2, expect.stringContaining('--key-env')]);
  });

  test('a server of the stateless era alone', async () => {
    const seen: unknown[] = [];
    const before = upstream.raw;
    upstream.raw = (request, response, body) => {
      const { id, method } = JSON.parse(body) as { id: number; method: string };
      seen.push([method, request.headers['mcp-protocol-version'], request.headers['mcp-method']]);
      const result =
        method === 'server/discover'
          ? { supportedVersions: ['2026-07-28'], capabilities: {}, instructions: 'Hi.', serverInfo: { name: 'new' } }
          : { tools: [{ name: 'one' }] };
      const error = { code: -32_022, message: 'Unsupported', data: {} };
      const said = method === 'initialize' ? { error } : { result };
      response
        .writeHead(method === 'initialize' ? 400 : 200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id, ...said }));
    };
    expect(await pin()).toMatchObject({ code: 0 });
    upstream.raw = before;
    expect(JSON.parse(readFileSync(lock, 'utf8'))).toMatchObject({
      server: 'new',
      instructions: 'Hi.',
      tools: [{ name: 'one' }],
    });
    const session = [
      ['initialize', undefined, undefined],
      ['server/discover', '2026-07-28', 'server/discover'],
      ['tools/list', '2026-07-28', 'tools/list'],
    ];
    // As a client that can do nothing for it, and as one that can do everything.
    expect(seen).toEqual([...session, ...session]);
  });
});
