import { Type } from 'typebox';
import type { Json, JsonObject } from '../json/value.ts';
import {
  duration,
  headerName,
  later,
  list,
  oneOf,
  probe,
  record,
  roleName,
  section,
  text,
  toolName,
} from './schema-fields.ts';

const param = text('^[^\\u0000-\\u001f{}]{1,128}$', 'the name of a param', 'Name of a param.');

const request = (description: string) =>
  record('a request', description, {
    method: text('^[A-Z]{1,20}$', 'an HTTP method in capitals', 'HTTP method.'),
    path: Type.String({
      description:
        'Path with params: /v1/payments/{payment_id}. {+name} at the end is a param that holds slashes: the rest of the path.',
    }),
    query: list('Params sent in the query. Those whose schema says array or object may have elements or parts.', param),
    query_lists: oneOf(
      ['indices', 'brackets', 'repeat'],
      'How the query writes lists. indices: a[0]=… (Stripe); brackets: a[]=… (Rails); repeat: a=…&a=… (form of OpenAPI). Objects are a[b]=… in each (deepObject of OpenAPI). What is declared callers may write in any of them; what is sent is written like this.',
      'repeat',
    ),
    query_styles: Type.Record(
      Type.String(),
      oneOf(
        ['indices', 'brackets', 'repeat', 'comma', 'space', 'pipe'],
        'As query_lists, or one text with separators: a=1,2, a=1%202, a=1%7C2 (OpenAPI without explode).',
      ),
      { description: 'Params whose lists are written otherwise than query_lists says.', default: {} },
    ),
    query_rest: Type.Optional(
      text(
        '^[^\\u0000-\\u001f{}]{1,128}$',
        'the name of a param',
        'The one param that holds what stands in the query and in none of the above, by name: part of the action, and seen by rules as params.NAME. Default: such a call is refused.',
      ),
    ),
    headers: Type.Union(
      [Type.Array(param), Type.Record(Type.String(), text(headerName, 'the name of a header', 'A header.'))],
      {
        'x-expected': 'a list of params, or a map of params to headers',
        description:
          'Params sent as headers: a list (the header is called like the param), or a map { param: Header-Name }.',
        default: [],
      },
    ),
    body: Type.Union([Type.Literal('*'), Type.Array(param)], {
      'x-expected': "a list of params, or '*'",
      description: "Params sent as members of the body; '*' sends all that are left.",
      default: [],
    }),
    body_as: Type.Optional(
      text(
        '^[^\\u0000-\\u001f{}]{1,128}$',
        'the name of a param',
        'The one param that the whole body is: any JSON value, a list too; of body_type: opaque, what is known of its bytes. Instead of body.',
      ),
    ),
    body_type: oneOf(
      ['json', 'form', 'multipart', 'opaque'],
      'How the body is written. form: application/x-www-form-urlencoded, with nested names (a[b], a[0], a[]). multipart: multipart/form-data, whose files are params of filename, content_type, bytes and sha256. opaque: bytes of any type, with body_as.',
      'json',
    ),
    form_lists: oneOf(
      ['indices', 'brackets', 'repeat'],
      'How a form or multipart writes lists. indices: a[0]=… (Stripe, PHP); brackets: a[]=… (Rails); repeat: a=…&a=… (Twilio). Callers may write indices or brackets either way; what is sent is written like this.',
      'indices',
    ),
  });

const status = Type.Integer({ minimum: 200, maximum: 599, description: 'An HTTP status.' });

const outcomes = section('outcomes', 'What answers mean, where it is not what the default table says.', {
  committed: list('Statuses after which it happened.', status),
  failed: list(
    'Statuses after which nothing changed. Where 503 or 529 is one of them, libraries may ask again, as they may after 429.',
    status,
  ),
  unknown: list('Statuses after which nobody knows.', status),
  body: list(
    'By a value in the JSON body; the first that is equal decides.',
    record('an entry of outcomes.body', 'One value.', {
      path: text('^[^\\u0000-\\u001f]+$', 'a path such as result.status', 'Path in the body.'),
      equals: Type.Unsafe<Json>({ description: 'The value.' }),
      outcome: oneOf(['committed', 'failed', 'unknown'], 'What it means.'),
    }),
  ),
  is_error: later('outcomes of MCP upstreams'),
});

const actualPath = text('^[^\\u0000-\\u001f]+$', 'a path such as usage.total_tokens', 'A path in the answer.');
const actualPaths = Type.Array(actualPath, { minItems: 1, maxItems: 8 });

export const tool = record('a tool', 'Something that agents can have done.', {
  name: Type.String({
    pattern: toolName,
    maxLength: 128,
    'x-expected': "a name such as payments.refund: letters, digits, '_' and '-', parts joined by '.', '/' or ':'",
    description: 'Name, <upstream>.<tool> by convention.',
  }),
  title: Type.Optional(Type.String({ minLength: 1, description: 'Name for people.' })),
  upstream: Type.String({ description: 'Id of the upstream that does it.' }),
  kind: oneOf(['read', 'write'], 'read: repeating it changes nothing.'),
  action_type: text(
    '^[a-z][a-z0-9_.]{0,63}$',
    'a word such as mcp.tool_call',
    'Action type of its calls.',
    'mcp.tool_call',
  ),
  tags: list('Words that policies select by.', text(roleName, 'a word', 'A tag.')),
  risk: Type.Optional(oneOf(['low', 'medium', 'high', 'critical'], 'How much is at stake.')),
  request: request('The request that does it.'),
  params_schema: Type.Optional(
    Type.Unsafe<JsonObject>({
      type: 'object',
      description: 'JSON Schema (2020-12) of the params. Calls that break it are refused with every fault.',
    }),
  ),
  target: Type.Optional(
    Type.String({
      minLength: 1,
      description:
        'What is acted on, from the params or parts of them: payment:{payment_id}, pod:{metadata.name}. Default: the caller says.',
    }),
  ),
  timeout: Type.Optional(
    duration(
      'How long an answer may take, as for the upstream. Of a stream: how long nothing may come. Default: that of the upstream.',
      { min: '1ms', max: '1h' },
    ),
  ),
  response: oneOf(
    ['whole', 'stream'],
    'How answers to writes go to callers of a route. whole: when they are complete. stream: as they come, unless they are JSON; see [streams.md](../upstreams/streams.md).',
    'whole',
  ),
  stream_time: Type.Optional(
    duration('With response: stream, how long the whole answer may take. Default: 10m.', { min: '1s', max: '6h' }),
  ),
  max_processing: duration(
    'How long the upstream may still be at it after the answer was given up.',
    { min: '0s', max: '7d' },
    '60s',
  ),
  idempotent: Type.Union(
    [
      Type.Literal(false),
      record('idempotent', 'How the upstream removes duplicates.', {
        header: text(headerName, 'the name of a header', 'Header that carries the key.'),
        for: duration('How long it remembers a key.', { min: '1s', max: '3650d' }),
      }),
    ],
    {
      'x-expected': 'false, or { header, for }',
      description: 'Whether the upstream itself removes duplicates.',
      default: false,
    },
  ),
  outcomes,
  state: Type.Optional(
    record('state', 'How to read the live state for state_check.', { request: request('A read request.') }),
  ),
  probe: probe({
    request: request('A read request. {idempotency_key} is the key as the upstream got it, other names are params.'),
  }),
  actual: Type.Optional(
    Type.Record(
      Type.String({ minLength: 1 }),
      Type.Union([actualPath, Type.Array(Type.Union([actualPath, actualPaths]), { minItems: 1, maxItems: 8 })], {
        'x-expected': 'a path such as usage.total_tokens, or a list of paths that are added up',
      }),
      {
        description:
          'Where answers say what was really spent, by the unit of the budgets: token: usage.total_tokens. In the JSON of the answer, or in the last event that has it. Several paths are added up; in place of one, a list is paths of which the first counts that the answer has: [[usage.input_tokens, message.usage.input_tokens], usage.output_tokens]. What was held is given back or overdrawn accordingly; an answer without it posts what was held.',
        'x-name': 'actual',
      },
    ),
  ),
});
