import { gzipSync } from 'node:zlib';
import type { Scenario } from '../play.ts';
import type { Segment } from '../segment.ts';

const FORM = 'application/x-www-form-urlencoded';
const LETTERS = ['a', 'B', '7', ' ', '&', '=', '[', ']', '+', '%', 'é', '€', '"', '\\', '/', ';', '😀'] as const;

function text(at: Segment): string {
  return Array.from({ length: 1 + at.int(8) }, () => at.pick(LETTERS)).join('');
}

function words(at: Segment): readonly string[] {
  return Array.from({ length: 1 + at.int(3) }, () => text(at));
}

const encoded = (value: unknown): string => encodeURIComponent(String(value)).replaceAll('%20', '+');

/** As some client would write it: brackets encoded or not, lists with numbers or without. */
function written(value: unknown, plain: boolean, name = ''): readonly string[] {
  if (Array.isArray(value))
    return value.flatMap((item: unknown, index) =>
      written(item, plain, plain && typeof item !== 'object' ? `${name}[]` : `${name}[${index}]`),
    );
  if (typeof value === 'object' && value !== null)
    return Object.entries(value).flatMap(([part, member]) =>
      written(member, plain, name === '' ? part : `${name}[${part}]`),
    );
  return [`${plain ? name : encodeURIComponent(name)}=${encoded(value)}`];
}

const forms: Scenario = async (at) => {
  const idempotency_key = at.fresh();
  const charge = `ch_${at.fresh()}${text(at)}`;
  const params = {
    charge,
    ...(at.chance(0.5) ? { amount: at.int(1000) } : {}),
    ...(at.chance(0.5) ? { metadata: { [`k ${at.int(9)}`]: text(at) } } : {}),
    ...(at.chance(0.5) ? { expand: words(at) } : {}),
    ...(at.chance(0.5) ? { items: words(at).map((price, quantity) => ({ price, quantity })) } : {}),
    ...(at.chance(0.5) ? { live: at.chance(0.5) } : {}),
  };
  const headers = { 'content-type': FORM, 'idempotency-key': idempotency_key };
  const send = (title: string, value: object, plain: boolean) =>
    at.call(title, 'POST', '/payments/v1/refunds', { headers, body: written(value, plain).join('&') });
  await send('a form', params, true);
  await send('the same form, written otherwise', params, false);
  await at.run('the same through the effects API', { tool: 'stripe.refund', params, idempotency_key });
  await send('another form under its key', { ...params, charge: 'ch_other' }, false);
};

const rails: Scenario = async (at) => {
  const headers = { 'content-type': FORM, 'idempotency-key': at.fresh() };
  const body = written({ tags: words(at), name: text(at) }, at.chance(0.5)).join('&');
  await at.call('a form with lists in brackets', 'POST', `/payments/v1/people/p_${at.int(90)}%20x?dry=1`, {
    headers,
    body,
  });
};

const badForms: Scenario = async (at) => {
  const bodies = [
    'charge=a&charge=b',
    'charge=a&charge[x]=1',
    'charge=a&_method=DELETE',
    'charge=%ff',
    'charge=a&amount=x',
    '{"charge":"a"}',
    '',
  ] as const;
  for (const body of [at.pick(bodies), at.pick(bodies)])
    await at.call('a form that has two readings, or none', 'POST', '/payments/v1/refunds', {
      headers: { 'content-type': FORM, 'idempotency-key': at.fresh() },
      body,
    });
};

/** A multipart body whose boundary is always the same. */
function multipart(
  fields: Readonly<Record<string, string>>,
  files: readonly (readonly [string, string, string, Buffer])[],
): Buffer {
  const pieces: Buffer[] = Object.entries(fields).map(([name, value]) =>
    Buffer.from(`--golden\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`),
  );
  for (const [name, filename, type, bytes] of files) {
    const head = `--golden\r\ncontent-disposition: form-data; name="${name}"; filename="${filename}"\r\ncontent-type: ${type}\r\n\r\n`;
    pieces.push(Buffer.from(head), bytes, Buffer.from('\r\n'));
  }
  return Buffer.concat([...pieces, Buffer.from('--golden--\r\n')]);
}

function bytesOf(at: Segment, length: number): Buffer {
  const seed = at.int(255);
  return Buffer.from(Array.from({ length }, (_, index) => (index * 7 + seed) % 256));
}

const uploads: Scenario = async (at) => {
  const headers = { 'content-type': 'multipart/form-data; boundary=golden', 'idempotency-key': at.fresh() };
  const path = `/payments/v1/uploads/${at.pick(['images', 'größe'].map(encodeURIComponent) as [string, string])}/files?dry=1`;
  const bytes = bytesOf(at, at.pick([10, 3_000, 120_000]));
  const fields = { purpose: 'vision', n: String(at.int(9)) };
  await at.call('a file', 'POST', path, {
    headers,
    body: multipart(fields, [['file', 'größe.png', 'image/png', bytes]]),
  });
  await at.call('the same file again', 'POST', path, {
    headers,
    body: multipart(fields, [['file', 'größe.png', 'image/png', bytes]]),
  });
  await at.call('another file under its key', 'POST', path, {
    headers,
    body: multipart(fields, [['file', 'größe.png', 'image/png', bytes.subarray(1)]]),
  });
  const other = { ...headers, 'idempotency-key': at.fresh() };
  await at.call('files in a list', 'POST', path, {
    headers: other,
    body: multipart({}, [
      ['images[]', 'a', 'text/plain', bytes.subarray(0, 9)],
      ['images[]', 'b', 'text/plain', bytes.subarray(0, 8)],
    ]),
  });
};

const refusedUploads: Scenario = async (at) => {
  const path = '/payments/v1/uploads/x/files';
  const bodies = [
    multipart({}, [['file', 'virus.exe', 'application/octet-stream', Buffer.from('MZ')]]),
    multipart({}, [['file', 'large', 'text/plain', Buffer.alloc(200_001)]]),
    multipart({}, [['file', 'larger', 'text/plain', Buffer.alloc(270_000)]]),
    multipart({ file: 'no file' }, []),
    multipart({ kind: 'y' }, []),
    multipart({}, [['purpose', 'x', 'text/plain', Buffer.from('x')]]),
    Buffer.from('--golden\r\nbroken'),
  ] as const;
  for (const body of [at.pick(bodies), at.pick(bodies)])
    await at.call('an upload that is refused', 'POST', path, {
      headers: { 'content-type': 'multipart/form-data; boundary=golden', 'idempotency-key': at.fresh() },
      body,
    });
};

const uploadsThatWait: Scenario = async (at) => {
  const body = multipart({ purpose: 'secret' }, [['file', 'plan.txt', 'text/plain', bytesOf(at, 900)]]);
  const headers = { 'content-type': 'multipart/form-data; boundary=golden', 'idempotency-key': at.fresh() };
  const { json } = await at.call('an upload that waits', 'POST', '/payments/v1/uploads/x/files', { headers, body });
  await at.at('it is approved', 'POST', `/approvals/${json?.approval?.id}/approve`, { key: 'maria', body: {} });
};

const blobs: Scenario = async (at) => {
  const headers = {
    'content-type': at.pick(['application/octet-stream', 'image/png', 'text/plain']),
    'idempotency-key': at.fresh(),
  };
  const body = bytesOf(at, at.pick([0, 1, 500, 100_000]));
  await at.call('bytes', 'PUT', `/payments/v1/blobs/b${at.int(90)}`, { headers, body });
  await at.call('bytes, answered otherwise', 'PUT', '/payments/v1/blobs/b', {
    headers: { ...headers, 'idempotency-key': at.fresh(), 'x-mode': at.pick(['refuse', 'drop', 'bytes', 'empty']) },
    body,
  });
};

const queries: Scenario = async (at) => {
  const headers = { 'idempotency-key': at.fresh() };
  const path = `/payments/v1/lists/l${at.int(90)}`;
  const word = encodeURIComponent(text(at));
  const send = (title: string, query: string) =>
    at.call(title, 'POST', `${path}?${query}`, { headers, body: { note: 'n' } });
  await send('a query with lists', `expand[]=${word}&expand[]=b&ids=1%2C2&created[gte]=5&filter[x][y]=z&tags[0]=p`);
  await send(
    'the same, written otherwise',
    `tags[]=p&filter%5Bx%5D%5By%5D=z&created[gte]=5&ids=1,2&expand[1]=b&expand[0]=${word}`,
  );
  await send('another query under its key', `expand[]=${word}`);
  await at.call('what no tool declares', 'POST', `${path}?page[after]=${word}&sort=a&sort=b&dry=true`, {
    headers: { 'idempotency-key': at.fresh() },
    body: {},
  });
};

const refusedQueries: Scenario = async (at) => {
  const asked = [
    'created[lt]=1001',
    'force=1',
    'ids=a',
    'dry=maybe',
    'expand=1&expand[x]=2',
    'id=7',
    'created=',
    '%zz=1',
    'filter[__proto__]=1',
  ] as const;
  await at.call('a read by its query', 'GET', `/payments/v1/lists/l1?${at.pick(asked)}`);
  await at.call('a write by its query', 'POST', `/payments/v1/lists/l1?${at.pick(asked)}`, {
    headers: { 'idempotency-key': at.fresh() },
    body: {},
  });
  await at.call('a query that the route refuses', 'POST', '/strict/v1/lists/l1?more=1', {
    headers: { 'idempotency-key': at.fresh() },
    body: {},
  });
  await at.call('a query that the route passes', 'POST', '/open/v1/passed?a=1&other=2', {
    headers: { 'idempotency-key': at.fresh() },
    body: { b: at.int(99) },
  });
};

const streams: Scenario = async (at) => {
  const headers = { 'idempotency-key': at.fresh(), accept: 'text/event-stream' };
  const body = {
    stream: true,
    text: `mode:${at.pick(['events', 'events', 'unmeasured', 'costly', 'broken', 'plain', 'ok', 'refuse', 'drop'])}`,
    n: at.int(99),
  };
  await at.call('a stream', 'POST', '/payments/chat', { headers, body });
  await at.call('the same stream again', 'POST', '/payments/chat', { headers, body });
};

const collected: Scenario = async (at) => {
  const body = {
    tool: 'model.chat',
    params: { text: `mode:${at.pick(['events', 'broken', 'ok'])}`, n: at.int(99) },
    idempotency_key: at.fresh(),
  };
  await at.run('a stream through the effects API', body);
};

const costs: Scenario = async (at) => {
  const mode = at.pick(['usage', 'overdraft', 'nousage', 'ok']);
  await at.call('what it cost is in the answer', 'POST', '/payments/whole', {
    key: at.pick(['bot', 'other', 'cat']),
    headers: { 'idempotency-key': at.fresh() },
    body: { text: `mode:${mode}` },
  });
};

const compressed: Scenario = async (at) => {
  const body = gzipSync(Buffer.from(JSON.stringify({ text: 'packed', n: at.int(99) })));
  await at.call('a compressed body', 'POST', '/payments/v1/notes', {
    headers: { 'idempotency-key': at.fresh(), 'content-encoding': at.pick(['gzip', 'br', 'gzip, gzip']) },
    body,
  });
};

export const bodies: readonly (readonly [number, Scenario])[] = [
  [6, forms],
  [2, rails],
  [2, badForms],
  [4, uploads],
  [1, refusedUploads],
  [2, uploadsThatWait],
  [3, blobs],
  [4, queries],
  [5, streams],
  [2, collected],
  [2, costs],
  [1, compressed],
];

export const bodyReads: readonly (readonly [number, Scenario])[] = [[30, refusedQueries]];
