import { Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import { type AccessLine, createAccessLog } from '../../src/telemetry/access-log.ts';
import { bytesSince, countingAccess, traceOf, wordOf } from '../../src/telemetry/access.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';

const LINE: AccessLine = {
  requestId: 'req_1',
  method: 'GET',
  workspace: 'demo',
  agentId: 'bot',
  tool: 'api.see',
  upstream: 'api',
  rpc: null,
  decision: 'committed',
  status: 200,
  bytesIn: 1,
  bytesOut: 2,
  durationMs: 1.23456,
  authenticatedInMs: null,
  effectId: null,
  traceId: null,
  lasts: false,
  cut: true,
};

test('a name that a caller gives cannot break a line, nor put a key into it', () => {
  const written: string[] = [];
  const log = createAccessLog(
    (lines) => written.push(lines),
    () => 0,
  );
  log.record({ ...LINE, agentId: 'a"\n{"level":"fatal' });
  log.record({ ...LINE, agentId: 'svc_agent_7hQ2mZx0PbKdAAAABBBBCCCCDDDD' });
  log.record({ ...LINE, agentId: 'a'.repeat(100_000) });
  log.flush();
  const lines = written
    .join('')
    .trimEnd()
    .split('\n')
    .map((line): Record<string, unknown> => JSON.parse(line));
  expect(lines.map(({ agent }) => agent)).toEqual([
    'a"\n{"level":"fatal',
    'svc_agent_7hQ2mZx0PbKd[redacted]',
    'a'.repeat(128),
  ]);
  expect(lines[0]).toMatchObject({ time: '1970-01-01T00:00:00.000Z', duration_ms: 1.235, cut: true });
});

test('a line has what is known of its request, and nothing is there twice', () => {
  const written: string[] = [];
  const log = createAccessLog(
    (lines) => written.push(lines),
    () => 1_750_000_000_000,
  );
  log.record({ ...LINE, cut: false, rpc: 'tools/call', authenticatedInMs: 0.5, effectId: 'eff_1', traceId: 't' });
  log.record({ ...LINE, agentId: null, tool: null, upstream: null, decision: null });
  log.flush();
  log.flush();
  const [first = '', second = ''] = written.join('').trimEnd().split('\n');
  const common = {
    level: 'info',
    time: '2025-06-15T15:06:40.000Z',
    msg: 'call',
    request_id: 'req_1',
    method: 'GET',
    workspace: 'demo',
    status: 200,
    bytes_in: 1,
    bytes_out: 2,
    duration_ms: 1.235,
  };
  const known = { agent: 'bot', tool: 'api.see', upstream: 'api', decision: 'committed', auth_ms: 0.5 };
  expect(JSON.parse(first)).toEqual({ ...common, ...known, effect_id: 'eff_1', trace_id: 't', rpc: 'tools/call' });
  const nothing = { agent: null, tool: null, upstream: null, decision: null, auth_ms: null, effect_id: null };
  expect(JSON.parse(second)).toEqual({ ...common, ...nothing, trace_id: null, cut: true });
  expect(written).toHaveLength(1);
});

test('the trace of a request is that of its traceparent, and of nothing that only looks like one', () => {
  const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
  const parent = `00-${trace}-00f067aa0ba902b7-01`;
  expect(traceOf(parent)).toBe(trace);
  const half = `00-${trace}-00f0`;
  for (const other of [
    undefined,
    '',
    trace,
    half,
    `x${parent}`,
    parent.toUpperCase(),
    'svc_agent_7hQ2mZx0PbKd',
    [parent],
  ])
    expect(traceOf(other)).toBeNull();
});

test('what an upstream sent under the name of a decision is taken for one only if it is a word', () => {
  expect(wordOf('denied_policy')).toBe('denied_policy');
  for (const sent of [undefined, 200, ['committed'], '', 'a b', 'a"', 'a\n', 'x'.repeat(65)])
    expect(wordOf(sent), JSON.stringify(sent)).toBeNull();
});

test('of a connection that is kept each line has the bytes since the line before', () => {
  const moved = { bytesRead: 100, bytesWritten: 1_000 };
  const socket = new Socket();
  for (const name of ['bytesRead', 'bytesWritten'] as const)
    Object.defineProperty(socket, name, { get: () => moved[name] });
  expect(bytesSince(socket)).toEqual({ bytesIn: 100, bytesOut: 1_000 });
  Object.assign(moved, { bytesRead: 130, bytesWritten: 1_007 });
  expect(bytesSince(socket)).toEqual({ bytesIn: 30, bytesOut: 7 });
  expect(bytesSince(socket)).toEqual({ bytesIn: 0, bytesOut: 0 });
});

test('lines are gathered, and never many of them', () => {
  vi.useFakeTimers();
  const written: string[] = [];
  const log = createAccessLog((lines) => written.push(lines));
  for (let count = 0; count < 600; count += 1) log.record(LINE);
  expect(written.map((lines) => lines.split('\n').length - 1)).toEqual([256, 256]);
  vi.advanceTimersByTime(100);
  expect(written.length).toBe(3);
  vi.useRealTimers();
});

test('tools beyond a thousand series are one', async () => {
  const metrics = createMetrics({
    store: {
      health: () => ({ ready: true, durability: 'sync', problem: null, epoch: 1 }),
      now: () => 0,
      commits: () => ({ done: 0, moved: 0, givenUp: 0 }),
      effects: () => Promise.resolve({ items: [], next: null }),
      approvals: () => Promise.resolve({ items: [], next: null }),
    },
    workspaces: () => [],
    swept: () => null,
  });
  for (let count = 0; count < 5_000; count += 1) metrics.called('api', `api.t${count}`, 'committed', 1);
  const { text } = await metrics.render();
  expect(text.match(/^svc_proxy_call_seconds_count/gm)?.length).toBe(1_001);
  expect(text).toContain('svc_proxy_call_seconds_count{upstream="other",tool="other",decision="committed"} 4000');
});

test('what lasts until one side leaves is a line, and no call that is counted, for its duration is that of none', () => {
  const counted: unknown[] = [];
  const lines: AccessLine[] = [];
  const tell = countingAccess(
    (...call) => counted.push(call),
    (line) => lines.push(line),
  );
  const tunnel = { ...LINE, lasts: true };
  for (const line of [LINE, tunnel]) tell(line);
  expect(counted).toEqual([['api', 'api.see', 'committed', 1.23456]]);
  expect(lines).toEqual([LINE, tunnel]);
});
