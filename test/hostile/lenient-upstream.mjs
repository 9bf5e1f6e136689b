// An upstream that forgives all that it can, as old servers and frameworks do, and answers with what it made of a
// request. It is a process of its own: `node lenient-upstream.mjs`, which prints its URL.
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { basename } from 'node:path';
import { parse as parseFlat } from 'node:querystring';
import qs from 'qs';

let count = 0;

const server = createServer({ insecureHTTPParser: true }, (request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    if (request.url === '/count') {
      response.end(JSON.stringify({ count }));
      return;
    }
    count += 1;
    const [path, query = ''] = request.url.split('?');
    const whole = request.url.slice(request.url.indexOf('?') + 1);
    const said = JSON.stringify({
      method: request.headers['x-http-method-override'] ?? request.method,
      path,
      query: [qs.parse(query), last(parseFlat(query))],
      queries: request.url.includes('?') ? queriesOf(whole) : queriesOf(''),
      headers: asCgi(request.rawHeaders),
      raw: {
        type: request.headers['content-type'],
        bytes: Buffer.concat(chunks).byteLength,
        sha256: createHash('sha256').update(Buffer.concat(chunks)).digest('hex'),
      },
      body: read(Buffer.concat(chunks), request.headers['content-type'] ?? ''),
    });
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(said) });
    response.end(said);
  });
});
server.listen(0, '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});

/** Names as CGI has them: "_" for "-"; of two the last. */
function asCgi(raw) {
  const headers = {};
  for (let index = 0; index < raw.length; index += 2)
    headers[raw[index].toLowerCase().replaceAll('-', '_')] = raw[index + 1];
  return headers;
}

/** A query as three readers have it: one by nested names, two as pairs. */
function queriesOf(text) {
  return {
    qs: qs.parse(text, { depth: 50, parameterLimit: 20_000, arrayLimit: 1000 }),
    querystring: Object.entries(parseFlat(text, '&', '=', { maxKeys: 0 })).flatMap(([name, value]) =>
      [value].flat().map((one) => [name, one]),
    ),
    url: [...new URLSearchParams(text)],
  };
}

function last(flat) {
  return Object.fromEntries(
    Object.entries(flat).map(([name, value]) => [name, Array.isArray(value) ? value.at(-1) : value]),
  );
}

/** @returns what each of its readers makes of a body */
function read(bytes, type) {
  const kind = type.toLowerCase();
  if (kind.includes('multipart')) return { kind: 'multipart', readings: [parts(bytes, type)] };
  const text = bytes.toString('utf8');
  if (kind.includes('urlencoded'))
    return {
      kind: 'form',
      readings: [qs.parse(text, { depth: 50, parameterLimit: 20_000, arrayLimit: 1000 })],
      flat: last(parseFlat(text)),
    };
  if (kind.includes('json')) {
    try {
      return { kind: 'json', readings: [JSON.parse(text.replace(/^\uFEFF/, ''))] };
    } catch {
      return { kind: 'broken', readings: [] };
    }
  }
  return { kind: 'opaque', type, bytes: bytes.byteLength, sha256: createHash('sha256').update(bytes).digest('hex') };
}

/** Multipart as a server reads it that was written on an afternoon: any line end, folding, the last header and name. */
function parts(bytes, type) {
  const boundary = /boundary="?([^";]+)/i.exec(type)?.[1] ?? '';
  const text = bytes.toString('latin1');
  const found = {};
  for (const piece of text.split(`--${boundary}`).slice(1)) {
    if (piece.startsWith('--')) break;
    const [head = '', ...rest] = piece.replace(/^[^\r\n]*\r?\n/, '').split(/\r?\n\r?\n/);
    const unfolded = Buffer.from(head.replaceAll(/\r?\n[ \t]+/g, ' '), 'latin1').toString('utf8');
    const headers = {};
    for (const line of unfolded.split(/\r?\n/)) {
      const colon = line.indexOf(':');
      if (colon > 0) headers[line.slice(0, colon).trim().toLowerCase()] = line.slice(colon + 1).trim();
    }
    const disposition = headers['content-disposition'] ?? '';
    const parameter = (name) =>
      new RegExp(`[; ]${name}="((?:\\\\"|[^"])*)"`, 'i').exec(disposition)?.[1] ??
      new RegExp(`[; ]${name}=([^";]+)`, 'i').exec(disposition)?.[1];
    const decoded = (value) =>
      value
        ?.replaceAll('\\"', '"')
        .replaceAll('%22', '"')
        .replaceAll(/%0[ad]/gi, '\n');
    const name = decoded(parameter('name'));
    if (name === undefined) continue;
    const separator = /\r?\n\r?\n/.exec(piece.replace(/^[^\r\n]*\r?\n/, ''))?.[0] ?? '\r\n\r\n';
    let content = Buffer.from(
      rest.length === 0
        ? ''
        : piece
            .replace(/^[^\r\n]*\r?\n/, '')
            .slice(head.length + separator.length)
            .replace(/\r?\n$/, ''),
      'latin1',
    );
    if (/base64/i.test(headers['content-transfer-encoding'] ?? '')) content = Buffer.from(content.toString(), 'base64');
    const star = /filename\*=[^']*'[^']*'([^;]+)/i.exec(disposition)?.[1];
    const filename = star === undefined ? decoded(parameter('filename')) : decodeURIComponent(star);
    found[name] =
      filename === undefined
        ? content.toString('utf8')
        : {
            filename: basename(filename.replaceAll('\\', '/')),
            content_type: headers['content-type'] ?? 'text/plain',
            bytes: content.byteLength,
            sha256: createHash('sha256').update(content).digest('hex'),
          };
  }
  return found;
}
