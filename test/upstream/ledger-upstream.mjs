// A real upstream for tests: a process of its own with a ledger file of what arrived and what happened. The ledger is
// the truth that decisions are checked against. It misbehaves on demand:
//   - `"mode:<name>"` as the value of any string in the body, or of the query's `mode`, for that one request;
//   - `POST /__mode {mode, times, late_ms, latency_ms, path}` for the next requests;
//   - `POST /__release` for the answers that the mode `held` keeps back;
//   - `--faults '{"drop_after":0.1,…}' --seed N`: by seeded chance.
// Every request that is not GET or HEAD is an effect, unless its mode says otherwise.
import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';

const { values: options } = parseArgs({
  options: {
    ledger: { type: 'string' },
    port: { type: 'string', default: '0' },
    seed: { type: 'string', default: '1' },
    faults: { type: 'string', default: '{}' },
    'late-ms': { type: 'string', default: '1000' },
    'latency-ms': { type: 'string', default: '0' },
    // Name of a header by which repeated requests are recognised: no second effect, the same answer.
    dedupe: { type: 'string' },
  },
});

const file = options.ledger === undefined ? null : openSync(options.ledger, 'a');
const requests = [];
const effects = [];
const states = new Map();
const deduped = new Map();
const perSocket = new WeakMap();
/** Answers that wait for their release. */
let held = [];
const faults = Object.entries(JSON.parse(options.faults));
const settings = {
  mode: 'ok',
  times: 0,
  path: null,
  lateMs: Number(options['late-ms']),
  latencyMs: Number(options['latency-ms']),
};
const random = mulberry32(Number(options.seed));

function mulberry32(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/**
 * When the event loop was last seen to run, ms, and the time before. A request that is read now may have come at any time
 * since the earlier one: the process may have been stopped, or have got no time on a busy machine.
 */
const BEAT_MS = 20;
let beats = [performance.now(), performance.now()];
setInterval(() => {
  beats = [beats[1], performance.now()];
}, BEAT_MS).unref();
/** The earliest that each request may have arrived. */
const arrivals = new WeakMap();

/** Writes one line; an effect is on the disk before anybody hears of it. */
function record(list, entry, durable) {
  list.push(entry);
  if (file === null) return;
  writeSync(file, `${JSON.stringify(entry)}\n`);
  if (durable) fsyncSync(file);
}

function modeFor(path, query, body) {
  const asked = query.get('mode') ?? findMode(body);
  if (asked !== null) return asked;
  if (settings.times > 0 && (settings.path === null || settings.path === path)) {
    settings.times -= 1;
    return settings.mode;
  }
  let draw = random();
  for (const [name, chance] of faults) {
    if (draw < chance) return name;
    draw -= chance;
  }
  return 'ok';
}

function findMode(value) {
  if (typeof value === 'string') return /^mode:(\w+)/.exec(value)?.[1] ?? null;
  if (typeof value !== 'object' || value === null) return null;
  for (const member of Object.values(value)) {
    const found = findMode(member);
    if (found !== null) return found;
  }
  return null;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function happen(request) {
  const effect = {
    event: 'effect',
    n: effects.length + 1,
    request: request.n,
    method: request.method,
    path: request.path,
    body: request.body,
    key: request.key,
    waited_ms: Math.round(performance.now() - arrivals.get(request)),
  };
  record(effects, effect, true);
  return {
    id: `ef_${effect.n}`,
    n: effect.n,
    path: request.path,
    ...(request.body && typeof request.body === 'object' ? { received: request.body } : {}),
  };
}

/** What happened more than once: path and body. */
function twice() {
  const times = new Map();
  for (const { path, body } of effects) {
    const what = `${path} ${JSON.stringify(body)}`;
    times.set(what, (times.get(what) ?? 0) + 1);
  }
  return [...times].filter(([, count]) => count > 1).map(([what]) => what);
}

function json(response, status, body, headers = {}) {
  const text = JSON.stringify(body);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    ...headers,
  });
  response.end(text);
}

function cut(response, status, framing) {
  response.writeHead(status, { 'content-type': 'application/json', ...framing });
  response.write('{"id":"half');
  // The status line and the half of the body are on the wire before the connection ends.
  setTimeout(() => response.socket?.destroy(), 20);
}

const MODES = {
  ok: ({ request, response }) => json(response, 201, happen(request)),
  accepted: ({ request, response }) => json(response, 202, happen(request)),
  multi: ({ request, response }) => json(response, 207, happen(request)),
  empty: ({ request, response }) => {
    happen(request);
    response.writeHead(204).end();
  },
  plain: ({ request, response }) => {
    happen(request);
    response.writeHead(200, { 'content-type': 'text/plain' }).end('done');
  },
  big: ({ request, response }) => json(response, 200, { ...happen(request), filler: 'x'.repeat(300_000) }),
  drop_after: ({ request, response }) => {
    happen(request);
    response.socket.destroy();
  },
  reset_after: ({ request, response }) => {
    happen(request);
    response.socket.resetAndDestroy();
  },
  twice: ({ request, response }) => {
    happen(request);
    json(response, 201, happen(request));
  },
  drop_before: ({ response }) => response.socket.destroy(),
  reset_reused: (context) => {
    if (context.nth === 1) MODES.ok(context);
    else MODES.reset_after(context);
  },
  error_after: ({ request, response }) => {
    happen(request);
    json(response, 500, { error: 'after the effect' });
  },
  unavailable: ({ response }) => json(response, 503, { error: 'nothing was done' }),
  refuse: ({ response }) => json(response, 422, { error: 'refused' }),
  late: ({ request, response }) => {
    const made = happen(request);
    setTimeout(() => json(response, 201, made), settings.lateMs);
  },
  late_effect: ({ request, response }) => setTimeout(() => json(response, 201, happen(request)), settings.lateMs),
  held: ({ request, response }) => {
    const made = happen(request);
    held.push(() => json(response, 201, made));
  },
  never: () => {},
  half: ({ request, response }) => {
    happen(request);
    cut(response, 201, { 'content-length': 1000 });
  },
  half_chunked: ({ request, response }) => {
    happen(request);
    cut(response, 201, { 'transfer-encoding': 'chunked' });
  },
  half_error: ({ request, response }) => {
    happen(request);
    cut(response, 500, { 'content-length': 1000 });
  },
  stalled: ({ request, response }) => {
    happen(request);
    response.writeHead(201, { 'content-type': 'application/json', 'content-length': 1000 });
    response.write('{"id":"half');
  },
  redirect: ({ request, response }) => {
    happen(request);
    response.writeHead(303, { location: '/v1/elsewhere' }).end();
  },
  malformed: ({ request, response }) => {
    happen(request);
    response.socket.end('HTTP/1.1 2OO fine\r\nwhat: ever\r\n\r\n');
  },
  bad_chunk: ({ response }) => {
    response.socket.end('HTTP/1.1 200 OK\r\netag: "1"\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhi');
  },
  drip: ({ response }) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    let left = 10;
    const timer = setInterval(() => {
      response.write(`data: ${left}\n\n`);
      left -= 1;
      if (left > 0) return;
      clearInterval(timer);
      response.end();
    }, 250);
  },
  stall: ({ response }) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: 1\n\n');
  },
  not_modified_length: ({ response }) => {
    response.socket.write('HTTP/1.1 304 Not Modified\r\netag: "1"\r\ncontent-length: 20\r\n\r\n');
  },
  early_hints: ({ request, response }) => {
    response.writeEarlyHints({ link: '</style.css>; rel=preload' });
    json(response, 201, happen(request));
  },
  loud: ({ request, response }) =>
    json(response, 200, happen(request), {
      'set-cookie': ['session=1', 'other=2'],
      'svc-decision': 'denied_policy',
      'svc-receipt': 'forged',
      'x-should-retry': 'true',
      connection: 'keep-alive, x-hop',
      'x-hop': 'secret',
      'x-kept': 'yes',
    }),
};

function answer(incoming, response, text) {
  const url = new URL(incoming.url, 'http://upstream');
  const path = url.pathname;
  if (path.startsWith('/__')) return control(incoming, response, url, text);
  const nth = (perSocket.get(incoming.socket) ?? 0) + 1;
  perSocket.set(incoming.socket, nth);
  const body = parse(text);
  const request = {
    event: 'request',
    n: requests.length + 1,
    method: incoming.method,
    path,
    url: incoming.url,
    headers: incoming.headers,
    raw_headers: incoming.rawHeaders,
    body: body ?? (text === '' ? null : text),
    text,
    key: incoming.headers[options.dedupe ?? 'idempotency-key'] ?? null,
    nth,
  };
  arrivals.set(request, beats[0]);
  record(requests, request, false);
  const mode = modeFor(path, url.searchParams, body);
  const act = () => {
    const status = /^status_(\d{3})$/.exec(mode)?.[1];
    if (status !== undefined) {
      const bodyless = status === '204' || status === '304';
      return bodyless
        ? response.writeHead(Number(status)).end()
        : json(response, Number(status), { status: Number(status) });
    }
    if (incoming.method === 'GET' || incoming.method === 'HEAD') {
      // A read misbehaves like a write, without an effect.
      if (
        mode === 'unavailable' ||
        mode === 'refuse' ||
        mode === 'drop_before' ||
        mode === 'never' ||
        mode === 'loud' ||
        mode === 'bad_chunk' ||
        mode === 'drip' ||
        mode === 'stall' ||
        mode === 'not_modified_length'
      ) {
        return MODES[mode]({ request, response, nth });
      }
      if (mode === 'half') return cut(response, 200, { 'content-length': 1000 });
      return json(
        response,
        200,
        states.get(path) ?? { path, effects: effects.filter((effect) => effect.path.startsWith(path)).length },
      );
    }
    const known = options.dedupe === undefined || request.key === null ? undefined : deduped.get(request.key);
    if (known !== undefined) return json(response, 201, known);
    const run = MODES[mode];
    if (run === undefined) return json(response, 400, { error: `no mode ${mode}` });
    run({ request, response, nth });
    const last = effects.at(-1);
    if (request.key !== null && last?.request === request.n)
      deduped.set(request.key, { id: `ef_${last.n}`, n: last.n, path });
  };
  if (settings.latencyMs > 0) setTimeout(act, settings.latencyMs);
  else act();
}

function control(incoming, response, url, text) {
  if (url.pathname === '/__ledger' && url.searchParams.has('twice')) {
    json(response, 200, twice());
    return;
  }
  if (url.pathname === '/__ledger') {
    if (url.searchParams.has('counts'))
      return json(response, 200, { requests: requests.length, effects: effects.length });
    return json(response, 200, { requests, effects });
  }
  const body = parse(text) ?? {};
  if (url.pathname === '/__mode' && incoming.method === 'POST') {
    settings.mode = body.mode ?? 'ok';
    settings.times = body.times ?? (body.mode === undefined ? 0 : 1);
    settings.path = body.path ?? null;
    settings.lateMs = body.late_ms ?? settings.lateMs;
    settings.latencyMs = body.latency_ms ?? settings.latencyMs;
    return json(response, 200, settings);
  }
  if (url.pathname === '/__release' && incoming.method === 'POST') {
    const released = held;
    held = [];
    for (const letGo of released) letGo();
    return json(response, 200, { released: released.length });
  }
  if (url.pathname === '/__state' && incoming.method === 'POST') {
    states.set(body.path, body.value);
    return json(response, 200, {});
  }
  return json(response, 404, { error: 'no such control' });
}

const server = createServer({ keepAliveTimeout: 60_000 }, (incoming, response) => {
  const chunks = [];
  incoming.on('data', (chunk) => chunks.push(chunk));
  incoming.on('end', () => answer(incoming, response, Buffer.concat(chunks).toString('utf8')));
  incoming.on('error', () => {});
  response.on('error', () => {});
});
server.on('upgrade', (incoming, socket) => {
  record(
    requests,
    {
      event: 'upgrade',
      n: requests.length + 1,
      method: incoming.method,
      path: incoming.url,
      url: incoming.url,
      headers: incoming.headers,
      raw_headers: incoming.rawHeaders,
      body: null,
      text: '',
      key: null,
      nth: 1,
    },
    false,
  );
  // Echoes bytes: enough of a tunnel to see that frames pass and that it is cut.
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nset-cookie: session=1\r\n\r\n',
  );
  socket.on('data', (chunk) => socket.write(chunk));
  socket.on('error', () => {});
});
server.listen(Number(options.port), '127.0.0.1', () => {
  process.stdout.write(`${JSON.stringify({ event: 'ready', url: `http://127.0.0.1:${server.address().port}` })}\n`);
});
process.on('SIGTERM', () => {
  if (file !== null) closeSync(file);
  process.exit(0);
});
// Ends with the process that started it.
process.stdin.on('end', () => process.exit(0)).resume();
