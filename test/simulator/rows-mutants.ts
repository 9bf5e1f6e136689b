import * as records from '../../src/records/effect-store.ts';
import type { Answer, Change } from '../../src/stores/port.ts';
import { commitTo, type MapRows } from '../port/map-rows.ts';
import { type FaultName, plantedIn } from '../planted-faults.ts';
import { PRODUCT, type Product } from './rows-world.ts';

/** The product's own rules over rows with one line changed. */
async function rulesWith(fault: FaultName): Promise<Product> {
  const { createEffectStore } = await plantedIn(records, 'src/records/effect-store.ts', fault);
  return { ...PRODUCT, createEffectStore };
}

/** A store that commits otherwise. */
function storeThat(commit: (rows: MapRows, change: Change, now: number) => Answer): Product {
  return { ...PRODUCT, commit };
}

/** Rules over rows, and stores of rows, that somebody might write instead of ours. Each breaks the promise. */
export const MUTANTS: Readonly<Record<string, () => Promise<Product>>> = {
  'a guard dropped': () => rulesWith('guard-dropped'),
  'a guard on the wrong row': () => rulesWith('guard-on-the-wrong-row'),
  'a put on the version that is there': async () =>
    storeThat((rows, change, now) => {
      const there = rows.spaces.get(change.workspace)?.rows;
      const versionOf = (kind: string, id: string): string => there?.get(`${kind}\n${id}`)?.version ?? '';
      return commitTo(
        rows,
        { ...change, puts: change.puts.map((put) => ({ ...put, version: versionOf(put.kind, put.id) })) },
        now,
      );
    }),
  'a sum without its limit': () => rulesWith('sum-without-its-limit'),
  'a cap without its limit': () => rulesWith('cap-without-its-limit'),
  'what is over counts still': () => rulesWith('what-is-over-counts-still'),
  'what is over is given back again': () => rulesWith('given-back-again'),
  'a released claim counts still': () => rulesWith('released-claim-counts-still'),
  'half a change: rows without figures': async () =>
    storeThat((rows, change, now) => {
      const answer = commitTo(rows, change, now);
      // Refused for its figures alone: its rows are written all the same.
      if (answer.kind === 'moved' && answer.rows.length === 0 && change.sums.length > 0)
        commitTo(rows, { ...change, sums: [], events: [] }, now);
      return answer;
    }),
  'half a change: rows without events': async () =>
    storeThat((rows, change, now) => {
      const isSettlement = change.puts.length > 0 && change.sums.some(({ spend }) => spend > 0);
      return commitTo(rows, isSettlement ? { ...change, events: change.events.slice(0, 1) } : change, now);
    }),
  'a moved change taken for done': () => rulesWith('moved-is-taken-for-done'),
  'a lost answer that nobody looks for': () => rulesWith('lost-answer-is-not-looked-for'),
  'a lost answer that takes another attempt for its own': () => rulesWith('another-attempt-is-taken-for-the-lost-one'),
  'a settlement sent again that is not recognised': () => rulesWith('settlement-is-not-recognised'),
  'a memory that survives a refused change': () => rulesWith('memory-survives-a-refusal'),
  'a step decided on a stale figure': () => rulesWith('stale-figure'),
  'a span of time not checked': async () =>
    storeThat((rows, change, now) => commitTo(rows, { ...change, from: -Infinity, until: Infinity }, now)),
};
