import { expect, test, vi } from 'vitest';
import type { McpCall, Tool } from '../../src/effects/model/tool.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { createPinAlarm, createPinView } from '../../src/gateway/views.ts';
import type { PinState } from '../../src/pins/observed.ts';
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
  const [first] = tools;
  // That of another server is no concern of this one.
  const other: Tool[] =
    first === undefined
      ? []
      : [{ ...first, name: 'desk.d0', upstream: 'desk', call: { ...first.call, name: 'd0', pinned: { name: 'd0' } } }];
  let catalog = createCatalog([...tools, ...other]);
  const states = new Map<string, PinState>();
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
    return states.get(given[1].name) ?? stateOf(...given);
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
    /** From now on a look finds the tool so. */
    finds(name: string, state: PinState) {
      states.set(name, state);
      alarm.heed('crm', null);
    },
    /** Looks fail, and say so. */
    fails: (why: string) => void Object.defineProperty(pins, 'failure', { value: why }),
    declared,
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

test('a tool that is gone is refused and told of, and again once it is back as another; what is not seen is no news', async () => {
  const { told, notes, tools, view, introduce, list, finds, close } = world(1);
  const [tool] = tools;
  if (tool === undefined) throw new Error('there is one');
  introduce(SAYS);
  list({ name: 't0' });
  finds('t0', 'gone');
  expect(view.refusal(tool)).toEqual({
    code: 'tool_quarantined',
    message: 'The server does not list crm.t0 any more. Somebody has to look at what changed (svc tools diff).',
  });
  finds('t0', 'changed');
  finds('t0', 'unseen');
  expect(told).toEqual(['gone crm.t0', 'changed crm.t0']);
  expect(notes()).toHaveLength(1);
  finds('t0', 'pinned');
  expect([told.slice(2), notes()]).toEqual([['released crm.t0'], []]);
  await close();
});

test('why a look failed is said to who calls, who lists and who compares; a long reason is cut', async () => {
  const { tools, view, fails, close } = world(1);
  const [tool] = tools;
  if (tool === undefined) throw new Error('there is one');
  // The first call waits for a look; there is no such program.
  await view.known(tool);
  const [{ failure } = { failure: null }] = view.seen();
  if (failure === null) throw new Error('no program, and no failure');
  expect(view.refusal(tool)).toMatchObject({
    code: 'tool_unseen',
    message: expect.stringContaining(`(${failure.slice(0, 200)}). Call again in a moment.`),
  });
  expect(await view.compare('crm')).toBe(failure);
  fails(`${'w'.repeat(200)}x`);
  expect(view.refusal(tool)?.message).toContain(`(${'w'.repeat(200)}).`);
  await close();
});

test('what the server says of itself is held against what was approved; no tool of another server is', async () => {
  const { view, says, close } = world(1);
  says({ name: 't0' });
  expect(await view.compare('crm')).toEqual({
    upstream: 'crm',
    isUnchanged: true,
    about: [],
    tools: [expect.objectContaining({ kind: 'unchanged' })],
  });
  await close();
});

test('a tool whose server is declared no more has no pin: nothing can be sent there', async () => {
  const { tools, declared, close } = world(1);
  const [tool] = tools;
  if (tool === undefined) throw new Error('there is one');
  const view = createPinView({ server: () => null }, declared);
  expect([view.stateOf(tool), view.known(tool), view.refusal(tool)]).toEqual([null, null, null]);
  expect([view.seen(), await view.compare('crm')]).toEqual([[], null]);
  await close();
});
