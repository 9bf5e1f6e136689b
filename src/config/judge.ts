import { type Finding, type FindingText, textOf } from '../diagnostics/finding.ts';
import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath, YamlSource } from '../diagnostics/yaml-source.ts';
import type { Tree } from './expand.ts';

/** A place in the file: an object of it, and the path from there; none for the object itself. */
export interface Place {
  readonly item: object;
  readonly steps: DataPath;
}

/** The place of an object of the file, or of what it holds. */
export function at(item: object, ...steps: DataPath): Place {
  return { item, steps };
}

/** Collects faults in the meaning of a file, each with its place. */
export type Judge = ReturnType<typeof createJudge>;

export function createJudge(source: YamlSource, pathOf: (item: object) => DataPath, findings: Finding[]) {
  const add =
    (severity: Finding['severity']) =>
    (code: string, { item, steps }: Place, text: FindingText) =>
      void findings.push({ code, severity, ...textOf(text), at: source.at([...pathOf(item), ...steps]) });
  const error = add('error');
  return {
    error,
    warn: add('warning'),
    /** Reports "unknown_<kind>" unless `name` is in `known`, with a guess at what was meant. */
    known: (kind: string, place: Place, name: string, known: ReadonlySet<string>): void => {
      if (known.has(name)) return;
      const all = [...known];
      const listed = all.length > 0 && all.length <= 12 ? `known: ${all.join(', ')}` : null;
      const code = `unknown_${kind.replaceAll(' ', '_')}`;
      error(code, place, [`There is no ${kind} '${name}'`, didYouMean(name, known) ?? listed]);
    },
    /** Reports each id that occurred before. Ids that differ only in case count as equal. */
    unique: <Item extends object>(kind: string, items: readonly Item[], field: keyof Item & string): void => {
      const seen = new Map<string, string>();
      for (const item of items) {
        const id = String(item[field]);
        const before = seen.get(id.toLowerCase());
        if (before === id) error(`duplicate_${kind}`, at(item, field), `There are two of the ${kind} '${id}'`);
        else if (before !== undefined)
          error(`duplicate_${kind}`, at(item, field), `The ${kind} '${id}' differs from '${before}' in case alone`);
        seen.set(id.toLowerCase(), id);
      }
    },
  };
}

/**
 * Names of the items in a list of the file, including faulty items: a reference to a faulty item is not a second fault.
 */
export function namesIn(list: Tree | undefined, field: string): Set<string> {
  const names = new Set<string>();
  if (!Array.isArray(list)) return names;
  for (const item of list) {
    if (typeof item !== 'object' || item === null || Array.isArray(item)) continue;
    const name = item[field];
    if (typeof name === 'string') names.add(name);
  }
  return names;
}
