import { setTimeout as pause } from 'node:timers/promises';
import type { LedgerUpstream } from '../upstream/start.ts';
import type { Seen } from './clients.ts';
import type { Rig } from './rigs.ts';
import { type Limits, MAX_PROCESSING_MS, type Op, pathOf } from './workload.ts';

/** What the checker found, by the upstream's own ledger and all answers that clients saw. All but the last are to be 0. */
export interface Verdict {
  readonly executedMoreThanOnce: number;
  /** Told or recorded as `failed` or denied, and happened. */
  readonly falseFailed: number;
  /** Told or recorded as `committed`, and did not happen. */
  readonly falseCommitted: number;
  /** Without a final answer, or unknown and not to be resolved. */
  readonly stuck: number;
  /** Spent beyond a limit, and what the budgets say more or less than what happened. */
  readonly overspentUnits: number;
  /** Units that nobody holds and that are held all the same, once every outcome is known. */
  readonly leakedHolds: number;
  /**
   * Operations of which clients saw two different receipts. One that a person has settled is left out: while the
   * settlement of the first answer waits for the store (`settlement: pending`) others may hold the outcome for unknown,
   * and then the receipt on record is that of the person's word.
   */
  readonly changedReceipts: number;
  /** What `svc fsck` finds. */
  readonly fsckDifferences: number;
}

/** What became of the operations. */
export interface Outcomes {
  readonly committed: number;
  readonly failed: number;
  readonly unknown: number;
  readonly unknownThatHappened: number;
  readonly denied: number;
}

/** How the upstream kept what is declared of it. Where it did not, a gateway cannot keep its promise either. */
export interface Lateness {
  /** Effects that happened later than `max_processing` after their request may have arrived. */
  readonly lateExecutions: number;
  /** The longest that one of them took, ms; 0 where there is none. */
  readonly upstreamLateMs: number;
  /** What is broken of operations with such an effect; it is not counted in the verdict. */
  readonly touchedByLateness: number;
}

export type Found = Verdict & Outcomes & Lateness;

interface Finished {
  readonly ops: readonly Op[];
  readonly limits: Limits;
  readonly seen: ReadonlyMap<string, readonly Seen[]>;
  /** Keys that a person has settled. */
  readonly resolved: ReadonlySet<string>;
  readonly upstream: LedgerUpstream;
  readonly rig: Rig;
  readonly random: () => number;
  /** Told of each operation that breaks an invariant. */
  readonly report: (what: string, op: Op) => void;
}

const NOTHING_FOUND: Found = {
  executedMoreThanOnce: 0,
  falseFailed: 0,
  falseCommitted: 0,
  stuck: 0,
  overspentUnits: 0,
  leakedHolds: 0,
  changedReceipts: 0,
  fsckDifferences: 0,
  committed: 0,
  failed: 0,
  unknown: 0,
  unknownThatHappened: 0,
  denied: 0,
  lateExecutions: 0,
  upstreamLateMs: 0,
  touchedByLateness: 0,
};

/** What happened, as the upstream's ledger has it. */
interface Truth {
  /** How often an operation was done. */
  times(op: Op): number;
  /** Whether it was done, at least once, later than the upstream is declared to do anything. */
  isLate(op: Op): boolean;
  readonly lateness: Omit<Lateness, 'touchedByLateness'>;
}

async function truthOf(upstream: LedgerUpstream): Promise<Truth> {
  const { effects } = await upstream.ledger();
  const times = new Map<string, number>();
  for (const { path } of effects) times.set(path, (times.get(path) ?? 0) + 1);
  const late = effects.filter(({ waited_ms }) => waited_ms > MAX_PROCESSING_MS);
  const latePaths = new Set(late.map(({ path }) => path));
  return {
    times: (op) => times.get(pathOf(op)) ?? 0,
    isLate: (op) => latePaths.has(pathOf(op)),
    lateness: {
      lateExecutions: late.length,
      upstreamLateMs: Math.max(0, ...late.map(({ waited_ms }) => waited_ms)),
    },
  };
}

/** A row of `GET …/budgets`. */
interface Row {
  readonly budget: string;
  readonly limit: number;
  readonly spent: number;
  readonly held: number;
}

/** The budgets as a gateway shows them; `null` while none answers. */
export async function budgetsAt(url: string, accountKey: string): Promise<readonly Row[] | null> {
  try {
    const response = await fetch(`${url}/v1/workspaces/demo/budgets`, { headers: { 'x-api-key': accountKey } });
    if (response.status !== 200) return null;
    const { budgets } = (await response.json()) as { readonly budgets: readonly Row[] };
    return budgets;
  } catch {
    return null;
  }
}

/** Holds every invariant against the truth; settles what is unknown by it. */
export async function check(finished: Finished): Promise<Found> {
  const { ops, limits, seen, resolved, upstream, rig, random, report } = finished;
  const { times: happened, isLate, lateness } = await truthOf(upstream);
  const { accountKey } = rig;
  if (accountKey === null) return { ...checkAnswers(ops, seen, happened), ...lateness };

  const api = async (method: string, path: string, body?: unknown): Promise<{ status: number; body: Answer }> => {
    for (let tries = 0; ; tries += 1) {
      // The last trouble may be a moment ago: a store that is not back yet is asked again, as any client would.
      const answer = await fetch(`${rig.url(random)}/v1/workspaces/demo${path}`, {
        method,
        headers: { 'x-api-key': accountKey, 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      }).then(
        async (response) => ({ status: response.status, body: (await response.json()) as Answer }),
        () => null,
      );
      if (answer !== null && answer.status !== 503) return answer;
      if (tries > 300) throw new Error(`${path} is not answered`);
      await pause(100);
    }
  };

  /** The unknown effects of the gateway's list, by their keys. */
  const listed = new Map<string, string>();
  for (let cursor: string | null | undefined = ''; typeof cursor === 'string'; ) {
    const { body } = await api('GET', `/effects?state=unknown${cursor === '' ? '' : `&cursor=${cursor}`}`);
    for (const { id, idempotency_key } of body.effects ?? []) listed.set(idempotency_key, id);
    cursor = body.next_cursor;
  }

  const counts = { ...NOTHING_FOUND, ...lateness };
  const count = (what: keyof Verdict, op: Op): void => {
    counts[isLate(op) ? 'touchedByLateness' : what] += 1;
    report(isLate(op) ? `${what}, and the upstream was late` : what, op);
  };
  const unknowns: { readonly op: Op; readonly effectId: string }[] = [];
  await manyAtOnce(ops, async (op) => {
    const times = happened(op);
    const answers = seen.get(op.key) ?? [];
    if (times > 1) count('executedMoreThanOnce', op);
    const receipts = new Set(answers.flatMap(({ receipt }) => receipt ?? []));
    if (receipts.size > 1 && !resolved.has(op.key)) count('changedReceipts', op);
    const saysItHappened = answers.some(({ decision }) => decision === 'committed' || decision === 'duplicate_blocked');
    const told = answers.findLast(({ decision }) => !decision.startsWith('denied_'))?.effectId ?? null;
    // Of requests sent at once, one can be denied and the next one admitted, whose answer dies with its gateway.
    const bound = told ?? (answers.length === 0 ? null : (listed.get(op.key) ?? null));
    if (bound === null) {
      // A denial binds nothing: there is no record under the key, and there was no call.
      if (answers.length === 0) count('stuck', op);
      else counts.denied += 1;
      if (times > 0 && answers.length > 0) count('falseFailed', op);
      return;
    }
    const { body } = await api('GET', `/effects/${bound}`);
    const { state = '', attempt = 0 } = body.effect ?? {};
    const attemptsThatFailed = new Set(
      answers.filter(({ decision }) => decision === 'failed').map((answer) => answer.attempt),
    ).size;
    // Each attempt can have happened once, and one of which it was told that it failed not at all.
    if ((state === 'failed' && times > 0) || (times > 0 && attempt <= attemptsThatFailed)) count('falseFailed', op);
    if (times === 0 && (state === 'committed' || saysItHappened)) count('falseCommitted', op);
    switch (state) {
      case 'committed':
      case 'failed':
        counts[state] += 1;
        break;
      case 'unknown':
        counts.unknown += 1;
        if (times > 0) counts.unknownThatHappened += 1;
        unknowns.push({ op, effectId: bound });
        break;
      default:
        count('stuck', op);
    }
  });

  // Every unknown can be settled by the truth; then nothing is held, and what is spent is what happened.
  await manyAtOnce(unknowns, async ({ op, effectId }) => {
    const outcome = happened(op) > 0 ? 'happened' : 'not_happened';
    for (let tries = 0; ; tries += 1) {
      const { status } = await api('POST', `/effects/${effectId}/resolve`, { outcome });
      if (status === 200) break;
      if (status !== 409 || tries > 100) {
        count('stuck', op);
        break;
      }
      await pause(200);
    }
  });
  const rows = (await budgetsAt(rig.url(random), accountKey)) ?? [];
  for (const [name, limit] of Object.entries(limits)) {
    const mine = rows.filter(({ budget }) => budget.endsWith(`/${name}`));
    const truth = ops.reduce(
      (sum, op) => sum + (happened(op) > 0 && (name === 'all' || op.agent === name) ? op.amount : 0),
      0,
    );
    const spent = mine.reduce((sum, row) => sum + row.spent, 0);
    // What was done late may have been settled as not done, rightly.
    const late = ops.reduce(
      (sum, op) => sum + (isLate(op) && (name === 'all' || op.agent === name) ? op.amount : 0),
      0,
    );
    const beyond = Math.max(0, truth - limit - late, spent - limit) + Math.max(0, Math.abs(spent - truth) - late);
    counts.overspentUnits += beyond;
    counts.leakedHolds += mine.reduce((sum, row) => sum + row.held, 0);
  }
  counts.fsckDifferences = await rig.differences();
  return counts;
}

async function manyAtOnce<T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<void> {
  const left = all.values();
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      for (const one of left) await work(one);
    }),
  );
}

interface Answer {
  readonly effect?: { readonly state?: string; readonly attempt?: number };
  readonly effects?: readonly { readonly id: string; readonly idempotency_key: string }[];
  readonly next_cursor?: string | null;
}

/** Where there are no records: by the last answer that each client saw. */
function checkAnswers(
  ops: readonly Op[],
  seen: ReadonlyMap<string, readonly Seen[]>,
  happened: (op: Op) => number,
): Found {
  const last = (op: Op): string => seen.get(op.key)?.at(-1)?.decision ?? 'none';
  const count = (holds: (op: Op) => boolean): number => ops.filter(holds).length;
  return {
    ...NOTHING_FOUND,
    executedMoreThanOnce: count((op) => happened(op) > 1),
    falseFailed: count((op) => last(op) === 'failed' && happened(op) > 0),
    falseCommitted: count((op) => last(op) === 'committed' && happened(op) === 0),
    stuck: count((op) => last(op) === 'in_progress' || last(op) === 'none'),
    committed: count((op) => last(op) === 'committed'),
    failed: count((op) => last(op) === 'failed'),
  };
}
