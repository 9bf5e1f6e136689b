import type { InitUpstream } from './files.ts';
import type { InitOptions } from '../../../src/cli/init.ts';
import { toOrigin } from './options.ts';
import { choose } from './openapi/choose.ts';
import { type Draft, draftTools } from './openapi/draft.ts';
import { type ApiOperation, operationsOf, serverOf } from './openapi/operations.ts';
import { findDocument, type ReadDocument, readDocument } from './openapi/read-document.ts';
import { CommandFailure } from '../../../src/cli/ports.ts';

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
  if (found === null) return { draft: { tools: [], leftOut: [] }, upstreams: [{ id: upstream, url: origin }] };
  const wanted =
    tagged === null
      ? operations
      : operations.filter(({ tags }) => (tags.length === 0 ? [''] : tags).some((tag) => tagged.includes(tag)));
  const chosen = choose(wanted, { include, exclude });
  const own = serverOf(found.document).origin;
  const upstreams: InitUpstream[] = [{ id: upstream, url: origin }];
  const upstreamOf = ({ server }: ApiOperation): string => {
    // `--upstream` replaces every server that the document names.
    if (given !== undefined || server.origin === null || server.origin === own) return upstream;
    const known = upstreams.find(({ url }) => url === server.origin);
    if (known !== undefined) return known.id;
    const label = new URL(server.origin).hostname.split('.')[0]?.replace(/[^A-Za-z0-9]+/g, '-') ?? 'other';
    let id = `${upstream}-${label}`.slice(0, 50);
    for (let count = 2; upstreams.some((one) => one.id === id); count += 1) id = `${upstream}-${label}-${count}`;
    upstreams.push({ id, url: server.origin });
    return id;
  };
  const draft = draftTools(found.document, chosen, upstreamOf);
  const used = new Set([upstream, ...draft.tools.map((tool) => tool.upstream)]);
  return { draft, upstreams: upstreams.filter(({ id }) => used.has(id)) };
}
