import type { DataPath, PlainValue } from '../diagnostics/yaml-source.ts';
import { isJsonArray, pointerTo } from '../json/value.ts';

/** Mutable data: a copy of a file's data, on its way to a configuration. */
export type Tree = null | boolean | number | string | Tree[] | { [name: string]: Tree };

export interface Expanded {
  readonly tree: Tree;
  /** Pointers ({@link pointerTo}) to values with something from the environment. Messages never show these values. */
  readonly fromEnvironment: ReadonlySet<string>;
}

/** A reference, or something that looks like one: `${…`, or its escaped form `$${…`. */
const REFERENCE = /\$?\$\{([^}]*\}?)/g;

/** Escapes a text, so that nothing in it is replaced when the file is read. */
export function literalText(text: string): string {
  return text.replace(REFERENCE, (found) => `$${found}`);
}

/**
 * Copies data and replaces `${NAME}` and `${NAME:-default}` in values (not in keys). `$${` is a literal `${`. Inserted
 * text is not expanded again. An empty variable counts as missing, because nobody wants an empty secret.
 * @param lookup value of a variable
 * @param report called for each reference that cannot be replaced, with the path of the value
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
      fromEnvironment.add(pointerTo(path));
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
    if (isJsonArray(node)) return node.map((item, index) => expand(item, [...path, index]));
    return Object.fromEntries(Object.entries(node).map(([name, item]) => [name, expand(item, [...path, name])]));
  };

  return { tree: expand(value, []), fromEnvironment };
}
