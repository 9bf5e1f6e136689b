import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type LedgerUpstream, startLedgerUpstream } from '../upstream/start.ts';
import type { TestFiles } from '../system/gateway.ts';
import { embeddedRig, failoverRig, peerRig, redisRig, type Rig } from './rigs.ts';

/** What stands before the upstream: our gateway on a store, or a gateway around somebody's idempotency library. */
export type Stand = 'embedded' | 'redis' | 'redis-failover' | 'node-idempotency' | 'powertools';

export interface TortureOptions {
  readonly stand: Stand;
  readonly ops: number;
  readonly kills: number;
  readonly seed: number;
  readonly concurrency: number;
  /** Chance of each misbehaviour of the upstream. */
  readonly faults: Readonly<Record<string, number>>;
}

/** What the checker found, by the upstream's own ledger and all answers that clients saw. */
export interface TortureReport {
  readonly seed: number;
  readonly ops: number;
  readonly kills: number;
  readonly requests: number;
  readonly executedMoreThanOnce: number;
  readonly falseFailed: number;
  readonly falseCommitted: number;
  readonly stuck: number;
  readonly overspentUnits: number;
  readonly leakedHolds: number;
  readonly committed: number;
  readonly failed: number;
  readonly unknown: number;
  readonly unknownThatHappened: number;
  readonly denied: number;
  /** The longest time that nothing could be written after a fail-over, ms; `null` where there was none. */
  readonly longestPauseMs: number | null;
}

const LIMIT = 1_000_000;

function files(upstreamUrl: string): TestFiles {
  return {
    config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
workspaces: [ { id: demo, agents: [ { id: bot, team: support } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: ledger, url: "${upstreamUrl}", timeout: 10s } ]
tools:
  - name: ledger.book
    title: Book
    upstream: ledger
    kind: write
    request: { method: POST, path: "/v1/bookings/{op}", body: [amount] }
    params_schema: { type: object, required: [op, amount], properties: { op: { type: string }, amount: { type: integer } }, additionalProperties: false }
    timeout: 300ms
    max_processing: 600ms
    outcomes: { failed: [503] }
telemetry: { log_level: error }
`,
    policies: {
      'torture.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: torture
budgets: { all: { unit: coin, by: [], per: year, limit: ${LIMIT} } }
rules: [ { id: book, effect: allow, match: { tools: [ledger.book] }, obligations: [ { budget: { use: all, amount: params.amount } } ] } ]
`,
    },
  };
}

interface Op {
  readonly key: string;
  readonly amount: number;
  /** Whether the client sends the call again after `failed`. */
  readonly retriesFailed: boolean;
  readonly duplicates: number;
}

interface Seen {
  readonly decision: string;
  readonly effectId: string;
}

/** mulberry32: a seed gives the same schedule again. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

function rigOf(stand: Stand, upstreamUrl: string): Promise<Rig> {
  switch (stand) {
    case 'embedded':
      return embeddedRig(files(upstreamUrl));
    case 'redis':
      return redisRig(files(upstreamUrl));
    case 'redis-failover':
      return failoverRig(files(upstreamUrl));
    case 'node-idempotency':
    case 'powertools':
      return peerRig(stand, upstreamUrl);
  }
}

/** Real gateways, real stores, a real upstream that misbehaves, clients that retry and duplicate; all broken at random. */
export async function torture(options: TortureOptions): Promise<TortureReport> {
  const random = seededRandom(options.seed);
  const folder = await mkdtemp(join(tmpdir(), 'svc-torture-'));
  const upstream = await startLedgerUpstream({
    ledger: join(folder, 'ledger.jsonl'),
    seed: options.seed,
    faults: options.faults,
    lateMs: 500,
  });
  let rig: Rig | null = null;
  try {
    const stand = await rigOf(options.stand, upstream.url);
    rig = stand;
    const ops = Array.from(
      { length: options.ops },
      (_, index): Op => ({
        key: `op-${index}`,
        amount: 1 + Math.floor(random() * 100),
        retriesFailed: random() < 0.5,
        duplicates: random() < 0.3 ? 1 + Math.floor(random() * 3) : 0,
      }),
    );
    let requests = 0;
    let finished = 0;
    const seen = new Map<string, Seen[]>();

    const ask = async (op: Op): Promise<Seen | null> => {
      requests += 1;
      try {
        const response = await fetch(`${stand.url(random)}/v1/workspaces/demo/effects`, {
          method: 'POST',
          headers: { 'x-api-key': stand.agentKey, 'content-type': 'application/json' },
          body: JSON.stringify({
            tool: 'ledger.book',
            params: { op: op.key, amount: op.amount },
            idempotency_key: op.key,
          }),
        });
        const body: unknown = await response.json();
        if (typeof body !== 'object' || body === null || !('decision' in body) || !('effect_id' in body)) return null;
        return { decision: String(body.decision), effectId: String(body.effect_id) };
      } catch {
        return null;
      }
    };

    const client = async (op: Op): Promise<void> => {
      const answers: Seen[] = [];
      seen.set(op.key, answers);
      for (let tries = 0; tries < mostTries(options.stand); tries += 1) {
        const burst = await Promise.all(Array.from({ length: tries === 0 ? 1 + op.duplicates : 1 }, () => ask(op)));
        answers.push(...burst.filter((answer) => answer !== null));
        const last = burst.find((answer) => answer !== null);
        if (last !== undefined && last !== null && isFinal(op, last.decision, tries)) break;
        await pause(40);
      }
      finished += 1;
    };

    const queue = [...ops];
    const workers = Array.from({ length: options.concurrency }, async () => {
      for (let op = queue.shift(); op !== undefined; op = queue.shift()) await client(op);
    });
    const work = Promise.all(workers);
    let kills = 0;
    let longestPauseMs: number | null = null;
    // Kills are spread over the work: each waits for its share of finished operations, then for a random moment.
    for (; kills < options.kills; kills += 1) {
      const share = ((kills + random() * 0.5) / options.kills) * options.ops * 0.95;
      while (finished < share) await pause(5);
      await pause(random() * 30);
      const pauseMs = await stand.disturb(random);
      if (pauseMs !== null) longestPauseMs = Math.max(longestPauseMs ?? 0, Math.round(pauseMs));
    }
    await work;
    const facts = { seed: options.seed, ops: ops.length, kills, requests, longestPauseMs };
    const found = await check({ ops, seen, upstream, rig: stand, random });
    return { ...facts, ...found };
  } finally {
    await rig?.dispose();
    await upstream.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/** A library leaves keys in progress for ever: asking on is of no use. */
function mostTries(stand: Stand): number {
  return stand === 'node-idempotency' || stand === 'powertools' ? 40 : 400;
}

function isFinal(op: Op, decision: string, tries: number): boolean {
  switch (decision) {
    case 'committed':
    case 'duplicate_blocked':
    case 'unknown_effect':
    case 'denied_budget':
      return true;
    case 'failed':
      return !op.retriesFailed || tries > 8;
    default:
      return false;
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

interface Finished {
  readonly ops: readonly Op[];
  readonly seen: ReadonlyMap<string, readonly Seen[]>;
  readonly upstream: LedgerUpstream;
  readonly rig: Rig;
  readonly random: () => number;
}

type Found = Omit<TortureReport, 'seed' | 'ops' | 'kills' | 'requests' | 'longestPauseMs'>;

async function check({ ops, seen, upstream, rig, random }: Finished): Promise<Found> {
  const truth = new Map<string, number>();
  for (const effect of (await upstream.ledger()).effects) truth.set(effect.path, (truth.get(effect.path) ?? 0) + 1);
  const happened = (op: Op): number => truth.get(`/v1/bookings/${op.key}`) ?? 0;

  const { accountKey } = rig;
  if (accountKey === null) return checkAnswers(ops, seen, happened);
  const api = async (
    method: string,
    path: string,
    body?: unknown,
  ): Promise<{ status: number; body: Record<string, never> }> => {
    for (let tries = 0; ; tries += 1) {
      const response = await fetch(`${rig.url(random)}/v1/workspaces/demo${path}`, {
        method,
        headers: { 'x-api-key': accountKey, 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const answer = { status: response.status, body: (await response.json()) as Record<string, never> };
      // The last kill may be a moment ago: a store that is not back yet is asked again, as any client would.
      if (answer.status !== 503 || tries > 300) return answer;
      await pause(100);
    }
  };

  const counts = {
    executedMoreThanOnce: 0,
    falseFailed: 0,
    falseCommitted: 0,
    stuck: 0,
    committed: 0,
    failed: 0,
    unknown: 0,
    unknownThatHappened: 0,
    denied: 0,
  };
  let spent = 0;
  const unknowns: { readonly op: Op; readonly effectId: string }[] = [];
  for (const op of ops) {
    const effects = happened(op);
    if (effects > 1) counts.executedMoreThanOnce += 1;
    const answers = seen.get(op.key) ?? [];
    // An answer "it happened" is false when the ledger knows nothing of it.
    if (effects === 0 && answers.some(({ decision }) => decision === 'committed' || decision === 'duplicate_blocked'))
      counts.falseCommitted += 1;
    const bound = answers.findLast(
      ({ decision }) => decision !== 'denied_budget' && decision !== 'idempotency_conflict',
    );
    if (bound === undefined) {
      counts.denied += 1;
      if (effects > 0) counts.falseFailed += 1;
      continue;
    }
    const { body } = await api('GET', `/effects/${bound.effectId}`);
    const state = String((body['effect'] as { state?: unknown } | undefined)?.state);
    if (state === 'committed') {
      counts.committed += 1;
      spent += op.amount;
      if (effects === 0) counts.falseCommitted += 1;
    } else if (state === 'failed') {
      counts.failed += 1;
      if (effects > 0) counts.falseFailed += 1;
    } else if (state === 'unknown') {
      counts.unknown += 1;
      if (effects > 0) counts.unknownThatHappened += 1;
      unknowns.push({ op, effectId: bound.effectId });
    } else counts.stuck += 1;
  }

  // Every unknown can be settled by the truth; then nothing is held, and what is spent is what happened.
  for (const { op, effectId } of unknowns) {
    const outcome = happened(op) > 0 ? 'happened' : 'not_happened';
    for (let tries = 0; ; tries += 1) {
      const { status } = await api('POST', `/effects/${effectId}/resolve`, { outcome });
      if (status === 200) break;
      if (status !== 409 || tries > 100) {
        counts.stuck += 1;
        break;
      }
      await pause(200);
    }
    if (outcome === 'happened') spent += op.amount;
  }
  const { body } = await api('GET', '/budgets');
  const rows = (body['budgets'] ?? []) as readonly { readonly spent: number; readonly held: number }[];
  const row = rows[0] ?? { spent: 0, held: 0 };
  return {
    ...counts,
    overspentUnits: Math.max(0, row.spent - LIMIT) + Math.abs(row.spent - spent),
    leakedHolds: row.held,
  };
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
    executedMoreThanOnce: count((op) => happened(op) > 1),
    falseFailed: count((op) => last(op) === 'failed' && happened(op) > 0),
    falseCommitted: count((op) => last(op) === 'committed' && happened(op) === 0),
    stuck: count((op) => last(op) === 'in_progress' || last(op) === 'none'),
    committed: count((op) => last(op) === 'committed'),
    failed: count((op) => last(op) === 'failed'),
    unknown: 0,
    unknownThatHappened: 0,
    denied: 0,
    overspentUnits: 0,
    leakedHolds: 0,
  };
}
