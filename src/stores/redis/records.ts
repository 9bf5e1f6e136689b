import type { ApprovalRecord } from '../../effects/model/approval.ts';
import type { BudgetRow } from '../../effects/model/budget.ts';
import type { EffectRecord } from '../../effects/model/effect.ts';
import type { LedgerEvent } from '../../effects/model/ledger.ts';
import { type EffectFilter, type EffectStore, PAGE_BYTES, type Page } from '../../effects/store.ts';
import { fieldsOf, textsOf } from './connection.ts';
import { approvalOf, effectOf, isTombstone, receiptOfFields } from './effect-record.ts';
import type { Frame } from './frame.ts';
import { eventsOfEntry } from './ledger-events.ts';
import type { LostEffects } from './lost.ts';
import { fromPlainText, keyOf, plainText } from './names.ts';

type Records = Pick<
  EffectStore,
  'effect' | 'effects' | 'receipt' | 'effectLedger' | 'ledger' | 'ledgerBefore' | 'approval' | 'approvals' | 'budgets'
> & {
  granted(workspace: string, limit: number): Promise<readonly ApprovalRecord[]>;
};

/** Effects that one command looks at while it searches for those that a filter asks for. */
const SCANNED = 500;

/** States that few effects are in at a time have an index of their own. */
const RARE: readonly string[] = ['pending_approval', 'unknown', 'rejected', 'failed'];

/** What is on record, read. */
export function createRecords(frame: Frame, lost: LostEffects): Records {
  async function hashes(workspace: string, names: readonly string[]): Promise<readonly ReadonlyMap<string, string>[]> {
    const replies = await frame.commands(
      workspace,
      names.map((name) => ['HGETALL', keyOf(workspace, name)] as const),
    );
    return replies.map((reply) => fieldsOf(textsOf(reply))).filter((fields) => fields.size > 0);
  }

  async function approvalsOf(workspace: string, ids: readonly string[]): Promise<readonly ApprovalRecord[]> {
    const found = await hashes(
      workspace,
      ids.map((id) => `a:${id}`),
    );
    return found.map((fields) => approvalOf(fields));
  }

  async function entries(
    workspace: string,
    command: readonly [string, ...(string | number)[]],
  ): Promise<readonly LedgerEvent[]> {
    const [reply] = await frame.commands(workspace, [command]);
    return Array.isArray(reply) ? reply.flatMap(eventsOfEntry) : [];
  }

  return {
    async effect(workspace, id) {
      const [fields] = await lost.effects(workspace, [plainText(id)]);
      return fields === undefined || isTombstone(fields) ? null : effectOf(fields);
    },
    async effects(workspace, filter): Promise<Page<EffectRecord>> {
      const ids: string[] = [];
      let from = parseCursor(filter.cursor);
      let room = String(PAGE_BYTES);
      for (;;) {
        const reply = await frame.read('effects', workspace, [
          indexOf(filter),
          filter.state ?? '',
          filter.decision ?? '',
          plainText(filter.tool ?? ''),
          plainText(filter.agentId ?? ''),
          filter.since === null ? '' : String(filter.since),
          filter.until === null ? '' : String(filter.until),
          from,
          String(filter.limit - ids.length),
          String(SCANNED),
          room,
          String(ids.length),
        ]);
        if (reply === null) return { items: [], next: null };
        const [how, next = '', left = '', ...found] = reply.values;
        ids.push(...found);
        from = next;
        room = left;
        if (how === 'scan') continue;
        const records = await lost.effects(workspace, ids);
        const items = records.filter((fields) => !isTombstone(fields)).map((fields) => effectOf(fields));
        return { items, next: how === 'more' ? BigInt(next).toString(36) : null };
      }
    },
    async receipt(workspace, effectId) {
      const [fields] = await hashes(workspace, [`e:${plainText(effectId)}`]);
      return fields === undefined ? null : receiptOfFields(fields);
    },
    async effectLedger(workspace, effectId) {
      const id = plainText(effectId);
      await lost.effects(workspace, [id]);
      // Places of what changed the effect stand with it; those of what only spoke of it, in a list.
      const [own, others] = await frame.commands(workspace, [
        ['HGET', keyOf(workspace, `e:${id}`), 'lg'],
        ['LRANGE', keyOf(workspace, `el:${id}`), 0, -1],
      ]);
      const places = [...(typeof own === 'string' ? own.split(' ') : []), ...textsOf(others)]
        .filter((place) => place !== '')
        .sort((a, b) => Number(a) - Number(b));
      const replies = await frame.commands(
        workspace,
        places.map((seq) => ['XRANGE', keyOf(workspace, 'l'), `${seq}-0`, `${seq}-0`] as const),
      );
      return replies.flatMap((found) => (Array.isArray(found) ? found.flatMap(eventsOfEntry) : []));
    },
    async ledger(workspace, after, limit) {
      const start = Math.max(0, after);
      // An entry holds the events of a step: the one that `after` lies in may go beyond it.
      const [first] = await frame.commands(workspace, [
        ['XREVRANGE', keyOf(workspace, 'l'), `${start}-0`, '-', 'COUNT', 1],
      ]);
      const within = Array.isArray(first) ? first.flatMap(eventsOfEntry) : [];
      const rest = await entries(workspace, ['XRANGE', keyOf(workspace, 'l'), `${start + 1}-0`, '+', 'COUNT', limit]);
      return [...within, ...rest].filter((event) => event.seq > after).slice(0, limit);
    },
    async ledgerBefore(workspace, before, limit) {
      const end = before ?? Number.MAX_SAFE_INTEGER;
      const newest = before === null ? '+' : `${Math.max(0, before - 1)}-0`;
      const found = await entries(workspace, ['XREVRANGE', keyOf(workspace, 'l'), newest, '-', 'COUNT', limit]);
      return found
        .filter((event) => event.seq < end)
        .toSorted((a, b) => b.seq - a.seq)
        .slice(0, limit);
    },
    async approval(workspace, id) {
      const [found] = await approvalsOf(workspace, [plainText(id)]);
      return found ?? null;
    },
    async approvals(workspace, { status, agentId, limit, cursor }) {
      const index = keyOf(workspace, status === null ? 'ao' : `as:${status}`);
      const from = parseCursor(cursor);
      const most = agentId === null ? limit + 1 : SCANNED;
      const [reply] = await frame.commands(workspace, [
        ['ZREVRANGEBYSCORE', index, from === '' ? '+inf' : `(${from}`, '-inf', 'WITHSCORES', 'LIMIT', 0, most],
      ]);
      const flat = textsOf(reply);
      const places = flat.flatMap((id, at) => (at % 2 === 0 ? [{ id, place: flat[at + 1] ?? '' }] : []));
      const agents =
        agentId === null
          ? null
          : await frame.commands(
              workspace,
              places.map(({ id }) => ['HGET', keyOf(workspace, `a:${id}`), 'agent'] as const),
            );
      const fitting = places.filter((_, at) => agents === null || agents[at] === plainText(agentId ?? ''));
      const shown = fitting.slice(0, limit);
      const lastShown = fitting.length > limit ? shown.at(-1) : places.length === most ? places.at(-1) : undefined;
      return {
        items: await approvalsOf(
          workspace,
          shown.map(({ id }) => id),
        ),
        next: lastShown === undefined ? null : BigInt(lastShown.place).toString(36),
      };
    },
    async granted(workspace, limit) {
      const [reply] = await frame.commands(workspace, [['ZRANGE', keyOf(workspace, 'as:granted'), 0, limit - 1]]);
      return approvalsOf(workspace, textsOf(reply));
    },
    async budgets(workspace) {
      const reply = await frame.read('budgets', workspace, ['']);
      if (reply === null) return [];
      const found: { readonly row: BudgetRow; readonly place: number }[] = [];
      for (let i = 0; i + 7 < reply.values.length; i += 8) {
        const [budget = '', unit = '', bucket = '', window = '', limit = '', spent = '', held = '', place = ''] =
          reply.values.slice(i, i + 8);
        const ends = /^c:-?\d+:(-?\d+)$/.exec(window)?.[1];
        const resetsAt = ends === undefined ? null : Number(ends);
        if (resetsAt !== null && resetsAt <= reply.now) continue;
        found.push({
          row: {
            budget: fromPlainText(budget),
            unit: fromPlainText(unit),
            bucket: fromPlainText(bucket),
            window,
            limit: Number(limit),
            spent: Number(spent),
            held: Number(held),
            resetsAt,
          },
          place: Number(place),
        });
      }
      return found
        .sort((a, b) => Buffer.compare(Buffer.from(a.row.budget), Buffer.from(b.row.budget)) || a.place - b.place)
        .map(({ row }) => row);
    },
  };
}

/** The index with the fewest effects to look at. */
function indexOf({ state, agentId }: EffectFilter): string {
  if (state === 'executing') return 'lease';
  if (state !== null && RARE.includes(state)) return `s:${state}`;
  return agentId === null ? 'ix' : `ia:${plainText(agentId)}`;
}

/** A cursor that this store did not make begins at the start. */
function parseCursor(cursor: string | null): string {
  if (cursor === null || !/^[0-9a-z]{1,11}$/.test(cursor)) return '';
  return String(Number.parseInt(cursor, 36));
}

/** The effect that an idempotency key is bound to, as it stands on record; `null`: none whose record is there. */
export async function boundEffect(frame: Frame, workspace: string, key: string): Promise<EffectRecord | null> {
  const [id] = await frame.commands(workspace, [['GET', keyOf(workspace, `k:${plainText(key)}`)]]);
  if (typeof id !== 'string') return null;
  const [hash] = await frame.commands(workspace, [['HGETALL', keyOf(workspace, `e:${id}`)]]);
  const fields = fieldsOf(textsOf(hash));
  return fields.size === 0 || isTombstone(fields) ? null : effectOf(fields);
}
