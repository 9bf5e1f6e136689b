import type { JsonObject } from '../../json/value.ts';
import type { ExportContext, Exported, ExportItem, ExportRequest } from '../model/export.ts';
import { decisionOf, type EffectRecord } from '../model/effect.ts';
import { ledgerEventToWire } from '../model/ledger.ts';
import { currencyOf, currencyOfBucket, moneyField } from '../model/money.ts';
import { effectToWire, settledAt } from './effect.ts';
import { optionalTimeToWire, timeToWire } from './time.ts';
import { withoutContent } from '../model/without-content.ts';

export function exportLine(item: ExportItem, request: ExportRequest, context: ExportContext): string {
  return request.form === 'csv'
    ? `${cellsOf(item).map(cellText).join(',')}\r\n`
    : `${JSON.stringify({ type: item.type, ...membersOf(item, request, context) })}\n`;
}

function membersOf(item: ExportItem, { publicUrl }: ExportRequest, context: ExportContext): object {
  switch (item.type) {
    case 'event':
      return {
        ...ledgerEventToWire(item.event),
        ...(item.words && { words: { comment: item.words.comment, comment_salt: item.words.salt } }),
      };
    case 'receipt':
      return { effect_id: item.effectId, receipt_id: item.id, jws: item.jws };
    case 'effect': {
      // Params and answers are left out; a receipt is a line of its own.
      const left = { receiptView: () => ({}), withResult: false, approval: null };
      const of = { publicUrl, ...left, ...context(item.effect) };
      const { receipt: _receipt, ...shown }: JsonObject = effectToWire(withoutContent(item.effect), of);
      return { ...shown, user: item.effect.actor.user };
    }
  }
}

/** The first line of comma-separated values (RFC 4180) of one kind of things. */
export function namesLine(of: Exported): string {
  return `${COLUMNS[of].join(',')}\r\n`;
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
    'decision',
    'approver',
    'approver_decided_at',
    'settled_at',
    'amount',
    'unit',
  ],
};

/** In the order of {@link COLUMNS}. */
function cellsOf(item: ExportItem): readonly (string | number | null)[] {
  switch (item.type) {
    case 'event': {
      const { seq, at, kind, effectId, actor, data } = item.event;
      return [seq, timeToWire(at), kind, effectId, actor.type, actor.id, JSON.stringify(data)];
    }
    case 'receipt':
      return [item.effectId, item.id, item.jws];
    case 'effect': {
      const { id, createdAt, actor, action, life, trace, idempotencyKey } = item.effect;
      const rules = trace.matched.map(({ rule }) => rule).join(' ');
      const receipt = life.state === 'committed' ? life.receipt.id : null;
      const who = [actor.agentId, actor.user, actor.keyId];
      const what = [action.tool, action.target, life.state, rules, trace.policyVersion];
      const { by, at } = item.decided;
      const settled = optionalTimeToWire(settledAt(life));
      const decided = [decisionOf(item.effect), by.join(' '), optionalTimeToWire(at), settled];
      return [
        id,
        timeToWire(createdAt),
        ...who,
        ...what,
        idempotencyKey,
        receipt,
        ...decided,
        ...amountOf(item.effect),
      ];
    }
  }
}

/** What it set aside in a budget of money, with the currency; where none is of money, in the first, as that counts. */
function amountOf({ holds: [first, ...others] }: EffectRecord): readonly (string | number | null)[] {
  if (first === undefined) return [null, null];
  for (const { unit, bucket, amount } of [first, ...others]) {
    const currency = currencyOf(unit, currencyOfBucket(bucket));
    if (currency !== null) return [moneyField(amount, currency), currency];
  }
  return [first.amount, first.unit];
}

/** Also after a line end, and as wide characters: some take those for the same. */
const FORMULA = /^[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20]/;

/** A text that a spreadsheet would take for a formula is marked as text: agents choose targets and keys. */
export function cellText(cell: string | number | null): string {
  if (typeof cell !== 'string') return cell === null ? '' : String(cell);
  const text = FORMULA.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
