import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

interface Needs {
  /**
   * Whether it runs only for a gateway that is registered in the epoch that it names; the others only read, or are for
   * an epoch that is not open yet. `itself`: it calls `begin`, because it makes a workspace, or may only read.
   */
  readonly checked: boolean | 'itself';
  /** Whether it works on rows: `include/rows.lua` goes before it, after `include/begin.lua`, which every script has. */
  readonly onRows: boolean;
}

/** Every script by name. Its file says which arguments it has; its only key is the workspace's meta hash. */
const NEEDS = {
  join: { checked: 'itself', onRows: false },
  leave: { checked: true, onRows: false },
  note: { checked: true, onRows: false },
  epoch: { checked: false, onRows: false },
  handin: { checked: false, onRows: false },
  commit: { checked: 'itself', onRows: true },
  list: { checked: false, onRows: true },
  prune: { checked: true, onRows: false },
  redo: { checked: false, onRows: true },
} as const satisfies Readonly<Record<string, Needs>>;

export type ScriptName = keyof typeof NEEDS;

/** The arguments of the script `note`; without anything to note it is only a write. */
export function noteOf({ loud = '', announced = '', entered = '', trusted = '' } = {}): readonly string[] {
  return [loud, announced, entered, trusted];
}

export interface Script {
  readonly source: string;
  readonly sha: string;
}

function load(name: ScriptName): Script {
  const read = (file: string): string => readFileSync(new URL(`./scripts/${file}.lua`, import.meta.url), 'utf8');
  const { checked, onRows } = NEEDS[name];
  // The body is put into a function, where names of the includes are found directly. At the top level, each function of
  // the body would search all earlier names on every call.
  const source = [
    read('include/begin'),
    onRows ? read('include/rows') : '',
    'local function decide()',
    read(`${name}-1`),
    'end',
    `return ${checked === 'itself' ? '' : `begin(${!checked}) or `}decide()`,
  ].join('\n');
  return { source, sha: createHash('sha1').update(source).digest('hex') };
}

export const SCRIPT_NAMES = Object.keys(NEEDS) as readonly ScriptName[];

const loaded = new Map<ScriptName, Script>();

/** A script with its includes; read once. */
export function script(name: ScriptName): Script {
  const known = loaded.get(name);
  if (known !== undefined) return known;
  const read = load(name);
  loaded.set(name, read);
  return read;
}
