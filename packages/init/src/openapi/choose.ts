import { compilePattern } from '../../../../src/policy/glob.ts';
import { CommandFailure } from '../../../../src/cli/ports.ts';
import type { ApiOperation } from './operations.ts';

/** Which operations become tools. Patterns are globs, as in policies. */
export interface Choice {
  readonly include: readonly string[];
  readonly exclude: readonly string[];
}

/**
 * The chosen operations, in the order of the document. A pattern is compared with `POST /v1/refunds`, with the path
 * alone, with the operation id, and, after `tag:`, with each tag.
 * @throws CommandFailure if a pattern is invalid or matches nothing
 */
export function choose(operations: readonly ApiOperation[], { include, exclude }: Choice): readonly ApiOperation[] {
  const chosen = include.length === 0 ? new Set(operations) : fitting(operations, include, '--include');
  const refused = fitting(operations, exclude, '--exclude');
  return operations.filter((operation) => chosen.has(operation) && !refused.has(operation));
}

function fitting(
  operations: readonly ApiOperation[],
  patterns: readonly string[],
  option: string,
): ReadonlySet<ApiOperation> {
  const found = new Set<ApiOperation>();
  for (const pattern of patterns) {
    const isTag = pattern.startsWith('tag:');
    const compiled = compilePattern('glob', isTag ? pattern.slice('tag:'.length) : pattern);
    if (!compiled.ok) throw new CommandFailure(`${option} ${pattern}: ${compiled.message}`);
    const before = found.size;
    let fits = false;
    for (const operation of operations)
      if (textsOf(operation, isTag).some(compiled.test)) {
        found.add(operation);
        fits = true;
      }
    if (!fits && found.size === before) throw new CommandFailure(nothingFits(operations, pattern, option, isTag));
  }
  return found;
}

function textsOf({ method, path, server, id, tags }: ApiOperation, isTag: boolean): readonly string[] {
  if (isTag) return tags;
  const whole = server.base + path;
  return [`${method} ${whole}`, `${method} ${path}`, whole, path, ...(id === null ? [] : [id])];
}

const MOST_SHOWN = 20;

function nothingFits(operations: readonly ApiOperation[], pattern: string, option: string, isTag: boolean): string {
  const tags = tagsOf(operations).map(({ tag }) => tag);
  const more = tags.length > MOST_SHOWN ? `, and ${tags.length - MOST_SHOWN} more` : '';
  return isTag
    ? `${option} ${pattern} fits no tag of the document; it has ${tags.slice(0, MOST_SHOWN).join(', ') || 'none'}${more}`
    : `${option} ${pattern} fits no operation of the document. A pattern is a glob such as 'POST /v1/refunds/**', '/v1/**', an operation id, or tag:NAME; '*' stays within a segment`;
}

/** The tags of operations with their counts, the most frequent first. `''` stands for operations without a tag. */
export function tagsOf(
  operations: readonly ApiOperation[],
): readonly { readonly tag: string; readonly count: number }[] {
  const counts = new Map<string, number>();
  for (const { tags } of operations)
    for (const tag of tags.length === 0 ? [''] : new Set(tags)) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  return [...counts].map(([tag, count]) => ({ tag, count })).toSorted((a, b) => b.count - a.count);
}
