import type { DataPath } from '../diagnostics/yaml-source.ts';
import { type Json, isJsonObject } from '../json/value.ts';
import { isList } from './operators.ts';
import type { Reporter } from './reporter.ts';

/**
 * A value in a place where no name can be used: `$$x` is the text `$x`, and `$x` is an error. Read as plain text, `$x`
 * would equal nothing that calls send, and a rule that denies by it would never apply.
 */
export function literal(value: Json, path: DataPath, report: Reporter): Json {
  if (typeof value === 'string') return literalText(value, path, report);
  if (isList(value)) return value.map((item, index) => literal(item, [...path, index], report));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name, literal(member, [...path, name], report)]),
  );
}

/** A list of texts, each read like {@link literal}. */
export function literalTexts(texts: readonly string[], path: DataPath, report: Reporter): readonly string[] {
  return texts.map((text, index) => literalText(text, [...path, index], report));
}

function literalText(text: string, path: DataPath, report: Reporter): string {
  if (text.startsWith('$$')) return text.slice(1);
  if (text.startsWith('$'))
    report.error('reference_not_here', path, [
      `'${text}' cannot refer to a name here`,
      `a name stands alone on the right of an operator; write '$${text}' for the text itself`,
    ]);
  return text;
}
