import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { ClaimRecord } from '../effects/model/claim.ts';
import type { KeyRecord } from '../effects/model/key.ts';
import type { PauseRecord } from '../effects/model/pause.ts';
import type { ReservationRecord } from '../effects/model/reservation.ts';
import type { Tombstone } from '../effects/model/effect.ts';
import type { LedgerDraft } from '../effects/model/ledger.ts';
import type { RunningUse } from '../effects/steps/plan.ts';
import type { Agent } from '../effects/model/principal.ts';
import type { OutcomeTexts } from '../records/effect-text.ts';
import { integer, plainText, text } from '../stores/embedded/tables/columns.ts';
import type { SqlDatabase, SqlRow, SqlValue } from '../stores/embedded/driver.ts';
import type { FileMeta } from '../stores/embedded/tables/meta-table.ts';

/** `PRAGMA user_version` of a file of this format. */
export const FORMAT_1 = 1;

/** How many rows are read at a time. For effects and the ledger it is fewer, because their rows can be large. */
const SLICE = 500;
const LARGE_SLICE = 32;

/** An effect: its texts as they are in the columns, or what is left of it. */
export interface OldEffect {
  readonly id: string;
  readonly workspace: string;
  /** The idempotency key while it is bound to the effect. */
  readonly key: string | null;
  readonly stored:
    | {
        readonly kind: 'effect';
        readonly call: string;
        readonly terms: string;
        readonly life: string;
        readonly said: OutcomeTexts | null;
      }
    | { readonly kind: 'tombstone'; readonly tombstone: Tombstone };
}

/** The events of one transaction in one workspace. */
export interface OldLedgerRow {
  readonly workspace: string;
  readonly epoch: number;
  readonly seq: number;
  readonly at: number;
  readonly events: readonly LedgerDraft[];
}

/** A row of a budget, or a rate. A rolling one has its slots. */
export interface OldTally {
  readonly kind: 'budget' | 'rate';
  readonly workspace: string;
  /** Name of the budget, or id of the rate. */
  readonly budget: string;
  readonly unit: string;
  readonly bucket: string;
  readonly window: string;
  readonly limit: number;
  readonly spent: number;
  readonly held: number;
  readonly ends: number;
  readonly pruned: number;
  readonly slots: readonly { readonly slot: number; readonly amount: number }[];
}

export interface OldRejection {
  readonly workspace: string;
  readonly fingerprint: string;
  readonly effectId: string;
  readonly until: number;
}

export interface OldPauses {
  readonly workspace: string;
  readonly version: number;
  readonly pauses: readonly PauseRecord[];
}

export interface OldDefinition {
  readonly budget: string;
  readonly unit: string;
  readonly window: string;
}

type Slices<T> = Iterable<readonly T[]>;

/** The content of a file of format 1. Everything that can be large comes in slices. */
export interface Format1 {
  /** `null`: the file was created, but no gateway ever used it. */
  readonly meta: (FileMeta & { readonly policy: string }) | null;
  /** How many records there are of each kind. */
  counts(): Readonly<Record<string, number>>;
  /** Workspaces that have any records. */
  entered(): readonly string[];
  effects(): Slices<OldEffect>;
  ledger(): Slices<OldLedgerRow>;
  approvals(): Slices<ApprovalRecord>;
  rejections(): Slices<OldRejection>;
  claims(): Slices<ClaimRecord>;
  reservations(): Slices<ReservationRecord>;
  uses(): Slices<RunningUse & { readonly workspace: string }>;
  tallies(): Slices<OldTally>;
  keys(): Slices<KeyRecord>;
  agents(): Slices<Agent>;
  pauses(): readonly OldPauses[];
  definitions(): readonly OldDefinition[];
  workspaces(): readonly string[];
  users(): Slices<{ readonly id: string; readonly since: number }>;
  secretMark(): string | null;
}

/** Tables that every file of the format has. */
const TABLES = [
  'meta',
  'effects',
  'lives',
  'running',
  'ledger',
  'mentions',
  'approvals',
  'rejections',
  'claims',
  'reservations',
  'uses',
  'pauses',
  'pause_versions',
  'tallies',
  'slots',
  'budget_definitions',
  'keys',
  'workspaces',
  'agents',
] as const;

/** What is counted and shown to people. */
const COUNTED: readonly (readonly [name: string, from: string])[] = [
  ['effects and tombstones', 'count(*) AS count FROM effects'],
  ['tombstones', "count(*) AS count FROM lives WHERE state = 'tombstone'"],
  ['idempotency keys', 'count(*) AS count FROM effects WHERE key IS NOT NULL'],
  // `seq` has no gaps and begins at 1, so the last one is also the count.
  [
    'events',
    'coalesce(sum(seq + size - 1), 0) AS count FROM ledger WHERE (workspace, seq) IN (SELECT workspace, max(seq) FROM ledger GROUP BY workspace)',
  ],
  ['approvals', 'count(*) AS count FROM approvals'],
  ['rejections', 'count(*) AS count FROM rejections'],
  ['claims', 'count(*) AS count FROM claims'],
  ['reservations', 'count(*) AS count FROM reservations'],
  ['figures', 'count(*) AS count FROM tallies'],
  ['API keys', 'count(*) AS count FROM keys'],
  ['workspaces', 'count(*) AS count FROM workspaces'],
  ['agents', 'count(*) AS count FROM agents'],
];

const ENTERED = [
  'ledger',
  'effects',
  'approvals',
  'rejections',
  'claims',
  'reservations',
  'uses',
  'pauses',
  'pause_versions',
  'tallies',
];

type EventTuple = readonly [
  effectId: string | null,
  kind: LedgerDraft['kind'],
  actorType: LedgerDraft['actor']['type'],
  actorId: string,
  data: LedgerDraft['data'],
];

/**
 * Reads a file of format 1, which earlier versions wrote.
 * @throws Error for a file without its tables
 */
export function readFormat1(database: SqlDatabase): Format1 {
  const there = new Set(
    database
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
      .all()
      .map((row) => text(row['name'])),
  );
  if (!TABLES.some((name) => there.has(name))) throw new Error('store.db is a database of another program');
  const lacking = TABLES.find((name) => !there.has(name));
  if (lacking !== undefined)
    throw new Error(
      `store.db says that it has the format ${FORMAT_1}, and has no table ${lacking}: it was written by a version that was never released, or by another program. Use that version; or move the whole folder away and begin anew`,
    );

  const slots = database.prepare('SELECT slot, amount FROM slots WHERE tally = ? ORDER BY slot');

  /** Rows of a table in the order of its primary key, which consists of the first columns. */
  function* rows<T>(
    table: string,
    key: readonly string[],
    columns: string,
    size: number,
    read: (row: SqlRow) => T,
  ): Slices<T> {
    const names = key.join(', ');
    const select = `SELECT ${key.map((name, at) => `${name} AS key${at}`).join(', ')}, ${columns} FROM ${table}`;
    const first = database.prepare(`${select} ORDER BY ${names} LIMIT ${size}`);
    const beyond = database.prepare(
      `${select} WHERE (${names}) > (${key.map(() => '?').join(', ')}) ORDER BY ${names} LIMIT ${size}`,
    );
    for (let found = first.all(); ; ) {
      const last = found.at(-1);
      if (last === undefined) return;
      yield found.map(read);
      if (found.length < size) return;
      found = beyond.all(...key.map((_, at): SqlValue => last[`key${at}`] ?? null));
    }
  }

  /** Records that are stored as JSON in a column. */
  const documents = <T>(table: string, key: readonly string[]): Slices<T> =>
    rows(table, key, 'doc', SLICE, (row) => decode<T>(row['doc']));

  return {
    meta: readMeta(database),
    counts: () =>
      Object.fromEntries(
        COUNTED.map(([name, from]) => [name, integer(database.prepare(`SELECT ${from}`).get()?.['count'])]),
      ),
    entered: () =>
      database
        .prepare(ENTERED.map((table) => `SELECT workspace FROM ${table}`).join(' UNION '))
        .all()
        .map((row) => plainText(row['workspace'])),
    effects: () =>
      rows(
        'effects LEFT JOIN lives USING (n)',
        ['n'],
        'id, workspace, key, state, call, terms, coalesce(lives.life, effects.life) AS life, outcome',
        LARGE_SLICE,
        effectOf,
      ),
    ledger: () => rows('ledger', ['n'], 'workspace, epoch, seq, at, events', LARGE_SLICE, ledgerRowOf),
    approvals: () => rows('approvals', ['n'], 'doc', SLICE, approvalOf),
    rejections: () =>
      rows('rejections', ['workspace', 'fingerprint'], 'effect, until', SLICE, (row) => ({
        workspace: plainText(row['key0']),
        fingerprint: plainText(row['key1']),
        effectId: text(row['effect']),
        until: integer(row['until']),
      })),
    claims: () => documents('claims', ['workspace', 'target']),
    reservations: () => documents('reservations', ['workspace', 'id']),
    uses: () =>
      rows('uses', ['workspace', 'effect', 'pool'], 'doc', SLICE, (row) => ({
        ...decode<RunningUse>(row['doc']),
        workspace: plainText(row['key0']),
      })),
    tallies: () =>
      rows('tallies', ['n'], 'kind, workspace, budget, doc, ceiling, spent, held, ends, pruned', SLICE, (row) => ({
        ...tallyOf(row),
        slots: slots
          .all(integer(row['key0']))
          .map(({ slot, amount }) => ({ slot: integer(slot), amount: integer(amount) })),
      })),
    keys: () => documents('keys', ['rowid']),
    agents: () => documents('agents', ['workspace', 'id']),
    pauses: () => pausesIn(database),
    definitions: () =>
      database
        .prepare('SELECT budget, unit, window FROM budget_definitions ORDER BY budget')
        .all()
        .map((row) => ({
          budget: plainText(row['budget']),
          unit: decode<string>(row['unit']),
          window: decode<string>(row['window']),
        })),
    workspaces: () =>
      database
        .prepare('SELECT id FROM workspaces ORDER BY id')
        .all()
        .map((row) => plainText(row['id'])),
    // These two tables were added later: a file that was not opened since does not have them.
    users: () =>
      there.has('users')
        ? rows('users', ['id'], 'since', SLICE, (row) => ({
            id: plainText(row['key0']),
            since: integer(row['since']),
          }))
        : [],
    secretMark() {
      const row = there.has('secret') ? database.prepare('SELECT mark FROM secret').get() : undefined;
      return row === undefined ? null : decode<string>(row['mark']);
    },
  };
}

/** Only stores wrote the documents, from typed values, so reading one needs no check of its shape. */
function decode<T>(document: SqlValue | undefined): T {
  return JSON.parse(text(document));
}

function readMeta(database: SqlDatabase): Format1['meta'] {
  const row = database.prepare('SELECT install_id, epoch, boots, clock, commits, policy FROM meta').get();
  if (row === undefined) return null;
  return {
    installId: text(row['install_id']),
    epoch: integer(row['epoch']),
    boots: integer(row['boots']),
    clock: integer(row['clock']),
    commits: integer(row['commits']),
    policy: decode<string>(row['policy']),
  };
}

function effectOf(row: SqlRow): OldEffect {
  const { life, outcome } = row;
  return {
    id: plainText(row['id']),
    workspace: plainText(row['workspace']),
    key: row['key'] === null ? null : plainText(row['key']),
    stored:
      row['state'] === 'tombstone'
        ? { kind: 'tombstone', tombstone: decode<Tombstone>(life) }
        : {
            kind: 'effect',
            call: text(row['call']),
            terms: text(row['terms']),
            life: text(life),
            said: outcome === null ? null : { outcome: text(outcome), payload: null },
          },
  };
}

function ledgerRowOf(row: SqlRow): OldLedgerRow {
  const steps = decode<readonly (readonly EventTuple[])[]>(row['events']);
  return {
    workspace: plainText(row['workspace']),
    epoch: integer(row['epoch']),
    seq: integer(row['seq']),
    at: integer(row['at']),
    events: steps
      .flat()
      .map(([effectId, kind, type, id, data]): LedgerDraft => ({ kind, effectId, actor: { type, id }, data })),
  };
}

/** Members that were added later are absent in older records. */
function approvalOf(row: SqlRow): ApprovalRecord {
  const found = decode<Omit<ApprovalRecord, 'stopped' | 'costs'> & Partial<ApprovalRecord>>(row['doc']);
  return { ...found, stopped: found.stopped ?? null, costs: found.costs ?? [] };
}

function tallyOf(row: SqlRow): Omit<OldTally, 'slots'> {
  const { unit, bucket, window } = decode<Pick<OldTally, 'unit' | 'bucket' | 'window'>>(row['doc']);
  return {
    kind: row['kind'] === 'rate' ? 'rate' : 'budget',
    workspace: plainText(row['workspace']),
    budget: plainText(row['budget']),
    unit,
    bucket,
    window,
    limit: integer(row['ceiling']),
    spent: integer(row['spent']),
    held: integer(row['held']),
    ends: integer(row['ends']),
    pruned: integer(row['pruned']),
  };
}

function pausesIn(database: SqlDatabase): readonly OldPauses[] {
  const pauses = database.prepare('SELECT doc FROM pauses WHERE workspace = ? ORDER BY id');
  return database
    .prepare(
      'SELECT workspace, coalesce(version, 0) AS version FROM (SELECT workspace FROM pauses UNION SELECT workspace FROM pause_versions) LEFT JOIN pause_versions USING (workspace)',
    )
    .all()
    .map((row) => ({
      workspace: plainText(row['workspace']),
      version: integer(row['version']),
      pauses: pauses.all(row['workspace'] ?? null).map(({ doc }) => decode<PauseRecord>(doc)),
    }));
}
