import { DEEP } from '../deep.ts';
import { concluded, type Stand, torture, type TortureReport } from './harness.ts';

/** How much of a run there is: half, but for `npm run test:deep`. Seeds are new each time, so that runs add up. */
export const SHARE = DEEP ? 1 : 0.5;

/** Runs in all, where the upstream gets too little time to keep what is declared of it. */
const MOST_RUNS = 3;

/**
 * The harness as `npm test` runs it: a new seed each time, which is printed with what was found.
 * @throws Error if the machine is too busy for a verdict, each time
 */
export async function tortureInShort(settings: {
  readonly stand: Stand;
  readonly ops: number;
  readonly kills: number;
}): Promise<TortureReport> {
  for (let run = 1; ; run += 1) {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const report = await torture({ ...settings, seed, concurrency: 16, tell: (line) => console.log(line) });
    console.log(JSON.stringify({ stand: settings.stand, ...report }));
    const conclusion = concluded(report);
    if (conclusion.kind !== 'no_verdict') return report;
    console.log(conclusion.why);
    if (run === MOST_RUNS) throw new Error(conclusion.why);
  }
}
