import type { AllowanceRecord } from '../model/allowance.ts';
import type { BudgetRow, EffectRecord, EffectState, Hold } from '../model/effect.ts';
import type { KeyRecord } from '../model/key.ts';
import type { Json } from '../../json/value.ts';
import type { LedgerEvent, LedgerKind } from '../model/ledger.ts';
import { calendarOf, MONEY, moneyChanges, rowName } from './money-events.ts';
import { stateAfter } from '../steps/ledger-states.ts';
import { isUnsettled } from '../steps/lifecycle.ts';
import type { EffectStore } from '../store.ts';

/** A place where the store differs from its ledger, or (`cap`) a figure from what it counts. */
export interface Difference {
  readonly what:
    | 'state'
    | 'holds'
    | 'held'
    | 'spent'
    | 'cap'
    | 'key'
    | 'passkey'
    | 'allowance'
    | 'secret'
    | 'seal'
    | 'binding';
  /** Id of an effect or a key, `budget bucket window` of a row, name of a cap, or a file. */
  readonly where: string;
  /** What the ledger says; of a cap: how many claims or reservations are on record. */
  readonly ledger: string;
  readonly store: string;
}

const EVENTS_PAGE = 1000;
const EFFECTS_PAGE = 100;
/** How often a store is read again when it changes during the check. */
const MAX_READS = 5;
/** Rolling windows count in slots of this fraction of the window. A spend up to one slot older may still count. */
const SLOTS = 1000;

interface Row {
  readonly hold: Hold;
  held: number;
  /** Of a calendar window: what was spent in it. */
  spent: number;
  readonly spends: { readonly at: number; readonly amount: number }[];
}

type KeyStanding = 'created' | 'revoked' | 'rotated';

const KEY_STANDINGS: Readonly<Partial<Record<LedgerKind, KeyStanding>>> = {
  'key.created': 'created',
  'key.revoked': 'revoked',
  'key.rotated': 'rotated',
};

/**
 * Computes from a ledger, event by event, what should be in the store: states of effects and keys, figures of budgets. Of an
 * effect it keeps its id and two words, and of budgets what counts in windows that are not over.
 */
export class Audit {
  readonly #states = new Map<string, EffectState>();
  readonly #holdings = new Map<string, EffectRecord['holdState']>();
  readonly #begun: number;
  readonly #rows = new Map<string, Row>();
  readonly #keyStandings = new Map<string, KeyStanding>();
  readonly #passkeys = new Map<string, { readonly user: string; readonly isThere: boolean }>();
  readonly #allowances = createAllowanceAudit();

  /** @param begun store time as the check begins: windows that were over by then are left out */
  constructor(begun = -Infinity) {
    this.#begun = begun;
  }

  add(event: LedgerEvent): void {
    const effectId = event.effectId === null ? null : copyOf(event.effectId);
    this.#allowances.add(event);
    const standing = KEY_STANDINGS[event.kind];
    const keyId = event.data['key_id'];
    if (standing !== undefined && typeof keyId === 'string') this.#keyStandings.set(keyId, standing);
    this.#addPasskey(event);
    if (event.kind === 'budget.reset') this.#reset(event.data['budgets']);
    if (effectId === null) return;
    const state = stateAfter(this.#states.get(effectId) ?? null, event);
    if (state !== null) this.#states.set(effectId, state);
    this.#addMoney(event, effectId);
  }

  /** @param keys all of them, also those of other workspaces */
  compareKeys(keys: readonly KeyRecord[]): Difference[] {
    const byId = new Map(keys.map((key) => [key.id, key]));
    return [...this.#keyStandings].flatMap(([id, standing]): Difference[] => {
      const key = byId.get(id);
      const is = key === undefined ? 'nothing' : standingOf(key);
      // A rotated key may be revoked before its overlap ends.
      const fits = standing === is || (standing === 'rotated' && key !== undefined && key.replacedBy !== null);
      return fits ? [] : [{ what: 'key', where: id, ledger: standing, store: is }];
    });
  }

  compareAllowances(stored: readonly AllowanceRecord[], now: number): Difference[] {
    return this.#allowances.compare(stored, now);
  }

  /** Users whose passkeys the ledger speaks of. */
  usersWithPasskeys(): ReadonlySet<string> {
    return new Set([...this.#passkeys.values()].map(({ user }) => user));
  }

  /** @param ids of all passkeys of these users */
  comparePasskeys(ids: ReadonlySet<string>): Difference[] {
    return [...this.#passkeys].flatMap(([id, { user, isThere }]): Difference[] => {
      const word = (is: boolean): string => (is ? `a passkey of ${user}` : 'none, it was removed');
      return ids.has(id) === isThere
        ? []
        : [{ what: 'passkey', where: id, ledger: word(isThere), store: ids.has(id) ? word(true) : 'nothing' }];
    });
  }

  /** A vote names its passkey as well, and says nothing of whether it is still there. */
  #addPasskey({ kind, data: { passkey_id: id, user } }: LedgerEvent): void {
    if (kind !== 'passkey.added' && kind !== 'passkey.removed') return;
    if (typeof id === 'string' && typeof user === 'string')
      this.#passkeys.set(id, { user, isThere: kind === 'passkey.added' });
  }

  #addMoney(event: LedgerEvent, effectId: string): void {
    const meaning = MONEY[event.kind];
    if (meaning === undefined) return;
    this.#holdings.set(effectId, meaning.leaves);
    for (const { hold, held, spent } of moneyChanges(event)) {
      if (isOver(hold.window, this.#begun)) continue;
      const row = this.#rowOf(hold);
      row.held += held;
      const rolling = rollingOf(hold.window);
      if (rolling === null) row.spent += spent ?? 0;
      else if (spent !== null && event.at > oldest(rolling, this.#begun))
        row.spends.push({ at: event.at, amount: spent });
    }
  }

  #rowOf(hold: Hold): Row {
    const name = rowName(hold);
    const row = this.#rows.get(name) ?? { hold, held: 0, spent: 0, spends: [] };
    this.#rows.set(name, row);
    return row;
  }

  #reset(budgets: Json | undefined): void {
    if (!Array.isArray(budgets)) return;
    for (const row of this.#rows.values())
      if (budgets.includes(row.hold.budget)) [row.spent, row.spends.length] = [0, 0];
  }

  /** Effects that have to be on record, and by what the ledger says: those that are not settled. */
  open(): Map<string, EffectState> {
    const open = new Map<string, EffectState>();
    for (const [id, state] of this.#states) if (isUnsettled(state)) open.set(id, state);
    return open;
  }

  compareEffects(effects: readonly EffectRecord[]): Difference[] {
    const found: Difference[] = [];
    for (const { id, life, holdState } of effects) {
      const state = this.#states.get(id) ?? 'nothing';
      if (state !== life.state) found.push({ what: 'state', where: id, ledger: state, store: life.state });
      const held = this.#holdings.get(id) ?? 'none';
      // After holds were given back, a new attempt without holds has `none`.
      const isSame = held === holdState || (held === 'voided' && holdState === 'none');
      if (!isSame) found.push({ what: 'holds', where: id, ledger: held, store: holdState });
    }
    return found;
  }

  /** @param now store time, to leave out windows that have ended */
  compareRows(stored: readonly BudgetRow[], now: number): Difference[] {
    const found: Difference[] = [];
    const byName = new Map(stored.map((row) => [rowName(row), row]));
    for (const name of new Set([...this.#rows.keys(), ...byName.keys()])) {
      const computed = this.#rows.get(name);
      const row = byName.get(name);
      const window = row?.window ?? computed?.hold.window ?? '';
      if (isOver(window, now)) continue;
      const held = computed?.held ?? 0;
      if (held !== (row?.held ?? 0))
        found.push({ what: 'held', where: name, ledger: String(held), store: String(row?.held ?? 0) });
      const { least, most } = computed === undefined ? { least: 0, most: 0 } : spentOf(computed, now);
      const spent = row?.spent ?? 0;
      if (spent < least || spent > most)
        found.push({
          what: 'spent',
          where: name,
          ledger: least === most ? String(most) : `${least} to ${most}`,
          store: String(spent),
        });
    }
    return found;
  }
}

/** An id that stays: as part of the text of a page it would keep the page, and so the whole ledger, in memory. */
const copyOf = (id: string): string => Buffer.from(id).toString();

function standingOf(key: KeyRecord): KeyStanding {
  if (key.revokedAt !== null) return 'revoked';
  return key.replacedBy === null ? 'created' : 'rotated';
}

function isOver(window: string, now: number): boolean {
  const calendar = calendarOf(window);
  return calendar !== null && calendar.end <= now;
}

/** The length of a rolling window, ms; `null` for a calendar window. */
function rollingOf(window: string): number | null {
  const ms = /^r:(\d+)$/.exec(window)?.[1];
  return ms === undefined ? null : Number(ms);
}

/** What was spent before does not count any more. The row may have been read a little before or after `now`. */
function oldest(ms: number, now: number): number {
  return now - ms - Math.ceil(ms / SLOTS) * 2 - 1000;
}

/** What is spent at `now`. For a rolling window: the bounds, because slots are not exact. */
function spentOf({ hold, spent, spends }: Row, now: number): { readonly least: number; readonly most: number } {
  const ms = rollingOf(hold.window);
  const since = (from: number): number => spends.reduce((sum, { at, amount }) => (at > from ? sum + amount : sum), 0);
  if (ms === null) return { least: spent, most: spent };
  return { least: since(now - ms + 1000), most: since(oldest(ms, now)) };
}

/**
 * Computes states and figures of a workspace from its ledger, and compares them with the store. Changes nothing. Of records,
 * also those of an archive, it has one page at a time.
 * @param keptMs how long a settled record is kept, ms: one that is younger and not there is a difference
 * @returns `null` where the store changed so often that no consistent reading was possible
 */
export async function checkWorkspace(
  store: EffectStore,
  workspace: string,
  keptMs = 0,
): Promise<readonly Difference[] | null> {
  const audit = new Audit(store.now());
  const since = store.now() - keptMs + CLOCKS_MS;
  const settled = new Map<string, number>();
  let seq = 0;
  async function follow(): Promise<number> {
    const before = seq;
    for (;;) {
      const events = await store.ledger(workspace, seq, EVENTS_PAGE);
      for (const event of events) {
        audit.add(event);
        seq = event.seq;
        const { effectId, kind, at } = event;
        if (effectId !== null && SETTLING.has(kind) && at >= since) settled.set(copyOf(effectId), at);
      }
      if (events.length === 0) return seq - before;
    }
  }
  await follow();
  for (let reads = 0; reads < MAX_READS; reads += 1) {
    const records = await wrongRecords(store, workspace, audit, settled, store.now() - keptMs + CLOCKS_MS);
    const rows = await store.budgets(workspace);
    const keys = await store.keys(null);
    const passkeys = new Set<string>();
    for (const user of audit.usersWithPasskeys()) for (const { id } of await store.passkeys(user)) passkeys.add(id);
    const allowances = await allAllowances(store, workspace);
    if ((await follow()) !== 0) continue;
    const caps = await wrongCaps(store, workspace);
    return caps === null
      ? null
      : [
          ...records,
          ...audit.compareRows(rows, store.now()),
          ...audit.compareKeys(keys),
          ...audit.comparePasskeys(passkeys),
          ...audit.compareAllowances(allowances, store.now()),
          ...caps,
        ];
  }
  return null;
}

/** After these a record is settled, and kept for a time. */
const SETTLING: ReadonlySet<LedgerKind> = new Set(['execution.succeeded', 'execution.failed', 'approval.rejected']);
/** A record is aged by when it was settled, an event stands in the ledger a moment later. */
const CLOCKS_MS = 60_000;

/**
 * Effects that are not as the ledger says, or whose key is free, or another's, so that the same call could run again; and records
 * that are gone too soon.
 */
async function wrongRecords(
  store: EffectStore,
  workspace: string,
  audit: Audit,
  settled: ReadonlyMap<string, number>,
  since: number,
): Promise<readonly Difference[]> {
  const found: Difference[] = [];
  const open = audit.open();
  const young = new Map([...settled].filter(([, at]) => at >= since));
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<EffectStore['effects']>> = await store.effects(workspace, {
      ...ALL_EFFECTS,
      limit: EFFECTS_PAGE,
      cursor,
    });
    found.push(...audit.compareEffects(page.items));
    for (const { id, idempotencyKey, life } of page.items) {
      open.delete(id);
      young.delete(id);
      // The key of a call that failed may have been used again; its record stays in the archive.
      if (life.state === 'denied' || (life.state === 'failed' && life.at < since)) continue;
      const bound = await store.boundTo(workspace, idempotencyKey);
      if (bound !== id) found.push({ what: 'binding', where: id, ledger: idempotencyKey, store: bound ?? 'nothing' });
    }
    cursor = page.next;
  } while (cursor !== null);
  for (const [id, state] of open) found.push({ what: 'state', where: id, ledger: state, store: 'nothing' });
  for (const id of young.keys()) found.push({ what: 'binding', where: id, ledger: 'a record', store: 'nothing' });
  return found;
}

const ALL_EFFECTS = { state: null, decision: null, tool: null, agentId: null, since: null, until: null } as const;

/** Figures of caps that are wrong. What is given back stands in no ledger, so two readings have to find the same. */
async function wrongCaps(store: EffectStore, workspace: string): Promise<readonly Difference[] | null> {
  let before = '';
  for (let reads = 0; reads < MAX_READS; reads += 1) {
    const wrong = (await store.capCounts(workspace))
      .filter(({ counter, oneByOne }) => counter !== oneByOne)
      .map(
        ({ cap, counter, oneByOne }): Difference => ({
          what: 'cap',
          where: cap,
          ledger: String(oneByOne),
          store: String(counter),
        }),
      )
      .toSorted((one, other) => (one.where < other.where ? -1 : 1));
    const found = JSON.stringify(wrong);
    if (wrong.length === 0 || found === before) return wrong;
    before = found;
  }
  return null;
}

interface LedgerAllowance {
  used: number;
  ended: 'revoked' | 'replaced' | null;
  readonly times: number;
  readonly expiresAt: number;
}

/**
 * Computes from a ledger, event by event, which allowances there should be, and how often each was used. Where the store
 * differs is told in the form of other differences.
 */
function createAllowanceAudit() {
  const byId = new Map<string, LedgerAllowance>();

  function end(id: unknown, why: 'revoked' | 'replaced'): void {
    const allowance = typeof id === 'string' ? byId.get(id) : undefined;
    if (allowance !== undefined) allowance.ended = why;
  }

  return {
    add({ kind, data }: LedgerEvent): void {
      const { allowance_id: id, times, expires_at: until, instead_of: before } = data;
      if (typeof id !== 'string') return;
      const allowance = byId.get(id);
      if (kind === 'allowance.used' && allowance !== undefined) allowance.used += 1;
      if (kind === 'allowance.revoked') end(id, 'revoked');
      if (kind !== 'allowance.given' || typeof times !== 'number' || typeof until !== 'string') return;
      byId.set(id, { used: 0, ended: null, times, expiresAt: Date.parse(until) });
      end(before, 'replaced');
    },
    /** @param now store time: one whose time is over may be gone */
    compare(stored: readonly AllowanceRecord[], now: number) {
      const there = new Set(stored.map(({ id }) => id));
      const wrong = stored.flatMap(({ id, ended, used, times, expiresAt }) => {
        const ledger = standing(byId.get(id));
        const store = standing({ used, ended: ended?.why ?? null, times, expiresAt });
        return ledger === store ? [] : [differenceOf(id, ledger, store)];
      });
      const gone = [...byId].filter(([id, { expiresAt }]) => expiresAt > now && !there.has(id));
      return [...wrong, ...gone.map(([id, one]) => differenceOf(id, standing(one), 'nothing'))];
    },
  };
}

function differenceOf(where: string, ledger: string, store: string) {
  return { what: 'allowance', where, ledger, store } as const;
}

function standing(one: LedgerAllowance | undefined): string {
  if (one === undefined) return 'nothing';
  const { used, ended, times, expiresAt } = one;
  return `used ${used} of ${times} until ${new Date(expiresAt).toISOString()}${ended === null ? '' : `, ${ended}`}`;
}

export async function allAllowances(
  store: Pick<EffectStore, 'allowances'>,
  workspace: string,
): Promise<readonly AllowanceRecord[]> {
  const all: AllowanceRecord[] = [];
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<EffectStore['allowances']>> = await store.allowances(workspace, {
      agentId: null,
      limit: 100,
      cursor,
    });
    all.push(...page.items);
    cursor = page.next;
  } while (cursor !== null);
  return all;
}
