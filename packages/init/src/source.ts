import type { InitUpstream } from './files.ts';
import type { InitOptions } from '../../../src/cli/init.ts';
import { toOrigin } from './options.ts';
import { type Draft, draftTools } from './openapi/draft.ts';
import { type ApiOperation, operationsOf, serverOf } from './openapi/operations.ts';
import { findDocument, type ReadDocument, readDocument } from './openapi/read-document.ts';
import { CommandFailure } from '../../../src/cli/ports.ts';
import { compilePattern } from '../../../src/policy/glob.ts';

/** The API behind the gateway, and its document if it has one. */
export interface Source {
  readonly origin: string;
  readonly found: ReadDocument | null;
  readonly operations: readonly ApiOperation[];
}

/** Reads the document that the user named, or the one that the API publishes. @throws CommandFailure */
export async function sourceOf({ upstream, openapi }: InitOptions): Promise<Source> {
  const given = upstream === undefined ? null : toOrigin(upstream);
  if (openapi === undefined) {
    if (given === null)
      throw new CommandFailure(
        'name the API with --upstream http://127.0.0.1:9090, or its document with --openapi FILE or URL',
      );
    const found = await findDocument(given);
    return { origin: given, found, operations: found === null ? [] : operationsOf(found.document) };
  }
  const found = await readDocument(openapi);
  const origin = given ?? serverOf(found.document).origin;
  if (origin === null)
    throw new CommandFailure(`${openapi} does not name a server; say where the API is with --upstream`);
  const operations = operationsOf(found.document);
  if (operations.length === 0) throw new CommandFailure(`${openapi} has no operations under its paths`);
  return { origin, found, operations };
}

/** Tools and upstreams for the chosen operations. */
export function draftFrom(
  { include, exclude, upstream: given }: Pick<InitOptions, 'include' | 'exclude' | 'upstream'>,
  { origin, found, operations }: Source,
  upstream: string,
  tagged: readonly string[] | null,
): { readonly draft: Draft; readonly upstreams: readonly InitUpstream[] } {
  if (found === null)
    return { draft: { tools: [], leftOut: [] }, upstreams: [{ id: upstream, url: origin, base: '' }] };
  const wanted =
    tagged === null
      ? operations
      : operations.filter(({ tags }) => (tags.length === 0 ? [''] : tags).some((tag) => tagged.includes(tag)));
  const chosen = choose(wanted, { include, exclude });
  const { origin: own, base } = serverOf(found.document);
  const upstreams: InitUpstream[] = [{ id: upstream, url: origin, base }];
  const upstreamOf = ({ server }: ApiOperation): string => {
    // `--upstream` replaces every server that the document names.
    if (given !== undefined || server.origin === null || server.origin === own) return upstream;
    const known = upstreams.find(({ url }) => url === server.origin);
    if (known !== undefined) return known.id;
    const label = new URL(server.origin).hostname.split('.')[0]?.replace(/[^A-Za-z0-9]+/g, '-') ?? 'other';
    let id = `${upstream}-${label}`.slice(0, 50);
    for (let count = 2; upstreams.some((one) => one.id === id); count += 1) id = `${upstream}-${label}-${count}`;
    upstreams.push({ id, url: server.origin, base: server.base });
    return id;
  };
  const draft = draftTools(found.document, chosen, upstreamOf);
  const used = new Set([upstream, ...draft.tools.map((tool) => tool.upstream)]);
  return { draft, upstreams: upstreams.filter(({ id }) => used.has(id)) };
}

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
