import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/**
 * Every script by name: its arguments after `epoch gateway clock`, and how many commands it is (each has one key, the
 * workspace's meta hash). The headers of the files say the same, and a test compares them.
 */
export const SCRIPTS = {
  join: ['install', 'first-epoch', 'returns', 'boot'],
  leave: [],
  note: ['loud', 'announced', 'entered', 'trusted'],
  epoch: ['estimate', 'accepted', 'above', 'event'],
  handin: ['last', 'neighbours'],
  commit: ['heads'],
  list: ['list', 'kind', 'order', 'from', 'to', 'after', 'id', 'limit', 'characters'],
  prune: ['limit'],
  redo: ['lost', 'event'],
} as const satisfies Readonly<Record<string, readonly string[]>>;

export type ScriptName = keyof typeof SCRIPTS;

/**
 * Scripts that run whether this gateway may write or not: they only read, or are for an epoch that is not open yet. All
 * others are refused unless the gateway is registered in the epoch that they name.
 */
const UNCHECKED: readonly ScriptName[] = ['list', 'epoch', 'handin', 'redo'];

/** Scripts that call `begin` themselves: `join` makes a workspace, and `commit` also reads. */
const BEGIN_THEMSELVES: readonly ScriptName[] = ['join', 'commit'];

/** The arguments of the script `note`; without anything to note it is only a write. */
export function noteOf({
  loud = '',
  announced = '',
  entered = '',
  trusted = '',
}: Partial<Readonly<Record<(typeof SCRIPTS.note)[number], string>>> = {}): readonly string[] {
  return [loud, announced, entered, trusted];
}

/** A script that is ready to run. */
export interface Script {
  readonly name: ScriptName;
  readonly source: string;
  readonly sha: string;
}

/** The content of a script's header. */
export interface ScriptHeader {
  readonly include: readonly string[];
  readonly args: readonly string[];
  readonly replies: readonly string[];
  /** What the arguments repeat after the named ones. */
  readonly rest: readonly string[];
}

const FOLDER = new URL('./scripts/', import.meta.url);

/**
 * Reads `@args`, `@replies`, `@rest` and `@include` of a script's leading comment. `-- @include a b` puts
 * `include/a.lua` and `include/b.lua` before the script, after `include/begin.lua`, which every script has.
 */
export function parseHeader(source: string): ScriptHeader {
  const words = (tag: string): readonly string[] => {
    const line = source
      .split('\n')
      .filter((text) => text.startsWith('--'))
      .find((text) => text.startsWith(`-- @${tag} `) || text === `-- @${tag}`);
    return line === undefined
      ? []
      : line
          .split(/\s+/)
          .slice(2)
          .filter((word) => word !== '');
  };
  return {
    include: words('include'),
    args: words('args'),
    replies: words('replies'),
    rest: words('rest'),
  };
}

/** File of a script: `<name>-<number of keys>.lua`. */
export function scriptFile(name: ScriptName): string {
  return fileURLToPath(new URL(`${name}-1.lua`, FOLDER));
}

function load(name: ScriptName): Script {
  const body = readFileSync(scriptFile(name), 'utf8');
  const parts = ['begin', ...parseHeader(body).include].map((part) =>
    readFileSync(new URL(`include/${part}.lua`, FOLDER), 'utf8'),
  );
  // The body is put into a function, where names of the includes are found directly. At the top level, each function of
  // the body would search all earlier names on every call.
  const begin = BEGIN_THEMSELVES.includes(name) ? '' : `begin(${UNCHECKED.includes(name)}) or `;
  const source = [...parts, 'local function decide()', body, 'end', `return ${begin}decide()`].join('\n');
  return { name, source, sha: createHash('sha1').update(source).digest('hex') };
}

const loaded = new Map<ScriptName, Script>();

/** A script with its includes; read once. */
export function script(name: ScriptName): Script {
  const known = loaded.get(name);
  if (known !== undefined) return known;
  const read = load(name);
  loaded.set(name, read);
  return read;
}
