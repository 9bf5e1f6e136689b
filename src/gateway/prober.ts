import type { EffectRecord } from '../effects/model/effect.ts';
import type { Note } from '../effects/model/note.ts';
import type { Probe, Tool } from '../effects/model/tool.ts';
import type { EffectPorts } from '../effects/ports.ts';
import { probeByItself, type ProbeResult } from '../effects/run/probe-effect.ts';
import { StoreUnavailable } from '../effects/store.ts';

const EVERY_MS = 1000;
/** The most probes of one upstream at the same time; one where its last was not answered. */
const AT_ONCE = 8;
/** How often one round reads the store for one upstream. The next goes on with other tools and workspaces. */
const READS = 32;
/** An upstream that does not answer is left alone for longer each time, up to this. */
const MOST_REST_MS = 60_000;
/** A gateway has this much more than the time-out of the read for a probe, before another takes it over. */
const TAKEN_MS = 3_000;
/** What is paused, or cannot be asked for another reason, is looked at again after this. */
const HINDERED_MS = 5_000;
/** Trouble older than this is none, ms: perhaps nothing is left to be asked. */
const TROUBLED_MS = 2 * MOST_REST_MS;
/** So many unanswered probes in a row are worth a note. */
const NOTEWORTHY = 3;

/** What became of a probe. `open`: it shows neither. `unheard`: no answer, or that of a broken upstream. `hindered`: not sent. */
export type ProbeOutcome = 'happened' | 'not_happened' | 'open' | 'unheard' | 'hindered';

export function outcomeOfProbe(result: ProbeResult): ProbeOutcome {
  if (result.kind === 'problem') return 'hindered';
  if (!result.wasHeard) return 'unheard';
  return result.isSettled && result.finding !== 'unknown' ? result.finding : 'open';
}

type Probed = Tool & { readonly probe: Probe };

interface Lane {
  isBusy: boolean;
  /** Probes in a row that were not answered. */
  unheard: number;
  restUntil: number;
  /** Why the last one was not sent; `null` where it was. */
  hindrance: string | null;
  /** When either was last so. */
  troubledAt: number;
  /** Where the next round goes on among workspaces and tools. */
  next: number;
}

interface Probing {
  readonly ports: EffectPorts;
  readonly tools: () => readonly Tool[];
  readonly workspaces: () => readonly string[];
  readonly probed: (outcome: ProbeOutcome) => void;
  readonly report: (error: unknown) => void;
}

/**
 * Probes unknown outcomes without being asked. All that has to be remembered is in the store: a restart goes on, and of a
 * fleet the gateway probes that fixes the next time first.
 */
export class Prober {
  readonly #probing;
  readonly #lanes = new Map<string, Lane>();
  readonly #passes = new Set<Promise<void>>();
  #stopped = false;
  readonly #timer;

  constructor(probing: Probing) {
    this.#probing = probing;
    this.#round();
    this.#timer = setInterval(() => this.#round(), EVERY_MS);
    this.#timer.unref();
  }

  /** Where probing stands still, and why. */
  notes(): readonly Note[] {
    return [...this.#lanes].flatMap(([upstream, lane]) => noteOf(upstream, lane));
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    await Promise.all(this.#passes);
  }

  #begin(upstream: string, of: readonly Probed[]): void {
    const lane = this.#lanes.get(upstream) ?? newLane();
    this.#lanes.set(upstream, lane);
    if (lane.isBusy || performance.now() < lane.restUntil) return;
    lane.isBusy = true;
    const passing = pass(this.#probing, of, lane, () => this.#stopped)
      .catch((error: unknown) => {
        if (!(error instanceof StoreUnavailable)) this.#probing.report(error);
      })
      .finally(() => {
        lane.isBusy = false;
        this.#passes.delete(passing);
      });
    this.#passes.add(passing);
  }

  #round(): void {
    const byUpstream = new Map<string, Probed[]>();
    for (const tool of this.#probing.tools()) {
      if (!isProbed(tool)) continue;
      const same = byUpstream.get(tool.upstream);
      if (same === undefined) byUpstream.set(tool.upstream, [tool]);
      else same.push(tool);
    }
    for (const [upstream, lane] of this.#lanes)
      if (!byUpstream.has(upstream) && !lane.isBusy) this.#lanes.delete(upstream);
    for (const [upstream, of] of byUpstream) this.#begin(upstream, of);
  }
}

/** Probes what is due of one upstream, as long as it answers and more may be due. */
async function pass(probing: Probing, of: readonly Probed[], lane: Lane, isStopped: () => boolean): Promise<void> {
  const where = probing.workspaces();
  const places = where.length * of.length;
  for (let isMore = true; isMore; ) {
    isMore = false;
    for (let reads = Math.min(READS, places); reads > 0; reads -= 1) {
      const tool = of[lane.next % of.length];
      const workspace = where[Math.floor(lane.next / of.length) % where.length];
      lane.next = (lane.next + 1) % places;
      if (tool === undefined || workspace === undefined) continue;
      isMore = (await batch(probing, workspace, tool, lane)) || isMore;
      if (isStopped() || performance.now() < lane.restUntil) return;
    }
  }
}

/** @returns whether the upstream answered and more of the same may be due */
async function batch(probing: Probing, workspace: string, tool: Probed, lane: Lane): Promise<boolean> {
  const most = lane.unheard > 0 ? 1 : AT_ONCE;
  const { afterMs, everyMs } = tool.probe;
  const due = await probing.ports.store.probesDue(workspace, tool.name, afterMs, most);
  const outcomes = await Promise.all(due.map((effect) => probeUnlessTaken(probing, effect, tool, lane)));
  const wasHeard = outcomes.some((outcome) => outcome !== null && outcome !== 'unheard' && outcome !== 'hindered');
  if (wasHeard) {
    lane.unheard = 0;
    probing.ports.silent.heard(tool.upstream, null);
  } else if (outcomes.includes('unheard')) {
    lane.unheard += 1;
    lane.troubledAt = performance.now();
    lane.restUntil = lane.troubledAt + Math.min(everyMs * 2 ** Math.min(lane.unheard - 1, 20), MOST_REST_MS);
  }
  return wasHeard && due.length === most;
}

/** Probes one effect, unless another gateway does. */
async function probeUnlessTaken(
  { ports, probed }: Probing,
  effect: EffectRecord,
  { probe }: Probed,
  lane: Lane,
): Promise<ProbeOutcome | null> {
  const { store } = ports;
  const { life, workspace, id: effectId } = effect;
  if (life.state !== 'unknown') return null;
  const of = { workspace, effectId, fence: life.lease.fence, reading: null };
  const due = life.probeAt ?? 'unplanned';
  const taken = await store.planProbe({ ...of, due, next: Math.ceil(store.now()) + probe.read.timeoutMs + TAKEN_MS });
  if (taken === 'moved') return null;
  const result = await probeByItself(ports, effect, life);
  if (result.kind === 'problem') {
    const { code, detail, retryAfterMs } = result.problem;
    // Somebody else has settled it. Or the store is away: then it is due again when its time is over.
    if (code === 'not_unknown' || code === 'already_resolved' || code === 'store_unavailable') return null;
    if (code !== 'too_early') Object.assign(lane, { hindrance: detail, troubledAt: performance.now() });
    const now = Math.ceil(store.now());
    const late = now > life.at + probe.forMs ? now - life.at : 0;
    const next = now + Math.max(retryAfterMs ?? HINDERED_MS, probe.everyMs, late);
    await store.planProbe({ ...of, due: 'any', next });
  } else lane.hindrance = null;
  const outcome = outcomeOfProbe(result);
  probed(outcome);
  return outcome;
}

function newLane(): Lane {
  return { isBusy: false, unheard: 0, restUntil: 0, hindrance: null, troubledAt: 0, next: 0 };
}

function isProbed(tool: Tool): tool is Probed {
  return tool.probe !== undefined && tool.probe.forMs > 0;
}

function noteOf(upstream: string, { unheard, restUntil, hindrance, troubledAt }: Lane) {
  const part = 'probes';
  if (performance.now() - troubledAt > TROUBLED_MS) return [];
  if (unheard >= NOTEWORTHY) {
    const seconds = Math.max(0, Math.ceil((restUntil - performance.now()) / 1000));
    const message = `The last ${unheard} probes of ${upstream} had no answer, so unknown outcomes of its tools stay unknown. The next is made in ${seconds} s.`;
    return [{ part, message }];
  }
  return hindrance === null ? [] : [{ part, message: `Probes of ${upstream} are held back: ${hindrance}` }];
}
