import { Type } from 'typebox';
import { expect, it } from 'vitest';
import { plainProblem } from '../../src/api/problem.ts';
import type { Principal } from '../../src/effects/model/principal.ts';
import { type Asking, createDispatch } from '../../src/mcp/control/dispatch.ts';
import { answered, defineTool } from '../../src/mcp/control/tool.ts';
import type { JsonObject } from '../../src/json/value.ts';

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

const dispatch = createDispatch(
  {
    called: () => undefined,
    problemOf: () => plainProblem('internal', 'Something went wrong.'),
    renderProblem: (problem) => ({ status: 500, headers: {}, body: { code: problem.code } }),
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

it('a tool that breaks is an error of the tool, with nothing of the inside', async () => {
  const result = await ask('tools/call', { name: 'svc.t3' });
  expect(result).toMatchObject({ isError: true });
  expect(JSON.stringify(result)).not.toContain('inside');
});
