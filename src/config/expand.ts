import type { DataPath, PlainValue } from '../diagnostics/yaml-source.ts';

/** Data that may still be changed: a copy of a file's, on its way to a configuration. */
export type Tree = null | boolean | number | string | Tree[] | { [name: string]: Tree };

export interface Expanded {
  readonly tree: Tree;
  /** Pointers ({@link pointer}) of the values that hold something from the environment: never shown in messages. */
  readonly fromEnvironment: ReadonlySet<string>;
}

/** JSON Pointer (RFC 6901) of a path. */
export function pointer(path: DataPath): string {
  return path.map((name) => `/${String(name).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/** A reference, or what looks like one: `${…`, or `$${…`, which stands for itself. */
const REFERENCE = /\$?\$\{([^}]*\}?)/g;

/** The text that stands for `text` itself in a file: nothing in it is replaced when the file is read. */
export function literalText(text: string): string {
  return text.replace(REFERENCE, (found) => `$${found}`);
}

/**
 * A copy in which `${NAME}` and `${NAME:-default}` in values (not keys) are replaced; `$${` stands for a literal `${`.
 * What is put in is not looked at again. An empty variable counts as missing: an empty secret is never meant.
 * @param lookup value of a variable
 * @param report told of each reference that cannot be replaced, with the path of the value
 */
export function expandReferences(
  value: PlainValue,
  lookup: (name: string) => string | undefined,
  report: (path: DataPath, message: string, hint: string) => void,
): Expanded {
  const fromEnvironment = new Set<string>();

  const expandText = (text: string, path: DataPath): string =>
    text.replace(REFERENCE, (found, inner: string) => {
      if (found.startsWith('$$')) return found.slice(1);
      const [, name, fallback] = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}$/s.exec(inner) ?? [];
      if (name === undefined) {
        report(path, `'${found}' is not a reference`, 'write ${NAME} or ${NAME:-default}, or $${ for a literal ${');
        return '';
      }
      fromEnvironment.add(pointer(path));
      const given = lookup(name);
      if (given !== undefined && given !== '') return given;
      if (fallback !== undefined) return fallback;
      const state = given === undefined ? 'is not set' : 'is empty';
      report(path, `The environment variable ${name} ${state}`, `set it, or give a default: \${${name}:-…}`);
      return '';
    });

  const expand = (node: PlainValue, path: DataPath): Tree => {
    if (typeof node === 'string') return expandText(node, path);
    if (typeof node !== 'object' || node === null) return node;
    if (isList(node)) return node.map((item, index) => expand(item, [...path, index]));
    return Object.fromEntries(Object.entries(node).map(([name, item]) => [name, expand(item, [...path, name])]));
  };

  return { tree: expand(value, []), fromEnvironment };
}

/** `Array.isArray` does not narrow readonly arrays. */
function isList(value: PlainValue): value is readonly PlainValue[] {
  return Array.isArray(value);
}
