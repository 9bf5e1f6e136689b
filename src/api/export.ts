import type { Readable } from 'node:stream';
import { type Static, Type } from 'typebox';
import { type ExportContext, EXPORTED, type ExportRequest } from '../effects/model/export.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import type { PolicyInForce } from '../effects/policy-store.ts';
import { namesLine } from '../effects/wire/export.ts';
import { activationToWire } from '../effects/wire/policy-in-force.ts';
import { permit } from '../identity/permissions.ts';
import type { JsonObject } from '../json/value.ts';
import { policyTextToWire } from '../policy/policy-texts.ts';
import { createBundleDigest, sealLine } from '../receipts/bundle.ts';
import { ownedStream } from '../upstreams/owned-stream.ts';
import type { ApiApp, Caller } from './app.ts';
import { callerOf, refuseAgents } from './caller.ts';
import { EVENT_QUERY, eventFilter } from './ledger.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, refuseFaults } from './problem.ts';
import { answers, closed, InWorkspace } from './schema.ts';

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

/** Exports that are made at once: each reads beside the calls for as long as it lasts. */
const MOST_AT_ONCE = 2;
/** Of these, of one user, or of a key that has none: nobody keeps exports from all others. */
const MOST_OF_ONE = 1;

/** Whoever was waited for so long, ms, and took less in it than so many bytes, is cut off. */
const STALLED_MS = 60_000;
const LEAST_TAKEN = 1024 * 1024;

/** How often it is looked whether whoever takes still may, ms. */
const RECHECK_MS = 2_000;

const { kind: _kind, actor: _actor, effect_id: _effect, ...BY_EFFECT } = EVENT_QUERY;

const ExportQuery = closed({
  format: Type.Optional(
    Type.Enum(['jsonl', 'csv', 'bundle'], {
      description: '`bundle`: JSON lines with the public keys and a signed end, for `svc verify`. Default: `jsonl`.',
    }),
  ),
  what: Type.Optional(
    Type.Enum([...EXPORTED], {
      description: 'Only these; `csv` has one kind, by default `effects`. A bundle has all.',
    }),
  ),
  ...BY_EFFECT,
});

const TYPES = { jsonl: 'application/jsonl', csv: 'text/csv; charset=utf-8', bundle: 'application/jsonl' } as const;

const text = { schema: { type: 'string' } };
const Exports = Type.Unsafe<Readable>({
  description: 'The export.',
  content: { [TYPES.jsonl]: text, 'text/csv': text },
});

const SCHEMA = {
  operationId: 'exportLedger',
  summary: 'Export effects, receipts and events',
  description:
    'Effects that were made, receipts that were issued and events that were written in the time. Effects come without params and answers. Receipts stay when the record of an effect is gone. A bundle has the texts of the policies that were in force in the time as well, for whom may read them. An answer that breaks off is not whole: a bundle ends with its seal. One export of a user is made at a time, and two of all; whoever takes less than 1 MiB in a minute is cut off.',
  tags: ['ledger'],
  params: InWorkspace,
  querystring: ExportQuery,
  response: answers({ 200: Exports }),
} as const;

/** `GET …/export`: effects, receipts and events, as a stream that is made as fast as it is taken. */
export function addExportRoute(
  app: ApiApp,
  ports: Pick<ApiPorts, 'store' | 'receipts' | 'policyTexts' | 'settings' | 'catalog' | 'stillValid'>,
): void {
  /** Those who take them. */
  const underWay = new Map<Readable, string>();

  app.addHook('preClose', async () => {
    for (const stream of underWay.keys()) stream.destroy();
  });

  app.get(
    '/v1/workspaces/:ws/export',
    {
      // To HEAD all of it would be made, for nobody.
      exposeHeadRoute: false,
      config: { endpoint: 'ledger.export' },
      schema: SCHEMA,
    },
    async (request, reply) => {
      const caller = callerOf(request);
      refuseAgents(caller);
      const { format = 'jsonl' } = request.query;
      const { asked, filter } = exportRequest(ports, request.params.ws, request.query);
      const { user, keyId } = caller.principal;
      const taker = user ?? keyId;
      const isOfOne = [...underWay.values()].filter((other) => other === taker).length >= MOST_OF_ONE;
      if (isOfOne || underWay.size >= MOST_AT_ONCE) {
        const whose = isOfOne ? 'Another export of yours is' : 'Other exports are';
        throw refuse('too_many_requests', `${whose} being made. Ask again when one has ended.`, {
          retryAfterMs: 10_000,
        });
      }
      const made =
        format === 'bundle'
          ? bundleLines(ports, asked, context, filter, permit(caller.principal, 'policies.history').ok)
          : lines(ports, asked, context);
      const stream = takenInTime(made, () => mayTake(caller, request.params.ws));
      underWay.set(stream, taker);
      // At its end, so that whoever has all of it may ask for the next at once.
      for (const over of ['end', 'close']) stream.once(over, () => underWay.delete(stream));
      stream.once('error', ({ message }) => request.log.warn({ detail: message }, 'an export broke off'));
      const name = `${request.params.ws}.${format === 'csv' ? 'csv' : 'jsonl'}`;
      const headers = { 'cache-control': 'no-store', 'content-disposition': `attachment; filename="${name}"` };
      return reply.type(TYPES[format]).headers(headers).send(stream);
    },
  );

  /** An export lasts for minutes: a key that is revoked meanwhile takes no more of it. */
  async function mayTake({ principal: { keyId } }: Caller, workspace: string): Promise<boolean> {
    const principal = await ports.stillValid(keyId);
    return !('failure' in principal) && permit(principal, 'ledger.export', workspace).ok;
  }

  const context: ExportContext = ({ action }) => ({
    tool: ports.catalog().tool(action.tool),
    now: ports.store.now(),
  });
}

/** What is asked for, and its filter as a bundle says it. */
function exportRequest(
  { settings, store }: Pick<ApiPorts, 'settings' | 'store'>,
  workspace: string,
  query: Static<typeof ExportQuery>,
): { readonly asked: ExportRequest; readonly filter: JsonObject } {
  const { format = 'jsonl', what, ...by } = query;
  const faults: RequestFault[] = [];
  const { until, ...filter } = eventFilter(by, faults);
  if (format === 'bundle' && what !== undefined)
    faults.push({ path: '/query/what', message: 'is not for a bundle, which has all' });
  if (faults.length > 0) throw refuseFaults(faults);
  // What is made after this moment is in the next export.
  const end = until ?? store.now();
  const all = format === 'csv' ? (['effects'] as const) : EXPORTED;
  return {
    asked: {
      workspace,
      publicUrl: settings().publicUrl,
      filter: { ...filter, until: end },
      what: what === undefined ? all : [what],
      form: format === 'csv' ? 'csv' : 'json',
    },
    filter: { ...by, until: new Date(end).toISOString() },
  };
}

/** A stream that breaks off when it is taken too slowly, or whoever takes it may not any more. */
export function takenInTime(lines: AsyncGenerator<string>, mayTake: () => Promise<boolean>): Readable {
  let takenAt = performance.now();
  /** How long was waited for whoever takes it, and what was taken in that, since it was last looked at. */
  let waitedMs = 0;
  let taken = 0;
  /** Since when a piece waits to be taken. */
  let offeredAt: number | null = null;
  const waited = (): number => waitedMs + (offeredAt === null ? 0 : performance.now() - offeredAt);
  async function* pieces(): AsyncGenerator<Buffer> {
    for await (const some of lines) {
      takenAt = performance.now();
      // A search that finds little would go on though nobody is there any more.
      if (stream.destroyed) return;
      if (some === '') continue;
      const piece = Buffer.from(some);
      offeredAt = performance.now();
      yield piece;
      waitedMs = waited();
      offeredAt = null;
      taken += piece.length;
    }
  }
  const stream = ownedStream(pieces());
  // Where the store cannot say it, it is asked again.
  const endUnlessAllowed = async (): Promise<void> => {
    if (!(await mayTake().catch(() => true))) stream.destroy();
  };
  const watch = setInterval(() => {
    if (waited() > STALLED_MS) {
      if (taken < LEAST_TAKEN) stream.destroy(new Error('Less than 1 MiB of it was taken in a minute.'));
      waitedMs = 0;
      taken = 0;
      if (offeredAt !== null) offeredAt = performance.now();
    }
    if (performance.now() - takenAt > STALLED_MS)
      stream.destroy(new Error('Nothing of it was made or taken for a minute.'));
    else void endUnlessAllowed();
  }, RECHECK_MS);
  watch.unref();
  stream.once('close', () => clearInterval(watch));
  return stream;
}
