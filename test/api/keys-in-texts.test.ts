import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeKey } from '../../src/identity/key-format.ts';
import { redactSecrets } from '../../src/telemetry/logger.ts';
import { type Rig, refund, startRig } from './rig.ts';

const WS = '/v1/workspaces/demo';
const { key: KEY } = makeKey('agent');

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

describe('an API key in a text that is kept or shown is refused, whoever’s it is', () => {
  it.each([
    ['a tool', `${WS}/effects`, () => refund({ tool: KEY }), '/tool'],
    ['a target', `${WS}/effects`, () => refund({ target: `x ${KEY}` }), '/target'],
    ['an agent', `${WS}/effects`, () => refund({ agent_id: KEY }), '/agent_id'],
    ['metadata', `${WS}/effects`, () => refund({ metadata: { note: { deep: [KEY] } } }), '/metadata/note/deep/0'],
    ['a name in metadata', `${WS}/effects`, () => refund({ metadata: { [KEY]: 1 } }), '/metadata'],
    ['state_check', `${WS}/effects`, () => refund({ state_check: { intent: KEY } }), '/state_check/intent'],
    ['a preview', `${WS}/effects/preview`, () => refund({ tool: KEY }), '/tool'],
    ['a claim', `${WS}/claims`, () => ({ target: KEY, agent_id: 'bot', ttl_s: 5 }), '/target'],
    ['a pool', `${WS}/reservations`, () => ({ pool: KEY, units: 1, agent_id: 'bot', ttl_s: 5 }), '/pool'],
    ['a pause', `${WS}/pauses`, () => ({ scope: { workspace: true }, reason: KEY }), '/reason'],
    ['an agent’s id', `${WS}/agents`, () => ({ id: KEY }), '/id'],
    ['a comment', `${WS}/approvals/apr_x/approve`, () => ({ comment: KEY }), '/comment'],
    ['a key’s name', '/v1/beta/users/maria/keys', () => ({ name: KEY, profile: 'mcp_readonly' }), '/name'],
    ['a path', `/v1/beta/users/${KEY}/keys`, () => ({ name: 'x', profile: 'mcp_readonly' }), '/params/user_id'],
  ])('%s', async (_, path, body, where) => {
    const key = path.startsWith('/v1/beta') ? rig.keys.admin : rig.keys.account;
    const answer = await rig.send('POST', path, { key, body: body() });
    expect([answer.status, answer.json['code']]).toEqual([400, 'invalid_request']);
    expect(answer.json['errors']).toContainEqual({ path: where, message: expect.stringContaining('API key') });
    expect(answer.text).not.toContain(KEY);
  });

  it('the query of a list', async () => {
    const answer = await rig.send('GET', `${WS}/effects?agent_id=${KEY}`);
    expect([answer.status, answer.json['code']]).toEqual([400, 'invalid_request']);
    expect(answer.json['errors']).toEqual([{ path: '/query/agent_id', message: expect.stringContaining('API key') }]);
    expect(answer.text).not.toContain(KEY);
  });

  it.each(['effects', 'effects/preview'])('the header Idempotency-Key of …/%s', async (path) => {
    const { idempotency_key: _, ...body } = refund();
    const answer = await rig.send('POST', `${WS}/${path}`, { body, headers: { 'idempotency-key': KEY } });
    expect([answer.status, answer.json['code']]).toEqual([400, 'invalid_request']);
    expect(answer.json['errors']).toContainEqual({
      path: '/headers/idempotency-key',
      message: expect.stringContaining('API key'),
    });
    expect(answer.text).not.toContain(KEY);
  });

  it.each([
    ['params', (own: string) => ({ params: { payment_id: own, amount: 100, currency: 'EUR' } }), '/params'],
    ['a name in params', (own: string) => ({ params: { payment_id: 'p', amount: 1, [own]: 1 } }), '/params'],
    ['a target', (target: string) => ({ target }), '/target'],
    ['metadata', (own: string) => ({ metadata: { note: { deep: [own] } } }), '/metadata'],
    ['a name in metadata', (own: string) => ({ metadata: { [`x ${own}`]: 1 } }), '/metadata'],
    ['an idempotency key', (own: string) => ({ idempotency_key: own }), '/idempotency_key'],
    ['a header', (own: string) => ({ headers: { 'x-tenant': `of ${own}` } }), '/headers'],
  ])('nor that of the call itself in %s, also where a part of it is missing', async (_, change, where) => {
    const body = refund(change(rig.keys.account.slice(0, -3)));
    const answer = await rig.send('POST', `${WS}/effects`, { body });
    expect([answer.status, answer.json['code']]).toEqual([400, 'invalid_request']);
    expect(answer.json['errors']).toContainEqual({
      path: where,
      message: expect.stringMatching(/holds? the key that this call is made with/),
    });
  });

  it('a text that only looks like one is none', async () => {
    const metadata = { note: `${KEY.slice(0, -1)}${KEY.endsWith('0') ? '1' : '0'} svc_agent_` };
    const answer = await rig.send('POST', `${WS}/effects`, { body: refund({ metadata }) });
    expect(answer.json['decision']).toBe('committed');
  });
});

it('logs hold no key, percent-encoded either', () => {
  const encoded = Array.from(KEY, (one) => `%${one.charCodeAt(0).toString(16)}`).join('');
  const secret = KEY.slice(-38);
  for (const text of [KEY, KEY.replaceAll('_', '%5F'), KEY.replaceAll('_', '%5f'), KEY.replaceAll('_', '%255F')]) {
    expect(redactSecrets(`/x/${text}/y`)).not.toContain(secret);
    expect(redactSecrets(`/x/${text}/y`)).toMatch(/\[redacted\]\/y$/);
  }
  expect(redactSecrets(`/x/${encoded}/y`)).not.toContain(encoded.slice(-60));
});
