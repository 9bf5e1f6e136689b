import type { ExportContext, ExportRequest } from '../effects/model/export.ts';
import { namesLine } from '../effects/wire/export.ts';
import type { JsonObject } from '../json/value.ts';
import type { PolicyInForce } from '../effects/policy-store.ts';
import { createBundleDigest, sealLine } from '../receipts/bundle.ts';
import { policyTextToWire } from '../policy/policy-texts.ts';
import { activationToWire } from '../effects/wire/policy-in-force.ts';
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
 * @param withPolicies whether whoever asks may read policies: then it has the texts of those that were in force in the time, and
 *   who put them there
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
  const digest = createBundleDigest();
  const total = { events: 0, effects: 0, receipts: 0, policies: 0 };
  const { keys } = receipts.jwks();
  const head = `${JSON.stringify({ type: 'bundle', v: 1, ws: workspace, filter: asked, keys })}\n`;
  digest.update(Buffer.from(head));
  yield head;
  for await (const { text, counts } of store.exported(request, context)) {
    for (const of of request.what) total[of] += counts[of];
    digest.update(Buffer.from(text));
    yield text;
  }
  for (const [version, times] of withPolicies ? await versionsIn(store, request) : []) {
    const inForce = times.map((time) => activationToWire(time)).map(({ version: _version, ...when }) => when);
    total.policies += 1;
    for (const content of contentsOf(await ports.policyTexts(version))) {
      const line = `${JSON.stringify({ type: 'policy', version, in_force: inForce, ...content })}\n`;
      digest.update(Buffer.from(line));
      yield line;
    }
  }
  yield sealLine(receipts.sealExport({ workspace, at: store.now(), ...digest.end(), ...total }));
}

/** What the lines of a version have of its texts: large ones are packed, as the store keeps them, one part in each. */
function contentsOf(kept: Awaited<ReturnType<ApiPorts['policyTexts']>>): readonly object[] {
  if (kept === null) return [{ files: null }];
  if ('files' in kept) return [{ files: kept.files.map(policyTextToWire) }];
  return kept.packed.map((packed, index) => ({ part: index + 1, parts: kept.packed.length, packed }));
}

/** Versions of policies that were in force in the time that is asked for, with when each was put there. */
async function versionsIn(
  store: Pick<ApiPorts['store'], 'policyHistory'>,
  { filter: { since, until } }: ExportRequest,
): Promise<ReadonlyMap<string, readonly PolicyInForce[]>> {
  const history = await store.policyHistory();
  // Newest first: each was in force until the one before it in the list came.
  const isIn = (at: number, index: number): boolean =>
    at < (until ?? Infinity) && (history[index - 1]?.at ?? Infinity) >= (since ?? 0);
  const versions = new Map<string, PolicyInForce[]>();
  for (const [index, one] of history.entries())
    if (isIn(one.at, index)) versions.set(one.version, [...(versions.get(one.version) ?? []), one]);
  return versions;
}
