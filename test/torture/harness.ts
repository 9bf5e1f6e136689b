import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { TestFiles } from '../system/gateway.ts';
import { type LedgerUpstream, startLedgerUpstream } from '../upstream/start.ts';
import { budgetsAt, check, type Found } from './checker.ts';
import { createClients } from './clients.ts';
import { failoverRig } from './failover-rig.ts';
import { createPace } from './pace.ts';
import { peerRig } from './peer-rig.ts';
import { seedFor, seededRandom } from './random.ts';
import { embeddedRig, redisRig, type Rig, type Trouble, type TroubleName } from './rigs.ts';
import { FAULTS, LATE_MS, limitsFor, makeOps, MAX_PROCESSING_MS, workloadFiles } from './workload.ts';

/** What stands before the upstream: our gateway on a store, or a gateway around somebody's idempotency library. */
export type Stand = 'embedded' | 'redis' | 'redis-failover' | 'node-idempotency' | 'powertools';

export interface TortureOptions {
  readonly stand: Stand;
  readonly ops: number;
  /** Processes that are killed, at least; the other troubles come beside. */
  readonly kills: number;
  readonly seed: number;
  readonly concurrency: number;
  /** Told of what broke, as it is found. */
  readonly tell?: (line: string) => void;
  /** What somebody does to the upstream while the clients work. */
  readonly beside?: (upstream: LedgerUpstream) => Promise<void>;
}

export interface TortureReport extends Found {
  readonly seed: number;
  readonly ops: number;
  readonly kills: number;
  readonly troubles: Readonly<Partial<Record<TroubleName, number>>>;
  readonly requests: number;
  /** Unknown outcomes that a person settled while it ran; the calls went on from there. */
  readonly resolvedMeanwhile: number;
  /** Answers that no gateway should give (500, or none of the interface's). */
  readonly badAnswers: number;
  /** The longest time that nothing could be written after a fail-over, ms; `null` where there was none. */
  readonly longestPauseMs: number | null;
  readonly seconds: number;
}

/** What has to be 0. */
export const BROKEN = [
  'executedMoreThanOnce',
  'falseFailed',
  'falseCommitted',
  'stuck',
  'overspentUnits',
  'leakedHolds',
  'changedReceipts',
  'fsckDifferences',
  'badAnswers',
] as const satisfies readonly (keyof TortureReport)[];

/** After a primary was killed writes may wait so long, ms. */
const LONGEST_PAUSE_MS = 5000;

/** What a run shows. */
export type Conclusion =
  | { readonly kind: 'held' }
  /** Counts that are to be 0, or too long a pause. */
  | { readonly kind: 'broken'; readonly what: readonly (keyof TortureReport)[] }
  /** The upstream did not keep what is declared of it, and nothing is broken that this does not explain. */
  | { readonly kind: 'no_verdict'; readonly why: string };

/** Reads a report. What is broken beside a late upstream is broken all the same. */
export function concluded(report: TortureReport): Conclusion {
  const what: (keyof TortureReport)[] = BROKEN.filter((name) => report[name] > 0);
  if ((report.longestPauseMs ?? 0) > LONGEST_PAUSE_MS) what.push('longestPauseMs');
  if (what.length > 0) return { kind: 'broken', what };
  if (report.lateExecutions === 0) return { kind: 'held' };
  const { lateExecutions, upstreamLateMs, touchedByLateness } = report;
  return {
    kind: 'no_verdict',
    why: `no verdict: upstream was ${upstreamLateMs} ms late, and is declared to take ${MAX_PROCESSING_MS} ms at most (${lateExecutions} late executions, ${touchedByLateness} of them with something broken)`,
  };
}

function rigOf(stand: Stand, upstreamUrl: string, files: TestFiles): Promise<Rig> {
  switch (stand) {
    case 'embedded':
      return embeddedRig(files);
    case 'redis':
      return redisRig(files);
    case 'redis-failover':
      return failoverRig(files);
    case 'node-idempotency':
    case 'powertools':
      return peerRig(stand, upstreamUrl);
  }
}

interface Planned {
  readonly trouble: Trouble;
  /** Finished operations that it waits for. */
  readonly after: number;
  readonly seed: number;
}

/** Troubles, spread over the work, until enough processes are killed. */
function planTroubles(rig: Rig, { ops, kills }: TortureOptions, random: () => number): readonly Planned[] {
  const total = rig.troubles.reduce((sum, { weight }) => sum + weight, 0);
  const chosen: Trouble[] = [];
  for (let killed = 0; killed < kills; ) {
    let draw = random() * total;
    const trouble = rig.troubles.find(({ weight }) => (draw -= weight) < 0);
    if (trouble === undefined) continue;
    chosen.push(trouble);
    killed += trouble.kills;
  }
  return chosen.map((trouble, index) => ({
    trouble,
    after: ((index + random() * 0.5) / chosen.length) * ops * 0.95,
    seed: Math.floor(random() * 2 ** 31),
  }));
}

/**
 * Real gateways, real stores, a real upstream that misbehaves, clients that retry and duplicate; all broken at random.
 * A seed gives the same operations, and the same troubles at the same places among them.
 */
export async function torture(options: TortureOptions): Promise<TortureReport> {
  const { seed } = options;
  const tell = options.tell ?? (() => undefined);
  const begun = performance.now();
  const ops = makeOps(options.ops, seededRandom(seedFor(seed, 1)));
  const limits = limitsFor(ops);
  const folder = await mkdtemp(join(tmpdir(), 'svc-torture-'));
  const upstream = await startLedgerUpstream({
    ledger: join(folder, 'ledger.jsonl'),
    seed: seedFor(seed, 2),
    faults: FAULTS,
    lateMs: LATE_MS,
  });
  let rig: Rig | null = null;
  try {
    const stand = await rigOf(options.stand, upstream.url, workloadFiles(upstream.url, limits));
    rig = stand;
    // Which gateway is asked depends on when; it has numbers of its own.
    const route = seededRandom(seedFor(seed, 3));
    const clients = createClients(stand, upstream, route);
    const plan = planTroubles(stand, options, seededRandom(seedFor(seed, 4)));
    const pace = createPace(plan[0]?.after ?? ops.length, options.concurrency);
    let begunOps = 0;
    let finished = 0;
    const work = Promise.all(
      Array.from({ length: options.concurrency }, async () => {
        for (;;) {
          while (!pace.mayBegin(begunOps)) await pause(5);
          const op = ops[begunOps];
          if (op === undefined) break;
          begunOps += 1;
          await clients.serve(op);
          finished += 1;
        }
      }),
    );
    const beside = options.beside?.(upstream);
    let beyond = 0;
    const troubles: Partial<Record<TroubleName, number>> = {};
    let longestPauseMs: number | null = null;
    for (const [index, { trouble, after, seed: own }] of plan.entries()) {
      while (finished < after) await pause(5);
      const random = seededRandom(own);
      await pause(random() * 30);
      pace.begins(plan[index + 1]?.after ?? null);
      const pauseMs = await trouble.run(random);
      pace.ended();
      troubles[trouble.name] = (troubles[trouble.name] ?? 0) + 1;
      if (pauseMs !== null) longestPauseMs = Math.max(longestPauseMs ?? 0, Math.round(pauseMs));
      if (stand.accountKey === null) continue;
      for (const { limit, spent, held } of (await budgetsAt(stand.url(route), stand.accountKey)) ?? [])
        beyond = Math.max(beyond, spent + held - limit);
    }
    await Promise.all([work, beside]);
    await clients.settled();
    const found = await check({
      ops,
      limits,
      seen: clients.seen,
      resolved: clients.resolved,
      upstream,
      rig: stand,
      random: route,
      report(what, op) {
        const answers = clients.seen.get(op.key) ?? [];
        const told = answers.map(({ decision, effectId, attempt }) => `${decision} (${effectId}, attempt ${attempt})`);
        tell(`${what}: ${op.key} was told ${told.join(', ')}`);
      },
    });
    for (const fault of clients.faults()) tell(`bad answer: ${fault}`);
    for (const [complaint, times] of tallied(stand.complaints())) tell(`gateway, ${times} times: ${complaint}`);
    return {
      seed,
      ops: ops.length,
      kills: stand.kills(),
      ...found,
      overspentUnits: found.overspentUnits + beyond,
      requests: clients.requests(),
      resolvedMeanwhile: clients.resolved.size,
      badAnswers: clients.faults().length,
      longestPauseMs,
      troubles,
      seconds: Math.round((performance.now() - begun) / 1000),
    };
  } finally {
    await rig?.dispose();
    await upstream.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Lines of a log that say the same, with how often they do. */
function tallied(lines: readonly string[]): ReadonlyMap<string, number> {
  const times = new Map<string, number>();
  for (const line of lines) {
    // Times and ids apart.
    const said = line.replaceAll(/"(?:time|effect_id|request_id|ms)":(?:"[^"]*"|[\d.]+),?/g, '');
    times.set(said, (times.get(said) ?? 0) + 1);
  }
  return times;
}
