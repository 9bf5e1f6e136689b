import { createSecretKey } from 'node:crypto';
import { expect, it } from 'vitest';
import { MAX_ID } from '../../src/mcp/gateway/marks.ts';
import { openSession, sealHeaders, sealSession } from '../../src/mcp/gateway/sessions.ts';

const KEY = createSecretKey(Buffer.alloc(32, 1));
const OWNER = { upstream: 'crm', workspace: 'demo', agentId: 'bot' };
const sealed = (id: string, takesUrls = false) => sealSession(KEY, OWNER, { id, takesUrls });

it.each([true, false])('a session is opened as it was sealed (takes addresses: %s)', (takesUrls) => {
  const session = { id: 's'.repeat(MAX_ID), takesUrls };
  expect(openSession(KEY, OWNER, sealSession(KEY, OWNER, session) ?? '')).toEqual(session);
});

it.each([
  ['another agent', { agentId: 'cleaner' }],
  ['another workspace', { workspace: 'other' }],
  ['another server', { upstream: 'mail' }],
])('a session of %s is none', (_, other) => {
  expect(openSession(KEY, { ...OWNER, ...other }, sealed('s') ?? '')).toBeNull();
});

it.each([
  ['is empty', ''],
  ['has a space', 'a b'],
  ['has a letter that headers do not carry', 'ä'],
  ['is too long', 's'.repeat(MAX_ID + 1)],
])('an id that %s is sealed for nobody', (_, id) => {
  expect(sealed(id)).toBeNull();
});

it('of the headers of an answer the session alone is changed; without one that can be used it is left out', () => {
  const headers = { 'content-type': 'text/event-stream', 'mcp-session-id': 's', 'x-more': ['a', 'b'] };
  const { 'mcp-session-id': _id, ...others } = headers;
  const seal = (id: string): string => `sealed ${id}`;
  expect(sealHeaders(headers, seal)).toEqual({
    headers: { ...others, 'mcp-session-id': 'sealed s' },
    unsealed: false,
  });
  expect(sealHeaders(others, seal)).toEqual({ headers: others, unsealed: false });
  expect(sealHeaders(headers, () => null)).toEqual({ headers: others, unsealed: true });
  expect(sealHeaders({ ...others, 'mcp-session-id': ['s', 't'] }, seal)).toEqual({ headers: others, unsealed: true });
});
