import { Type } from 'typebox';
import { DECISIONS } from '../../effects/model/decision.ts';
import { decisionOf, type EffectRecord } from '../../effects/model/effect.ts';
import { timeToWire } from '../../effects/wire/time.ts';
import type { JsonObject } from '../../json/value.ts';
import type { ControlPorts } from './ports.ts';
import { AnyObject, args, Items } from './schemas.ts';
import { answered, type ControlTool, defineTool, many, type ToolCall } from './tool.ts';

/** How much is looked at for one summary: the newest. Records may be large, so pages are short. */
const MOST_EFFECTS = 1_000;
const MOST_PAGES = 20;
const PAGE = 100;
/** Groups and reasons in one answer. */
const MOST_GROUPS = 20;

const WINDOWS = {
  '15m': 900_000,
  '1h': 3_600_000,
  '24h': 86_400_000,
  '7d': 604_800_000,
  '30d': 2_592_000_000,
} as const;
const WINDOW_NAMES: readonly (keyof typeof WINDOWS)[] = ['15m', '1h', '24h', '7d', '30d'];

const Summary = Type.Object({
  window: Type.Enum([...WINDOW_NAMES]),
  since: Type.String(),
  until: Type.String(),
  counted: Type.Integer({ description: 'Effects that were counted.' }),
  complete: Type.Boolean({ description: 'false: there are more in the window; the newest were counted.' }),
  counted_since: Type.String({ description: 'The oldest effect that was counted; `since` where it is complete.' }),
  decisions: Type.Record(Type.String(), Type.Integer(), { description: 'Effects by decision, all 14.' }),
  latency_ms: AnyObject('Time at the upstream of those that were sent: `count`, `p50`, `p90`, `p99`, `max`.'),
  spend: Items('What was spent from a budget, by unit.'),
  top_denials: Items('A reason for refusals, and how often.'),
  groups: Items('A group, where `group_by` was given: its count, decisions and latency.'),
});

type GroupBy = 'tool' | 'agent' | 'upstream' | 'decision';

/** `svc.observability.summary`. */
export function observabilityTools(ports: Pick<ControlPorts, 'store' | 'inLine'>): readonly ControlTool[] {
  return [
    defineTool({
      name: 'svc.observability.summary',
      title: 'Summary of what happened',
      description:
        'Counts the effects of a time window by decision, with latency, spend and the most frequent refusals; by tool, agent, upstream or decision where asked.',
      endpoint: 'mcp.observability',
      input: args({
        window: Type.Enum([...WINDOW_NAMES], { description: 'How far back.' }),
        group_by: Type.Optional(Type.Enum(['tool', 'agent', 'upstream', 'decision'])),
      }),
      outputSchema: Summary,
      answer: async ({ window, group_by: groupBy }, call) =>
        ports.inLine(call.principal.keyId, async () => {
          const until = ports.store.now();
          const since = until - WINDOWS[window];
          const seen = await readWindow(ports, call, since, groupBy ?? null);
          const { all } = seen;
          const structured: JsonObject = {
            window,
            since: timeToWire(since),
            until: timeToWire(until),
            counted: all.count,
            complete: seen.complete,
            counted_since: timeToWire(seen.complete ? since : seen.oldest),
            decisions: {
              ...Object.fromEntries(DECISIONS.map((decision) => [decision, 0])),
              ...Object.fromEntries(all.decisions),
            },
            latency_ms: quantiles(all.latencies),
            spend: [...seen.spend.values()],
            top_denials: most(seen.denials.values()),
            groups: most([...seen.groups].map(([group, tally]) => ({ group, ...tallyToWire(tally) }))),
          };
          return answered(structured, sentence(window, seen));
        }),
    }),
  ];
}

interface Tally {
  count: number;
  readonly decisions: Map<string, number>;
  readonly latencies: number[];
}

interface Seen {
  readonly all: Tally;
  readonly groups: Map<string, Tally>;
  readonly denials: Map<
    string,
    { readonly code: string; readonly decision: string; readonly rule: string | null; count: number }
  >;
  readonly spend: Map<string, { readonly budget: string; readonly unit: string; amount: number }>;
  complete: boolean;
  /** ms; of the oldest that was counted. */
  oldest: number;
}

async function readWindow(
  ports: Pick<ControlPorts, 'store' | 'inLine'>,
  call: ToolCall,
  since: number,
  groupBy: GroupBy | null,
): Promise<Seen> {
  const seen: Seen = {
    all: emptyTally(),
    groups: new Map(),
    denials: new Map(),
    spend: new Map(),
    complete: false,
    oldest: ports.store.now(),
  };
  let cursor: string | null = null;
  for (let pages = 0; pages < MOST_PAGES && seen.all.count < MOST_EFFECTS; pages += 1) {
    const page = await ports.store.effects(call.workspace, {
      state: null,
      decision: null,
      tool: null,
      agentId: call.ownAgent,
      since,
      until: null,
      limit: PAGE,
      cursor,
    });
    await ports.store.turns.map(page.items, (effect) => count(seen, effect, groupBy));
    cursor = page.next;
    if (cursor === null) {
      seen.complete = true;
      break;
    }
  }
  return seen;
}

function count(seen: Seen, effect: EffectRecord, groupBy: GroupBy | null): void {
  const decision = decisionOf(effect);
  const latency = sentFor(effect);
  seen.oldest = Math.min(seen.oldest, effect.createdAt);
  add(seen.all, decision, latency);
  if (groupBy !== null) {
    const name = groupOf(effect, decision, groupBy);
    const group = seen.groups.get(name) ?? emptyTally();
    seen.groups.set(name, group);
    add(group, decision, latency);
  }
  const { life } = effect;
  if (life.state === 'denied' || life.state === 'rejected') {
    const code = life.state === 'denied' ? life.reason.code : 'approval_rejected';
    const rule = life.state === 'denied' ? (life.reason.rule ?? null) : null;
    const key = `${code} ${rule ?? ''}`;
    const known = seen.denials.get(key);
    if (known === undefined) seen.denials.set(key, { code, decision, rule, count: 1 });
    else known.count += 1;
  }
  if (effect.holdState !== 'posted') return;
  for (const { budget, unit, amount } of effect.holds) {
    const key = `${budget} ${unit}`;
    const known = seen.spend.get(key);
    if (known === undefined) seen.spend.set(key, { budget, unit, amount });
    else known.amount += amount;
  }
}

function groupOf({ action, actor }: EffectRecord, decision: string, groupBy: GroupBy): string {
  return { tool: action.tool, agent: actor.agentId, upstream: action.upstream, decision }[groupBy];
}

function emptyTally(): Tally {
  return { count: 0, decisions: new Map(), latencies: [] };
}

function add(tally: Tally, decision: string, latency: number | null): void {
  tally.count += 1;
  tally.decisions.set(decision, (tally.decisions.get(decision) ?? 0) + 1);
  if (latency !== null) tally.latencies.push(latency);
}

/** How long the upstream took; `null` where nothing was sent, or nobody saw its end. */
function sentFor({ stages }: EffectRecord): number | null {
  return stages.findLast(({ stage }) => stage === 'execute')?.durationMs ?? null;
}

function tallyToWire({ count: counted, decisions, latencies }: Tally): JsonObject & { readonly count: number } {
  return { count: counted, decisions: Object.fromEntries(decisions), latency_ms: quantiles(latencies) };
}

/** Nearest rank. */
function quantiles(values: readonly number[]): JsonObject {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number | null => {
    const value = sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
    return value === undefined ? null : Math.round(value * 1000) / 1000;
  };
  return { count: sorted.length, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1) };
}

/** The most frequent ones. */
function most<Counted extends { readonly count: number }>(counted: Iterable<Counted>): Counted[] {
  return [...counted].toSorted((a, b) => b.count - a.count).slice(0, MOST_GROUPS);
}

function sentence(window: string, { all, complete, denials }: Seen): string {
  if (all.count === 0) return `Nothing happened in the last ${window}.`;
  const counts = [...all.decisions].toSorted((a, b) => b[1] - a[1]).map(([decision, times]) => `${times} ${decision}`);
  const [top] = most(denials.values());
  const why = top === undefined ? '' : ` The most frequent refusal: ${top.code} (${top.count}).`;
  const part = complete ? '' : ` These are the newest; the window holds more.`;
  return `In the last ${window}: ${many(all.count, 'effect')} (${counts.join(', ')}).${why}${part}`;
}
