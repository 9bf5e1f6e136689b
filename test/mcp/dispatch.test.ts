import { Type } from 'typebox';
import { expect, it } from 'vitest';
import { plainProblem } from '../../src/api/problem.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import type { Principal } from '../../src/effects/model/principal.ts';
import { type Asking, Dispatch } from '../../src/mcp/control/dispatch.ts';
import { observabilityTools } from '../../src/mcp/control/observability.ts';
import { answered, defineTool, type ToolCall } from '../../src/mcp/control/tool.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { embeddedIn } from '../contract/embedded-store.ts';
import { RETENTION } from '../contract/fixture.ts';
import { admitRequest, WORKSPACE } from '../contract/requests.ts';

const PRINCIPAL: Principal = {
  kind: 'account',
  keyId: 'key_1',
  user: 'maria',
  madeBy: null,
  keyCreatedAt: 0,
  readOnly: false,
  allowedTools: ['svc.t2', 'svc.secret'],
  workspace: 'w',
};

const tool = (name: string, change: { readonly givesBusinessData?: boolean; readonly fails?: boolean } = {}) =>
  defineTool({
    name,
    title: name,
    description: name,
    endpoint: 'mcp.tools',
    ...(change.givesBusinessData === true ? { givesBusinessData: true } : {}),
    input: Type.Object({}, { additionalProperties: false }),
    outputSchema: Type.Object({}),
    answer: async () => {
      if (change.fails === true) throw new Error('the inside of the gateway');
      return answered({}, name);
    },
  });

const asking = (principal: Principal): Asking => ({
  principal,
  request: { ip: '127.0.0.1', id: 'req_1' } as Asking['request'],
  authenticated: { at: 0, tookMs: 0 },
});

/** The lines of the log, but for the request. */
const logged: unknown[] = [];

const dispatch = new Dispatch(
  {
    called: (_request, entry) => void logged.push(entry),
    problemOf: () => plainProblem('internal', 'Something went wrong.'),
    renderProblem: (problem) => ({ status: 500, headers: {}, body: { code: problem.code, request_id: 'req_1' } }),
  },
  [
    tool('svc.t1'),
    tool('svc.t2', { givesBusinessData: true }),
    tool('svc.hidden', { givesBusinessData: true }),
    tool('svc.t3', { fails: true }),
    tool('svc.t4'),
  ],
  2,
);

const ask = (method: string, params: JsonObject, principal = PRINCIPAL) =>
  dispatch.answer({ kind: 'request', id: 1, method, params }, { kind: 'handshake', version: null }, asking(principal));

const names = (result: JsonObject): unknown => (result['tools'] as readonly JsonObject[]).map((one) => one['name']);

it('tools are listed in pages, and a cursor of another list is refused', async () => {
  const first = await ask('tools/list', {});
  expect(names(first)).toEqual(['svc.t1', 'svc.t2']);
  const second = await ask('tools/list', { cursor: first['nextCursor'] ?? null });
  expect(names(second)).toEqual(['svc.t3', 'svc.t4']);
  expect(second).not.toHaveProperty('nextCursor');
  await expect(ask('tools/list', { cursor: 'bm9uZQ' })).rejects.toThrow(/cursor/);
  await expect(ask('tools/list', { cursor: 5 })).rejects.toThrow(/cursor/);
});

it('a tool that gives business data is seen and called only where allowed_tools name it, or there are none', async () => {
  expect(await ask('tools/call', { name: 'svc.t2' })).toMatchObject({ isError: false });
  await expect(ask('tools/call', { name: 'svc.hidden' })).rejects.toThrow(/allowed_tools/);
  const free = { ...PRINCIPAL, allowedTools: null };
  expect(await ask('tools/call', { name: 'svc.hidden' }, free)).toMatchObject({ isError: false });
  const all = [...(names(await ask('tools/list', {}, free)) as string[])];
  expect(all).toEqual(['svc.t1', 'svc.t2']);
  const none = { ...PRINCIPAL, allowedTools: [] };
  expect(names(await ask('tools/list', {}, none))).toEqual(['svc.t1', 'svc.t3']);
});

it('each call of a tool stands in the log with what became of it, one that the key may not make too', async () => {
  logged.length = 0;
  await ask('tools/call', { name: 'svc.t1' });
  await expect(ask('tools/call', { name: 'svc.hidden' })).rejects.toThrow(/allowed_tools/);
  await ask('tools/call', { name: 'svc.t4', arguments: { more: 1 } });
  await ask('tools/call', { name: 'svc.t3' });
  const keyId = PRINCIPAL.keyId;
  expect(logged).toEqual([
    { keyId, tool: 'svc.t1', outcome: 'answered', code: null },
    { keyId, tool: 'svc.hidden', outcome: 'refused', code: 'insufficient_scope' },
    { keyId, tool: 'svc.t4', outcome: 'error', code: 'invalid_request' },
    { keyId, tool: 'svc.t3', outcome: 'error', code: 'internal' },
  ]);
});

it('a tool that breaks is an error of the tool, with nothing of the inside', async () => {
  const result = await ask('tools/call', { name: 'svc.t3' });
  expect(result).toMatchObject({ isError: true });
  expect(JSON.stringify(result)).not.toContain('inside');
  // A sentence, and the problem as JSON with its status; the request is the client's own.
  const [sentence, problem] = result['content'] as readonly JsonObject[];
  expect(sentence).toEqual({ type: 'text', text: 'Something went wrong.' });
  expect(JSON.parse(typeof problem?.['text'] === 'string' ? problem['text'] : '')).toEqual({
    code: 'internal',
    status: 500,
  });
});

it('a summary counts what was begun in its window, and nothing older', async () => {
  let now = 1_750_000_000_000;
  const { store, close } = await embeddedIn(
    openEmbeddedStore,
    'never',
  )({
    retention: RETENTION,
    clock: () => now,
  });
  const [summary] = observabilityTools({ store, inLine: (_key, make) => make() });
  const call = {
    ...asking(PRINCIPAL),
    view: { kind: 'all' },
    workspace: WORKSPACE,
    ownAgent: null,
    address: '',
    requestId: '',
  };
  const counted = async (window: string): Promise<unknown> => {
    const answer = await summary?.run({ window }, call as unknown as ToolCall);
    if (answer?.kind !== 'answer') throw new Error(JSON.stringify(answer));
    const { structured } = answer;
    expect(structured).toMatchObject({ window, complete: true, counted_since: structured['since'] });
    const { since } = structured;
    return [structured['counted'], typeof since === 'string' ? now - Date.parse(since) : since];
  };
  const MINUTE = 60_000;
  // As many minutes ago as there are effects from then.
  for (const ago of [50_000, 40_000, 5_000, 1_000, 30]) {
    now = 1_750_000_000_000 + (50_000 - ago) * MINUTE;
    await store.admit(admitRequest());
  }
  now = 1_750_000_000_000 + 50_000 * MINUTE;
  expect(await Promise.all(['15m', '1h', '24h', '7d', '30d'].map(counted))).toEqual([
    [0, 15 * MINUTE],
    [1, 60 * MINUTE],
    [2, 1_440 * MINUTE],
    [3, 10_080 * MINUTE],
    [4, 43_200 * MINUTE],
  ]);
  await close();
});
