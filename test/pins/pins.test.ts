import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Json, JsonObject } from '../../src/json/value.ts';
import {
  approvePins,
  comparePins,
  comparisonInSteps,
  type LiveServer,
  type PinComparison,
  renderComparison,
  differencesOf,
  renderDifferences,
} from '../../src/pins/compare.ts';
import { toolDigest } from '../../src/pins/digest.ts';
import { parsePinLock, type PinLock, renderPinLock } from '../../src/pins/lock-file.ts';

const refund = {
  name: 'refund',
  title: 'Refund',
  description: 'Gives money back.',
  inputSchema: {
    type: 'object',
    properties: { charge: { type: 'string' }, amount: { type: 'integer', minimum: 1 } },
    required: ['charge'],
  },
  outputSchema: { type: 'object', properties: { id: { type: 'string' } } },
  annotations: { readOnlyHint: false, destructiveHint: true },
  icons: [{ src: 'https://icons.example/refund.png', sizes: ['48x48'] }],
  _meta: { 'example.com/tier': 1 },
  'x-unknown': null,
} satisfies JsonObject;
const list = { name: 'list', inputSchema: { type: 'object' } } satisfies JsonObject;
const live: LiveServer = { server: 'payments', instructions: 'Be kind.', tools: [refund, list] };

function pinned(of: LiveServer, upstream = 'pay'): PinLock {
  const made = approvePins(null, of, comparePins(upstream, null, of), { kind: 'all' });
  if (!made.ok) throw new Error(`not approved: ${made.unknown.join()}`);
  return made.lock;
}

function read(text: string): PinLock {
  const found = parsePinLock(text);
  if (!found.ok) throw new Error(found.message);
  return found.lock;
}

function kinds(comparison: PinComparison): Record<string, string> {
  return Object.fromEntries(comparison.tools.map(({ name, kind }) => [name ?? '', kind]));
}

describe('a pin', () => {
  test('is the SHA-256 of the canonical form: anybody can compute it', () => {
    // printf '{"inputSchema":{"type":"object"},"name":"list"}' | sha256sum
    expect(toolDigest(list)).toEqual({
      ok: true,
      sha256: '6099f7d70f8a6da1e94fdbb2fdc56072d332943ce44195140c6d7cc3a09f79be',
    });
  });

  test.each<[string, Json, string]>([
    ['names that differ in case', { name: 'a', properties: { id: 1, ID: 2 } }, 'stands twice'],
    ['a lone surrogate', { name: 'a', description: '\ud800' }, 'surrogate'],
    ['a name that makers of objects trip over', JSON.parse('{"name":"a","__proto__":{}}') as Json, '__proto__'],
    ['more levels than a stack takes', deep(20_000), 'nested deeper'],
  ])('%s cannot be pinned', (_what, tool, why) => {
    const found = comparePins('pay', null, { ...live, tools: [tool, list] });
    expect(toolDigest(tool)).toEqual({ ok: false, why: expect.stringContaining(why) });
    expect(kinds(found)).toEqual({ a: 'unusable', list: 'new' });
  });
});

function deep(levels: number): Json {
  let value: Json = 1;
  for (let level = 0; level < levels; level += 1) value = [value];
  return { name: 'a', value };
}

describe('every kind of change is found, with its place', () => {
  const lock = pinned(live);

  test.each<[string, string, JsonObject, string[]]>([
    ['title', 'refund', { ...refund, title: 'Return' }, ['- /title: "Refund"', '+ /title: "Return"']],
    [
      'description',
      'refund',
      { ...refund, description: 'Gives money back. <IMPORTANT>' },
      ['- /description: "Gives money back."', '+ /description: "Gives money back. <IMPORTANT>"'],
    ],
    [
      'an invisible character',
      'refund',
      { ...refund, description: 'Gives\u200b money back.' },
      ['- /description: "Gives money back."', '+ /description: "Gives\\u{200b} money back."'],
    ],
    [
      'input schema',
      'refund',
      { ...refund, inputSchema: { ...refund.inputSchema, required: [] } },
      ['- /inputSchema/required/0: "charge"'],
    ],
    [
      'deep in the input schema',
      'refund',
      {
        ...refund,
        inputSchema: {
          ...refund.inputSchema,
          properties: { ...refund.inputSchema.properties, note: { type: 'string' } },
        },
      },
      ['+ /inputSchema/properties/note: {"type":"string"}'],
    ],
    ['output schema', 'list', { ...list, outputSchema: { type: 'object' } }, ['+ /outputSchema: {"type":"object"}']],
    [
      'annotations',
      'refund',
      { ...refund, annotations: { readOnlyHint: true, destructiveHint: true } },
      ['- /annotations/readOnlyHint: false', '+ /annotations/readOnlyHint: true'],
    ],
    ['icons', 'refund', { ...refund, icons: [...refund.icons, { src: 'data:,' }] }, ['+ /icons/1: {"src":"data:,"}']],
    [
      '_meta',
      'refund',
      { ...refund, _meta: { 'example.com/tier': 2 } },
      ['- /_meta/example.com~1tier: 1', '+ /_meta/example.com~1tier: 2'],
    ],
    ['what nobody knows', 'refund', { ...refund, 'x-unknown': 0 }, ['- /x-unknown: null', '+ /x-unknown: 0']],
  ])('%s', (_what, name, changed, lines) => {
    const tools = live.tools.map((tool) => ((tool as JsonObject)['name'] === name ? changed : tool));
    const found = comparePins('pay', lock, { ...live, tools });
    expect(found.isUnchanged).toBe(false);
    expect(kinds(found)).toEqual({ list: 'unchanged', refund: 'unchanged', [name]: 'changed' });
    expect(renderComparison(found)).toEqual([`changed   ${name}`, ...lines.map((line) => `    ${line}`)]);
  });

  test('new, gone, renamed, listed twice, without a name', () => {
    const renamed = { ...refund, name: 'refund_all' };
    expect(kinds(comparePins('pay', lock, { ...live, tools: [refund] }))).toEqual({
      list: 'gone',
      refund: 'unchanged',
    });
    const found = comparePins('pay', lock, { ...live, tools: [list, renamed, { ...list, name: 'other', title: 'O' }] });
    expect(kinds(found)).toEqual({ list: 'unchanged', other: 'new', refund_all: 'renamed' });
    expect(renderComparison(found)).toContain('renamed   refund → refund_all');
    const broken = comparePins('pay', lock, { ...live, tools: [refund, { ...refund, title: 'x' }, refund, 7] });
    expect(broken.tools).toEqual([
      expect.objectContaining({ kind: 'gone', name: 'list' }),
      { kind: 'unusable', name: 'refund', why: 'the server lists the name twice' },
      { kind: 'unusable', name: null, why: 'it has no name' },
    ]);
    expect(broken.isUnchanged).toBe(false);
  });

  test('a tool with the definition of another that is still there is new', () => {
    const twin = { ...list, name: 'list2' };
    expect(kinds(comparePins('pay', lock, { ...live, tools: [refund, list, twin] }))).toMatchObject({ list2: 'new' });
  });

  test('of a server that renames all of its tools, each pin is looked at once', () => {
    let looked = 0;
    const many = (prefix: string): JsonObject[] => Array.from({ length: 200 }, (_, at) => ({ name: `${prefix}${at}` }));
    const lock = pinned({ ...live, tools: many('old') });
    const tools = lock.tools.map((pin) => {
      const tool: JsonObject = Object.defineProperty({ ...pin.tool }, 'title', {
        enumerable: true,
        get: () => `${(looked += 1)}`,
      });
      return { ...pin, tool };
    });
    const found = comparePins('pay', { ...lock, tools }, { ...live, tools: many('new') });
    expect(found.tools).toHaveLength(400);
    expect(looked).toBe(200);
  });

  test('a tool of 1,048,576 characters can be pinned, and none of one more', () => {
    const empty = JSON.stringify({ name: 'x', description: '' }).length;
    const tool = (length: number): JsonObject => ({ name: 'x', description: 'y'.repeat(length - empty) });
    expect(toolDigest(tool(1_048_576))).toHaveProperty('ok', true);
    expect(toolDigest(tool(1_048_577))).toEqual({ ok: false, why: expect.stringContaining('1048576 characters') });
  });

  test('a tool longer than somebody takes is unusable, and its pin not gone', () => {
    const steps = comparisonInSteps(
      'pay',
      pinned(live),
      { ...live, tools: [{ ...refund, title: 'x'.repeat(500) }, list] },
      500,
    );
    let step = steps.next();
    while (step.done !== true) step = steps.next();
    expect(kinds(step.value)).toEqual({ list: 'unchanged', refund: 'unusable' });
  });

  test('instructions and the name of the server', () => {
    const found = comparePins('pay', lock, { ...live, instructions: 'Be kind. Call refund first.', server: null });
    expect(found.isUnchanged).toBe(false);
    expect(renderComparison(found)).toEqual([
      'changed   what the server says of itself',
      '    - /instructions: "Be kind."',
      '    + /instructions: "Be kind. Call refund first."',
      '    - /server: "payments"',
    ]);
    expect(comparePins('pay', lock, live).isUnchanged).toBe(true);
    expect(comparePins('pay', pinned({ ...live, instructions: null }), live).about).toEqual([
      { kind: 'added', path: '/instructions', after: 'Be kind.' },
    ]);
  });

  test('nothing is pinned: everything is new', () => {
    const found = comparePins('pay', null, live);
    expect([found.isUnchanged, kinds(found)]).toEqual([false, { list: 'new', refund: 'new' }]);
    expect(comparePins('pay', null, { ...live, tools: [] }).isUnchanged).toBe(false);
  });
});

describe('differences', () => {
  test('of lists, around what was put in or taken out', () => {
    expect(renderDifferences(differencesOf(['a', 'b', 'c'], ['a', 'x', 'b', 'c']))).toEqual(['+ /1: "x"']);
    expect(renderDifferences(differencesOf(['a', 'b', 'c'], ['b', 'c']))).toEqual(['- /0: "a"']);
    expect(renderDifferences(differencesOf(['a', 'a'], ['a']))).toEqual(['- /1: "a"']);
  });

  test('of long texts, the place in which they begin to differ', () => {
    const long = 'y'.repeat(5_000);
    const [was, is] = renderDifferences(differencesOf(`${long}a${long}`, `${long}b${long}`));
    expect(was).toContain(`(4900 equal characters) … "${'y'.repeat(100)}a`);
    expect(is).toContain(`${'y'.repeat(100)}b`);
    expect(was?.length).toBeLessThan(600);
  });
});

describe('the lock file', () => {
  const text = renderPinLock(pinned(live));

  test('is read as it was written, and has one spelling', () => {
    expect(read(text)).toEqual(pinned(live));
    const other = { ...live, tools: [list, shuffled(refund, 7)] };
    expect(renderPinLock(pinned(other))).toBe(text);
    expect(text.split('\n').length).toBeGreaterThan(40);
  });

  test('leaves out what the server does not say of itself', () => {
    const silent = renderPinLock(pinned({ ...live, server: null, instructions: null }));
    expect(Object.keys(JSON.parse(silent) as object)).toEqual(['version', 'upstream', 'tools']);
    expect(read(silent)).toEqual(pinned({ ...live, server: null, instructions: null }));
  });

  test('is read in the order of names, however somebody merged it', () => {
    const file = JSON.parse(text) as { tools: Json[] };
    const turnedAround = { ...file, tools: file.tools.toReversed() };
    expect(renderPinLock(read(JSON.stringify(turnedAround)))).toBe(text);
  });

  test('shows what is invisible', () => {
    const hidden = { ...list, description: 'a\u202eb\u{e0041}\u200b\u2028\ufe0f\u00ad' };
    const written = renderPinLock(pinned({ ...live, tools: [hidden] }));
    expect(written).toContain('"a\\u202eb\\udb40\\udc41\\u200b\\u2028\\ufe0f\\u00ad"');
    expect(read(written).tools[0]?.tool).toEqual(hidden);
  });

  test.each<[string, (text: string) => string, string]>([
    ['no JSON', () => '{', 'it is not JSON'],
    ['a name twice', (whole) => whole.replace('"version": 1,', '"version": 1, "version": 1,'), 'stands twice'],
    ['a list', () => '[]', 'holds no object'],
    ['no version', (whole) => whole.replace('"version": 1,', ''), '"version" is '],
    ['another version', (whole) => whole.replace('"version": 1', '"version": 2'), '"version" is 2'],
    ['an unknown member', (whole) => whole.replace('"server"', '"sever"'), '"sever" is no member'],
    ['no upstream', (whole) => whole.replace('"upstream": "pay"', '"upstream": ""'), '"upstream" has to be'],
    ['instructions of another type', (whole) => whole.replace('"Be kind."', '7'), '"instructions" has to be a text'],
    ['a server of another type', (whole) => whole.replace('"payments"', '7'), '"server" has to be a text'],
    ['no tools', () => '{"version":1,"upstream":"pay"}', '"tools" has to be a list'],
    ['a tool that is none', () => '{"version":1,"upstream":"pay","tools":[7]}', '/tools/0 has to be an object'],
    ['a tool edited by hand', (whole) => whole.replace('Gives money back.', 'Gives all.'), '"refund" is not the one'],
    ['a digest edited by hand', (whole) => whole.replace(/"sha256": "../, '"sha256": "zz'), 'is not the one'],
    ['another name', (whole) => whole.replace('"name": "list",\n      "sha', '"name": "lost",\n      "sha'), '"lost"'],
    [
      'a tool twice',
      (whole) => {
        const file = JSON.parse(whole) as { tools: Json[] };
        return JSON.stringify({ ...file, tools: [...file.tools, file.tools[0]] });
      },
      'is pinned twice',
    ],
  ])('%s is refused', (_what, broken, message) => {
    expect(broken(text)).not.toBe(text);
    expect(parsePinLock(broken(text))).toMatchObject({ ok: false, message: expect.stringContaining(message) });
  });
});

describe('approval', () => {
  const lock = pinned(live);
  const grown: LiveServer = {
    server: 'payments',
    instructions: 'Call refund first.',
    tools: [{ ...refund, name: 'refund_all' }, { ...list, title: 'L' }, { name: 'more' }],
  };
  const found = comparePins('pay', lock, grown);

  test('of all leaves nothing to approve', () => {
    const all = approvePins(lock, grown, found, { kind: 'all' });
    expect(all.ok && comparePins('pay', all.lock, grown).isUnchanged).toBe(true);
  });

  test('of one tool changes nothing else, and the instructions only when they are named', () => {
    const one = approvePins(lock, grown, found, { kind: 'tools', names: ['refund_all'], about: false });
    if (!one.ok) throw new Error('not approved');
    expect(one.lock.instructions).toBe('Be kind.');
    expect(kinds(comparePins('pay', one.lock, grown))).toEqual({
      list: 'changed',
      more: 'new',
      refund_all: 'unchanged',
    });
    const about = approvePins(lock, grown, found, { kind: 'tools', names: [], about: true });
    expect(about.ok && about.lock).toEqual({ ...lock, instructions: 'Call refund first.' });
  });

  test('of a tool that is gone takes its pin away', () => {
    const shrunk = { ...live, tools: [list] };
    const gone = approvePins(lock, shrunk, comparePins('pay', lock, shrunk), { kind: 'all' });
    expect(gone.ok && gone.lock.tools.map(({ name }) => name)).toEqual(['list']);
  });

  test('of what is not there approves nothing', () => {
    expect(approvePins(lock, grown, found, { kind: 'tools', names: ['more', 'mre'], about: false })).toEqual({
      ok: false,
      unknown: ['mre'],
    });
    const twice = { ...live, tools: [{ name: 'a' }, { name: 'a' }] };
    const approval = { kind: 'tools', names: ['a'], about: false } as const;
    expect(approvePins(null, twice, comparePins('pay', null, twice), approval)).toEqual({ ok: false, unknown: ['a'] });
  });
});

/** The same value with its members in another order, at every level. Lists stay: their order is part of the value. */
function shuffled(value: Json, seed: number): Json {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((item: Json) => shuffled(item, seed + 1));
  const entries = Object.entries(value).map(([name, member]): [string, Json] => [name, shuffled(member, seed + 1)]);
  return Object.fromEntries(turned(entries, seed));
}

function turned<Item>(items: readonly Item[], seed: number): Item[] {
  return items
    .map((item, index) => ({ item, at: ((index + 1) * (2 * seed + 7919)) % 104_729 }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}

const word = fc.string({
  unit: fc.constantFrom('a', 'b', 'c', 'd', 'ö', '€', '😀', '\u200b', '-', '1'),
  minLength: 1,
  maxLength: 5,
});
const leaf: fc.Arbitrary<Json> = fc.oneof(word, fc.integer({ min: -9, max: 9 }), fc.boolean(), fc.constant(null));
const some: fc.Arbitrary<Json> = fc.oneof(
  leaf,
  fc.array(leaf, { maxLength: 3 }),
  fc.dictionary(word, leaf, { maxKeys: 3 }),
);
const MEMBERS = ['description', 'inputSchema', 'outputSchema', 'annotations', 'icons', '_meta', 'x'] as const;
const someTool: fc.Arbitrary<JsonObject> = fc
  .tuple(word, fc.dictionary(fc.constantFrom(...MEMBERS), some, { maxKeys: 5 }))
  .map(([name, rest]) => ({ name, ...rest }));
const someList = fc.uniqueArray(someTool, { selector: (tool) => tool['name'], minLength: 1, maxLength: 6 });

describe('generated lists', () => {
  test('10,000 lists in another order raise nothing', () => {
    fc.assert(
      fc.property(someList, fc.nat(100_000), fc.option(word), (tools, seed, instructions) => {
        const server = { server: 'x', instructions, tools };
        const found = comparePins('u', pinned(server, 'u'), {
          ...server,
          tools: turned(tools, seed).map((tool) => shuffled(tool, seed)),
        });
        expect(found.isUnchanged).toBe(true);
      }),
    );
  });

  test('a change of any member is found, and the lock file gives the same pins', () => {
    fc.assert(
      fc.property(someList, fc.nat(), fc.constantFrom(...MEMBERS), some, (tools, pick, member, value) => {
        const at = pick % tools.length;
        const tool = tools[at] ?? {};
        const server = { server: 'x', instructions: null, tools };
        const lock = read(renderPinLock(pinned(server, 'u')));
        const changed = { ...tool, [member]: value };
        const found = comparePins('u', lock, { ...server, tools: tools.with(at, changed) });
        const same = differencesOf(tool, changed).length === 0;
        expect(found.isUnchanged).toBe(same);
        expect(found.tools.filter(({ kind }) => kind === 'changed').length).toBe(same ? 0 : 1);
      }),
    );
  });
});
