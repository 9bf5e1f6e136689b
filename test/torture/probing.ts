import { setTimeout as pause } from 'node:timers/promises';
import { askAgain } from '../ask-again.ts';
import type { TestFiles } from '../system/gateway.ts';
import { type LaggingOrders, ORDERS_PROCESSING_MS, type PlacedOrder, startLaggingOrders } from './lagging-orders.ts';
import { seededRandom, seedFor } from './random.ts';
import { embeddedRig, redisRig, type Rig } from './rigs.ts';

/** What is to be settled within this: what happened after it is known to be unknown, the rest after its quiet time, ms. */
export const IN_TIME_MS = 10_000;
const TIMEOUT_MS = 1_000;
/** From admission to the end of the quiet time, without what is declared of the store: dispatch, time-out, slack, upstream. */
const QUIET_MS = 2_000 + TIMEOUT_MS + 2_000 + ORDERS_PROCESSING_MS;
/** `max_freeze` of the stand on Redis. */
const FREEZE_MS = { embedded: 0, redis: 3_000 } as const;
/** The longest that anything is waited for at the end, ms. */
const PATIENCE_MS = 120_000;
const AT_ONCE = 16;

/** What became of the unknown outcomes of a run, by the ledger of the upstream. */
export interface ProbingReport {
  /** Effects that were unknown for a while, and what of them had happened. */
  readonly unknown: number;
  readonly happened: number;
  /** Those that were not settled in time, where a gateway was there to do it. */
  readonly happenedLate: readonly string[];
  readonly restLate: readonly string[];
  /** Still unknown at the end. */
  readonly unsettled: number;
  /** Recorded as committed or failed, and the upstream's ledger says otherwise. */
  readonly wrong: readonly string[];
  /** Keys under which it was done twice. */
  readonly twice: readonly string[];
  readonly kills: number;
  /** The most readings for one effect at the same time. */
  readonly atOnce: number;
  readonly differences: number;
}

interface Event {
  readonly kind: string;
  readonly at: string;
  readonly data: { readonly quiet_at?: string; readonly said?: string };
}

interface Seen {
  readonly id: string;
  readonly state: string;
  readonly ledger: readonly Event[];
}

function files(url: string): TestFiles {
  return {
    config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
workspaces: [ { id: demo, agents: [ { id: rich, team: shop }, { id: poor, team: shop } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: shop, url: "${url}", timeout: ${TIMEOUT_MS}ms } ]
tools:
  - name: shop.order
    upstream: shop
    kind: write
    request: { method: POST, path: /orders, body: [order] }
    params_schema: { type: object, required: [order], properties: { order: { type: string } }, additionalProperties: false }
    max_processing: ${ORDERS_PROCESSING_MS}ms
    idempotent: { header: Idempotency-Key, for: 1s }
    probe:
      request: { method: GET, path: "/orders/{idempotency_key}" }
      happened: { state: done }
      not_happened: { http_status: 404 }
      after: 500ms
      every: 500ms
telemetry: { log_level: error }
`,
    policies: {
      'torture.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: torture
rules:
  - { id: all, effect: allow, match: { upstreams: [shop] } }
`,
    },
  };
}

/** Makes calls whose answers are lost, kills gateways meanwhile and while they probe, and compares what was settled. */
export async function tortureProbes(settings: {
  readonly stand: 'embedded' | 'redis';
  readonly ops: number;
  readonly kills: number;
  readonly seed: number;
}): Promise<ProbingReport> {
  const { stand, ops, kills, seed } = settings;
  const random = seededRandom(seedFor(seed, 1));
  const orders = await startLaggingOrders(seededRandom(seedFor(seed, 2)));
  let rig: Rig | null = null;
  try {
    rig = await (stand === 'redis' ? redisRig : embeddedRig)(files(orders.url));
    const outages: Outage[] = [];
    const calls = makeCalls(rig, ops, random);
    const killing = killNow(rig, kills, outages, random);
    await Promise.all([calls, killing]);
    const seen = await untilSettled(rig, random);
    const report = judge(seen, orders, outages, FREEZE_MS[stand]);
    return { ...report, kills: rig.kills(), differences: await rig.differences() };
  } finally {
    await rig?.dispose();
    await orders.close();
  }
}

type Outage = readonly [from: number, until: number];

async function makeCalls(rig: Rig, ops: number, random: () => number): Promise<void> {
  let next = 0;
  const client = async (): Promise<void> => {
    while (next < ops) {
      const order = `order-${next}`;
      next += 1;
      const body = { tool: 'shop.order', target: order, params: { order }, idempotency_key: order };
      // A killed gateway answers nobody: what it admitted is found in its records. Where none listens, nothing was sent.
      while ((await refusal(ask(rig, random, '', { method: 'POST', body: JSON.stringify(body) }))) === 'ECONNREFUSED')
        await pause(200);
      await pause(random() * 200);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, client));
}

/** Why a request did not come through; `null` where it did. */
async function refusal(asking: Promise<unknown>): Promise<string | null> {
  try {
    await asking;
    return null;
  } catch (error) {
    const cause = error instanceof Error ? error.cause : null;
    return cause instanceof Error && 'code' in cause ? String(cause.code) : 'cut';
  }
}

async function killNow(rig: Rig, kills: number, outages: Outage[], random: () => number): Promise<void> {
  const killing = rig.troubles.find(({ name }) => name === 'gateway_kill');
  for (let kill = 0; kill < kills; kill += 1) {
    await pause(1_500 + random() * 2_000);
    const from = Date.now();
    await killing?.run(random);
    outages.push([from, Date.now()]);
  }
}

async function ask(rig: Rig, random: () => number, path: string, init: RequestInit = {}): Promise<unknown> {
  const headers = { 'x-api-key': rig.agentKeys.rich, 'content-type': 'application/json' };
  const answered = async (): Promise<string> =>
    (await fetch(`${rig.url(random)}/v1/workspaces/demo/effects${path}`, { ...init, headers })).text();
  return JSON.parse(await askAgain(answered, (text) => text));
}

async function untilSettled(rig: Rig, random: () => number): Promise<readonly Seen[]> {
  for (const end = Date.now() + PATIENCE_MS; ; ) {
    const open = [...(await idsIn(rig, random, '&state=unknown')), ...(await idsIn(rig, random, '&state=executing'))];
    if (open.length === 0 || Date.now() > end) break;
    await pause(500);
  }
  const seen: Seen[] = [];
  for (const id of await idsIn(rig, random, '')) {
    const { effect, ledger } = (await ask(rig, random, `/${id}`)) as {
      readonly effect: { readonly state: string };
      readonly ledger: readonly Event[];
    };
    seen.push({ id, state: effect.state, ledger });
  }
  return seen;
}

async function idsIn(rig: Rig, random: () => number, filter: string): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const at: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page = (await ask(rig, random, `?limit=100${filter}${at}`)) as {
      readonly effects: readonly { readonly effect_id: string }[];
      readonly next_cursor: string | null;
    };
    ids.push(...page.effects.map(({ effect_id: id }) => id));
    cursor = page.next_cursor;
  }
  return ids;
}

function judge(
  seen: readonly Seen[],
  orders: LaggingOrders,
  outages: readonly Outage[],
  freezeMs: number,
): Omit<ProbingReport, 'kills' | 'differences'> {
  const found = { unknown: 0, happened: 0, unsettled: 0 };
  const [happenedLate, restLate]: [string[], string[]] = [[], []];
  const wrong: string[] = [];
  for (const { id, state, ledger } of seen) {
    const order = orders.ledger.get(`${id}.1`);
    if ((state === 'committed') !== (order !== undefined) && (state === 'committed' || state === 'failed'))
      wrong.push(`${id} ${state}`);
    const lost = ledger.find(({ kind }) => kind === 'execution.lost');
    if (lost === undefined) continue;
    found.unknown += 1;
    if (order !== undefined) found.happened += 1;
    const settled = ledger.find(({ kind }) => kind === 'effect.reconciled');
    if (state === 'unknown' || settled === undefined) {
      found.unsettled += 1;
      continue;
    }
    const due = dueFrom(lost, ledger, order, freezeMs);
    if (Date.parse(settled.at) <= inTime(due, outages)) continue;
    const readings = ledger.filter(({ kind }) => kind === 'effect.probed' || kind === 'effect.reconciled');
    const told = readings.map(({ at, data }) => `${data.said ?? 'settled'} ${Date.parse(at) - due}`);
    (order === undefined ? restLate : happenedLate).push(`${id}: ${told.join(', ')}`);
  }
  const twice = [...orders.ledger].filter(([, { times }]) => times !== 1).map(([key]) => key);
  return { ...found, happenedLate, restLate, wrong, twice, atOnce: orders.mostForOneKey() };
}

/** From when on it could be settled: it was unknown, and done; or it was not done, and the quiet time was over. */
function dueFrom(lost: Event, ledger: readonly Event[], order: PlacedOrder | undefined, freezeMs: number): number {
  if (order !== undefined) return Math.max(Date.parse(lost.at), order.doneAt);
  const admitted = ledger.find(({ kind }) => kind === 'effect.admitted');
  return lost.data.quiet_at === undefined
    ? Date.parse(admitted?.at ?? '') + QUIET_MS + freezeMs
    : Date.parse(lost.data.quiet_at);
}

/** When the time is over, without the time in which a gateway was down. */
function inTime(from: number, outages: readonly Outage[]): number {
  let until = from + IN_TIME_MS;
  for (const [began, ended] of outages) if (ended > from && began < until) until += ended - Math.max(began, from);
  return until;
}
