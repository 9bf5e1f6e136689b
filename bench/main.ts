import { writeFile } from 'node:fs/promises';
import type { BenchResult } from './result.ts';

/** Runs the benchmarks of one Node version: `main.js RESULTS.json [NAME]`. */
const SUITES: Readonly<Record<string, () => Promise<{ readonly run: () => Promise<readonly BenchResult[]> }>>> = {
  decision: () => import('./decision.ts'),
  receipt: () => import('./receipt.ts'),
  store: () => import('./store.ts'),
  governed: () => import('./governed.ts'),
  redis: () => import('./redis.ts'),
};

const [file, only] = process.argv.slice(2);
if (file === undefined) throw new Error('usage: main RESULTS.json [NAME]');
if (only !== undefined && !(only in SUITES))
  throw new Error(`there is no benchmark ${only}; there are ${Object.keys(SUITES).join(', ')}`);
const node = `node ${process.versions.node.split('.')[0]}`;
const results: (BenchResult & { readonly node: string })[] = [];
for (const [name, load] of Object.entries(SUITES)) {
  if (only !== undefined && only !== name) continue;
  const { run } = await load();
  for (const result of await run()) {
    results.push({ ...result, node });
    const ratio = result.ratio === null ? '' : `  ratio ${result.ratio.toFixed(2)}`;
    const against = result.peer === null ? '' : `  (${result.peer})`;
    const target = result.target === null ? '' : `  target ${result.target}`;
    console.log(`${node}  ${result.name}: ${result.value} ${result.unit}${ratio}${against}${target}`);
  }
}
await writeFile(file, JSON.stringify(results));
