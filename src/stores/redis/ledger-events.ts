import type { JsonObject, Json } from '../../json/value.ts';
import type { LedgerActor, LedgerDraft, LedgerEvent } from '../../effects/model/ledger.ts';
import { fromPlainText, plainText } from './names.ts';

/**
 * An event as scripts write it: kind, effect, type and id of the actor, data as JSON, then name, type and value of
 * what the script knows. Numbers and times are decimal strings: they are made numbers when an event is read.
 */
export type EventRow = readonly [
  kind: string,
  effect: string,
  actorType: string,
  actor: string,
  data: string,
  ...more: string[],
];

/** An event that a gateway knows whole. */
export function rowOfDraft({ kind, effectId, actor, data }: LedgerDraft): EventRow {
  return [kind, effectId === null ? '' : plainText(effectId), actor.type, plainText(actor.id), JSON.stringify(data)];
}

/** Events of one ledger entry: a stream entry `[id, [field, value, …]]`. */
export function eventsOfEntry(entry: unknown): readonly LedgerEvent[] {
  if (!Array.isArray(entry) || typeof entry[0] !== 'string' || !Array.isArray(entry[1]))
    throw new TypeError('a ledger entry has another form');
  const first = Number(entry[0].slice(0, entry[0].indexOf('-')));
  const fields = new Map<string, string>();
  for (let i = 0; i + 1 < entry[1].length; i += 2) fields.set(String(entry[1][i]), String(entry[1][i + 1]));
  const epoch = fields.get('ep') ?? '';
  const at = Number(fields.get('at'));
  const rows: unknown = JSON.parse(fields.get('ev') ?? '[]');
  if (!Array.isArray(rows)) throw new TypeError('a ledger entry has another form');
  return rows.map((row: EventRow, index) => ({
    seq: first + index,
    id: `evt_${epoch}_${first + index}`,
    at,
    ...draftOfRow(row),
  }));
}

/** Rows are written by scripts of ours only, from kinds of ours. */
function draftOfRow(row: EventRow): LedgerDraft {
  const [kind, effect, actorType, actor, data, ...more] = row;
  const whole: Record<string, Json> = { ...(data === '' ? {} : (JSON.parse(data) as JsonObject)) };
  for (let i = 0; i + 2 < more.length; i += 3) {
    whole[more[i] ?? ''] = valueOf(more[i + 1] ?? '', more[i + 2] ?? '');
  }
  return {
    kind: kind as LedgerDraft['kind'],
    effectId: effect === '' ? null : fromPlainText(effect),
    actor: { type: actorType as LedgerActor['type'], id: fromPlainText(actor) },
    data: whole,
  };
}

function valueOf(type: string, value: string): Json {
  switch (type) {
    case 'n':
      return Number(value);
    case 'b':
      return value === 'true';
    case 't':
      return new Date(Number(value)).toISOString();
    case 'h':
      return holdsOf(value);
    case 'j':
      return JSON.parse(value) as Json;
    case 'o': {
      const [would = '', rule = ''] = JSON.parse(value) as string[];
      return { would, rule: rule === '' ? null : fromPlainText(rule) };
    }
    default:
      return fromPlainText(value);
  }
}

function holdsOf(text: string): Json {
  if (text === '') return [];
  return (JSON.parse(text) as string[][]).map(([budget = '', unit = '', bucket = '', window = '', amount = '']) => ({
    budget: fromPlainText(budget),
    unit: fromPlainText(unit),
    bucket: fromPlainText(bucket),
    window,
    amount: Number(amount),
  }));
}
