import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { LedgerEvent } from '../../src/effects/model/ledger.ts';
import type { Probe, Tool } from '../../src/effects/model/tool.ts';
import type { EffectPorts } from '../../src/effects/ports.ts';
import { type EffectStore, StoreUnavailable, type AskedOf } from '../../src/effects/store.ts';
import { outcomeOfProbe, type ProbeOutcome, Prober } from '../../src/gateway/prober.ts';
import { refund, type Rig, startRig } from '../api/rig.ts';

const EVERY_MS = 2_000;

let rig: Rig;
/** An effect of whose outcome nobody knows, and its tool. */
let unknown: EffectRecord;
let refunds: Tool;
beforeAll(async () => {
  rig = await startRig();
  rig.loseNextAnswer();
  const answer = await rig.send('POST', '/v1/workspaces/demo/effects', { body: refund() });
  const effect = await rig.core.store.effect('demo', String(answer.json['effect_id']));
  const tool = rig.core.catalog().tool('payments.refund');
  if (effect?.life.state !== 'unknown' || tool === null) throw new Error(answer.text);
  unknown = effect;
  refunds = tool;
});
afterAll(() => rig.close());

/** What the rounds of a prober meet, and what became of it. */
interface World {
  /** Store time, ms. */
  now: number;
  /** Effects that are due, of any tool and workspace; those that are looked for are taken out. */
  due: EffectRecord[];
  /** What the upstream answers; `null`: nothing. */
  answer: { readonly status: number; readonly body: Readonly<Record<string, string>> } | null;
  readonly ledger: LedgerEvent[];
  readonly looks: (readonly [workspace: string, tool: string, most: number])[];
  readonly after: Set<number>;
  readonly plans: AskedOf<'planProbe'>[];
  readonly outcomes: ProbeOutcome[];
  /** Upstreams that were heard of. */
  readonly heard: string[];
  readonly reported: unknown[];
  sent: number;
  tools: Tool[];
  planned: 'planned' | 'moved';
  isPaused: boolean;
}

let world: World;
let prober: Prober | null = null;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  const life = unknown.life.state === 'unknown' ? unknown.life : null;
  world = {
    now: (life?.at ?? 0) + 10_000,
    due: [],
    answer: { status: 200, body: {} },
    ledger: [],
    looks: [],
    plans: [],
    after: new Set(),
    outcomes: [],
    heard: [],
    reported: [],
    sent: 0,
    tools: [probed()],
    planned: 'planned',
    isPaused: false,
  };
});
afterEach(async () => {
  await prober?.stop();
  vi.useRealTimers();
});

function probed(change: Partial<Probe> = {}, other: Partial<Tool> = {}): Tool {
  const read = rig.core.catalog().tool('payments.get');
  if (read === null) throw new Error('no read');
  const conditions = { happened: { status: 'refunded' }, notHappened: { status: 'captured' } };
  const times = { everyMs: EVERY_MS, afterMs: 500, forMs: 3_600_000 };
  const probe = {
    read: { ...read, timeoutMs: 7_000 },
    params: { payment_id: 'pay_1' },
    ...conditions,
    ...times,
    ...change,
  };
  return { ...refunds, timeoutMs: 5_000, probe, ...other };
}

/** Starts the prober, whose first round is at once, and lets that come to its end. */
async function start(change: Partial<EffectStore> = {}, workspaces: readonly string[] = ['demo']): Promise<void> {
  const { core } = rig;
  const store: EffectStore = {
    ...core.store,
    get installId() {
      return core.store.installId;
    },
    now: () => world.now,
    effectLedger: async () => world.ledger,
    async probesDue(workspace, tool, afterMs, most) {
      world.looks.push([workspace, tool, most]);
      world.after.add(afterMs);
      return world.due.splice(0, most);
    },
    async planProbe(request) {
      world.plans.push(request);
      return world.planned;
    },
    ...change,
  };
  const upstream: EffectPorts['upstream'] = {
    ...core.upstream,
    async send() {
      world.sent += 1;
      const evidence = { code: 'any', message: 'As it is.', answered: null, startedAt: null, endedAt: null };
      if (world.answer === null) return { kind: 'unknown', evidence };
      const { status, body: value } = world.answer;
      const result = { kind: 'http', status, headers: {}, body: { kind: 'json', value }, truncated: false } as const;
      return { kind: 'failed', evidence, answer: null, result };
    },
  };
  const pauses: EffectPorts['pauses'] = {
    version: (workspace) => core.pauses.version(workspace),
    match: () => (world.isPaused ? { id: 'pau_1', reason: 'stop', until: null } : null),
  };
  const catalog = (): ReturnType<EffectPorts['catalog']> => ({
    ...core.catalog(),
    tool: (name) => world.tools.find((tool) => tool.name === name) ?? null,
  });
  const silent: EffectPorts['silent'] = { ...core.silent, heard: (id, code) => void world.heard.push(`${id} ${code}`) };
  prober = new Prober({
    ports: { ...core, store, upstream, pauses, catalog, silent },
    tools: () => world.tools,
    workspaces: () => workspaces,
    probed: (outcome) => world.outcomes.push(outcome),
    report: (error) => world.reported.push(error),
  });
  await settle();
}

/** All that is under way and needs no timer comes to its end. */
async function settle(): Promise<void> {
  for (let turns = 0; turns < 20; turns += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Lets time pass, with the rounds in it. */
async function pass(ms: number): Promise<void> {
  world.now += ms;
  for (let left = ms; left > 0; left -= 1_000) {
    vi.advanceTimersByTime(Math.min(left, 1_000));
    await settle();
  }
}

const many = (count: number): EffectRecord[] => Array.from({ length: count }, () => unknown);

describe('what is due', () => {
  it('is taken for longer than the read may last, so that no other gateway makes the same probe', async () => {
    world.now += 0.25;
    world.due = many(1);
    await start();
    const [taken] = world.plans;
    expect(taken).toMatchObject({ workspace: 'demo', effectId: unknown.id, due: 'unplanned', reading: null });
    expect(taken?.next).toBe(Math.ceil(world.now) + 7_000 + 3_000);
    expect([world.sent, world.outcomes]).toEqual([1, ['open']]);
  });

  it('is left to the gateway that was first', async () => {
    world.planned = 'moved';
    world.due = many(1);
    await start();
    expect([world.plans.length, world.sent, world.outcomes]).toEqual([1, 0, []]);
  });

  it('is taken with the time that it had, where it was probed before', async () => {
    const { life } = unknown;
    if (life.state !== 'unknown') throw new Error(life.state);
    world.due = [{ ...unknown, life: { ...life, probeAt: 4_711 } }];
    await start();
    expect(world.plans[0]).toMatchObject({ due: 4_711 });
  });

  it('is left alone where somebody has settled it meanwhile', async () => {
    world.due = [{ ...unknown, life: { state: 'rejected', at: 0, approvalId: 'apr_1', until: 0 } }];
    await start();
    expect([world.plans, world.sent]).toEqual([[], 0]);
  });

  it('is asked for eight at a time, as long as there are so many, of each tool in each workspace', async () => {
    world.tools = [probed(), probed({}, { name: 'payments.void' }), probed({ forMs: 0 }, { name: 'by.hand' }), refunds];
    world.due = many(11);
    await start({}, ['demo', 'elsewhere']);
    const most = Math.max(...world.looks.map(([, , at]) => at));
    expect([most, world.sent]).toEqual([8, 11]);
    // Not before the tool's `after`.
    expect([...world.after]).toEqual([500]);
    const places = new Set(world.looks.map(([workspace, tool]) => `${workspace} ${tool}`));
    expect([...places].toSorted()).toEqual([
      'demo payments.refund',
      'demo payments.void',
      'elsewhere payments.refund',
      'elsewhere payments.void',
    ]);
  });

  it('is looked for again each second, and not any more once the prober is stopped', async () => {
    await start();
    expect(world.looks).toHaveLength(1);
    await pass(2_000);
    expect(world.looks).toHaveLength(3);
    await prober?.stop();
    await pass(2_000);
    expect(world.looks).toHaveLength(3);
  });

  it('is put on record before the prober has stopped: the store closes after that', async () => {
    let read: (events: readonly LedgerEvent[]) => void = () => undefined;
    world.due = many(1);
    await start({ effectLedger: () => new Promise((resolve) => (read = resolve)) });
    const stopped = prober?.stop().then(() => world.outcomes.length);
    await settle();
    read([]);
    expect(await stopped).toBe(1);
  });

  it('is not looked for again while that of the look before is made', async () => {
    const reads: ((events: readonly LedgerEvent[]) => void)[] = [];
    world.due = many(1);
    await start({ effectLedger: () => new Promise((resolve) => reads.push(resolve)) });
    await pass(2_000);
    const looks = world.looks.length;
    for (const read of reads) read([]);
    expect(looks).toBe(1);
    await settle();
    await pass(1_000);
    expect(world.looks).toHaveLength(2);
  });

  it('is the last where the prober is stopped while it is made, whatever else is due', async () => {
    const reads: ((events: readonly LedgerEvent[]) => void)[] = [];
    let isHeld = true;
    world.due = many(11);
    await start({
      effectLedger: () =>
        isHeld ? new Promise((resolve) => reads.push(resolve)) : Promise.resolve<readonly LedgerEvent[]>([]),
    });
    const stopped = prober?.stop();
    await settle();
    isHeld = false;
    for (const read of reads) read([]);
    await stopped;
    expect(world.outcomes).toHaveLength(reads.length);
    expect(reads.length).toBeLessThan(11);
  });
});

describe('an upstream that does not answer', () => {
  it.each([
    ['nothing', null],
    ['that it is busy', { status: 429, body: {} }],
    ['that it is broken', { status: 503, body: {} }],
  ] as const)('is asked for one thing at a time, ever later up to a minute, where it says %s', async (_, answer) => {
    world.answer = answer;
    world.due = many(100);
    await start();
    expect(world.outcomes).toEqual(Array.from({ length: 8 }, () => 'unheard'));
    expect(prober?.notes()).toEqual([]);
    const rests: number[] = [];
    for (let rest = 0; rests.length < 7; ) {
      const { sent } = world;
      await pass(1_000);
      rest += 1;
      if (world.sent === sent) continue;
      expect(world.sent).toBe(sent + 1);
      rests.push(rest);
      rest = 0;
    }
    expect(rests).toEqual([2, 4, 8, 16, 32, 60, 60]);
    expect(world.heard).toEqual([]);
    expect(prober?.notes()).toMatchObject([
      { part: 'probes', message: expect.stringMatching(/^The last 8 probes of payments had no answer.* in 60 s\.$/) },
    ]);
    // As soon as it answers, all of it is asked for.
    world.answer = { status: 200, body: {} };
    await pass(60_000);
    expect([world.due, prober?.notes()]).toEqual([[], []]);
    // Calls that had no answer are no matter any more.
    expect(new Set(world.heard)).toEqual(new Set(['payments null']));
  });

  it.each([429, 503])('has answered where a condition names that it says %i', async (status) => {
    world.tools = [probed({ notHappened: { http_status: status } })];
    world.answer = { status, body: {} };
    world.due = many(9);
    await start();
    expect(world.outcomes).toEqual(Array.from({ length: 9 }, () => 'open'));
    expect(new Set(world.heard)).toEqual(new Set(['payments null']));
  });

  it('is left alone at once, whatever else of it is due', async () => {
    world.answer = null;
    world.tools = [probed(), probed({}, { name: 'payments.void' })];
    world.due = many(100);
    await start({}, ['demo', 'elsewhere']);
    expect([world.sent, world.looks.length]).toEqual([8, 1]);
    // The next round goes on with what is after it.
    await pass(2_000);
    expect(world.looks[1]?.slice(0, 2)).toEqual(['demo', 'payments.void']);
  });

  it('is told of from the third time on, and no longer than it matters', async () => {
    world.answer = null;
    world.due = many(8 + 1);
    await start();
    await pass(2_000);
    expect(prober?.notes()).toEqual([]);
    world.due = many(1);
    await pass(4_000);
    expect(prober?.notes()).toHaveLength(1);
    // Perhaps nothing is left to be asked.
    await pass(120_000);
    expect(prober?.notes()).toHaveLength(1);
    await pass(1_000);
    expect(prober?.notes()).toEqual([]);
  });

  it('is forgotten with its last tool', async () => {
    world.answer = null;
    world.due = many(100);
    await start();
    await pass(6_000);
    expect(prober?.notes()).toHaveLength(1);
    world.tools = [];
    await pass(1_000);
    expect(prober?.notes()).toEqual([]);
  });
});

describe('a probe that cannot be sent', () => {
  it('is told of, and tried again after five seconds; no longer once it can', async () => {
    world.isPaused = true;
    world.due = many(1);
    await start();
    expect([world.sent, world.outcomes]).toEqual([0, ['hindered']]);
    expect(world.plans[1]).toMatchObject({ due: 'any', next: Math.ceil(world.now) + 5_000, reading: null });
    expect(prober?.notes()).toMatchObject([
      { part: 'probes', message: expect.stringMatching(/^Probes of payments are held back: .* paused/) },
    ]);
    world.isPaused = false;
    world.due = many(1);
    await pass(1_000);
    expect([world.outcomes.at(-1), prober?.notes()]).toEqual(['open', []]);
  });

  it('is tried no more often than the tool says, and ever less often once its time is over', async () => {
    world.isPaused = true;
    world.tools = [probed({ everyMs: 20_000, forMs: 60_000 })];
    world.due = many(1);
    await start();
    expect(world.plans[1]?.next).toBe(Math.ceil(world.now) + 20_000);
    world.now += 90_000;
    world.due = many(1);
    await pass(1_000);
    const age = world.now - (unknown.life.state === 'unknown' ? unknown.life.at : 0);
    expect(world.plans[3]?.next).toBe(Math.ceil(world.now + age));
  });

  it('is no trouble where it was only made a moment ago', async () => {
    const at = world.now - 500;
    const data = { attempt: 1, said: 'unknown', read_at: new Date(at).toISOString() };
    const actor = { type: 'gateway', id: 'prober' } as const;
    world.ledger.push({ kind: 'effect.probed', effectId: unknown.id, actor, data, seq: 1, id: 'evt_1', at });
    world.tools = [probed({ everyMs: 30_000 })];
    world.due = many(1);
    await start();
    expect([world.sent, world.outcomes, prober?.notes()]).toEqual([0, ['hindered'], []]);
    expect(world.plans[1]?.next).toBeGreaterThanOrEqual(at + 30_000);
  });

  it('is due again by itself where the store was away', async () => {
    world.due = many(1);
    await start({ effectLedger: () => Promise.reject(new StoreUnavailable('away')) });
    expect([world.plans.length, world.outcomes, prober?.notes()]).toEqual([1, [], []]);
  });
});

describe('a fault', () => {
  it('is reported, and does not end the looks; that the store is away is none', async () => {
    const faults = [new Error('torn'), new StoreUnavailable('away')];
    let looks = 0;
    await start({
      async probesDue() {
        looks += 1;
        const fault = faults.shift();
        if (fault !== undefined) throw fault;
        return [];
      },
    });
    await pass(2_000);
    expect(looks).toBe(3);
    expect(world.reported).toEqual([new Error('torn')]);
  });
});

it.each([
  [{ isSettled: true, finding: 'happened' }, 'happened'],
  [{ isSettled: true, finding: 'not_happened' }, 'not_happened'],
  [{ isSettled: true, finding: 'unknown' }, 'open'],
  [{ isSettled: false, finding: 'happened' }, 'open'],
  [{ isSettled: true, finding: 'happened', wasHeard: false }, 'unheard'],
] as const)('a probe that found %j counts as %s', (found, outcome) => {
  const probe = { kind: 'probed', effect: unknown, why: '', retryAfterMs: null, wasHeard: true } as const;
  expect(outcomeOfProbe({ ...probe, ...found })).toBe(outcome);
});
