import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..');
const SRC = join(ROOT, 'src');
/** What no running gateway needs: each is loaded by its command. */
const PACKAGES = ['init', 'bridge', 'demo'].map((name) => join(ROOT, 'packages', name, 'src'));

/** What every door to the core may import. */
const DOOR = [
  'effects',
  'diagnostics',
  'policy',
  'identity',
  'secrets',
  'receipts',
  'upstreams',
  'telemetry',
  'config',
  'pins',
];

/** What each room may import of ours, beside itself. `main.ts` may import every room. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  effects: [],
  diagnostics: [],
  policy: ['effects', 'diagnostics'],
  identity: ['effects', 'diagnostics'],
  secrets: ['effects', 'diagnostics'],
  receipts: ['effects', 'diagnostics'],
  'mcp-protocol': [],
  pins: ['diagnostics'],
  upstreams: ['effects', 'diagnostics', 'mcp-protocol', 'pins'],
  stores: ['effects', 'diagnostics'],
  records: ['effects', 'stores'],
  config: ['effects', 'diagnostics', 'pins'],
  brain: ['effects', 'diagnostics'],
  notifications: ['effects', 'diagnostics', 'upstreams'],
  telemetry: ['effects', 'diagnostics'],
  proxy: DOOR,
  api: [...DOOR, 'brain'],
  console: [...DOOR, 'api'],
  mcp: [...DOOR, 'brain', 'mcp-protocol'],
  cli: ['diagnostics', 'effects', 'policy', 'receipts', 'config', 'brain', 'mcp-protocol', 'pins'],
  'packages/init': ['cli', 'config', 'diagnostics', 'effects', 'pins', 'policy'],
  'packages/bridge': ['cli', 'diagnostics', 'mcp-protocol'],
  'packages/demo': ['cli', 'config', 'receipts'],
};

/** What every room may know, and what itself knows nothing of ours. */
const FREE = ['version.ts', 'home.ts', 'json', 'bytes', 'sodium'];

/** Rooms that are part of the composition root: all may be known there, and only `main.ts` knows them. */
const COMPOSITION = new Set(['main.ts', 'gateway']);

interface Source {
  /** Path from `src`. */
  readonly file: string;
  readonly room: string;
  readonly text: string;
}

interface Edge {
  readonly from: Source;
  /** Path below `src`. */
  readonly to: string;
  readonly room: string;
}

function sources(): Source[] {
  return [SRC, ...PACKAGES]
    .flatMap((folder) =>
      readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((file) => relative(SRC, join(folder, file))),
    )
    .filter((file) => file.endsWith('.ts'))
    .map((file) => ({ file, room: roomOf(file), text: readFileSync(join(SRC, file), 'utf8') }));
}

function roomOf(file: string): string {
  return /^\.\.\/(packages\/[^/]+)/.exec(file)?.[1] ?? file.split('/')[0] ?? file;
}

function edges(all: readonly Source[]): Edge[] {
  return all.flatMap((from) =>
    [...from.text.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*'(\.{1,2}\/[^']+)'/g)].map(([, specifier = '']) => {
      const to = relative(SRC, resolve(SRC, dirname(from.file), specifier));
      return { from, to, room: roomOf(to) };
    }),
  );
}

/** A file and all that is loaded before it runs: types are not, nor what it imports when it needs it. */
function loadedWith(start: string): readonly Source[] {
  const files = new Map(all.map((source) => [source.file, source]));
  const found = new Set([start]);
  for (const file of found)
    for (const [, specifier = ''] of (files.get(file)?.text ?? '').matchAll(
      /^(?:import|export) (?!type\b)[^;]*? from '(\.{1,2}\/[^']+)'/gm,
    ))
      found.add(relative(SRC, resolve(SRC, dirname(file), specifier)));
  return [...found].flatMap((file) => files.get(file) ?? []);
}

/** Files that import each other in a circle: a file is in one where it can be reached from what it imports. */
function circles(of: readonly Edge[]): string[] {
  const next = new Map<string, string[]>();
  for (const { from, to } of of) next.set(from.file, [...(next.get(from.file) ?? []), to]);
  const reaches = (start: string): boolean => {
    const seen = new Set<string>();
    const open = [start];
    for (let file = open.pop(); file !== undefined; file = open.pop())
      for (const to of next.get(file) ?? []) {
        if (to === start) return true;
        if (!seen.has(to)) open.push(to);
        seen.add(to);
      }
    return false;
  };
  return [...next.keys()].filter(reaches);
}

/** Source without comments and the contents of strings: what is written about code is not code. */
function code(text: string): string {
  return text
    .replaceAll(/\/\*[\s\S]*?\*\//g, '')
    .replaceAll(/(^|\s)\/\/.*$/gm, '')
    .replaceAll(/'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g, "''");
}

const all = sources();
const imports = edges(all);

describe('the test sees the code', () => {
  it('has read enough files and imports to judge by', () => {
    expect(all.length).toBeGreaterThan(60);
    expect(imports.length).toBeGreaterThan(150);
    expect(imports.filter(({ from, room }) => from.room !== room).length).toBeGreaterThan(60);
  });

  it('every import leads to a file', () => {
    expect(imports.filter(({ to }) => !existsSync(join(SRC, to))).map(name)).toEqual([]);
  });
});

describe('imports go one way', () => {
  const rooms = [...new Set(all.map(({ room }) => room))].filter(
    (room) => !COMPOSITION.has(room) && !FREE.includes(room),
  );

  it('every room stands in the table', () => {
    expect(rooms.filter((room) => MAY_IMPORT[room] === undefined)).toEqual([]);
  });

  it.each(rooms)('%s', (room) => {
    const allowed = new Set([room, ...FREE, ...(MAY_IMPORT[room] ?? [])]);
    const wrong = imports.filter(
      (edge) => edge.from.room === room && !allowed.has(edge.room) && !isLoadedByCommand(edge),
    );
    expect(wrong.map(name)).toEqual([]);
  });

  it('a package is loaded by its command, when it is run', () => {
    const loaded = imports.filter(({ from, room }) => room.startsWith('packages/') && room !== from.room);
    expect(loaded.map(name).toSorted()).toEqual([
      'cli/demo.ts imports ../packages/demo/src/demo.ts',
      'cli/init.ts imports ../packages/init/src/init.ts',
      'cli/mcp.ts imports ../packages/bridge/src/bridge.ts',
    ]);
    expect(loaded.filter((edge) => !isLoadedByCommand(edge)).map(name)).toEqual([]);
  });

  it('a command loads what it needs: the command line itself neither configuration, policies nor a server', () => {
    const loaded = loadedWith('cli/main.ts');
    expect(loaded.length).toBeGreaterThan(20);
    const heavy = /^import (?!type\b)[^;]*? from '(?:ajv|fastify|json-rules-engine|undici|yaml)\b/m;
    expect(loaded.filter(({ text }) => heavy.test(text)).map(({ file }) => file)).toEqual([]);
  });

  it('the pages of the console share one file with the gateway, which runs in browsers', () => {
    const pages = join(ROOT, 'console', 'src');
    const files = readdirSync(pages, { recursive: true, encoding: 'utf8' }).filter((file) => /\.tsx?$/.test(file));
    const shared = files.flatMap((file) =>
      [...readFileSync(join(pages, file), 'utf8').matchAll(/from '(\.[^']+)'/g)]
        .map(([, specifier = '']) => relative(SRC, resolve(pages, dirname(file), specifier)))
        .filter((to) => !to.startsWith('../console/')),
    );
    expect(files.length).toBeGreaterThan(20);
    expect([...new Set(shared)]).toEqual(['effects/model/money.ts']);
    expect(loadedWith('effects/model/money.ts').map(({ file }) => file)).toEqual(['effects/model/money.ts']);
    expect(all.find(({ file }) => file === 'effects/model/money.ts')?.text).not.toContain('node:');
  });

  it('no file imports itself by way of others', () => {
    expect(circles(imports.filter((edge) => !isLoadedByCommand(edge)))).toEqual([]);
  });

  it('what every room may know imports nothing of ours', () => {
    expect(imports.filter(({ from, room }) => FREE.includes(from.room) && room !== from.room).map(name)).toEqual([]);
  });

  it('nothing but the composition root knows a store', () => {
    const port = ['stores/port.ts', 'stores/open-rows.ts'];
    const knows = imports.filter(
      ({ from, to, room }) =>
        room === 'stores' && from.room !== 'stores' && !(from.room === 'records' && port.includes(to)),
    );
    expect(knows.filter(({ from }) => !COMPOSITION.has(from.room)).map(name)).toEqual([]);
  });

  it('nothing imports the composition root, and nothing in src the tests', () => {
    const wrong = imports.filter(
      ({ from, room, to }) =>
        (COMPOSITION.has(room) && !COMPOSITION.has(from.room)) || /^\.\.\/(test|bench)\//.test(to),
    );
    expect(wrong.map(name)).toEqual([]);
  });

  it('json-rules-engine is known in the policy room alone, undici in upstreams and proxy', () => {
    const users = (library: string) =>
      [...new Set(all.filter(({ text }) => text.includes(`from '${library}'`)).map(({ room }) => room))].toSorted();
    expect(users('json-rules-engine').filter((room) => room !== 'policy')).toEqual([]);
    expect(users('undici').filter((room) => !['upstreams', 'proxy'].includes(room))).toEqual([]);
  });
});

describe('kinds of upstream', () => {
  const others = [
    'effects/model/answer.ts',
    'effects/model/tool.ts',
    'effects/upstream.ts',
    'effects/wire/calls.ts',
    'records/effect-text.ts',
  ];

  it('what an answer over HTTP is made of is said once in the core, once for what is stored, and once for what people see of a call', () => {
    const core = all.filter(({ room }) => ['effects', 'records', 'receipts', 'stores', 'policy'].includes(room));
    const names = core.filter(({ text }) => /'http'|\b(?:Kept)?Http[A-Z]\w+/.test(text)).map(({ file }) => file);
    expect(names.toSorted()).toEqual(others);
  });

  // MCP is spoken over HTTP: its room uses the connections of the other.
  it('what is common to all kinds knows HTTP only where kinds are put together, and where tools are compiled', () => {
    const common = imports.filter(
      ({ from, to }) =>
        from.room === 'upstreams' && !/^upstreams\/(http|mcp)\//.test(from.file) && to.includes('/http/'),
    );
    expect([...new Set(common.map(({ from }) => from.file))].toSorted()).toEqual([
      'upstreams/catalog.ts',
      'upstreams/upstreams.ts',
    ]);
  });
});

describe('what an install of the gateway alone brings', () => {
  it('is at most 16 npm packages, without the optional ones', () => {
    const lock: Lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'));
    const installed = installedFor(lock.packages);
    expect(installed.size).toBeGreaterThan(5);
    expect(installed.size).toBeLessThanOrEqual(16);
  });
});

describe('the form of the code', () => {
  it('run-effect.ts, the one place with control flow, is short', () => {
    const file = all.find((source) => source.file === 'effects/run/run-effect.ts');
    expect(file).toBeDefined();
    expect(file?.text.split('\n').length).toBeLessThanOrEqual(125);
  });

  it.each([
    ['any', /(?:[:<|&]|\bas)\s*any\b(?!\s*[:?(])|\bany\[\]/],
    ['non-null assertions', /[\w)\]]!(?=[.;,)\]\s[])(?!=)/],
    ['default exports', /^export default\b/m],
    ['switched-off checks', /@ts-(?:ignore|nocheck)|biome-ignore/],
    ['barrels', /^export \* from/m],
  ])('no %s', (_what, form) => {
    expect(all.filter(({ text }) => form.test(code(text))).map(({ file }) => file)).toEqual([]);
  });

  it('the compiler and the linter keep watch over the rest', () => {
    const compiler = readFileSync(join(ROOT, 'tsconfig.json'), 'utf8');
    for (const option of [
      'strict',
      'noUncheckedIndexedAccess',
      'exactOptionalPropertyTypes',
      'verbatimModuleSyntax',
      'erasableSyntaxOnly',
    ])
      expect(compiler).toContain(`"${option}": true`);
    const linter = readFileSync(join(ROOT, '.oxlintrc.json'), 'utf8');
    for (const rule of [
      'typescript/no-explicit-any',
      'typescript/no-floating-promises',
      'typescript/switch-exhaustiveness-check',
      'import/no-cycle',
      'import/no-default-export',
    ])
      expect(linter).toContain(`"${rule}": "error"`);
  });

  it('no folder that says nothing, and no Manager or Service', () => {
    const folders = all.flatMap(({ file }) => file.split('/').slice(0, -1));
    expect(folders.filter((folder) => /^(utils?|helpers?|common|types|misc|lib)$/.test(folder))).toEqual([]);
    const named = all.filter(({ text }) => /\bclass \w+(?:Manager|Service|Helper)\b/.test(code(text)));
    expect(named.map(({ file }) => file)).toEqual([]);
  });

  it('the environment is read in src/config alone', () => {
    const readers = all.filter(({ text }) => /\bprocess\.env\b|\bimport\b.*\benv\b.*'node:process'/.test(code(text)));
    expect(readers.length).toBeGreaterThan(0);
    expect(readers.filter(({ room }) => room !== 'config').map(({ file }) => file)).toEqual([]);
  });

  it('each stream has an owner: `pipe` tells nobody of errors, and undici leaves a body before its last one', () => {
    const open = all.filter(({ text }) => /\.pipe\(|\bReadable\.from\((?!\[)/.test(code(text)));
    expect(open.map(({ file }) => file)).toEqual(['upstreams/owned-stream.ts']);
  });

  it('the forms that are looked for would be found', () => {
    // Guards the test against itself: a form that matches nothing is green on everything.
    const bad = 'const a: any = b!.c; // any\nexport default a;';
    expect(code(bad)).toMatch(/(?:[:<|&]|\bas)\s*any\b(?!\s*[:?(])/);
    expect(code(bad)).toMatch(/[\w)\]]!(?=[.;,)\]\s[])(?!=)/);
    expect(code("const text = 'as any'; // x as any\n/* any */")).not.toMatch(/\bany\b/);
  });
});

interface Lock {
  readonly packages: Readonly<Record<string, { readonly dependencies?: Readonly<Record<string, string>> }>>;
}

/** Where the packages are that the root needs to run, by the rule of Node: the nearest folder that has the name. */
function installedFor(packages: Lock['packages']): ReadonlySet<string> {
  const found = new Set<string>();
  const open = [''];
  for (let at = open.pop(); at !== undefined; at = open.pop())
    for (const dependency of Object.keys(packages[at]?.dependencies ?? {})) {
      const folders = at
        .split('/node_modules/')
        .map((_part, n, all) => all.slice(0, all.length - n).join('/node_modules/'));
      const path = [
        ...folders.map((folder) => `${folder}/node_modules/${dependency}`),
        `node_modules/${dependency}`,
      ].find((candidate) => packages[candidate] !== undefined);
      if (path === undefined) throw new Error(`package-lock.json does not have ${dependency}, which ${at} needs`);
      if (!found.has(path)) open.push(path);
      found.add(path);
    }
  return found;
}

/** Whether it is a part of a command that is loaded when the command is run. */
function isLoadedByCommand({ from, room, to }: Edge): boolean {
  return from.room === 'cli' && room.startsWith('packages/') && from.text.includes(`import('../${to}')`);
}

function name({ from, to }: Edge): string {
  return `${from.file} imports ${to}`;
}
