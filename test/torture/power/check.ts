import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { checkWorkspace } from '../../../src/effects/upkeep/fsck.ts';
import type { EffectStore } from '../../../src/effects/store.ts';
import { openEmbeddedStore } from '../../../src/gateway/embedded-store.ts';
import { settlementTexts } from '../../../src/records/settlement-text.ts';
import { openSpillJournal } from '../../../src/stores/journal/spill.ts';
import { openStepJournal } from '../../../src/stores/journal/step-journal.ts';
import { admitRequest, WORKSPACE } from '../../contract/requests.ts';
import { faultAfter } from '../../port/load-fault.ts';
import { seededRandom } from '../random.ts';
import { type Loss, measure, type Moment, replay } from './disk-log.ts';
import { KEY_SEALS } from '../../identity/key-seals.ts';

const LOSSES: readonly Loss[] = ['all', 'some', 'some', 'some', 'none'];

export interface PowerReport {
  readonly cuts: number;
  readonly records: number;
  /** Cuts after which something was missing that somebody had been told. */
  readonly broken: number;
  /** What was missing; the first of each broken cut. */
  readonly faults: readonly string[];
  /** Keys that had been told admitted, over all cuts. */
  readonly keysAskedAgain: number;
  readonly stepsLookedFor: number;
}

/** Cuts the power at random moments of a recording, half of them right after somebody was told something, and starts on what is left. */
export async function cutPower(log: Buffer, root: string, cuts: number, seed: number): Promise<PowerReport> {
  const random = seededRandom(seed);
  const { records, moments } = momentsOf(log, root, cuts, random);
  const faults: string[] = [];
  let keysAskedAgain = 0;
  let stepsLookedFor = 0;
  await replay(log, root, moments, async (moment, place) => {
    const loss = LOSSES[place % LOSSES.length] ?? 'some';
    const { fault, keys, steps } = await tryCut(moment, loss, random);
    keysAskedAgain += keys;
    stepsLookedFor += steps;
    if (fault !== null) faults.push(`after ${moments[place]} of ${records} records, ${loss} lost: ${fault}`);
  });
  return { cuts, records, broken: faults.length, faults, keysAskedAgain, stepsLookedFor };
}

/** Random moments of a recording, half of them right after somebody was told something, in order. */
function momentsOf(
  log: Buffer,
  root: string,
  cuts: number,
  random: () => number,
): { readonly records: number; readonly moments: readonly number[] } {
  const { records, told } = measure(log, root);
  const moments = Array.from({ length: cuts }, (_, n) => {
    const telling = n % 2 === 0 ? told[Math.floor(random() * told.length)] : undefined;
    return telling ?? 1 + Math.floor(random() * records);
  });
  return { records, moments: moments.sort((a, b) => a - b) };
}

/** As {@link cutPower}, for the load on a store of rows (`test/port/load.ts`); answers with what was missing. */
export async function cutPowerOfRows(
  log: Buffer,
  root: string,
  cuts: number,
  seed: number,
): Promise<{ readonly marks: number; readonly faults: readonly string[] }> {
  const random = seededRandom(seed);
  const { records, moments } = momentsOf(log, root, cuts, random);
  const faults: string[] = [];
  let marks = 0;
  await replay(log, root, moments, async (moment, place) => {
    const loss = LOSSES[place % LOSSES.length] ?? 'some';
    const target = mkdtempSync(join(tmpdir(), 'svc-cut-'));
    try {
      moment.rebuild(target, loss, random);
      const fault = await faultAfter(target, moment.marks);
      marks += moment.marks.length;
      if (fault !== null) faults.push(`after ${moments[place]} of ${records} records, ${loss} lost: ${fault}`);
    } catch (error) {
      faults.push(String(error));
    } finally {
      rmSync(target, { recursive: true, force: true });
    }
  });
  return { marks, faults };
}

interface Tried {
  readonly fault: string | null;
  readonly keys: number;
  readonly steps: number;
}

async function tryCut(moment: Moment, loss: Loss, random: () => number): Promise<Tried> {
  const target = mkdtempSync(join(tmpdir(), 'svc-cut-'));
  const told = toldBy(moment.marks);
  try {
    moment.rebuild(target, loss, random);
    const fault = (await storeFault(join(target, 'data'), told)) ?? (await journalFault(join(target, 'data'), told));
    return { fault, keys: told.admitted.size, steps: told.steps.size };
  } catch (error) {
    return { fault: error instanceof Error ? error.message : String(error), keys: 0, steps: 0 };
  } finally {
    rmSync(target, { recursive: true, force: true });
  }
}

interface Told {
  readonly admitted: ReadonlyMap<string, string>;
  readonly settled: ReadonlyMap<string, string>;
  readonly steps: ReadonlySet<number>;
  readonly remembered: number;
}

function toldBy(marks: readonly string[]): Told {
  const admitted = new Map<string, string>();
  const settled = new Map<string, string>();
  const steps = new Set<number>();
  let remembered = 0;
  for (const line of marks) {
    const [what, first = '', second = ''] = line.split(' ');
    if (what === 'admitted') admitted.set(first, second);
    else if (what === 'settled') settled.set(first, second);
    else if (what === 'step') steps.add(Number(first));
    else if (what === 'remembered') remembered = Number(first);
  }
  return { admitted, settled, steps, remembered };
}

async function storeFault(folder: string, told: Told): Promise<string | null> {
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  const path = join(folder, 'store');
  const store = await openEmbeddedStore({ path, lockWaitMs: 0, retention, keySeals: KEY_SEALS, worker: 'never' });
  try {
    const { problem } = store.health();
    if (problem !== null) return problem.message;
    const left = await (await openSpillJournal(join(folder, 'spill'), settlementTexts)).drain(store);
    if (left > 0) return `${left} spilled settlements are left`;
    return (await missing(store, told)) ?? (await differing(store));
  } finally {
    await store.close();
  }
}

/** What was admitted is known by its key, and what was answered has its receipt. */
async function missing(store: EffectStore, { admitted, settled }: Told): Promise<string | null> {
  const asked = [...admitted].map(async ([idempotencyKey, effectId]) => {
    const again = await store.admit(admitRequest({ idempotencyKey }));
    if (again.kind !== 'existing') return `the key ${idempotencyKey} is new again: ${again.kind}`;
    return again.effect.id === effectId ? null : `the key ${idempotencyKey} is of ${again.effect.id}`;
  });
  const looked = [...settled].map(async ([effectId, jws]) => {
    const receipt = await store.receipt(WORKSPACE, effectId);
    return receipt?.jws === jws ? null : `the receipt of ${effectId} is gone`;
  });
  return (await Promise.all([...asked, ...looked])).find((fault) => fault !== null) ?? null;
}

async function differing(store: EffectStore): Promise<string | null> {
  const differences = await checkWorkspace(store, WORKSPACE);
  const [first] = differences ?? [];
  return first === undefined ? null : `fsck: ${JSON.stringify(first)}`;
}

async function journalFault(folder: string, { steps, remembered }: Told): Promise<string | null> {
  const path = join(folder, 'journal');
  if (steps.size === 0 && !existsSync(path)) return null;
  const journal = await openStepJournal(path);
  const found = new Set((await journal.after(WORKSPACE, 0)).map((one) => one.step));
  const accepted = journal.memory?.accepted ?? 0;
  await journal.close();
  for (const step of steps) if (!found.has(step)) return `step ${step} is not in the journal`;
  return accepted < remembered ? `what was remembered at ${remembered} is that of ${accepted}` : null;
}
