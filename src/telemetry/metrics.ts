import { Counter, Gauge, Registry, collectDefaultMetrics } from 'prom-client';
import type { Decision } from '../effects/model/decision.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { type EffectFilter, type EffectStore, StoreUnavailable, type SweepReport } from '../effects/store.ts';
import type { Page } from '../effects/model/page.ts';

/** Most effects that are counted for one gauge. It bounds what a scrape reads. */
const MAX_COUNTED = 2_000;
const COUNT_PAGE = 200;
/** Combinations of upstream, tool and decision that are measured apart; those that come later are one: `other`. */
const MAX_CALL_SERIES = 1_000;

export interface Metrics {
  /** A decision was answered. `code` is `reason.code`. */
  decided(decision: Decision, code: string, via: 'effects_api' | 'proxy' | 'mcp'): void;
  /** Rules in shadow mode would have refused a call. */
  shadowed(rules: readonly string[]): void;
  /** In observe mode, a call ran that policy would have stopped. */
  observed(would: string, via: 'effects_api' | 'proxy' | 'mcp'): void;
  /** Stages of a run, with how long each took, ms; `null`: it was not measured. */
  stages(of: readonly { readonly stage: string; readonly durationMs: number | null }[]): void;
  /** A step of the store took this long, ms; `failed` where it rejected. */
  step(step: 'admit' | 'preview' | 'settle' | 'resolve' | 'vote', result: 'done' | 'failed', durationMs: number): void;
  /** An HTTP request was answered. `route` is the pattern, never the path. */
  answered(route: string, method: string, status: number, durationMs: number): void;
  /** A request through the proxy was answered. `decision` is `null` where none was made. */
  called(upstream: string | null, tool: string | null, decision: string | null, durationMs: number): void;
  /** json-rules-engine's own engine judges a rule otherwise. */
  differed(rule: string): void;
  /** A probe of an unknown outcome came to something. */
  probed(by: 'gateway' | 'caller', outcome: string): void;
  /** Something that a person has to look at. */
  alerted(what: string): void;
  /** Everything, in the Prometheus text format. */
  render(): Promise<{ readonly contentType: string; readonly text: string }>;
}

interface Watched {
  readonly store: Pick<EffectStore, 'health' | 'now' | 'commits' | 'effects' | 'approvals'>;
  readonly workspaces: () => readonly string[];
  readonly swept: () =>
    | (Pick<SweepReport, 'unsettled' | 'reached' | 'oldestUnknown' | 'archive'> & { readonly at: number })
    | null;
  /** When a backup was made last, and the last check of the store that found nothing, ms; `null`: not on record. */
  readonly upkeep?: () => { readonly backup: number | null; readonly cleanFsck: number | null };
}

export function createMetrics(watched: Watched): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry, prefix: 'svc_' });

  /** By labels, separated by line ends: prom-client checks and hashes an object of labels each time. */
  const decided = new Map<string, number>();
  new Counter({
    name: 'svc_decisions_total',
    help: 'Decisions answered, by decision, reason code and door',
    labelNames: ['decision', 'code', 'via'] as const,
    registers,
    collect() {
      this.reset();
      for (const [labels, count] of decided) {
        const [decision = '', code = '', via = ''] = labels.split('\n');
        this.inc({ decision, code, via }, count);
      }
    },
  });
  const counters = countersIn(registers);
  const durations = durationsOfAll();
  const known = new Set<string>();
  /** A configuration may have thousands of tools; each combination of labels is a series of its own. */
  const bounded = (labels: string, decision: string): string => {
    if (known.has(labels)) return labels;
    if (known.size >= MAX_CALL_SERIES) return `other\nother\n${decision}`;
    known.add(labels);
    return labels;
  };
  addStoreCommits(registers, watched);
  addGauges(registers, watched);
  addCounts(registers, watched);

  return {
    decided: (decision, code, via) => {
      const labels = `${decision}\n${code}\n${via}`;
      decided.set(labels, (decided.get(labels) ?? 0) + 1);
    },
    shadowed: (rules) => {
      for (const rule of rules) counters.shadows.inc({ rule });
    },
    observed: (would, via) => counters.observed.inc({ would, via }),
    stages: (of) => {
      for (const { stage, durationMs } of of) if (durationMs !== null) durations.stages.observe(stage, durationMs);
    },
    step: (step, result, durationMs) => durations.steps.observe(`${step}\n${result}`, durationMs),
    answered: (route, method, status, durationMs) =>
      durations.requests.observe(`${route}\n${method}\n${status}`, durationMs),
    called: (upstream, tool, decision, durationMs) => {
      const made = decision ?? 'none';
      durations.calls.observe(bounded(`${upstream ?? 'none'}\n${tool ?? 'none'}\n${made}`, made), durationMs);
    },
    probed: (by, outcome) => counters.probes.inc({ by, outcome }),
    alerted: (what) => counters.alerts.inc({ what }),
    differed: (rule) => counters.differences.inc({ rule }),
    async render() {
      const timed = Object.values(durations).map((each) => each.render());
      return { contentType: registry.contentType, text: `${await registry.metrics()}\n${timed.join('\n\n')}\n` };
    },
  };
}

/** What is counted when it happens. */
function countersIn(registers: Registry[]) {
  const counter = <Label extends string>(name: string, labelNames: readonly Label[], help: string): Counter<Label> =>
    new Counter({ name, help, labelNames, registers });
  return {
    shadows: counter('svc_shadow_refusals_total', ['rule'], 'Calls that a rule in shadow mode would have refused'),
    observed: counter(
      'svc_observed_total',
      ['would', 'via'],
      'Calls that policy would have stopped, were it in force, by the decision they would have got',
    ),
    alerts: counter(
      'svc_alerts_total',
      ['what'],
      'Contradictions, foreign reuse of keys, forged keys, faults in mid-attempt, settlements spilled or lost',
    ),
    probes: counter(
      'svc_probes_total',
      ['by', 'outcome'],
      'Probes of unknown outcomes that were started, by who started them and what they came to: happened and not_happened settled it, open shows neither (yet), unheard had no answer, hindered was not sent',
    ),
    differences: counter(
      'svc_policy_differences_total',
      ['rule'],
      "Rules that json-rules-engine's own engine judged otherwise, once for each version of the policies",
    ),
  };
}

/** What is timed when it happens. */
function durationsOfAll() {
  return {
    stages: createDurations({
      name: 'svc_stage_seconds',
      help: 'Time that a stage of a run took',
      labelNames: ['stage'],
      bounds: [0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10],
    }),
    steps: createDurations({
      name: 'svc_store_step_seconds',
      help: 'Time until a step of the store was durable',
      labelNames: ['step', 'result'],
      bounds: [0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10],
    }),
    requests: createDurations({
      name: 'svc_http_request_seconds',
      help: 'Time from request to answer, by route',
      labelNames: ['route', 'method', 'status'],
      bounds: [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10],
    }),
    calls: createDurations({
      name: 'svc_proxy_call_seconds',
      help: 'Time from request to the end of the answer, of calls through the proxy',
      labelNames: ['upstream', 'tool', 'decision'],
      bounds: [0.005, 0.025, 0.1, 0.5, 2.5, 10],
    }),
  };
}

function addStoreCommits(registers: Registry[], watched: Watched): void {
  new Counter({
    name: 'svc_store_commits_total',
    help: 'Changes that steps asked the store for: done; moved (something had changed, and the step was run again); steps given up after they had moved too often',
    labelNames: ['result'] as const,
    registers,
    collect() {
      const { done, moved, givenUp } = watched.store.commits();
      this.reset();
      this.inc({ result: 'done' }, done);
      this.inc({ result: 'moved' }, moved);
      this.inc({ result: 'given_up' }, givenUp);
    },
  });
}

/** Figures that are there without looking for them. */
function addGauges(registers: Registry[], { store, swept, upkeep }: Watched): void {
  const gauges: readonly (readonly [name: string, help: string, value: () => number])[] = [
    ['svc_store_ready', '1 when the store takes steps', () => (store.health().ready ? 1 : 0)],
    [
      'svc_retention_unsettled',
      'Effects older than retention.effects that stay, because they are not settled',
      () => swept()?.unsettled ?? 0,
    ],
    [
      'svc_retention_reached_timestamp_seconds',
      'When the effect was made that the look for old records has reached; now, where it has seen all of them',
      () => (swept()?.reached ?? Date.now()) / 1000,
    ],
    [
      'svc_archive_behind',
      '1 while effects that are past their age cannot be written to the archive',
      () => ((swept()?.archive?.failure ?? null) === null ? 0 : 1),
    ],
    [
      'svc_archive_segment_timestamp_seconds',
      'When this process last wrote a segment of the archive; 0 before the first',
      () => (swept()?.archive?.last?.at ?? 0) / 1000,
    ],
    [
      'svc_backup_timestamp_seconds',
      'When the last backup of the embedded store was begun; 0 where none is on record',
      () => (upkeep?.().backup ?? 0) / 1000,
    ],
    [
      'svc_fsck_clean_timestamp_seconds',
      'When svc fsck was run here last, if it found nothing; 0 otherwise',
      () => (upkeep?.().cleanFsck ?? 0) / 1000,
    ],
    [
      'svc_retention_swept_timestamp_seconds',
      'When the last round of the sweeper came to its end; 0 before the first',
      () => (swept()?.at ?? 0) / 1000,
    ],
    [
      'svc_effects_unknown_oldest_timestamp_seconds',
      'When the oldest effect was made whose outcome is not known; now, where there is none',
      () => (swept()?.oldestUnknown ?? Date.now()) / 1000,
    ],
  ];
  for (const [name, help, value] of gauges)
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(value());
      },
    });
}

/** What is counted in the store on each scrape; it is left out while the store cannot be read, which other gauges say. */
function addCounts(registers: Registry[], watched: Watched): void {
  const gaugeByWorkspace = (name: string, help: string, count: () => Promise<readonly [string, number][]>): void =>
    void new Gauge({
      name,
      help,
      labelNames: ['workspace'] as const,
      registers,
      async collect() {
        this.reset();
        for (const [workspace, found] of await orNothing(count())) this.set({ workspace }, found);
      },
    });
  /** Both gauges of unknown outcomes are collected at once, and read the store once. */
  let counting: ReturnType<typeof countUnknown> | null = null;
  const unknown = (): ReturnType<typeof countUnknown> => {
    counting ??= countUnknown(watched.store, watched.workspaces()).finally(() => {
      counting = null;
    });
    return counting;
  };
  gaugeByWorkspace(
    'svc_effects_unknown',
    `Effects whose outcome is not known (counted up to ${MAX_COUNTED} a workspace)`,
    async () => (await unknown()).map(({ workspace, counts }) => [workspace, counts.reduce((sum, n) => sum + n, 0)]),
  );
  new Gauge({
    name: 'svc_effects_unknown_by_age',
    help: 'The same by age: each effect counts once, under the shortest time that its call is not older than',
    labelNames: ['workspace', 'age'] as const,
    registers,
    async collect() {
      this.reset();
      for (const { workspace, counts } of await orNothing(unknown()))
        for (const [index, [age]] of AGES.entries()) this.set({ workspace, age }, counts[index] ?? 0);
    },
  });
  gaugeByWorkspace(
    'svc_approvals_pending',
    `Requests for approval that nobody has decided (counted up to ${MAX_COUNTED} a workspace)`,
    () =>
      Promise.all(
        watched
          .workspaces()
          .map(async (one) => [one, await countPages((page) => watched.store.approvals(one, { ...PENDING, ...page }))]),
      ),
  );
}

function orNothing<Item>(counting: Promise<readonly Item[]>): Promise<readonly Item[]> {
  return counting.catch((error: unknown) => {
    if (error instanceof StoreUnavailable) return [];
    throw error;
  });
}

const UNKNOWN = { state: 'unknown', decision: null, tool: null, agentId: null, since: null, until: null } as const;
const PENDING = { status: 'pending', agentId: null } as const;

const AGES = [
  ['1m', 60_000],
  ['10m', 600_000],
  ['1h', 3_600_000],
  ['1d', 86_400_000],
  ['+Inf', Infinity],
] as const;

/** Effects whose outcome is not known, for each of {@link AGES}. */
async function countUnknown(store: Pick<EffectStore, 'now' | 'effects'>, workspaces: readonly string[]) {
  const counted: { readonly workspace: string; readonly counts: readonly number[] }[] = [];
  for (const workspace of workspaces) {
    const counts = AGES.map(() => 0);
    const read = (page: Pick<EffectFilter, 'limit' | 'cursor'>): Promise<Page<EffectRecord>> =>
      store.effects(workspace, { ...UNKNOWN, ...page });
    await countPages(read, ({ createdAt }) => {
      const index = AGES.findIndex(([, most]) => store.now() - createdAt <= most);
      counts[index] = (counts[index] ?? 0) + 1;
    });
    counted.push({ workspace, counts });
  }
  return counted;
}

/** Counts the items on all pages, up to {@link MAX_COUNTED}. */
async function countPages<Item>(
  read: (page: Pick<EffectFilter, 'limit' | 'cursor'>) => Promise<Page<Item>>,
  found: (item: Item) => void = () => undefined,
): Promise<number> {
  let count = 0;
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<typeof read>> = await read({ limit: COUNT_PAGE, cursor });
    count += page.items.length;
    for (const item of page.items) found(item);
    cursor = page.next;
  } while (cursor !== null && count < MAX_COUNTED);
  return count;
}

interface Series {
  /** Number of observations in each bucket. The last bucket is for those above all bounds. */
  readonly within: number[];
  sum: number;
}

/**
 * A histogram for the path of a call, where cost matters: prom-client checks and hashes an object of labels for each
 * observation, and a call makes eight.
 * @param options.bounds seconds, rising
 */
export function createDurations(options: {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly string[];
  readonly bounds: readonly number[];
}) {
  const { name, help, labelNames, bounds } = options;
  const series = new Map<string, Series>();

  const add = (labels: string): Series => {
    const made: Series = { within: Array.from({ length: bounds.length + 1 }, () => 0), sum: 0 };
    series.set(labels, made);
    return made;
  };
  const linesOf = (labels: string, { within, sum }: Series): readonly string[] => {
    const values = labels.split('\n');
    const named = labelNames.map((label, index) => `${label}="${escaped(values[index] ?? '')}"`).join(',');
    let count = 0;
    const lines = within.map((more, index) => {
      count += more;
      return `${name}_bucket{le="${bounds[index] ?? '+Inf'}",${named}} ${count}`;
    });
    return [...lines, `${name}_sum{${named}} ${sum}`, `${name}_count{${named}} ${count}`];
  };

  return {
    /** @param labels the value of each label, separated by line ends */
    observe(labels: string, durationMs: number): void {
      const of = series.get(labels) ?? add(labels);
      const seconds = durationMs / 1000;
      let index = 0;
      while (index < bounds.length && seconds > (bounds[index] ?? 0)) index += 1;
      of.within[index] = (of.within[index] ?? 0) + 1;
      of.sum += seconds;
    },
    /** All observations, in the Prometheus text format. */
    render(): string {
      const lines = [...series].flatMap(([labels, of]) => linesOf(labels, of));
      return [`# HELP ${name} ${help}`, `# TYPE ${name} histogram`, ...lines].join('\n');
    },
  };
}

function escaped(value: string): string {
  return value.replaceAll('\\', String.raw`\\`).replaceAll('"', String.raw`\"`);
}
