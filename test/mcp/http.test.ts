import Fastify, { type FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Principal } from '../../src/effects/model/principal.ts';
import { plainProblem, renderProblem } from '../../src/api/problem.ts';
import { callerOf } from '../../src/mcp/caller.ts';
import { RpcRefused, acceptMessages, answerFaults, messageIn, sendMessage } from '../../src/mcp/http.ts';
import { type RpcMessage, RPC, refused, resultMessage } from '../../src/mcp/jsonrpc.ts';

const PRINCIPAL: Principal = {
  kind: 'account',
  keyId: 'key_1',
  user: 'maria',
  madeBy: null,
  keyCreatedAt: 0,
  readOnly: false,
  allowedTools: null,
  workspace: 'w',
};

const PING = '{"jsonrpc":"2.0","id":3,"method":"ping"}';
const JSON_TYPE = 'application/json';

let app: FastifyInstance;
let queryKey: 'allow' | 'refuse' = 'allow';
/** The addresses from which keys came. */
const asked: string[] = [];

beforeAll(async () => {
  app = Fastify({ bodyLimit: 1000 });
  await app.register(async (scope) => {
    acceptMessages(scope, () => ({ depth: 16, values: 1000 }));
    answerFaults(scope, {
      problemOf: () => plainProblem('internal', 'Something went wrong.'),
      renderProblem: (problem, { id }) =>
        renderProblem(problem, {}, { publicUrl: 'http://gw', requestId: id, run: false, changes: false }),
    });
    scope.addHook('onRequest', async (request, reply) => {
      await callerOf(
        {
          identify(key, address) {
            asked.push(address);
            return key === 'good'
              ? { kind: 'principal', principal: PRINCIPAL }
              : { kind: 'problem', problem: plainProblem('invalid_key', 'The key is unknown.') };
          },
          settings: () => ({ publicUrl: 'http://gw', queryKey }),
        },
        request,
        reply,
      );
    });
    scope.post<{ Body: RpcMessage | undefined }>('/mcp', async (request, reply) => {
      const message = messageIn(request);
      if (message.kind !== 'request') return reply.code(202).send();
      if (message.method === 'refuse') throw new RpcRefused(refused(400, null, RPC.invalidParams, 'No.'));
      if (message.method === 'crash') throw new Error('secret');
      return sendMessage(reply, resultMessage(message.id, { method: message.method }));
    });
  });
});

afterAll(() => app.close());

const post = async (payload: string | Buffer, headers: Record<string, string> = {}, query = '') => {
  const response = await app.inject({
    method: 'POST',
    url: `/mcp${query}`,
    headers: { 'content-type': JSON_TYPE, 'x-api-key': 'good', ...headers },
    payload,
  });
  return {
    status: response.statusCode,
    headers: response.headers,
    body: response.body === '' ? null : (JSON.parse(response.body) as object),
  };
};

describe('a message over HTTP', () => {
  it('is taken without Accept, and answered as JSON', async () => {
    const { status, headers, body } = await post(PING);
    expect({ status, type: headers['content-type'], body }).toEqual({
      status: 200,
      type: 'application/json; charset=utf-8',
      body: { jsonrpc: '2.0', id: 3, result: { method: 'ping' } },
    });
  });

  it.each([
    `${JSON_TYPE}; charset=utf-8`,
    `${JSON_TYPE};charset="UTF-8"`,
    `${JSON_TYPE}; charset=utf8`,
    'Application/JSON',
  ])('as %s', async (type) => {
    expect((await post(PING, { 'content-type': type, 'content-encoding': 'Identity' })).status).toBe(200);
  });

  it('is answered with what no cache keeps', async () => {
    for (const { headers } of [await post(PING), await post('')]) expect(headers['cache-control']).toBe('no-store');
  });

  it('of another type is refused with the beginning of its name', async () => {
    const { body } = await post(PING, { 'content-type': `text/${'x'.repeat(500)}` });
    expect(body).toMatchObject({
      error: { message: `The content type is text/${'x'.repeat(95)}: send the message as application/json in UTF-8.` },
    });
  });

  it.each<[string, string | Buffer, Record<string, string>, number, number]>([
    ['text', PING, { 'content-type': 'text/plain' }, 415, -32_600],
    ['a form', PING, { 'content-type': 'application/x-www-form-urlencoded' }, 415, -32_600],
    ['another charset', PING, { 'content-type': `${JSON_TYPE}; charset=utf-16` }, 415, -32_600],
    ['compressed', PING, { 'content-encoding': 'gzip' }, 415, -32_600],
    ['empty', '', {}, 400, -32_700],
    ['a batch', `[${PING}]`, {}, 400, -32_600],
    ['a name twice', '{"jsonrpc":"2.0","id":3,"id":3,"method":"ping"}', {}, 400, -32_700],
    [
      'too deep',
      `{"jsonrpc":"2.0","id":3,"method":"ping","params":${'{"a":'.repeat(16)}1${'}'.repeat(17)}`,
      {},
      400,
      -32_700,
    ],
    ['too large', `{"jsonrpc":"2.0","id":3,"method":"ping","params":{"a":"${'x'.repeat(1000)}"}}`, {}, 413, -32_600],
  ])('%s is refused with a JSON-RPC error', async (_what, payload, headers, status, code) => {
    const answer = await post(payload, headers);
    expect(answer).toMatchObject({ status, body: { jsonrpc: '2.0', id: null, error: { code } } });
    expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
  });

  it('without a content type is refused', async () => {
    const response = await app.inject({ method: 'POST', url: '/mcp', headers: { 'x-api-key': 'good' }, payload: PING });
    expect(response.statusCode).toBe(415);
    expect(response.json()).toMatchObject({ error: { message: expect.stringContaining('no content type') as string } });
  });

  it('a refusal names the id of the request, also where it does not know it', async () => {
    expect(await post('{"jsonrpc":"2.0","id":"x","method":"refuse"}')).toMatchObject({
      status: 400,
      body: { id: 'x', error: { code: -32_602 } },
    });
  });

  it('a fault of the gateway names the id, and nothing of what went wrong', async () => {
    const answer = await post('{"jsonrpc":"2.0","id":"x","method":"crash"}');
    expect(answer).toMatchObject({
      status: 500,
      body: { id: 'x', error: { code: -32_603, message: 'Something went wrong.', data: { code: 'internal' } } },
    });
    expect(JSON.stringify(answer.body)).not.toContain('secret');
  });
});

describe('the key', () => {
  it('is missing or unknown: 401, as a JSON-RPC error with the problem', async () => {
    for (const [key, code] of [
      ['', 'missing_key'],
      ['bad', 'invalid_key'],
    ] as const) {
      const answer = await post(PING, { 'x-api-key': key });
      expect(answer).toMatchObject({
        status: 401,
        headers: {
          'www-authenticate': 'Bearer realm="svc-gateway"',
          'content-type': 'application/json; charset=utf-8',
        },
        body: { error: { code: -32_010, data: { code, status: 401, did_it_happen: 'no' } } },
      });
      // Official clients take no id of null.
      expect(answer.body).not.toHaveProperty('id');
    }
  });

  it('may be a bearer token, or stand in the query unless that is refused', async () => {
    expect((await post(PING, { 'x-api-key': '', authorization: 'Bearer good' })).status).toBe(200);
    const inQuery = await post(PING, { 'x-api-key': '' }, '?api_key=good');
    expect(inQuery).toMatchObject({
      status: 200,
      headers: {
        deprecation: '@1767225600',
        link: '<http://gw/docs/errors/missing_key>; rel="deprecation"',
      },
    });
    // Who sends it where it belongs is not told that it is deprecated.
    expect((await post(PING)).headers).not.toHaveProperty('deprecation');
    queryKey = 'refuse';
    expect((await post(PING, { 'x-api-key': '' }, '?api_key=good')).status).toBe(401);
    queryKey = 'allow';
  });

  it('is all that the query may hold', async () => {
    expect(await post(PING, {}, '?tool=x')).toMatchObject({ status: 400, body: { error: { code: -32_600 } } });
    expect(await post(PING, {}, `?${'x'.repeat(500)}=1`)).toMatchObject({
      body: { error: { message: `There is no query here but the key: leave out ${'x'.repeat(100)}.` } },
    });
  });

  it('is one, whatever is sent: two that differ are told apart from none', async () => {
    expect(await post(PING, { authorization: 'Bearer svc_agent_other' })).toMatchObject({
      status: 401,
      body: { error: { data: { code: 'invalid_key' } } },
    });
  });

  it('is looked up with the address that it came from, by which guesses are counted', async () => {
    asked.length = 0;
    await post(PING, { 'x-api-key': 'bad' });
    expect(asked).toEqual(['127.0.0.1']);
  });
});
