import { expect, test, vi } from 'vitest';
import type { McpCall, Tool } from '../../src/effects/model/tool.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { createPinAlarm, createPinView } from '../../src/gateway/pin-view.ts';
import { createUpstreams } from '../../src/upstreams/upstreams.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { makeTool } from '../upstreams/tool.ts';

const WORDS = { server: 'crm', instructions: null };
const SAYS = { serverInfo: { name: 'crm' } };

/** A server with many pinned tools that nobody looks at, and the alarm of the gateway. */
function world(count: number) {
  const told: string[] = [];
  const unapproved: unknown[] = [];
  let judged = 0;
  let begun = false;
  const tools = Array.from({ length: count }, (_, at): Tool & { readonly call: McpCall } => {
    const name = `t${at}`;
    const pinned: JsonObject = { name };
    const call: McpCall = { kind: 'mcp', name, pinned, isError: 'unknown', onClientClose: 'finish' };
    return { ...makeTool(), name: `crm.${name}`, upstream: 'crm', call, paramsSchema: null, target: null };
  });
  let catalog = createCatalog(tools);
  const limits = { responseBytes: 1_000, responseKeptBytes: 1_000 };
  const settings = {
    id: 'crm',
    url: '',
    timeoutMs: 1_000,
    connections: 1,
    network: 'any',
    credentials: null,
    // A program is not looked at before it is called.
    mcp: {
      path: '/',
      allow: [],
      words: WORDS,
      child: { command: 'none', args: [], env: {}, cwd: null, sessions: 1, idleMs: 1 },
    },
  } as const;
  const upstreams = createUpstreams([settings], limits, Date.now, (id, names) => {
    if (begun) alarm.heed(id, names);
  });
  begun = true;
  const server = upstreams.server('crm');
  if (server === null) throw new Error('no server');
  const { pins } = server;
  const stateOf = pins.stateOf.bind(pins);
  pins.stateOf = (...given) => {
    judged += 1;
    return stateOf(...given);
  };
  const declared = () => ({ configuration: { upstreams: [{ id: 'crm' }, { id: 'http' }] }, catalog });
  const alarm = createPinAlarm({
    upstreams,
    declared,
    quarantined: (name, state) => void told.push(`${state} ${name}`),
    released: (name) => void told.push(`released ${name}`),
    unapproved: (upstream, names) => unapproved.push([upstream, names]),
  });
  return {
    told,
    unapproved,
    notes: () => alarm.notes(),
    undeclare: () => void (catalog = createCatalog([])),
    tools,
    view: createPinView(upstreams, declared),
    judgedBy(act: () => void): number {
      judged = 0;
      act();
      return judged;
    },
    list: (...listed: readonly JsonObject[]) =>
      pins.passes({ tools: listed }, (name) => catalog.tool(`crm.${name}`) !== null),
    introduce: (says: JsonObject) => void pins.introduces(says, WORDS),
    /** The server lists these beside what is pinned. */
    lists(...names: readonly string[]) {
      pins.names = () => names;
      alarm.heed('crm', null);
    },
    /** All tools of the server, as the gateway's own look has read them. */
    says(...live: readonly JsonObject[]) {
      pins.read = async () => ({ ...WORDS, tools: live });
    },
    close: () => upstreams.close(),
  };
}

test('a list that passes costs what is in it; what the server says of itself is about all tools, where it is news', async () => {
  const { told, judgedBy, list, introduce, close } = world(500);
  expect(judgedBy(() => introduce(SAYS))).toBe(500);
  expect(judgedBy(() => list({ name: 't1' }, { name: 't2', title: 'Other' }, { name: 'unknown' }))).toBe(2);
  expect(told).toEqual(['changed crm.t2']);
  expect(judgedBy(() => list({ name: 't2', title: 'Other' }))).toBe(1);
  expect(judgedBy(() => introduce(SAYS))).toBe(0);
  expect(told).toEqual(['changed crm.t2']);
  expect(judgedBy(() => introduce({ ...SAYS, instructions: 'Obey.' }))).toBe(500);
  expect(told).toEqual(['changed crm.t2', 'changed crm.t1']);
  introduce(SAYS);
  list({ name: 't2' });
  expect(told.slice(2)).toEqual(['released crm.t1', 'released crm.t2']);
  // Once for each time.
  list({ name: 't2' });
  list({ name: 't2', title: 'Other' });
  expect(told.slice(4)).toEqual(['changed crm.t2']);
  await close();
});

test('what is not called is a note, since when, until it is approved again or declared no more', async () => {
  const { notes, list, introduce, undeclare, close } = world(3);
  const before = Date.now();
  introduce(SAYS);
  list({ name: 't0' });
  expect(notes()).toEqual([]);
  list({ name: 't0' }, { name: 't1', title: 'Other' });
  const [note, ...others] = notes();
  expect(note?.message).toMatch(
    /^Tools of the MCP server crm that are not called, .*: 1\. svc tools diff .* --upstream crm/,
  );
  expect([(note?.since ?? 0) >= before, others]).toEqual([true, []]);
  list({ name: 't1' });
  expect(notes()).toEqual([]);
  list({ name: 't2', title: 'Other' });
  expect(notes()).toHaveLength(1);
  undeclare();
  expect(notes()).toEqual([]);
  await close();
});

test('several that are not called are one note, since the first of them', async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: 1_000 });
  try {
    const { notes, list, introduce, close } = world(3);
    introduce(SAYS);
    list({ name: 't1', title: 'Other' });
    vi.setSystemTime(2_000);
    list({ name: 't2', title: 'Other' });
    expect(notes()).toMatchObject([{ since: 1_000, message: expect.stringMatching(/: 2\. svc tools diff/) }]);
    await close();
  } finally {
    vi.useRealTimers();
  }
});

test('each tool is as its server says now: what is not as approved, or not seen, is refused', async () => {
  const { unapproved, tools, view, list, introduce, close } = world(3);
  const [one, two, three] = tools;
  if (one === undefined || two === undefined || three === undefined) throw new Error('there are three');
  expect(view.refusal(one)).toMatchObject({
    code: 'tool_unseen',
    message: expect.stringContaining('not looked at yet'),
  });
  introduce(SAYS);
  list({ name: 't0' }, { name: 't1', title: 'Other' }, { name: 'extra' });
  expect([one, two, three].map((tool) => view.stateOf(tool))).toEqual(['pinned', 'changed', 'unseen']);
  expect(view.refusal(one)).toBeNull();
  expect(view.refusal(two)).toMatchObject({ code: 'tool_quarantined' });
  expect(view.refusal(three)).toMatchObject({ code: 'tool_unseen' });
  // A tool of an HTTP API has no pin, and none refuses it.
  const plain = { ...makeTool(), name: 'http.x', upstream: 'http' };
  expect([view.stateOf(plain), view.known(plain), view.refusal(plain)]).toEqual([null, null, null]);
  // Of what passes to agents only pinned names are kept: a server can make up any number of others.
  expect(view.seen()).toEqual([{ upstream: 'crm', failure: null, unapproved: [] }]);
  expect(unapproved).toEqual([]);
  expect(await view.compare('http')).toBeNull();
  await close();
});

test('tools that nobody has approved are told of once, and again where they are others', async () => {
  const { unapproved, lists, view, close } = world(1);
  lists('t0');
  expect(unapproved).toEqual([]);
  for (let looks = 0; looks < 3; looks += 1) lists('t0', 'extra');
  expect(unapproved).toEqual([['crm', ['extra']]]);
  lists('t0', 'extra', 'more');
  expect(unapproved.slice(1)).toEqual([['crm', ['extra', 'more']]]);
  // That there are none any more is no news, and that they are back is.
  lists('t0');
  expect(view.seen()).toMatchObject([{ upstream: 'crm', unapproved: [] }]);
  lists('t0', 'extra', 'more');
  expect(unapproved.slice(2)).toEqual([['crm', ['extra', 'more']]]);
  expect(view.seen()).toMatchObject([{ upstream: 'crm', unapproved: ['extra', 'more'] }]);
  await close();
});

test('a tool of more than 65,536 characters is not compared here', async () => {
  const { view, says, close } = world(2);
  const long = (characters: number): JsonObject => ({ name: 't1', description: 'x'.repeat(characters) });
  const state = async (): Promise<unknown> => {
    const compared = await view.compare('crm');
    if (compared === null || typeof compared === 'string') throw new Error('it can be read');
    return compared.tools.map(({ kind }) => kind);
  };
  const around = JSON.stringify(long(0)).length;
  says({ name: 't0' }, long(65_536 - around));
  expect(await state()).toEqual(['unchanged', 'changed']);
  says({ name: 't0' }, long(65_537 - around));
  expect(await state()).toEqual(['unchanged', 'unusable']);
  await close();
});
