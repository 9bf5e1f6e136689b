import { expect, test, vi } from 'vitest';
import { AgentSessions } from '../../../src/upstreams/mcp/mcp-upstream.ts';
import { OwnSession } from '../../../src/upstreams/mcp/own-session.ts';

const settings = {
  id: 'crm',
  url: 'http://127.0.0.1:1',
  timeoutMs: 1_000,
  network: 'any',
  credentials: null,
  mcp: { path: '/mcp', allow: [] },
} as const;
const upstream = { settings, through: { dispatch: () => true }, now: () => 0 };

test('each agent has one session, until it was not used for half an hour', () => {
  let now = 0;
  const sessions = new AgentSessions(() => now);
  const bot = sessions.of('bot', upstream);
  const cat = sessions.of('cat', upstream);
  expect(cat).not.toBe(bot);
  now = 30 * 60_000;
  expect(sessions.of('bot', upstream)).toBe(bot);
  now += 1;
  sessions.of('dog', upstream);
  expect(sessions.of('cat', upstream)).not.toBe(cat);
  expect(sessions.of('bot', upstream)).toBe(bot);
});

test('and it is the same one at the end of that half hour, whoever else has called', () => {
  let now = 0;
  const sessions = new AgentSessions(() => now);
  const bot = sessions.of('bot', upstream);
  now = 30 * 60_000;
  sessions.of('cat', upstream);
  expect(sessions.of('bot', upstream)).toBe(bot);
});

test('there are at most a thousand, and the one that was used last is kept', () => {
  const sessions = new AgentSessions(() => 0);
  const first = sessions.of('0', upstream);
  const second = sessions.of('1', upstream);
  for (let agent = 2; agent < 1_000; agent += 1) sessions.of(String(agent), upstream);
  expect(sessions.of('0', upstream)).toBe(first);
  sessions.of('one more', upstream);
  expect(sessions.of('0', upstream)).toBe(first);
  expect(sessions.of('1', upstream)).not.toBe(second);
});

test('one that nobody has used for as long as its server says is ended there, and no other', () => {
  const end = vi.spyOn(OwnSession.prototype, 'end').mockReturnValue();
  const child = { command: 'server', args: [], env: {}, cwd: null, sessions: 1, idleMs: 60_000 };
  for (const [kind, mcp] of [
    ['a program', { ...settings.mcp, child }],
    ['a server with a stream', { ...settings.mcp, sse: { sessions: 1, idleMs: 60_000 } }],
  ] as const) {
    end.mockClear();
    let now = 0;
    const at = { ...upstream, settings: { ...settings, mcp } };
    const sessions = new AgentSessions(() => now);
    const unused = sessions.of('bot', at);
    sessions.of('cat', at);
    now = 60_000;
    sessions.of('cat', at);
    expect(end, kind).not.toHaveBeenCalled();
    now += 1;
    sessions.of('cat', at);
    expect(end.mock.contexts, kind).toEqual([unused]);
    expect(end.mock.calls, kind).toEqual([[at]]);
  }
  end.mockRestore();
});
