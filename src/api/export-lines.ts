import { createHash } from 'node:crypto';
import type { ExportContext, ExportRequest } from '../effects/model/export.ts';
import { namesLine } from '../effects/wire/export.ts';
import type { JsonObject } from '../json/value.ts';
import { sealLine } from '../receipts/bundle.ts';
import { policyTextToWire } from '../policy/policy-texts.ts';
import type { ApiPorts } from './ports.ts';

/** Lines, many at once. */
export async function* lines(
  { store }: Pick<ApiPorts, 'store'>,
  request: ExportRequest,
  context: ExportContext,
): AsyncGenerator<string> {
  if (request.form === 'csv') for (const of of request.what) yield namesLine(of);
  for await (const { text } of store.exported(request, context)) yield text;
}

/**
 * The same as a bundle, with head and seal.
 * @param asked the filter as it was asked for
 * @param withPolicies whether whoever asks may read policies: then it has the texts of those that were in force in the time
 */
export async function* bundleLines(
  ports: Pick<ApiPorts, 'store' | 'receipts' | 'policyTexts'>,
  request: ExportRequest,
  context: ExportContext,
  asked: JsonObject,
  withPolicies: boolean,
): AsyncGenerator<string> {
  const { store, receipts } = ports;
  const { workspace } = request;
  const digest = createHash('sha256');
  const total = { events: 0, effects: 0, receipts: 0, policies: 0 };
  const { keys } = receipts.jwks();
  const head = `${JSON.stringify({ type: 'bundle', v: 1, ws: workspace, filter: asked, keys })}\n`;
  digest.update(head);
  yield head;
  for await (const { text, counts } of store.exported(request, context)) {
    for (const of of request.what) total[of] += counts[of];
    digest.update(text);
    yield text;
  }
  for (const version of withPolicies ? await versionsIn(store, request) : []) {
    const texts = await ports.policyTexts(version);
    if (texts === null) continue;
    const line = `${JSON.stringify({ type: 'policy', version, files: texts.map(policyTextToWire) })}\n`;
    total.policies += 1;
    digest.update(line);
    yield line;
  }
  const sha256 = digest.digest('base64url');
  yield sealLine(receipts.sealExport({ workspace, at: store.now(), sha256, ...total }));
}

/** Versions of policies that were in force in the time that is asked for. */
async function versionsIn(
  store: Pick<ApiPorts['store'], 'policyHistory'>,
  { filter: { since, until } }: ExportRequest,
): Promise<ReadonlySet<string>> {
  const history = await store.policyHistory();
  // Newest first: each was in force until the one before it in the list came.
  const isIn = (at: number, index: number): boolean =>
    at < (until ?? Infinity) && (history[index - 1]?.at ?? Infinity) >= (since ?? 0);
  return new Set(history.filter(({ at }, index) => isIn(at, index)).map(({ version }) => version));
}
