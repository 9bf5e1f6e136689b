import { type Stand, torture, type TortureReport } from './harness.ts';

/** The harness as `npm test` runs it: a new seed each time, which is printed with what was found. */
export async function tortureInShort(settings: {
  readonly stand: Stand;
  readonly ops: number;
  readonly kills: number;
}): Promise<TortureReport> {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const report = await torture({ ...settings, seed, concurrency: 16, tell: (line) => console.log(line) });
  console.log(JSON.stringify({ stand: settings.stand, ...report }));
  return report;
}
