import { setTimeout as sleep } from 'node:timers/promises';
import type { Vote } from '../effects/model/approval.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import type { LedgerEvent } from '../effects/model/ledger.ts';
import type { ExportContext, ExportItem, ExportPart, ExportRequest } from '../effects/model/export.ts';
import { exportLine } from '../effects/wire/export.ts';
import { readOwnJson } from '../json/text.ts';
import type { ReadProgram } from '../stores/open-rows.ts';
import type { ListQuery, Row } from '../stores/port.ts';
import { approvalRows } from './approval-rows.ts';
import { decidedOn, someEffects } from './effect-pages.ts';
import { effectRows, receiptIn } from './effect-rows.ts';
import { createMatch, type LedgerSpan, type Match, someEvents, spanOf } from './ledger-pages.ts';
import { AT_ONCE } from '../effects/run/reading-turns.ts';
import { type Readable, rowsByName } from './lists.ts';

/** The module that a thread of the store imports {@link readProgram} from. */
export const READ_PROGRAM_MODULE = new URL(import.meta.url);

/** Where an export goes on: events in the order of the ledger, each receipt after its event; then effects, newest first. */
type Place = ({ readonly of: 'events' } & LedgerSpan) | { readonly of: 'effects'; readonly after: ListQuery['after'] };

/** A receipt of which this thread has only the id: it is in the archive. */
interface Archived {
  readonly type: 'archived';
  readonly effectId: string;
  readonly id: string;
}

interface Items {
  readonly items: readonly (ExportItem | Archived)[];
  /** `null`: nothing follows. */
  readonly next: Place | null;
}

async function firstPlace(from: Readable, { workspace, filter, what }: ExportRequest): Promise<Place> {
  if (what.length === 1 && what[0] === 'effects') return { of: 'effects', after: null };
  return { of: 'events', ...(await spanOf(from, workspace, filter)) };
}

function matchOf(from: Readable, { workspace, filter, what }: ExportRequest): Match {
  return createMatch(from, workspace, what.includes('events') ? filter : { ...filter, kind: 'receipt.issued' });
}

async function itemsFrom(from: Readable, request: ExportRequest, isMatch: Match, place: Place): Promise<Items> {
  const { workspace, filter, what } = request;
  switch (place.of) {
    case 'events': {
      const { events, rest } = await someEvents(from, workspace, filter, place, isMatch);
      const items = await withReceipts(from, request, events);
      if (rest !== null) return { items, next: { of: 'events', ...rest } };
      return { items, next: what.includes('effects') ? { of: 'effects', after: null } : null };
    }
    case 'effects': {
      const { effects, last } = await someEffects(from, workspace, filter, place.after);
      const items: ExportItem[] = [];
      for (const effect of effects) {
        const decided = request.form === 'csv' ? await decidedOn(from, workspace, effect) : { by: [], at: null };
        items.push({ type: 'effect', effect, decided });
      }
      return { items, next: last === null ? null : { of: 'effects', after: last } };
    }
  }
}

const receiptOf = (row: Row) => receiptIn(effectRows.of(row));

async function withReceipts(
  from: Readable,
  { workspace, what }: ExportRequest,
  events: readonly LedgerEvent[],
): Promise<Items['items']> {
  const issued = what.includes('receipts') ? events.filter(({ kind }) => kind === 'receipt.issued') : [];
  const ids = issued.map(({ effectId }) => effectId ?? '');
  const found = await rowsByName(from, workspace, effectRows.kind, ids, receiptOf);
  const receipts = new Map(issued.map(({ seq }, index) => [seq, found[index] ?? null]));
  const words = what.includes('events') ? await wordsOf(from, workspace, events) : new Map<number, Vote>();
  return events.flatMap((event): Items['items'] => {
    const { seq, effectId, data } = event;
    const said = words.get(seq);
    const shown: Items['items'] = what.includes('events')
      ? [{ type: 'event', event, ...(said && { words: said }) }]
      : [];
    const receipt = receipts.get(seq);
    const { receipt_id: id } = data;
    if (receipt === undefined || effectId === null || typeof id !== 'string') return shown;
    // Only the receipt that the event names belongs to it.
    const jws = receipt?.id === id ? receipt.jws : null;
    const isArchived = jws === null && receipt?.id === id;
    return [...shown, isArchived ? { type: 'archived', effectId, id } : { type: 'receipt', effectId, id, jws }];
  });
}

/** What was said with the rejections among events, by their places: it is kept with the request, as long as that is. */
async function wordsOf(
  from: Readable,
  workspace: string,
  events: readonly LedgerEvent[],
): Promise<ReadonlyMap<number, Vote>> {
  const asked = events.flatMap(({ seq, kind, data: { approval_id: id, comment } }) =>
    kind === 'approval.rejected' && typeof id === 'string' && comment !== undefined ? [{ seq, id }] : [],
  );
  const ids = asked.map(({ id }) => id);
  const votes = await rowsByName(from, workspace, approvalRows.kind, ids, (row) =>
    approvalRows.of(row).votes.find(({ salt }) => salt !== undefined),
  );
  return new Map(asked.flatMap(({ seq }, index) => (votes[index] ? [[seq, votes[index]] as const] : [])));
}

/** What the thread of the store that reads answers before the lines: what it leaves to the gateway's thread, and where in the text that belongs. */
interface Made extends Pick<ExportPart, 'counts'> {
  readonly next: Place | null;
  /** How long it took there, ms. */
  readonly tookMs: number;
  readonly left: readonly (readonly [at: number, item: LeftItem])[];
}

type LeftItem = Archived | Extract<ExportItem, { readonly type: 'effect' }>;

/** Lines of one answer, characters, and so many reads of the store: others wait for it. */
const MOST_CHARACTERS = 256 * 1024;
const MOST_SLICES = 8;

/**
 * The thread that reads rests so many times as long as it made lines. Without, it takes one of two cores from the calls:
 * they kept 0.39 of their rate.
 */
const REST = 1.5;

/** Makes lines where lists are read. */
export const readProgram: ReadProgram = (store) => {
  const from: Readable = { store, turns: AT_ONCE };
  return async (asked) => {
    const begun = performance.now();
    const [request, place] = readOwnJson<readonly [ExportRequest, Place]>(asked);
    const isMatch = matchOf(from, request);
    const left: (readonly [number, LeftItem])[] = [];
    const counts = { events: 0, receipts: 0, effects: 0 };
    let text = '';
    let next: Place | null = place;
    for (let slices = 0; next?.of === place.of && slices < MOST_SLICES && text.length < MOST_CHARACTERS; slices += 1) {
      const { items, next: after }: Items = await itemsFrom(from, request, isMatch, next);
      for (const item of items) {
        if (isLeft(item)) left.push([text.length, item]);
        else text += exportLine(item, request, () => ({ tool: null, now: 0 }));
        counts[KINDS[item.type]] += 1;
      }
      next = after;
    }
    const made: Made = { next, left, counts, tookMs: performance.now() - begun };
    return `${JSON.stringify(made)}\n${text}`;
  };
};

const KINDS = { event: 'events', receipt: 'receipts', archived: 'receipts', effect: 'effects' } as const;

function countsOf(items: Items['items']): ExportPart['counts'] {
  const counts = { events: 0, receipts: 0, effects: 0 };
  for (const { type } of items) counts[KINDS[type]] += 1;
  return counts;
}

/** What is shown of an outcome that is not known depends on the tool, and one that runs may have lost its owner. */
function isLeft(item: ExportItem | Archived): item is LeftItem {
  if (item.type === 'effect') return ['executing', 'unknown'].includes(item.effect.life.state);
  return item.type === 'archived';
}

/**
 * An export, part by part.
 * @param from `program`: the one in the thread that reads, `null`: there is none; `hasArchive`: only this thread reads it;
 *   `present` declares an effect whose owner has ended before it is shown
 */
export async function* exportParts(
  parts: {
    readonly readable: Readable;
    readonly program: ((asked: string) => Promise<string>) | null;
    readonly hasArchive: boolean;
    readonly present: (effect: EffectRecord) => Promise<EffectRecord>;
  },
  request: ExportRequest,
  context: ExportContext,
): AsyncGenerator<ExportPart> {
  const { readable, program, hasArchive, present } = parts;
  const { turns } = readable;
  const { user, keyId, rule } = request.filter;
  const isMatch = matchOf(readable, request);

  async function linesOf(items: Items['items']): Promise<readonly string[]> {
    const archived = items.flatMap((item) => (item.type === 'archived' ? [item.effectId] : []));
    const receipts = (await rowsByName(readable, request.workspace, effectRows.kind, archived, receiptOf)).values();
    const whole: ExportItem[] = [];
    for (const item of items) {
      if (item.type === 'archived') {
        const { effectId, id } = item;
        const receipt = receipts.next().value ?? null;
        whole.push({ type: 'receipt', effectId, id, jws: receipt?.id === id ? receipt.jws : null });
      } else whole.push(item.type === 'effect' ? { ...item, effect: await present(item.effect) } : item);
    }
    return turns.map(whole, (item) => exportLine(item, request, context));
  }

  /** @returns `null` where it has to be made in this thread: what leaves the store takes with it by whom events are found */
  function ask(place: Place | null): Promise<string> | null {
    const isHere = hasArchive && (place?.of === 'effects' || (user ?? keyId ?? rule) !== undefined);
    if (program === null || place === null || isHere) return null;
    return turns.run(() => program(JSON.stringify([request, place])));
  }

  let place: Place | null = await firstPlace(readable, request);
  let coming = ask(place);
  while (place !== null) {
    const answer = await coming;
    if (answer === null) {
      const { items, next }: Items = await itemsFrom(readable, request, isMatch, place);
      yield { text: (await linesOf(items)).join(''), counts: countsOf(items) };
      place = next;
      coming = ask(next);
      continue;
    }
    const end = answer.indexOf('\n');
    const { next, left, counts, tookMs } = readOwnJson<Made>(answer.slice(0, end));
    place = next;
    let text = answer.slice(end + 1);
    if (left.length > 0) {
      const lines = await linesOf(left.map(([, item]) => item));
      let at = 0;
      text = [...left.map(([to], index) => text.slice(at, (at = to)) + (lines[index] ?? '')), text.slice(at)].join('');
    }
    yield { text, counts };
    if (next !== null) await sleep(tookMs * REST);
    coming = ask(next);
  }
}
