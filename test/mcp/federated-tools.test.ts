import { expect, test } from 'vitest';
import type { Tool } from '../../src/effects/model/tool.ts';
import { announcements, federatedList, federatedTool } from '../../src/mcp/gateway/federated.ts';
import type { Catalog } from '../../src/upstreams/catalog.ts';
import { makeTool } from '../upstreams/tool.ts';

function toolOf(upstream: string, name: string, isThere = true): Tool {
  return {
    ...makeTool({ name: `${upstream}.${name}`, upstream }),
    call: {
      kind: 'mcp',
      name,
      pinned: { name, description: `Of ${upstream}`, inputSchema: { type: 'object' } },
      ...(isThere && { federated: `${upstream}__${name}` }),
      isError: 'unknown',
      onClientClose: 'finish',
    },
  };
}

function catalogOf(tools: readonly Tool[]): Catalog {
  return {
    tools: () => tools,
    tool: (name) => tools.find((tool) => tool.name === name) ?? null,
    check: () => [],
    target: () => null,
    textParam: (_tool, _name, text) => text,
  };
}

const TOOLS = [
  toolOf('docs', 'search'),
  toolOf('crm', 'refund'),
  toolOf('crm', 'ändern', false),
  toolOf('crm', 'note'),
  makeTool({ name: 'payments.refund' }),
];
const KEY = { allowedTools: null };
const ask = (cursor?: string) =>
  ({ kind: 'request', id: 1, method: 'tools/list', params: cursor === undefined ? {} : { cursor } }) as const;
const everything = () => false;

function namesOf({ tools }: ReturnType<typeof federatedList>): unknown {
  return Array.isArray(tools) ? tools.map((tool: { name?: unknown }) => tool.name) : null;
}

test('tools of MCP servers that have a name here, as they were pinned, in the order of these names', () => {
  const catalog = catalogOf(TOOLS);
  const list = federatedList(catalog, KEY, ask(), everything);
  expect(list).toEqual({
    tools: [
      { name: 'crm__note', description: 'Of crm', inputSchema: { type: 'object' } },
      { name: 'crm__refund', description: 'Of crm', inputSchema: { type: 'object' } },
      { name: 'docs__search', description: 'Of docs', inputSchema: { type: 'object' } },
    ],
  });
  expect(federatedTool(catalog, 'crm__refund')).toMatchObject({ full: 'crm.refund', upstream: 'crm' });
  for (const name of ['crm.refund', 'refund', 'payments.refund', 'crm__ändern', 'constructor', '', 7, null, undefined])
    expect(federatedTool(catalog, name)).toBeNull();
  // Another configuration is another list.
  expect(namesOf(federatedList(catalogOf(TOOLS.slice(0, 1)), KEY, ask(), everything))).toEqual(['docs__search']);
});

test('a key sees those of its own, and nobody one that is known to be something else', () => {
  const catalog = catalogOf(TOOLS);
  expect(namesOf(federatedList(catalog, { allowedTools: ['crm.note', 'docs__search'] }, ask(), everything))).toEqual([
    'crm__note',
  ]);
  expect(namesOf(federatedList(catalog, { allowedTools: [] }, ask(), everything))).toEqual([]);
  expect(namesOf(federatedList(catalog, KEY, ask(), ({ full }) => full === 'crm.note'))).toEqual([
    'crm__refund',
    'docs__search',
  ]);
});

test('a long list comes in pages, each tool once; a cursor that is none of the list is refused', () => {
  const many = catalogOf(Array.from({ length: 2_250 }, (_, at) => toolOf('crm', `t${String(at).padStart(4, '0')}`)));
  const seen: unknown[] = [];
  const sizes: number[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = federatedList(many, KEY, ask(cursor), everything);
    const names = namesOf(page);
    if (!Array.isArray(names)) throw new Error('no list');
    seen.push(...names);
    sizes.push(names.length);
    if (typeof page['nextCursor'] !== 'string') break;
    cursor = page['nextCursor'];
  }
  expect(sizes).toEqual([1_000, 1_000, 250]);
  expect(new Set(seen).size).toBe(2_250);
  expect(() => federatedList(many, KEY, ask('crm__none'), everything)).toThrow();
  // A tool that this key does not see is no place to begin at.
  expect(() => federatedList(many, { allowedTools: ['crm.t0000'] }, ask('crm__t1000'), everything)).toThrow();
});

test('that the tools of a server have changed is heard once for each time that it says so, wherever the bytes are parted', () => {
  const said = Buffer.from('data: {"method":"notifications/tools/list_changed"}\n\n');
  for (let at = 0; at <= said.length; at += 1) {
    let heard = 0;
    const hear = announcements(() => {
      heard += 1;
    });
    for (const piece of [said.subarray(0, at), said.subarray(at), Buffer.from('data: {}\n\n')]) hear(piece);
    expect([heard, at]).toEqual([1, at]);
    hear(said);
    expect(heard).toBe(2);
  }
});
