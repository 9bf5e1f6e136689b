import { Type } from 'typebox';
import { mcp } from './schema-mcp.ts';
import { upstreamTls } from './schema-tls.ts';
import {
  duration,
  headerName,
  integer,
  list,
  oneOf,
  path,
  record,
  section,
  slug,
  slugWords,
  text,
} from './schema-fields.ts';

const credentials = record('credentials', 'A header that the gateway sets on each request to the upstream.', {
  header: text(headerName, 'the name of a header', 'Name of the header.'),
  value: Type.Optional(
    Type.String({ minLength: 1, description: 'Its value; write secrets as ${NAME}. Either this or file.' }),
  ),
  file: Type.Optional(
    path('A file that holds the whole value. It is watched: a new value is in force without a restart.'),
  ),
});

const headerPattern = (description: string) =>
  text('^[A-Za-z0-9!#$%&+.^_|~-]{1,100}\\*?$', 'the name of a header, or the beginning of one and *', description);

export const headers = section('headers', 'What becomes of the headers of requests; see [Headers](#headers).', {
  forward: list('Go on, though they would not by themselves.', headerPattern('A header, or x-internal-*.')),
  drop: list(
    'Do not go on. `forward` is stronger: `drop: ["*"]` makes a list of it.',
    text(
      '^([A-Za-z0-9!#$%&+.^_|~-]{1,100}\\*?|\\*)$',
      'the name of a header, or the beginning of one and *',
      'A header, x-internal-*, or * for all.',
    ),
  ),
  volatile: list(
    'Go on and are no part of the fingerprint: a retry may have other values.',
    headerPattern('A header, or x-internal-*.'),
  ),
  set: Type.Record(Type.String(), Type.String(), {
    description:
      'Headers that the gateway sets, whatever the caller sends. Their values may have {client_ip}, {host}, {proto}, {request_id} and {agent_id}.',
    default: {},
  }),
});

export const upstream = record('an upstream', 'A service behind the gateway.', {
  id: text(slug, slugWords, 'Id of the upstream.'),
  url: Type.Optional(
    Type.String({ description: 'Its http or https origin, without a path. Required, but for MCP servers.' }),
  ),
  mcp: Type.Optional(mcp),
  timeout: duration(
    'How long an answer may take, unless the tool says otherwise. Of a read that streams through: how long each wait for its next bytes may take; the whole may take any time.',
    { min: '1ms', max: '1h' },
    '30s',
  ),
  connections: integer('Connections to it at once.', 1, 10_000, 128),
  network: oneOf(['any', 'public'], 'public: loopback and private addresses are refused.', 'any'),
  env: Type.Optional(text(slug, slugWords, 'The fact env of calls to it. Default: that of the workspace.')),
  credentials: Type.Optional(
    Type.Union([Type.Literal('caller'), credentials], {
      'x-expected': 'caller, or { header, value } or { header, file }',
      description:
        "A header that the gateway sets on each request. caller, or nothing: the caller's own credentials go on, where the key of the gateway came elsewhere.",
    }),
  ),
  tls: Type.Optional(upstreamTls),
  headers,
});
