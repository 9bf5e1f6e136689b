import { createHash } from 'node:crypto';
import type { ExportContext, Exported, ExportRequest } from '../effects/model/export.ts';
import { namesLine } from '../effects/wire/export.ts';
import type { JsonObject } from '../json/value.ts';
import { sealLine } from '../receipts/bundle.ts';
import type { ApiPorts } from './ports.ts';

/** Lines, many at once. */
export async function* lines(
  { store }: Pick<Pick<ApiPorts, 'store' | 'receipts'>, 'store'>,
  request: ExportRequest,
  context: ExportContext,
): AsyncGenerator<string> {
  if (request.form === 'csv') for (const of of request.what) yield namesLine(of);
  for await (const { text } of store.exported(request, context)) yield text;
}

/**
 * The same as a bundle, with head and seal.
 * @param asked the filter as it was asked for
 */
export async function* bundleLines(
  { store, receipts }: Pick<ApiPorts, 'store' | 'receipts'>,
  request: ExportRequest,
  context: ExportContext,
  asked: JsonObject,
): AsyncGenerator<string> {
  const { workspace } = request;
  const digest = createHash('sha256');
  const total: Record<Exported, number> = { events: 0, effects: 0, receipts: 0 };
  const { keys } = receipts.jwks();
  const head = `${JSON.stringify({ type: 'bundle', v: 1, ws: workspace, filter: asked, keys })}\n`;
  digest.update(head);
  yield head;
  for await (const { text, counts } of store.exported(request, context)) {
    for (const of of request.what) total[of] += counts[of];
    digest.update(text);
    yield text;
  }
  const sha256 = digest.digest('base64url');
  yield sealLine(receipts.sealExport({ workspace, at: store.now(), sha256, ...total }));
}
