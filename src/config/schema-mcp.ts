import { Type } from 'typebox';
import type { JsonObject } from '../json/value.ts';
import { duration, flag, integer, list, oneOf, path, probe, record, roleName, text } from './schema-fields.ts';

/** Names of the protocol and of the gateway itself are no business of a server. */
const META_NAME =
  '^(?!progressToken$|traceparent$|tracestate$|io\\.modelcontextprotocol/|dev\\.svc-gateway/)[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$';

/** Settings of one tool of an MCP server, in addition to its pin. */
const mcpTool = record('a tool of an MCP upstream', 'What holds for one tool beside its pin.', {
  name: Type.String({ minLength: 1, maxLength: 128, description: 'Its name at the server.' }),
  kind: Type.Optional(
    oneOf(
      ['read', 'write'],
      'read: repeating it changes nothing. Default: write, unless trusted annotations say read.',
    ),
  ),
  risk: Type.Optional(oneOf(['low', 'medium', 'high', 'critical'], 'How much is at stake.')),
  tags: list('Words that policies select by.', text(roleName, 'a word', 'A tag.')),
  target: Type.Optional(
    Type.String({
      minLength: 1,
      description:
        'What is acted on, from the arguments or parts of them: order:{order.id}. Default: the name of the tool.',
    }),
  ),
  key_from: Type.Optional(
    Type.String({
      minLength: 1,
      description: 'The argument, or part of one, whose value is the idempotency key of calls without one.',
    }),
  ),
  repeat_window: Type.Optional(
    duration(
      'How long after it was done an equal call without a key of its own is the same one, and not done again. 0s: each call is meant, as for clicks and toggles. Default: 2m; none for reads, and for tools that trusted annotations call idempotent.',
      { min: '0s', max: '24h' },
    ),
  ),
  timeout: Type.Optional(
    duration('How long an answer may take. Default: that of the upstream.', { min: '1ms', max: '1h' }),
  ),
  max_processing: duration(
    'How long the server may still be at it after the answer was given up.',
    { min: '0s', max: '7d' },
    '60s',
  ),
  meta: list(
    'Members of _meta that the server needs for this tool, beside those of mcp.meta.',
    text(META_NAME, 'the name of a member', 'A name, for example com.example/tenant.'),
  ),
  is_error: oneOf(
    ['unknown', 'failed'],
    'What a result with isError means for a write. Servers make it of any exception, also of one after the write, so by default nobody knows.',
    'unknown',
  ),
  probe: probe({
    tool: Type.String({ minLength: 1, description: 'A pinned read tool of the same server, by its name there.' }),
    arguments: Type.Unsafe<JsonObject>({
      type: 'object',
      description: 'Its arguments. A text that is {name} and nothing else stands for that argument of the call.',
      default: {},
    }),
  }),
  on_client_close: oneOf(
    ['finish', 'abort'],
    'What becomes of a call whose caller has gone. finish: its outcome is recorded, and the next call with the same key gets it. abort: the call is broken off and its outcome unknown.',
    'finish',
  ),
});

export const mcp = record('mcp', 'An MCP server. Agents reach it at /mcp/ID, and its pinned tools as ID.TOOL.', {
  url: Type.Optional(
    Type.String({
      description: 'Its http or https URL, with its path: streamable HTTP. Required where there is no command.',
    }),
  ),
  transport: oneOf(
    ['streamable_http', 'sse'],
    'How a server at a url is spoken to. sse: the transport of 2024-11-05, a stream of events that names where messages are posted; url is that of the stream.',
    'streamable_http',
  ),
  command: Type.Optional(
    Type.Array(Type.String({ minLength: 1, description: 'The program, then its arguments.' }), {
      minItems: 1,
      'x-expected': 'a list: the program, then its arguments',
      description:
        'In place of url: a program that speaks MCP over standard input and output, and its arguments, which other users of the machine can read. Each session has a process of its own.',
    }),
  ),
  env: list(
    'Variables of the gateway that the program gets, by name. It gets no others.',
    text('^[A-Za-z_][A-Za-z0-9_]*$', 'the name of a variable', 'A name.'),
  ),
  cwd: Type.Optional(path('The folder in which the program runs. Default: that of the gateway.')),
  sessions: integer(
    'Sessions, and so processes or streams of the transport sse, that may be there at once.',
    1,
    1_000,
    32,
  ),
  idle: duration(
    'How long nobody may use a session before its process or stream is ended.',
    { min: '1s', max: '7d' },
    '30m',
  ),
  pins: Type.Optional(
    Type.String({
      minLength: 1,
      description:
        'The lock file with the tools that were approved. It is watched. Only these tools can be called. Default: mcp/ID.lock.json.',
    }),
  ),
  trust_annotations: flag(
    'Whether readOnlyHint of a pinned tool makes it a read. Pins are reviewed; an annotation is still only what the server says of itself.',
    false,
  ),
  meta: list(
    'Members of _meta in calls that the server needs for all of its tools. They are the param _meta: policy reads them, and with another value it is another action. Nothing else in _meta reaches the server, but what the protocol defines.',
    text(META_NAME, 'the name of a member', 'A name, for example com.example/tenant.'),
  ),
  allow: list(
    'Methods of clients that pass beside those that this gateway knows.',
    text('^[A-Za-z0-9$_./-]{1,128}$', 'the name of a method', 'A method.'),
  ),
  tools: list('What holds for single tools.', mcpTool),
});
