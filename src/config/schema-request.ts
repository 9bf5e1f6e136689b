import { Type } from 'typebox';
import { headerName, list, oneOf, record, text } from './schema-fields.ts';

const param = text('^[^\\u0000-\\u001f{}]{1,128}$', 'the name of a param', 'Name of a param.');

/** How params of a tool become a request. */
export const request = (description: string) =>
  record('a request', description, {
    method: text('^[A-Z]{1,20}$', 'an HTTP method in capitals', 'HTTP method.'),
    path: Type.String({ description: 'Path with params: /v1/payments/{payment_id}.' }),
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
