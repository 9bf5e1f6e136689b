import { Type } from 'typebox';
import { headers } from './schema-upstream.ts';
import { serverTls } from './schema-tls.ts';
import { duration, flag, list, oneOf, record, text } from './schema-fields.ts';

const routeRule = record('a route rule', 'Requests that are calls of a tool.', {
  match: Type.String({
    description:
      'Method and path after the prefix: POST /v1/payments/:payment_id/refunds. *name at the end is the rest of the path, its slashes encoded or not; request.path of the tool has {+name} there.',
  }),
  tool: Type.String({ description: 'The tool that they call.' }),
  encoded_slashes: list(
    'Params of the path that may hold slashes, encoded as %2F. What policies see is decoded, what is sent are the bytes of the caller.',
    text('^[A-Za-z_][A-Za-z0-9_]*$', 'the name of a param', 'Name of a param.'),
  ),
  idempotency: Type.Optional(
    Type.Union(
      [
        Type.Unsafe<'required' | 'none' | 'derive'>({ type: 'string', enum: ['required', 'none', 'derive'] }),
        record('idempotency', 'A derived key.', {
          derive: duration('Equal calls within this time are one.', { min: '1s', max: '30d' }),
        }),
      ],
      {
        'x-expected': 'required, none, derive or { derive: 10m }',
        description:
          'Idempotency-Key of writes: required; none; or derived from the call for a time (derive: 10m). Default: required for writes, none for reads.',
      },
    ),
  ),
  on_duplicate: oneOf(
    ['conflict', 'replay'],
    'Answer to a duplicate: 409 with the receipt, or the stored answer again.',
    'conflict',
  ),
  frames: Type.Optional(
    oneOf(
      ['ungoverned'],
      'ungoverned: WebSocket upgrades pass after the checks of the handshake; frames are not looked into.',
    ),
  ),
});

export const route = record('a route', "A part of the gateway's addresses that stands for an upstream.", {
  upstream: Type.String({ description: 'Id of the upstream.' }),
  prefix: Type.String({
    description: "Agents' base URL is {gateway}{prefix}. With host or listen it can be /, which is everything there.",
  }),
  host: Type.Optional(
    text(
      '^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$',
      'a host name without a port',
      "The route is there for requests whose Host is this name, and for no others. None of the gateway's own addresses is under it.",
    ),
  ),
  listen: Type.Optional(
    text(
      '^(\\[[0-9A-Fa-f:.]{2,45}\\]|[A-Za-z0-9.-]{1,253}):[0-9]{1,5}$',
      'an address and a port, such as 127.0.0.1:8443',
      "A listener of its own for the route, at which none of the gateway's own addresses is. Routes may share one. Port 0 lets the system choose one, which the log says.",
    ),
  ),
  tls: Type.Optional(
    serverTls(
      'TLS on the listener that listen opens, as server.tls. Routes that share it say it once, or all the same.',
    ),
  ),
  undeclared: oneOf(
    ['deny', 'passthrough_reads'],
    'What happens to requests that no rule names. passthrough_reads has policy judge GET and HEAD, with the fact tool.declared: false.',
    'deny',
  ),
  undeclared_query: Type.Optional(
    oneOf(
      ['refuse', 'pass'],
      'Query params that the tool of a rule does not declare. pass: they are params of a group, params.query, of tools that name none in query_rest. refuse: whatever the tool says.',
    ),
  ),
  keys: Type.Array(
    text(
      '^(x-api-key|bearer|token|basic|api-key|query(:[a-z0-9_.-]{1,64})?|header:[A-Za-z0-9!#$%&+.^_|~-]{1,100})$',
      'x-api-key, bearer, token, basic, api-key, query, query:name or header:name',
      'A place of keys.',
    ),
    {
      description:
        'Where callers carry their key: x-api-key; bearer, token or basic (of Authorization; in basic as user or password); api-key; query (the parameter api_key, where auth.query_key allows it) or query:name; header:name.',
      default: ['x-api-key', 'bearer', 'query'],
    },
  ),
  headers,
  pending_status: Type.Union([Type.Literal(202), Type.Literal(409), Type.Literal(423), Type.Literal(503)], {
    'x-expected': '202, 409, 423 or 503',
    description:
      'Status of the answer that a call waits for approval. Client libraries take 202 for success; 409 makes them throw.',
    default: 202,
  }),
  error_format: oneOf(
    ['problem', 'stripe', 'openai', 'anthropic', 'github', 'slack', 'graphql', 'kubernetes'],
    'The form of errors in answers that are not the upstream’s: `error` and `message` beside the decision, as client libraries of the family read them. slack and graphql: with status 200, as these APIs say no; kubernetes: a Status.',
    'problem',
  ),
  final_status: Type.Optional(
    Type.Union([Type.Literal(409), Type.Literal(422)], {
      'x-expected': '409 or 422',
      description:
        'Status of answers that are final, in place of 402, 409, 413, 423, 502, 504 and others that some libraries repeat by themselves without looking at x-should-retry. Default: their own status; with error_format: github 422.',
    }),
  ),
  set_cookie: flag("Whether Set-Cookie of the upstream's answers is passed on.", false),
  foreign_links: oneOf(
    ['hide', 'pass'],
    "Addresses of other origins in Location, Content-Location and Link. hide: they stand in svc-foreign-location and so on, which no client follows; many send the gateway's key along where they follow one.",
    'hide',
  ),
  links: list(
    'Fields of JSON answers that hold addresses which clients follow, such as that of the next page: next, paging.next, _links.*.href. They lead to the gateway like those in Location; those of other origins begin with svc-foreign: unless foreign_links passes them. With error_format: slack, upload_url is one of them: the libraries send their token there.',
    text(
      String.raw`^([^.\\\u0000-\u001f]|\\[.\\])+(\.([^.\\\u0000-\u001f]|\\[.\\])+){0,15}$`,
      String.raw`names with dots between them; * for any member or element, \. for a dot in a name`,
      'A field.',
    ),
  ),
  rules: list(
    'Rules. A fixed segment comes before a param, a param before the rest: /users/me, /users/:id, /users/*path. Two of which neither comes before the other may not match one request.',
    routeRule,
  ),
});
