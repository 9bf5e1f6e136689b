/*
 * The pages of the gateway, for the OpenAPI document: what browsers open. Their routes have no schemas, for nothing of
 * them is read by programs.
 */

const HTML = { content: { 'text/html': { schema: { type: 'string' } } } };
const text = (name: string) => ({ name, in: 'path', required: true, schema: { type: 'string' } });
const page = (operationId: string, summary: string, parameters: readonly object[], responses: object) => ({
  operationId,
  summary,
  tags: ['pages'],
  security: [],
  parameters,
  responses,
});
const shown = { 200: { description: 'The page.', ...HTML }, '4XX': { description: 'What is wrong.', ...HTML } };
const REQUEST = [text('ws'), text('id')];

/** A form is answered with the page again, or with where it is. */
const form = (operationId: string, summary: string, fields: readonly string[]) => ({
  ...page(operationId, summary, REQUEST, {
    303: { description: 'Done: the page is where `Location` says.' },
    '4XX': { description: 'What is wrong.', ...HTML },
    '5XX': { description: 'What is wrong.', ...HTML },
  }),
  requestBody: {
    content: {
      'application/x-www-form-urlencoded': {
        schema: {
          type: 'object',
          properties: Object.fromEntries(fields.map((field) => [field, { type: 'string' }])),
        },
      },
    },
  },
});

/** Under `paths`. */
export const PAGE_PATHS = {
  '/docs': { get: page('openReference', 'This reference, as a page that works offline', [], shown) },
  '/docs/errors': { get: page('openCodes', 'All codes', [], shown) },
  '/docs/errors/{code}': {
    get: page('openCode', 'What a code means, and what to do', [text('code')], {
      200: {
        description: 'The page.',
        content: { ...HTML.content, 'text/markdown': { schema: { type: 'string' } } },
      },
      '4XX': {
        description: 'There is no such code.',
        content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
      },
    }),
  },
  '/approve/{ws}/{id}': {
    get: page('openApproval', 'The page on which people decide; by itself it asks for a key', REQUEST, shown),
    post: form('decideOnPage', 'Approve or reject, or revoke what was allowed ahead', [
      'form',
      'verdict',
      'comment',
      'allowance',
    ]),
  },
  '/approve/{ws}/{id}/key': { post: form('showKey', 'Show the key of a person', ['key']) },
  '/approve/{ws}/{id}/passkey': {
    post: form('showPasskey', 'Show a passkey of a person, who signed the challenge of the page with it', [
      'ceremony',
      'credential',
      'client_data',
      'authenticator_data',
      'signature',
    ]),
  },
  '/approve/{ws}/{id}/leave': { post: form('leavePage', 'End the visit', []) },
};
