import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request as it arrived: the order of headers means nothing, so they are sorted; their bytes are kept. */
export interface Arrived {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly string[];
  readonly body: Buffer;
}

interface Context {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: Buffer;
  /** Of the requests since the last {@link GoldenUpstream.begin}. */
  readonly n: number;
}

/** A server of an upstream's API. What a request is answered with stands in it: `mode:<name>`, in the path, query, body or header `x-mode`. */
export interface GoldenUpstream {
  readonly url: string;
  /** What arrived since the last call of this. */
  taken(): readonly Arrived[];
  /** Counts from 1 again: another part of the recording begins. */
  begin(): void;
  /** Resolves when so many answers are held back. */
  holding(count: number): Promise<void>;
  /** Answers what is held back. */
  release(): void;
  /** What `GET path` answers from now on. */
  state(path: string, value: unknown): void;
  close(): Promise<void>;
}

const EVENT = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;

/** Forms of answers, by name; `held` is added where the answers are kept. */
const MODES: Readonly<Record<string, (context: Context) => void>> = {
  ok: (context) => json(context, 201, made(context)),
  accepted: (context) => json(context, 202, made(context)),
  multi: (context) => json(context, 207, made(context)),
  empty: ({ response }) => void response.writeHead(204).end(),
  plain: ({ response }) => void response.writeHead(200, { 'content-type': 'text/plain' }).end('done'),
  bytes: ({ response }) =>
    void response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(Buffer.from([0, 255, 254, 10])),
  invalid: ({ response }) => void response.writeHead(200, { 'content-type': 'application/json' }).end('{"a":1'),
  big: (context) => json(context, 200, { ...made(context), filler: 'x'.repeat(40_000) }),
  huge: (context) => json(context, 200, { ...made(context), filler: 'x'.repeat(600_000) }),
  drop: ({ response }) => void response.socket?.destroy(),
  error: (context) => json(context, 500, { error: 'after the effect' }),
  conflict: (context) => json(context, 409, { error: 'who knows' }),
  unavailable: (context) => json(context, 503, { error: 'nothing was done' }),
  refuse: (context) => json(context, 422, { error: { code: 'refused', message: 'The card was refused' } }),
  missing: (context) => json(context, 404, { error: 'no such payment' }),
  busy: (context) => json(context, 429, { error: 'slow down' }, { 'retry-after': '2' }),
  declined: (context) => json(context, 200, { result: { status: 'declined' } }),
  never: () => {},
  half: ({ response }) => {
    response.writeHead(201, { 'content-type': 'application/json', 'content-length': 1000 });
    response.write('{"id":"half', () => response.socket?.destroy());
  },
  redirect: ({ response }) => void response.writeHead(303, { location: '/v1/elsewhere' }).end(),
  links: (context) =>
    json(
      context,
      201,
      {
        next: 'https://elsewhere.example/2',
        _links: { self: { href: '/v1/self' }, own: { href: `${originOf(context)}/v1/own` } },
      },
      {
        location: `${originOf(context)}/v1/made/7`,
        link: '</v1/made?page=2>; rel="next", <https://elsewhere.example/x>; rel="other"',
      },
    ),
  loud: (context) =>
    json(context, 200, made(context), {
      'set-cookie': ['session=1', 'other=2'],
      'svc-decision': 'denied_policy',
      'svc-receipt': 'forged',
      'x-should-retry': 'true',
      connection: 'keep-alive, x-hop',
      'x-hop': 'secret',
      'x-kept': 'yes',
      etag: '"v7"',
    }),
  cached: ({ request, response }) => {
    if (request.headers['if-none-match'] === '"v7"') response.writeHead(304, { etag: '"v7"' }).end();
    else
      response.writeHead(200, { 'content-type': 'text/plain', etag: '"v7"', 'cache-control': 'max-age=60' }).end('v7');
  },
  usage: (context) => json(context, 200, { ...made(context), usage: { input: 7, output: 5 } }),
  overdraft: (context) => json(context, 200, { usage: { input: 30, output: 15 } }),
  nousage: (context) => json(context, 200, { usage: 'much' }),
  events: ({ response }) => {
    stream(response);
    for (const n of [1, 2]) response.write(EVENT({ n }));
    response.end(`${EVENT({ usage: { total_tokens: 42 } })}data: [DONE]\n\n`);
  },
  unmeasured: ({ response }) => {
    stream(response);
    response.end(EVENT({ n: 1 }));
  },
  costly: ({ response }) => {
    stream(response);
    response.end(EVENT({ usage: { total_tokens: 4000 } }));
  },
  broken: ({ response }) => {
    stream(response);
    response.write(`${EVENT({ n: 1 })}data: {"torn`, () => response.socket?.destroy());
  },
};

function stream(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
}

function json(
  { response }: Context,
  status: number,
  value: unknown,
  headers: Record<string, string | string[]> = {},
): void {
  const text = JSON.stringify(value);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    ...headers,
  });
  response.end(text);
}

function originOf({ request }: Context): string {
  return `http://${request.headers.host ?? ''}`;
}

function made({ request, body, n }: Context): Record<string, unknown> {
  const [path] = (request.url ?? '').split('?');
  return { id: `made_${n}`, path, bytes: body.length };
}

function modeOf(request: IncomingMessage, body: Buffer): string {
  const asked = request.headers['x-mode'];
  if (typeof asked === 'string') return asked;
  return /mode:(\w+)/.exec(`${decodeURIComponent(request.url ?? '')} ${body.toString('latin1')}`)?.[1] ?? 'ok';
}

export async function startGoldenUpstream(): Promise<GoldenUpstream> {
  let arrived: Arrived[] = [];
  let count = 0;
  let held: (() => void)[] = [];
  const states = new Map<string, unknown>();
  const waiting = new Set<{ readonly count: number; resolve(): void }>();

  function hold(letGo: () => void): void {
    held.push(letGo);
    for (const one of waiting) {
      if (held.length < one.count) continue;
      waiting.delete(one);
      one.resolve();
    }
  }
  function answer(request: IncomingMessage, response: ServerResponse, body: Buffer): void {
    const { method = '', url = '' } = request;
    count += 1;
    arrived.push({ method, url, headers: sortedHeaders(request.rawHeaders), body });
    const context = { request, response, body, n: count };
    const mode = modeOf(request, body);
    const [path = ''] = url.split('?');
    if ((method === 'GET' || method === 'HEAD') && mode === 'ok')
      return json(context, 200, states.get(decodeURIComponent(path)) ?? { path: url, read: true });
    if (mode === 'held') return hold(() => json(context, 201, made(context)));
    const run = MODES[mode];
    if (run === undefined) return json(context, 400, { error: `no mode ${mode}` });
    run(context);
  }

  const server = createServer({ keepAliveTimeout: 600_000 }, (request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => answer(request, response, Buffer.concat(pieces)));
    request.on('error', () => undefined);
    response.on('error', () => undefined);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    taken: () => {
      const all = arrived;
      arrived = [];
      return all;
    },
    begin: () => {
      count = 0;
      states.clear();
    },
    holding: (wanted) =>
      held.length >= wanted
        ? Promise.resolve()
        : new Promise((resolve) => void waiting.add({ count: wanted, resolve })),
    release: () => {
      const all = held;
      held = [];
      for (const letGo of all) letGo();
    },
    state: (path, value) => void states.set(path, value),
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** `name: value` of each header, names in lower case, in the order of the names; equal names stay in their order. */
export function sortedHeaders(raw: readonly string[]): readonly string[] {
  const pairs: [string, string][] = [];
  for (let index = 0; index + 1 < raw.length; index += 2)
    pairs.push([String(raw[index]).toLowerCase(), String(raw[index + 1])]);
  return pairs.toSorted(([a], [b]) => (a < b ? -1 : Number(a > b))).map(([name, value]) => `${name}: ${value}`);
}
