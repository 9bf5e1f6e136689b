import { createHash } from 'node:crypto';
import type { EffectRecord, SignedReceipt } from '../effects/model/effect.ts';
import { type LedgerEvent, type LedgerFilter, ledgerEventToWire } from '../effects/model/ledger.ts';
import type { EffectStore } from '../effects/store.ts';
import type { JsonObject } from '../json/value.ts';
import { sealLine } from '../receipts/bundle.ts';
import type { ApiPorts } from './ports.ts';

/** What an export has. */
export const EXPORTED = ['effects', 'receipts', 'events'] as const;
export type Exported = (typeof EXPORTED)[number];

/** One line of an export. `receipt` `null`: an event says that it was issued, and nobody has it any more. */
type Item =
  | { readonly type: 'event'; readonly event: LedgerEvent }
  | { readonly type: 'receipt'; readonly effectId: string; readonly id: string; readonly receipt: SignedReceipt | null }
  | { readonly type: 'effect'; readonly effect: EffectRecord };

/** What is exported, and how an effect is shown. */
export interface ExportRequest {
  readonly workspace: string;
  readonly filter: Omit<LedgerFilter, 'limit' | 'cursor'> & { readonly until: number };
  /** The filter as it was asked for. */
  readonly asked: JsonObject;
  readonly what: ReadonlySet<Exported>;
  readonly showEffect: (effect: EffectRecord) => JsonObject;
}

type Ports = Pick<ApiPorts, 'store' | 'receipts'>;

/** JSON lines, many at once. */
export async function* jsonLines({ store }: Pick<Ports, 'store'>, request: ExportRequest): AsyncGenerator<string> {
  for await (const items of itemsOf(store, request)) yield (await store.turns.map(items, textOf(request))).join('');
}

/** The same as a bundle, with head and seal. */
export async function* bundleLines({ store, receipts }: Ports, request: ExportRequest): AsyncGenerator<string> {
  const { workspace, asked } = request;
  const digest = createHash('sha256');
  const counts = { events: 0, effects: 0, receipts: 0 };
  const { keys } = receipts.jwks();
  const head = `${JSON.stringify({ type: 'bundle', v: 1, ws: workspace, filter: asked, keys })}\n`;
  digest.update(head);
  yield head;
  const text = textOf(request);
  for await (const items of itemsOf(store, request)) {
    for (const { type } of items) counts[`${type}s`] += 1;
    const lines = (await store.turns.map(items, text)).join('');
    digest.update(lines);
    yield lines;
  }
  const sha256 = digest.digest('base64url');
  yield sealLine(receipts.sealExport({ workspace, at: store.now(), sha256, ...counts }));
}

/** Comma-separated values (RFC 4180) of one kind of things, with a line of names. */
export async function* csvLines(
  { store }: Pick<Ports, 'store'>,
  request: ExportRequest,
  of: Exported,
): AsyncGenerator<string> {
  yield `${COLUMNS[of].join(',')}\r\n`;
  const cells = (item: Item): string => `${cellsOf(item).map(cellText).join(',')}\r\n`;
  for await (const items of itemsOf(store, request)) yield (await store.turns.map(items, cells)).join('');
}

/** Events in the order of the ledger, each receipt after the event that says that it was issued; then effects, newest first. */
async function* itemsOf(store: EffectStore, request: ExportRequest): AsyncGenerator<readonly Item[]> {
  const { workspace, filter, what } = request;
  if (what.has('events') || what.has('receipts')) {
    const only = what.has('events') ? filter : ({ ...filter, kind: 'receipt.issued' } as const);
    for await (const events of store.ledgerFrom(workspace, only)) yield await withReceipts(store, request, events);
  }
  if (what.has('effects')) yield* effectsOf(store, request);
}

async function withReceipts(
  store: EffectStore,
  { workspace, what }: ExportRequest,
  events: readonly LedgerEvent[],
): Promise<readonly Item[]> {
  const issued = what.has('receipts') ? events.filter(({ kind }) => kind === 'receipt.issued') : [];
  const found = await store.receipts(
    workspace,
    issued.map(({ effectId }) => effectId ?? ''),
  );
  const receipts = new Map(issued.map(({ seq }, index) => [seq, found[index] ?? null]));
  return events.flatMap((event): Item[] => {
    const { seq, effectId, data } = event;
    const shown: Item[] = what.has('events') ? [{ type: 'event', event }] : [];
    const receipt = receipts.get(seq);
    const { receipt_id: id } = data;
    if (receipt === undefined || effectId === null || typeof id !== 'string') return shown;
    // Only the receipt that the event names belongs to it.
    return [...shown, { type: 'receipt', effectId, id, receipt: receipt?.id === id ? receipt : null }];
  });
}

const PAGE = 200;

async function* effectsOf(store: EffectStore, { workspace, filter }: ExportRequest): AsyncGenerator<readonly Item[]> {
  const { agentId = null, tool = null, target, rule, user, keyId, since, until } = filter;
  const asked = { state: null, decision: null, agentId, tool, target, rule, user, keyId, since, until, limit: PAGE };
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<typeof store.effects>> = await store.effects(workspace, { ...asked, cursor });
    yield page.items.map((effect) => ({ type: 'effect', effect }));
    cursor = page.next;
  } while (cursor !== null);
}

function textOf({ showEffect }: ExportRequest): (item: Item) => string {
  return (item) => `${JSON.stringify({ type: item.type, ...membersOf(item, showEffect) })}\n`;
}

function membersOf(item: Item, showEffect: ExportRequest['showEffect']): object {
  switch (item.type) {
    case 'event':
      return ledgerEventToWire(item.event);
    case 'receipt':
      return { effect_id: item.effectId, receipt_id: item.id, jws: item.receipt?.jws ?? null };
    case 'effect':
      return showEffect(item.effect);
  }
}

const COLUMNS: Readonly<Record<Exported, readonly string[]>> = {
  events: ['seq', 'at', 'kind', 'effect_id', 'actor_type', 'actor_id', 'data'],
  receipts: ['effect_id', 'receipt_id', 'jws'],
  effects: [
    'effect_id',
    'created_at',
    'agent_id',
    'user',
    'key_id',
    'tool',
    'target',
    'state',
    'rules',
    'policy_version',
    'idempotency_key',
    'receipt_id',
  ],
};

/** In the order of {@link COLUMNS}. */
function cellsOf(item: Item): readonly (string | number | null)[] {
  switch (item.type) {
    case 'event': {
      const { seq, at, kind, effectId, actor, data } = item.event;
      return [seq, new Date(at).toISOString(), kind, effectId, actor.type, actor.id, JSON.stringify(data)];
    }
    case 'receipt':
      return [item.effectId, item.id, item.receipt?.jws ?? null];
    case 'effect': {
      const { id, createdAt, actor, action, life, trace, idempotencyKey } = item.effect;
      const rules = trace.matched.map(({ rule }) => rule).join(' ');
      const receipt = life.state === 'committed' ? life.receipt.id : null;
      const who = [actor.agentId, actor.user, actor.keyId];
      const what = [action.tool, action.target, life.state, rules, trace.policyVersion];
      return [id, new Date(createdAt).toISOString(), ...who, ...what, idempotencyKey, receipt];
    }
  }
}

/** Also after a line end, and as wide characters: some take those for the same. */
const FORMULA = /^[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20]/;

/** A text that a spreadsheet would take for a formula is marked as text: agents choose targets and keys. */
export function cellText(cell: string | number | null): string {
  if (typeof cell !== 'string') return cell === null ? '' : String(cell);
  const text = FORMULA.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
